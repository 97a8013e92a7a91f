"""Synthesizes the CDK app for the environments `local` and `local-lite`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.local.errors import LocalRunError
from tools.local.processes import kill, start_process

_ROOT = Path(__file__).resolve().parents[2]


async def synthesize(
    outdir: Path, *, environment: str = "dev", settings: Mapping[str, Any], options: Mapping[str, Any]
) -> Path:
    """Run app.py and return the folder of the cloud assembly, or raise `LocalRunError` with what app.py said."""
    shutil.rmtree(outdir, ignore_errors=True)
    outdir.parent.mkdir(parents=True, exist_ok=True)
    log_path = outdir.parent / "synthesis.log"
    context = ["-c", f"environment={'local' if environment == 'dev' else f'local-{environment}'}"]
    for key, changes in (("settings", settings), ("options", options)):
        if changes:
            context += ["-c", f"{key}={json.dumps(changes)}"]
    command = [sys.executable, str(_ROOT / "app.py"), *context, "-o", os.path.abspath(outdir)]  # noqa: PTH100, ASYNC240
    # Nothing is deployed, and the CDK's rules take longer than all else.
    variables = {**os.environ, "CDK_VALIDATION": "false", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1"}
    with log_path.open("wb") as log:
        process = await start_process(command, log=log, cwd=_ROOT, env=variables)
    try:
        status = await process.wait()
    finally:
        await kill(process)
    if status != 0:
        lines = [line for line in log_path.read_text(errors="replace").splitlines() if line.strip()]
        raise LocalRunError(f"synthesis failed: {lines[-1] if lines else f'status {status}'} (see {log_path})")
    return outdir
