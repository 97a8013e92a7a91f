"""Where the routing items of a `ShardedTable` lie, and what reads and writes them."""

from __future__ import annotations

from typing import Any

from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.python_values import PythonValuesCall
from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.runtime.building import build_journal_place
from hotpartition.runtime.settings import AdaptiveSettings, InBandSettings
from hotpartition.table.schema import Schema


def find_place(settings: AdaptiveSettings | InBandSettings, schema: Schema, way: str) -> JournalPlace:
    """Find the place of a table's routing items; `way` is the function that the owner called.

    Raises:
        NotImplementedError: the table's keys leave none.
    """
    place = build_journal_place(settings.store, settings.journal, schema.partition, schema.sort)
    if schema.sort_type != "S" and not place.is_apart:
        raise NotImplementedError(
            f"the sort key of {settings.store.table_name} ({schema.sort}) is no string, so no routing item can lie "
            f"beside its items. Give the routing items a table of their own: {way}(journal_table_name=...)"
        )
    taken = sorted({*ROUTING_ATTRIBUTES, "collections"} & {schema.partition, schema.sort})
    if taken and not place.is_apart:
        raise NotImplementedError(
            f"{taken[0]}, a key of {settings.store.table_name}, is an attribute of routing items as well. Give those a "
            f"table of their own: {way}(journal_table_name=...)"
        )
    return place


def open_calls(table: Any) -> DynamoDBCalls:
    """Send single requests through the client of a boto3 `Table`."""
    return ThreadedCalls(PythonValuesCall(table.meta.client))
