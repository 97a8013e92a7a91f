"""Ranges of time as an index: which bucket a sort key is in, and which buckets lie between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

Granularity = Literal["minute", "hour", "day"]

MAX_BUCKETS = 1_000
"""One query asks no more: each costs a query for every shard, found or not."""

_FORMATS: Mapping[str, str] = {"minute": "%Y-%m-%dT%H:%M", "hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d"}
_LENGTHS: Mapping[str, timedelta] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}


def time_of_text(sort_value: Any) -> datetime:
    """Read the time that a sort key begins with: ISO 8601, up to the first `#`. Without an offset it is UTC.

    Raises:
        ValueError: it does not begin with a time.
    """
    if not isinstance(sort_value, str):
        raise ValueError(f"{sort_value!r} is no text: TimeBuckets(time_of=…) tells how its time is read")  # noqa: TRY004
    time = datetime.fromisoformat(sort_value.partition("#")[0])
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """A global index of a `ShardedTable` for ranges of time.

    The table's sort key must grow with the time. The index is queried by the table's own keys:

        table.query(IndexName="by-time", KeyConditionExpression=Key("PK").eq("room-1") & Key("SK").between(a, b))

    Its hash key is a string. Its range key is the table's sort key, or an attribute of the same type.

    Example:
        >>> ShardedTable(table, shards=fixed(16), hashed=at_random(), indexes=[TimeBuckets("hour", index="by-time")])
    """

    granularity: Granularity
    index: str
    time_of: Callable[[Any], datetime] = time_of_text
    """Tells the time of a sort key, or of a bound of a query."""

    def __post_init__(self) -> None:
        if self.granularity not in _FORMATS:
            raise ValueError(f"granularity should be one of {', '.join(_FORMATS)}, not {self.granularity!r}")

    def bucket_of(self, sort_value: Any) -> str:
        """Return the name of the bucket that a sort key is in."""
        return self.time_of(sort_value).astimezone(UTC).strftime(_FORMATS[self.granularity])

    def list_between(self, first: Any, last: Any) -> list[str]:
        """List the buckets between two sort keys, oldest first.

        Raises:
            ValueError: they are more than one query may ask.
        """
        time, end = (self.time_of(each).astimezone(UTC) for each in (first, last))
        length, form = _LENGTHS[self.granularity], _FORMATS[self.granularity]
        if (end - time) / length > MAX_BUCKETS:
            raise ValueError(
                f"a query of {(end - time) / length:,.0f} buckets: should be at most {MAX_BUCKETS:,}. Ask for a "
                "shorter time, or choose larger buckets"
            )
        time = datetime.strptime(time.strftime(form), form).replace(tzinfo=UTC)
        return [each.strftime(form) for each in _steps(time, end, length)]


def _steps(time: datetime, end: datetime, length: timedelta) -> Iterator[datetime]:
    while time <= end:
        yield time
        time += length
