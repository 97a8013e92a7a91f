"""A product catalogue. One product is on the front page, and is asked for ten thousand times a second."""

import json
import os
from decimal import Decimal
from functools import cache as once
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key

from hotpartition import ReadCache, ShardedTable, fixed


class Catalogue:
    """Products by their ids. The table has no sort key; its index `by-shelf` sorts each shelf's products by price."""

    def __init__(self, table: Any, cache: Any) -> None:
        self._table = ShardedTable(table, shards=fixed(0), cache=cache)

    def show(self, product: str) -> Any:
        """Return a product, a second old at most in normal times; None if there is no such product."""
        return self._table.get_item(Key={"id": product}, cache=True).get("Item")

    def show_basket(self, products: list[str]) -> list[Any]:
        """Return products in their order; those that this process lacks are read in one round."""
        return self._table.get_items([{"id": product} for product in products], cache=True)

    def show_cheapest(self, shelf: str) -> list[Any]:
        """Return a shelf's ten cheapest products."""
        request: Any = {"IndexName": "by-shelf", "KeyConditionExpression": Key("shelf").eq(shelf), "Limit": 10}
        return self._table.query(**request, cache=True)["Items"]

    def set_price(self, product: str, price: Decimal) -> None:
        """Change a price: this process sees it at once, the others when what they keep has aged."""
        change: Any = {"UpdateExpression": "SET price = :price", "ExpressionAttributeValues": {":price": price}}
        self._table.update_item(Key={"id": product}, **change)


@once
def catalogue() -> Catalogue:
    """Open the catalogue with the first request; with `REDIS`, one function reads for all."""
    table = boto3.resource("dynamodb").Table(os.environ["TABLE_NAME"])
    return Catalogue(table, ReadCache(seconds=1, redis=os.environ.get("REDIS")))


def handler(event: Any, _: object) -> dict[str, Any]:
    """Serve `GET /products/{id}`."""
    found = catalogue().show(event["pathParameters"]["id"])
    return {"statusCode": 200 if found else 404, "body": json.dumps(found, default=str)}
