"""The end of a demonstration: the hot conversation has cooled and is closed, and its newest page queries one key again.

The protocol's times are seconds here in place of minutes, and nothing else of it is changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tools.local.metering import SLOT_MS
from tools.play.verdict import is_key_of
from tools.play.watch import read_route
from tools.play.workload import Offer

if TYPE_CHECKING:
    from tools.play.run import Run

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


def choose_times(speed: float) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Choose the settings of closes, and their margin and pause, which are no settings; longer on a slow machine."""
    slowness = min(MOST_SLOWNESS, 1 / speed)
    settings = {"is_closing": True, "close_after_seconds": 3.0 * slowness, "lease_seconds": 2.0 * slowness}
    return settings, dict.fromkeys(("margin_ms", "pause_ms"), round(1_000 * slowness))


async def cool_down(run: Run) -> None:
    """Write a little until the hot conversation is closed, then a page more, and read that."""
    limit_wcu, deadline = run.plan.scale.partition_write_limit_wcu, run.now() + LONGEST_SECONDS
    while run.closed_at is None or run.now() <= run.closed_at:
        if run.now() > deadline:
            return
        await _write(run, min(QUIET_PER_SECOND, QUIET_SHARE * limit_wcu))
        run.closed_at = run.closed_at or await _find_close(run)
    for _ in range(PAGE_LIMIT + MORE):
        await _write(run, min(NEXT_PER_SECOND, NEXT_SHARE * limit_wcu))
    # Without Redis, an environment that has not read the conversation since learns of the close by its first page.
    for _ in range(MOST_PAGES):
        if run.keys_after_close != 1:
            run.keys_after_close = await _count_keys(run)


async def _write(run: Run, per_second: float) -> None:
    await run.writer.write(Offer(0.0, run.name, "ada", f"after the rush, {run.now()}"))
    await asyncio.sleep(1 / per_second)


async def _find_close(run: Run) -> float | None:
    route = read_route(await run.control.routing_item(run.name))
    if route.shard_count_at(None):
        return None  # not closed, or raised since
    return max((close.at_ms / 1000 for close in route.closes if close.is_confirmed), default=None)


async def _count_keys(run: Run) -> int:
    """Read the newest page, strongly consistent so that no cache has it, and count the keys that were read."""
    await asyncio.sleep(SETTLE_SECONDS)
    began_ms = run.now() * 1000
    await run.reader.read(run.name, order="newest", consistency="strong", limit=PAGE_LIMIT, most_pages=1)
    await asyncio.sleep(SETTLE_SECONDS)
    loads = await run.control.list_loads(since_ms=began_ms - SLOT_MS)
    return len({row.key for row in loads if row.reads and is_key_of(row.key, run.name)})
