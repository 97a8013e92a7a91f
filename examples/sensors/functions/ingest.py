"""The function that takes readings: one, or a batch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from readings import parse_batch, parse_name, parse_reading, show_reading
from table import open_table
from web import Event, read_body, respond


def ingest_one(event: Event) -> tuple[int, dict[str, Any]]:
    """Store one reading."""
    site = parse_name(event["pathParameters"]["site"], "site")
    item = parse_reading(site, read_body(event), now=datetime.now(UTC))
    open_table().put_item(Item=item)
    return 201, show_reading(item)


def ingest_batch(event: Event) -> tuple[int, dict[str, Any]]:
    """Store a batch. After an error some of it may be stored: the same batch again stores the rest."""
    site = parse_name(event["pathParameters"]["site"], "site")
    items = parse_batch(site, read_body(event), now=datetime.now(UTC))
    with open_table().batch_writer() as batch:
        for item in items:
            batch.put_item(Item=item)
    return 201, {"readings": [show_reading(item) for item in items]}


ROUTES = {"POST /sites/{site}/readings": ingest_one, "POST /sites/{site}/readings/batch": ingest_batch}


def handler(event: Event, _: object) -> dict[str, Any]:
    """Serve API Gateway."""
    return respond(ROUTES, event)
