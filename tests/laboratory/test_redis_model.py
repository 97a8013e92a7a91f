"""Redis as the simulator has it: what fails, what is forgotten, and what comes back."""

from random import Random

import pytest

from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.route import Generation
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import RedisReportSource
from tools.world.clock import Engine
from tools.world.redis import RedisServer, SimulatedConnection

FIRST, SECOND = Generation(since_ms=5, shard_count=2), Generation(since_ms=7, shard_count=4)


@pytest.fixture
def engine():
    return Engine()


@pytest.fixture
def server(engine):
    return RedisServer(engine, nodes=1, random=Random(1))


def connect(server):
    return SimulatedConnection(server, timeout_ms=30, cooldown_ms=1000)


def run(engine, work):
    """Run work as a task, to its end."""
    results = []
    engine.spawn(lambda: results.append(work()))
    engine.run_until(engine.now + 60.0)
    return results[0]


def test_a_failover_forgets_the_last_writes(engine, server):
    """What was written in the lost time is gone, what is older is there."""
    registry = RedisRegistry(connect(server), "t")

    def work():
        registry.add("c", [FIRST])
        engine.sleep(10.0)
        registry.add("c", [SECOND])
        before = registry.get("c").generations
        server.nodes[0].fail_over(1.0)
        return before, registry.get("c").generations

    assert run(engine, work) == ({FIRST, SECOND}, {FIRST})


def test_an_emptied_node_knows_nothing(engine, server):
    """Its routes are gone."""
    registry = RedisRegistry(connect(server), "t")

    def work():
        registry.add("c", [FIRST])
        known = bool(registry.get("c"))
        server.nodes[0].empty()
        return known, bool(registry.get("c"))

    assert run(engine, work) == (True, False)


@pytest.mark.parametrize(("is_hanging", "seconds"), [(False, 0.001), (True, 0.06)])
def test_a_dead_node_fails_after_its_timeout_and_is_then_left_alone(engine, server, is_hanging, seconds):
    """The first call costs a refusal or two timeouts, the next one nothing."""
    registry = RedisRegistry(connect(server), "t")
    server.nodes[0].is_hanging, server.nodes[0].is_down = is_hanging, not is_hanging

    def fail():
        began = engine.now
        with pytest.raises(RegistryUnavailableError):
            registry.get("c")
        return round(engine.now - began, 6)

    assert run(engine, lambda: (fail(), fail())) == (seconds, 0.0)


def test_a_lost_command_may_have_run(engine, server):
    """A command without a response has sometimes taken effect, and sometimes not."""
    server.lost = 1.0
    connection = SimulatedConnection(server, timeout_ms=30, cooldown_ms=0)
    registry = RedisRegistry(connection, "t")
    key_of = {f"c{i}": Generation(since_ms=i, shard_count=2) for i in range(20)}

    def work():
        for conversation, generation in key_of.items():
            with pytest.raises(RegistryUnavailableError):
                registry.add(conversation, [generation])
        server.lost = 0.0
        return sum(bool(registry.get(conversation)) for conversation in key_of)

    assert 0 < run(engine, work) < len(key_of)


def test_a_stream_is_read_on_from_an_id(engine, server):
    """Entries come in their order, each once, whatever their instant."""
    source = RedisReportSource(connect(server), "t")
    key = "hp:t:reports:{0}"

    def add(number):
        server.do("XADD", key, "*", "r", str(number))

    def work():
        add(1)
        add(2)
        first = source.read(0, "0-0", 10)
        add(3)
        second = source.read(0, first[-1].entry_id, 10)
        return [e.text for e in first], [e.text for e in second]

    assert run(engine, work) == (["1", "2"], ["3"])
