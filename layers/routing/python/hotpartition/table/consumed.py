"""Sends the requests that one call of a `ShardedTable` needs, and sums up what they consumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from botocore import xform_name

from hotpartition.table.schema import Attributes


class Requests:
    """The requests of one call. `send` may run on several threads."""

    def __init__(self, client: Any, table_name: str, report: str | None, *, is_counted: bool = False) -> None:
        """Send nothing yet.

        Args:
            client: boto3's client of a resource: it takes and gives Python values.
            table_name: the table.
            report: the call's `ReturnConsumedCapacity`.
            is_counted: whether `last_units` is needed, asked for by the call or not.
        """
        self.client = client
        self.table_name = table_name
        self._is_reported = report not in {None, "NONE"}
        asked = "INDEXES" if is_counted and not self._is_reported else report
        self._report = {"ReturnConsumedCapacity": asked} if asked else {}
        self._consumed: list[Mapping[str, Any]] = []
        self._units: list[float] = []
        self.last_units = 1.0
        """What the last request consumed of the table itself, where it was told."""

    def send(self, operation: str, **request: Any) -> Attributes:
        """Send one request to the table."""
        return self.send_many(operation, TableName=self.table_name, **request)

    def send_many(self, operation: str, **request: Any) -> Attributes:
        """Send one request that names the tables itself."""
        response: Attributes = getattr(self.client, xform_name(operation))(**request, **self._report)
        told = response.pop("ConsumedCapacity", ())
        consumed = [told] if isinstance(told, Mapping) else told
        if self._is_reported:
            self._consumed.extend(consumed)
        units = sum(part.get("Table", part).get("CapacityUnits", 0.0) for part in consumed)
        self._units.append(units)
        self.last_units = units or 1.0
        return response

    @property
    def units(self) -> float:
        """What all requests together consumed of the tables themselves, where it was told."""
        return sum(self._units)

    def finish(self, response: Attributes) -> Attributes:
        """Put the sum into the call's response."""
        if self._consumed:
            response["ConsumedCapacity"] = sum_up(self._consumed)
        return response


def sum_up(consumed: Iterable[Mapping[str, Any]]) -> Attributes:
    """Add up what several requests consumed, with the parts for table and indexes."""
    total: Attributes = {}
    for part in consumed:
        for name, value in part.items():
            if isinstance(value, Mapping):
                total[name] = sum_up([total.get(name, {}), value])
            elif isinstance(value, str):
                total[name] = value
            else:
                total[name] = total.get(name, 0) + value
    return total
