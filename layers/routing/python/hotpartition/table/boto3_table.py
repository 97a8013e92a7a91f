"""The boto3 `Table` underneath, as the calls of a `ShardedTable` use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotpartition.table.consumed import Requests
from hotpartition.table.schema import Attributes


class Boto3Table:
    """A boto3 `Table`, or what behaves like one."""

    def __init__(self, table: Any, *, is_counted: bool) -> None:
        """Wrap a table; `is_counted` says whether the units of all writes are needed."""
        self.table = table
        self._is_counted = is_counted
        self.name: str = table.name

    def requests(self, request: Mapping[str, Any]) -> Requests:
        """Begin one call: its requests report what they consume as the call's own parameters say."""
        return Requests(
            self.table.meta.client, self.name, request.get("ReturnConsumedCapacity"), is_counted=self._is_counted
        )

    def pass_on(self, method: str, request: Mapping[str, Any]) -> Attributes:
        """Call the table itself."""
        response: Attributes = getattr(self.table, method)(**request)
        return response

    def let_refuse(self, method: str, request: Mapping[str, Any], reason: object = "it names no key") -> Attributes:
        """Let DynamoDB refuse what is wrong with a call, in its own words.

        Raises:
            NotImplementedError: DynamoDB finds nothing wrong with it.
        """
        self.pass_on(method, without(request, "Hashed"))
        raise NotImplementedError(f"{method}(): this call is not understood: {reason}")


def without(request: Mapping[str, Any], *names: str) -> Attributes:
    """Copy a request without some of its parameters."""
    return {name: value for name, value in request.items() if name not in names}
