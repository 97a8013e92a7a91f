"""Creates items, and changes them in place: an item is created once and never moves.

    locate (strongly, everywhere it can be) ── found ──> change it there, on condition that it still exists
                                            └─ nothing ─> create it where the route says, if it is not there by then

A condition of ours that fails because somebody was faster starts this anew. `hp_changes` counts an item's changes.
Should there be two copies, the one that was changed more often is the item; a change removes the other one first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder
from botocore.exceptions import ClientError

from hotpartition.core.route import Placement
from hotpartition.errors import ThrottledError
from hotpartition.table.consumed import Requests
from hotpartition.table.copies import Copy, show
from hotpartition.table.expressions import enclose
from hotpartition.table.locating import Locator
from hotpartition.table.patience import Patience, naming_throttles
from hotpartition.table.places import ItemKey, collection_of
from hotpartition.table.placing import Placer
from hotpartition.table.schema import CHANGES, RESERVED, SHARDS, Attributes
from hotpartition.table.sharding import Sharding

MAX_RACES = 20
"""How often a change begins anew because the item came or went meanwhile, before it fails."""

_ADD = re.compile(r"(?<![#:.\w])ADD(?=\s)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an item, as its owner asked for it: `operation` is DynamoDB's name for it."""

    operation: str
    key: Attributes
    """The item's key, the owner's."""
    request: Attributes
    """The parameters, without the key or the item."""
    item: Attributes | None = None
    """The new item of a put."""

    @property
    def is_conditional(self) -> bool:
        """Say whether the owner gave a condition."""
        return bool(self.request.get("ConditionExpression"))


class _RaceLostError(Exception):
    """The item came or went between being located and being changed."""


class Changer:
    """Changes items. Safe under threads."""

    def __init__(
        self,
        sharding: Sharding,
        placer: Placer,
        locator: Locator,
        patience: Patience,
        *,
        append_only: bool,
    ) -> None:
        self._sharding = sharding
        self._placer = placer
        self._schema = sharding.schema
        self._locator = locator
        self._patience = patience
        self._append_only = append_only

    def change(self, requests: Requests, change: Change, key: ItemKey) -> Attributes:
        """Make a change where the item is, or where it shall be.

        Raises:
            ClientError: as boto3's, the failure of the owner's condition among them.
            ThrottledError: DynamoDB refused for the whole budget; its cause is boto3's error.
        """
        if self._append_only and change.item is not None:
            return self._shown(self._create(requests, change, key, guard=None))
        lost: BaseException | None = None
        for _ in range(MAX_RACES):
            try:
                return self._shown(self._change_once(requests, change, key))
            except _RaceLostError as error:
                lost = error.__cause__
        raise lost or AssertionError

    def _change_once(self, requests: Requests, change: Change, key: ItemKey) -> Attributes:
        places = self._sharding.places(key.collection).of_item(key)
        copies = self._locator.locate(requests, change.key[self._schema.sort], places)
        if len(copies) > 1:
            self._remove_others(requests, copies)
        if copies:
            return self._change_in_place(requests, change, copies[0])
        if change.operation == "DeleteItem":
            nowhere = places[-1]  # any place will do: there is nothing, and DynamoDB says so as it would without us
            return self._send_patiently(requests, change, Placement(nowhere, 0), changes=0, exists=False)
        return self._create(requests, change, key, guard=False)

    def _change_in_place(self, requests: Requests, change: Change, copy: Copy) -> Attributes:
        placement = Placement(copy.partition_key, int(copy.item.get(SHARDS, 0)))
        return self._send_patiently(requests, change, placement, changes=copy.changes + 1, exists=True)

    def _create(self, requests: Requests, change: Change, key: ItemKey, *, guard: bool | None) -> Attributes:
        """Create the item at its first choice that does not refuse; a conditional one at its first only.

        Two creations on condition that there is no such item must meet at one place, to see each other.
        """
        budget = self._patience.begin()
        untried: list[Placement] = []
        while True:
            untried = untried or ([self._placer.first(key)] if change.is_conditional else self._placer.place(key))
            try:
                return self._send(requests, change, untried[0], changes=0, exists=guard)
            except ThrottledError as error:
                if error.is_key_range:
                    self._placer.refused(untried.pop(0).partition_key)
                    if untried:
                        continue
                if not budget.wait():
                    raise

    def _send_patiently(
        self, requests: Requests, change: Change, placement: Placement, *, changes: int, exists: bool
    ) -> Attributes:
        return self._patience.send(
            lambda: self._send(requests, change, placement, changes=changes, exists=exists),
        )

    def _send(
        self, requests: Requests, change: Change, placement: Placement, *, changes: int, exists: bool | None
    ) -> Attributes:
        """Send the change to one place, on condition that the item does exist there, or does not (None: whichever).

        Raises:
            _RaceLostError: that condition failed.
            ClientError: the owner's condition failed, or anything else that is no throttle.
            ThrottledError: DynamoDB refused.
        """
        physical = self._build(change, placement, changes, exists=exists)
        try:
            with naming_throttles():
                return requests.send(change.operation, **physical)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            stored = error.response.get("Item")
            if exists is not None and bool(stored) != exists:
                raise _RaceLostError from error
            self._show_in_error(error, change)
            raise

    def _build(self, change: Change, placement: Placement, changes: int, *, exists: bool | None) -> Attributes:
        request = dict(change.request)
        if change.item is not None:
            counts = {CHANGES: changes} if changes else {}
            request["Item"] = {
                **change.item,
                self._schema.partition: placement.partition_key,
                **counts,
                **self._mark(placement),
            }
        else:
            request["Key"] = {**change.key, self._schema.partition: placement.partition_key}
        if change.operation == "UpdateItem":
            request = self._count_change(request, placement if exists is False else None)
        if exists is not None:
            function = "attribute_exists" if exists else "attribute_not_exists"
            request = _guard(request, f"{function}(#hpp)", {"#hpp": self._schema.partition})
        return request

    def _mark(self, placement: Placement) -> Attributes:
        return {SHARDS: placement.shard_count} if placement.shard_count else {}

    def _count_change(self, request: Attributes, created_at: Placement | None) -> Attributes:
        """Let an update count itself, and mark what it creates."""
        names, values = {"#hpc": CHANGES}, {":hpc": 1}
        additions = ["#hpc :hpc"]
        if created_at is not None and created_at.shard_count:
            names["#hpn"], values[":hpn"] = SHARDS, created_at.shard_count
            additions.append("#hpn :hpn")
        added = ", ".join(additions)
        expression = request.get("UpdateExpression")
        if expression and _ADD.search(expression):
            expression = _ADD.sub(f"ADD {added},", expression, count=1)
        else:
            expression = f"{expression or ''} ADD {added}".strip()
        return {
            **request,
            "UpdateExpression": expression,
            "ExpressionAttributeNames": {**(request.get("ExpressionAttributeNames") or {}), **names},
            "ExpressionAttributeValues": {**(request.get("ExpressionAttributeValues") or {}), **values},
        }

    def _remove_others(self, requests: Requests, copies: Sequence[Copy]) -> None:
        """Remove all copies but the valid one, if none of them was changed since they were read.

        Raises:
            _RaceLostError: one was.
        """
        table, (valid, *others) = requests.table_name, copies
        actions: list[Attributes] = [{"ConditionCheck": self._if_unchanged(table, valid)}]
        actions += [{"Delete": self._if_unchanged(table, other)} for other in others]
        try:
            self._patience.send(lambda: requests.send_many("TransactWriteItems", TransactItems=actions))
        except ClientError as error:
            if error.response["Error"]["Code"] != "TransactionCanceledException":
                raise
            raise _RaceLostError from error

    def _if_unchanged(self, table_name: str, copy: Copy) -> Attributes:
        names = {"#hpp": self._schema.partition, "#hpc": CHANGES}
        same = "#hpc = :hpc" if copy.changes else "attribute_exists(#hpp) AND attribute_not_exists(#hpc)"
        used = names if not copy.changes else {"#hpc": CHANGES}
        values = {"ExpressionAttributeValues": {":hpc": copy.changes}} if copy.changes else {}
        key = self._schema.key_of(copy.item)
        return {
            "TableName": table_name,
            "Key": key,
            "ConditionExpression": same,
            "ExpressionAttributeNames": used,
            **values,
        }

    def _shown(self, response: Attributes) -> Attributes:
        """Turn a response into the owner's."""
        if "Attributes" in response:
            response["Attributes"] = show(self._schema, response["Attributes"])
            if not response["Attributes"]:
                del response["Attributes"]
        metrics = response.get("ItemCollectionMetrics", {}).get("ItemCollectionKey")
        if metrics:
            metrics[self._schema.partition] = collection_of(metrics[self._schema.partition])
        return response

    def _show_in_error(self, error: ClientError, change: Change) -> None:
        """Leave in an error what its owner asked for: the item, in DynamoDB's form, as boto3 gives it there."""
        refusal: Any = error.response
        item = refusal.pop("Item", None)
        if item and change.request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
            shown = {name: value for name, value in item.items() if name not in RESERVED}
            shown[self._schema.partition] = {"S": collection_of(item[self._schema.partition]["S"])}
            refusal["Item"] = shown


def _guard(request: Attributes, guard: str, names: Mapping[str, str]) -> Attributes:
    """Add a condition of ours to the owner's, and ask for the item that fails it."""
    condition = request.get("ConditionExpression")
    owner_names, owner_values = request.get("ExpressionAttributeNames"), request.get("ExpressionAttributeValues")
    if isinstance(condition, ConditionBase):
        condition, built_names, built_values = ConditionExpressionBuilder().build_expression(condition)
        owner_names, owner_values = {**(owner_names or {}), **built_names}, {**(owner_values or {}), **built_values}
    guarded = {
        **request,
        "ConditionExpression": f"{enclose(condition)} AND {guard}" if condition else guard,
        "ExpressionAttributeNames": {**(owner_names or {}), **names},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if owner_values:
        guarded["ExpressionAttributeValues"] = owner_values
    return guarded
