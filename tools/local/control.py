"""The control API: what a test or the demo looks at, and breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from tools.local.functions import FunctionPool, ThrottledInvocationError
from tools.local.processes import LocalRunError
from tools.local.redis import RedisNodes

_ORDERS: Mapping[str, Callable[[RedisNodes], Awaitable[None]]] = {
    "kill": RedisNodes.kill,
    "start": RedisNodes.start,
    "pause": RedisNodes.pause,
    "continue": lambda redis: redis.pause(is_paused=False),
    "cut-replica": RedisNodes.cut_replica,
    "fail-over": RedisNodes.fail_over,
}
"""The orders to Redis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """JSON over HTTP, on a port of its own."""

    status: Callable[[], dict[str, Any]]
    dynamodb_url: str
    redis: RedisNodes | None
    pools: Mapping[str, FunctionPool]

    def app(self) -> web.Application:
        """Build the server."""
        app = web.Application()
        app.router.add_get("/status", self._status)
        app.router.add_get("/dynamodb/{what:timeline|faults}", self._dynamodb)
        app.router.add_put("/dynamodb/faults", self._dynamodb)
        app.router.add_post("/dynamodb/faults", self._dynamodb)
        app.router.add_post(f"/redis/{{action:{'|'.join(_ORDERS)}}}", self._redis)
        app.router.add_post("/functions/{name}/kill", self._kill)
        app.router.add_post("/functions/{name}/invoke", self._invoke)
        return app

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(self.status())

    async def _dynamodb(self, request: web.Request) -> web.Response:
        """Pass on what the local DynamoDB shows and sets."""
        method = "GET" if request.method == "GET" else "PUT"
        url = self.dynamodb_url + request.raw_path.removeprefix("/dynamodb")
        async with aiohttp.request(method, url, data=await request.read()) as response:
            return web.Response(status=response.status, body=await response.read(), content_type="application/json")

    async def _redis(self, request: web.Request) -> web.Response:
        redis, action = self.redis, request.match_info["action"]
        if redis is None:
            return web.json_response({"message": "this stack has no Redis"}, status=409)
        try:
            if action == "start" and request.query.get("fresh") == "1":
                redis.erase()
            await _ORDERS[action](redis)
        except LocalRunError as error:
            return web.json_response({"message": str(error)}, status=500 if action == "start" else 409)
        return web.json_response(self.status()["redis"])

    async def _kill(self, request: web.Request) -> web.Response:
        return web.json_response({"pid": await self._pool(request).kill_one()})

    async def _invoke(self, request: web.Request) -> web.Response:
        """Respond with the function's payload; as Lambda does, 200 and a header when the function failed."""
        try:
            outcome = await self._pool(request).invoke(await request.read() or b"{}")
        except ThrottledInvocationError as error:
            return web.json_response({"Type": "User", "message": str(error)}, status=429)
        headers = {} if outcome.error is None else {"X-Amz-Function-Error": "Unhandled"}
        return web.Response(body=outcome.payload, content_type="application/json", headers=headers)

    def _pool(self, request: web.Request) -> FunctionPool:
        name = request.match_info["name"]
        if name not in self.pools:
            known = ", ".join(sorted(self.pools))
            raise web.HTTPNotFound(text=f'{{"message": "no function {name}; there are {known}"}}')
        return self.pools[name]
