"""The product with its routing protocol broken on purpose, in the ways of the routing proof (`tests/model`)."""

from hotpartition.core.merge import PageMerge
from hotpartition.core.ports import Got
from hotpartition.core.route import EMPTY_ROUTE, Placement, Route
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.engine.writer import Writer
from hotpartition_messages import Message
from tools.world.product import Parts


class TrustingRoutes(RegistryRoutes):
    """Takes Redis's word for a route, for writers too."""

    def for_write(self, collection):
        return self.for_read(collection).route

    def refused(self, collection):
        super().refused(collection)
        return self.for_read(collection).route


class UnverifyingGatherer(Gatherer):
    """Takes Redis's word for the route."""

    def __init__(self, **parts):
        super().__init__(**parts)
        self.routes.learn = lambda collection, shown, *, hint=None, is_strong=False: EMPTY_ROUTE


class MergingGatherer(Gatherer):
    """Merges pages in another way, see `merge_type`."""

    merge_type = PageMerge

    def _plan_page(self, page_range, is_shown):
        merge = self.merge_type(page_range, self._form, self._position_of, is_shown=is_shown)
        merge.now_ms = self._clock.now_ms()
        return merge


class MergeWithoutBaseKey(PageMerge):
    """Looks at shards only, once there are any."""

    def _needed(self, route, edge):
        base_key, *shard_keys = super()._needed(route, edge)
        return tuple(shard_keys) or (base_key,)


class ReversedRoute(Route):
    """Takes the generations with since >= t."""

    def shard_count_at(self, position):
        reached = (g for g in self.generations if position is None or g.since_ms >= position)
        return max((g.shard_count for g in reached), default=0)

    def most_shards_between(self, first, last):
        return self.shard_count_at(last)


class ReversingMerge(PageMerge):
    """Plans pages by a reversed route."""

    def next_queries(self, route):
        return super().next_queries(ReversedRoute(route.generations))


class ReversedRoutes(RegistryRoutes):
    """Gives writers reversed routes to place by."""

    def for_write(self, collection):
        return ReversedRoute(super().for_write(collection).generations)

    def refused(self, collection):
        return ReversedRoute(super().refused(collection).generations)


class PresentMerge(PageMerge):
    """Takes the present, by a clock that is as late as a raise reaches back, where there is no upper bound."""

    def next_queries(self, route):
        now_ms = self.now_ms - 5_000

        class PresentRoute(Route):
            def most_shards_between(self, first, last):
                return super().most_shards_between(first, now_ms if last is None else last)

        return super().next_queries(PresentRoute(route.generations))


class OutsideWriter(Writer):
    """Takes the shard after the last one that the route has for a message's first choice."""

    def _try_choices(self, write):
        shard_count = write.placements[0].shard_count
        if shard_count:
            outside = Placement(f"{write.key.collection}#{shard_count}", shard_count)
            write.placements = (outside, *write.placements[1:])
            write.untried = [outside]
        return super()._try_choices(write)


class FirstChoicesGatherer(Gatherer):
    """Takes what a point read's first request did not find for absent."""

    def _get(self, places, budget, *, is_strong, journals_of):
        if not journals_of:
            return Got((), {})
        return super()._get(places, budget, is_strong=is_strong, journals_of=journals_of)


def merging(merge_type):
    """Build a gatherer that merges in its own way."""
    return type(merge_type.__name__ + "Gatherer", (MergingGatherer,), {"merge_type": merge_type})


class LivelyMessage(Message):
    """Does not let a tombstone, nor a higher version, win over another copy."""

    @property
    def rank(self):
        return self.deleted_at is not None, self.version, self.sender, self.body


class CarelessStore(DynamoDBItemStore):
    """Replaces what is stored, whatever it has become."""

    def replace(self, replacements):
        return super().replace([each if each.expected is None else each._replace(expected={}) for each in replacements])


MUTATIONS = {
    "a writer trusts Redis": Parts(routes=TrustingRoutes),
    "reader without verification": Parts(gatherer=UnverifyingGatherer),
    "no base key": Parts(gatherer=merging(MergeWithoutBaseKey)),
    "time bound reversed": Parts(gatherer=merging(ReversingMerge), routes=ReversedRoutes),
    "t2 is the present": Parts(gatherer=merging(PresentMerge)),
    "a choice outside of the shards": Parts(writer=OutsideWriter),
    "first choices only": Parts(gatherer=FirstChoicesGatherer),
}

CHANGE_MUTATIONS = {
    "a tombstone does not win": (Parts(message=LivelyMessage), ("resurrected", "undone")),
    "an edit without its condition": (Parts(store=CarelessStore), ("resurrected", "undone")),
}
"""Edits and deletions broken on purpose, and the breaches of which the history check finds one."""
