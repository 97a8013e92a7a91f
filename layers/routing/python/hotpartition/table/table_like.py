"""The type of objects that take and give items as boto3's `Table` does: that `Table`, and a `ShardedTable`.

    def newest(table: TableLike, room: str) -> Item | None: ...

Only type checkers read these classes. They need `boto3-stubs[dynamodb]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Unpack

if TYPE_CHECKING:
    from boto3.dynamodb.table import BatchWriter
    from mypy_boto3_dynamodb.service_resource import DynamoDBResourceMeta
    from mypy_boto3_dynamodb.type_defs import (
        DeleteItemInputTableDeleteItemTypeDef,
        DeleteItemOutputTableTypeDef,
        GetItemInputTableGetItemTypeDef,
        GetItemOutputTableTypeDef,
        PutItemInputTablePutItemTypeDef,
        PutItemOutputTableTypeDef,
        QueryInputTableQueryTypeDef,
        QueryOutputTableTypeDef,
        ScanInputTableScanTypeDef,
        ScanOutputTableTypeDef,
        UpdateItemInputTableUpdateItemTypeDef,
        UpdateItemOutputTableTypeDef,
    )


class TableLike(Protocol):
    """A boto3 `Table` or a `ShardedTable`.

    Example:
        >>> def count(table: TableLike) -> int:
        ...     return table.query(KeyConditionExpression=Key("PK").eq("plant-1"))["Count"]
        >>> count(table), count(ShardedTable(table, shards=fixed(16)))
        (0, 0)
    """

    @property
    def name(self) -> str:
        """The table's name."""

    @property
    def meta(self) -> DynamoDBResourceMeta:
        """The client, among others."""

    def put_item(self, **kwargs: Unpack[PutItemInputTablePutItemTypeDef]) -> PutItemOutputTableTypeDef:
        """Create an item, or replace it."""

    def update_item(self, **kwargs: Unpack[UpdateItemInputTableUpdateItemTypeDef]) -> UpdateItemOutputTableTypeDef:
        """Change an item, or create it."""

    def delete_item(self, **kwargs: Unpack[DeleteItemInputTableDeleteItemTypeDef]) -> DeleteItemOutputTableTypeDef:
        """Delete an item."""

    def get_item(self, **kwargs: Unpack[GetItemInputTableGetItemTypeDef]) -> GetItemOutputTableTypeDef:
        """Read an item."""

    def query(self, **kwargs: Unpack[QueryInputTableQueryTypeDef]) -> QueryOutputTableTypeDef:
        """Read a page of a partition key's items."""

    def scan(self, **kwargs: Unpack[ScanInputTableScanTypeDef]) -> ScanOutputTableTypeDef:
        """Read a page of the table."""

    def batch_writer(self, overwrite_by_pkeys: list[str] = ...) -> BatchWriter:
        """Write many items."""
