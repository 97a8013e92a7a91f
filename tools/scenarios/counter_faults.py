"""Counters: a rush of additions on one key, and additions with tokens while everything fails. `make simulate-counters`.

Functions, consumer, Redis and DynamoDB are those of the other runs; the jobs are the product's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from hotpartition.core.counter_items import build_addition, counter_size_bytes
from hotpartition.core.errors import RetryLaterError
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore, decode_cell, describe_counters
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.engine.counters import Adder, Summer
from hotpartition_messages.keys import KEY_FORM
from tools.figures import Outcome, at_least, at_most
from tools.history import Change, Finding, Seen, find_breaches
from tools.limits.request_tokens import RequestTokens
from tools.scenarios.seeds import Part, Study, Verdict, add_up, total
from tools.scenarios.step import step
from tools.world.clock import Process
from tools.world.faults import FaultDriver
from tools.world.functions import FunctionConfig, NoResponseError, TooManyRequestsError
from tools.world.operators import RaisesByHand
from tools.world.product import TABLE, Environment, World, build_reading, build_writing, open_reader_calls
from tools.world.scenario import FAULTY, TABLE_NAME, FaultPlan, Scenario
from tools.world.strategies import start_consumers
from tools.world.workload import ConversationFlow, Step

AUDIT_SECONDS = 60.0
SUM = "sum"
"""What the history calls the one item of a counter."""
COUNTER = "c"
COUNTERS = describe_counters(TABLE_NAME, COUNTER, journal=TABLE.journal, keys=KEY_FORM)
REFUSALS = (RetryLaterError, NoResponseError, TooManyRequestsError)
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


def counter_key(counter_id: str) -> str:
    """Build a counter's base key, which is no conversation's."""
    return f"counter/{counter_id}"


def build_call(counter_id: str, amount: int, token: str | None = None) -> Callable[[Adder], None]:
    """Build the call that adds to a counter. With a token, the addition counts once."""
    key = counter_key(counter_id)
    size_bytes = counter_size_bytes("pk", "sk", key, COUNTER)
    if token is None:
        return lambda adder: adder.add(key, amount, size_bytes=size_bytes)
    addition = build_addition(TABLE_NAME, COUNTER, key, token, amount)
    return lambda adder: adder.add_once(key, addition, size_bytes=size_bytes)


def build_adder(world: World, process: Process, index: int) -> Adder:
    """Build one environment of the write function, for counters."""
    calls = world.calls("writer")
    engine = build_writing(Environment(world, process, index, world.random(f"writer-{index}"), calls))
    return Adder(
        engine.writer,
        DynamoDBCounterStore(calls, COUNTERS),
        journal=DynamoDBJournal(calls, COUNTERS.journal),
        form=KEY_FORM,
        clock=engine.clock,
        budget_ms=engine.budget_ms,
    )


def build_summer(world: World, process: Process, index: int) -> Summer:
    """Build one environment of the read function, for counters."""
    calls = open_reader_calls(world, process)
    cells = DynamoDBItemStore(calls, COUNTERS, decode_cell)
    engine = build_reading(Environment(world, process, index, world.random(f"reader-{index}"), calls))
    return Summer(engine.gatherer(store=cells), is_alone=True, form=KEY_FORM)


class CounterRun(World):
    """A run of additions: the functions that add and sum up, and what clients noted."""

    def __init__(self, seed: int, scenario: Scenario) -> None:
        super().__init__(seed, scenario, chance="counters/")
        self.adding = self.open_function(scenario.writers, build_adder, "adders")
        self.reading = self.open_function(scenario.reading, build_summer, "summers")

    def offer(self, counter: str, amount: int, token: str) -> Change:
        """Note that somebody begins to add."""
        self.record.note_offer(counter, SUM, "")
        return self.record.note_change(counter, SUM, token=token, began=self.engine.now, amount=amount)

    def attempt(self, call: Callable[[Adder], None], attempted: Change) -> bool:
        """Add once; say whether it was acknowledged."""
        try:
            self.adding.invoke(call, timeout_seconds=self.scenario.clients.timeout_seconds)
        except REFUSALS:
            return False
        attempted.ended_at = min(attempted.ended_at, self.engine.now)
        return True

    def read(self, counter: str) -> bool:
        """Read a counter strongly, and note it; say whether it could be read."""
        began_at = self.engine.now
        try:
            value = self.reading.invoke(lambda summer: summer.sum_up(counter_key(counter), is_strong=True))
        except REFUSALS:
            return False
        self.record.note_lookup(counter, SUM, [Seen(SUM, "", value)], began_at, self.engine.now)
        return True

    def audit(self, counters: Sequence[str]) -> tuple[Finding, ...]:
        """Read everything once more, when all is over, and list what is wrong."""

        def read() -> None:
            for counter in counters:
                while not self.read(counter):
                    self.engine.sleep(0.1)

        self.engine.run_to_end(read, AUDIT_SECONDS)
        return find_breaches(self.record)


def run_rush(seed: int, *, per_second: float = RUSH_PER_SECOND) -> Outcome:
    """Let a counter step to `per_second` additions a second, without tokens.

    In its outcome, `per_second` is what was offered in the last seconds, and `refused_after` the additions that were
    refused though they began after the raise was learned.
    """
    scenario = replace(
        step(RUSH_PER_SECOND, RUSH_PARTITIONS),
        name="counter-rush",
        writers=FunctionConfig(concurrency=RUSH_ENVIRONMENTS, warm=RUSH_ENVIRONMENTS),
        seconds=RUSH_SECONDS,
        onset=RUSH_ONSET,
        hot_conversation=counter_key(f"rush-{seed}"),
    )
    with CounterRun(seed, scenario) as run:
        engine, counter, refusals = run.engine, f"rush-{seed}", list[float]()
        additions = run.record.note_offer(counter, SUM, "").changes

        def add() -> None:
            """Add, and repeat what was refused, as clients do."""
            attempted = run.offer(counter, 1, f"{len(additions)}")
            for _ in range(scenario.clients.attempts):
                attempt_at = engine.now
                if run.attempt(build_call(counter, 1), attempted):
                    return
                refusals.append(attempt_at)
                engine.sleep(scenario.clients.retry_after_seconds)

        run.watchers = start_consumers(run)
        run.charge_others(scenario.other_wcu, OTHER_TRAFFIC_SECONDS)
        shape = Step(before=per_second / 100, after=per_second, onset=RUSH_ONSET)
        flow = ConversationFlow(conversation_id=counter, shape=shape, body_bytes=(100, 100))
        for arrival in flow.arrivals(RUSH_SECONDS, run.random("counters/arrivals")):
            engine.at(arrival.at, partial(engine.spawn, add))
        engine.run_until(RUSH_SECONDS + 5.0)
        offered, last = len(additions), sum(each.started_at >= RUSH_SECONDS - LAST_SECONDS for each in additions)
        raised_seconds = run.meter.raised_seconds(RUSH_ONSET)
        learned_at = inf if raised_seconds is None else RUSH_ONSET + raised_seconds + LEARNED_SECONDS
        return Outcome(
            seed=seed,
            offered=offered,
            per_second=round(last / LAST_SECONDS, 1),
            acknowledged=sum(each.ended_at < inf for each in additions),
            refused=len(refusals),
            refused_after=sum(began_at > learned_at for began_at in refusals),
            raised_seconds=raised_seconds,
            shard_counts=run.meter.shard_counts(),
            breaches=run.audit([counter]),
        )


def run_tokens(seed: int, *, additions: int = ADDITIONS) -> Outcome:
    """Add with tokens while everything fails. Odd seeds: a cancelled transaction binds its token."""
    with _Tokens(seed) as run:
        return run.outcome(additions)


class _Tokens(CounterRun):
    def __init__(self, seed: int) -> None:
        plan = FaultPlan(wrong_clocks=0.0).with_odds(late=LATE)
        super().__init__(seed, replace(FAULTY, name="counter-faults", seconds=FAULT_SECONDS, faults=plan))
        self.store.dynamodb.tokens = RequestTokens(binds_cancelled=bool(seed % 2))
        self.attempts = self.persisted = self.under_way = 0
        """Of additions: attempts; those that were repeated until they were acknowledged; those that still are."""
        self.clients = self.random("counters/clients")
        self.driver = FaultDriver(self, (self.adding, self.reading), self.random("counters/faults"))
        raised = self.random("counters/raised")
        self.by_hand = RaisesByHand(
            self,
            place=COUNTERS.journal,
            per_second=RAISES_PER_SECOND,
            most_shards=MOST_SHARDS,
            choose=lambda: counter_key(self._name(raised.choice(COUNTER_NAMES))),
        )

    def outcome(self, count: int) -> Outcome:
        engine, arrivals = self.engine, self.random("counters/arrivals")
        self.watchers = start_consumers(self)
        self.driver.start()
        for number in range(count):
            engine.at(arrivals.random() ** 0.6 * FAULT_SECONDS, partial(engine.spawn, partial(self._add, number)))
        engine.spawn(self._read_now_and_then)
        self.by_hand.start()
        engine.at(FAULTS_END, self.driver.stop)
        engine.run_until(FAULTS_END)
        self.is_over = True
        engine.run_while(lambda: self.under_way, DRAIN_SECONDS)
        if self.under_way:
            raise RuntimeError(f"{self.under_way} additions were never acknowledged")
        engine.run_until(engine.now + LAST_LATE_SECONDS)
        breaches = self.audit([self._name(name) for name in COUNTER_NAMES])
        if self.meter.puts > count:
            # Of those that were given up, sums alone show nothing.
            breaches += (Finding("duplicated", "all", SUM, f"{self.meter.puts} additions were made of {count}"),)
        return Outcome(
            seed=self.seed,
            persisted=self.persisted,
            attempts=self.attempts,
            reads=len(self.record.reads),
            raises=len(self.meter.raises),
            faults=self.driver.all_struck(),
            breaches=breaches,
        )

    def _name(self, name: str) -> str:
        return f"{name}-{self.seed}"

    def _add(self, number: int) -> None:
        """Add until it is acknowledged, and sometimes again then; on one counter, give up after the first attempt."""
        random, engine = self.clients, self.engine
        name = random.choices(COUNTER_NAMES, (0.7, 0.2, 0.1))[0]
        amount = random.choice((-3, -1, 2, 5)) if name == "signed" else random.randint(1, 9)
        what = self._name(name), amount, f"addition {number}"
        call, attempted = build_call(*what), self.offer(*what)
        self.under_way += 1
        self.persisted += name != "given-up"
        while not self.attempt(call, attempted) and name != "given-up":
            engine.sleep(0.2 + 1.8 * random.random())
        if attempted.ended_at < inf and random.random() < REPEATED_SHARE:
            engine.sleep(random.random() * random.choice((0.1, LONGEST_REPETITION_SECONDS)))
            self.attempt(call, attempted)
        self.under_way -= 1

    def attempt(self, call: Callable[[Adder], None], attempted: Change) -> bool:
        """Count it as well. An addition with a token has no unknown outcome: what says so is raised here."""
        self.attempts += 1
        return super().attempt(call, attempted)

    def _read_now_and_then(self) -> None:
        random = self.random("counters/reads")
        while not self.is_over:
            self.engine.sleep(random.expovariate(READS_PER_SECOND))
            self.read(self._name(random.choice(COUNTER_NAMES)))


def judge(by_part: Mapping[str, list[Outcome]]) -> Verdict:
    """Hold all seeds against the bars."""
    runs, rushes = by_part["tokens"], by_part["rush"]
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
