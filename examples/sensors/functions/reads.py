"""The function that shows readings: of a site, of one device, and by the hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from boto3.dynamodb.conditions import Attr, Key
from readings import BadRequestError, format_time, parse_name, parse_time, show_reading
from table import hourly_view, open_table
from web import Event, respond

MOST_ON_PAGE = 100
LOOKED_AT = 250
"""Readings that are looked at for those of one device, at a time."""
MOST_ROUNDS = 2
"""Of such looks in one request: the cursor leads on, however few readings were found."""
BEHIND_ALL_DEVICES = "#~"


def read_site(event: Event) -> tuple[int, dict[str, Any]]:
    """Show what all devices of a site took in a range of time."""
    return _read(event, ConsistentRead=_is_strong(event))


def read_device(event: Event) -> tuple[int, dict[str, Any]]:
    """Show what one device took in a range of time."""
    device = parse_name(event["pathParameters"]["device"], "device")
    is_own = Attr("Device").eq(device)
    return _read(event, looked_at=LOOKED_AT, ConsistentRead=_is_strong(event), FilterExpression=is_own)


def read_hourly(event: Event) -> tuple[int, dict[str, Any]]:
    """Show what all devices took in a range of time, from the view by hours where the table has one."""
    return _read(event, **hourly_view())


def _read(event: Event, *, looked_at: int | None = None, **how: Any) -> tuple[int, dict[str, Any]]:
    """Read a page: where a filter leaves out most of what is looked at, it has few readings, or none, and a cursor."""
    site, last = parse_name(event["pathParameters"]["site"], "site"), datetime.now(UTC)
    end = _parameter(event, "to", format_time(last))
    start = _parameter(event, "from", format_time(last - timedelta(days=1)))
    between = Key("TakenAt").between(parse_time(start, "from"), parse_time(end, "to") + BEHIND_ALL_DEVICES)
    limit, cursor = _parse_limit(event), _parse_cursor(event)
    items: list[dict[str, Any]] = []
    for _ in range(MOST_ROUNDS):
        page = open_table().query(
            **how,
            **({"ExclusiveStartKey": {"Site": site, "TakenAt": cursor}} if cursor else {}),
            KeyConditionExpression=Key("Site").eq(site) & between,
            ScanIndexForward=_choose(event, "order", "newest", "oldest") == "oldest",
            Limit=looked_at or limit,
        )
        items += page["Items"]
        cursor = page.get("LastEvaluatedKey", {}).get("TakenAt")
        if cursor is None or len(items) >= limit:
            break
    if len(items) > limit:
        cursor = items[limit - 1]["TakenAt"]
    return 200, {"readings": [show_reading(item) for item in items[:limit]], "next_cursor": cursor}


def _parameter(event: Event, name: str, default: str) -> str:
    text: str = (event.get("queryStringParameters") or {}).get(name, default)
    return text


def _choose(event: Event, name: str, *allowed: str) -> str:
    """Read a parameter of few values; the first is the default."""
    text = _parameter(event, name, allowed[0])
    if text not in allowed:
        raise BadRequestError(f"{name} should be {' or '.join(allowed)}, not {text!r}")
    return text


def _is_strong(event: Event) -> bool:
    return _choose(event, "consistency", "eventual", "strong") == "strong"


def _parse_limit(event: Event) -> int:
    text = _parameter(event, "limit", "50")
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_ON_PAGE):
        raise BadRequestError(f"limit should be a number from 1 to {MOST_ON_PAGE}, not {text!r}")
    return int(text)


def _parse_cursor(event: Event) -> str | None:
    text = _parameter(event, "cursor", "")
    if not text:
        return None
    taken_at, _, device = text.partition("#")
    return f"{parse_time(taken_at, 'the time of cursor')}#{parse_name(device, 'the device of cursor')}"


ROUTES = {
    "GET /sites/{site}/readings": read_site,
    "GET /sites/{site}/devices/{device}/readings": read_device,
    "GET /sites/{site}/hourly": read_hourly,
}


def handler(event: Event, _: object) -> dict[str, Any]:
    """Serve API Gateway."""
    return respond(ROUTES, event)
