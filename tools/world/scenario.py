"""Scenarios: everything that a run is made of, as values, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hotpartition.core.closes import CloseTimes
from hotpartition_messages.settings import MessageSettings
from tools.limits import Partitions
from tools.world.functions import FunctionConfig
from tools.world.network import StoreFaults
from tools.world.scaling import scale_thresholds
from tools.world.workload import ConversationFlow, Flow, name_for

TABLE_NAME = "simulated"
FUNCTIONS = ("write", "read", "consumer")
"""Those that run beside each other, by the names that the settings know them by."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How many edits and deletions begin each second, and what else becomes of messages.

    `again_share` of the targets were changed a moment ago, so that changes meet. `repeated_share` of all writes are
    sent again, up to `again_seconds` after they were acknowledged; `expiring_share` expire within 20 s.
    """

    per_second: float = 0.0
    deletions: float = 0.3
    again_share: float = 0.4
    repeated_share: float = 0.0
    again_seconds: float = 8.0
    expiring_share: float = 0.0


ODDS = {
    "server_error": (0.01, 0.15),
    "lost_request": (0.002, 0.02),
    "lost_answer": (0.004, 0.04),
    "load_lost": (0.05, 0.2),
    "slow": (0.02, 0.2),
    "short_page": (0.03, 0.2),
    "unprocessed": (0.02, 0.2),
    "throttled": (0.005, 0.1),
    "long_lag": (0.1, 0.5),
    "date_skew_seconds": (0.45, 0.45),
}
"""At all times, and in bad spells."""
USUAL_ODDS = StoreFaults(**{name: usual for name, (usual, _) in ODDS.items()})
ODDS_IN_SPELLS = StoreFaults(**{name: in_spells for name, (_, in_spells) in ODDS.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """What goes wrong: everything, unless a field says otherwise. Rates are events a second, odds for each request."""

    redis_outages: float = 0.08
    redis_failovers: float = 0.08
    redis_emptyings: float = 0.06
    redis_slowness: float = 0.08
    redis_scribbles: float = 0.3
    """Somebody writes to Redis: generations that nobody raised, bytes that are no text, keys of another type."""
    stream_trims: float = 0.1
    consumer_kills: float = 0.1
    environment_kills: float = 0.5
    store_spells: float = 0.05
    consumer_crash: float = 0.15
    """Odds that the consumer dies right after it has written a route, to the journal or Redis, and nothing else."""
    redis_lost: float = 0.01
    """Odds that a command to Redis gets no answer."""
    store: StoreFaults = USUAL_ODDS
    spell: StoreFaults = ODDS_IN_SPELLS
    skew_ms: float = 800.0
    wrong_clocks: float = 0.15
    """Share of the environments whose writer's clock is wrong by minutes; messages get their times by another one."""
    closes_per_second: float = 3.0
    """Closes that are tried, of random keys."""

    def with_odds(self, **odds: float) -> FaultPlan:
        """Build the plan with other odds, at all times and during bad spells."""
        return replace(self, store=replace(self.store, **odds), spell=replace(self.spell, **odds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One scenario. Times are seconds of the run; the heat begins at `onset` and ends with the workload."""

    name: str
    flows: tuple[Flow, ...] = ()
    """What clients write."""
    seconds: float
    onset: float
    hot_conversation: str = HOT
    drain_seconds: float = 6.0
    """How long clients may go on after the workload's end."""
    heat_end: float = float("inf")
    """When the heat ends, if not with the workload."""
    table: Partitions | None
    """None: it takes as much as anybody asks for."""
    other_wcu: float = 0.0
    """Write load of other keys, evenly spread over the table, which is not simulated request by request."""
    base_reads_per_second: float = 0.0
    """Eventually consistent reads of 4 KiB of the hot conversation's base key, from 3 s before the onset on. Only
    their units are simulated, one by one: they are as small as a look-up of a route, so neither is favored."""
    writers: FunctionConfig = field(default_factory=lambda: FunctionConfig(warm=100))
    reading: FunctionConfig = field(default_factory=lambda: FunctionConfig(warm=50))
    clients: Clients = field(default_factory=Clients)
    readers: Readers = field(default_factory=Readers)
    changes: Changes = field(default_factory=Changes)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the product by name, where they are not its defaults: each function takes those that it has."""
    period_seconds: float = 60.0
    """How often the consumer is started; at first, it runs already."""
    jitter_seconds: float = 59.0
    """How late it is started, at most."""
    faults: FaultPlan | None = None
    emptied_at: float | None = None
    """When all of Redis is emptied."""
    is_judged: bool = True
    """Whether a history is kept and judged, with reads of everything at the end."""

    def __post_init__(self) -> None:
        known = {name for function in FUNCTIONS for name in MessageSettings.declared(function)}
        if unknown := sorted(self.settings.keys() - known):
            raise ValueError(f"scenario {self.name}: no function has a setting {', '.join(unknown)}")

    @property
    def heat_ends(self) -> float:
        """When the heat ends."""
        return min(self.heat_end, self.seconds)

    def named_for(self, seed: int) -> Scenario:
        """Give conversations their names in a seed's run."""
        flows = tuple(
            replace(flow, conversation_id=name_for(flow.conversation_id, seed))
            if isinstance(flow, ConversationFlow)
            else flow
            for flow in self.flows
        )
        return replace(self, flows=flows, hot_conversation=name_for(self.hot_conversation, seed))

    def settings_of(self, function: str, **more: Any) -> MessageSettings:
        """Build the settings of one of the product's functions."""
        given = MessageSettings.select(function, {"table_name": TABLE_NAME, **self.settings})
        return MessageSettings.defaults(function, **given, **more)

    @property
    def rooms(self) -> list[str]:
        """The conversations that it has by name, and not by popularity."""
        return [flow.conversation_id for flow in self.flows if isinstance(flow, ConversationFlow)]


SCALE = 0.02
"""Under faults, limits and thresholds are a fiftieth of DynamoDB's: so heat takes few writes, and seeds are cheap."""
SMALL_SHARDS = {**scale_thresholds(SCALE), "max_shard_count": 12}
SHORT_LEASES = {"lease_seconds": 2.0}
SHORT_TIMES = CloseTimes(lease_ms=2_000, margin_ms=1_000, pause_ms=0)
"""Under faults, for all who write and close."""


FAULTY = Scenario(
    name="faulty",
    seconds=24.0,
    onset=4.0,
    drain_seconds=14.0,
    table=Partitions(count=24, write_limit_wcu=1000.0 * SCALE, read_limit_rcu=1500.0),
    writers=FunctionConfig(concurrency=60, warm=12, death=0.004),
    reading=FunctionConfig(concurrency=60, warm=8, death=0.004),
    clients=Clients(attempts=5, retry_after_seconds=0.5, timeout_seconds=3.0, minting_share=0.8, skew_ms=300.0),
    settings={**SMALL_SHARDS, **SHORT_LEASES},
    period_seconds=7.0,
    jitter_seconds=6.5,
    faults=FaultPlan(),
)
"""All faults; limits and thresholds are a fiftieth of DynamoDB's."""
