"""Builds the CDK app from its context. Asks nobody: no AWS call, no git, no clock."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

import aws_cdk as cdk

from infra.bundle import ROOT
from infra.environments import DEFAULT_ENVIRONMENT, Host, choose_environment
from infra.errors import ConfigurationError
from infra.settings import check_times, read_overrides
from infra.stack import HotPartitionStack

_BUNDLING_STACKS = "aws:cdk:bundling-stacks"
"""CDK's own context key: the stacks whose assets must be real."""

_ERRORS_FAIL_SYNTHESIS = "@aws-cdk/core:annotationsInValidationReport"
"""CDK's feature flag: an error in the assembly fails the synthesis already, and not only the deployment."""

_CONTEXT_KEYS = ("environment", "settings", "bundling")

_UNBUNDLED = "was synthesized with bundling=off: its dependency layer holds no packages, so it cannot be deployed"


def build_app(
    *,
    environment: str | None = None,
    settings: Mapping[str, object] | str | None = None,
    outdir: str | None = None,
    bundling: bool | None = None,
) -> cdk.App:
    """Build the app; `synth()` on it writes the cloud assembly.

    Args:
        environment: `dev`, `prod` or `local`; None takes the context's, and `dev` without one.
        settings: Overrides by setting name, or a JSON object of them; None takes the context's.
        outdir: Where the assembly goes; None leaves it to the CDK.
        bundling: Whether the dependency layer has its content; None takes the context's, and true without one.
            Without it nothing is installed and nothing can run; the CDK's command line refuses to deploy it.

    Raises:
        ConfigurationError: when the context is wrong, or the dependency layer cannot be built.
    """
    context: dict[str, Any] = {"environment": environment, "settings": settings}
    asked = {key: value for key, value in context.items() if value is not None}
    app = cdk.App(
        analytics_reporting=False,
        # The CLI passes cdk.json on; without it the same template must come out.
        context=_project_context(),
        post_cli_context=asked,
        outdir=outdir,
        stack_traces=False,
    )
    is_bundled = _read_bundling(_context(app, "bundling", "on")) if bundling is None else bundling
    if not is_bundled:
        app.node.set_context(_BUNDLING_STACKS, [])
        app.node.set_context(_ERRORS_FAIL_SYNTHESIS, False)
    chosen = choose_environment(_context(app, "environment", DEFAULT_ENVIRONMENT), Host.current())
    overrides = read_overrides(_context(app, "settings", None))
    check_times(chosen, overrides)
    stack = HotPartitionStack(app, f"hotpartition-{chosen.name}", environment=chosen, overrides=overrides)
    cdk.Tags.of(stack).add("project", "hotpartition")
    cdk.Tags.of(stack).add("environment", chosen.name)
    if not is_bundled:
        # An error in the assembly, which is written all the same: `cdk deploy` stops at it, also with `--app FOLDER`.
        cdk.Annotations.of(stack).add_error(_UNBUNDLED)
    return app


def main(arguments: Sequence[str]) -> str | None:
    """Synthesize the stack; return what went wrong, if anything."""
    parser = argparse.ArgumentParser(prog="app.py", description=main.__doc__)
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE", help="as for `cdk synth`")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where the cloud assembly goes")
    options = parser.parse_args(arguments)
    try:
        context = _parse_context(options.context)
        app = build_app(
            environment=context.get("environment"),
            settings=context.get("settings"),
            outdir=options.output,
            bundling=_read_bundling(context["bundling"]) if "bundling" in context else None,
        )
        app.synth()
    except ConfigurationError as error:
        return str(error)
    return None


def _parse_context(pairs: Sequence[str]) -> dict[str, str]:
    context = dict(pair.partition("=")[::2] for pair in pairs)
    for key in context:
        if key not in _CONTEXT_KEYS:
            raise ConfigurationError(f"context key {key!r} is unknown; allowed are environment, settings and bundling")
    return context


def _read_bundling(value: object) -> bool:
    """Read the switch `bundling`.

    Raises:
        ConfigurationError: when it is neither `on` nor `off`.
    """
    if value not in ("on", "off"):
        raise ConfigurationError(
            f"bundling should be on or off, not {value!r}; off synthesizes without pip and network, and cannot be"
            " deployed"
        )
    return value == "on"


def _project_context() -> dict[str, Any]:
    configuration: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())
    context: dict[str, Any] = configuration["context"]
    return context


def _context(app: cdk.App, key: str, default: object) -> object:
    value: object = app.node.try_get_context(key)
    return default if value is None else value
