"""Listing the registry of a cluster with several nodes: one primary after the other, from any place on."""

from dataclasses import dataclass, field

from hotpartition.redis.listing import RedisRegistryListing
from support.builders import walk


@dataclass(frozen=True)
class Node:
    name: str


@dataclass
class FakeCluster:
    """Keys by node and page; SCAN's cursor is the number of the next page."""

    pages: dict[str, list[list[str]]]
    asked: list[tuple[str, int, str]] = field(default_factory=list)

    def get_primaries(self):
        return [Node(name) for name in self.pages]

    def scan(self, *, cursor, match, count, target_nodes):
        name = target_nodes.name
        self.asked.append((name, cursor, match))
        pages = self.pages[name]
        return {name: (cursor + 1) % len(pages)}, pages[cursor]

    def call(self, key, command):
        """Stand in for the connection as well."""
        return command(self)


def key(conversation_id):
    return f"hp:t:route:{{{conversation_id}}}"


def list_all(cluster, cursor=None):
    pages = walk(RedisRegistryListing(cluster, "t").page, cursor)
    return [id_ for page in pages for id_ in page]


def test_every_node_is_scanned_to_its_end():
    """Pages without any key included."""
    cluster = FakeCluster({"b:1": [[key("b1")], [], [key("b3")]], "a:1": [[key("a1"), key("a2")]], "c:1": [[]]})
    assert list_all(cluster) == ["a1", "a2", "b1", "b3"]
    assert [asked[:2] for asked in cluster.asked] == [("a:1", 0), ("b:1", 0), ("b:1", 1), ("b:1", 2), ("c:1", 0)]
    assert {asked[2] for asked in cluster.asked} == {"hp:t:route:{*}"}


def test_it_begins_again_when_the_node_is_gone():
    """SCAN's cursor means nothing on another node: some are listed twice rather than one not at all."""
    cluster = FakeCluster({"a:1": [[key("a1")], [key("a2")]], "c:1": [[key("c1")]]})
    assert list_all(cluster, '["b:1", 1]') == ["a1", "a2", "c1"]
    assert list_all(cluster, '["a:1", 1]') == ["a2", "c1"]
