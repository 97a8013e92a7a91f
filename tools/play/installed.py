"""The example as its team has it: the wheel is installed, and nothing else of this checkout is in sight."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.play.stack import StackError

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "examples" / "sensors"


def install(wheel: Path, folder: Path) -> Mapping[str, str]:
    """Install a wheel into a folder of its own; returns the environment in which nothing else of this project is found.

    What it depends on is what this project has: no network is needed.

    Raises:
        StackError: it cannot be installed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    _run([*command, "--target", str(folder.resolve()), str(wheel.resolve())], os.environ)
    return {**os.environ, "PYTHONPATH": str(folder.resolve())}


def synthesize(outdir: Path, environment: Mapping[str, str], **context: object) -> Path:
    """Run the app for this machine, as the CDK's command line does; returns the folder of the cloud assembly.

    Raises:
        StackError: the app failed.
    """
    shutil.rmtree(outdir, ignore_errors=True)
    given: dict[str, Any] = json.loads((APP / "cdk.json").read_text())["context"]
    # Nothing is deployed, and the CDK's rules take longer than all else.
    cdk = {
        "CDK_VALIDATION": "false",
        "CDK_CONTEXT_JSON": json.dumps({**given, "local": True, **context}),
        "CDK_OUTDIR": str(outdir.resolve()),
    }
    _run([sys.executable, "app.py"], {**environment, **cdk})
    return outdir


def _run(command: list[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, cwd=APP, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError(f"{' '.join(command)} failed:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
