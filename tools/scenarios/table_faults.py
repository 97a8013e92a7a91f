"""Items of a `ShardedTable` while everything fails: nothing is lost, doubled or undone. `make simulate-table-faults`.

An operation is one call of the library.

The library is the product's own, over boto3's client: routes, caches, journal, registry, choices, merge. What the
client would send is taken from it before it leaves, and happens at one instant of the virtual clock.

Each environment is a process that may die, with a cache of its own, so that writers are as stale as they come.
Something raises as consumer and operators do, journal first, and dies in between now and then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from random import Random
from typing import Any

import boto3
from boto3.dynamodb.conditions import Attr, Key
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from hotpartition.core.errors import InvalidRequestError, RetryLaterError
from hotpartition.core.keys import KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.runtime.build import Parts as EngineParts
from hotpartition.runtime.connect import open_in_band
from hotpartition.runtime.settings import Settings
from hotpartition.table import at_random, by_attribute, by_sort_key, fixed
from hotpartition.table.routes import Shards, open_calls
from hotpartition.table.sharding import Hashing
from tools.figures import at_least, at_most
from tools.history import FAULTS, Finding, Seen
from tools.scenarios.seeds import Part, Study, Verdict, add_up, total
from tools.world.clock import Engine, Process, SimulatedExecutor
from tools.world.faults import FaultDriver
from tools.world.functions import Function, FunctionConfig, NoResponseError, TooManyRequestsError
from tools.world.network import LONGEST_LATENESS_SECONDS, Observer
from tools.world.operators import ClosesByHand, Folds, RaisesByHand
from tools.world.product import (
    SensitiveCounting,
    SharedTelemetry,
    SimulatedShards,
    SimulatedTable,
    World,
    build_ends,
)
from tools.world.record import Offer, Record
from tools.world.scenario import ALL_FAULTS, SHORT_LEASES, SHORT_TIMES, FaultPlan, faulty
from tools.world.workload import Workload

TABLE_NAME = "readings"
SEEDS = 300
LEAST_CLOSES, LEAST_VOID = 500, 100
"""Of all seeds."""
COLLECTIONS = ("hot|1", "cold")
CLIENTS = 6
ENVIRONMENTS = FunctionConfig(concurrency=8, warm=CLIENTS, death=0.004)
SECONDS = 14.0
DRAIN_SECONDS = 8.0
WAIT_SECONDS = 0.12
"""Mean time between two calls of one client."""
AUDIT_SECONDS = 60.0
EXPECTED_CODES = frozenset(
    {
        "ConditionalCheckFailedException",
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "TransactionCanceledException",
        "TransactionConflictException",
    }
)
"""What the faults are answered with; any other error is a bug."""
RAISES_PER_SECOND = 0.8
MOST_SHARDS = 16
THREADS = 8
LATE_SHARE = 0.1
"""Of creations: they happen some time after their client gave up."""
HOT_SHARE, HOT_SHARE_IN_SPELLS = 0.08, 0.32
LOAD_LOST_SHARE = 0.05
HOT_AT_ONCE = {"hot_at_once_wcu": 1.0, "target_shard_wcu": 0.5, "max_shard_count": 12}
IN_BAND_PARTS = EngineParts(counting=SensitiveCounting)
PATIENCE_SECONDS = 29.0
"""How long a client waits: longer than any call takes, so that a call without a response was one of a dead process."""
CALM_SECONDS = 0.5
"""How long a client waits after its environment died: by then, what had been sent has happened."""


@cache
def _resource() -> Any:
    """Make a boto3 resource once a process: that takes as long as a seed."""
    config = Config(retries={"total_max_attempts": 1})
    session = boto3.Session("simulated", "simulated", region_name="eu-central-1")
    return session.resource("dynamodb", config=config)


_HASHINGS: tuple[Callable[[Random], Hashing], ...] = (
    lambda _: by_sort_key(),
    lambda _: by_attribute("owner"),
    lambda random: at_random(lambda: f"{random.getrandbits(64):016x}"),
)


@dataclass(frozen=True, slots=True)
class TableParts:
    """The classes that a run is built from; a test breaks the library on purpose by replacing one."""

    table: type[SimulatedTable] = SimulatedTable
    routes: type[RegistryRoutes] = RegistryRoutes
    is_in_band: bool = False
    """Whether environments find what is hot themselves, beside what is raised by hand."""
    folds: bool = False
    """Whether shards are fixed, and left half-way: items are moved to the base key then, while work goes on."""


@dataclass(frozen=True, slots=True)
class TableRun:
    """What one seed did, and what was wrong with it."""

    seed: int
    operations: int
    requests: int
    created: int
    changed: int
    deleted: int
    reads: int
    raises: int
    confirmed_closes: int
    void_announcements: int
    sharded_items: int
    moved: int
    """Items that were moved to the base key."""
    folds_killed: int
    """Processes that died while they moved items."""
    faults: tuple[tuple[str, int], ...]
    breaches: tuple[Finding, ...]


def run_table(
    seed: int, parts: TableParts | None = None, *, seconds: float = SECONDS, plan: FaultPlan | None = None
) -> TableRun:
    """Run one seed, which decides everything that is left to chance."""
    run = _Run(seed, parts or TableParts(), seconds, plan or build_fault_plan())
    unwatch = run.world.store.watch(run.table.meta.client, "table")
    try:
        with closing(run.engine):
            return run.result()
    finally:
        unwatch()


@dataclass(slots=True)
class _Register:
    """A register and its one writer's next number."""

    collection: str
    sort_key: str
    owner: str
    number: int = 0


@dataclass(slots=True)
class _Client:
    """What one client knows."""

    index: int
    random: Random
    registers: list[_Register] = field(default_factory=list)
    made: int = 0


class _LateObserver(Observer):
    """Has a key raised at the worst moment: the repetition of a creation that is still to come goes elsewhere."""

    def __init__(self) -> None:
        self.urgent: list[str] = []

    def put_off(self, partition_key: str) -> None:
        """Implement `Observer.put_off`."""
        self.urgent.append(KeyForm().parse(partition_key)[0])


class _Run:
    """The parts of one run, put together."""

    def __init__(self, seed: int, parts: TableParts, seconds: float, plan: FaultPlan) -> None:
        self.seed, self.parts, self.seconds = seed, parts, seconds
        engine = self.engine = Engine()
        self.record = Record()
        self.operations = 0
        self.is_leaving = False
        self.table = _resource().Table(TABLE_NAME)
        self.hashing = _HASHINGS[seed % len(_HASHINGS)](Random(f"{seed}/hashed"))
        observer = _LateObserver()
        world = self.world = World(
            engine, seed, faulty(TABLE_NAME, "", Workload(()), faults=plan, table=None), observer=observer
        )
        self.place = self._create_tables()
        self.function: Function[Callable[[SimulatedTable], Any], Any] = Function(
            engine, ENVIRONMENTS, self._build, world.random("environments")
        )
        collections = world.random("raised")
        self.raises = RaisesByHand(
            world,
            self.place,
            per_second=RAISES_PER_SECOND,
            most_shards=MOST_SHARDS,
            choose=lambda: _choose_collection(collections),
            is_timed=self.has_positions,
            urgent=observer.urgent,
        )
        self.closes = ClosesByHand(world, self.place, per_second=plan.closes_per_second, choose=_choose_collection)
        self.driver = FaultDriver(
            plan,
            world,
            functions=(self.function, self.closes.function),
            consumers=lambda: self.raises.function,
            random=world.random("faults"),
        )
        self._registers: set[tuple[str, str]] = set()
        self.clients = [_Client(index, world.random(f"client {index}")) for index in range(CLIENTS)]
        self.folds = Folds(world, TABLE_NAME, MOST_SHARDS, choose=_choose_collection) if parts.folds else None

    @property
    def has_positions(self) -> bool:
        """Whether the table's sort keys are times to the library."""
        return self.seed % 5 < 4

    def _create_tables(self) -> JournalPlace:
        create = self.world.store.dynamodb.call
        create("CreateTable", _describe(TABLE_NAME, PK="HASH", SK="RANGE"))
        if self.seed % 2:
            return JournalPlace(TABLE_NAME, "PK", "SK", "~route")
        create("CreateTable", _describe("routes", collection="HASH"))
        return JournalPlace("routes", "collection", sort_key="")

    def result(self) -> TableRun:
        """Let it happen, read everything once more, and judge."""
        engine, record = self.engine, self.record
        self.driver.start()
        self._begin()
        if self.folds is not None:
            self._leave_shards(self.seconds / 2)
            self._begin()
            self.folds.start()
        end = engine.now + self.seconds / (1 + self.parts.folds)
        engine.at(end, self.driver.stop)
        engine.run_until(end + 1.0)
        self.world.is_over = True
        engine.run_until(end + DRAIN_SECONDS)
        operations = self.operations
        self._audit()
        return TableRun(
            seed=self.seed,
            operations=operations,
            requests=sum(counts.operations for counts in self.world.store.counts.values()),
            created=sum(len(record.acknowledged_ids(collection)) for collection in COLLECTIONS),
            changed=sum(addition.ended_at is not None for addition in record.additions),
            deleted=len({(d.conversation_id, d.message_id) for d in record.deletions if d.ended_at is not None}),
            reads=len(record.reads),
            raises=self.raises.count + int(self.world.counters[MetricName.RAISES]),
            confirmed_closes=self.closes.confirmed,
            void_announcements=self.closes.void,
            sharded_items=sum("#_" in item["PK"]["S"] for item in self.world.store.dynamodb.tables[TABLE_NAME].items()),
            moved=0 if self.folds is None else self.folds.moved,
            folds_killed=0 if self.folds is None else self.folds.killed,
            faults=self.driver.all_struck(),
            breaches=record.breaches(),
        )

    def _begin(self) -> None:
        """Let clients work, and something raise."""
        self.world.is_over = False
        for client in self.clients:
            self.engine.spawn(lambda client=client: self._work(client))  # type: ignore[misc]
        if self.parts.folds:
            return
        self.raises.start()
        if self.has_positions:
            self.closes.start()

    def _leave_shards(self, after_seconds: float) -> None:
        """Stop all work, and replace all environments by such that write to the base key and read all shards."""
        self.engine.run_until(self.engine.now + after_seconds)
        self.world.is_over = True
        self.engine.run_until(self.engine.now + DRAIN_SECONDS)
        self.is_leaving = True
        self.function = Function(self.engine, ENVIRONMENTS, self._build, self.world.random("later environments"))

    def _audit(self) -> None:
        """Read all there is, by an environment that has just been born; as a whole and one by one."""
        self.function = Function(self.engine, FunctionConfig(warm=1), self._build, self.world.random("audit"))

        def read() -> None:
            for collection in COLLECTIONS:
                for newest_first in (False, True):
                    self._read_collection(collection, is_strong=True, newest_first=newest_first, limit=None)
                for sort_key in sorted(self.record.offers.get(collection, {})):
                    self._read_one(collection, sort_key)

        self.engine.run_to_end(read, AUDIT_SECONDS)

    # Environments.

    def _build(self, process: Process, index: int) -> Callable[[Callable[[SimulatedTable], Any]], Any]:
        """Build one environment: it makes the calls that it is asked for on a table of its own."""
        opened = self.parts.table(
            self.table,
            shards=self._shards(process, index),
            hashed=self.hashing,
            position=_position if self.has_positions else None,
            clock=self.world.clock(self.world.random(f"environment-{index}")),
            budget_ms=600.0,
        )
        opened.simulated = SimulatedExecutor(self.engine, process, THREADS)
        return lambda call: call(opened)

    def _shards(self, process: Process, index: int) -> Shards:
        if self.parts.folds:
            return fixed(0, readable=MOST_SHARDS) if self.is_leaving else fixed(MOST_SHARDS)
        world, calls, random = self.world, open_calls(self.table), self.world.random(f"table-{index}")
        if self.parts.is_in_band:
            settings = Settings.defaults("in_band()", **HOT_AT_ONCE, **SHORT_LEASES)
            ends, parts = open_in_band(calls, self.place, SharedTelemetry(world), world.clock(random)), IN_BAND_PARTS
        else:
            settings = Settings.defaults("adaptive()", route_cache_seconds=1.0, **SHORT_LEASES)
            ends = build_ends(world, process, index, random, repairs=True)
            ends = world.mislead(ends, world.random(f"wrong clock {index}"))
            ends = replace(ends, journal=DynamoDBJournal(calls, self.place))
            parts = EngineParts(routes=self.parts.routes)
        return SimulatedShards(
            ends=ends, settings=settings, place=self.place, closing=self.has_positions, times=SHORT_TIMES, parts=parts
        )

    # What clients do.

    def _work(self, client: _Client) -> None:
        random = client.random
        kinds = (
            self._create,
            self._create_many,
            self._change,
            self._overwrite,
            self._delete,
            self._look_up,
            self._read,
        )
        while not self.world.is_over:
            self.engine.sleep(random.expovariate(1 / WAIT_SECONDS))
            if not self.world.is_over:
                (act,) = random.choices(kinds, (0.22, 0.05, 0.23, 0.1, 0.07, 0.13, 0.2))
                act(client)

    def _ask(self, call: Callable[[SimulatedTable], Any]) -> tuple[Any, Exception | None]:
        """Have a call made; return its response, or why there is none. What no fault explains is raised."""
        self.operations += 1
        try:
            return self.function.invoke(call, timeout_seconds=PATIENCE_SECONDS), None
        except ClientError as error:
            if error.response["Error"]["Code"] not in EXPECTED_CODES:
                raise
            return None, error
        except (NoResponseError, TooManyRequestsError) as error:
            self.engine.sleep(CALM_SECONDS)
            return None, error
        except (ReadTimeoutError, RetryLaterError, InvalidRequestError) as error:
            return None, error

    def _new_item(self, client: _Client) -> dict[str, Any]:
        """Make up an item that is offered from now on."""
        random = client.random
        client.made += 1
        moment = self.engine.now_ms() - random.randrange(3_000)
        collection, sort_key = _choose_collection(random), f"{moment:015}-{client.index}-{client.made}"
        owner = f"o{random.randrange(3)}"
        self.record.note_offer(collection, sort_key, owner, offered_at=self.engine.now)
        return {"PK": collection, "SK": sort_key, "owner": owner, "log": []}

    def _note_created(self, item: Mapping[str, Any]) -> None:
        self.record.note_acknowledged(item["PK"], item["SK"], item["owner"], self.engine.now)

    def _create(self, client: _Client) -> None:
        """Create an item, again and again while nobody knows whether it is there."""
        item = self._new_item(client)
        if client.random.random() < 0.25:
            client.registers.append(_Register(item["PK"], item["SK"], item["owner"]))
            self._registers.add((item["PK"], item["SK"]))
            item |= {"number": 0}
        for number in range(3):
            _, error = self._ask(lambda table: table.put_item(Item=item))
            if error is None:
                self._note_created(item)
                if number and "number" not in item:
                    # An earlier attempt may still be on its way: what is changed now must outlive it.
                    self._append(client, item["PK"], item["SK"])
                return
            self.engine.sleep(0.1 + client.random.random())

    def _create_many(self, client: _Client) -> None:
        items = [self._new_item(client) for _ in range(1 + client.random.randrange(6))]

        def write(table: SimulatedTable) -> None:
            with table.batch_writer() as batch:
                for item in items:
                    batch.put_item(Item=item)

        _, error = self._ask(write)
        if error is None:
            for item in items:
                self._note_created(item)

    def _known(self, random: Random, wanted: Callable[[Offer], bool]) -> tuple[str, str] | None:
        """Choose an item that is there, as far as is known, and no register."""
        collection = _choose_collection(random)
        offers = self.record.offers.get(collection, {}).items()
        known = [key for key, offer in offers if offer.is_there and wanted(offer)]
        known = [key for key in known if (collection, key) not in self._registers]
        return (collection, random.choice(known)) if known else None

    def _change(self, client: _Client) -> None:
        """Append a token to an item that was created, on condition that it is there; nobody repeats it."""
        found = self._known(client.random, lambda _: True)
        if found is not None:
            self._append(client, *found)

    def _append(self, client: _Client, collection: str, sort_key: str) -> None:
        began, token = self.engine.now, f"t{client.index}.{self.operations}"
        addition = self.record.note_addition(collection, sort_key, token, began=began)
        _, error = self._ask(
            lambda table: table.update_item(
                Key={"PK": collection, "SK": sort_key},
                UpdateExpression="SET #log = list_append(#log, :token)",
                ConditionExpression=Attr("SK").exists(),
                ExpressionAttributeNames={"#log": "log"},
                ExpressionAttributeValues={":token": [token]},
            )
        )
        if error is None:
            addition.ended_at = self.engine.now
        elif _is_absence(error):
            self.record.additions.remove(addition)
            self.record.note_lookup(collection, sort_key, (), began, self.engine.now)

    def _overwrite(self, client: _Client) -> None:
        """Overwrite a register of one's own with the next number."""
        if not client.registers:
            return
        register = client.random.choice(client.registers)
        if not self.record.offers[register.collection][register.sort_key].is_there:
            return
        register.number += 1
        key = {"PK": register.collection, "SK": register.sort_key}
        item: dict[str, Any] = {**key, "owner": register.owner, "number": register.number, "log": []}
        addition = self.record.note_addition(
            register.collection, register.sort_key, str(register.number), began=self.engine.now
        )
        _, error = self._ask(lambda table: table.put_item(Item=item))
        if error is None:
            addition.ended_at = self.engine.now

    def _delete(self, client: _Client) -> None:
        """Delete an item, again and again until it is known to be gone."""
        random, now = client.random, self.engine.now
        found = self._known(random, lambda offer: (offer.acknowledged_at or now) < now - LONGEST_LATENESS_SECONDS)
        if found is None:
            return
        for _ in range(3):
            deletion = self.record.note_deletion(*found, began=self.engine.now)
            _, error = self._ask(lambda table: table.delete_item(Key=dict(zip(("PK", "SK"), found, strict=True))))
            if error is None:
                deletion.ended_at = self.engine.now
                return
            self.engine.sleep(0.1 + random.random())

    # What they read.

    def _look_up(self, client: _Client) -> None:
        collection = _choose_collection(client.random)
        known = sorted(self.record.offers.get(collection, {}))
        if known:
            self._read_one(collection, client.random.choice(known))

    def _read(self, client: _Client) -> None:
        random = client.random
        self._read_collection(
            _choose_collection(random),
            is_strong=random.random() < 0.8,
            newest_first=random.random() < 0.5,
            limit=random.choice((None, 3, 7)),
        )

    def _read_collection(self, collection: str, *, is_strong: bool, newest_first: bool, limit: int | None) -> None:
        began = self.engine.now
        request: dict[str, Any] = {
            "KeyConditionExpression": Key("PK").eq(collection),
            "ConsistentRead": is_strong,
            "ScanIndexForward": not newest_first,
        }
        if limit is not None:
            request["Limit"] = limit
        found, error = self._ask(
            lambda table: [_seen(item) for page in table.query_pages(**request) for item in page["Items"]]
        )
        if error is None:
            self.record.note_whole_read(
                collection, found, began, self.engine.now, is_strong=is_strong, newest_first=newest_first
            )

    def _read_one(self, collection: str, sort_key: str) -> None:
        began = self.engine.now
        response, error = self._ask(
            lambda table: table.get_item(Key={"PK": collection, "SK": sort_key}, ConsistentRead=True)
        )
        if error is None:
            found = [_seen(response["Item"])] if "Item" in response else []
            self.record.note_lookup(collection, sort_key, found, began, self.engine.now)


def build_fault_plan(late_share: float = LATE_SHARE, **others: Any) -> FaultPlan:
    """Build the plan of all faults, with late creations and keys that refuse besides; `others` are set as given."""
    return replace(
        ALL_FAULTS,
        **others,
        store=replace(ALL_FAULTS.store, late=late_share, hot_keys=HOT_SHARE, load_lost=LOAD_LOST_SHARE),
        spell=replace(ALL_FAULTS.spell, late=late_share, hot_keys=HOT_SHARE_IN_SPELLS, load_lost=LOAD_LOST_SHARE),
    )


def _describe(name: str, **keys: str) -> dict[str, Any]:
    """Describe a table as `CreateTable` does; `keys`: the kind of each."""
    return {
        "TableName": name,
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for key in keys],
        "KeySchema": [{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
    }


def _choose_collection(random: Random) -> str:
    return COLLECTIONS[random.random() < 0.3]


def _is_absence(error: Exception | None) -> bool:
    """Say whether a change found no item: refused by its condition, or because nothing tells where a new one goes."""
    if isinstance(error, ClientError):
        return error.response["Error"]["Code"] == "ConditionalCheckFailedException"
    return isinstance(error, InvalidRequestError)


def _position(sort_key: Any) -> int | None:
    """Tell the time in a sort key; of a bound that is none, nothing."""
    text = str(sort_key)[:15]
    return int(text) if text.isdecimal() else None


def _seen(item: Mapping[str, Any]) -> Seen:
    if "number" in item:
        return Seen(item["SK"], item["owner"], tuple(str(number) for number in range(1, int(item["number"]) + 1)))
    return Seen(item["SK"], item["owner"], tuple(item["log"]))


def run(seed: int, *, is_in_band: bool = False, folds: bool = False) -> TableRun:
    """Run one seed of a study."""
    return run_table(seed, TableParts(is_in_band=is_in_band, folds=folds))


def judge(by_part: Mapping[str, list[TableRun]]) -> Verdict:
    """Hold all seeds against the bars, which are for 300 of them."""
    ((name, runs),) = by_part.items()
    share = min(1.0, len(runs) / SEEDS)
    found = Counter(breach.fault for run in runs for breach in run.breaches)
    summed = ("operations", "requests", "created", "changed", "deleted", "reads", "raises", "confirmed_closes")
    figures = {each: total(runs, each) for each in (*summed, "void_announcements", "moved", "folds_killed")}
    if name == FOLD.name:
        more = [
            at_least("items moved", figures["moved"], 5 * len(runs), "items"),
            at_least("folds that were killed", figures["folds_killed"], len(runs) // 2, "processes"),
        ]
    else:
        more = [
            at_least("confirmed closes", figures["confirmed_closes"], int(LEAST_CLOSES * share), "closes"),
            at_least("announcements that stay void", figures["void_announcements"], int(LEAST_VOID * share), ""),
        ]
    return Verdict(
        fields={**figures, "breaches": dict(found), "faults": add_up(runs, "faults")},
        lines=[", ".join(f"{name} {figure:,}" for name, figure in figures.items())],
        bars=[*(at_most(f"items {fault}", found[fault], 0, "items") for fault in FAULTS), *more],
        failing=[run.seed for run in runs if run.breaches],
    )


_ABOUT = "Items of a ShardedTable while everything fails: nothing lost, doubled or undone."
STUDY = Study("table-faults", _ABOUT, [Part("table-faults", run, SEEDS)], judge)
IN_BAND = Study(
    "table-faults-in-band",
    f"{_ABOUT} Environments find hot keys.",
    [Part("table-faults-in-band", partial(run, is_in_band=True), SEEDS)],
    judge,
)
FOLD = Study(
    "table-faults-fold",
    f"{_ABOUT} Items are moved to the base key.",
    [Part("table-faults-fold", partial(run, folds=True), SEEDS)],
    judge,
)
