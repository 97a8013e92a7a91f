"""`python -m tools.scenarios NAME`: runs a study. Each is one file of this folder, and stands in `STUDIES` once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.scenarios import counter_faults, in_band, message_faults, pages, report, step, table_faults
from tools.scenarios.seeds import OUT_DIR, Study, run_study

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        report.STUDY,
        message_faults.STUDY,
        message_faults.IN_BAND,
        table_faults.STUDY,
        table_faults.IN_BAND,
        table_faults.FOLD,
        counter_faults.STUDY,
        step.STUDY,
        in_band.STUDY,
        pages.STUDY,
    )
}
"""Each by the name of its command. docs/testing.md says what else a new one needs; a test holds it to this list."""


def main() -> int:
    """Run a study as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tools.scenarios")
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, help="how many of each kind of run, at most")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT_DIR)
    options = parser.parse_args()
    return run_study(STUDIES[options.study], options.out, first_seed=options.first_seed, most=options.seeds)


if __name__ == "__main__":
    sys.exit(main())
