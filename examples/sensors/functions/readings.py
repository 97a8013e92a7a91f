"""What a reading is: read from a request, kept as an item of the table, shown to a client. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
MOST_IN_BATCH = 100

Item = dict[str, Any]


class BadRequestError(Exception):
    """The client has to change its request; the message says what is wrong and what is allowed."""


def parse_name(text: object, what: str) -> str:
    """Read the name of a site or a device."""
    if not isinstance(text, str) or NAME.fullmatch(text) is None:
        raise BadRequestError(f"{what} should be 1 to 64 letters, digits, dots, dashes or underscores, not {text!r}")
    return text


def parse_time(text: object, what: str) -> str:
    """Read a time with its offset; returns it in UTC and milliseconds, so that times sort as texts."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise BadRequestError(f"{what} should be a time with its offset, like 2026-11-21T09:30:00.250Z, not {text!r}")
    return format_time(moment)


def format_time(moment: datetime) -> str:
    """Write a time as the table keeps it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_reading(site: str, given: object, *, now: datetime) -> Item:
    """Read a reading. A device takes one in a millisecond: the same device and time is the same reading."""
    if not isinstance(given, Mapping) or not given.keys() <= {"device", "taken_at", "celsius"}:
        raise BadRequestError("a reading should be an object of device, celsius and, unless it is now, taken_at")
    device, celsius = parse_name(given.get("device"), "device"), given.get("celsius")
    if isinstance(celsius, bool) or not isinstance(celsius, int | Decimal) or not -273 <= celsius <= 10_000:
        raise BadRequestError(f"celsius should be a number from -273 to 10000, not {celsius!r}")
    taken_at = parse_time(given["taken_at"], "taken_at") if "taken_at" in given else format_time(now)
    return {"Site": site, "TakenAt": f"{taken_at}#{device}", "Device": device, "Celsius": celsius}


def parse_batch(site: str, given: object, *, now: datetime) -> list[Item]:
    """Read a batch of readings, each of another device or time."""
    listed = given.get("readings") if isinstance(given, Mapping) else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= MOST_IN_BATCH:
        raise BadRequestError(f"readings should be a list of 1 to {MOST_IN_BATCH}")
    items = [parse_reading(site, one, now=now) for one in listed]
    if len({item["TakenAt"] for item in items}) < len(items):
        raise BadRequestError("readings should each be of another device or time")
    return items


def show_reading(item: Mapping[str, Any]) -> dict[str, Any]:
    """Write a reading for a client."""
    taken_at, _, device = item["TakenAt"].partition("#")
    return {"site": item["Site"], "device": device, "taken_at": taken_at, "celsius": float(item["Celsius"])}
