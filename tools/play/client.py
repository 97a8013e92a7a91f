"""The clients of a demonstration: they write by a schedule, read at random, and keep an exact history of both.

The load is open-loop: a message is offered when its time comes, whether or not earlier ones have been answered, so a
slow system cannot make its own load smaller. Only the number of connections is bounded.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, cycle
from types import SimpleNamespace
from typing import Any

import aiohttp

from hotpartition_messages.message_ids import mint_message_id as mint_id
from tools.history import (
    Consistency,
    Order,
    Page,
    Read,
    Seen,
    content_digest,
    join_pages,
)
from tools.play.workload import Offer, Workload
from tools.world.record import Record

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
ORDERS: tuple[Order, Order] = ("oldest", "newest")
MOST_NOTES = 20


Mint = Callable[[Offer, float, random.Random], str | None]
"""Mints an item's id from the time and randomness; None leaves that to the server."""


class NoResponseError(Exception):
    """A request got no response: whether it took effect is unknown."""


@dataclass(frozen=True, slots=True)
class Response:
    """One response of the API."""

    status: int
    body: Mapping[str, Any]
    retry_after_seconds: float | None = None
    queued_seconds: float = 0.0
    age_seconds: float | None = None
    """How old the response says it is; None where it was made for this request."""


class HttpApi:
    """What is under load, by default the messages API, over HTTP; the session bounds the connections.

    Another application says how its clients speak to it, what its functions are called, and its words for what has one
    partition key (`collection`) and for what is written (`item`).
    """

    writer = "write_message"
    reader = "read_messages"
    collection = "conversation"
    item = "message"

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url.rstrip("/")

    def mint(self, offer: Offer, now: float, rng: random.Random) -> str | None:
        """Mint the ids of half of all messages; the server mints the others'."""
        del offer
        return mint_message_id(now=now, rng=rng) if rng.random() < CLIENT_MINTED_SHARE else None

    async def write(self, conversation_id: str, message: Mapping[str, Any]) -> Response:
        """Post one message."""
        return await self.request("POST", f"/conversations/{conversation_id}/messages", json=message)

    async def read(self, conversation_id: str, parameters: Mapping[str, str]) -> Response:
        """Get one page."""
        return await self.request("GET", f"/conversations/{conversation_id}/messages", params=parameters)

    async def request(self, method: str, path: str, **arguments: Any) -> Response:
        """Send one request, or raise `NoResponseError`."""
        url = self._url + path
        queue = SimpleNamespace(seconds=0.0)
        try:
            async with self._session.request(method, url, trace_request_ctx=queue, **arguments) as response:
                body = await _read_json(response)
                return Response(
                    status=response.status,
                    body=body if isinstance(body, dict) else {},
                    retry_after_seconds=_parse_number(response.headers.get("Retry-After")),
                    queued_seconds=queue.seconds,
                    age_seconds=_parse_number(response.headers.get("Age")),
                )
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NoResponseError(f"{type(error).__name__}: {error}") from error


def mint_message_id(*, now: float, rng: random.Random) -> str:
    """Mint a message id from the given time and randomness."""
    return mint_id(int(now * 1000), rng.getrandbits)


def open_session(*, connections: int) -> aiohttp.ClientSession:
    """Open a session with that many connections; waiting for a free one does not count as the request's time."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=None, sock_read=REQUEST_TIMEOUT_SECONDS),
        trace_configs=[_queue_clock()],
    )


@dataclass(slots=True)
class Counts:
    """What the clients saw, as totals since the start."""

    offered: int = 0
    acknowledged: int = 0
    replays: int = 0
    throttled: int = 0
    retries: int = 0
    rejected: int = 0
    unresolved: int = 0
    unanswered: int = 0
    pages: int = 0
    left_out: int = 0


@dataclass(slots=True)
class Recorder(Record):
    """The record of one run, as in the simulator, and what the clients counted.

    `notes` are responses that the API should not have given; `given_up` are requests that were repeated in vain.
    """

    counts: Counts = field(default_factory=Counts)
    offered_at: list[tuple[float, str]] = field(default_factory=list)
    queued_seconds: list[float] = field(default_factory=list)
    """How long each write request waited for one of as many connections as there are environments: for this machine."""
    late_seconds: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Keep a remark about an unexpected response; the first few say enough."""
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    def give_up(self, request: str, response: Response | None) -> None:
        """Keep which request was given up, and what the last response to it was; the first few say enough."""
        last = "no response" if response is None else f"status {response.status} {dict(response.body)}"
        if len(self.given_up) < MOST_NOTES:
            self.given_up.append(f"{request}: {last}")


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
        message: dict[str, Any] = {"sender": offer.sender, "body": offer.body}
        message_id = (self.mint or self.api.mint)(offer, self.now(), self.rng)
        digest = content_digest(offer.conversation_id, offer.sender, offer.body)
        if message_id is not None:
            message["message_id"] = message_id
            self.recorder.note_offer(offer.conversation_id, message_id, digest, offered_at=self.now())
        self.recorder.counts.offered += 1
        self.recorder.offered_at.append((self.now(), offer.conversation_id))
        if not await self._write_until_stored(offer, message, digest):
            self.recorder.counts.unresolved += 1
            if "message_id" not in message:
                self.recorder.note_nameless(offer.conversation_id, digest)
        elif "message_id" in message and self.rng.random() < self.replay_share:
            await asyncio.sleep(REPLAY_DELAY_SECONDS)
            if await self._write_until_stored(offer, message, digest):
                self.recorder.counts.replays += 1

    async def read(
        self, conversation_id: str, *, order: Order, consistency: Consistency, limit: int, most_pages: int | None = None
    ) -> Read | None:
        """Read a conversation, or its first `most_pages`, and record what was read.

        Returns:
            The read; None when not even its first page was answered within the time to give up.
        """
        pages: list[Page] = []
        cursor: str | None = None
        while most_pages is None or len(pages) < most_pages:
            page = await self._read_page(conversation_id, order, consistency, limit, cursor)
            if page is None:
                break
            pages.append(page)
            cursor = page.next_cursor
            if cursor is None:
                break
        if not pages:
            return None
        read = join_pages(pages)
        self.recorder.reads.append(read)
        return read

    async def _write_until_stored(self, offer: Offer, message: dict[str, Any], digest: str) -> bool:
        """Offer a message until it is stored or given up; learns the message's id if the server mints it."""
        counts = self.recorder.counts
        is_repeated = False
        response: Response | None = None
        async for _, response in self._attempts(lambda: self.api.write(offer.conversation_id, message)):
            counts.retries += is_repeated
            is_repeated = True
            if response is None:
                counts.unanswered += 1
            else:
                self.recorder.queued_seconds.append(response.queued_seconds)
                if response.status in OK:
                    return self._acknowledge(offer, message, response, digest)
                if response.status in REFUSED:
                    counts.throttled += 1
                    if "message_id" in response.body and "message_id" not in message:
                        message["message_id"] = response.body["message_id"]
                        self.recorder.note_offer(offer.conversation_id, message["message_id"], digest)
                else:
                    self.recorder.note(f"write to {offer.conversation_id} answered {response.status}: {response.body}")
                    if response.status < 500:
                        break
            if "message_id" not in message:
                # The outcome is unknown and there is no id to repeat it with: a repetition could store it twice.
                return False
        counts.rejected += 1
        self.recorder.give_up(f"write to {offer.conversation_id}", response)
        return False

    async def _attempts(self, send: Callable[[], Awaitable[Response]]) -> AsyncIterator[tuple[float, Response | None]]:
        """Yield when each attempt began and its response, None where there was none, until it is time to give up."""
        deadline = self.now() + self.give_up_seconds
        for attempt in count():
            asked_at, response = self.now(), None
            with suppress(NoResponseError):
                response = await send()
            yield asked_at, response
            pause = self._backoff(attempt, response.retry_after_seconds if response else None)
            if self.now() + pause > deadline:
                return
            await asyncio.sleep(pause)

    def _acknowledge(self, offer: Offer, message: dict[str, Any], response: Response, digest: str) -> bool:
        returned_id = str(response.body.get("message_id"))
        message_id = message.setdefault("message_id", returned_id)
        if message_id != returned_id:
            self.recorder.note(f"a write with message id {message_id} was acknowledged as {returned_id}")
        self.recorder.counts.acknowledged += 1
        self.recorder.note_acknowledged(offer.conversation_id, message_id, digest, self.now())
        return True

    async def _read_page(
        self, conversation_id: str, order: Order, consistency: Consistency, limit: int, cursor: str | None
    ) -> Page | None:
        parameters = {"order": order, "consistency": consistency, "limit": str(limit)}
        if cursor is not None:
            parameters["cursor"] = cursor
        response: Response | None = None
        async for started_at, response in self._attempts(lambda: self.api.read(conversation_id, parameters)):
            if response is not None and response.status in OK:
                self.recorder.counts.pages += 1
                return Page(
                    conversation_id=conversation_id,
                    order=order,
                    consistency=consistency,
                    started_at=started_at,
                    messages=tuple(seen_in(message) for message in response.body["messages"]),
                    cursor=cursor,
                    next_cursor=response.body["next_cursor"],
                )
            if response is not None and response.status not in REFUSED:
                self.recorder.note(f"read of {conversation_id} answered {response.status}: {response.body}")
                if response.status < 500:
                    break
        self.recorder.give_up(f"read of {conversation_id}", response)
        return None

    def _backoff(self, attempt: int, retry_after: float | None) -> float:
        """Wait what the server asks for and a random bit more, so that the refused do not come back as one wave."""
        spread = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(attempt, 10))
        return (retry_after or 0.0) + self.rng.uniform(spread / 2, spread)


async def play(client: Client, offers: Iterable[Offer]) -> None:
    """Offer every message at its time, counted from now; ends when each is stored or given up."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.TaskGroup() as writes:
        for offer in offers:
            await asyncio.sleep(max(0.0, start + offer.at_seconds - loop.time()))
            client.recorder.late_seconds.append(loop.time() - start - offer.at_seconds)
            writes.create_task(client.write(offer))


async def browse(client: Client, workload: Workload, *, pause_seconds: float, stopped: asyncio.Event) -> None:
    """Read like visitors do until stopped: mostly newest first, often the hot conversation, seldom all of it."""
    others = workload.conversations
    while not stopped.is_set():
        rng = client.rng
        conversation_id = workload.hot_conversation if rng.random() < 0.4 else rng.choice(others)
        await client.read(
            conversation_id,
            order="newest" if rng.random() < 0.6 else "oldest",
            consistency="strong" if rng.random() < 0.5 else "eventual",
            limit=rng.choice((10, 25, 50)),
            most_pages=rng.choice((1, 1, 2, 4)),
        )
        await asyncio.sleep(rng.uniform(0.5, 1.5) * pause_seconds)


def list_closing_reads(workload: Workload, *, from_both_ends: bool) -> list[tuple[str, Order]]:
    """List what is read in the end: the hot conversation, or all, from both ends. The longest reads come first."""
    hot = workload.hot_conversation
    quiet = [name for name in workload.conversations if name != hot]
    both = [(name, order) for name in (hot, *(quiet if from_both_ends else ())) for order in ORDERS]
    return [*both, *(() if from_both_ends else zip(quiet, cycle(ORDERS), strict=False))]


async def read_all(client: Client, reads: Iterable[tuple[str, Order]], *, readers: int) -> tuple[str, ...]:
    """Read everything strongly, `readers` at a time; name what was not read to its end."""
    waiting, unread = iter(reads), set[str]()

    async def work() -> None:
        for name, order in waiting:
            read = await client.read(name, order=order, consistency="strong", limit=PAGE_LIMIT)
            if read is None or not read.complete:
                unread.add(name)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(readers):
            tasks.create_task(work())
    return tuple(sorted(unread))


def _queue_clock() -> aiohttp.TraceConfig:
    """Build a trace that adds a request's wait for a free connection to its context's `seconds`."""

    async def begin(_session: aiohttp.ClientSession, trace: SimpleNamespace, _: Any) -> None:
        trace.queued_at = asyncio.get_running_loop().time()

    async def end(_session: aiohttp.ClientSession, trace: SimpleNamespace, _: Any) -> None:
        trace.trace_request_ctx.seconds += asyncio.get_running_loop().time() - trace.queued_at

    clock = aiohttp.TraceConfig()
    clock.on_connection_queued_start.append(begin)
    clock.on_connection_queued_end.append(end)
    return clock


def seen_in(message: Mapping[str, Any]) -> Seen:
    """Note a message as the API gave it."""
    digest = content_digest(message["conversation_id"], message["sender"], message["body"], message.get("attributes"))
    return Seen(message["message_id"], digest)


async def _read_json(response: aiohttp.ClientResponse) -> Any:
    """Read a response's document; None when it is not JSON, unless a good status leaves open what it acknowledges."""
    try:
        return await response.json(content_type=None)
    except ValueError as error:
        if response.status in OK:
            raise NoResponseError(f"{response.status} without JSON: {error}") from error
        return None


def _parse_number(text: str | None) -> float | None:
    return float(text) if text is not None and text.replace(".", "", 1).isdigit() else None
