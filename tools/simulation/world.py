"""The outside of a run: a table, DynamoDB in front of it, and Redis."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tools.partition_model import Table
from tools.simulation.engine import Engine
from tools.simulation.redis_model import RedisServer
from tools.simulation.scenarios import Scenario
from tools.simulation.store import Observer, Store
from tools.simulation.wiring import EPOCH_MS, TABLE_NAME, Parts, World


def build_world(
    engine: Engine,
    scenario: Scenario,
    seed: int,
    parts: Parts,
    *,
    observer: Observer,
    on_report: Callable[[], None],
    seeds: str = "",
) -> World:
    """Build what all functions of a run share; `seeds` goes before the names of the sources of chance."""
    prefix = f"{seed}/{seeds}"
    table = Table(scenario.table, Random(f"{prefix}table"))
    store = Store(
        engine,
        table,
        table_name=TABLE_NAME,
        random=Random(f"{prefix}store"),
        observer=observer,
        epoch_ms=EPOCH_MS,
    )
    redis = RedisServer(
        engine, epoch_ms=EPOCH_MS, nodes=scenario.redis_nodes, random=Random(f"{prefix}redis"), on_report=on_report
    )
    return World(
        engine=engine,
        seed=seed,
        table=table,
        store=store,
        redis=redis,
        settings=scenario.settings,
        parts=parts,
        skew_ms=scenario.faults.skew_ms if scenario.faults else 0.0,
    )


def charge_others(world: World, wcu: float, every_seconds: float) -> None:
    """Charge the table with other traffic from now on, `wcu` units a second on all its partitions alike."""

    def charge() -> None:
        world.table.write_evenly(wcu * every_seconds, world.engine.now, every_seconds)
        world.engine.after(every_seconds, charge)

    world.engine.after(every_seconds, charge)
