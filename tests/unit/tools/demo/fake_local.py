"""A stand-in for the local run, started as a child: the API, the control API and DynamoDB's GetItem, all in memory.

It takes the options of `python -m tools.local up`, refuses what a partition would, and raises N a while after the first
refusal. `FAKE_LOSE_EVERY` makes it acknowledge messages that it does not keep, `FAKE_FAIL_EVERY` answer 500 to what a
repetition then stores, `FAKE_STOP_AFTER` end by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

from aiohttp import web

from tests.unit.tools.demo.conftest import FakeApi

SHARDS = 6
DETECTION_SECONDS = 0.7


class FakeLocal:
    """One running stand-in."""

    def __init__(self, limit: float, lose_every: int, fail_every: int) -> None:
        self.fail_every = fail_every
        self.requests = 0
        self.api = FakeApi(now=time.time, lose_every=lose_every, delay_seconds=0.002)
        self.limit = limit
        self.tokens = defaultdict(lambda: limit)
        self.filled_at = defaultdict(time.time)
        self.buckets = {}
        self.refused_at = {}
        self.endpoint = ""
        self.redis_running = True

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/conversations/{name}/messages", self.write)
        app.router.add_get("/conversations/{name}/messages", self.read)
        app.router.add_get("/status", self.status)
        app.router.add_get("/dynamodb/timeline", self.timeline)
        app.router.add_post("/redis/{order}", self.redis)
        app.router.add_post("/", self.dynamodb)
        return app

    def is_raised(self, name: str) -> bool:
        return time.time() > self.refused_at.get(name, float("inf")) + DETECTION_SECONDS

    def take(self, key: str) -> bool:
        now = time.time()
        filled = self.tokens[key] + (now - self.filled_at[key]) * self.limit
        self.filled_at[key], self.tokens[key] = now, min(self.limit, filled)
        taken = self.tokens[key] >= 1
        self.tokens[key] -= taken
        at_ms = int(now * 1000) // 250 * 250
        bucket = self.buckets.setdefault(
            (at_ms, key), {"at_ms": at_ms, "key": key, "writes": 0, "throttled_writes": 0, "write_wcu": 0.0}
        )
        bucket["writes" if taken else "throttled_writes"] += 1
        return taken

    async def write(self, request):
        name = request.match_info["name"]
        message = await request.json()
        self.requests += 1
        if self.fail_every and self.requests % self.fail_every == 0 and "message_id" in message:
            return web.Response(text="Internal Server Error", status=500)
        key = f"{name}#{random.randrange(SHARDS)}" if self.is_raised(name) else name
        if not self.take(key):
            self.refused_at.setdefault(name, time.time())
            message_id = message.get("message_id", f"{int(time.time() * 1000):010d}{random.getrandbits(50):016d}")
            problem = {"title": "Service Unavailable", "message_id": message_id}
            return web.json_response(problem, status=503, headers={"Retry-After": "1"})
        response = await self.api.write(name, message)
        return web.json_response(response.body, status=response.status)

    async def read(self, request):
        response = await self.api.read(request.match_info["name"], request.query)
        return web.json_response(response.body, status=response.status)

    async def status(self, _):
        return web.json_response(
            {
                "functions": {"write_message": {"environments": 4}, "read_messages": {"environments": 2}},
                "redis": {"running": self.redis_running},
                "dynamodb": {
                    "endpoint": self.endpoint,
                    "tables": {"messages": {"table_name": "messages"}},
                },
            }
        )

    async def timeline(self, request):
        since = int(request.query["since_ms"])
        return web.json_response({"buckets": [one for one in self.buckets.values() if one["at_ms"] >= since]})

    async def redis(self, request):
        self.redis_running = request.match_info["order"] == "start"
        return web.json_response({})

    async def dynamodb(self, request):
        name = (await request.json())["Key"]["pk"]["S"]
        if not self.is_raised(name):
            return web.json_response({})
        since = int(self.refused_at[name] * 1000)
        return web.json_response({"Item": {"generations": {"SS": [f"{SHARDS}@{since}"]}}})


async def serve(options: argparse.Namespace) -> None:
    lose_every, fail_every = (int(os.environ.get(name, "0")) for name in ("FAKE_LOSE_EVERY", "FAKE_FAIL_EVERY"))
    local = FakeLocal(options.partition_write_limit, lose_every, fail_every)
    runner = web.AppRunner(local.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    local.endpoint = f"http://{host}:{port}"
    part = options.ready_file.with_suffix(".part")
    part.write_text(json.dumps({"api_url": local.endpoint, "control_url": local.endpoint, "pid": os.getpid()}))
    part.replace(options.ready_file)
    await asyncio.sleep(float(os.environ.get("FAKE_STOP_AFTER", "100")))
    sys.stderr.write("the fake was told to stop\n")
    sys.stderr.flush()
    os._exit(1)  # without asyncio's last words about requests that were under way


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--partition-write-limit", type=float)
    parser.add_argument("--ready-file", type=Path)
    asyncio.run(serve(parser.parse_known_args()[0]))
