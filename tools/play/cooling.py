"""The end of a demonstration: the hot conversation has cooled and is closed, and its newest page queries one key again.

The protocol's times are seconds here in place of minutes, and nothing else of it is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.local.metering import SLOT_MS
from tools.play.verdict import is_key_of
from tools.play.watch import look_at_parts, read_route
from tools.play.workload import Offer

if TYPE_CHECKING:
    from tools.play.run import Playing

MOST_SLOWNESS = 3.0
LONGEST_SECONDS = 120.0
"""How long a close is waited for, on any machine."""
PAGE_LIMIT = 20
MORE = 4
"""A page looks one message further, to know whether it is the last."""
MOST_PAGES = 8
QUIET_PER_SECOND, NEXT_PER_SECOND = 2.0, 8.0
QUIET_SHARE, NEXT_SHARE = 0.1, 0.4
"""Messages written while it is waited for, and behind the close; at most as large a share of what a partition takes."""
SETTLE_SECONDS = 2 * SLOT_MS / 1000


def close_settings(speed: float) -> Mapping[str, Any]:
    """Build the settings of closes: seconds in place of minutes, more of them on a slow machine."""
    slowness = min(MOST_SLOWNESS, 1 / speed)
    return {"is_closing": True, "close_after_seconds": 3.0 * slowness, "lease_seconds": 2.0 * slowness}


def close_times(speed: float) -> Mapping[str, int]:
    """Build the margin and the pause of closes, which are no settings."""
    return dict.fromkeys(("margin_ms", "pause_ms"), round(1_000 * min(MOST_SLOWNESS, 1 / speed)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooled:
    """How a conversation was closed: the time from which on it holds (seconds since the epoch), None: it was not.

    `keys` is how many partition keys its newest page queried behind that.
    """

    closed_at: float | None = None
    keys: int | None = None


NOT_CLOSED = Cooled()


async def cool_down(playing: Playing) -> Cooled:
    """Write a little until the hot conversation is closed, then a page more, and read that."""
    limit_wcu = playing.plan.scale.partition_write_limit_wcu
    deadline = playing.now() + LONGEST_SECONDS
    closed_at: float | None = None
    while closed_at is None or playing.now() <= closed_at:
        if playing.now() > deadline:
            return Cooled(closed_at=closed_at)
        await _write(playing, min(QUIET_PER_SECOND, QUIET_SHARE * limit_wcu))
        closed_at = closed_at or await _find_close(playing)
    for _ in range(PAGE_LIMIT + MORE):
        await _write(playing, min(NEXT_PER_SECOND, NEXT_SHARE * limit_wcu))
    keys = await _count_keys(playing)
    # Without Redis, an environment that has not read the conversation since learns of the close by its first page.
    for _ in range(MOST_PAGES - 1):
        keys = keys if keys == 1 else await _count_keys(playing)
    return Cooled(closed_at=closed_at, keys=keys)


async def _write(playing: Playing, per_second: float) -> None:
    await playing.writer.write(Offer(0.0, playing.hot_conversation, "ada", f"after the rush, {playing.now()}"))
    await asyncio.sleep(1 / per_second)


async def _find_close(playing: Playing) -> float | None:
    route = read_route(await playing.control.routing_item(playing.hot_conversation))
    if route.shard_count_at(None):
        return None  # not closed, or raised since
    return max((close.at_ms / 1000 for close in route.closes if close.is_confirmed), default=None)


async def _count_keys(playing: Playing) -> int:
    """Read the newest page, strongly consistent so that no cache has it, and count the keys that were read."""
    await asyncio.sleep(SETTLE_SECONDS)
    began_ms, name = playing.now() * 1000, playing.hot_conversation
    await playing.reader.read(name, order="newest", consistency="strong", limit=PAGE_LIMIT, most_pages=1)
    await asyncio.sleep(SETTLE_SECONDS)
    await look_at_parts(playing.control, playing.seen)
    late = (row for row in playing.seen.timeline() if row.at_ms >= began_ms - SLOT_MS and row.reads)
    return len({row.key for row in late if is_key_of(row.key, name)})
