"""The table of the tests; a test of the infrastructure holds it to the synthesized one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hotpartition.dynamodb.table import JournalPlace
from hotpartition_messages.keys import describe_table

BESIDE = JournalPlace("readings", "PK", "SK")
"""Routing items in the collections of a table `readings`, which has no index of them."""

Indexes = Mapping[str, Sequence[str]]
"""The keys of indexes by their names."""

TABLE_NAME = "hotpartition-test"
INDEX_NAME = "routing-index"
TABLE = describe_table(TABLE_NAME)


def pretend_account(patch: pytest.MonkeyPatch) -> None:
    """Set credentials and a region that do not exist."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


def define_table(
    *keys: str, indexes: Indexes | None = None, local: Indexes | None = None, types: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Define a table by its keys, the partition key first, and those of its indexes; keys are texts unless said."""
    places = {"GlobalSecondaryIndexes": indexes, "LocalSecondaryIndexes": local}
    names = dict.fromkeys([*keys, *(name for each in places.values() for own in (each or {}).values() for name in own)])
    return {
        "AttributeDefinitions": [
            {"AttributeName": name, "AttributeType": (types or {}).get(name, "S")} for name in names
        ],
        "KeySchema": _schema_of(keys),
        "BillingMode": "PAY_PER_REQUEST",
    } | {
        place: [
            {"IndexName": name, "KeySchema": _schema_of(own), "Projection": {"ProjectionType": "ALL"}}
            for name, own in each.items()
        ]
        for place, each in places.items()
        if each
    }


def _schema_of(keys: Sequence[str]) -> list[dict[str, str]]:
    return [{"AttributeName": n, "KeyType": role} for n, role in zip(keys, ("HASH", "RANGE"), strict=False)]


TABLE_SCHEMA = define_table("pk", "sk", indexes={INDEX_NAME: ("routing_partition", "updated_at")})
