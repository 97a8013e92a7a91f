"""Carries commands out in this process, with the caller's own credentials: on a table without Redis (`in_band()`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hotpartition.control.commands import respond
from hotpartition.control.operations import Operations
from hotpartition.control.reconcile import Reconciler
from hotpartition.core.errors import SettingsError
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.runtime.build_control import open_in_band_operations
from hotpartition.runtime.clocks import system_clock
from hotpartition.runtime.connect import build_journal_place
from hotpartition.runtime.settings import Settings
from hotpartition.table.routes import LoggedTelemetry
from hotpartition_cli.callers import raise_error
from hotpartition_cli.errors import UsageError
from hotpartition_cli.sdk import Subject, open_client, open_session, translated

PARALLEL_READS = 8
SAMPLED_ITEMS = 2_000
"""Items among which `verify` looks for such that no route names, and those of one request for all of them."""
SCANNED_RCU_PER_SECOND = 500
Keys = tuple[tuple[str, str], tuple[str, str]]
"""Name and type of a table's partition key, and of its sort key: those of `NO_SORT_KEY` where it has none."""
NO_SORT_KEY = ("", "S")
_RIGHTS = "dynamodb:DescribeTable and GetItem (raise, close: UpdateItem; a journal table, verify: Scan)"


@dataclass(frozen=True, slots=True)
class TableCaller:
    """Serves commands instead of the operations function."""

    operations: Operations
    check: Reconciler
    subject: Subject
    region: str
    stored: StoredKeys

    @classmethod
    def connect(
        cls,
        table: str,
        journal_table: str | None,
        environ: Mapping[str, str],
        *,
        region: str | None,
        profile: str | None,
        looks_at_all: bool = False,
    ) -> TableCaller:
        """Find credentials and region as every AWS tool does, and read the names of the table's keys.

        Settings that `in_band()` would read from the environment count here as well. With `looks_at_all`, `verify`
        looks through all stored keys.
        """
        settings = read_settings(table, journal_table, environ)
        client = open_client(open_session(region, profile), "dynamodb")
        threads = ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="read")
        form, clock = KeyForm(label="conversation_id"), system_clock()
        operations, check = open_in_band_operations(
            ThreadedCalls(Boto3Call(client), threads, parallel=PARALLEL_READS),
            find_place(client, settings),
            LoggedTelemetry(),
            clock,
            settings,
            form=form,
            run_all=threads.map,
        )
        stored = StoredKeys(client, table, form, looks_at_all, clock.sleep)
        return cls(operations, check, _subject(table), client.meta.region_name, stored)

    def __call__(self, command: Mapping[str, object]) -> dict[str, Any]:
        """Implement `Caller`."""
        response: dict[str, Any] = translated(lambda: self._respond(command), self.subject, self.region)
        if "error" in response:
            raise_error(response["error"])
        return response

    def _respond(self, command: Mapping[str, object]) -> dict[str, Any]:
        response = respond(command, self.operations, self.check, remaining_ms=math.inf)
        if command["command"] == "verify" and "counts" in response and response["cursor"] is None:
            is_empty = command["cursor"] is None and not any(response["counts"].values())
            if is_empty or self.stored.looks_at_all:
                response["unrouted"] = self._find_unrouted()
        return response

    def _find_unrouted(self) -> dict[str, int]:
        """Find keys with items on shards that their route does not name; of each, how many shards there are."""
        found = self.stored.count_shards()
        return {key: n for key, n in found.items() if n > self._named(key)}

    def _named(self, key: str) -> int:
        item = self.operations.show_route(key).item
        return item.route.max_shard_count if item and item.route else 0


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """The partition keys of a table's items: its first `SAMPLED_ITEMS`, or all of them."""

    client: Any
    table: str
    form: KeyForm
    looks_at_all: bool
    sleep: Callable[[float], None]

    def count_shards(self) -> dict[str, int]:
        """Count the shards of each key that has items on shards, by the largest index met; sorted by key."""
        counts: dict[str, int] = {}
        for partition_key in self._scan():
            collection, shard = self.form.parse(partition_key)
            if shard is not None:
                counts[collection] = max(counts.get(collection, 0), shard + 1)
        return dict(sorted(counts.items()))

    def _scan(self) -> Iterator[str]:
        name = _read_keys(self.client, self.table)[0][0]
        request: dict[str, Any] = {
            "TableName": self.table,
            "Limit": SAMPLED_ITEMS,
            "ProjectionExpression": "#p",
            "ExpressionAttributeNames": {"#p": name},
            "ConsistentRead": self.looks_at_all,
            "ReturnConsumedCapacity": "TOTAL",
        }
        while True:
            response = translated(
                lambda: self.client.scan(**request), _subject(self.table), self.client.meta.region_name
            )
            yield from (item[name]["S"] for item in response["Items"])
            start = response.get("LastEvaluatedKey")
            if not (start and self.looks_at_all):
                return
            request["ExclusiveStartKey"] = start
            self.sleep(response["ConsumedCapacity"]["CapacityUnits"] / SCANNED_RCU_PER_SECOND)


def read_settings(table: str, journal_table: str | None, environ: Mapping[str, str]) -> Settings:
    """Read the settings that `in_band()` would read from the environment.

    Raises:
        UsageError: they are wrong.
    """
    given = {"table_name": table, **({"journal_table_name": journal_table} if journal_table else {})}
    try:
        return Settings.from_env(environ, "in_band()", **given)
    except SettingsError as error:
        raise UsageError(str(error)) from error


def find_place(client: Any, settings: Settings) -> JournalPlace:
    """Find where a table's routing items lie.

    Raises:
        UsageError: the table's keys leave no place, or its journal's keys are not those of a journal.
    """
    table, journal = settings.table_name, settings.journal_table_name
    if journal:
        (partition_key, kind), sort_key = _read_keys(client, journal)
        if kind != "S" or sort_key != NO_SORT_KEY:
            raise UsageError(
                f"{journal} is no table for routing items: its only key should be a partition key, a string"
            )
        return JournalPlace(journal, partition_key, sort_key="")
    keys = _read_keys(client, table)
    if keys[1] == NO_SORT_KEY:
        raise UsageError(f"{table} has no sort key, so there is nothing to shard in it: name another table")
    return build_place(settings, keys)


def build_place(settings: Settings, keys: Keys) -> JournalPlace:
    """Build the place of a table's routing items from the table's keys.

    Raises:
        UsageError: its partition key is not a string.
    """
    (partition_key, kind), (sort_key, sort_type) = keys
    if kind != "S":
        name = settings.table_name
        raise UsageError(f"the partition key of {name} is no string, so there is nothing to shard in it")
    return build_journal_place(settings, partition_key, sort_key, sort_type=sort_type)


def _read_keys(client: Any, name: str) -> Keys:
    found = translated(lambda: client.describe_table(TableName=name), _subject(name), client.meta.region_name)
    return list_keys(found["Table"])


def list_keys(described: Mapping[str, Any]) -> Keys:
    """List the keys of a described table."""
    types = {entry["AttributeName"]: entry["AttributeType"] for entry in described["AttributeDefinitions"]}
    names = {key["KeyType"]: key["AttributeName"] for key in described["KeySchema"]}
    partition_key, sort_key = names["HASH"], names.get("RANGE")
    return (partition_key, types[partition_key]), (sort_key, types[sort_key]) if sort_key else NO_SORT_KEY


def _subject(name: str) -> Subject:
    return Subject("DynamoDB", "table", name, _RIGHTS, "--table and --journal-table take names of tables, not ARNs")
