"""Tables without a function: described, scanned and operated in this process, with the caller's own credentials."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from hotpartition.control.commands import respond
from hotpartition.control.folding import CALL_BUDGET_MS
from hotpartition.control.operations import Operations
from hotpartition.core.backoff import Clock, try_for
from hotpartition.core.errors import InvalidRequestError, RetryLaterError, SettingsError
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
from hotpartition_cli.errors import FailedError, UsageError
from hotpartition_cli.sdk import ResultT, Subject, open_client, open_session, translated

PARALLEL_READS = 8
SAMPLED_ITEMS = 2_000
"""Items among which `verify` looks for such that no route names, and those of one request for all of them."""
SCANNED_RCU_PER_SECOND = 500
_FORM = KeyForm(label="conversation_id")
_RIGHTS = "dynamodb:DescribeTable and GetItem (raise, close: UpdateItem; a journal table, verify: Scan)"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTable:
    """A table as DynamoDB describes it, and a client for it."""

    client: Any
    clock: Clock
    subject: Subject
    partition_key: str
    sort_key: str
    """Empty: the table has no sort key."""
    indexes: Mapping[str, str]
    """The hash key of each global index."""
    place: JournalPlace
    """Where its routing items lie, or those that it has where it has nothing else."""

    @classmethod
    def open(
        cls,
        name: str,
        environ: Mapping[str, str],
        sleep: Callable[[float], None],
        *,
        rights: str,
        region: str | None,
        profile: str | None,
    ) -> Self:
        """Describe a table, with credentials and region as every AWS tool finds them; `environ` is for `read_settings`.

        Raises:
            ToolError: there is no such table, one of these rights is missing, or no shards can be named in its keys.
        """
        settings = read_settings(name, None, environ)
        client = open_client(open_session(region, profile), "dynamodb")
        source = "--table, --journal-table and --from take names of tables, not ARNs"
        subject = Subject("DynamoDB", "table", name, rights, source)
        found = translated(lambda: client.describe_table(TableName=name), subject, client.meta.region_name)["Table"]
        types = {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]}
        keys = {key["KeyType"]: key["AttributeName"] for key in found["KeySchema"]}
        partition_key, sort_key = keys["HASH"], keys.get("RANGE", "")
        if types[partition_key] != "S":
            raise UsageError(f"the partition key of {name} is no string, so it can name neither shards nor routes")
        place = JournalPlace(name, partition_key, sort_key="")
        if sort_key:
            place = build_journal_place(settings, partition_key, sort_key, sort_type=types[sort_key])
        indexes = found.get("GlobalSecondaryIndexes", ())
        return cls(
            client=client,
            clock=replace(system_clock(), sleep=sleep),
            subject=subject,
            partition_key=partition_key,
            sort_key=sort_key,
            indexes={index["IndexName"]: index["KeySchema"][0]["AttributeName"] for index in indexes},
            place=place,
        )

    @property
    def name(self) -> str:
        """The table's name."""
        return self.subject.name

    def check_sort_key(self) -> None:
        """Refuse a table whose partition keys hold one item each."""
        if not self.sort_key:
            raise UsageError(f"{self.name} has no sort key, so there is nothing to shard in it: name another table")

    def call(self, operation: str, request: Mapping[str, Any]) -> Any:
        """Send a request, for a minute if DynamoDB refuses it."""
        return try_for(self.clock, CALL_BUDGET_MS, lambda: Boto3Call(self.client)(operation, request))

    def scan(self, **request: Any) -> Iterator[dict[str, Any]]:
        """Scan the table; the next page is asked for when it is wanted."""
        while True:
            page = self.call("Scan", {"TableName": self.name, **request})
            yield page
            if not (start := page.get("LastEvaluatedKey")):
                return
            request["ExclusiveStartKey"] = start

    def carry_out(self, work: Callable[[], ResultT]) -> ResultT:
        """Do something with the table.

        Raises:
            ToolError: with the reason and the way out.
        """
        try:
            return translated(work, self.subject, self.client.meta.region_name)
        except InvalidRequestError as error:
            raise UsageError(str(error), kind="invalid-request") from error
        except RetryLaterError as error:
            raise FailedError(f"DynamoDB refused for a minute ({error}): run it again", kind="retry-later") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCaller:
    """Serves commands instead of the operations function, for a table with `in_band()`."""

    operations: Operations
    journal: OwnTable
    open_items: Callable[[], OwnTable]
    looks_at_all: bool

    @classmethod
    def connect(
        cls,
        table: str,
        journal_table: str | None,
        environ: Mapping[str, str],
        sleep: Callable[[float], None],
        *,
        looks_at_all: bool = False,
        **credentials: str | None,
    ) -> Self:
        """Describe the table with the routing items, by `region` and `profile`.

        Settings that `in_band()` would read from the environment count here as well. With `looks_at_all`, `verify`
        looks through all stored keys.
        """
        settings = read_settings(table, journal_table, environ)
        journal = OwnTable.open(settings.journal_table_name or table, environ, sleep, rights=_RIGHTS, **credentials)
        if not settings.journal_table_name:
            journal.check_sort_key()
        elif journal.sort_key:
            only_key = "its only key should be a partition key, a string"
            raise UsageError(f"{journal.name} is no table for routing items: {only_key}")
        threads = ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="read")
        operations = open_in_band_operations(
            ThreadedCalls(Boto3Call(journal.client), threads, parallel=PARALLEL_READS),
            journal.place,
            LoggedTelemetry(),
            journal.clock,
            settings,
            form=_FORM,
            run_all=threads.map,
        )
        return cls(
            operations=operations,
            journal=journal,
            open_items=partial(OwnTable.open, table, environ, sleep, rights=_RIGHTS, **credentials),
            looks_at_all=looks_at_all,
        )

    def __call__(self, command: Mapping[str, object]) -> dict[str, Any]:
        """Implement `Caller`."""
        response = self.journal.carry_out(lambda: self._respond(command))
        if "error" in response:
            raise_error(response["error"])
        return response

    def _respond(self, command: Mapping[str, object]) -> dict[str, Any]:
        response = respond(command, self.operations, remaining_ms=math.inf)
        if command["command"] == "verify" and "counts" in response and response["cursor"] is None:
            is_empty = "cursor" not in command and not any(response["counts"].values())
            if is_empty or self.looks_at_all:
                response["unrouted"] = self._find_unrouted()
        return response

    def _find_unrouted(self) -> dict[str, int]:
        """Find keys with items on shards that their route does not name; of each, how many shards there are."""
        counts: dict[str, int] = {}
        for partition_key in self._list_keys():
            collection, shard = _FORM.parse(partition_key)
            if shard is not None:
                counts[collection] = max(counts.get(collection, 0), shard + 1)
        return {key: n for key, n in sorted(counts.items()) if n > self._named(key)}

    def _named(self, key: str) -> int:
        item = self.operations.reconciler.show(key).item
        return item.route.max_shard_count if item and item.route else 0

    def _list_keys(self) -> Iterator[str]:
        """List the partition keys of the table's items: of its first `SAMPLED_ITEMS`, or of all."""
        table = self.open_items()
        pages = table.scan(
            Limit=SAMPLED_ITEMS,
            ProjectionExpression="#p",
            ExpressionAttributeNames={"#p": table.partition_key},
            ConsistentRead=self.looks_at_all,
            ReturnConsumedCapacity="TOTAL",
        )
        for page in pages:
            yield from (item[table.partition_key]["S"] for item in page["Items"])
            if not (self.looks_at_all and "LastEvaluatedKey" in page):
                return
            table.clock.sleep(page["ConsumedCapacity"]["CapacityUnits"] / SCANNED_RCU_PER_SECOND)


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
