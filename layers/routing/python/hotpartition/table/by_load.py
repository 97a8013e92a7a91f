"""As many shards as the load asks for, found by a consumer (`adaptive`) or by what DynamoDB refuses (`in_band`).

`adaptive` needs what raises the routes (stream consumer, Redis, schedule) deployed beside the table. Redis away, a
table works on: reads and changes ask the journal, as they do anyway, and puts that look for nothing (`append_only`) go
where the last known route says.

`in_band` needs boto3, and nothing beside the table. Routing items and load items lie in the table itself, or in a
second one. A key that was never throttled costs what it costs without shards
(`engine/in_band.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from botocore.exceptions import ClientError

from hotpartition.core.backoff import Clock
from hotpartition.core.ports import Telemetry
from hotpartition.core.route import MAX_CHOICES
from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.build import build_engine
from hotpartition.runtime.connect import build_journal_place, open_ends
from hotpartition.runtime.settings import Settings
from hotpartition.table.routes import LoggedTelemetry, TableRoutes, check_choices, open_calls
from hotpartition.table.schema import Schema

REPORTS_PAUSE_SECONDS = 0.025
"""Between two sendings of reports: alone, each would take a fifth of a put's CPU. With it they still arrive within the
detector's `REPORT_DELAY_MS`."""


@dataclass(frozen=True)
class ByLoad:
    """As many shards for each partition key as its load asks for; `way` is the function that the owner called."""

    way: str
    choices: int = MAX_CHOICES
    telemetry: Telemetry | None = None
    environ: Mapping[str, str] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    closing: bool = False

    @property
    def finds_read_heat(self) -> bool:
        """Say whether read-hot keys are known: by a consumer."""
        return self.way == "adaptive()"

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> TableRoutes:
        """Build the routes of a boto3 `Table`. Nothing is opened yet; REQUIRES: not before a snapshot is taken.

        Raises:
            SettingsError: naming every setting that is missing or out of range.
        """
        environ = os.environ if self.environ is None else self.environ
        settings = Settings.from_env(environ, self.way, **{**self.settings, "table_name": table.name})
        place = find_place(table.meta.client, settings, schema, self.way.removesuffix("()"))
        ends = open_ends(
            settings,
            self.telemetry or LoggedTelemetry(),
            open_calls(table),
            place,
            purpose="table",
            clock=clock,
            pause=lambda: clock.sleep(REPORTS_PAUSE_SECONDS),
        )
        engine = build_engine(
            ends, settings, form=schema.form, choices=self.choices, budget_ms=budget_ms, closing=self.closing
        )
        return TableRoutes(engine=engine, journal=place, is_counted=True)


def adaptive(
    *,
    choices: int = MAX_CHOICES,
    closing: bool = False,
    telemetry: Telemetry | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: object,
) -> ByLoad:
    """Spread a partition key over as many shards as its load asks for; one that is never hot has none.

    Settings come from the environment (`HOTPARTITION_REGISTRY_HOST` and so on, which the construct sets) or are given
    here by name (`registry_host="..."`), which comes first.

    Args:
        choices: how many of the shards may take one item: where its first one refuses, the next does.
        closing: whether keys that have cooled may be closed, so that their newest pages are cheap again: positions are
            times of the present, in Unix ms (docs/sharded-table.md says when to switch it on).
        telemetry: gets metrics and events; by default events are logged.
        environ: read instead of the process's own variables, for tests.
        settings: those that docs/configuration.md lists for `adaptive()`, by name.

    Raises:
        ValueError: `choices` is out of range.
        SettingsError: a setting given here is unknown, malformed or out of range.
        ImportError: redis-py is not installed.

    Example:
        >>> adaptive(registry_host="redis.example", journal_table_name="readings-journal")
    """
    check_choices(choices)
    if find_spec("redis") is None:
        raise ImportError("adaptive() needs redis-py: pip install 'hotpartition[adaptive]'")
    Settings.check_given("adaptive()", settings)
    return ByLoad("adaptive()", choices, telemetry, environ, settings, closing)


def in_band(
    *,
    choices: int = MAX_CHOICES,
    closing: bool = False,
    telemetry: Telemetry | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: object,
) -> ByLoad:
    """Spread a partition key over as many shards as its load asks for, as soon as DynamoDB refuses its writes.

    Needs boto3 and nothing else. Writers need the right to update routing items and load items (docs/security.md).
    Settings come from the environment or are given here by name, which comes first.

    Args:
        choices: how many of the shards may take one item: where its first one refuses, the next does.
        closing: whether keys that have cooled may be closed, so that their newest pages are cheap again: positions are
            times of the present, in Unix ms (docs/sharded-table.md says when to switch it on).
        telemetry: gets metrics and events; by default events are logged.
        environ: read instead of the process's own variables, for tests.
        settings: those that docs/configuration.md lists for `in_band()`, by name: `journal_table_name` for routing
                and load items in a table of their own, `max_shard_count` for the largest N.

    Raises:
        ValueError: `choices` is out of range.
        SettingsError: a setting given here is unknown, malformed or out of range.

    Example:
        >>> table = ShardedTable(boto3.resource("dynamodb").Table("readings"), shards=in_band())
    """
    check_choices(choices)
    Settings.check_given("in_band()", settings)
    return ByLoad("in_band()", choices, telemetry, environ, settings, closing)


def find_place(client: Any, settings: Settings, schema: Schema, way: str) -> JournalPlace:
    """Find the place of a table's routing items; `way` is the function that the owner called.

    Raises:
        NotImplementedError: the table's keys leave none.
        ValueError: the table that the owner named for them is not there, or has other keys.
    """
    place = build_journal_place(settings, schema.partition, schema.sort, sort_type=schema.sort_type)
    if place.is_apart:
        _check_journal_table(client, place, way)
    taken = sorted({*ROUTING_ATTRIBUTES, "collections"} & {schema.partition, schema.sort})
    if taken and not place.is_apart:
        raise NotImplementedError(
            f"{taken[0]}, a key of {settings.table_name}, is an attribute of routing items as well. Give those a "
            f"table of their own: {way}(journal_table_name=...)"
        )
    return place


def _check_journal_table(client: Any, place: JournalPlace, way: str) -> None:
    """Look at the table that routing items are to lie in; without the right to do that, nothing is said.

    Raises:
        ValueError: naming it, and how it should look.
    """
    named = f"{way}(journal_table_name={place.table_name!r})"
    wanted = f"should be a table whose only key is a partition key called {place.partition_key}, a string"
    try:
        found = client.describe_table(TableName=place.table_name)["Table"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            return
        raise ValueError(f"{named}: there is no such table. It {wanted}") from error
    types = {entry["AttributeName"]: entry["AttributeType"] for entry in found["AttributeDefinitions"]}
    keys = [(entry["AttributeName"], types[entry["AttributeName"]]) for entry in found["KeySchema"]]
    if keys != [(place.partition_key, "S")]:
        raise ValueError(f"{named}: its keys are {keys}. It {wanted}")
