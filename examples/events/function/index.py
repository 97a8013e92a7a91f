"""An event log for tenants: POST stores an event, GET shows the newest. One tenant may get very busy."""

import json
import os
import uuid
from datetime import UTC, datetime
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key
from botocore.config import Config

from hotpartition import ShardedTable, in_band

# `fixed(8)` instead of `in_band()` spreads every tenant over 8 keys, and stores nothing beside the events.
CONFIG = Config(retries={"total_max_attempts": 1})  # the ShardedTable tries again itself
TABLE = ShardedTable(
    boto3.resource("dynamodb", config=CONFIG).Table(os.environ["TABLE_NAME"]), shards=in_band(), append_only=True
)


def handler(event: dict[str, Any], _: object) -> dict[str, Any]:
    """Serve `POST /TENANT` and `GET /TENANT`, as a function URL sends them."""
    tenant = event["rawPath"].strip("/")
    if event["requestContext"]["http"]["method"] == "POST":
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        item = {"Tenant": tenant, "At": f"{at}#{uuid.uuid4().hex}", "What": json.loads(event["body"])["what"]}
        TABLE.put_item(Item=item)
        return {"statusCode": 201, "body": json.dumps(item)}
    page = TABLE.query(KeyConditionExpression=Key("Tenant").eq(tenant), ScanIndexForward=False, Limit=20)
    return {"statusCode": 200, "body": json.dumps({"events": page["Items"]})}
