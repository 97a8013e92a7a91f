"""One run of `ShardedTable` with everything failing: environments that create, change, delete and read; and raises.

The library is the product's own, over boto3's client: routes, caches, journal, registry, choices, merge. Each
environment is a process that may die, with a cache of its own, so that writers are as stale as they come. A raiser
adds generations as consumer and operators do, journal first, and dies in between now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import boto3
from boto3.dynamodb.conditions import Attr, Key
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws

from hotpartition.core.backoff import Clock
from hotpartition.core.keys import KeyForm
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.engine.raising import Raiser
from hotpartition.errors import InvalidRequestError, RetryLaterError
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSink
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.building import Ends
from hotpartition.runtime.settings import AdaptiveSettings
from hotpartition.table import ShardedTable, at_random, by_attribute, by_sort_key
from hotpartition.table.adaptive import REPORTS_PAUSE_SECONDS, AdaptiveRoutes, TableJournal
from hotpartition.table.hashing import Hashing
from hotpartition.table.routes import LoggedTelemetry
from hotpartition.table.schema import Schema
from tools.simulation.engine import Engine, Process, SimulatedExecutor
from tools.simulation.faults import FaultDriver
from tools.simulation.redis_model import RedisServer, SimulatedConnection
from tools.simulation.scenarios import FAULTS, FaultPlan
from tools.simulation.table_history import Attempt, Breach, ItemHistory, Read, Seen, TableHistory, check_table
from tools.simulation.table_network import Network
from tools.simulation.wiring import EPOCH_MS

TABLE_NAME = "readings"
COLLECTIONS = ("hot|1", "cold")
ENVIRONMENTS = 4
SECONDS = 14.0
DRAIN_SECONDS = 8.0
WAIT_SECONDS = 0.12
"""Mean time between two calls of one environment."""
REDIS_TIMEOUT_MS = 30
COOLDOWN_MS = 500
AUDIT_SECONDS = 60.0
EXPECTED_CODES = frozenset(
    {
        "ConditionalCheckFailedException",
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "TransactionCanceledException",
    }
)
"""What the faults are answered with; any other error is a bug."""
RAISES_PER_SECOND = 0.35
RAISER_SECONDS = 0.3
COLD_START_SECONDS = 0.5
MOST_SHARDS = 16
THREADS = 8

_HASHINGS: tuple[Callable[[Random], Hashing], ...] = (
    lambda _: by_sort_key(),
    lambda _: by_attribute("owner"),
    lambda random: at_random(lambda: f"{random.getrandbits(64):016x}"),
)
_KEYS = [{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")]


class SimulatedTable(ShardedTable):
    """A `ShardedTable` whose threads are tasks of one process of the engine."""

    simulated: Executor

    def _open_executor(self, threads: int) -> Executor:
        """Run the queries of a page at the same time, on the virtual clock."""
        del threads
        return self.simulated


@dataclass(frozen=True, slots=True)
class TableParts:
    """The classes that a run is built from; a test breaks the library on purpose by replacing one."""

    table: type[SimulatedTable] = SimulatedTable
    routes: type[AdaptiveRoutes] = AdaptiveRoutes


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
    sharded_items: int
    faults: tuple[tuple[str, int], ...]
    breaches: tuple[Breach, ...]


class Aws(NamedTuple):
    """boto3 on moto: the resource of the library, the raiser's client, and one that nothing is between."""

    resource: Any
    raiser: Any
    raw: Any


@contextmanager
def open_aws() -> Iterator[Aws]:
    """Start moto, and stop it afterwards."""
    options: dict[str, Any] = {
        "region_name": "eu-central-1",
        "aws_access_key_id": "simulated",
        "aws_secret_access_key": "simulated",
        "config": Config(retries={"total_max_attempts": 1}),
    }
    with mock_aws():
        raiser, raw = (boto3.client("dynamodb", **options) for _ in range(2))
        yield Aws(boto3.resource("dynamodb", **options), raiser, raw)


def run_table(aws: Aws, seed: int, parts: TableParts | None = None, *, seconds: float = SECONDS) -> TableRun:
    """Run one seed, which decides everything that is left to chance."""
    run = _Run(seed, parts or TableParts(), aws, seconds)
    try:
        return run.result()
    finally:
        run.network.close()
        run.engine.close()
        for name in aws.raw.list_tables()["TableNames"]:
            aws.raw.delete_table(TableName=name)


class _Fleet:
    """The processes that may be killed, each with what starts another: `Function` as `FaultDriver` knows it."""

    def __init__(self, engine: Engine, random: Random) -> None:
        self.processes: dict[Process, Callable[[], None]] = {}
        self._engine = engine
        self._random = random

    def kill_one(self) -> bool:
        """Kill one at random."""
        if not self.processes:
            return False
        self.kill(self._random.choice(list(self.processes)))
        return True

    def kill(self, process: Process) -> None:
        """Kill one between two of its steps; another is there soon."""
        start_another = self.processes.pop(process, None)
        if start_another is not None:
            self._engine.after(0.0, lambda: self._engine.kill(process))
            self._engine.after(COLD_START_SECONDS, start_another)


@dataclass(slots=True)
class _Register:
    """A register and its one writer's next number."""

    collection: str
    sort_key: str
    owner: str
    number: int = 0


@dataclass(slots=True)
class _Environment:
    """One environment's own things, which survive its death: what its client knows."""

    index: int
    random: Random
    registers: list[_Register] = field(default_factory=list)
    made: int = 0


class _Run:
    """The parts of one run, put together."""

    def __init__(self, seed: int, parts: TableParts, aws: Aws, seconds: float) -> None:
        self.seed, self.parts, self.seconds = seed, parts, seconds
        self.engine = Engine()
        self.random = Random(f"{seed}/table")
        self.history = TableHistory()
        self.operations = self.raises = 0
        self.is_over = False
        self.raw = aws.raw
        self.place = self._create_tables(aws.raw)
        self.table = aws.resource.Table(TABLE_NAME)
        self.hashing = _HASHINGS[seed % len(_HASHINGS)](Random(f"{seed}/hashed"))
        self.network = Network(self.engine, aws.raw, journal_table=self.place.table_name, seed=str(seed))
        self.redis = RedisServer(
            self.engine, epoch_ms=EPOCH_MS, nodes=3, random=Random(f"{seed}/redis"), on_report=lambda: None
        )
        plan = FAULTS.faults or FaultPlan()
        self.environments = _Fleet(self.engine, Random(f"{seed}/kills"))
        self.raisers = _Fleet(self.engine, Random(f"{seed}/raiser kills"))
        fleet: Any = self.environments
        raisers: Any = self.raisers
        network: Any = self.network
        self.driver = FaultDriver(
            plan,
            self.engine,
            store=network,
            redis=self.redis,
            functions=(fleet,),
            consumers=lambda: raisers,
            random=Random(f"{seed}/faults"),
        )
        self.network.watch(self.table.meta.client)
        self.network.watch(aws.raiser, lambda: next(reversed(self.raisers.processes), None))
        self._raiser_client = aws.raiser
        self._to_raise: list[str] = []
        self.network.after_late = lambda place: self._to_raise.append(KeyForm().parse(place)[0])
        self._registers: set[tuple[str, str]] = set()

    def _create_tables(self, raw: Any) -> JournalPlace:
        raw.create_table(
            TableName=TABLE_NAME,
            AttributeDefinitions=_KEYS,
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
            BillingMode="PAY_PER_REQUEST",
        )
        if self.seed % 2:
            return JournalPlace(TABLE_NAME, "PK", "SK", "~route")
        raw.create_table(
            TableName="routes",
            AttributeDefinitions=[{"AttributeName": "collection", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "collection", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        return JournalPlace("routes", "collection", sort_key="")

    def result(self) -> TableRun:
        """Let it happen, read everything once more, and judge."""
        engine = self.engine
        self.driver.start()
        for index in range(ENVIRONMENTS):
            environment = _Environment(index, Random(f"{self.seed}/client {index}"))
            self._start_environment(environment)
        self._start_raiser()
        engine.at(self.seconds, self.driver.stop)
        engine.run_until(self.seconds + 1.0)
        self.is_over = True
        engine.run_until(self.seconds + DRAIN_SECONDS)
        self._audit()
        items = [item for item in self._stored() if "#_" in item["PK"]["S"]]
        struck = {**self.network.struck, **self.driver.struck}
        return TableRun(
            seed=self.seed,
            operations=self.operations,
            requests=self.network.requests,
            created=self.history.count("creations"),
            changed=self.history.count("changes"),
            deleted=self.history.count("deletions"),
            reads=len(self.history.reads),
            raises=self.raises,
            sharded_items=len(items),
            faults=tuple(sorted(struck.items())),
            breaches=check_table(self.history),
        )

    def _stored(self) -> list[Mapping[str, Any]]:
        items: list[Mapping[str, Any]] = self.raw.scan(TableName=TABLE_NAME)["Items"]
        return items

    def _audit(self) -> None:
        """Read all there is, by an environment that has just been born; as a whole and one by one."""
        process = Process()
        table = self._open(process, "audit")
        is_read = [False]

        def read() -> None:
            for collection in COLLECTIONS:
                for newest_first in (False, True):
                    self._read_collection(table, collection, is_strong=True, newest_first=newest_first, limit=None)
                for sort_key in sorted(self.history.items.get(collection, {})):
                    self._read_one(table, collection, sort_key)
            is_read[0] = True

        self.engine.spawn(read, process)
        self.engine.run_until(self.engine.now + AUDIT_SECONDS)
        if not is_read[0]:
            raise RuntimeError("the last reads did not end")

    # Environments.

    def _start_environment(self, environment: _Environment) -> None:
        process = Process()
        self.environments.processes[process] = lambda: self._start_environment(environment)
        name = f"environment {environment.index}.{len(self.environments.processes)}.{self.engine.now}"

        def work() -> None:
            table = self._open(process, name)
            while not self.is_over:
                self.engine.sleep(environment.random.expovariate(1 / WAIT_SECONDS))
                if not self.is_over:
                    self._act(environment, table)

        self.engine.spawn(work, process)

    def _open(self, process: Process, name: str) -> SimulatedTable:
        random = Random(f"{self.seed}/{name}")
        clock = Clock(now_ms=self._now_ms, sleep=self.engine.sleep, random=random.random)
        run = self

        class Routes:
            """What `ShardedTable` takes as its shards."""

            def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> AdaptiveRoutes:
                return run._build_routes(process, name, table, schema, clock, budget_ms)

        shards: Any = Routes()
        opened = self.parts.table(
            self.table,
            shards=shards,
            hashed=self.hashing,
            position=_position if self.seed % 4 < 2 else None,
            clock=clock,
            budget_ms=600.0,
        )
        opened.simulated = SimulatedExecutor(self.engine, process, THREADS)
        return opened

    def _build_routes(
        self, process: Process, name: str, table: Any, schema: Schema, clock: Clock, budget_ms: float
    ) -> AdaptiveRoutes:
        connection = SimulatedConnection(self.redis, timeout_ms=REDIS_TIMEOUT_MS, cooldown_ms=COOLDOWN_MS)
        background = BackgroundThread(executor=SimulatedExecutor(self.engine, process, 1))
        registry = RedisRegistry(connection, TABLE_NAME)
        reports = RedisReportSink(
            connection,
            TABLE_NAME,
            partitions=1,
            background=BackgroundThread(executor=SimulatedExecutor(self.engine, process, 1)),
            now_ms=self._now_ms,
            pause=lambda: clock.sleep(REPORTS_PAUSE_SECONDS),
        )
        ends = Ends(
            registry=registry,
            repairs=registry,
            reports=reports,
            background=background,
            telemetry=LoggedTelemetry(),
            clock=clock,
            timer=lambda: self.engine.now,
            environment_id=name,
        )
        return self.parts.routes(
            ends,
            AdaptiveSettings.defaults(route_cache_seconds=1.0),
            journal=TableJournal(Boto3Call(table.meta.client), self.place),
            place=self.place,
            schema=schema,
            choices=3,
            budget_ms=budget_ms,
        )

    def _now_ms(self) -> int:
        return EPOCH_MS + int(self.engine.now * 1000)

    # What clients do.

    def _act(self, environment: _Environment, table: SimulatedTable) -> None:
        random = environment.random
        kind = random.random()
        if kind < 0.22:
            self._create(environment, table)
        elif kind < 0.27:
            self._create_many(environment, table)
        elif kind < 0.5:
            self._change(environment, table)
        elif kind < 0.6:
            self._overwrite(environment, table)
        elif kind < 0.67:
            self._delete(environment, table)
        elif kind < 0.8:
            collection = self._collection(random)
            known = sorted(self.history.items.get(collection, {}))
            if known:
                self._attempt(lambda: self._read_one(table, collection, random.choice(known)))
        else:
            limit = random.choice((None, 3, 7))
            is_strong, newest_first = random.random() < 0.8, random.random() < 0.5
            collection = self._collection(random)
            self._attempt(
                lambda: self._read_collection(
                    table, collection, is_strong=is_strong, newest_first=newest_first, limit=limit
                )
            )

    def _attempt(self, call: Callable[[], object], attempt: Attempt | None = None) -> Exception | None:
        """Make a call; note when it was acknowledged, or return why it was not. What no fault explains is raised."""
        self.operations += 1
        try:
            call()
        except ClientError as error:
            if error.response["Error"]["Code"] not in EXPECTED_CODES:
                raise
            return error
        except (ReadTimeoutError, RetryLaterError, InvalidRequestError) as error:
            return error
        if attempt is not None:
            attempt.acknowledged_at = self.engine.now
        return None

    def _collection(self, random: Random) -> str:
        return COLLECTIONS[random.random() < 0.3]

    def _new_item(self, environment: _Environment) -> dict[str, Any]:
        random = environment.random
        environment.made += 1
        moment = self._now_ms() - random.randrange(3_000)
        sort_key = f"{moment:015}-{environment.index}-{environment.made}"
        collection = self._collection(random)
        return {"PK": collection, "SK": sort_key, "owner": f"o{random.randrange(3)}", "log": []}

    def _create(self, environment: _Environment, table: SimulatedTable) -> None:
        """Create an item, again and again while nobody knows whether it is there."""
        item = self._new_item(environment)
        if environment.random.random() < 0.25:
            environment.registers.append(_Register(item["PK"], item["SK"], item["owner"]))
            self._registers.add((item["PK"], item["SK"]))
            item |= {"number": 0}
        history = self.history.item(item["PK"], item["SK"])
        for number in range(3):
            attempt = Attempt(self.engine.now)
            history.creations.append(attempt)
            if self._attempt(lambda: table.put_item(Item=item), attempt) is None:
                if number and "number" not in item:
                    # An earlier attempt may still be on its way: what is changed now must outlive it.
                    self._append(environment, table, item["PK"], item["SK"])
                return
            self.engine.sleep(0.1 + environment.random.random())

    def _create_many(self, environment: _Environment, table: SimulatedTable) -> None:
        items = [self._new_item(environment) for _ in range(1 + environment.random.randrange(6))]
        attempts = [Attempt(self.engine.now) for _ in items]
        for item, attempt in zip(items, attempts, strict=True):
            self.history.item(item["PK"], item["SK"]).creations.append(attempt)

        def write() -> None:
            with table.batch_writer() as batch:
                for item in items:
                    batch.put_item(Item=item)

        if self._attempt(write) is None:
            for attempt in attempts:
                attempt.acknowledged_at = self.engine.now

    def _known(self, random: Random, wanted: Callable[[ItemHistory], bool]) -> tuple[str, str] | None:
        collection = self._collection(random)
        items = sorted(self.history.items.get(collection, {}).items())
        known = [key for key, item in items if wanted(item) and (collection, key) not in self._registers]
        return (collection, random.choice(known)) if known else None

    def _change(self, environment: _Environment, table: SimulatedTable) -> None:
        """Append a token to an item that was created, on condition that it is there; nobody repeats it."""
        now = self.engine.now
        found = self._known(environment.random, lambda item: item.created_at < now and item.deleted_at > now)
        if found is not None:
            self._append(environment, table, *found)

    def _append(self, environment: _Environment, table: SimulatedTable, collection: str, sort_key: str) -> None:
        now = self.engine.now
        history = self.history.item(collection, sort_key)
        token = f"t{environment.index}.{self.operations}"
        attempt = history.changes[token] = Attempt(now)
        error = self._attempt(
            lambda: table.update_item(
                Key={"PK": collection, "SK": sort_key},
                UpdateExpression="SET #log = list_append(#log, :token)",
                ConditionExpression=Attr("SK").exists(),
                ExpressionAttributeNames={"#log": "log"},
                ExpressionAttributeValues={":token": [token]},
            ),
            attempt,
        )
        if _is_absence(error):
            del history.changes[token]
            self.history.refusals.append((collection, sort_key, now, self.engine.now))

    def _overwrite(self, environment: _Environment, table: SimulatedTable) -> None:
        """Overwrite a register of one's own with the next number."""
        if not environment.registers:
            return
        register = environment.random.choice(environment.registers)
        history = self.history.item(register.collection, register.sort_key)
        if history.created_at > self.engine.now:
            return
        register.number += 1
        attempt = history.changes[str(register.number)] = Attempt(self.engine.now)
        key = {"PK": register.collection, "SK": register.sort_key}
        item: dict[str, Any] = {**key, "owner": register.owner, "number": register.number, "log": []}
        self._attempt(lambda: table.put_item(Item=item), attempt)

    def _delete(self, environment: _Environment, table: SimulatedTable) -> None:
        """Delete an item, again and again until it is known to be gone."""
        random, now = environment.random, self.engine.now
        found = self._known(random, lambda item: item.created_at < now - 3.0 and item.deleted_at > now)
        if found is None:
            return
        history = self.history.item(*found)
        for _ in range(3):
            attempt = Attempt(self.engine.now)
            history.deletions.append(attempt)
            if (
                self._attempt(lambda: table.delete_item(Key=dict(zip(("PK", "SK"), found, strict=True))), attempt)
                is None
            ):
                return
            self.engine.sleep(0.1 + random.random())

    # What they read.

    def _read_collection(
        self, table: SimulatedTable, collection: str, *, is_strong: bool, newest_first: bool, limit: int | None
    ) -> None:
        began_at = self.engine.now
        request: dict[str, Any] = {
            "KeyConditionExpression": Key("PK").eq(collection),
            "ConsistentRead": is_strong,
            "ScanIndexForward": not newest_first,
        }
        if limit is not None:
            request["Limit"] = limit
        items = tuple(_seen(item) for page in table.query_pages(**request) for item in page["Items"])
        self.history.reads.append(
            Read(collection, began_at, self.engine.now, items, is_strong, newest_first=newest_first)
        )

    def _read_one(self, table: SimulatedTable, collection: str, sort_key: str) -> None:
        began_at = self.engine.now
        found: Any = table.get_item(Key={"PK": collection, "SK": sort_key}, ConsistentRead=True).get("Item")
        items = (_seen(found),) if found else ()
        self.history.reads.append(Read(collection, began_at, self.engine.now, items, is_strong=True, only=sort_key))

    # Raises.

    def _start_raiser(self) -> None:
        process = Process()
        self.raisers.processes[process] = self._start_raiser
        random = Random(f"{self.seed}/raiser {self.engine.now}")
        client = self._raiser_client
        clock = Clock(now_ms=self._now_ms, sleep=self.engine.sleep, random=random.random)
        connection = SimulatedConnection(
            self.redis, timeout_ms=REDIS_TIMEOUT_MS, cooldown_ms=COOLDOWN_MS, owner=process
        )
        raiser = Raiser(
            journal=DynamoDBJournal(ThreadedCalls(Boto3Call(client)), self.place),
            registry=RedisRegistry(connection, TABLE_NAME),
            telemetry=LoggedTelemetry(),
            clock=clock,
        )

        def work() -> None:
            while not self.is_over:
                self.engine.sleep(RAISER_SECONDS)
                # At the worst moment: the repetition of a creation that is still to come goes to another place.
                if not self._to_raise and random.random() > RAISES_PER_SECOND * RAISER_SECONDS:
                    continue
                collection = self._to_raise.pop() if self._to_raise else self._collection(random)
                since = self._now_ms() - random.randrange(6_000) if self.seed % 4 < 2 else 0
                generation = Generation(since_ms=since, shard_count=random.randint(1, MOST_SHARDS))
                try:
                    raiser.raise_route(collection, (generation,), cause=Cause("simulated"))
                except RetryLaterError:
                    continue
                self.raises += 1

        self.engine.spawn(work, process)


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
        return Seen(item["SK"], tuple(str(number) for number in range(1, int(item["number"]) + 1)))
    return Seen(item["SK"], tuple(item["log"]))
