"""How several stream consumers divide the report streams between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from hotpartition.core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Share:
    """One consumer's share of the streams: stream p belongs to share p mod `count`.

    A collection has one stream, so one consumer sees all of its load, however many consumers there are.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def decode(cls, event: Mapping[str, object]) -> Self:
        """Read the share from the event that starts a consumer; without one, it is all streams.

        Raises:
            InvalidRequestError: there is no such share.
        """
        match event.get("share"):
            case None:
                return cls()
            case {"index": int(index), "count": int(count)} if 0 <= index < count:
                return cls(index, count)
            case other:
                raise InvalidRequestError.of("share", f"should be an index below its count, not {other!r}")

    def encode(self) -> dict[str, int]:
        """Write the share as the event has it."""
        return {"index": self.index, "count": self.count}

    @property
    def is_first(self) -> bool:
        """Whether its consumer does the work that only one of them should do."""
        return self.index == 0

    @property
    def is_whole(self) -> bool:
        """Whether there is no other share."""
        return self.count == 1

    def partitions(self, stream_partitions: int) -> range:
        """List its streams."""
        return range(self.index, stream_partitions, self.count)


WHOLE = Share()


def list_shares(consumers: int) -> tuple[Share, ...]:
    """List the shares of all `consumers`."""
    return tuple(Share(index, consumers) for index in range(consumers))
