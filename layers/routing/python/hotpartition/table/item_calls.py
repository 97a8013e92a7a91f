"""The calls about one item: put, update, delete and get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hotpartition.errors import InvalidRequestError
from hotpartition.table.changing import Change, Changer
from hotpartition.table.expressions import find_update, project_also
from hotpartition.table.item_store import TableStore, attributes_of_ours, locate
from hotpartition.table.refused import refuse_expressions, refuse_parameters
from hotpartition.table.requests import Boto3Table, as_boto3_raises, without
from hotpartition.table.schema import Attributes, is_text_of
from hotpartition.table.sharding import Sharding, Target

Request = Mapping[str, Any]

_OPERATIONS = {"put_item": "PutItem", "update_item": "UpdateItem", "delete_item": "DeleteItem"}


class ItemCalls:
    """Carries them out. Safe under threads."""

    def __init__(self, table: Boto3Table, sharding: Sharding, changer: Changer) -> None:
        self._table = table
        self._sharding = sharding
        self._schema = sharding.schema
        self._changer = changer

    def put(self, request: Request) -> Any:
        """Carry out `put_item`."""
        refuse_parameters("put_item", request)
        item = request.get("Item")
        if item is None or not self._schema.has_key(item):
            return self._table.let_refuse("put_item", request)
        self._sharding.refuse_reserved(item)
        refuse_expressions("put_item", request, self._schema.partition)
        change = Change("PutItem", self._schema.key_of(item), without(request, "Item"), dict(item))
        return self._change(change, self._sharding.target_of_item(item))

    def change_by_key(self, method: str, request: Request) -> Any:
        """Carry out `update_item` or `delete_item`."""
        refuse_parameters(method, request)
        key = request.get("Key")
        if key is None or not self._schema.is_key(key):
            return self._table.let_refuse(method, request)
        self._sharding.refuse_reserved(key)
        refuse_expressions(method, request, self._schema.partition)
        target = self._sharding.target_of_key(key, request.get("Hashed"))
        self._refuse_move(request, target)
        return self._change(Change(_OPERATIONS[method], dict(key), without(request, "Key", "Hashed")), target)

    def get(self, request: Request) -> Any:
        """Carry out `get_item`."""
        refuse_parameters("get_item", request)
        key = request.get("Key")
        if key is None or not self._schema.is_key(key):
            return self._table.let_refuse("get_item", request)
        self._sharding.refuse_reserved(key)
        target = self._sharding.target_of_key(key, request.get("Hashed"))
        requests = self._table.requests(request)
        asked = without(request, "Key", "Hashed", "ReturnConsumedCapacity")
        options, hidden = project_also(asked, attributes_of_ours(self._sharding))
        store = TableStore(self._sharding, requests, options)
        with as_boto3_raises():
            is_strong = bool(request.get("ConsistentRead"))
            ((copies, _),) = locate(self._sharding.gatherer(store), [target], is_strong=is_strong)
        found = {"Item": self._schema.show(copies[0].attributes, hidden)} if copies else {}
        return requests.finish({**found, "ResponseMetadata": store.metadata})

    def _refuse_move(self, request: Request, target: Target) -> None:
        """Refuse an update of the attribute that shards are chosen by: the item would have to move.

        Raises:
            InvalidRequestError: it is changed, or set to another value than the caller tells.
        """
        attribute = self._sharding.hashing.attribute
        if attribute is None or (update := find_update(request, attribute)) is None:
            return
        if not update.is_plain or target.hashed is None or not is_text_of(update.value, target.hashed):
            raise InvalidRequestError.of(
                attribute,
                "is what the shard is chosen by, and is not changed. A new item's value is told as well (Hashed=…);"
                " for another value delete the item, and put it anew",
            )

    def _change(self, change: Change, target: Target) -> Attributes:
        requests = self._table.requests(change.request)
        change = replace(change, request=without(change.request, "ReturnConsumedCapacity"))
        with as_boto3_raises():
            return requests.finish(self._changer.change(requests, change, target))
