"""`ReadCache` on a real Redis: the fleet shares values, and does without Redis when it is killed."""

from decimal import Decimal

from hotpartition import ReadCache


def test_a_fleet_shares_what_one_process_loads(own_redis_server):
    """After Redis is killed, each process keeps its own values, and loads what it has not."""
    address = f"redis://127.0.0.1:{own_redis_server.port}"
    first, second, other = (
        ReadCache(seconds=60, redis=address, name=name) for name in ("products", "products", "other")
    )
    loads = []

    def load():
        loads.append({"name": "a lamp", "price": Decimal("19.90"), "tags": {"new"}, "stock": 3})
        return loads[-1]

    found = [cache.get("product:42", load=load) for cache in (first, second, second, other)]
    assert found == [loads[0]] * 3 + [loads[1]]
    assert [type(each["stock"]) for each in found] == [int] * 4
    own_redis_server.kill()
    assert second.get("product:42", load=load) == loads[0]
    assert len(loads) == 2
    assert [cache.get("product:43", load=load) for cache in (first, second)] == loads[2:]
