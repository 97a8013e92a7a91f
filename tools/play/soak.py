"""`make soak`: ten minutes of load while every part fails at random, from a seed that is printed.

Writes `out/soak/summary.json`: the fields of the demonstration, `faults` (kind to count), `faults_met` (kind to how
many requests of DynamoDB met one), `spread_conversations` and `seed`. Passes when at least 50,000 messages were
acknowledged, none of them is missing, doubled or wrong in any read, each kind of fault was injected, and hot
conversations were spread all the same. What strangers write into Redis is the simulator's business.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hotpartition_messages.keys import KEY_FORM
from tools.figures import Bar, at_least, at_most
from tools.local.faults import READ_REASONS, WRITE_REASONS
from tools.local.metering import TimelineRow
from tools.local.processes import LocalRunError
from tools.play.demo import Demonstration
from tools.play.stack import stopped_within
from tools.play.verdict import Judgement, conclude
from tools.play.workload import BODY_BYTES, Scale, Workload, generate_offers, quiet_flow, usable_cores
from tools.world.workload import ConversationFlow, constant

Rule = Mapping[str, Any]

KILL_CONSUMER = "/functions/consume_reports/kill"
NOTHING_KILLED = {"pid": None}
"""The response where no environment was there to be killed."""
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

WRITES_PER_SECOND = 95.0
"""What two cores carry beside the faults."""
NEEDED_PER_SECOND = 50_000 / 600
HOT_SHARE = 0.45
RUSH_SECONDS = 20.0
FEWEST_RUSHES = 2
RUSH_PREFIX = "rush-"
LEAST_SPREAD = 0.5
"""Of the rushes; the consumer that detects them is killed time and again."""
MAX_SHARD_COUNT = 16
"""Each shard costs a read the CPU of a query, which is scarce here."""
LONGEST_VISITOR_PAUSE_SECONDS = 1.5
VISITOR_PAUSES = 100
"""A visitor reads at least about so often in a run, also in a short one."""
REST_SECONDS = 5.0
"""How long a part is left in peace between two of its faults, unless the run is too short for that."""
SHARE_OF_SLOT = 0.6
"""Of the time between the beginnings of two faults of a part, the first lasts at most this share."""
POLL_SECONDS = 0.1
MOST_POLLS = 20
SETTLING_SHARE = 0.06
LONGEST_SETTLING_SECONDS = 3.0
"""At the beginning and the end nothing is broken: faults are over before the writes are."""
GATEWAY_FAILURE = "answered 500: {'message': 'Internal Server Error'}"
"""The response of API Gateway for an environment that was killed in mid-request; the client repeats."""


@dataclass(kw_only=True)
class Soak(Demonstration):
    """Breaks everything that can be broken for some seconds, and is judged by the promise alone.

    Each part meets each kind of its faults once a round, in random order, and at least one round; where that does not
    fit, everything in it gets shorter in proportion. Faults of one part come one after another; those of different
    parts overlap.
    """

    load_seconds: float
    needed: int
    injected: Counter[str] = field(default_factory=Counter)
    """Faults, by kind."""
    met: Counter[str] = field(default_factory=Counter)
    """Requests of DynamoDB that met a fault, by its kind."""
    rules: dict[str, tuple[Rule, ...]] = field(default_factory=dict)
    """What DynamoDB shows of each kind now."""
    consumers: list[asyncio.Task[None]] = field(default_factory=list)

    def introduce(self) -> Iterable[str]:
        """Say the seed as well."""
        yield f"seed {self.seed}: the same load and the same faults again with SEED={self.seed}"
        yield from super().introduce()

    async def disturb(self, stopped: asyncio.Event) -> None:
        """Inject the faults until all are over or `stopped`; nothing stays broken."""
        async with asyncio.TaskGroup() as parts:
            for part in PARTS:
                parts.create_task(self._break(part, stopped))
        for task in self.consumers:
            task.cancel()

    async def _break(self, part: str, stopped: asyncio.Event) -> None:
        clock, rng = asyncio.get_running_loop().time, random.Random(f"{self.seed}/{part}")
        kinds = [kind for kind in KINDS if kind.part == part]
        settling = min(LONGEST_SETTLING_SECONDS, SETTLING_SHARE * self.load_seconds)
        room, needed = self.load_seconds - 2 * settling, sum(kind.seconds + REST_SECONDS for kind in kinds)
        at = clock() + settling
        for _ in range(max(1, int(room / needed))):
            for kind in rng.sample(kinds, len(kinds)):
                slot = min(1.0, room / needed) * (kind.seconds + REST_SECONDS)
                lasts = min(kind.seconds, SHARE_OF_SLOT * slot) * rng.uniform(0.6, 1.0)
                if await stopped_within(stopped, at + rng.uniform(0.0, slot - lasts) - clock()):
                    return
                self.say(f"fault: {kind.name} for {lasts:.1f} s")
                await self._inject(kind, lasts, stopped)
                at += slot

    async def _inject(self, kind: FaultKind, seconds: float, stopped: asyncio.Event) -> None:
        before = await self._count_met(kind)
        await self._set_rules(kind.name, kind.rules)
        responses = [await self.control.post(order) for order in kind.begin]
        await stopped_within(stopped, seconds)
        for _ in range(MOST_POLLS if kind.meets_requests else 0):
            if await self._count_met(kind) > before or await stopped_within(stopped, POLL_SECONDS):
                break
        responses += [await self.control.post(order) for order in kind.end]
        self.injected[kind.name] += NOTHING_KILLED not in responses
        await self._set_rules(kind.name, ())
        if kind.rules:
            self.met[kind.name] += await self._count_met(kind) - before
        if KILL_CONSUMER in (*kind.begin, *kind.end):
            self.consumers.append(asyncio.create_task(self._consume()))

    async def _consume(self) -> None:
        """Start a consumer as the schedule would within the minute; it returns when it ends."""
        with suppress(LocalRunError):
            await self.control.post("/functions/consume_reports/invoke")

    async def _set_rules(self, name: str, rules: tuple[Rule, ...]) -> None:
        """Replace the rules of one kind; the control API takes those of all kinds at once."""
        if rules or name in self.rules:
            self.rules[name] = rules
            await self.control.post("/dynamodb/faults", [rule for own in self.rules.values() for rule in own])

    async def _count_met(self, kind: FaultKind) -> int:
        injected = (await self.control.get("/dynamodb/faults"))["injected"]
        return sum(injected.get(fault, 0) for fault in {rule["fault"] for rule in kind.rules})

    def judge(self) -> Judgement:
        """Judge by the promise, the number of messages, and whether everything was tried."""
        notes = self.recorder.notes
        unexpected = [note for note in notes if not note.endswith(GATEWAY_FAILURE)]
        functions = self.control.status["functions"]
        killed = sum(functions[name]["killed"] for name in (self.application.writer, self.application.reader))
        rushes = sum(name.startswith(RUSH_PREFIX) for name in self.workload.conversations)
        spread, least = count_spread(self.timeline), round(LEAST_SPREAD * rushes)
        meeting = [kind.name for kind in KINDS if kind.meets_requests]
        bars = [
            *self.judge_promise(unexpected),
            _all_of("every kind of fault injected", [kind.name for kind in KINDS], self.injected),
            _all_of("every fault of DynamoDB met by requests", meeting, self.met),
            at_most(
                "only killed environments failed",
                len(notes) - len(unexpected),
                killed,
                "requests, one for each environment",
            ),
        ]
        timed = [
            at_least("messages acknowledged", self.history.acknowledged, self.needed, "messages"),
            at_least("conversations spread", spread, least, f"of {rushes} rushes"),
        ]
        return conclude(bars, timed, kept_up=self.machine.kept_up)

    def summarize(self) -> Mapping[str, Any]:
        """Add the faults and the seed."""
        return {
            **super().summarize(),
            "faults": {kind.name: self.injected[kind.name] for kind in KINDS},
            "faults_met": {kind.name: self.met[kind.name] for kind in KINDS if kind.rules},
            "spread_conversations": count_spread(self.timeline),
            "seed": self.seed,
        }


def _all_of(bar: str, kinds: Sequence[str], counts: Mapping[str, int]) -> Bar:
    """Hold that each kind was counted; the unit names those that were not."""
    left_out = [name for name in kinds if not counts[name]]
    without = f", without {', '.join(left_out)}" if left_out else ""
    return at_least(bar, len(kinds) - len(left_out), len(kinds), f"kinds{without}")


def count_spread(timeline: Iterable[TimelineRow]) -> int:
    """Count the conversations that have shards which were written to."""
    written = (KEY_FORM.parse(row.key) for row in timeline if row.writes)
    return len({collection for collection, shard in written if shard is not None})


def build_workload(*, seed: int, seconds: float) -> Workload:
    """Build an even load: many quiet conversations, and one rush after another, each on a conversation of its own."""
    rushes = max(FEWEST_RUSHES, round(seconds / RUSH_SECONDS))
    lasts, heat = seconds / rushes, constant(HOT_SHARE * WRITES_PER_SECOND)
    flows = [
        ConversationFlow(
            conversation_id=f"{RUSH_PREFIX}{rush + 1:03d}",
            shape=heat,
            body_bytes=BODY_BYTES,
            start=rush * lasts,
            end=(rush + 1) * lasts,
        )
        for rush in range(rushes)
    ]
    quiet = quiet_flow((1 - HOT_SHARE) * WRITES_PER_SECOND)
    offers = generate_offers([*flows, quiet], seed=seed, seconds=seconds)
    return Workload(
        offers=offers,
        hot_conversation=flows[0].conversation_id,
        onset_seconds=0.0,
        hot_end_seconds=lasts,
        description=f"seed {seed}: {len(offers)} messages in {seconds:g} s, {rushes} rushes one after another",
    )


async def run(options: argparse.Namespace) -> int:
    """Run a soak and give the exit status."""
    seconds = options.seconds
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    hot = HOT_SHARE * WRITES_PER_SECOND
    soak = Soak(
        workload=build_workload(seed=seed, seconds=seconds),
        scale=Scale(
            hot_writes_per_second=hot,
            quiet_writes_per_second=WRITES_PER_SECOND - hot,
            cores=usable_cores(),
            max_shard_count=MAX_SHARD_COUNT,
        ),
        seed=seed,
        out_dir=options.out,
        visitor_pause_seconds=min(LONGEST_VISITOR_PAUSE_SECONDS, seconds / VISITOR_PAUSES),
        more={"redis": "replicated"},
        load_seconds=seconds,
        needed=round(NEEDED_PER_SECOND * seconds),
    )
    return await soak.present()
