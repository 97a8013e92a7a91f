"""The figures of a demonstration and the verdict on them, as pure functions of what was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, inf

from tools.figures import Bar, at_least, at_most, nearest_rank
from tools.history import Verdict
from tools.limits import Partitions, Resource
from tools.local.metering import SLOT_MS, TimelineRow

LONG_QUEUE_SECONDS = 0.05
LATE_SECONDS = 0.25
MOST_BEHIND_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """When the hot period was, in seconds since the epoch."""

    begins: float
    ends: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttles:
    """Refused writes of the hot conversation's physical keys."""

    before_raise: int
    after_raise: int
    in_first_second: int
    in_last_third: int


@dataclass(frozen=True, slots=True)
class Machine:
    """Whether this machine kept up, and by how much it did not, in one sentence.

    If the load was not offered in time, latencies and the time to the raise are the machine's.
    """

    kept_up: bool
    description: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The bars of the verdict, and the names of those that were not judged."""

    bars: tuple[Bar, ...]
    not_judged: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Say `pass` when every bar holds, else `fail`."""
        return "pass" if all(bar.holds for bar in self.bars) else "fail"


def conclude(bars: Sequence[Bar], timed: Sequence[Bar] = (), *, kept_up: bool = True) -> Judgement:
    """Judge by bars; those that are `timed` depend on a load that a machine which has not kept up did not offer."""
    judged = [bar for bar in timed if bar.holds or kept_up]
    return Judgement((*bars, *judged), tuple(bar.name for bar in timed if bar not in judged))


def is_key_of(key: str, conversation_id: str) -> bool:
    """Say whether a physical key is the conversation's base key or one of its shard keys."""
    return key == conversation_id or key.startswith(conversation_id + "#")


def count_throttles(
    timeline: Iterable[TimelineRow], *, conversation_id: str, raised_at: float | None, hot: Hot
) -> Throttles:
    """Count the hot conversation's refused writes by when they were; without a raise all were before it."""
    own = [(row.at_ms / 1000, row.throttled_writes) for row in timeline if is_key_of(row.key, conversation_id)]

    def count(begins: float, ends: float) -> int:
        return sum(throttled for at, throttled in own if begins <= at < ends)

    raised = inf if raised_at is None else raised_at
    # The bucket in which the onset lies belongs to the first second: all its refusals come after the onset.
    first = floor(1000 * hot.begins / SLOT_MS) * SLOT_MS / 1000
    return Throttles(
        before_raise=count(0, raised),
        after_raise=count(raised, inf),
        in_first_second=count(first, hot.begins + 1.0),
        in_last_third=count(hot.ends - (hot.ends - hot.begins) / 3, hot.ends),
    )


def measure_machine(queued_seconds: Sequence[float], late_seconds: Sequence[float]) -> Machine:
    """Measure how well the machine kept up by what each write request waited, and how late each message was offered.

    A request waits for an execution environment, where Lambda would have started another one.
    """
    waits = sorted(queued_seconds)
    queued = sum(seconds > LONG_QUEUE_SECONDS for seconds in waits)
    late = sum(seconds > LATE_SECONDS for seconds in late_seconds)
    kept_up = queued <= MOST_BEHIND_SHARE * len(waits) and late <= MOST_BEHIND_SHARE * len(late_seconds)
    figures = (
        f"{queued:,} of {len(waits):,} write requests waited more than {1000 * LONG_QUEUE_SECONDS:g} ms for a free "
        f"execution environment of this machine (p99 of that wait: "
        f"{1000 * nearest_rank(waits or [0.0], 0.99):,.0f} ms), and "
        f"{late:,} of {len(late_seconds):,} came more than {1000 * LATE_SECONDS:g} ms late"
    )
    if kept_up:
        return Machine(kept_up, f"The machine kept up: {figures}.")
    advice = "What depends on time is not judged: run it on a quiet one."
    return Machine(kept_up, f"The machine could not keep up: {figures}. {advice}")


def count_busiest_second(timeline: Iterable[TimelineRow], conversation_id: str) -> int:
    """Count the writes, stored and refused, that DynamoDB saw in the busiest second of a conversation."""
    seconds: Counter[int] = Counter()
    for row in timeline:
        if is_key_of(row.key, conversation_id):
            seconds[row.at_ms // 1000] += row.writes + row.throttled_writes
    return max(seconds.values(), default=0)


def count_taken_by_one_key(offered_at: Iterable[float], limit_wcu: float) -> int:
    """Count what one partition key would have stored of these writes, 1 WCU each, at the time of each."""
    table = Resource(partitions=Partitions(write_limit_wcu=limit_wcu, count=None))
    moments = sorted(offered_at)
    return sum(table.write("hot", 1.0, at - moments[0]) is None for at in moments)


def promise_bars(history: Verdict, unexpected: Sequence[str], *, item: str = "message") -> list[Bar]:
    """Hold the promise itself, which is kept whatever is done to the parts.

    The clients send only what is allowed, so a response is good or says to come back later (429 and 503), also while
    Redis is dead or DynamoDB refuses: any other 4xx or 5xx is a fault of the product, even if a repetition repaired it.
    A request without a response is not one: connections break, and its message counts as unresolved in the history.
    """
    found = {
        f"no {item} missing": history.missing,
        f"no {item} duplicated": history.duplicated,
        f"no {item} out of order": history.out_of_order,
        f"no {item} altered": history.altered,
        f"no {item} from nowhere": history.phantom,
        "no page beyond the staleness bound": history.stale,
    }
    unit = f"of {history.acknowledged} acknowledged, in {history.reads} reads"
    looked_for = history.acknowledged - history.unverified
    return [
        *(at_most(name, count, 0, unit) for name, count in found.items()),
        at_least(f"every {item} looked for", looked_for, history.acknowledged, "acknowledged"),
        at_most("no unexpected response", len(unexpected), 0, "responses"),
    ]
