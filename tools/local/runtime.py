"""Lambda's Python runtime: what it brings, and how the processes of a function are started."""

from __future__ import annotations

import asyncio
import compileall
import json
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.local.events import REGION
from tools.local.processes import LocalRunError, start_process
from tools.local.template import FunctionSpec

_RUNTIME_PACKAGES = ("awslambdaric", "simplejson", "snapshot_restore_py.py")
_SDK_PACKAGES = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six.py", "urllib3")
"""What Lambda's Python brings with it, too, behind all layers."""


def install_runtime(folder: Path) -> None:
    """Put runtime client and AWS's SDK into a folder: functions find them there, and nothing else of this program's."""
    source = Path(sysconfig.get_paths()["platlib"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    compiled = [path.name for path in source.glob("runtime_client*.so")] or ["runtime_client*.so"]
    for name in (*_RUNTIME_PACKAGES, *compiled):
        path = source / name
        if not path.exists():
            raise LocalRunError(f"the Lambda runtime client is incomplete: {name} is not installed")
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, folder / name)
    shutil.copy2(Path(__file__).with_name("altered.py"), folder)
    compileall.compile_dir(folder, quiet=2)
    for name in _SDK_PACKAGES:
        (folder / name).symlink_to(source / name)  # 30 MB


def check_runtime(function: FunctionSpec) -> None:
    """Refuse a template that was made for another Python than this one."""
    running = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if function.runtime != running:
        raise LocalRunError(f"function {function.name} wants {function.runtime}, this is {running}")


@dataclass(frozen=True, slots=True)
class Launcher:
    """Knows how the processes of one function are started; `altered` is what one after the other is altered by."""

    function: FunctionSpec
    runtime_dir: Path
    log_dir: Path
    dynamodb_endpoint: str
    altered: Sequence[Mapping[str, Any]] = ()

    @property
    def log_path(self) -> Path:
        """Where all its processes write."""
        return self.log_dir / f"{self.function.name}.log"

    async def start(self, api_port: int, number: int) -> asyncio.subprocess.Process:
        """Start one process, on the interpreter itself and not on this program's virtual environment."""
        function = self.function
        # Later layers cover earlier ones, as they do in /opt.
        layers = [str(folder / "python") for folder in reversed(function.layer_dirs)]
        environment = {
            **function.environment,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_SESSION_TOKEN": "local",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb_endpoint,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_FUNCTION_NAME": function.arn.rpartition(":")[2],
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_FORMAT": function.log_format,
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"local/[$LATEST]{number:08d}",
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api_port}",
            "LAMBDA_TASK_ROOT": str(function.code_dir),
            "LANG": "en_US.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": ":".join([str(function.code_dir), *layers, str(self.runtime_dir)]),
            "PYTHONDONTWRITEBYTECODE": "1",  # /opt and /var/task are read-only
            "TZ": ":UTC",
            "_HANDLER": function.handler,
        }
        client = ["awslambdaric"]
        if self.altered:
            client = ["altered", json.dumps(self.altered[number % len(self.altered)])]
        command = [str(getattr(sys, "_base_executable", sys.executable)), "-S", "-m", *client, function.handler]
        with self.log_path.open("ab") as log:
            return await start_process(command, log=log, cwd=function.code_dir, env=environment)
