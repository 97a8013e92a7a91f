"""The clients of a local run: they write by a schedule, read at random, and keep an exact history of both.

The load is open-loop: a message is offered when its time comes, whether or not earlier ones have been answered, so a
slow system cannot make its own load smaller. Only the number of connections is bounded.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from typing import Any, Literal, get_args

import aiohttp

from hotpartition_messages.message_ids import mint_message_id
from tools.history import Seen, content_digest
from tools.play.workload import Offer, Workload
from tools.world.record import Record

Order = Literal["newest", "oldest"]
Consistency = Literal["strong", "eventual"]
OK = frozenset({200, 201})
REFUSED = frozenset({429, 503})
# A message that is still refused after this time is given up: a person would have stopped pressing the button.
GIVE_UP_SECONDS = 20.0
REQUEST_TIMEOUT_SECONDS = 120.0
"""Far more than a gateway takes to respond that a function did not: a busy machine breaks no request off."""
FIRST_BACKOFF_SECONDS = 0.1
LONGEST_BACKOFF_SECONDS = 2.0
CLIENT_MINTED_SHARE = 0.5
REPLAY_SHARE = 0.02
REPLAY_DELAY_SECONDS = 0.5
PAGE_LIMIT = 100

Mint = Callable[[Offer, float, random.Random], str | None]
"""Mints an item's id from the time and randomness; None leaves that to the server."""
Part = tuple[str, Callable[[str], bool]]
"""A conversation, and whether a message id lies in the part of it that is read."""
Due = Iterable[tuple[float, Callable[[], Coroutine[Any, Any, object]]]]
"""Pieces of work, each with the time at which it begins."""


@dataclass(frozen=True, slots=True)
class Response:
    """One response of the API; status 0: none came, and it is unknown whether the request took effect."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)
    retry_after_seconds: float = 0.0
    queued_seconds: float = 0.0
    age_seconds: float | None = None
    """How old the response says it is; None where it was made for this request."""


NO_RESPONSE = Response(0)


class HttpApi:
    """What is under load, by default the messages API, over HTTP with this many connections.

    Another application says how its clients speak to it, what its functions are called, and its words for what has one
    partition key (`collection`) and for what is written (`item`).
    """

    writer = "write_message"
    reader = "read_messages"
    collection = "conversation"
    item = "message"

    def __init__(self, session: aiohttp.ClientSession, url: str, connections: int) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._free = asyncio.Semaphore(connections)

    def mint(self, offer: Offer, now: float, rng: random.Random) -> str | None:
        """Mint the ids of half of all messages; the server mints the others'."""
        del offer
        return mint_message_id(int(now * 1000), rng.getrandbits) if rng.random() < CLIENT_MINTED_SHARE else None

    def find_part(self, name: str) -> Part:
        """Find the conversation that is read by a name, and which of its messages."""
        return name, lambda _: True

    async def write(self, conversation_id: str, message: Mapping[str, Any]) -> Response:
        """Post one message."""
        return await self.request("POST", f"/conversations/{conversation_id}/messages", json=message)

    async def read(self, conversation_id: str, parameters: Mapping[str, str]) -> Response:
        """Get one page."""
        return await self.request("GET", f"/conversations/{conversation_id}/messages", params=parameters)

    async def request(self, method: str, path: str, **arguments: Any) -> Response:
        """Send one request, as soon as a connection is free."""
        clock = asyncio.get_running_loop().time
        began = clock()
        async with self._free:
            queued_seconds = clock() - began
            try:
                async with self._session.request(method, self._url + path, **arguments) as found:
                    return await _read_response(found, queued_seconds)
            except (aiohttp.ClientError, TimeoutError):
                return NO_RESPONSE


async def _read_response(found: aiohttp.ClientResponse, queued_seconds: float) -> Response:
    """Read a response; a good status without JSON leaves open what it acknowledges."""
    try:
        body = await found.json(content_type=None)
    except ValueError:
        if found.status in OK:
            return NO_RESPONSE
        body = {}
    return Response(
        status=found.status,
        body=body if isinstance(body, dict) else {},
        retry_after_seconds=float(found.headers.get("Retry-After", 0)),
        queued_seconds=queued_seconds,
        age_seconds=float(found.headers["Age"]) if "Age" in found.headers else None,
    )


def open_session() -> aiohttp.ClientSession:
    """Open what requests are sent through; how many at once, each API says."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_read=REQUEST_TIMEOUT_SECONDS),
    )


@dataclass(slots=True)
class Recorder(Record):
    """The record of one run, as in the simulator, and what the clients counted since its start.

    `counts` are of messages that were offered, throttled, acknowledged and, of those, replays; of pages, and of what
    was left out. `notes` are responses that the API should not have given.
    """

    counts: Counter[str] = field(default_factory=Counter)
    offered_at: list[tuple[float, str]] = field(default_factory=list)
    queued_seconds: list[float] = field(default_factory=list)
    """How long each write request waited for one of as many connections as there are environments: for this machine."""
    late_seconds: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Writes and reads through an API and records what came of it.

    `now` is the wall clock in seconds since the epoch: it stamps the history and the ids that the client mints.
    """

    api: HttpApi
    recorder: Recorder
    rng: random.Random
    now: Callable[[], float]
    mint: Mint | None = None
    """None: as the application mints."""
    replay_share: float = REPLAY_SHARE
    """Of the acknowledged messages, as many are sent once more on purpose."""
    give_up_seconds: float = GIVE_UP_SECONDS

    async def write(self, offer: Offer) -> None:
        """Write one message, again with the same id while it is refused, and record the outcome."""
        recorder, place, offered_at = self.recorder, offer.conversation_id, self.now()
        message = {"sender": offer.sender, "body": offer.body}
        digest = content_digest(place, offer.sender, offer.body)
        message_id = (self.mint or self.api.mint)(offer, offered_at, self.rng)
        if message_id is not None:
            message["message_id"] = message_id
            recorder.note_offer(place, message_id, digest, offered_at=offered_at)
        recorder.counts["offered"] += 1
        recorder.offered_at.append((offered_at, place))
        if not await self._store(place, message, digest):
            if "message_id" not in message:
                recorder.note_nameless(place, digest)
        elif self.rng.random() < self.replay_share:
            await asyncio.sleep(REPLAY_DELAY_SECONDS)
            is_stored = await self._store(place, message, digest)
            recorder.counts["replays"] += is_stored

    async def read(
        self, name: str, *, order: Order, consistency: Consistency, limit: int, most_pages: float = inf
    ) -> bool:
        """Read what an application shows under a name, or its first pages, and record it; say whether that was all."""
        parameters = {"order": order, "consistency": consistency, "limit": str(limit)}
        found: list[Seen] = []
        began, cursor = None, None
        for number in count(1):
            asked_at, response = await self._ask(name, parameters | ({"cursor": cursor} if cursor else {}))
            if response.status not in OK:
                break
            began = began or asked_at
            found += see_messages(response)
            cursor = response.body["next_cursor"]
            if cursor is None or number >= most_pages:
                break
        if began is None:
            return False
        conversation_id, covers = self.api.find_part(name)
        self.recorder.note_whole_read(
            conversation_id,
            found,
            began,
            inf,
            is_strong=consistency == "strong",
            newest_first=order == "newest",
            complete=cursor is None,
            covers=covers,
        )
        return cursor is None

    async def _store(self, place: str, message: dict[str, str], digest: str) -> bool:
        """Offer a message until it is stored or given up; learns the message's id if the server mints it."""
        recorder = self.recorder
        async for _, response in self._attempts(f"write to {place}", lambda: self.api.write(place, message)):
            if response is not NO_RESPONSE:
                recorder.queued_seconds.append(response.queued_seconds)
            recorder.counts["throttled"] += response.status in REFUSED
            if response.status in OK:
                message_id = message.setdefault("message_id", str(response.body.get("message_id")))
                if response.body.get("message_id") != message_id:
                    recorder.notes.append(f"a write of {message_id} was acknowledged as {response.body}")
                recorder.counts["acknowledged"] += 1
                recorder.note_acknowledged(place, message_id, digest, self.now())
                return True
            if "message_id" not in message:
                if response.status not in REFUSED or "message_id" not in response.body:
                    # The outcome is unknown and there is no id to repeat it with: a repetition could store it twice.
                    return False
                message["message_id"] = response.body["message_id"]
                recorder.note_offer(place, message["message_id"], digest)
        recorder.counts["rejected"] += 1
        return False

    async def _ask(self, conversation_id: str, parameters: Mapping[str, str]) -> tuple[float, Response]:
        """Ask for a page until it comes or is given up; return when it was last asked for, and the response."""
        what = f"read of {conversation_id}"
        async for attempt in self._attempts(what, lambda: self.api.read(conversation_id, parameters)):
            if attempt[1].status in OK:
                self.recorder.counts["pages"] += 1
                break
        return attempt

    async def _attempts(
        self, what: str, send: Callable[[], Awaitable[Response]]
    ) -> AsyncIterator[tuple[float, Response]]:
        """Yield when each attempt began and its response, until it is time to give up; note what is unexpected."""
        deadline = self.now() + self.give_up_seconds
        for attempt in count():
            asked_at, response = self.now(), await send()
            if response.status not in {*OK, *REFUSED, NO_RESPONSE.status}:
                self.recorder.notes.append(f"{what} answered {response.status}: {response.body}")
            yield asked_at, response
            pause = response.retry_after_seconds + self._spread(attempt)
            is_wrong = response.status // 100 == 4 and response.status not in REFUSED
            if is_wrong or self.now() + pause > deadline:
                return
            await asyncio.sleep(pause)

    def _spread(self, attempt: int) -> float:
        """Return what is waited beyond what the server asks for, so that the refused do not come back as one wave."""
        spread = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(attempt, 10))
        return self.rng.uniform(spread / 2, spread)


def see_messages(response: Response) -> Iterator[Seen]:
    """Yield the messages of a page as the API gave them."""
    for message in response.body["messages"]:
        content = message["conversation_id"], message["sender"], message["body"]
        yield Seen(message["message_id"], content_digest(*content, message.get("attributes")))


def every(seconds: float, work: Callable[[], Coroutine[Any, Any, object]]) -> Due:
    """Lay work over time, evenly, without an end."""
    return ((number * seconds, work) for number in count())


async def begin_each(due: Due, late_seconds: list[float]) -> None:
    """Begin each piece of work at its time, counted from now, whatever became of those before; wait for all of it."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for at_seconds, work in due:
            await asyncio.sleep(max(0.0, start + at_seconds - loop.time()))
            late_seconds.append(loop.time() - start - at_seconds)
            tasks.create_task(work())


async def play(client: Client, offers: Iterable[Offer]) -> None:
    """Offer every message at its time; ends when each is stored or given up."""
    due = ((offer.at_seconds, partial(client.write, offer)) for offer in offers)
    await begin_each(due, client.recorder.late_seconds)


async def browse(client: Client, workload: Workload, *, pause_seconds: float, stopped: asyncio.Event) -> None:
    """Read like visitors do until stopped: mostly newest first, often the hot conversation, seldom all of it."""
    rng, others = client.rng, workload.conversations
    while not stopped.is_set():
        await client.read(
            workload.hot_conversation if rng.random() < 0.4 else rng.choice(others),
            order="newest" if rng.random() < 0.6 else "oldest",
            consistency="strong" if rng.random() < 0.5 else "eventual",
            limit=rng.choice((10, 25, 50)),
            most_pages=rng.choice((1, 1, 2, 4)),
        )
        await asyncio.sleep(rng.uniform(0.5, 1.5) * pause_seconds)


async def read_all(client: Client, names: Iterable[str], *, readers: int) -> int:
    """Read everything from both ends, strongly consistent, `readers` at a time; count the reads that came to an end."""
    waiting = iter([(name, order) for name in names for order in get_args(Order)])

    async def work() -> int:
        return sum(
            [await client.read(name, order=order, consistency="strong", limit=PAGE_LIMIT) for name, order in waiting]
        )

    return sum(await asyncio.gather(*(work() for _ in range(readers))))
