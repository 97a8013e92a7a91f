"""`python -m tools.scenarios NAME`: runs a study. Each is one file of this folder, and stands in `STUDIES` once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from tools.scenarios.seeds import Study, run_study

STUDIES: Sequence[str] = (
    "report:STUDY",
    "message_faults:STUDY",
    "message_faults:IN_BAND",
    "table_faults:STUDY",
    "table_faults:IN_BAND",
    "table_faults:FOLD",
    "counter_faults:STUDY",
    "step:STUDY",
    "in_band:STUDY",
    "pages:STUDY",
)
"""Module and name of each study. docs/testing.md says what else a new one needs; a test holds it to this list."""
MISUSED = 2


def load_studies() -> dict[str, Study]:
    """Load all studies, by the names of their commands."""
    studies = []
    for place in STUDIES:
        module, _, name = place.partition(":")
        studies.append(getattr(import_module(f"tools.scenarios.{module}"), name))
    return {study.name: study for study in studies}


def main(arguments: Sequence[str]) -> int:
    """Run a study."""
    studies = load_studies()
    if not arguments or arguments[0] not in studies:
        sys.stderr.write(f"usage: python -m tools.scenarios {{{','.join(studies)}}} ...\n")
        return MISUSED
    return run_study(studies[arguments[0]], arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
