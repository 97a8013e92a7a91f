"""Reports: what environments tell the consumer through the stream, and how an entry is read back.

Entry fields (all text), a format shared by all versions that may run at once:

| field | meaning |
|---|---|
| `f` | format, `1` |
| `c` | conversation id |
| `s` | slot: Unix time in ms of the environment's clock, divided by 250, rounded down |
| `e` | source: the environment, or a part of it, that counted |
| `v` | value: what this source counted of this conversation in this slot, up to sampling, in WCU |
| `t` | the sampled message's time, Unix ms |
| `n` | the N it was placed under; 0 is the base key |
| `x` | `1` when the write was throttled, else `0` |

A write whose report is already sent when the put is throttled is reported again with `x` = 1 and the same value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from hotpartition.errors import InvalidConversationIdError, MalformedReportError
from hotpartition.keys import parse_conversation_id

FORMAT = "1"
MAX_VALUE_WCU = 1e6
MAX_SOURCE_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Report:
    """One sampled crossing (design.md, section 6)."""

    conversation_id: str
    slot: int
    source: str
    value_wcu: float
    message_time_ms: int
    shard_count: int
    is_throttled: bool = False

    def encode(self) -> dict[str, str]:
        """Build the stream entry's fields."""
        return {
            "f": FORMAT,
            "c": self.conversation_id,
            "s": str(self.slot),
            "e": self.source,
            "v": repr(self.value_wcu),
            "t": str(self.message_time_ms),
            "n": str(self.shard_count),
            "x": "1" if self.is_throttled else "0",
        }

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Report:
        """Parse a stream entry.

        Raises:
            MalformedReportError: saying what is wrong with it.
        """
        if fields.get("f") != FORMAT:
            raise MalformedReportError(f"format {fields.get('f')!r} is not {FORMAT!r}")
        try:
            report = cls(
                conversation_id=parse_conversation_id(fields["c"]),
                slot=int(fields["s"]),
                source=fields["e"],
                value_wcu=float(fields["v"]),
                message_time_ms=int(fields["t"]),
                shard_count=int(fields["n"]),
                is_throttled={"0": False, "1": True}[fields["x"]],
            )
        except KeyError as error:
            raise MalformedReportError(f"field or value {error} is missing or unknown") from error
        except (ValueError, InvalidConversationIdError) as error:
            raise MalformedReportError(str(error)) from error
        report._check_ranges()
        return report

    def _check_ranges(self) -> None:
        if not (isfinite(self.value_wcu) and 0 < self.value_wcu <= MAX_VALUE_WCU):
            raise MalformedReportError(f"value {self.value_wcu} is not within 0 and {MAX_VALUE_WCU:g} WCU")
        if not 0 < len(self.source) <= MAX_SOURCE_LENGTH:
            raise MalformedReportError(
                f"source has {len(self.source)} characters; 1 to {MAX_SOURCE_LENGTH} are allowed"
            )
        if self.slot < 0 or self.message_time_ms < 0 or self.shard_count < 0:
            raise MalformedReportError("slot, message time and shard count should not be negative")


def stream_partition_of(conversation_id: str, partitions: int) -> int:
    """Choose the stream of a conversation: all its reports are in one, so one reader sees its whole load."""
    digest = hashlib.blake2b(conversation_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % partitions
