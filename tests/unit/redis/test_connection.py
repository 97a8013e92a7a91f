"""One node's failure is that node's: the others are asked on."""

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.redis.cluster import RedisConnection


class Node:
    def __init__(self, name):
        self.name = name


class TwoNodes:
    """A cluster of two: keys that begin with `a` are on the first node, which is away."""

    def __init__(self):
        self.asked = []

    def get_node_from_key(self, key):
        return Node(key[0])

    def get(self, key):
        self.asked.append(key)
        if key.startswith("a"):
            raise RedisConnectionError("away")
        return "value"


@pytest.fixture
def connection():
    clock = [0.0]
    subject = RedisConnection(
        host="redis",
        port=6379,
        is_tls=False,
        connect_timeout_ms=50,
        command_timeout_ms=30,
        cooldown_ms=1_000,
        now_ms=lambda: clock[0],
    )
    subject._client = TwoNodes()
    subject.clock = clock
    return subject


def ask(connection, key):
    return connection.call(key, lambda client: client.get(key))


def test_a_failed_node_rests_and_the_others_serve(connection):
    """A consumer that polls four streams goes on with those of the healthy nodes."""
    for _ in range(3):
        with pytest.raises(RegistryUnavailableError):
            ask(connection, "a1")
        assert ask(connection, "b1") == "value"
    assert connection._client.asked == ["a1", "b1", "b1", "b1"]


def test_after_its_cooldown_a_node_is_tried_again(connection):
    for now in (0, 999, 1_000, 1_500, 2_000):
        connection.clock[0] = now
        with pytest.raises(RegistryUnavailableError):
            ask(connection, "a1")
    assert connection._client.asked == ["a1"] * 3
