"""`python -m tools.rehearse [lite|dev|prod|team ...]`: exit status 1 when a step did not end as the documents say."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from infra.bundle import ROOT
from tools.rehearse.account import open_account
from tools.rehearse.steps import REHEARSALS, Step

UNJUDGED = (
    "Nothing runs: no function is invoked, no permission is asked for.",
    "No service is called but CloudFormation, S3, SSM and IAM.",
    "Limits, quotas, times and the order of dependencies are AWS's own.",
    "A value that CloudFormation fills in is its resource's name and the attribute's: cfn-lint judges the attribute.",
)
"""What moto and the plug-in cannot say."""


def rehearse(subjects: Sequence[str], out: Path) -> list[Step]:
    """Rehearse each subject in an account of its own, and write what came of it."""
    steps: list[Step] = []
    for subject in subjects:
        with open_account() as (account, url):
            rehearsal = REHEARSALS[subject](account, url, out)
            rehearsal.step(f"{subject}: bootstrap", rehearsal.bootstrap)
            rehearsal.rehearse(subject)
            steps += rehearsal.steps
    out.mkdir(parents=True, exist_ok=True)
    found = {"is_right": all(step.is_right for step in steps), "steps": [asdict(step) for step in steps]}
    (out / "rehearsal.json").write_text(json.dumps({**found, "unjudged": UNJUDGED}, indent=2) + "\n")
    return steps


def main(arguments: Sequence[str]) -> int:
    """Rehearse what is named; all of it by default."""
    parser = argparse.ArgumentParser(prog="python -m tools.rehearse", description=main.__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(REHEARSALS)}; default: all")
    chosen = parser.parse_args(arguments).subjects or [*REHEARSALS]
    if unknown := [each for each in chosen if each not in REHEARSALS]:
        parser.error(f"{', '.join(unknown)} cannot be rehearsed; allowed are {', '.join(REHEARSALS)}")
    out = ROOT / "out" / "rehearsal"
    steps = rehearse(chosen, out)
    print(f"all of it is in {out / 'rehearsal.json'}")
    return 0 if all(step.is_right for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
