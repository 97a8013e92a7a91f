"""Finds out from stored keys which generations a route must have had: for a journal that was lost. Pure.

An item on shard i, chosen by a hash, says which N it may have been written under: those that have shard i among its
choices. Many items of one N leave no other. Where several are left, one is enough: it is there that reads look. So
the generations that are found are a set under which each item is found, if not always those that there were.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.core.route import Generation, Route, choose_shards

SAMPLE_ITEMS = 48
"""How many items that no generation explains yet are looked at together."""
PROOF_ITEMS = 8
"""This many items distinguish an N from all larger ones: among its multiples, each item halves the odds. A divisor of N
may explain as many, where they lie on few shards."""


class _Item(NamedTuple):
    hashed: str | None
    shard_index: int
    position: int


class RouteEvidence:
    """Collects what the stored keys of one collection prove about its route."""

    def __init__(self, known: Route) -> None:
        self._known = known
        self._eras = sorted({close.at_ms for close in known.closes}, reverse=True)
        self._since: dict[tuple[int, int], int] = {}
        """By era (where it begins) and N: from where on."""
        for generation in known.generations:
            self._add(generation.shard_count, generation.since_ms)
        self._unexplained: list[_Item] = []
        self._unhashed: list[_Item] = []
        self._next_look = SAMPLE_ITEMS

    def meet(self, shard_index: int, *, hashed: str | None, position: int) -> None:
        """Take in an item on a shard.

        `hashed` is the text that chose its shard; None: reads of the item ask all shards anyway.
        """
        item = _Item(hashed, shard_index, position)
        era = self._era_of(position)
        if not any(
            begins == era and since <= position and _may_hold(count, item)
            for (begins, count), since in self._since.items()
        ):
            (self._unhashed if hashed is None else self._unexplained).append(item)
            if len(self._unhashed) == SAMPLE_ITEMS:
                self._explain_unhashed()
            if len(self._unexplained) >= self._next_look:
                self._explain(PROOF_ITEMS)
                self._next_look = len(self._unexplained) + SAMPLE_ITEMS

    def conclude(self) -> frozenset[Generation]:
        """Return the generations that the route lacks, so that all items are found."""
        self._explain(0)
        self._explain_unhashed()
        found = frozenset(Generation(since, count) for (_, count), since in self._since.items())
        return found - self._known.generations

    def _explain_unhashed(self) -> None:
        """Explain items that are looked for on all shards: there must be as many as these lie on."""
        most = max((item.shard_index for item in self._unhashed), default=0)
        for item in self._unhashed:
            self._add(most + 1, item.position)
        self._unhashed = []

    def _explain(self, least: int) -> None:
        """Explain the unexplained items, by as few N as can be: the one that explains most comes first.

        An N that explains fewer items than `least` waits for more items, which distinguish it from others.
        """
        while self._unexplained:
            odds: Counter[int] = Counter()
            for item in self._unexplained:
                odds.update(n for n in range(item.shard_index + 1, MAX_SHARD_COUNT + 1) if _may_hold(n, item))
            # An item that no N explains was put there by hand: it is on pages, if its shard is read.
            is_proven = max(odds.values(), default=0) >= PROOF_ITEMS
            known = {count for _, count in self._since}
            count = max(odds, key=lambda n: (odds[n], n in known, n if is_proven else -n), default=0)
            if odds[count] < least:
                return
            count = count or 1 + max(item.shard_index for item in self._unexplained)
            is_foreign = not odds
            explained = [item for item in self._unexplained if is_foreign or _may_hold(count, item)]
            for item in explained:
                self._add(count, item.position)
            self._unexplained = [item for item in self._unexplained if item not in explained]

    def _add(self, count: int, since: int) -> None:
        key = self._era_of(since), count
        self._since[key] = min(since, self._since.get(key, since))

    def _era_of(self, position: int) -> int:
        """Return the last close up to a position, announced ones included: they may be confirmed yet."""
        return next((at_ms for at_ms in self._eras if at_ms <= position), 0)


def _may_hold(shard_count: int, item: _Item) -> bool:
    if item.hashed is None:
        return item.shard_index < shard_count
    return item.shard_index < shard_count and item.shard_index in choose_shards(item.hashed, shard_count)
