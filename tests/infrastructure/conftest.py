from __future__ import annotations

from pathlib import Path

import pytest

from infrastructure.apps import five_lines, in_band_app
from infrastructure.template import VARIANTS, Template

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """Every variant, and the apps of other teams, synthesized without bundling: neither network nor uv is needed.

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
    five = five_lines(tmp_path_factory.mktemp("five"), tmp_path_factory.mktemp("app"))
    return {**made, "five": five, "in_band": in_band_app(tmp_path_factory.mktemp("in_band"))}
