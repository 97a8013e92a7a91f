"""Starts moto's DynamoDB as a process and creates the template's tables in it."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.local.dynamodb_backend import Backend, ServiceError
from tools.local.errors import LocalRunError, log_tail
from tools.local.processes import kill, start_process

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0
_POLL_SECONDS = 0.02
_CREATE_MEMBERS = (
    "AttributeDefinitions",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
)
"""What CreateTable takes over from the template; the rest (recovery, insights, encryption) has no local effect."""

_INDEX_MEMBERS = ("IndexName", "KeySchema", "Projection")
"""The same of an index."""


class MotoServer:
    """moto's DynamoDB on a free loopback port."""

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Start, and return the endpoint once it serves; the error of a failed start ends with its log."""
        self._work_dir.mkdir(parents=True, exist_ok=True)
        port_file, log_path = self._work_dir / "port", self._work_dir / "moto.log"
        port_file.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tools.local.moto_app", "--port-file", str(port_file.resolve())]
        with log_path.open("wb") as log:
            self._process = await start_process(command, log=log, cwd=_ROOT)
        deadline = time.monotonic() + _START_SECONDS
        while not port_file.exists():
            if self._process.returncode is not None or time.monotonic() > deadline:
                await self.stop()
                raise LocalRunError(f"moto did not start:{log_tail(log_path)}")
            await asyncio.sleep(_POLL_SECONDS)
        return f"http://127.0.0.1:{port_file.read_text()}"

    async def stop(self) -> None:
        """Kill it."""
        await kill(self._process)


async def create_table(backend: Backend, name: str, properties: Mapping[str, Any]) -> None:
    """Create a table of the template, empty and on demand; a DynamoDB that has one of this name is an error."""
    request = {member: properties[member] for member in _CREATE_MEMBERS if member in properties}
    if "GlobalSecondaryIndexes" in request:
        request["GlobalSecondaryIndexes"] = [
            {member: index[member] for member in _INDEX_MEMBERS if member in index}
            for index in request["GlobalSecondaryIndexes"]
        ]
    try:
        await backend.call("CreateTable", {"TableName": name, "BillingMode": "PAY_PER_REQUEST", **request})
        while (await backend.call("DescribeTable", {"TableName": name}))["Table"]["TableStatus"] != "ACTIVE":  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(_POLL_SECONDS)
    except ServiceError as error:
        if error.code == "ResourceInUseException":
            raise LocalRunError(f"{backend.endpoint} already has a table {name}; delete it first") from error
        raise LocalRunError(f"the table cannot be created at {backend.endpoint}: {error.code}: {error}") from error
