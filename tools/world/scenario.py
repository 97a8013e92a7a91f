"""Scenarios: everything that a run is made of, as values, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from hotpartition.core.closes import TIMES, CloseTimes
from hotpartition.core.sampler import SLOT_MS
from hotpartition.runtime.settings import Settings
from hotpartition_messages.settings import MessageSettings
from tools.limits import OnDemand, Partitions, TableConfig
from tools.scaling import scale_thresholds
from tools.world.clock import FunctionConfig
from tools.world.network import StoreFaults
from tools.world.workload import (
    ConversationFlow,
    Flash,
    ReplayFlow,
    Shape,
    Step,
    Workload,
    ZipfFlow,
    constant,
    name_for,
)

TABLE_NAME = "simulated"
NAMES = {"table_name": TABLE_NAME, "registry_host": "simulated"}
HOT = "hot-room-{seed}"
"""`{seed}` in a conversation's name becomes the seed, so that each seed has shards on other partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """How writing clients behave: refused, they wait as `Retry-After` says (up to half as long again) and repeat.

    A share of them makes the message's id; the others learn it from the first answer.
    """

    attempts: int = 3
    retry_after_seconds: float = 1.0
    timeout_seconds: float = 10.0
    minting_share: float = 1.0
    skew_ms: float = 0.0
    network_seconds: float = 0.004
    """One way, gateway included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """How many reads begin each second, of which kind.

    Newest pages and point reads are the usual ones; `complete` reads go from one end to the other, `bounded` ones
    between two times; of all, `strong_share` are strongly consistent. `hot_share` are of the hot conversation.
    """

    per_second: float = 0.0
    newest: float = 1.0
    complete: float = 0.0
    bounded: float = 0.0
    lookups: float = 0.0
    strong_share: float = 0.5
    hot_share: float = 0.5
    limits: tuple[int, ...] = (50,)
    """Page sizes of newest pages."""
    long_limits: tuple[int, ...] = (200,)
    """Page sizes of reads that go on."""
    poll_limits: tuple[int, ...] = ()
    """Page sizes of those who poll the hot conversation, one poller each."""
    attempts: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How many edits and deletions begin each second, and what else becomes of messages.

    `again_share` of the targets were changed a moment ago, so that changes meet; `matching_share` of the edits send
    `If-Match`, having read the message. `repeated_share` of all writes are sent again, up to `again_seconds` after they
    were acknowledged; `expiring_share` expire within `longest_seconds`.
    """

    per_second: float = 0.0
    deletions: float = 0.3
    again_share: float = 0.4
    matching_share: float = 0.3
    repeated_share: float = 0.0
    again_seconds: float = 8.0
    expiring_share: float = 0.0
    longest_seconds: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When the consumer is started: each period, with up to `jitter_seconds` of delay; at first, it runs already."""

    period_seconds: float = 60.0
    jitter_seconds: float = 59.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What goes wrong. Rates are events a second, odds are for each request; all 0 in good times."""

    redis_outages: float = 0.0
    redis_failovers: float = 0.0
    redis_emptyings: float = 0.0
    redis_slowness: float = 0.0
    redis_scribbles: float = 0.0
    """Somebody writes to Redis: generations that nobody raised, bytes that are no text, keys of another type."""
    stream_trims: float = 0.0
    consumer_kills: float = 0.0
    environment_kills: float = 0.0
    store_spells: float = 0.0
    consumer_crash: float = 0.0
    """Odds that the consumer dies right after it has written a route, to the journal or Redis, and nothing else."""
    redis_lost: float = 0.0
    """Odds that a command to Redis gets no answer."""
    store: StoreFaults = field(default_factory=StoreFaults)
    """At all times."""
    spell: StoreFaults = field(default_factory=StoreFaults)
    """During a bad spell."""
    skew_ms: float = 0.0
    wrong_clocks: float = 0.0
    """Share of the environments whose writer's clock is wrong by minutes; messages get their times by another one."""
    closes_per_second: float = 0.0
    """Closes that are tried, of random keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSettings:
    """The three functions' settings; the defaults are the product's."""

    writer: MessageSettings = field(default_factory=partial(MessageSettings.defaults, "write", **NAMES))
    reader: MessageSettings = field(default_factory=partial(MessageSettings.defaults, "read", **NAMES))
    consumer: Settings = field(default_factory=partial(Settings.defaults, "consumer", **NAMES))
    times: CloseTimes = TIMES
    """For writers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario. Times are seconds of the run; the heat begins at `onset` and ends with the workload."""

    name: str
    description: str
    workload: Workload
    seconds: float
    onset: float
    hot_conversation: str = HOT
    drain_seconds: float = 6.0
    """How long clients may go on after the workload's end."""
    patience_seconds: float = 0.0
    """How much longer the run goes on, beyond that, while messages wait that somebody has accepted."""
    heat_end: float = float("inf")
    """When the heat ends, if not with the workload."""
    table: TableConfig | None
    """None: it takes as much as anybody asks for."""
    other_wcu: float = 0.0
    """Write load of other keys, evenly spread over the table, which is not simulated request by request."""
    base_reads_per_second: float = 0.0
    """Eventually consistent reads of 4 KiB of the hot conversation's base key, from 3 s before the onset on. Only
    their units are simulated, one by one: they are as small as a look-up of a route, so neither is favored."""
    hot_wcu: float = 4000.0
    """The load of the hot conversation at its highest, in WCU/s."""
    writers: FunctionConfig = field(default_factory=lambda: FunctionConfig(warm=100))
    reading: FunctionConfig = field(default_factory=lambda: FunctionConfig(warm=50))
    clients: Clients = field(default_factory=Clients)
    readers: Readers = field(default_factory=Readers)
    changes: Changes = field(default_factory=Changes)
    settings: ProductSettings = field(default_factory=ProductSettings)
    schedule: Schedule = field(default_factory=Schedule)
    faults: FaultPlan | None = None
    draws_phase: bool = False
    """Whether the step begins anywhere within a slot: one that begins exactly with it flatters a fast detector."""
    is_judged: bool = True
    """Whether a history is kept and judged, with reads of everything at the end."""

    @property
    def heat_ends(self) -> float:
        """When the heat ends."""
        return min(self.heat_end, self.seconds)

    def drawn_for(self, seed: int) -> Scenario:
        """Give the hot conversation its name in a seed's run, and the step the place within a slot where it begins."""
        named = replace(self, hot_conversation=name_for(self.hot_conversation, seed))
        return named.shifted(Random(f"phase/{seed}").random() * SLOT_MS / 1000) if self.draws_phase else named

    def shifted(self, seconds: float) -> Scenario:
        """Let all loads of conversations begin, and end, later."""
        flows = [
            replace(
                flow,
                shape=replace(flow.shape, onset=flow.shape.onset + seconds),
                start=flow.start and flow.start + seconds,
                end=flow.end + seconds,
            )
            for flow in self.workload.flows
            if isinstance(flow, ConversationFlow) and isinstance(flow.shape, Step)
        ]
        return replace(self, onset=self.onset + seconds, workload=Workload(tuple(flows)))

    def list_rooms(self, seed: int) -> list[str]:
        """List the conversations that a seed's run has by name, and not by popularity."""
        flows = self.workload.flows
        return [name_for(flow.conversation_id, seed) for flow in flows if isinstance(flow, ConversationFlow)]


def table_of(partitions: int, *, limit_wcu: float = 1000.0, limit_rcu: float = 3000.0) -> TableConfig:
    """Build a table of so many partitions, made warm for them, and with a quota that was raised out of the way."""
    return TableConfig(
        throughput=OnDemand(
            warm_wcu=partitions * limit_wcu, warm_rcu=partitions * limit_rcu, quota_wcu=None, quota_rcu=None
        ),
        partitions=Partitions(count=partitions, write_limit_wcu=limit_wcu, read_limit_rcu=limit_rcu),
    )


_SMALL_BODY = (700, 800)
_MIDDLE_BODY = (7_700, 7_950)
"""Items of 8 KiB: so a write is 8 WCU, and there are an eighth of the requests."""
_LARGE_BODY = (15_800, 16_100)
"""Items of 16 KiB."""
_SMALL_SECONDS = 2.5
"""How long after the onset items are of 1 KiB. A raise's own update takes 1 WCU of the hot partition: beside writes of
8 it would always find them, beside writes of 1 it has to be lucky."""


def step(load_wcu: float = 4000.0, partitions: int = 32, *, name: str = "step", heat_seconds: float = 60.0) -> Scenario:
    """Build the step of the project's bar, or one to another load or on another table.

    Items are of 1 KiB until it should have been noticed, and larger from then on.
    """
    onset = 5.0
    until = onset + _SMALL_SECONDS
    shape = Step(before=100.0, after=load_wcu, onset=onset)
    flows = (
        ConversationFlow(conversation_id=HOT, shape=shape, body_bytes=_SMALL_BODY, end=until),
        ConversationFlow(conversation_id=HOT, shape=shape, body_bytes=_LARGE_BODY, start=until),
    )
    return Scenario(
        name=name,
        description=f"One conversation steps from 100 to {load_wcu:,.0f} WCU/s at 5 s and stays there for "
        f"{heat_seconds:g} s; 1,000 environments, items of 1 KiB until 2.5 s after the step and of 16 KiB then, "
        f"10,000 WCU/s of other traffic, a warm table of {partitions} partitions.",
        workload=Workload(flows),
        seconds=onset + heat_seconds,
        onset=onset,
        hot_wcu=load_wcu,
        draws_phase=True,
        table=table_of(partitions),
        other_wcu=10_000.0,
        writers=FunctionConfig(concurrency=1000, warm=1000, taken=60, other_requests_per_second=10.0),
        is_judged=False,
    )


STEP = step()

STEP_VARIANTS: Mapping[str, Scenario] = {
    variant.name: variant
    for variant in (
        *(
            step(load_wcu, partitions, name=f"step-{load_wcu:.0f}-on-{partitions}", heat_seconds=25.0)
            for load_wcu, partitions in (
                (2000.0, 32),
                (6000.0, 32),
                (10_000.0, 32),
                (4000.0, 8),
                (4000.0, 16),
                (4000.0, 128),
            )
        ),
        replace(
            step(heat_seconds=15.0),
            name="read_hot",
            description="The step, while 12,000 small reads of the base key begin each second from 2 s on: 6,000 "
            "RCU/s, twice what its partition serves.",
            base_reads_per_second=12_000.0,
        ),
    )
}
"""The step to other loads, on smaller and larger tables, and where the base key's reads are refused: there, writers
look routes up."""

_COMPARED_READERS = Readers(per_second=20.0, strong_share=0.0, hot_share=0.5)


def _hot(shape: Shape, *, body_bytes: tuple[int, int] = _MIDDLE_BODY, **others: Any) -> ConversationFlow:
    return ConversationFlow(conversation_id=HOT, shape=shape, body_bytes=body_bytes, **others)


COMPARISON = replace(
    STEP,
    workload=Workload(
        (
            _hot(Step(before=200.0, after=4000.0, onset=4.0, end=14.0), body_bytes=_LARGE_BODY),
            ZipfFlow(conversations=40, shape=constant(30.0), exponent=0.5, body_bytes=_SMALL_BODY, prefix="quiet-room"),
        )
    ),
    name="compare",
    draws_phase=False,
    description="One conversation steps from 200 to 4,000 WCU/s at 4 s, for ten seconds; 40 quiet ones get 30 "
    "WCU/s together. 1,000 environments, 10,000 WCU/s of other traffic, a warm table of 32 partitions; 20 pages "
    "of 20 messages are read each second, half of them of the hot conversation. Its items are of 16 KiB, so that "
    "its load takes a sixteenth of the requests; those of the quiet ones are of 1 KiB.",
    seconds=24.0,
    onset=4.0,
    heat_end=14.0,
    drain_seconds=8.0,
    patience_seconds=90.0,
    clients=Clients(attempts=2),
    readers=replace(_COMPARED_READERS, limits=(20,)),
    is_judged=True,
)
"""The step, smaller and with reads, and with what comes after it, for the strategies side by side."""

_SCALE = 0.02
"""Under faults, limits and thresholds are a fiftieth of DynamoDB's: so heat takes few writes, and seeds are cheap."""


SHORT_LEASES = {"lease_seconds": 2.0}
SHORT_TIMES = CloseTimes(lease_ms=2_000, margin_ms=1_000, pause_ms=0)
"""Under faults, for all who write and close."""


ALL_FAULTS = FaultPlan(
    redis_outages=0.08,
    redis_failovers=0.08,
    redis_emptyings=0.06,
    redis_slowness=0.08,
    redis_scribbles=0.3,
    stream_trims=0.1,
    consumer_kills=0.1,
    environment_kills=0.5,
    store_spells=0.05,
    consumer_crash=0.15,
    redis_lost=0.01,
    store=StoreFaults(
        server_error=0.01,
        lost_request=0.002,
        lost_answer=0.004,
        load_lost=0.05,
        slow=0.02,
        short_page=0.03,
        unprocessed=0.02,
        throttled=0.005,
        long_lag=0.1,
        date_skew_seconds=0.45,
    ),
    spell=StoreFaults(
        server_error=0.15,
        lost_request=0.02,
        lost_answer=0.04,
        load_lost=0.2,
        slow=0.2,
        short_page=0.2,
        unprocessed=0.2,
        throttled=0.1,
        long_lag=0.5,
        date_skew_seconds=0.45,
    ),
    skew_ms=800.0,
    wrong_clocks=0.15,
    closes_per_second=3.0,
)


def _faults() -> Scenario:
    """Build the scenario of `make simulate-faults`: everything goes wrong, many times."""
    limit = 1000.0 * _SCALE
    scaled = scale_thresholds(_SCALE)
    distance_wcu = scaled.pop("sampling_distance_wcu")
    writer = MessageSettings.defaults("write", **NAMES, sampling_distance_wcu=distance_wcu, **SHORT_LEASES)
    consumer = Settings.defaults("consumer", **NAMES, **scaled, max_shard_count=12)
    flows = (
        ConversationFlow(
            conversation_id=HOT,
            shape=Step(before=4.0, after=50.0, onset=4.0, end=20.0),
            body_bytes=(20, 600),
        ),
        ConversationFlow(
            conversation_id="second-room-{seed}",
            shape=Flash(before=3.0, peak=60.0, onset=9.0, rise=1.5, half_life=4.0),
            body_bytes=(20, 1800),
        ),
        ConversationFlow(
            conversation_id="third-room-{seed}",
            shape=Step(before=0.0, after=30.0, onset=13.0, end=21.0),
            age_seconds=(100.0, 160.0),
            backwards_seconds=5.0,
            body_bytes=(20, 600),
        ),
        ZipfFlow(conversations=6, shape=constant(12.0), body_bytes=(20, 600)),
    )
    return Scenario(
        name="faults",
        description="Everything goes wrong: Redis fails, forgets, hangs and is emptied; DynamoDB throttles, errs, "
        "loses requests and answers and lags; environments and consumers die; clocks differ; clients repeat. Limits "
        "and thresholds are a fiftieth of DynamoDB's, so that heat takes few writes.",
        workload=Workload(flows),
        seconds=24.0,
        onset=4.0,
        drain_seconds=14.0,
        table=table_of(24, limit_wcu=limit, limit_rcu=1500.0),
        writers=FunctionConfig(concurrency=60, warm=12, death=0.004),
        reading=FunctionConfig(concurrency=60, warm=8, death=0.004),
        clients=Clients(attempts=5, retry_after_seconds=0.5, timeout_seconds=3.0, minting_share=0.8, skew_ms=300.0),
        readers=Readers(
            per_second=14.0,
            newest=0.45,
            complete=0.1,
            bounded=0.25,
            lookups=0.2,
            strong_share=0.75,
            hot_share=0.5,
            limits=(3, 10, 25, 50),
            long_limits=(25, 60, 200),
            poll_limits=(5,),
        ),
        changes=Changes(per_second=10.0, repeated_share=0.15, expiring_share=0.05),
        settings=ProductSettings(writer=writer, consumer=consumer, times=SHORT_TIMES),
        schedule=Schedule(period_seconds=7.0, jitter_seconds=6.5),
        faults=ALL_FAULTS,
    )


def _hunt(everything: Scenario) -> Scenario:
    """Build a small one in which a broken protocol shows soon: hot at once, and looked at all the time."""
    flows = (
        ConversationFlow(
            conversation_id=HOT, shape=Step(before=2.0, after=40.0, onset=1.0, end=8.0), body_bytes=(20, 600)
        ),
        ConversationFlow(
            conversation_id="old-room-{seed}",
            shape=Step(before=1.0, after=35.0, onset=2.0, end=7.0),
            age_seconds=(20.0, 40.0),
            backwards_seconds=3.0,
            body_bytes=(20, 600),
        ),
    )
    return replace(
        everything,
        name="hunt",
        description="As `faults`, but small: two conversations that get hot at once, and readers that always look.",
        workload=Workload(flows),
        seconds=9.0,
        onset=1.0,
        drain_seconds=6.0,
        readers=replace(
            everything.readers,
            per_second=50.0,
            newest=0.7,
            complete=0.05,
            bounded=0.15,
            lookups=0.1,
            strong_share=1.0,
            hot_share=0.6,
        ),
        changes=replace(everything.changes, per_second=25.0, repeated_share=0.3),
        faults=replace(
            ALL_FAULTS,
            consumer_kills=0.05,
            redis_outages=0.05,
            stream_trims=0.02,
            consumer_crash=0.3,
            redis_lost=0.05,
            skew_ms=2500.0,
        ),
    )


FAULTS = _faults()

SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario for scenario in (COMPARISON, STEP, FAULTS, _hunt(FAULTS), *STEP_VARIANTS.values())
}


def scenario_by_name(name: str) -> Scenario:
    """Find a scenario, or raise a `ValueError` that says which there are."""
    if name not in SCENARIOS:
        raise ValueError(f"there is no scenario {name!r}; there are {', '.join(sorted(SCENARIOS))}")
    return SCENARIOS[name]


REPLAY_SECONDS = 30.0
"""Whatever time the messages of a file took, they are replayed within this one."""
REST_SECONDS = 5.0
"""How long the run goes on after them."""


def scenario_of_messages(path: Path) -> Scenario:
    """Build a scenario of a file's largest conversations; the very largest counts as the one that gets hot."""
    flow = ReplayFlow(path=path, seconds=REPLAY_SECONDS)
    sizes = Counter(arrival.conversation_id for arrival in Workload((flow,)).arrivals(REPLAY_SECONDS + REST_SECONDS, 0))
    largest = min(sizes, key=lambda conversation: (-sizes[conversation], conversation))
    return replace(
        COMPARISON,
        name="replay",
        description=(
            f"{sizes.total():,} messages of {path.name}, {sizes[largest]:,} of them in the largest conversation, "
            f"replayed within {REPLAY_SECONDS:g} s."
        ),
        workload=Workload((flow,)),
        seconds=REPLAY_SECONDS + REST_SECONDS,
        onset=0.0,
        heat_end=REPLAY_SECONDS,
        hot_conversation=largest,
    )
