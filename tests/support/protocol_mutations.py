"""The product with its routing protocol broken on purpose, in the ways of the routing proof (`tests/model`).

Each way is a list of methods, by their class and name, and what takes their place while a test runs.
"""

from hotpartition.core.merge import PageMerge
from hotpartition.core.ports import Got
from hotpartition.core.route import EMPTY_ROUTE, Placement, Route
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.engine.writer import Writer
from hotpartition_messages import Message

for_write, refused = RegistryRoutes.for_write, RegistryRoutes.refused
needed, next_queries = PageMerge._needed, PageMerge.next_queries
try_choices, get, replace = Writer._try_choices, Gatherer._get, DynamoDBItemStore.replace


def take_hint(routes, collection):
    return routes.for_read(collection).route


def take_hint_when_refused(routes, collection):
    refused(routes, collection)
    return take_hint(routes, collection)


def learn_nothing(_, collection, shown, *, hint=None, is_strong=False):
    return EMPTY_ROUTE


def leave_out_base_key(merge, route, edge):
    """Look at shards only, once there are any."""
    base_key, *shard_keys = needed(merge, route, edge)
    return tuple(shard_keys) or (base_key,)


class ReversedRoute(Route):
    """Takes the generations with since >= t."""

    def shard_count_at(self, position):
        reached = (g for g in self.generations if position is None or g.since_ms >= position)
        return max((g.shard_count for g in reached), default=0)

    def most_shards_between(self, first, last):
        return self.shard_count_at(last)


def ask_reversed(merge, route):
    return next_queries(merge, ReversedRoute(route.generations))


def reversing(look_up):
    """Reverse what a writer finds out."""
    return lambda routes, collection: ReversedRoute(look_up(routes, collection).generations)


def ask_for_the_present(merge, route):
    """Where there is no upper bound, take the present, by a clock that is as late as a raise reaches back."""
    now_ms = merge.present - 5_000

    class PresentRoute(Route):
        def most_shards_between(self, first, last):
            return super().most_shards_between(first, now_ms if last is None else last)

    return next_queries(merge, PresentRoute(route.generations))


def choose_outside(writer, write):
    """Take the shard after the last one that the route has for a message's first choice."""
    shard_count = write.placements[0].shard_count
    if shard_count:
        outside = Placement(f"{write.key.collection}#{shard_count}", shard_count)
        write.placements = (outside, *write.placements[1:])
        write.untried = [outside]
    return try_choices(writer, write)


def get_first_choices(gatherer, places, budget, *, is_strong, journals_of):
    """Take what a point read's first request did not find for absent."""
    if not journals_of:
        return Got((), {})
    return get(gatherer, places, budget, is_strong=is_strong, journals_of=journals_of)


@property
def lively_rank(message):
    """Do not let a tombstone, nor a higher version, win over another copy."""
    return message.deleted_at is not None, message.version, message.sender, message.body


def replace_whatever_is_there(store, replacements):
    return replace(store, [each if each.expected is None else each._replace(expected={}) for each in replacements])


TRUSTING = [(RegistryRoutes, "for_write", take_hint), (RegistryRoutes, "refused", take_hint_when_refused)]
MUTATIONS = {
    "a writer trusts Redis": TRUSTING,
    "reader without verification": [(RegistryRoutes, "learn", learn_nothing)],
    "no base key": [(PageMerge, "_needed", leave_out_base_key)],
    "time bound reversed": [
        (PageMerge, "next_queries", ask_reversed),
        (RegistryRoutes, "for_write", reversing(for_write)),
        (RegistryRoutes, "refused", reversing(refused)),
    ],
    "t2 is the present": [(PageMerge, "next_queries", ask_for_the_present)],
    "a choice outside of the shards": [(Writer, "_try_choices", choose_outside)],
    "first choices only": [(Gatherer, "_get", get_first_choices)],
}
CHANGE_MUTATIONS = {
    "a tombstone does not win": [(Message, "rank", lively_rank)],
    "an edit without its condition": [(DynamoDBItemStore, "replace", replace_whatever_is_there)],
}
"""Edits and deletions broken on purpose: what was deleted or changed comes back."""


def break_product(patch, replaced):
    """Let what is broken take the place of the product's methods."""
    for owner, name, broken in replaced:
        patch.setattr(owner, name, broken)
