"""A small in-memory API that can be told to misbehave, and a loop in which waiting takes no time."""

from __future__ import annotations

import asyncio
import random
import selectors
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tools.load.client import Client, NoResponseError, Recorder, Response, mint_message_id

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

EPOCH = 1_700_000_000.0


class _NoWait(selectors.DefaultSelector):
    """Instead of waiting, lets the loop's time pass."""

    waited = 0.0

    def select(self, timeout=None):
        self.waited += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time passes only while it has nothing to do, and then at once."""

    def __init__(self) -> None:
        self._no_wait = _NoWait()
        super().__init__(self._no_wait)

    def time(self) -> float:
        return self._no_wait.waited


@dataclass
class FakeApi:
    """Keeps messages in memory; `refusals` answers come first, and each misbehaviour hits every so many messages."""

    now: Callable[[], float]
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    lose_every: int = 0
    alter_every: int = 0
    refuse_share: float = 0.0
    no_response_share: float = 0.0
    refuse_reads_share: float = 0.0
    delay_seconds: float = 0.02
    stored: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    writes: int = 0

    async def write(self, conversation_id, message):
        await asyncio.sleep(self.delay_seconds)
        message_id = message.get("message_id") or mint_message_id(now=self.now(), rng=self.rng)
        if self.rng.random() < self.refuse_share:
            return Response(503, {"title": "refused", "message_id": message_id}, 1.0)
        own = self.stored.setdefault(conversation_id, {})
        content = {
            "conversation_id": conversation_id,
            "message_id": message_id,
            "sender": message["sender"],
            "body": message["body"],
            "attributes": {},
        }
        status = 200 if message_id in own else 201
        self.writes += status == 201
        if not self._hits(self.lose_every):
            own[message_id] = content
        if self.rng.random() < self.no_response_share:
            raise NoResponseError("the connection was reset")
        return Response(status, {"conversation_id": conversation_id, "message_id": message_id})

    async def read(self, conversation_id, parameters):
        await asyncio.sleep(self.delay_seconds)
        if self.rng.random() < self.refuse_reads_share:
            return Response(503, {"title": "refused"}, 1.0)
        newest, limit, cursor = parameters["order"] == "newest", int(parameters["limit"]), parameters.get("cursor")
        own = self.stored.get(conversation_id, {})
        ids = sorted(own, reverse=newest)
        beyond = [one for one in ids if cursor is None or (one < cursor if newest else one > cursor)]
        page = beyond[:limit]
        following = page[-1] if len(beyond) > limit else None
        messages = [own[one] for one in page]
        if self.alter_every:
            messages = [{**one, "body": "?"} if at == self.alter_every else one for at, one in enumerate(messages)]
        return Response(200, {"messages": messages, "next_cursor": following})

    def _hits(self, every: int) -> bool:
        return every > 0 and self.writes % every == 0


class Bench:
    """Runs coroutines on a virtual loop, with a clock that follows it."""

    def __init__(self) -> None:
        self._loop = VirtualLoop()

    def now(self) -> float:
        return EPOCH + self._loop.time()

    def api(self, **misbehaviour) -> FakeApi:
        return FakeApi(now=self.now, **misbehaviour)

    def client(self, api) -> Client:
        return Client(api=api, recorder=Recorder(), rng=random.Random(3), now=self.now)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self._loop.close()


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.close()
