"""`python -m tools.rehearse [lite|dev|prod|team ...]`: exit status 1 when a step did not end as the documents say."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
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
"""What moto and the plug-in cannot say, for the page."""


def rehearse(subjects: Sequence[str], out: Path) -> list[Step]:
    """Rehearse each subject in an account of its own, and write page and JSON."""
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
    (out / "index.html").write_text(_page(steps))
    return steps


def _page(steps: Sequence[Step]) -> str:
    rows = "".join(
        f"<tr><td>{'yes' if step.is_right else '<b>no</b>'}</td><td>{escape(step.name)}</td>"
        f"<td>{escape(step.said)}</td><td>{step.seconds:.1f} s</td></tr>"
        for step in steps
    )
    notes = "".join(f"<li>{escape(each)}</li>" for each in UNJUDGED)
    return (
        "<!doctype html><meta charset='utf-8'><title>Rehearsal of the deployment</title>"
        "<style>body{font:15px sans-serif;margin:2em}td,th{padding:.3em .8em;text-align:left}</style>"
        "<h1>Rehearsal of the deployment</h1><p>The CDK's command line, against moto's server.</p>"
        f"<table><tr><th>As it should</th><th>Step</th><th>What came of it</th><th>Time</th></tr>{rows}</table>"
        f"<h2>What this cannot judge</h2><ul>{notes}</ul>"
    )


def main(arguments: Sequence[str]) -> int:
    """Rehearse what is named; all of it by default."""
    parser = argparse.ArgumentParser(prog="python -m tools.rehearse", description=main.__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"{', '.join(REHEARSALS)}; default: all")
    chosen = parser.parse_args(arguments).subjects or [*REHEARSALS]
    if unknown := [each for each in chosen if each not in REHEARSALS]:
        parser.error(f"{', '.join(unknown)} cannot be rehearsed; allowed are {', '.join(REHEARSALS)}")
    out = ROOT / "out" / "rehearsal"
    steps = rehearse(chosen, out)
    print(f"the page is {out / 'index.html'}")
    return 0 if all(step.is_right for step in steps) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
