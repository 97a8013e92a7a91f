"""The local DynamoDB as a child process, and what else than DynamoDB's protocol it is asked for."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tools.local.processes import LocalRunError, free_port, is_listening, kill, log_tail, start_process

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0
_MEMBERS = ("AttributeDefinitions", "KeySchema", "LocalSecondaryIndexes", "IndexName", "Projection")
"""What CreateTable takes over of a table and its indexes; the rest (recovery, encryption) has no local effect."""


def creation_request(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Build the request that makes a table of the template, empty and on demand."""
    table, *indexes = (
        {member: each[member] for member in _MEMBERS if member in each}
        for each in (properties, *properties.get("GlobalSecondaryIndexes", ()))
    )
    of_indexes = {"GlobalSecondaryIndexes": indexes} if indexes else {}
    return {"TableName": name, "BillingMode": "PAY_PER_REQUEST", **table, **of_indexes}


class DynamoDB:
    """`tools.local.dynamodb` on a free loopback port."""

    def __init__(self, work_dir: Path) -> None:
        self.url = ""
        self._work_dir = work_dir
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, tables: Sequence[Mapping[str, Any]], *, limits: Mapping[str, Any], seed: int) -> None:
        """Start it with these tables and limits; the error of a failed start ends with its log."""
        self._work_dir.mkdir(parents=True, exist_ok=True)
        port, log_path = free_port(), self._work_dir / "moto.log"
        options = json.dumps({"port": port, "tables": tables, "limits": limits, "seed": seed})
        with log_path.open("wb") as log:
            command = [sys.executable, "-m", "tools.local.dynamodb", options]
            self._process = await start_process(command, log=log, cwd=_ROOT)
        if not await is_listening(self._process, port, seconds=_START_SECONDS):
            raise LocalRunError(f"moto did not start:{log_tail(log_path)}")
        self.url = f"http://127.0.0.1:{port}"

    async def ask(self, method: str, path: str, body: bytes | None = None) -> web.Response:
        """Ask what is not DynamoDB's protocol, and return the response."""
        async with aiohttp.request(method, self.url + path, data=body) as response:
            return web.Response(status=response.status, body=await response.read(), content_type="application/json")

    async def stop(self) -> None:
        """Kill it."""
        await kill(self._process)
