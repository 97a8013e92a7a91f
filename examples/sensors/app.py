"""The CDK app: `cdk deploy [-c pattern=adaptive|random|calculated|buckets]`."""

from __future__ import annotations

import sys

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from hotpartition_cdk import SMALL, Host, run_on
from stack import PATTERNS, Sensors


def main() -> str | None:
    """Synthesize the app; return what is wrong with its context, if anything is."""
    app = cdk.App(analytics_reporting=False)
    is_local = app.node.try_get_context("local")
    pattern = app.node.try_get_context("pattern") or "adaptive"
    if pattern not in PATTERNS:
        return f"context key pattern should be {', '.join(PATTERNS[:-1])} or {PATTERNS[-1]}, not {pattern!r}"
    Sensors(
        app,
        "sensors",
        pattern=pattern,
        options=run_on(Host.current(), SMALL) if is_local else SMALL,
        settings=app.node.try_get_context("settings") or {},
    )
    if not is_local:
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    return None


if __name__ == "__main__":
    sys.exit(main())
