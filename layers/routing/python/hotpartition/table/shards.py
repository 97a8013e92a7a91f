"""How many shards a partition key has: the first axis of a `ShardedTable`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hotpartition.core.backoff import Clock
from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.core.route import MAX_CHOICES, Generation, Route
from hotpartition.table.routes import FixedRoutes
from hotpartition.table.schema import Schema


@dataclass(frozen=True, slots=True)
class Fixed:
    """As many shards for every partition key as the code says."""

    route: Route
    """All generations that items may have been written under."""
    written: Route
    """Those that new items are written under."""
    choices: int = 1

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> FixedRoutes:
        """Build the routes of a table, whichever it is."""
        del table
        return FixedRoutes(
            self.route, self.written, choices=self.choices, form=schema.form, clock=clock, budget_ms=budget_ms
        )


def fixed(*shards: int | tuple[int, int], choices: int = 1, readable: int = 0) -> Fixed:
    """Spread every partition key over n shards. Needs no Redis and no deployment.

    The base key, without a suffix, is always read as well: a table that has items already needs no rewriting.

    More shards later: name all numbers that were ever used, `fixed(4, 16)`. With positions (`position=`), a number can
    hold from a position on, `fixed(4, (16, since))`: then reads of what is older ask fewer shards. A number is never
    lowered: what lies on the shards that it left out could not be found.

    Args:
        shards: the number of shards, at first and after each raise; each alone, or with the position since when.
        choices: how many of the shards may take one item: where its first one refuses, the next does.
        readable: a number that items are not written under yet, but read. For raising while instances of both versions
            run: `fixed(4, readable=16)` everywhere first, then `fixed(4, 16)`.

    Raises:
        ValueError: no number, one out of range, or one that is lower than one before.

    Example:
        >>> fixed(16)
    """
    pairs = [entry if isinstance(entry, tuple) else (entry, 0) for entry in shards]
    if not pairs:
        raise ValueError("fixed() needs the number of shards, for instance fixed(16)")
    for count, since in [*pairs, (readable or 1, 0)]:
        if not 1 <= count <= MAX_SHARD_COUNT:
            raise ValueError(f"{count} shards: should be from 1 to {MAX_SHARD_COUNT}")
        if since < 0:
            raise ValueError(f"since {since}: should be a position, 0 or more")
    if not 1 <= choices <= MAX_CHOICES:
        raise ValueError(f"choices={choices}: should be from 1 to {MAX_CHOICES}")
    if pairs != sorted(pairs) or [since for _, since in pairs] != sorted(since for _, since in pairs):
        raise ValueError(f"{pairs}: numbers of shards are only raised. Name all that were used, the oldest first")
    written = Route(frozenset(Generation(since, count) for count, since in pairs))
    more = Route(frozenset({Generation(0, readable)})) if readable else Route()
    return Fixed(written.union(more), written, choices)
