"""Counters: a rush of additions on one key, and additions with tokens while everything fails. `make simulate-counters`.

Functions, consumer, Redis and DynamoDB are those of the other runs; the jobs are the product's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hotpartition.core.errors import OutcomeUnknownError
from tools.figures import at_least, at_most
from tools.history import Added, Finding
from tools.limits.request_tokens import RequestTokens
from tools.scenarios.seeds import Part, Study, Verdict, add_up, total
from tools.scenarios.step import step
from tools.world.counters import COUNTERS, REFUSALS, SUM, CounterRun, NewAddition, counter_key
from tools.world.faults import FaultDriver
from tools.world.functions import FunctionConfig
from tools.world.operators import RaisesByHand
from tools.world.product import Parts
from tools.world.scenario import ALL_FAULTS, faulty

SEEDS, RUSH_SEEDS = 50, 3
LEAST_ADDITIONS = 2_000
"""Of each seed, on average."""
RUSH_PER_SECOND = 10_000.0
RUSH_PARTITIONS = 64
"""Room for the rush wherever its shards fall: on 32, a third of each taken by others, an unlucky seed is refused."""
RUSH_ONSET = 2.0
RUSH_SECONDS = 8.0
LAST_SECONDS = 3.0
LEARNED_SECONDS = 0.5
"""By then writers have learned of a raise: a refused one asks for the route before it tries again."""
RUSH_ENVIRONMENTS = 4_000
"""Enough for all: before the raise, each refused addition keeps one busy for 300 ms."""
OTHER_TRAFFIC_SECONDS = 0.01
"""How often the other traffic is charged to the table."""

ADDITIONS = 2_300
"""Of one seed of the faults."""
FAULT_SECONDS = 24.0
FAULTS_END = FAULT_SECONDS + 4.0
DRAIN_SECONDS = 400.0
"""How long clients go on: within ten minutes. Where a cancelled transaction binds its token, what the hot key refused
before the raise can only be added there, at that key's pace."""
LAST_LATE_SECONDS = 6.0
"""By then, what happens late has happened."""
COUNTER_NAMES = ("hot", "signed", "given-up")
"""One that gets most additions; one with negative amounts; one whose clients give up after their first attempt."""
REPEATED_SHARE = 0.2
"""Of acknowledged additions, that are sent again: at once, or some seconds later."""
LONGEST_REPETITION_SECONDS = 20.0
READS_PER_SECOND = 6.0
RAISES_PER_SECOND = 0.25
MOST_SHARDS = 24
LATE = 0.01
"""Odds of each request to happen after its client gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RushRun:
    """What a rush did. `refused_after`: additions that were refused though they began after the raise was learned."""

    seed: int
    offered: int
    per_second: float
    """Offered, in the last seconds."""
    acknowledged: int
    refused: int
    refused_after: int
    raised_seconds: float | None
    shard_counts: tuple[int, ...]
    breaches: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRun:
    """What one seed of additions with tokens did, and what was wrong with it."""

    seed: int
    persisted: int
    """Additions whose clients repeated them until they were acknowledged."""
    attempts: int
    reads: int
    raises: int
    faults: tuple[tuple[str, int], ...]
    breaches: tuple[Finding, ...]


def run_rush(seed: int, parts: Parts | None = None, *, per_second: float = RUSH_PER_SECOND) -> RushRun:
    """Let a counter step to so many additions a second, without tokens."""
    run = _Rush(seed, parts, per_second)
    with closing(run.engine):
        return run.result()


class _Rush(CounterRun):
    def __init__(self, seed: int, parts: Parts | None, per_second: float) -> None:
        scenario = replace(
            step(RUSH_PER_SECOND, RUSH_PARTITIONS),
            name="counter-rush",
            writers=FunctionConfig(concurrency=RUSH_ENVIRONMENTS, warm=RUSH_ENVIRONMENTS),
            seconds=RUSH_SECONDS,
            onset=RUSH_ONSET,
        )
        super().__init__(scenario, seed, parts)
        self.per_second = per_second
        self.counter = f"rush-{seed}"
        self.refusals: list[float] = []

    def result(self) -> RushRun:
        self.start_consumers()
        self.world.charge_others(self.scenario.other_wcu, OTHER_TRAFFIC_SECONDS)
        for at in self._arrivals():
            self.engine.at(at, partial(self.engine.spawn, self._add))
        self.engine.run_until(RUSH_SECONDS + 5.0)
        additions = self.record.additions
        last = sum(addition.started_at >= RUSH_SECONDS - LAST_SECONDS for addition in additions)
        raised_at = self.raises[0][0] if self.raises else None
        learned_at = float("inf") if raised_at is None else raised_at + LEARNED_SECONDS
        self.audit([self.counter])
        return RushRun(
            seed=self.seed,
            offered=len(additions),
            per_second=round(last / LAST_SECONDS, 1),
            acknowledged=sum(addition.ended_at is not None for addition in additions),
            refused=len(self.refusals),
            refused_after=sum(began_at > learned_at for began_at in self.refusals),
            raised_seconds=None if raised_at is None else raised_at - RUSH_ONSET,
            shard_counts=tuple(shard_count for _, _, shard_count in self.raises),
            breaches=self.record.breaches(),
        )

    def _arrivals(self) -> Iterator[float]:
        random, at = self.random("arrivals"), 0.0
        while True:
            at += random.expovariate(self.per_second if at >= RUSH_ONSET else self.per_second / 100)
            if at >= RUSH_SECONDS:
                return
            yield at

    def _add(self) -> None:
        """Add, and repeat what was refused, as clients do."""
        attempted = self.offer(self.counter, f"{len(self.record.additions)}", 1)
        for _ in range(self.scenario.clients.attempts):
            attempt_at = self.engine.now
            try:
                self.adding.invoke(NewAddition(self.counter, 1))
            except REFUSALS:
                self.refusals.append(attempt_at)
                self.engine.sleep(self.scenario.clients.retry_after_seconds)
            else:
                attempted.ended_at = self.engine.now
                return


def run_tokens(seed: int, parts: Parts | None = None, *, additions: int = ADDITIONS) -> TokenRun:
    """Add with tokens while everything fails. Odd seeds: a cancelled transaction binds its token."""
    run = _Tokens(seed, parts, additions)
    with closing(run.engine):
        return run.result()


class _Tokens(CounterRun):
    def __init__(self, seed: int, parts: Parts | None, additions: int) -> None:
        plan = replace(ALL_FAULTS.with_odds(late=LATE), wrong_clocks=0.0)
        super().__init__(faulty("counter-faults", seconds=FAULT_SECONDS, faults=plan), seed, parts)
        self.world.store.tokens = RequestTokens(lambda: self.engine.now, binds_cancelled=bool(seed % 2))
        self.count = additions
        self.attempts = self.persisted = self.under_way = 0
        self.clients = self.random("clients")
        struck = self.adding, self.reading
        self.driver = FaultDriver(plan, self.world, struck, lambda: self.watchers, self.random("faults"))
        raised = self.random("raised")
        self.by_hand = RaisesByHand(
            self.world,
            place=COUNTERS.journal,
            per_second=RAISES_PER_SECOND,
            most_shards=MOST_SHARDS,
            choose=lambda: counter_key(self._name(raised.choice(COUNTER_NAMES))),
        )

    def result(self) -> TokenRun:
        engine, arrivals = self.engine, self.random("arrivals")
        self.start_consumers()
        self.driver.start()
        for number in range(self.count):
            engine.at(arrivals.random() ** 0.6 * FAULT_SECONDS, partial(engine.spawn, partial(self._add, number)))
        engine.spawn(self._read_now_and_then)
        self.by_hand.start()
        engine.at(FAULTS_END, self.driver.stop)
        engine.run_until(FAULTS_END)
        self.world.is_over = True
        engine.run_while(lambda: self.under_way, DRAIN_SECONDS)
        if self.under_way:
            raise RuntimeError(f"{self.under_way} additions were never acknowledged")
        engine.run_until(engine.now + LAST_LATE_SECONDS)
        self.audit([self._name(name) for name in COUNTER_NAMES])
        return TokenRun(
            seed=self.seed,
            persisted=self.persisted,
            attempts=self.attempts,
            reads=len(self.record.reads),
            raises=len(self.raises),
            faults=self.driver.all_struck(),
            breaches=(*self.record.breaches(), *self._check_made()),
        )

    def _check_made(self) -> Iterator[Finding]:
        """See that DynamoDB made no addition twice: of those that were given up, sums alone cannot tell."""
        if self.stored_count > self.count:
            yield Finding("duplicated", "all", SUM, f"{self.stored_count} additions were made of {self.count}")

    def _name(self, name: str) -> str:
        return f"{name}-{self.seed}"

    def _add(self, number: int) -> None:
        """Add until it is acknowledged, and sometimes again then; on one counter, give up after the first attempt."""
        random, engine = self.clients, self.engine
        name = random.choices(COUNTER_NAMES, (0.7, 0.2, 0.1))[0]
        amount = random.choice((-3, -1, 2, 5)) if name == "signed" else random.randint(1, 9)
        new = NewAddition(self._name(name), amount, token=f"addition {number}")
        attempted = self.offer(new.counter_id, f"addition {number}", amount)
        self.under_way += 1
        self.persisted += name != "given-up"
        while not self._attempt(new, attempted) and name != "given-up":
            engine.sleep(0.2 + 1.8 * random.random())
        if attempted.ended_at is not None and random.random() < REPEATED_SHARE:
            engine.sleep(random.random() * random.choice((0.1, LONGEST_REPETITION_SECONDS)))
            self._attempt(new, attempted)
        self.under_way -= 1

    def _attempt(self, new: NewAddition, attempted: Added) -> bool:
        self.attempts += 1
        try:
            self.adding.invoke(new, timeout_seconds=self.scenario.clients.timeout_seconds)
        except REFUSALS:
            return False
        except OutcomeUnknownError as error:
            raise AssertionError("an addition with a token has no unknown outcome") from error
        if attempted.ended_at is None:
            attempted.ended_at = self.engine.now
        return True

    def _read_now_and_then(self) -> None:
        random = self.random("reads")
        while not self.world.is_over:
            self.engine.sleep(random.expovariate(READS_PER_SECOND))
            self.read(self._name(random.choice(COUNTER_NAMES)))


def judge(by_part: Mapping[str, list[Any]]) -> Verdict:
    """Hold all seeds against the bars."""
    runs: list[TokenRun] = by_part["tokens"]
    rushes: list[RushRun] = by_part["rush"]
    failing = [run.seed for run in runs if run.breaches]
    additions = total(runs, "persisted")
    return Verdict(
        fields={
            "additions": additions,
            **{name: total(runs, name) for name in ("attempts", "reads", "raises")},
            "breaches": sum(len(run.breaches) for run in runs),
            "faults": add_up(runs, "faults"),
        },
        bars=[
            at_most("seeds in which an addition with a token did not count once", len(failing), 0, "seeds"),
            at_least("additions with tokens, repeated until acknowledged", additions, LEAST_ADDITIONS * len(runs), ""),
            at_least("additions in a second of the rush", min(run.per_second for run in rushes), 9_800, ""),
            at_most("onset of the rush to its raise", max(run.raised_seconds or 1e9 for run in rushes), 2.0, "s"),
            at_most("refused half a second after the raise or later", max(run.refused_after for run in rushes), 0, ""),
            at_most("wrong sums in rushes", sum(len(run.breaches) for run in rushes), 0, "reads"),
        ],
        failing=failing,
    )


STUDY = Study(
    "counters",
    "Additions to counters: 10,000 a second on one key, and with tokens while everything fails.",
    [Part("tokens", run_tokens, SEEDS), Part("rush", run_rush, RUSH_SEEDS)],
    judge,
)
