"""Ten thousand reads a second of one product of the example's catalogue, on the library's own parts."""

import runpy
from functools import cache, partial
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from hotpartition.core.freshness import CacheLimits
from hotpartition.engine.read_cache import ReadCache
from hotpartition.redis.pages import RedisPageStore
from support.landing import Landing
from support.tables import define_table
from tools.limits import Partitions
from tools.world.clock import Engine
from tools.world.network import Observer
from tools.world.product import World
from tools.world.scenario import Scenario

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "catalogue" / "index.py"
ENVIRONMENTS, READS_PER_SECOND = 50, 10_000
PRODUCT = {"id": {"S": "product:42"}, "name": {"S": "a lamp"}, "price": {"N": "19.90"}, "text": {"S": "x" * 3_000}}


@cache
def resource():
    session = boto3.Session("simulated", "simulated", region_name="eu-central-1")
    return session.resource("dynamodb", config=Config(retries={"total_max_attempts": 1}))


class Shop:
    """Environments around one table of one partition, and what they asked DynamoDB for."""

    def __init__(self, *, has_redis):
        self.engine, self.has_redis = Engine(), has_redis
        table = Partitions(count=1)
        scenario = Scenario(name="shop", seconds=4.0, onset=0, table=table)
        self.world = World(self.engine, 1, scenario, observer=Observer())
        self.random = self.world.random("shop")
        self.plain = resource().Table("products")
        self.world.store.dynamodb.call("CreateTable", {"TableName": "products", **define_table("id")})
        self.world.store.dynamodb.call("PutItem", {"TableName": "products", "Item": PRODUCT}, now=-60.0)
        self.stop_watching = self.world.store.watch(self.plain.meta.client, "shop")
        self.counts = self.world.store.counts_of("shop")

    def open(self, index):
        """Build what one environment has for its cache."""
        telemetry, engine = self.world.telemetry, self.engine

        def timer():
            return engine.now

        kept = ReadCache(
            codec=None,
            limits=CacheLimits(ttl_ms=1_000, bound_ms=3_000),
            telemetry=telemetry,
            clock=self.world.clock(self.world.random(f"environment {index}")),
            timer=timer,
            environment_id=f"{index:032x}",
            new_event=lambda: Landing(engine),
        )
        connection = self.world.connect(30)
        store = RedisPageStore(connection, "shop", telemetry, timer) if self.has_redis else None
        return type("Given", (), {"view": lambda _, codec, other=None: kept.view(codec, store)})()

    def catalogue(self, index):
        """Build an environment's catalogue, its table described: tasks may not wait for each other's description."""
        catalogue = runpy.run_path(str(EXAMPLE))["Catalogue"](self.plain, self.open(index))
        self.engine.run_to_end(partial(catalogue.show_basket, []), 1.0)
        return catalogue

    def close(self):
        self.stop_watching()
        self.engine.close()


@pytest.fixture
def shop(request):
    shop = Shop(has_redis=request.param)
    yield shop
    shop.close()


def play(shop, seconds=4.0):
    """Let environments show the product; return what they got, and requests a second after the first one."""
    served = []

    def work(catalogue):
        while shop.engine.now < began + seconds:
            shop.engine.sleep(shop.random.expovariate(READS_PER_SECOND / ENVIRONMENTS))
            shop.engine.spawn(lambda: served.append(catalogue.show("product:42")))

    catalogues = [shop.catalogue(index) for index in range(ENVIRONMENTS)]
    began = shop.engine.now
    for catalogue in catalogues:
        shop.engine.spawn(partial(work, catalogue))
    shop.engine.run_until(began + 1.0)
    before = shop.counts.operations
    shop.engine.run_until(began + seconds)
    return served, (shop.counts.operations - before) / (seconds - 1)


@pytest.mark.parametrize(("shop", "most"), [(True, 4), (False, 65)], ids=["with Redis", "without"], indirect=["shop"])
def test_a_few_reads_serve_a_product(shop, most):
    """Nothing is refused, although a partition has 3,000 RCU/s."""
    served, reads = play(shop)
    assert {item["name"] for item in served} == {"a lamp"}
    assert len(served) > 0.9 * 4.0 * READS_PER_SECOND
    assert 0 < reads <= most
