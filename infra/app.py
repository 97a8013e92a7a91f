"""Builds the CDK app from its context, without a call to AWS, git or the clock."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aws_cdk as cdk

from hotpartition.runtime.declaring import unknown
from hotpartition_cdk.checks import check_receiver
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.layers import CACHE_KEY
from hotpartition_cdk.options import override
from infra.bundle import CACHE, ROOT
from infra.config import Changes, check_times, read_environment, read_object, read_overrides
from infra.environments import DEFAULT_ENVIRONMENT, PROJECT, Environment
from infra.stack import HotPartitionStack

_BUNDLING_STACKS = "aws:cdk:bundling-stacks"
"""CDK's own context key: the stacks whose assets must be real."""

_ERRORS_FAIL_SYNTHESIS = "@aws-cdk/core:annotationsInValidationReport"
"""CDK's feature flag: an error in the assembly fails the synthesis already, and not only the deployment."""

_CONTEXT_KEYS = ("environment", "config", "options", "settings", "bundling")

_OURS = re.compile(r"[a-z]+")
"""The form of this project's context keys. Those of the CDK and its command line hold other characters."""

_FINDINGS = "ValidationFailed"

_UNBUNDLED = "was synthesized with bundling=off: its dependency layer holds no packages, so it cannot be deployed"


def build_app(asked: Mapping[str, object], *, outdir: str | None = None, is_checked: bool = True) -> cdk.App:
    """Build the app; `synth()` on it writes the cloud assembly.

    Args:
        asked: Values of the context, each stronger than the one that the CDK's command line passes.
            `environment`: one of `ENVIRONMENT_NAMES` (`dev`) or a section of the file.
            `config`: file of options and settings, by default `hotpartition.toml` where there is one.
            `options`: overrides of the environment's options, by name, or a JSON object of them.
            `settings`: overrides of the functions' settings, likewise.
            `bundling`: whether the dependency layer has its content, `on` or `off`. Without it nothing is installed
            and nothing can run; the CDK's command line refuses to deploy it.
        outdir: Where the assembly goes; None leaves it to the CDK.
        is_checked: Whether the CDK's own rules, and those of AWS Solutions (cdk-nag), judge the template.

    Raises:
        ConfigurationError: when the context is wrong, or the dependency layer cannot be built.
    """
    app = cdk.App(
        analytics_reporting=False,
        builtin_cloud_formation_validation=is_checked,
        # The CLI passes cdk.json on; without it the same template must come out.
        context={**_project_context(), CACHE_KEY: str(CACHE)},
        post_cli_context=dict(asked),
        outdir=outdir,
        stack_traces=False,
    )
    _check_keys([*asked, *filter(_OURS.fullmatch, app.node.get_all_context())])
    is_bundled = _read_bundling(_context(app, "bundling", "on"))
    if not is_bundled:
        app.node.set_context(_BUNDLING_STACKS, [])
        app.node.set_context(_ERRORS_FAIL_SYNTHESIS, False)
    chosen, overrides = _configure(app)
    stack = HotPartitionStack(app, chosen.stack_name, environment=chosen, overrides=overrides)
    for tag, value in {"project": PROJECT, "environment": chosen.name, **chosen.tags}.items():
        cdk.Tags.of(stack).add(tag, value)
    if is_checked and chosen.target.is_deployed:
        _add_rules(app)
    if not is_bundled:
        # An error in the assembly, which is written all the same: `cdk deploy` stops at it, also with `--app FOLDER`.
        cdk.Annotations.of(stack).add_error(_UNBUNDLED)
    return app


def _configure(app: cdk.App) -> tuple[Environment, Mapping[str, str]]:
    """Choose the environment, and change it: first by the file, then by the context."""
    name = _context(app, "environment", DEFAULT_ENVIRONMENT)
    environment, file = read_environment(name, _context(app, "config", None), ROOT)
    context = Changes(
        options=read_object(_context(app, "options", None), "options"),
        settings=read_object(_context(app, "settings", None), "settings"),
    )
    environment = override(override(environment, file.options), context.options)
    overrides = read_overrides({**file.settings, **context.settings}, environment)
    check_times(environment, overrides)
    check_receiver(environment, environment.stack_name)
    return environment, overrides


def _add_rules(app: cdk.App) -> None:
    # Imported here: the local run has no use for it, and it takes half a second.
    from cdk_nag import AwsSolutionsChecks  # noqa: PLC0415

    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))


def main(arguments: Sequence[str]) -> str | None:
    """Synthesize the stack; return what went wrong, if anything."""
    parser = argparse.ArgumentParser(prog="app.py", description=main.__doc__)
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE", help="as for `cdk synth`")
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where the cloud assembly goes")
    options = parser.parse_args(arguments)
    try:
        build_app(dict(pair.partition("=")[::2] for pair in options.context), outdir=options.output).synth()
    except ConfigurationError as error:
        return str(error)
    except RuntimeError as error:
        # Any error of a jsii call; the findings are printed already.
        if not str(error).startswith(_FINDINGS):
            raise
        return "the findings above are to be repaired, or acknowledged beside the resource with a reason"
    return None


def _check_keys(keys: Iterable[str]) -> None:
    """Refuse a mistyped key, which the CDK's command line would pass on and the app ignore."""
    for key in keys:
        if key not in _CONTEXT_KEYS:
            raise ConfigurationError(unknown(f"context key {key!r}", _CONTEXT_KEYS))


def _read_bundling(value: object) -> bool:
    if value not in ("on", "off"):
        raise ConfigurationError(
            f"bundling should be on or off, not {value!r}; off synthesizes without uv and network, and cannot be"
            " deployed"
        )
    return value == "on"


def _project_context() -> dict[str, Any]:
    context: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]
    return context


def _context(app: cdk.App, key: str, default: object) -> object:
    value: object = app.node.try_get_context(key)
    return default if value is None else value
