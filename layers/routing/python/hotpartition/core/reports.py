"""Reports: load that environments send to the consumer through the stream, and how an entry is read back.

An entry's text is eight parts with `|` between them, a format shared by all versions that may run at once.

| part | meaning |
|---|---|
| format | `2` |
| collection | in which `|` and `%` are written as `%7C` and `%25` |
| slot | Unix time in ms of the environment's clock, divided by 250, rounded down |
| value | load that the source counted of this collection in this slot, up to sampling, in WCU |
| position | of the sampled item (messages: its time, Unix ms) |
| N | that it was placed under; 0 is the base key |
| throttled | `1` when the write was throttled, else `0` |
| source | the environment, or a part of it, that counted; the last part, so it may contain anything |

A write whose report is already sent when the put is throttled is reported again as throttled, with the same value.

A read report has format `3` and six parts: format, collection, slot, value in RCU, how many pages like the sampled one
that value is, source. Reads are counted by sources of their own. A consumer that does not know the
format counts the entry as malformed.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from hotpartition.core.errors import MalformedReportError

FORMAT = "2"
READ_FORMAT = "3"
MAX_VALUE = 1e6
MAX_SOURCE_LENGTH = 64
READ_LIMIT = 5_000
"""Entries taken from one stream at a time; a full response is followed by another read at once."""

_SEPARATOR = "|"
_PARTS = 8
_READ_PARTS = 6
_FLAGS = {"0": False, "1": True}


class Report(NamedTuple):
    """One sampled crossing (docs/architecture.md), of writes; or of reads, where it has `pages`.

    `value` is the load that the source counted of the collection in the slot so far, up to sampling, in WCU or RCU.
    """

    collection: str
    slot: int
    source: str
    value: float
    position: int = 0
    shard_count: int = 0
    is_throttled: bool = False
    pages: float = 0.0

    def encode(self) -> str:
        """Build the stream entry's text."""
        collection, slot, source, value, position, shard_count, is_throttled, pages = self
        if pages:
            return f"{READ_FORMAT}|{_escape(collection)}|{slot}|{value!r}|{pages!r}|{source}"
        flag = "1" if is_throttled else "0"
        return f"{FORMAT}|{_escape(collection)}|{slot}|{value!r}|{position}|{shard_count}|{flag}|{source}"

    @classmethod
    def decode(cls, text: str) -> Report:
        """Parse a stream entry.

        Raises:
            MalformedReportError: with the reason.
        """
        kind, _, rest = text.partition(_SEPARATOR)
        try:
            if kind == FORMAT:
                return cls._decode_write(rest)
            if kind == READ_FORMAT:
                return cls._decode_read(rest)
        except KeyError as error:
            raise MalformedReportError(f"throttled is {error}, neither 0 nor 1") from error
        except ValueError as error:
            raise MalformedReportError(str(error)) from error
        raise MalformedReportError(f"format {kind!r} is neither {FORMAT!r} nor {READ_FORMAT!r}")

    @classmethod
    def _decode_write(cls, rest: str) -> Report:
        parts = rest.split(_SEPARATOR, _PARTS - 2)
        if len(parts) != _PARTS - 1:
            raise MalformedReportError(f"{len(parts) + 1} parts, not {_PARTS}")
        collection, slot, value, position, n, flag, source = parts
        report = cls(_unescape(collection), int(slot), source, float(value), int(position), int(n), _FLAGS[flag])
        _check_source_and_value(source, report.value, "WCU")
        if report.slot < 0 or report.position < 0 or report.shard_count < 0:
            raise MalformedReportError("slot, position and shard count should not be negative")
        return report

    @classmethod
    def _decode_read(cls, rest: str) -> Report:
        parts = rest.split(_SEPARATOR, _READ_PARTS - 2)
        if len(parts) != _READ_PARTS - 1:
            raise MalformedReportError(f"{len(parts) + 1} parts, not {_READ_PARTS}")
        collection, slot, value, pages, source = parts
        report = cls(_unescape(collection), int(slot), source, float(value), pages=float(pages))
        _check_source_and_value(source, report.value, "RCU")
        if report.slot < 0 or not 0 < report.pages <= MAX_VALUE:
            raise MalformedReportError(f"slot {slot} and pages {pages} are not within their ranges")
        return report


def _check_source_and_value(source: str, value: float, unit: str) -> None:
    if not 0 < value <= MAX_VALUE:  # NaN is not, either
        raise MalformedReportError(f"value {value} is not within 0 and {MAX_VALUE:g} {unit}")
    if not 0 < len(source) <= MAX_SOURCE_LENGTH:
        raise MalformedReportError(f"source has {len(source)} characters; 1 to {MAX_SOURCE_LENGTH} are allowed")


def _escape(collection: str) -> str:
    if "|" not in collection and "%" not in collection:
        return collection
    return collection.replace("%", "%25").replace("|", "%7C")


def _unescape(text: str) -> str:
    return text.replace("%7C", "|").replace("%25", "%") if "%" in text else text


def stream_partition_of(collection: str, partitions: int) -> int:
    """Choose the stream of a collection: all its reports are in one, so one reader sees its whole load."""
    digest = hashlib.blake2b(collection.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % partitions
