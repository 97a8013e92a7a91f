"""The control API: what a test or the demo looks at, and breaks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tools.local.dynamodb_process import DynamoDB
from tools.local.errors import LocalRunError
from tools.local.pool import FunctionPool, ThrottledInvocationError
from tools.local.redis_nodes import RedisNodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """JSON over HTTP, on a port of its own."""

    status: Callable[[], Awaitable[dict[str, Any]]]
    stop: Callable[[], None]
    dynamodb: DynamoDB
    redis: RedisNodes | None
    pools: Mapping[str, FunctionPool]

    def app(self) -> web.Application:
        """Build the server."""
        app = web.Application()
        app.router.add_get("/status", self._status)
        app.router.add_get("/dynamodb/{what:timeline|faults}", self._dynamodb)
        app.router.add_put("/dynamodb/faults", self._dynamodb)
        app.router.add_post("/dynamodb/faults", self._dynamodb)
        app.router.add_post("/redis/{action:kill|start|pause|continue|cut-replica|fail-over}", self._redis)
        app.router.add_post("/functions/{name}/kill", self._kill)
        app.router.add_post("/functions/{name}/invoke", self._invoke)
        app.router.add_post("/stop", self._stop)
        return app

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(await self.status())

    async def _dynamodb(self, request: web.Request) -> web.Response:
        """Pass on what the local DynamoDB shows and sets."""
        method = "GET" if request.method == "GET" else "PUT"
        path = request.raw_path.removeprefix("/dynamodb")
        return await self.dynamodb.ask(method, path, await request.read())

    async def _redis(self, request: web.Request) -> web.Response:
        redis = self.redis
        if redis is None:
            return web.json_response({"message": "this stack has no Redis"}, status=409)
        match request.match_info["action"]:
            case "kill":
                await redis.kill()
            case "start":
                if request.query.get("fresh") == "1":
                    if redis.is_running:
                        return web.json_response({"message": "Redis runs; kill it first"}, status=409)
                    redis.erase()
                return await self._try(redis.start(), status=500)
            case "cut-replica":
                return await self._try(redis.cut_replica(), status=409)
            case "fail-over":
                return await self._try(redis.fail_over(), status=409)
            case "pause":
                redis.pause()
            case _:
                redis.resume()
        return web.json_response((await self.status())["redis"])

    async def _try(self, order: Awaitable[None], *, status: int) -> web.Response:
        """Carry out an order to Redis; one that cannot be carried out has this status and says why."""
        try:
            await order
        except LocalRunError as error:
            return web.json_response({"message": str(error)}, status=status)
        return web.json_response((await self.status())["redis"])

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

    async def _stop(self, _: web.Request) -> web.Response:
        self.stop()
        return web.json_response({"stopping": True})

    def _pool(self, request: web.Request) -> FunctionPool:
        name = request.match_info["name"]
        if name not in self.pools:
            known = ", ".join(sorted(self.pools))
            raise web.HTTPNotFound(text=f'{{"message": "no function {name}; there are {known}"}}')
        return self.pools[name]
