"""What is seen of a run while it goes on, and the result that comes out of it.

- `Record`: the history of what was written and read, for the checker of `tools.history`, which judges it. A
  lookup of one item, and a read between two times, are reads of a part of a conversation.
- `Meter`: loads, latencies and refusals, over time and by whom they concern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hotpartition.core.route import EMPTY_ROUTE, Generation, Route
from hotpartition_messages import Message
from hotpartition_messages.cursor import Cursor, build_cursor
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.message_ids import message_time_ms
from hotpartition_messages.reading import PageRequest, PageResult
from tools.figures import Latency, nearest_rank
from tools.history import (
    Acknowledged,
    Added,
    Deleted,
    Edited,
    Finding,
    History,
    Page,
    Read,
    Seen,
    Unresolved,
    Verdict,
    check_history,
    find_breaches,
    join_pages,
)
from tools.scenarios.results import Phase, PhaseName, Raise, Reads, Series, Writes
from tools.world.clock import EPOCH_MS, Engine
from tools.world.network import Network, Observer

BIN_SECONDS = 0.25
RELIEF_SHARE = 0.01
ON_SHARDS_SHARE = 0.95
PROMPT_SHARE = 0.95
CALM_SECONDS = 5.0
"""How long after the rush's end `HOT_AFTER` begins: what was refused in it is repeated until then, and the newest pages
hold none of its messages any more."""
PROMPT_SECONDS = 1.0


def digest_of(sender: str, body: str) -> str:
    """Build what a message read is compared by with the message written: senders and bodies are short or made up."""
    return f"{sender} {len(body)} {body[:64]}"


def seen(messages: Iterable[Message]) -> tuple[Seen, ...]:
    """Note messages as they were read."""
    return tuple(Seen(m.message_id, digest_of(m.sender, m.body)) for m in messages)


def page_of(request: PageRequest, response: PageResult, began: float, ended: float) -> Page:
    """Note a page as it was read."""
    return Page(
        conversation_id=request.conversation_id,
        order="newest" if request.newest_first else "oldest",
        consistency="strong" if request.is_strong else "eventual",
        started_at=began,
        messages=seen(response.messages),
        cursor=_cursor_text(request, request.cursor),
        next_cursor=_cursor_text(request, response.next_cursor),
        ended_at=ended,
    )


def _cursor_text(request: PageRequest, cursor: Cursor | None) -> str | None:
    return build_cursor(request.conversation_id, cursor, newest_first=request.newest_first)


@dataclass(slots=True)
class Offer:
    """An item that a client wants to have stored, and when it learned that it is."""

    digest: str
    offered_at: float
    expires_at: float | None = None
    acknowledged_at: float | None = None
    deletion: Deleted | None = None
    """The last one that was begun."""

    @property
    def is_there(self) -> bool:
        """Whether it is known to be stored, and not known to be deleted."""
        is_gone = self.deletion is not None and self.deletion.ended_at is not None
        return self.acknowledged_at is not None and not is_gone


@dataclass(slots=True)
class Record:
    """Everything that was written and read."""

    clock_error: float = 0.0
    """How far a function's clock may be off, in seconds."""
    edits: list[Edited] = field(default_factory=list)
    deletions: list[Deleted] = field(default_factory=list)
    additions: list[Added] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    offers: dict[str, dict[str, Offer]] = field(default_factory=dict)
    """By conversation and id, in the order in which they were made."""
    _nameless: list[Unresolved] = field(default_factory=list)

    @property
    def conversations(self) -> list[str]:
        """All that anything was offered for."""
        return sorted(self.offers)

    def acknowledged_ids(self, conversation_id: str) -> list[str]:
        """List the messages that are known to be stored, in the order in which they were offered."""
        offers = self.offers.get(conversation_id, {})
        return [message_id for message_id, offer in offers.items() if offer.acknowledged_at is not None]

    def sender_of(self, conversation_id: str, message_id: str) -> str:
        """Tell who sent a message, as its digest says."""
        return self.offers[conversation_id][message_id].digest.partition(" ")[0]

    def note_offer(
        self,
        conversation_id: str,
        message_id: str,
        digest: str,
        *,
        offered_at: float = float("-inf"),
        expires_at: float | None = None,
    ) -> None:
        """An item with a known id is about to be written."""
        offers = self.offers.setdefault(conversation_id, {})
        offers.setdefault(message_id, Offer(digest, offered_at, expires_at))

    def note_nameless(self, conversation_id: str, digest: str) -> None:
        """A message was offered, and nobody learned which id it may have got."""
        self._nameless.append(Unresolved(conversation_id=conversation_id, message_id=None, digest=digest))

    def note_acknowledged(
        self, conversation_id: str, message_id: str, digest: str, at: float, *, expires_at: float | None = None
    ) -> None:
        """An item is known to be stored."""
        self.note_offer(conversation_id, message_id, digest, expires_at=expires_at)
        offer = self.offers[conversation_id][message_id]
        offer.expires_at = expires_at
        if offer.acknowledged_at is None:
            offer.acknowledged_at = at

    def note_deletion(
        self, conversation_id: str, message_id: str, *, began: float, ended: float | None = None
    ) -> Deleted:
        """An item was deleted, or nobody knows whether it was: as long as the record has no `ended_at`."""
        deletion = Deleted(conversation_id=conversation_id, message_id=message_id, started_at=began, ended_at=ended)
        self.deletions.append(deletion)
        self.offers[conversation_id][message_id].deletion = deletion
        return deletion

    def note_addition(
        self, conversation_id: str, message_id: str, token: str, *, began: float, amount: int = 0
    ) -> Added:
        """Somebody begins to add to an item; the record has no `ended_at` as long as it is not acknowledged."""
        addition = Added(
            conversation_id=conversation_id, message_id=message_id, token=token, amount=amount, started_at=began
        )
        self.additions.append(addition)
        return addition

    def note_read(self, request: PageRequest, pages: Sequence[Page]) -> None:
        """A read from an end, or between two times; the latter went through to its other end."""
        read = join_pages(pages)
        if request.after_ms is not None or request.before_ms is not None:
            low = -1 if request.after_ms is None else request.after_ms
            high = float("inf") if request.before_ms is None else request.before_ms
            read = replace(read, covers=lambda i: low <= message_time_ms(i) < high)
        self.reads.append(read)

    def note_page(
        self, request: PageRequest, response: PageResult, began: float, ended: float, *, bound_seconds: float
    ) -> None:
        """One page was read, by itself, and may be so old."""
        self.note_read(request, [replace(page_of(request, response, began, ended), bound_seconds=bound_seconds)])

    def note_lookup(
        self, conversation_id: str, message_id: str, found: Sequence[Seen], began: float, ended: float
    ) -> None:
        """An item was looked up by its id, strongly consistent."""
        self.note_whole_read(conversation_id, found, began, ended, only=message_id)

    def note_whole_read(
        self,
        conversation_id: str,
        found: Sequence[Seen],
        began: float,
        ended: float,
        *,
        is_strong: bool = True,
        newest_first: bool = False,
        only: str | None = None,
    ) -> None:
        """All of a conversation was read, or what it has under one id."""
        read = Read(
            conversation_id=conversation_id,
            order="newest" if newest_first else "oldest",
            consistency="strong" if is_strong else "eventual",
            started_at=began,
            messages=tuple(found),
            complete=True,
            ended_at=ended,
        )
        self.reads.append(read if only is None else replace(read, covers=lambda i: i == only))

    def note_poll(self, conversation_id: str, found: Mapping[str, Seen], began: float, settle_seconds: float) -> None:
        """A poller found this, its last walk included, which began then.

        It accounts for the messages that were acknowledged within so many seconds of their own time.
        """
        offers = self.offers.get(conversation_id, {})

        def is_accounted_for(message_id: str) -> bool:
            at = offers[message_id].acknowledged_at if message_id in offers else None
            is_in_time = at is not None and EPOCH_MS + at * 1000 - message_time_ms(message_id) <= settle_seconds * 1000
            return is_in_time or message_id in found

        read = Read(
            conversation_id=conversation_id,
            order="oldest",
            consistency="strong",
            started_at=began,
            messages=tuple(found[message_id] for message_id in sorted(found)),
            complete=True,
            is_gathered=True,
            covers=is_accounted_for,
        )
        self.reads.append(read)

    def judge(self) -> Verdict:
        """Judge everything."""
        return check_history(self._history())

    def breaches(self) -> tuple[Finding, ...]:
        """Judge everything, and list what is wrong."""
        return find_breaches(self._history())

    def _history(self) -> History:
        acknowledged, unresolved = [], []
        for conversation_id, offers in self.offers.items():
            for message_id, offer in offers.items():
                place = {"conversation_id": conversation_id, "message_id": message_id, "digest": offer.digest}
                if offer.acknowledged_at is None:
                    unresolved.append(Unresolved(**place, offered_at=offer.offered_at))
                    continue
                acknowledged.append(
                    Acknowledged(
                        **place,
                        offered_at=offer.offered_at,
                        acknowledged_at=offer.acknowledged_at,
                        expires_at=offer.expires_at,
                    )
                )
        return History(
            acknowledged=tuple(acknowledged),
            unresolved=(*unresolved, *self._nameless),
            reads=tuple(self.reads),
            edits=tuple(self.edits),
            deletions=tuple(self.deletions),
            additions=tuple(self.additions),
            clock_error=self.clock_error,
        )


@dataclass(slots=True)
class Tally:
    """What happened in one phase."""

    writes: int = 0
    offered_wcu: float = 0.0
    failed_wcu: float = 0.0
    prompt_wcu: float = 0.0
    acknowledged: list[tuple[float, float]] = field(default_factory=list)
    """Latency in ms and WCU of each write."""
    stored: list[tuple[float, float]] = field(default_factory=list)
    pages_failed: int = 0
    page_ms: list[float] = field(default_factory=list)
    queries: int = 0
    rcu: float = 0.0

    def phase(self, name: PhaseName) -> Phase:
        """Sum it up; what was not measured is None."""
        pages, offered = len(self.page_ms), self.offered_wcu
        page_ms = [(latency, 1.0) for latency in self.page_ms]
        return Phase(
            name=name,
            writes=self.writes,
            failed_share=round(self.failed_wcu / offered, 6) if offered else None,
            stored_within_second_share=round(self.prompt_wcu / offered, 6) if offered else None,
            acknowledged_p99_ms=_weighted_quantile(self.acknowledged, 0.99),
            stored_p50_ms=_weighted_quantile(self.stored, 0.5),
            stored_p99_ms=_weighted_quantile(self.stored, 0.99),
            pages=pages,
            pages_failed=self.pages_failed,
            queries_per_page=round(self.queries / pages, 3) if pages else None,
            rcu_per_page=round(self.rcu / pages, 3) if pages else None,
            page_p50_ms=_weighted_quantile(page_ms, 0.5),
            page_p99_ms=_weighted_quantile(page_ms, 0.99),
        )


class Phases:
    """Finds the tally of a conversation and an instant. The hot one's time before its rush is nobody's."""

    def __init__(self, hot: str, *, onset: float, heat_end: float, end: float) -> None:
        self.hot = hot
        self._onset = onset
        self._heat_end = heat_end
        self._end = end
        self._tallies = {name: Tally() for name in PhaseName}

    def of(self, conversation_id: str, at: float) -> Tally | None:
        """Find the tally; after the end there is none, since everything is read once more then."""
        if at >= self._end:
            return None
        if conversation_id != self.hot:
            return self._tallies[PhaseName.QUIET]
        if self._onset <= at < self._heat_end:
            return self._tallies[PhaseName.HOT_RUSH]
        return self._tallies[PhaseName.HOT_AFTER] if at >= self._heat_end + CALM_SECONDS else None

    def summed(self) -> tuple[Phase, ...]:
        """Sum all of them up."""
        return tuple(tally.phase(name) for name, tally in self._tallies.items())


@dataclass(slots=True)
class _Bin:
    """A quarter of a second."""

    offered: float = 0.0
    stored: float = 0.0
    failed: float = 0.0
    throttled: float = 0.0
    hot_refused: int = 0
    hot_stored_count: int = 0
    begun: int = 0
    waited: int = 0
    prompt: float = 0.0
    table: float = 0.0
    hot_offered: float = 0.0
    hot_stored: float = 0.0
    hot_on_shards: float = 0.0
    shard_count: int = 0
    reports: int = 0
    latencies_ms: list[float] = field(default_factory=list)


class Meter(Observer):
    """Counts, bin by bin; also the table's `Observer`."""

    def __init__(self, engine: Engine, *, seconds: float, phases: Phases) -> None:
        self._engine = engine
        self._hot = phases.hot
        self._phases = phases
        self._bins = [_Bin() for _ in range(round(seconds / BIN_SECONDS))]
        self._routes: dict[str, Route] = {}
        self.raises: list[Raise] = []
        self.write_latencies_ms: list[float] = []
        self.page_latencies_ms: list[float] = []
        self.offered = self.stored_count = self.failed = self.requests = self.throttled_attempts = 0
        self.pages_failed = 0
        self.operations = 0

    # The table's observer.

    def stored(self, partition_key: str, wcu: float) -> None:
        """Implement `Observer.stored`."""
        now = self._now()
        now.table += wcu
        base_key, separator, _ = partition_key.partition(KEY_FORM.separator)
        if base_key == self._hot:
            now.hot_stored_count += 1
            now.hot_stored += wcu
            now.hot_on_shards += wcu if separator else 0.0

    def refused(self, partition_key: str, wcu: float) -> None:
        """Implement `Observer.refused`."""
        now = self._now()
        self.throttled_attempts += 1
        now.throttled += wcu
        now.hot_refused += partition_key.partition(KEY_FORM.separator)[0] == self._hot

    def page_read(self, partition_key: str, rcu: float, *, is_query: bool) -> None:
        """Implement `Observer.page_read`."""
        if tally := self._phases.of(partition_key.partition(KEY_FORM.separator)[0], self._engine.now):
            tally.queries += is_query
            tally.rcu += rcu

    def waited(self) -> None:
        """Implement `Observer.waited`."""
        self._now().waited += 1

    def raised(self, conversation_id: str, generations: Sequence[Generation], reason: str) -> None:
        """Implement `Observer.raised`."""
        known = self._routes.get(conversation_id, EMPTY_ROUTE)
        for generation in sorted(set(generations) - known.generations):
            self.raises.append(
                Raise(
                    at_seconds=round(self._engine.now, 4),
                    conversation_id=conversation_id,
                    shard_count=generation.shard_count,
                    since_seconds=round((generation.since_ms - EPOCH_MS) / 1000, 3),
                    reason=reason,
                )
            )
        self._routes[conversation_id] = known.union(Route(frozenset(generations)))
        if conversation_id == self._hot:
            self._now().shard_count = self._routes[conversation_id].max_shard_count

    # The clients.

    def note_offered(self, conversation_id: str, at: float, wcu: float) -> None:
        """A client began to write."""
        self.offered += 1
        place = self._at(at)
        place.begun += 1
        place.offered += wcu
        place.hot_offered += wcu if conversation_id == self._hot else 0.0
        if tally := self._phases.of(conversation_id, at):
            tally.writes += 1
            tally.offered_wcu += wcu

    def note_acknowledged(self, conversation_id: str, at: float, wcu: float) -> None:
        """A client was answered that what it offered at this time is stored, or will be."""
        if tally := self._phases.of(conversation_id, at):
            tally.acknowledged.append(((self._engine.now - at) * 1000, wcu))

    def note_stored(self, conversation_id: str, at: float, wcu: float) -> None:
        """What a client offered at this time is stored, and the client was told so."""
        latency_ms = (self._engine.now - at) * 1000
        self.stored_count += 1
        self.write_latencies_ms.append(latency_ms)
        place = self._at(at)
        place.stored += wcu
        place.latencies_ms.append(latency_ms)
        is_prompt = latency_ms <= PROMPT_SECONDS * 1000
        place.prompt += wcu if is_prompt else 0.0
        if tally := self._phases.of(conversation_id, at):
            tally.stored.append((latency_ms, wcu))
            tally.prompt_wcu += wcu if is_prompt else 0.0

    def note_failed(self, conversation_id: str, at: float, wcu: float) -> None:
        """A client gave up on what it offered at this time."""
        self.failed += 1
        self._at(at).failed += wcu
        if tally := self._phases.of(conversation_id, at):
            tally.failed_wcu += wcu

    def note_page(self, conversation_id: str, began: float) -> None:
        """A client got a page."""
        latency_ms = (self._engine.now - began) * 1000
        self.page_latencies_ms.append(latency_ms)
        if tally := self._phases.of(conversation_id, began):
            tally.page_ms.append(latency_ms)

    def note_failed_page(self, conversation_id: str, began: float) -> None:
        """A client got no page."""
        self.pages_failed += 1
        if tally := self._phases.of(conversation_id, began):
            tally.pages_failed += 1

    def note_report(self) -> None:
        """A report reached the stream."""
        self._now().reports += 1

    # What came out.

    def writes(self) -> Writes:
        """Sum the writes up."""
        return Writes(
            offered=self.offered,
            stored=self.stored_count,
            failed=self.failed,
            offered_wcu=sum(b.offered for b in self._bins),
            failed_wcu=sum(b.failed for b in self._bins),
            requests=self.requests,
            throttled_attempts=self.throttled_attempts,
            latency_ms=Latency.of(self.write_latencies_ms),
            waited=sum(b.waited for b in self._bins),
        )

    def reads(self, store: Network) -> Reads:
        """Sum the reads up; `store`: what was read from."""
        counts = store.page_counts
        pages = len(self.page_latencies_ms)
        each = max(pages, 1)
        return Reads(
            pages=pages,
            failed=self.pages_failed,
            queries_per_page=round(counts.queries / each, 3),
            items_per_page=round(counts.items_read / each, 3),
            rcu_per_page=round(counts.rcu / each, 3),
            latency_ms=Latency.of(self.page_latencies_ms),
        )

    def series(self) -> Series:
        """List the run over time."""
        counts, highest = [], 0
        for each in self._bins:
            highest = max(highest, each.shard_count)
            counts.append(highest)
        return Series(
            bin_seconds=BIN_SECONDS,
            offered_wcu=tuple(b.offered for b in self._bins),
            stored_wcu=tuple(b.stored for b in self._bins),
            prompt_wcu=tuple(b.prompt for b in self._bins),
            on_shards_wcu=tuple(b.hot_on_shards for b in self._bins),
            failed_wcu=tuple(b.failed for b in self._bins),
            throttled_wcu=tuple(b.throttled for b in self._bins),
            table_wcu=tuple(round(b.table, 3) for b in self._bins),
            shard_count=tuple(counts),
            reports=tuple(b.reports for b in self._bins),
            write_p99_ms=tuple(_p99(b.latencies_ms) for b in self._bins),
        )

    def raised_seconds(self, onset: float) -> float | None:
        """Return how long after the onset the hot conversation was first raised."""
        times = [r.at_seconds for r in self.raises if r.conversation_id == self._hot and r.at_seconds >= onset]
        return round(min(times) - onset, 4) if times else None

    def on_shards_seconds(self, onset: float) -> float | None:
        """Return how long after the onset a quarter of a second ended whose writes are on shards."""
        for index, each in enumerate(self._bins):
            end = (index + 1) * BIN_SECONDS
            if end > onset and each.hot_stored and each.hot_on_shards >= ON_SHARDS_SHARE * each.hot_stored:
                return round(end - onset, 4)
        return None

    def relieved_seconds(self, onset: float, end: float) -> float | None:
        """Return how long after the onset the last second ended in which too many writes had to wait."""

        def is_bad(second: Sequence[_Bin]) -> bool:
            return sum(b.waited for b in second) > RELIEF_SHARE * sum(b.begun for b in second)

        return self._seconds_until_good(onset, end, is_bad, bins=round(1 / BIN_SECONDS))

    def prompt_seconds(self, onset: float, end: float) -> float | None:
        """Return how long after the onset the last bin ended of whose writes too few were stored within a second."""

        def is_bad(bins: Sequence[_Bin]) -> bool:
            return sum(b.prompt for b in bins) < PROMPT_SHARE * sum(b.offered for b in bins)

        return self._seconds_until_good(onset, end, is_bad, bins=1)

    def _seconds_until_good(
        self, onset: float, end: float, is_bad: Callable[[Sequence[_Bin]], bool], *, bins: int
    ) -> float | None:
        first, last = round(onset / BIN_SECONDS), round(end / BIN_SECONDS)
        good = onset
        for start in range(first, last, bins):
            if is_bad(self._bins[start : min(start + bins, last)]):
                good = (start + bins) * BIN_SECONDS
        return None if good >= end else round(good - onset, 4)

    def repeated_share(self, onset: float, end: float) -> float | None:
        """Return how many puts of the hot conversation were refused once it was on shards, for each that was stored."""
        on_shards = self.on_shards_seconds(onset)
        if on_shards is None:
            return None
        within = self._bins[round((onset + on_shards) / BIN_SECONDS) : round(end / BIN_SECONDS)]
        stored = sum(b.hot_stored_count for b in within)
        return round(sum(b.hot_refused for b in within) / stored, 6) if stored else None

    def served_share(self, start: float, end: float) -> float:
        """Return what was stored of the hot conversation between two instants, as a share of what was offered then."""
        bins = self._bins[round(start / BIN_SECONDS) : round(end / BIN_SECONDS)]
        offered = sum(b.hot_offered for b in bins)
        return min(1.0, sum(b.hot_stored for b in bins) / offered) if offered else 1.0

    def failed_share_after(self, time: float) -> float:
        """Return what failed of all that was offered from an instant on, as a share."""
        late = self._bins[round(time / BIN_SECONDS) :]
        offered = sum(b.offered for b in late)
        return sum(b.failed for b in late) / offered if offered else 0.0

    def _now(self) -> _Bin:
        return self._at(self._engine.now)

    def _at(self, time: float) -> _Bin:
        return self._bins[min(int(time / BIN_SECONDS), len(self._bins) - 1)]


def _p99(latencies_ms: list[float]) -> float:
    return round(nearest_rank(sorted(latencies_ms), 0.99), 3) if latencies_ms else 0.0


def _weighted_quantile(weighted: list[tuple[float, float]], share: float) -> float | None:
    """Return the least value that so much of the weight does not pass; items are of different sizes in a rush."""
    left = share * sum(weight for _, weight in weighted)
    for value, weight in sorted(weighted):
        left -= weight
        if left <= 0:
            return round(value, 3)
    return None
