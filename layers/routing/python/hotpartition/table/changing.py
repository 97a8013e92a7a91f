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
from types import MappingProxyType
from typing import Any

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder
from botocore.exceptions import ClientError

from hotpartition.core.backoff import try_for
from hotpartition.core.capacity import write_units
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.engine.gatherer import Gatherer
from hotpartition.errors import InvalidRequestError, ThrottledError
from hotpartition.table.expressions import enclose, only_condition
from hotpartition.table.item_store import StoredItem, locate, open_locator
from hotpartition.table.requests import Requests
from hotpartition.table.schema import CHANGES, Attributes, Place
from hotpartition.table.sharding import Sharding, Target

MAX_RACES = 20
"""How often a change begins anew because the item came or went meanwhile, before it fails."""

_SET = re.compile(r"(?<![#:.\w])SET(?=\s)", re.IGNORECASE)
_ADD = re.compile(r"(?<![#:.\w])ADD(?!\w)", re.IGNORECASE)


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

    def __init__(self, sharding: Sharding, *, append_only: bool) -> None:
        self._sharding = sharding
        self._schema = sharding.schema
        self._routes = sharding.routes
        self._append_only = append_only

    def change(self, requests: Requests, change: Change, target: Target) -> Attributes:
        """Make a change where the item is, or where it shall be.

        Raises:
            ClientError: as boto3's, the failure of the owner's condition among them.
            ThrottledError: DynamoDB refused for the whole budget; its cause is boto3's error.
        """
        if self._append_only and change.item is not None and not change.is_conditional:
            return self._shown(self._create(requests, change, target, EMPTY_ROUTE, exists=None))
        lost: BaseException | None = None
        for _ in range(MAX_RACES):
            try:
                return self._shown(self._change_once(requests, change, target))
            except _RaceLostError as error:
                lost = error.__cause__
        raise lost or AssertionError

    def _change_once(self, requests: Requests, change: Change, target: Target) -> Attributes:
        locator = open_locator(self._sharding, requests)
        if (response := self._change_cold(requests, locator, change, target)) is not None:
            return response
        ((copies, confirmed),) = locate(locator, [target])
        if len(copies) > 1:
            self._remove_others(requests, copies)
        if copies:
            valid = copies[0]
            marks = self._schema.marks_of_change(valid.attributes)
            return self._change_at(requests, change, target, valid.partition_key, exists=True, marks=marks)
        if change.operation == "DeleteItem":
            return self._change_at(requests, change, target, target.collection, exists=False)
        return self._create(requests, change, target, confirmed, exists=False)

    def _change_cold(
        self, requests: Requests, locator: Gatherer[Place, StoredItem], change: Change, target: Target
    ) -> Attributes | None:
        """Make a change in a collection that was never raised, as boto3 alone would.

        The journal confirms that. There is one place only, so nothing need be known of the item.

        Returns:
            None when the collection was raised, or may be by now, since DynamoDB refuses.
        """
        collection = target.collection
        if self._routes.journal is None or self._routes.get(collection) or locator.confirm(collection):
            return None
        try:
            response = self._send(requests, change, collection, exists=None, marks={})
        except ThrottledError:
            return None
        self._count(target, change, requests.last_units)
        return response

    def _change_at(
        self,
        requests: Requests,
        change: Change,
        target: Target,
        partition_key: str,
        *,
        exists: bool,
        marks: Mapping[str, int] = MappingProxyType({}),
    ) -> Attributes:
        """Make a change where its item lies, or where it does not; with waits, since there is no other place."""
        try:
            response = try_for(
                self._sharding.clock,
                self._sharding.budget_ms,
                lambda: self._send(requests, change, partition_key, exists=exists, marks=marks),
            )
        except ThrottledError:
            self._count(target, change, 1)
            raise
        self._count(target, change, requests.last_units)
        return response

    def _count(self, target: Target, change: Change, units: float) -> None:
        """Count a change that was made where its item lies: what DynamoDB told, and at least the new item's size."""
        if self._routes.is_counted:
            least = 0 if change.item is None else write_units(self._routes.size_of(change.item))
            self._routes.writer.count(target, max(units, least))

    def _create(
        self, requests: Requests, change: Change, target: Target, confirmed: Route, *, exists: bool | None
    ) -> Attributes:
        """Create the item at its first choice that does not refuse; by an update, or on condition, at its first only.

        Two creations on condition that there is no such item must meet at one place, to see each other; and two updates
        that add to it. So the route is at least what the journal has just confirmed.
        """
        try:
            key = self._sharding.key_of_new(target, must_meet=exists is not None)
        except InvalidRequestError:
            if change.is_conditional:
                # Where its condition does not hold, nothing is created, and nothing need tell where.
                condition = Change("DeleteItem", change.key, only_condition(change.request))
                self._change_at(requests, condition, target, target.collection, exists=False)
            raise
        responses: list[Attributes] = []

        def put(partition_key: str) -> None:
            is_on_shard = partition_key != key.collection
            marks = self._routes.marks_of(key.position) if is_on_shard else {}
            responses.append(self._send(requests, change, partition_key, exists=exists, marks=marks))

        self._routes.writer.write(
            key,
            put=put,
            find=lambda _: None,
            size_bytes=self._routes.size_of(change.item or change.key),
            may_be_stored=False,
            confirmed=confirmed,
            choices=1 if change.is_conditional or change.operation == "UpdateItem" else None,
        )
        return responses[-1]

    def _send(
        self,
        requests: Requests,
        change: Change,
        partition_key: str,
        *,
        exists: bool | None,
        marks: Mapping[str, int],
    ) -> Attributes:
        """Send the change to one place, on condition that the item does exist there, or does not (None: whichever).

        Raises:
            _RaceLostError: that condition failed.
            ClientError: the owner's condition failed, or DynamoDB refused for another reason.
        """
        physical = self._build(change, partition_key, exists=exists, marks=marks)
        try:
            return requests.send(change.operation, **physical)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            refusal: Any = error.response
            if exists is not None and bool(refusal.get("Item")) != exists:
                raise _RaceLostError from error
            self._show_in_error(refusal, change)
            raise

    def _build(
        self, change: Change, partition_key: str, *, exists: bool | None, marks: Mapping[str, int]
    ) -> Attributes:
        request = dict(change.request)
        if change.item is not None:
            keys = self._sharding.index_keys(partition_key, change.item)
            request["Item"] = {**change.item, self._schema.partition: partition_key, **keys, **marks}
        else:
            request["Key"] = {**change.key, self._schema.partition: partition_key}
        if change.operation == "UpdateItem":
            request = _count_change(request, marks if exists is False else {})
            request = _set_also(request, self._sharding.index_keys(partition_key, change.key))
        if exists is not None:
            function = "attribute_exists" if exists else "attribute_not_exists"
            request = _guard(request, f"{function}(#hpp)", {"#hpp": self._schema.partition})
        return request

    def _remove_others(self, requests: Requests, copies: Sequence[StoredItem]) -> None:
        """Remove all copies but the valid one, if none of them was changed since they were read.

        Raises:
            _RaceLostError: one was.
        """
        table, (valid, *others) = requests.table_name, copies
        actions: list[Attributes] = [{"ConditionCheck": self._if_unchanged(table, valid)}]
        actions += [{"Delete": self._if_unchanged(table, other)} for other in others]
        try:
            requests.send_patiently("TransactWriteItems", TransactItems=actions)
        except ClientError as error:
            if error.response["Error"]["Code"] != "TransactionCanceledException":
                raise
            raise _RaceLostError from error

    def _if_unchanged(self, table_name: str, copy: StoredItem) -> Attributes:
        names = {"#hpp": self._schema.partition, "#hpc": CHANGES}
        same = "#hpc = :hpc" if copy.changes else "attribute_exists(#hpp) AND attribute_not_exists(#hpc)"
        used = names if not copy.changes else {"#hpc": CHANGES}
        values = {"ExpressionAttributeValues": {":hpc": copy.changes}} if copy.changes else {}
        key = self._schema.key_of(copy.attributes)
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
            response["Attributes"] = self._schema.show(response["Attributes"])
            if not response["Attributes"]:
                del response["Attributes"]
        metrics = response.get("ItemCollectionMetrics", {}).get("ItemCollectionKey")
        if metrics:
            metrics[self._schema.partition] = self._schema.collection_of(metrics[self._schema.partition])
        return response

    def _show_in_error(self, refusal: Attributes, change: Change) -> None:
        """Leave in an error what its owner asked for: the item, in DynamoDB's form, as boto3 gives it there."""
        item = refusal.pop("Item", None)
        if item and change.request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
            shown = {name: value for name, value in item.items() if name not in self._schema.reserved}
            partition_key = item[self._schema.partition]["S"]
            refusal["Item"] = {**shown, self._schema.partition: {"S": self._schema.collection_of(partition_key)}}


def _count_change(request: Attributes, marks: Mapping[str, int]) -> Attributes:
    """Let an update count itself, and mark what it creates."""
    additions = {CHANGES: 1, **marks}
    names = {f"#hpn{position}": name for position, name in enumerate(additions)}
    values = {f":hpn{position}": value for position, value in enumerate(additions.values())}
    added = ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=True))
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


def _set_also(request: Attributes, attributes: Mapping[str, Any]) -> Attributes:
    """Let an update set attributes of ours as well."""
    if not attributes:
        return request
    names = {f"#hpi{position}": name for position, name in enumerate(attributes)}
    values = {f":hpi{position}": value for position, value in enumerate(attributes.values())}
    added = ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    expression = request["UpdateExpression"]
    is_setting = _SET.search(expression)
    return {
        **request,
        "UpdateExpression": _SET.sub(f"SET {added},", expression, count=1)
        if is_setting
        else f"SET {added} {expression}",
        "ExpressionAttributeNames": {**request["ExpressionAttributeNames"], **names},
        "ExpressionAttributeValues": {**request["ExpressionAttributeValues"], **values},
    }


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
