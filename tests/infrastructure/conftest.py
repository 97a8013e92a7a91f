from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
