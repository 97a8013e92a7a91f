"""The faults that the local run offers, as a table, and what makes them happen in an order from a seed.

A new kind of fault is one entry of `KINDS`. Faults of one part come one after another; those of different parts
overlap. What strangers write into Redis is the simulator's business.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tools.local.faults import READ_REASONS, WRITE_REASONS
from tools.play.watch import Control, ControlError, stopped_within

Rule = Mapping[str, Any]

KILL_CONSUMER = "/functions/consume_reports/kill"
REST_SECONDS = 5.0
"""How long a part is left in peace between two of its faults, unless the run is too short for that."""
SHARE_OF_SLOT = 0.6
"""Of the time between the beginnings of two faults of a part, the first lasts at most this share."""
POLL_SECONDS = 0.1
MOST_POLLS = 20
SETTLING_SHARE = 0.06
LONGEST_SETTLING_SECONDS = 3.0
"""At the beginning and the end nothing is broken: faults are over before the writes are."""
_READS = ("Query", "GetItem")
_WRITES = ("PutItem", "UpdateItem")
_REQUESTS = (*_WRITES, *_READS, "BatchGetItem")


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault, which lasts `seconds` at most.

    `begin` and `end` are orders to the local run's control API, given in this order; `rules` are faults of DynamoDB
    that hold meanwhile. `meets_requests`: usual load meets it at once, so that it is not over before a request did, and
    a run in which none did has not tried it.
    """

    name: str
    part: str
    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    seconds: float = 5.0
    meets_requests: bool = False


def _on(operations: Iterable[str], fault: str, probability: float, **more: Any) -> tuple[Rule, ...]:
    return tuple({"operation": o, "fault": fault, "probability": probability, **more} for o in operations)


def _met(name: str, *rule: Any, **more: Any) -> FaultKind:
    return FaultKind(name, "dynamodb", rules=_on(*rule, **more), meets_requests=True)


KINDS: tuple[FaultKind, ...] = (
    FaultKind("redis-killed", "redis", begin=("/redis/kill",), end=("/redis/start",)),
    FaultKind("redis-emptied", "redis", begin=("/redis/kill",), end=("/redis/start?fresh=1",)),
    FaultKind("redis-paused", "redis", begin=("/redis/pause",), end=("/redis/continue",), seconds=3.0),
    # The replica misses what is written in between, and is promoted.
    FaultKind("redis-failed-over", "redis", begin=("/redis/cut-replica",), end=("/redis/fail-over", "/redis/start")),
    FaultKind("writer-killed", "functions", begin=("/functions/write_message/kill",), seconds=1.0),
    FaultKind("reader-killed", "functions", begin=("/functions/read_messages/kill",), seconds=1.0),
    FaultKind("consumer-killed", "functions", begin=(KILL_CONSUMER,), seconds=3.0),
    FaultKind(
        # Between its two writes, if it raises meanwhile: the journal has the raise and the response is still to come.
        "consumer-killed-in-raise",
        "functions",
        rules=_on(("UpdateItem",), "late_answer", 1.0, delay_ms=1_500),
        end=(KILL_CONSUMER,),
        seconds=6.0,
    ),
    _met("dynamodb-slow", _REQUESTS, "delay", 0.3, delay_ms=150),
    _met("dynamodb-failing", _REQUESTS, "error", 0.2),
    _met("dynamodb-answer-lost", _WRITES, "lose_answer", 0.25),
    _met("dynamodb-answer-late", _WRITES, "late_answer", 0.15, delay_ms=600),
    FaultKind(
        "journal-throttled",
        "dynamodb",
        rules=_on(("UpdateItem",), "throttle", 0.7, reason="TableWriteKeyRangeThroughputExceeded"),
        seconds=12.0,
    ),
    *(_met(f"throttled:{r}", ("PutItem",), "throttle", 0.25, reason=r) for r in sorted(WRITE_REASONS)),
    *(_met(f"throttled:{r}", _READS, "throttle", 0.3, reason=r) for r in sorted(READ_REASONS)),
)
PARTS = tuple(dict.fromkeys(kind.part for kind in KINDS))


@dataclass(slots=True, kw_only=True)
class FaultInjector:
    """Breaks every part through the local run's control API for `seconds`, and counts.

    Each part meets each kind of its faults once a round, in random order, and at least one round; where that does not
    fit, everything in it gets shorter in proportion. `injected` counts the faults by kind, `met` the requests of
    DynamoDB that met one.
    """

    seed: int
    seconds: float
    injected: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    _rules: dict[str, tuple[Rule, ...]] = field(default_factory=dict)
    _consumers: list[asyncio.Task[None]] = field(default_factory=list)

    async def run(self, control: Control, *, say: Callable[[str], None], stopped: asyncio.Event) -> None:
        """Inject the faults until all are over or `stopped`; nothing stays broken."""
        async with asyncio.TaskGroup() as parts:
            for part in PARTS:
                parts.create_task(self._break(part, control, say, stopped))
        for task in self._consumers:
            task.cancel()

    async def _break(self, part: str, control: Control, say: Callable[[str], None], stopped: asyncio.Event) -> None:
        clock, rng = asyncio.get_running_loop().time, random.Random(f"{self.seed}/{part}")
        kinds = [kind for kind in KINDS if kind.part == part]
        settling = min(LONGEST_SETTLING_SECONDS, SETTLING_SHARE * self.seconds)
        room, needed = self.seconds - 2 * settling, sum(kind.seconds + REST_SECONDS for kind in kinds)
        at = clock() + settling
        for _ in range(max(1, int(room / needed))):
            for kind in rng.sample(kinds, len(kinds)):
                slot = min(1.0, room / needed) * (kind.seconds + REST_SECONDS)
                lasts = min(kind.seconds, SHARE_OF_SLOT * slot) * rng.uniform(0.6, 1.0)
                if await stopped_within(stopped, at + rng.uniform(0.0, slot - lasts) - clock()):
                    return
                say(f"fault: {kind.name} for {lasts:.1f} s")
                await self._inject(kind, lasts, control, stopped)
                at += slot

    async def _inject(self, kind: FaultKind, seconds: float, control: Control, stopped: asyncio.Event) -> None:
        before = await self._count_met(control, kind)
        await self._set_rules(control, kind.name, kind.rules)
        for order in kind.begin:
            await control.post(order)
        self.injected[kind.name] += 1
        await stopped_within(stopped, seconds)
        for _ in range(MOST_POLLS if kind.meets_requests else 0):
            if await self._count_met(control, kind) > before or await stopped_within(stopped, POLL_SECONDS):
                break
        for order in kind.end:
            await control.post(order)
        await self._set_rules(control, kind.name, ())
        if kind.rules:
            self.met[kind.name] += await self._count_met(control, kind) - before
        if KILL_CONSUMER in (*kind.begin, *kind.end):
            self._consumers.append(asyncio.create_task(self._consume(control)))

    async def _consume(self, control: Control) -> None:
        """Start a consumer as the schedule would within the minute; it returns when it ends."""
        with suppress(ControlError):
            await control.post("/functions/consume_reports/invoke")

    async def _set_rules(self, control: Control, name: str, rules: tuple[Rule, ...]) -> None:
        """Replace the rules of one kind; the control API takes those of all kinds at once."""
        if rules or name in self._rules:
            self._rules[name] = rules
            await control.post("/dynamodb/faults", [rule for own in self._rules.values() for rule in own])

    async def _count_met(self, control: Control, kind: FaultKind) -> int:
        injected = (await control.get("/dynamodb/faults"))["injected"]
        return sum(injected.get(fault, 0) for fault in {rule["fault"] for rule in kind.rules})
