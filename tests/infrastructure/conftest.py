from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infrastructure.apps import five_lines, in_band_app
from infrastructure.template import VARIANTS, Template

HERE = Path(__file__).resolve().parent
NOWHERE = "http://127.0.0.1:9"
BARE = {
    "PATH": os.environ["PATH"],
    "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    "HTTPS_PROXY": NOWHERE,
    "HTTP_PROXY": NOWHERE,
    "PIP_INDEX_URL": NOWHERE,
    "PIP_RETRIES": "0",
}
"""An environment without credentials and network: nothing but the way to Node.js."""


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """Every variant, synthesized without bundling: neither network nor uv is needed.

    cdk-nag and the CDK's own rules, which take ten seconds, judge `prod` and `lite`; a finding fails the synthesis.
    """
    # Imported here because the CDK starts Node.js on import, and collecting tests should not.
    from infra.app import build_app  # noqa: PLC0415

    made = {}
    for name, chosen in VARIANTS.items():
        folder = tmp_path_factory.mktemp(name)
        # A file of its own, so that a `hotpartition.toml` of the project's user changes no test.
        (folder / "empty.toml").touch()
        file = HERE / chosen["config"] if "config" in chosen else folder / "empty.toml"
        asked = {**chosen, "config": str(file), "bundling": "off"}
        build_app(asked, outdir=str(folder), is_checked=name in {"prod", "lite"}).synth()
        made[name] = Template.read(folder)
    return made


@pytest.fixture(scope="session")
def five(tmp_path_factory):
    return five_lines(tmp_path_factory.mktemp("five"), tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="session")
def in_band(tmp_path_factory):
    return in_band_app(tmp_path_factory.mktemp("in_band"))


def variant(name):
    """Build the fixture of one variant, by its name."""

    @pytest.fixture(scope="session", name=name)
    def fixture(templates):
        return templates[name]

    return fixture


dev, prod, changed, staging, lite = map(variant, ("dev", "prod", "changed", "staging", "lite"))


@pytest.fixture(scope="session", params=VARIANTS)
def any_template(request, templates):
    """Each variant's template in turn."""
    return templates[request.param]


@pytest.fixture(scope="session")
def root():
    return HERE.parents[1]


@pytest.fixture(scope="session")
def run_app():
    """Runs app.py as a process of its own, in a bare environment."""

    def run(folder, outdir, *contexts, **more):
        arguments = [argument for context in contexts for argument in ("-c", context)]
        command = [sys.executable, "app.py", *arguments, "-o", str(outdir)]
        return subprocess.run(command, cwd=folder, env={**BARE, **more}, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def clone(root, tmp_path_factory):
    """The sources that synthesis needs, as a fresh clone has them: nothing was ever built there."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("app.py", "cdk.json"):
        shutil.copy(root / name, folder)
    for name in ("hotpartition_cdk", "infra", "lambdas", "layers"):
        shutil.copytree(root / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder
