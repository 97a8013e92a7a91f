"""Starts everything in order, and stops everything, however far it came."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from hotpartition.runtime.connect import find_journal
from hotpartition.runtime.declaring import variable_name
from hotpartition.runtime.settings import Settings, name_of
from hotpartition_cli.callers import UrlCaller
from hotpartition_cli.heat import Heat, Server
from tools.local.config import OPERATIONS_FUNCTION, LocalConfig
from tools.local.control import Control
from tools.local.environment import Launcher, check_runtime, install_runtime
from tools.local.functions import FunctionPool
from tools.local.gateway import Gateway, fire
from tools.local.processes import LocalRunError, free_port, serve
from tools.local.redis import RedisNodes, find_binary
from tools.local.template import LOOPBACK, ROOT, FunctionSpec, Stack, creation_request, read_stack, synthesize

MESSAGES = "POST /conversations/{conversation_id}/messages"


class LocalRun:
    """The whole stack on this machine. Whatever was started is stopped by `cleanup`, after a start that failed as well.

    `say` gets one line for each step.
    """

    def __init__(self, config: LocalConfig, cleanup: AsyncExitStack, say: Callable[[str], None]) -> None:
        self.config = config
        self.pools: dict[str, FunctionPool] = {}
        self.redis: RedisNodes | None = None
        self.dynamodb_url = self.api_url = self.control_url = self.page_url = ""
        self._cleanup = cleanup
        self._say = say
        self._stack: Stack
        self._journals: dict[str, dict[str, str]] = {}

    def status(self) -> dict[str, Any]:
        """Describe the run as the control API shows it."""
        return {
            "api_url": self.api_url,
            "control_url": self.control_url,
            "page_url": self.page_url,
            "stack": self._stack.name,
            "functions": {name: pool.status() for name, pool in self.pools.items()},
            "redis": {} if self.redis is None else self.redis.describe(),
            "dynamodb": {
                "endpoint": self.dynamodb_url,
                "table": next(iter(self._stack.tables), None),
                "tables": {name: self._journals.get(name) for name in self._stack.tables},
                "partition_write_limit_wcu": self.config.partition_write_limit,
                "partition_read_limit_rcu": self.config.partition_read_limit,
                "partitions": self.config.partitions,
            },
        }

    async def start(self) -> None:
        """Start everything; `LocalRunError` holds the one line that a person should read."""
        work_dir = self.config.work_dir
        # The port first: it is the likeliest thing to be wrong.
        listener = self._take_api_port()
        self._prepare_work_dir()
        assembly_dir = self.config.assembly
        if assembly_dir is None:
            self._say(f"synthesizing the template of environment {self.config.environment} for this machine")
            assembly_dir = await synthesize(
                work_dir / "assembly",
                environment=self.config.environment,
                settings=self.config.settings,
                options=self.config.options,
            )
        redis_port = free_port()
        self._stack = read_stack(assembly_dir, redis_port=redis_port, api_url=self.api_url)
        self._journals = find_journals(self._stack.functions)
        for warning in self._stack.warnings:
            self._say(f"warning: {warning}")
        for function in self._stack.functions:
            check_runtime(function)
        install_runtime((work_dir / "runtime").resolve())
        if self._stack.has_redis:
            await self._start_redis(redis_port)
        await self._start_dynamodb()
        await self._start_functions()
        gateway = Gateway({route_key: self.pools[name] for route_key, name in self._stack.routes.items()})
        await self._serve(gateway.app(), listener=listener)
        await self._start_control()
        await self._start_schedules()
        await self._announce()

    def _prepare_work_dir(self) -> None:
        """Begin afresh: DynamoDB's data lives in memory, so a registry of an earlier run would contradict it."""
        work_dir = self.config.work_dir
        try:
            work_dir.mkdir(parents=True, exist_ok=True)
            # Until the run ends: a second one would empty the folder below this one.
            fcntl.flock(self._cleanup.enter_context((work_dir / "lock").open("w")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            for folder in ("redis", "logs"):
                shutil.rmtree(work_dir / folder, ignore_errors=True)
            (work_dir / "logs").mkdir()
        except OSError as error:
            why = "another local run uses it" if isinstance(error, BlockingIOError) else error.strerror
            raise LocalRunError(f"the folder {work_dir} cannot be used: {why} (--work-dir takes another)") from error

    async def _start_redis(self, port: int) -> None:
        form, binary = self.config.redis, find_binary(os.environ)
        self.redis = RedisNodes(binary, self.config.work_dir / "redis", port, form=form)
        self._cleanup.push_async_callback(self.redis.stop)
        await self.redis.start()
        extra = {"single": "", "guarded": ", TLS and password", "replicated": ", one replica"}[form]
        self._say(f"Redis ({binary.name}, cluster mode, append-only file{extra}) on port {port}")

    async def _start_dynamodb(self) -> None:
        config, port = self.config, free_port()
        limits = {
            "write_limit_wcu": config.partition_write_limit,
            "read_limit_rcu": config.partition_read_limit,
            "count": config.partitions,
        }
        tables = [creation_request(name, properties) for name, properties in self._stack.tables.items()]
        options = {"port": port, "tables": tables, "limits": limits, "seed": config.seed}
        command = [sys.executable, "-m", "tools.local.dynamodb", json.dumps(options)]
        log_path = config.work_dir / "logs" / "moto.log"
        self.dynamodb_url = await self._cleanup.enter_async_context(serve("moto", command, port, log_path, ROOT))
        taken = f"{config.partition_write_limit:g} WCU and {config.partition_read_limit:g} RCU"
        partitions = "one for each key" if config.partitions is None else f"{config.partitions} in each table and index"
        self._say(
            f"DynamoDB (moto, and the partition model: {taken} a second, partitions: {partitions}) "
            f"at {self.dynamodb_url}"
        )

    async def _start_functions(self) -> None:
        rng = random.Random(self.config.seed)
        for function in self._stack.functions:
            self.pools[function.name] = pool = self._pool(function, rng)
            self._cleanup.push_async_callback(pool.stop)
        if len(self.pools) != len(self._stack.functions):
            raise LocalRunError("two functions of the template have the same name")
        await asyncio.gather(*(pool.start() for pool in self.pools.values()))
        for name, pool in self.pools.items():
            count = f"{pool.min_environments} to {pool.max_environments} environments"
            self._say(f"function {name}: {count}, log in {pool.launcher.log_path}")

    def _pool(self, function: FunctionSpec, rng: random.Random) -> FunctionPool:
        low, high = self.config.environments_of(function.name, function.service)
        # The template speaks of the registry on AWS.
        settings = {} if self.redis is None else self.redis.settings()
        access = {variable_name(name): value for name, value in settings.items()}
        launcher = Launcher(
            replace(function, environment={**function.environment, **access}),
            runtime_dir=(self.config.work_dir / "runtime").resolve(),
            log_dir=self.config.work_dir / "logs",
            dynamodb_endpoint=self.dynamodb_url,
            altered=self.config.alterations(function.service),
        )
        return FunctionPool(launcher=launcher, min_environments=low, max_environments=high, rng=rng)

    async def _start_schedules(self) -> None:
        """Fire each schedule from now on; whatever fails in that, and is no function's failure, ends the run."""
        firing = await self._cleanup.enter_async_context(asyncio.TaskGroup())
        for schedule in self._stack.schedules:
            firing.create_task(fire(schedule, self.pools[schedule.function]))
            self._say(f"schedule of {schedule.function}: now, and every {schedule.every_seconds:g} s")

    async def _start_control(self) -> None:
        # Next to the API's, so that documents can name it.
        control = Control(status=self.status, dynamodb_url=self.dynamodb_url, redis=self.redis, pools=self.pools)
        port = self.config.port
        self.control_url = await self._serve(control.app(), port and port + 1)
        self._say(f"control API at {self.control_url} (docs/testing.md#the-local-run): {self.control_url}/status")
        operations = [each.name for each in self._stack.functions if each.service == OPERATIONS_FUNCTION]
        if not operations:
            return
        # It asks this process as the command line does, so in threads of its own; and only once a browser has asked.
        call = UrlCaller(self.control_url, operations[0])
        with _taking(port + 2):
            page = Server(Heat(call, now=lambda: datetime.now(UTC), every=1.0), port and port + 2)
        page.start()
        self._cleanup.push_async_callback(asyncio.to_thread, page.stop)
        self.page_url = page.url

    def _take_api_port(self) -> socket.socket:
        """Take the API's port now, long before anything serves on it."""
        with _taking(self.config.port):
            listener = socket.create_server((LOOPBACK, self.config.port))
        self._cleanup.callback(listener.close)
        self.api_url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        return listener

    async def _serve(self, app: web.Application, port: int = 0, *, listener: socket.socket | None = None) -> str:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, auto_decompress=False)
        await runner.setup()
        self._cleanup.push_async_callback(runner.cleanup)
        with _taking(port):
            site = web.SockSite(runner, listener) if listener else web.TCPSite(runner, LOOPBACK, port)
            await site.start()
        return f"http://{LOOPBACK}:{runner.addresses[0][1]}"

    def _suggest_requests(self) -> tuple[str, ...]:
        """List the routes; those of the messages API are tried with one command each."""
        if MESSAGES not in self._stack.routes:
            return tuple(f"  {route}" for route in self._stack.routes)
        url = f"{self.api_url}/conversations/hello/messages"
        return (
            "try:",
            f"""  curl -s {url} -H 'content-type: application/json' -d '{{"sender": "me", "body": "hi"}}'""",
            f"  curl -s {url}",
            f"  .venv/bin/hotpartition rush room-1 --url {self.control_url}",
        )

    async def _announce(self) -> None:
        self._say(f"the HTTP API serves at {self.api_url} (authorization is not checked locally)")
        for line in self._suggest_requests():
            self._say(line)
        if self._journals:
            self._say(f"what is hot, and what is done about it: {self.page_url} in a browser, or")
            self._say(f"  .venv/bin/hotpartition watch --url {self.control_url}")
        self._say("Ctrl-C ends it, and all that is stored goes with it")
        ready_file = self.config.ready_file
        if ready_file is not None:
            ready_file.parent.mkdir(parents=True, exist_ok=True)
            temporary = ready_file.with_name(f"{ready_file.name}.new")
            temporary.write_text(json.dumps({**self.status(), "pid": os.getpid()}))
            temporary.replace(ready_file)


def find_journals(functions: Iterable[FunctionSpec]) -> dict[str, dict[str, str]]:
    """Find where the routing items of each table lie, in the settings of its operations function."""
    known = [
        Settings.from_env(each.environment, name_of("operate", each.environment))
        for each in functions
        if each.service == OPERATIONS_FUNCTION
    ]
    return {settings.table_name: asdict(find_journal(settings)) for settings in known}


@contextmanager
def _taking(port: int) -> Iterator[None]:
    """Say in one line which port cannot be used, and why."""
    try:
        yield
    except OSError as error:
        why = str(error) if error.errno is None else os.strerror(error.errno)
        raise LocalRunError(f"port {port} cannot be used: {why}") from error
