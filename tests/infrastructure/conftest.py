from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from infrastructure.templates import ENVIRONMENTS, Template

if TYPE_CHECKING:
    Synthesize = Callable[..., Template]


@pytest.fixture(scope="session")
def synthesize(tmp_path_factory: pytest.TempPathFactory) -> Synthesize:
    """Synthesizes without bundling: neither network nor pip is needed."""
    # Imported here because the CDK starts Node.js on import, and collecting tests should not.
    from infra.app import build_app  # noqa: PLC0415

    def run(environment: str, **options: Any) -> Template:
        outdir = tmp_path_factory.mktemp(environment)
        # A file of one's own, which says nothing, so that a `hotpartition.toml` of the project's user changes no test.
        (outdir / "none.toml").touch()
        options = {"config": str(outdir / "none.toml"), "is_checked": False} | options
        build_app(environment=environment, outdir=str(outdir), bundling=False, **options).synth()
        (file,) = outdir.glob("*.template.json")
        text = file.read_text()
        return Template(json.loads(text), text)

    return run


@pytest.fixture(scope="session")
def templates(synthesize: Synthesize) -> dict[str, Template]:
    return {environment: synthesize(environment) for environment in ENVIRONMENTS}


@pytest.fixture(scope="session")
def dev(templates: dict[str, Template]) -> Template:
    return templates["dev"]


@pytest.fixture(scope="session")
def prod(templates: dict[str, Template]) -> Template:
    return templates["prod"]


@pytest.fixture(scope="session")
def local(templates: dict[str, Template]) -> Template:
    return templates["local"]


@pytest.fixture(scope="session", params=ENVIRONMENTS)
def template(request: pytest.FixtureRequest, templates: dict[str, Template]) -> Template:
    """Each environment's template in turn."""
    return templates[request.param]


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).resolve().parents[2]


class Run(NamedTuple):
    """A run of app.py that has ended, and where its assembly is."""

    done: subprocess.CompletedProcess[str]
    outdir: Path


@pytest.fixture(scope="session")
def run_app() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs app.py as a process of its own: no credentials, no network, nothing but the way to Node.js."""
    nowhere = "http://127.0.0.1:9"
    environ = {
        "PATH": os.environ["PATH"],
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "HTTPS_PROXY": nowhere,
        "HTTP_PROXY": nowhere,
        "PIP_INDEX_URL": nowhere,
        "PIP_RETRIES": "0",
    }

    def run(folder: Path, outdir: Path, *contexts: str, **more: str) -> subprocess.CompletedProcess[str]:
        arguments = [argument for context in contexts for argument in ("-c", context)]
        command = [sys.executable, "app.py", *arguments, "-o", str(outdir)]
        return subprocess.run(command, cwd=folder, env={**environ, **more}, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def clone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources that synthesis needs, as a fresh clone has them: nothing was ever built there."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("app.py", "cdk.json"):
        shutil.copy(root / name, folder)
    for name in ("hotpartition_cdk", "infra", "lambdas", "layers"):
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="session")
def fresh_runs(
    clone: Path, run_app: Callable[..., subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Run]:
    """Dev and prod, synthesized in the clone without bundling, by processes that hash texts in another way.

    cdk-nag judges both; the CDK's own rules, which take ten seconds, judge prod: it has every property that dev has.
    """
    dev_outdir, prod_outdir = (tmp_path_factory.mktemp(f"fresh-{environment}") for environment in ("dev", "prod"))
    dev = run_app(clone, dev_outdir, "bundling=off", PYTHONHASHSEED="12345", CDK_VALIDATION="false")  # the default
    prod = run_app(clone, prod_outdir, "bundling=off", "environment=prod", PYTHONHASHSEED="12345")
    return {"dev": Run(dev, dev_outdir), "prod": Run(prod, prod_outdir)}
