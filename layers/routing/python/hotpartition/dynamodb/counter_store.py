"""Additions to the items of counters in DynamoDB: `CounterStore` over a client (`calls.py`).

| item | partition key | sort key | attributes |
|---|---|---|---|
| counter | base key or shard key | `<name>#`: additions without a token | `counted` (N): their sum |
| its cells | base key or shard key | `<name>#00` to `<name>#15`: additions with one | `counted` (N): their sum |

Written by additions, read by sums. If one vanished, its count would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from hotpartition.core.capacity import Item
from hotpartition.core.counter_items import AMOUNT, CELLS, Addition, Cell, cell_sort_key, plain_sort_key
from hotpartition.core.errors import OutcomeUnknownError, StoreRefusedError, StoreUnavailableError
from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.calls import DynamoDBCalls, StaleSignatureError
from hotpartition.dynamodb.table import JournalPlace, TableForm

_MISMATCH = "IdempotentParameterMismatchException"


def describe_counters(
    table_name: str, name: str, *, journal: JournalPlace, keys: KeyForm, partition_key: str = "pk", sort_key: str = "sk"
) -> TableForm:
    """Describe the items of the counters of one name in a table."""
    return TableForm(
        name=table_name,
        journal=journal,
        first_sort_key=plain_sort_key(name),
        last_sort_key=cell_sort_key(name, CELLS - 1),
        keys=keys,
        partition_key=partition_key,
        sort_key=sort_key,
    )


def decode_cell(item: Item, sort_key: str = "sk", own: Container[str] | None = None) -> Cell:
    """Read the sum in an item; 0 if its `sort_key`, the name of that key, is not among the counter's `own`."""
    place = item[sort_key]["S"]
    return Cell(place, int(item[AMOUNT]["N"]) if own is None or place in own else 0)


class DynamoDBCounterStore:
    """`CounterStore` on one table."""

    def __init__(self, calls: DynamoDBCalls, table: TableForm, once: Callable[[str], Item] = lambda _: {}) -> None:
        """Send nothing yet; `once` returns attributes, by the counter's key, that its items are created with."""
        self._calls = calls
        self._table = table
        self._once = once

    def add(self, partition_key: str, amount: int) -> None:
        """Implement `CounterStore.add`."""
        try:
            self._calls.call("UpdateItem", self._build_update(partition_key, self._table.first_sort_key, amount))
        except StaleSignatureError:
            raise  # refused, so nothing was counted
        except StoreUnavailableError as error:
            raise OutcomeUnknownError(f"{error}: the amount may have been added or not") from error

    def add_once(self, partition_key: str, addition: Addition) -> bool:
        """Implement `CounterStore.add_once`."""
        # A repetition has to be this very request: nothing may be in it but what follows from place and addition.
        update = self._build_update(partition_key, addition.sort_key, addition.amount)
        request = {"TransactItems": [{"Update": update}], "ClientRequestToken": addition.request_token}
        try:
            self._calls.call("TransactWriteItems", request)
        except StoreRefusedError as error:
            if error.code != _MISMATCH:
                raise
            return False
        return True

    def _build_update(self, partition_key: str, sort_key: str, amount: int) -> dict[str, Any]:
        request: dict[str, Any] = {
            "TableName": self._table.name,
            "Key": self._table.key_of(partition_key, sort_key),
            "UpdateExpression": f"ADD {AMOUNT} :amount",
            "ExpressionAttributeValues": {":amount": {"N": str(amount)}},
        }
        if attributes := self._once(self._table.keys.parse(partition_key)[0]):
            sets = [f"#o{index} = if_not_exists(#o{index}, :o{index})" for index in range(len(attributes))]
            request["UpdateExpression"] += f" SET {', '.join(sets)}"
            request["ExpressionAttributeNames"] = {f"#o{index}": name for index, name in enumerate(attributes)}
            values = {f":o{index}": value for index, value in enumerate(attributes.values())}
            request["ExpressionAttributeValues"] |= values
        return request
