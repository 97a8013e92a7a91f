"""Ten thousand reads a second of one product of the example's catalogue, on the library's own parts."""

import runpy
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from botocore.config import Config

from hotpartition.core.freshness import CacheLimits
from hotpartition.engine.read_cache import ReadCache
from hotpartition.redis.pages import RedisPageStore
from support.landing import Landing
from support.tables import define_table
from tools.limits import Partitions
from tools.world.product import World
from tools.world.scenario import Scenario

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "catalogue" / "index.py"
ENVIRONMENTS, READS_PER_SECOND = 50, 10_000
PRODUCT = {"id": {"S": "product:42"}, "name": {"S": "a lamp"}, "price": {"N": "19.90"}, "text": {"S": "x" * 3_000}}


def open_cache(world, index, *, has_redis):
    """Build what one environment has for its cache, as `ReadCache(seconds=1)` builds it for a process."""

    def timer():
        return world.engine.now

    kept = ReadCache(
        codec=None,
        limits=CacheLimits(ttl_ms=1_000, bound_ms=3_000),
        telemetry=world.meter,
        clock=world.clock(world.random(f"environment {index}")),
        timer=timer,
        environment_id=f"{index:032x}",
        new_event=lambda: Landing(world.engine),
    )
    store = RedisPageStore(world.connect(30), "shop", world.meter, timer) if has_redis else None
    return SimpleNamespace(view=lambda codec, _=None: kept.view(codec, store))


def play(world, plain, *, has_redis, seconds=4.0):
    """Let environments show the product; return what they got, and requests a second after the first one."""
    engine, random, served = world.engine, world.random("shop"), []

    def show(catalogue):
        while engine.now < began + seconds:
            engine.sleep(random.expovariate(READS_PER_SECOND / ENVIRONMENTS))
            engine.spawn(lambda: served.append(catalogue.show("product:42")))

    build = runpy.run_path(str(EXAMPLE))["Catalogue"]
    catalogues = [build(plain, open_cache(world, index, has_redis=has_redis)) for index in range(ENVIRONMENTS)]
    for catalogue in catalogues:
        # Its table is described first: tasks may not wait for each other's description.
        engine.run_to_end(partial(catalogue.show_basket, []), 1.0)
    began = engine.now
    for catalogue in catalogues:
        engine.spawn(partial(show, catalogue))
    engine.run_until(began + 1.0)
    before = world.store.counts_of("shop").operations
    engine.run_until(began + seconds)
    return served, (world.store.counts_of("shop").operations - before) / (seconds - 1)


@pytest.mark.parametrize(("has_redis", "most"), [(True, 4), (False, 65)])
def test_a_few_reads_serve_a_product(aws_environment, has_redis, most):
    """Nothing is refused, although a partition has 3,000 RCU/s."""
    scenario = Scenario(name="shop", seconds=4.0, onset=0, table=Partitions(count=1))
    world = World(1, scenario)
    world.store.dynamodb.call("CreateTable", {"TableName": "products", **define_table("id")})
    world.store.dynamodb.call("PutItem", {"TableName": "products", "Item": PRODUCT}, now=-60.0)
    plain = boto3.resource("dynamodb", config=Config(retries={"total_max_attempts": 1})).Table("products")
    stop_watching = world.store.watch(plain.meta.client, "shop")
    try:
        served, reads = play(world, plain, has_redis=has_redis)
    finally:
        stop_watching()
        world.engine.close()
    assert {item["name"] for item in served} == {"a lamp"}
    assert len(served) > 0.9 * 4.0 * READS_PER_SECOND
    assert 0 < reads <= most
