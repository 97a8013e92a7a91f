"""Items of a `ShardedTable` while everything fails: nothing is lost, doubled or undone. `make simulate-table-faults`.

An operation is one call of the library.

The library is the product's own, over boto3's client: routes, caches, journal, registry, choices, merge. What the
client would send is taken from it before it leaves, and happens at one instant of the virtual clock.

Each environment is a process that may die, with a cache of its own, so that writers are as stale as they come.
Something raises as consumer and operators do, journal first, and dies in between now and then.

Clients create, change, overwrite, delete and read items, and repeat what was refused. A change appends a token to an
item's log. An item of its own for each client is overwritten with the next number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial
from math import inf
from random import Random
from typing import Any

import boto3
from boto3.dynamodb.conditions import Attr, Key
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError

from hotpartition.control.folding import FoldForm
from hotpartition.core.errors import InvalidRequestError, RetryLaterError
from hotpartition.core.keys import KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.build import Parts as EngineParts
from hotpartition.runtime.connect import open_in_band
from hotpartition.runtime.settings import Settings
from hotpartition.table import at_random, by_attribute, by_sort_key, fixed
from hotpartition.table.routes import Shards, open_calls
from hotpartition.table.schema import CHANGES, NOTED, SHARDS
from hotpartition.table.sharding import Hashing
from tools.figures import Outcome, at_least
from tools.history import Offered, Seen, find_breaches
from tools.scenarios.seeds import Part, Study, Verdict, add_up, breach_bars, close_bars
from tools.world.clock import Process, SimulatedExecutor
from tools.world.dynamodb import define_table
from tools.world.faults import FaultDriver
from tools.world.functions import FunctionConfig, NoResponseError, TooManyRequestsError
from tools.world.network import LONGEST_LATENESS_SECONDS
from tools.world.operators import ClosesByHand, Folds, RaisesByHand
from tools.world.product import (
    TABLE,
    Environment,
    SensitiveCounting,
    SimulatedTable,
    World,
    build_ends,
    shards_on,
)
from tools.world.scenario import FAULTY, SHORT_LEASES, SHORT_TIMES, FaultPlan

TABLE_NAME = "readings"
COLLECTIONS = ("hot|1", "cold")
CLIENTS = 6
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
CALM_SECONDS = 0.5
"""How long a client waits after its environment died: by then, what had been sent has happened."""
SEEDS = 300
ENVIRONMENTS = FunctionConfig(concurrency=8, warm=CLIENTS, death=0.004)
SECONDS = 14.0
DRAIN_SECONDS = 8.0
RAISES_PER_SECOND = 0.8
MOST_SHARDS = 16
THREADS = 8
LATE_SHARE = 0.3
"""Of creations: they happen some time after their client gave up."""
HOT_SHARE, HOT_SHARE_IN_SPELLS = 0.08, 0.32
LOAD_LOST_SHARE = 0.05
HOT_AT_ONCE = {"hot_at_once_wcu": 1.0, "target_shard_wcu": 0.5, "max_shard_count": 12}
FOLD_FORM = FoldForm(TABLE_NAME, "PK", "SK", KeyForm(), CHANGES, NOTED, dropped=(SHARDS,))


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


def run(
    seed: int,
    *,
    seconds: float = SECONDS,
    plan: FaultPlan | None = None,
    is_in_band: bool = False,
    folds: bool = False,
) -> Outcome:
    """Run one seed, which decides everything that is left to chance.

    `is_in_band`: environments find what is hot themselves, beside what is raised by hand. `folds`: shards are fixed,
    and left half-way: items are moved to the base key then, while work goes on.
    """
    parts = EngineParts(counting=SensitiveCounting if is_in_band else None)
    with _Run(seed, plan or build_fault_plan(), parts, folds=folds) as under_way, ExitStack() as watched:
        watched.callback(under_way.store.watch(under_way.table.meta.client, "table"))
        return under_way.outcome(seconds)


class _Run(World):
    """The parts of one run, put together."""

    def __init__(self, seed: int, plan: FaultPlan, parts: EngineParts, *, folds: bool) -> None:
        super().__init__(seed, replace(FAULTY, name=TABLE_NAME, faults=plan, table=None))
        self.parts, self.is_folding, self.is_leaving = parts, folds, False
        self.table = _resource().Table(TABLE_NAME)
        self.hashing = _HASHINGS[seed % len(_HASHINGS)](Random(f"{seed}/hashed"))
        self.place = self._create_tables()
        function = self.function = self.open_function(ENVIRONMENTS, _Run._build, "environments")
        """Of what clients call: another one after a while."""
        self.clients = [_Client(self, index) for index in range(CLIENTS)]
        self.gone: set[tuple[str, str]] = set()
        """Items that are known to be deleted."""
        collections = self.random("raised")
        self.raises = RaisesByHand(
            self,
            place=self.place,
            per_second=RAISES_PER_SECOND,
            most_shards=MOST_SHARDS,
            choose=lambda: choose_collection(collections),
            is_timed=self.has_positions,
            # At the worst moment: the repetition of a creation that is still to come goes elsewhere.
            urgent=self.meter.put_off_keys,
        )
        self.closes = ClosesByHand(self, place=self.place, choose=choose_collection)
        self.watchers = self.raises.function
        self.driver = FaultDriver(self, (function, self.closes.function), self.random("faults"))
        self.folds = Folds(self, form=FOLD_FORM, shard_count=MOST_SHARDS, choose=choose_collection)

    @property
    def has_positions(self) -> bool:
        """Whether the table's sort keys are times to the library."""
        return self.seed % 5 < 4

    def _create_tables(self) -> JournalPlace:
        create = self.store.dynamodb.call
        create("CreateTable", {"TableName": TABLE_NAME, **define_table("PK", "SK")})
        if self.seed % 2:
            return JournalPlace(TABLE_NAME, "PK", "SK", "~route")
        create("CreateTable", {"TableName": "routes", **define_table("collection")})
        return JournalPlace("routes", "collection", sort_key="")

    def outcome(self, seconds: float) -> Outcome:
        """Let it happen, read everything once more, and judge."""
        engine, record = self.engine, self.record
        self.driver.start()
        self._begin()
        if self.is_folding:
            seconds /= 2
            self._leave_shards(seconds)
            self._begin()
            self.folds.start()
        end = engine.now + seconds
        engine.at(end, self.driver.stop)
        engine.run_until(end + 1.0)
        self.is_over = True
        engine.run_until(end + DRAIN_SECONDS)
        operations = self.meter.operations
        # By an environment that has just been born.
        self.function = self.open_function(FunctionConfig(warm=1), _Run._build, "audit")
        engine.run_to_end(self._audit, AUDIT_SECONDS)
        stored = self.store.dynamodb.tables[TABLE_NAME].items()
        offers = [offer for collection in COLLECTIONS for offer in record.offers.get(collection, {}).values()]
        counts = {
            "operations": operations,
            "created": sum(len(record.acknowledged_ids(collection)) for collection in COLLECTIONS),
            "changed": sum(each.ended_at < inf for offer in offers for each in offer.additions.values()),
            "deleted": len(self.gone),
            "reads": len(record.reads),
            "raises": self.raises.count + int(self.meter.counters[MetricName.RAISES]),
            "confirmed_closes": self.closes.confirmed,
            "void_announcements": self.closes.void,
            "sharded_items": sum("#_" in item["PK"]["S"] for item in stored),
            "moved": sum(self.folds.moved.values()),
            "folds_killed": self.folds.function.deaths,
        }
        return Outcome(seed=self.seed, counts=counts, faults=self.driver.all_struck(), breaches=find_breaches(record))

    def _begin(self) -> None:
        """Let clients work, and something raise."""
        self.is_over = False
        for client in self.clients:
            self.engine.spawn(client.work)
        if not self.is_folding:
            self.raises.start()
            if self.has_positions:
                self.closes.start()

    def _audit(self) -> None:
        """Read all there is, as a whole and one by one."""
        reader = self.clients[0]
        for collection in COLLECTIONS:
            for newest_first in (False, True):
                reader.read_collection(collection, is_strong=True, newest_first=newest_first, limit=None)
            for sort_key in sorted(self.record.offers.get(collection, {})):
                reader.read_one(collection, sort_key)

    def known(self, random: Random, wanted: Callable[[Offered], bool] = lambda _: True) -> tuple[str, str] | None:
        """Choose an item that is there, as far as is known, and no register."""
        collection = choose_collection(random)
        others = self.gone.union(*(each.registers for each in self.clients))
        stored = [key for key in self.record.acknowledged_ids(collection) if (collection, key) not in others]
        known = [key for key in stored if wanted(self.record.offers[collection][key])]
        return (collection, random.choice(known)) if known else None

    def _leave_shards(self, after_seconds: float) -> None:
        """Stop all work, and replace all environments by such that write to the base key and read all shards."""
        self.engine.run_until(self.engine.now + after_seconds)
        self.is_over = True
        self.engine.run_until(self.engine.now + DRAIN_SECONDS)
        self.is_leaving = True
        self.function = self.open_function(ENVIRONMENTS, _Run._build, "later environments")

    def _build(self, process: Process, index: int) -> SimulatedTable:
        """Build one environment's table."""
        opened = SimulatedTable(
            self.table,
            shards=self._shards(process, index),
            hashed=self.hashing,
            position=position_of if self.has_positions else None,
            clock=self.clock(self.random(f"environment-{index}")),
            budget_ms=600.0,
        )
        opened.simulated = SimulatedExecutor(self.engine, process, THREADS)
        return opened

    def _shards(self, process: Process, index: int) -> Shards:
        if self.is_folding:
            return fixed(0, readable=MOST_SHARDS) if self.is_leaving else fixed(MOST_SHARDS)
        calls, random = open_calls(self.table), self.random(f"table-{index}")
        if self.parts.counting:
            settings = Settings.defaults("in_band()", **HOT_AT_ONCE, **SHORT_LEASES)
            ends = open_in_band(calls, self.place, self.meter, self.clock(random))
        else:
            settings = Settings.defaults("adaptive()", table_name=TABLE.name, route_cache_seconds=1.0, **SHORT_LEASES)
            place = Environment(self, process, index, random, calls)
            ends = build_ends(place, settings, DynamoDBJournal(calls, self.place))
            ends = self.mislead(ends, self.random(f"wrong clock {index}"))
        return shards_on(
            ends, settings, place=self.place, closing=self.has_positions, times=SHORT_TIMES, parts=self.parts
        )


class _Client:
    """One client."""

    def __init__(self, run: _Run, index: int) -> None:
        self._run, self._index = run, index
        self._engine, self._record = run.engine, run.record
        self._random = run.random(f"client {index}")
        self._made = 0
        self.registers: dict[tuple[str, str], int] = {}
        """Items that it alone overwrites, and their last numbers."""

    def work(self) -> None:
        """Make one call after the other, until the world is over."""
        kinds = self._create, self._create_many, self._change, self._overwrite, self._delete, self._look_up, self._read
        while not self._run.is_over:
            self._engine.sleep(self._random.expovariate(1 / WAIT_SECONDS))
            if not self._run.is_over:
                (act,) = self._random.choices(kinds, (0.22, 0.05, 0.23, 0.1, 0.07, 0.13, 0.2))
                act()

    def _ask(self, call: Callable[[SimulatedTable], Any]) -> tuple[Any, Exception | None]:
        """Have a call made; return its response, or why it has no response. What no fault explains is raised."""
        self._run.meter.operations += 1
        try:
            return self._run.function.invoke(call), None
        except ClientError as error:
            if error.response["Error"]["Code"] not in EXPECTED_CODES:
                raise
            return None, error
        except (NoResponseError, TooManyRequestsError) as error:
            self._engine.sleep(CALM_SECONDS)
            return None, error
        except (ReadTimeoutError, RetryLaterError, InvalidRequestError) as error:
            return None, error

    def _attempts(self) -> Iterator[int]:
        """Count three attempts, with a pause after each but the one that ends it."""
        for number in range(3):
            yield number
            self._engine.sleep(0.1 + self._random.random())

    # What they write.

    def _new_item(self) -> dict[str, Any]:
        """Make up an item that is offered from now on."""
        self._made += 1
        moment = self._engine.now_ms() - self._random.randrange(3_000)
        collection, sort_key = choose_collection(self._random), f"{moment:015}-{self._index}-{self._made}"
        owner = f"o{self._random.randrange(3)}"
        self._record.note_offer(collection, sort_key, owner, offered_at=self._engine.now)
        return {"PK": collection, "SK": sort_key, "owner": owner, "log": []}

    def _note_created(self, item: Mapping[str, Any]) -> None:
        self._record.note_acknowledged(item["PK"], item["SK"], item["owner"], self._engine.now)

    def _create(self) -> None:
        """Create an item, again and again while it is unknown whether it is there."""
        item = self._new_item()
        if self._random.random() < 0.25:
            self.registers[item["PK"], item["SK"]] = 0
            item |= {"number": 0}
        for number in self._attempts():
            _, error = self._ask(lambda table: table.put_item(Item=item))
            if error is None:
                self._note_created(item)
                if number and "number" not in item:
                    # An earlier attempt may still be on its way: what is changed now must outlive it.
                    self._append(item["PK"], item["SK"])
                return

    def _create_many(self) -> None:
        items = [self._new_item() for _ in range(1 + self._random.randrange(6))]

        def write(table: SimulatedTable) -> None:
            with table.batch_writer() as batch:
                for item in items:
                    batch.put_item(Item=item)

        _, error = self._ask(write)
        if error is None:
            for item in items:
                self._note_created(item)

    def _change(self) -> None:
        """Append a token to an item that was created, on condition that it is there; it is not repeated."""
        found = self._run.known(self._random)
        if found is not None:
            self._append(*found)

    def _append(self, collection: str, sort_key: str) -> None:
        began, token = self._engine.now, f"t{self._index}.{self._run.meter.operations}"
        addition = self._record.note_change(collection, sort_key, token=token, began=began)
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
            addition.ended_at = self._engine.now
        elif _is_absence(error):
            self._record.offers[collection][sort_key].changes.remove(addition)
            self._record.note_lookup(collection, sort_key, (), began, self._engine.now)

    def _overwrite(self) -> None:
        """Overwrite a register of one's own with the next number."""
        if not self.registers:
            return
        place = collection, sort_key = self._random.choice(list(self.registers))
        offer = self._record.offers[collection][sort_key]
        if offer.acknowledged_at == inf:
            return
        number = self.registers[place] = self.registers[place] + 1
        item: dict[str, Any] = {"PK": collection, "SK": sort_key, "owner": offer.digest, "number": number, "log": []}
        addition = self._record.note_change(*place, token=str(number), began=self._engine.now)
        _, error = self._ask(lambda table: table.put_item(Item=item))
        if error is None:
            addition.ended_at = self._engine.now

    def _delete(self) -> None:
        """Delete an item, again and again until it is known to be gone."""
        now = self._engine.now
        found = self._run.known(self._random, lambda offer: offer.acknowledged_at < now - LONGEST_LATENESS_SECONDS)
        if found is None:
            return
        for _ in self._attempts():
            deletion = self._record.note_change(*found, began=self._engine.now)
            _, error = self._ask(lambda table: table.delete_item(Key=dict(zip(("PK", "SK"), found, strict=True))))
            if error is None:
                deletion.ended_at = self._engine.now
                self._run.gone.add(found)
                return

    # What they read.

    def _look_up(self) -> None:
        collection = choose_collection(self._random)
        known = sorted(self._record.offers.get(collection, {}))
        if known:
            self.read_one(collection, self._random.choice(known))

    def _read(self) -> None:
        random = self._random
        self.read_collection(
            choose_collection(random),
            is_strong=random.random() < 0.8,
            newest_first=random.random() < 0.5,
            limit=random.choice((None, 3, 7)),
        )

    def read_collection(self, collection: str, *, is_strong: bool, newest_first: bool, limit: int | None) -> None:
        """Read all of a collection, in pages of `limit` items."""
        began = self._engine.now
        request: dict[str, Any] = {
            "KeyConditionExpression": Key("PK").eq(collection),
            "ConsistentRead": is_strong,
            "ScanIndexForward": not newest_first,
            **({"Limit": limit} if limit else {}),
        }
        found, error = self._ask(
            lambda table: [_seen(item) for page in table.query_pages(**request) for item in page["Items"]]
        )
        if error is None:
            order = {"is_strong": is_strong, "newest_first": newest_first}
            self._record.note_whole_read(collection, found, began, self._engine.now, **order)

    def read_one(self, collection: str, sort_key: str) -> None:
        """Look an item up."""
        began, key = self._engine.now, {"PK": collection, "SK": sort_key}
        response, error = self._ask(lambda table: table.get_item(Key=key, ConsistentRead=True))
        if error is None:
            found = [_seen(response["Item"])] if "Item" in response else []
            self._record.note_lookup(collection, sort_key, found, began, self._engine.now)


def choose_collection(random: Random) -> str:
    """Choose one, the hot one most of the time."""
    return COLLECTIONS[random.random() < 0.3]


def _is_absence(error: Exception | None) -> bool:
    """Say whether a change found no item: refused by its condition, or because it is not known where a new one goes."""
    if isinstance(error, ClientError):
        return error.response["Error"]["Code"] == "ConditionalCheckFailedException"
    return isinstance(error, InvalidRequestError)


def position_of(sort_key: Any) -> int | None:
    """Return the time in a sort key; None for a bound that has no time."""
    text = str(sort_key)[:15]
    return int(text) if text.isdecimal() else None


def _seen(item: Mapping[str, Any]) -> Seen:
    if "number" in item:
        return Seen(item["SK"], item["owner"], tuple(str(number) for number in range(1, int(item["number"]) + 1)))
    return Seen(item["SK"], item["owner"], tuple(item["log"]))


def build_fault_plan(late_share: float = LATE_SHARE, **others: Any) -> FaultPlan:
    """Build the plan of all faults, with late creations and keys that refuse besides; `others` are set as given."""
    plan = FaultPlan().with_odds(late=late_share, hot_keys=HOT_SHARE, load_lost=LOAD_LOST_SHARE)
    return replace(plan, **others, spell=replace(plan.spell, hot_keys=HOT_SHARE_IN_SPELLS))


def judge(by_part: Mapping[str, list[Outcome]]) -> Verdict:
    """Hold all seeds against the bars, which are for 300 of them."""
    ((name, runs),) = by_part.items()
    share = min(1.0, len(runs) / SEEDS)
    found = Counter(breach.fault for run in runs for breach in run.breaches)
    figures = add_up(runs, "counts")
    if name == FOLD.name:
        more = [
            at_least("items moved", figures["moved"], 5 * len(runs), "items"),
            at_least("folds that were killed", figures["folds_killed"], len(runs) // 2, "processes"),
        ]
    else:
        more = close_bars(figures["confirmed_closes"], figures["void_announcements"], share)
    return Verdict(
        fields={**figures, "breaches": dict(found), "faults": add_up(runs, "faults")},
        bars=[*breach_bars("items", found), *more],
        failing=[run.seed for run in runs if run.breaches],
    )


_ABOUT = "Items of a ShardedTable while everything fails: nothing lost, doubled or undone."


def _study(name: str, about: str, run_seed: Callable[[int], Outcome]) -> Study:
    return Study(name, f"{_ABOUT}{about}", [Part(name, run_seed, SEEDS)], judge)


STUDY = _study("table-faults", "", run)
IN_BAND = _study("table-faults-in-band", " Environments find hot keys.", partial(run, is_in_band=True))
FOLD = _study("table-faults-fold", " Items are moved to the base key.", partial(run, folds=True))
