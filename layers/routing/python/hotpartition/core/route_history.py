"""The history of a route: the cause of each raise, kept beside its generations for operators. Pure.

A routing item's string set `raises` has one short member for each raise, about 45 bytes:

    <shard count>@<since, Unix ms> <decided at, Unix s> <reason>[ rate=<WCU/s>][ by=<name>]

Nothing on the request path reads it: it is for people, and routing ignores it. A member that cannot be read is left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from hotpartition.core.errors import MalformedGenerationError
from hotpartition.core.route import Generation

BY_HAND = "by-hand"
"""Reason of a raise that an operator asked for."""
AHEAD_OF_JOURNAL = "registry-ahead-of-journal"
"""Reason of a generation that only the registry knew."""

MAX_NAME_LENGTH = 64
NAME_RULE = f"1 to {MAX_NAME_LENGTH} characters out of A-Z a-z 0-9 _ . : @ / + = , -"
NAME_PATTERN = rf"^[A-Za-z0-9_.:@/+=,-]{{1,{MAX_NAME_LENGTH}}}$"

_CAUSE = re.compile(r"(?P<reason>\S+)(?: rate=(?P<rate>[0-9]{1,12}))?(?: by=(?P<by>\S+))?")
_MAX_SECONDS = 253_402_300_799  # the end of 9999, the last that can be shown


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a route was raised: a word, the load that decided (WCU/s), and the operator that asked for it."""

    reason: str
    rate_wcu_per_second: int | None = None
    by: str | None = None

    def encode(self) -> str:
        """Build the stored text."""
        rate = "" if self.rate_wcu_per_second is None else f" rate={self.rate_wcu_per_second}"
        return f"{self.reason}{rate}{'' if self.by is None else f' by={self.by}'}"

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse a stored text; one of another form is a reason as a whole."""
        match = _CAUSE.fullmatch(text)
        if match is None:
            return cls(text)
        return cls(match["reason"], None if match["rate"] is None else int(match["rate"]), match["by"])


@dataclass(frozen=True, slots=True)
class Raise:
    """One generation and the decision that made it, as known to a second."""

    generation: Generation
    decided_at_ms: int
    cause: Cause

    def encode(self) -> str:
        """Build the stored member."""
        return f"{self.generation.encode()} {self.decided_at_ms // 1000} {self.cause.encode()}"

    @classmethod
    def decode(cls, member: str) -> Raise | None:
        """Parse a stored member; None for anything else."""
        generation, _, rest = member.partition(" ")
        seconds, _, cause = rest.partition(" ")
        if not (seconds.isascii() and seconds.isdecimal() and len(seconds) <= len(str(_MAX_SECONDS)) and cause):
            return None
        try:
            return cls(Generation.decode(generation), min(int(seconds), _MAX_SECONDS) * 1000, Cause.decode(cause))
        except MalformedGenerationError:
            return None


def encode_raises(generations: Iterable[Generation], *, cause: Cause, now_ms: int) -> list[str]:
    """Build the members that adding these generations leaves behind."""
    return sorted({Raise(generation, now_ms, cause).encode() for generation in generations})


def decode_raises(members: Iterable[str]) -> tuple[Raise, ...]:
    """Parse stored members, in the order of their decisions; unreadable ones are left out."""
    known = [record for member in members if (record := Raise.decode(member)) is not None]
    return tuple(sorted(known, key=lambda record: (record.decided_at_ms, record.generation, record.cause.encode())))
