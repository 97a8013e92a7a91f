"""The table of the tests; a test of the infrastructure holds it to the synthesized one."""

from __future__ import annotations

from typing import Any

from hotpartition_messages.keys import describe_table

TABLE_NAME = "hotpartition-test"
INDEX_NAME = "routing-index"
TABLE = describe_table(TABLE_NAME)

TABLE_SCHEMA: dict[str, Any] = {
    "AttributeDefinitions": [
        {"AttributeName": "pk", "AttributeType": "S"},
        {"AttributeName": "sk", "AttributeType": "S"},
        {"AttributeName": "routing_partition", "AttributeType": "S"},
        {"AttributeName": "updated_at", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
    "GlobalSecondaryIndexes": [
        {
            "IndexName": INDEX_NAME,
            "KeySchema": [
                {"AttributeName": "routing_partition", "KeyType": "HASH"},
                {"AttributeName": "updated_at", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "ALL"},
        }
    ],
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
}
