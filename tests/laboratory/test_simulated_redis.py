"""Redis as the simulator has it: what fails, what is forgotten, and what comes back."""

from random import Random

import pytest

from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.route import Generation
from hotpartition.redis.registry import RedisRegistry
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


@pytest.mark.parametrize(
    ("strike", "left"),
    [(lambda node: node.fail_over(1.0), {FIRST}), (lambda node: node.empty(), set())],
    ids=["failover", "emptied"],
)
def test_what_a_node_forgets(engine, server, strike, left):
    """A failover forgets what was written in the lost time; what is older comes back with the replica."""
    registry = RedisRegistry(connect(server), "t")

    def work():
        registry.add("c", [FIRST])
        engine.sleep(10.0)
        registry.add("c", [SECOND])
        before = registry.get("c").generations
        strike(server.nodes[0])
        return before, registry.get("c").generations

    assert run(engine, work) == ({FIRST, SECOND}, left)


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
