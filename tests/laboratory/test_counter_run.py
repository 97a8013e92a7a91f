"""Counters under all faults, and in a rush: right as they are, and found out when they are broken on purpose."""

from dataclasses import replace

import pytest

from hotpartition.core.route import stable_hash
from hotpartition.engine.counters import Adder, Summer
from tools.history import Finding
from tools.scenarios.counter_faults import judge, run_rush, run_tokens
from tools.world.product import Parts

pytestmark = pytest.mark.slow

FEW = 400


@pytest.fixture(scope="module")
def run():
    """A seed in which a cancelled transaction binds its token."""
    return run_tokens(1, additions=FEW)


@pytest.fixture(scope="module")
def rush():
    """A fiftieth of the real one."""
    return run_rush(1, per_second=200.0)


def test_every_addition_counts_once(run):
    """And something was at stake: raises, repetitions, bound tokens, late requests and lost responses."""
    assert run.breaches == ()
    assert run.attempts > run.additions
    assert min(run.reads, run.raises, len(run.shard_counts)) > 1
    struck = {"answered IdempotentParameterMismatchException", "late", "lost answer", "server error"}
    assert {f"dynamodb {name}" for name in struck} <= dict(run.faults).keys()


def test_under_the_other_reading_as_well():
    """A cancelled transaction leaves its token free in even seeds."""
    assert run_tokens(2, additions=FEW).breaches == ()


def test_a_seed_is_the_same_each_time(run):
    """To the last fault."""
    assert run_tokens(1, additions=FEW) == run


class PlacesInTokens(Adder):
    """Makes DynamoDB's token of the place, too: a repetition elsewhere is another transaction."""

    def __init__(self, writer, store, **options):
        super().__init__(writer, store, **options)
        self.once, self._store = store.add_once, self

    def add_once(self, *args, **options):
        if options:
            return super().add_once(*args, **options)
        place, addition = args
        return self.once(
            place, addition._replace(request_token=f"{addition.request_token[:20]}{stable_hash(place) % 10**9}")
        )


class NotLooking(Adder):
    """Takes a bound token for a counted addition, where a cancelled transaction binds it: additions are lost."""

    def _repeat_bound(self, collection, addition, budget):
        """Believe it."""


class TrustingSummer(Summer):
    """Trusts the routes in Redis, which loses some and gets others late: sums lack shards."""

    def __init__(self, gatherer, **options):
        super().__init__(gatherer, **options)
        gatherer._has_journal = False


@pytest.mark.parametrize(
    ("parts", "seeds"),
    [
        (Parts(adder=PlacesInTokens), (2, 4, 6)),
        (Parts(adder=NotLooking), (1, 3, 5)),
        (Parts(summer=TrustingSummer), (1, 2, 3)),
    ],
)
def test_a_broken_counter_is_found_out(parts, seeds):
    """In one of three seeds at the latest."""
    assert any(run_tokens(seed, parts, additions=FEW).breaches for seed in seeds)


def test_a_small_rush(rush):
    """Nothing is refused that is not hot, and the sum is right."""
    assert (rush.refused, rush.breaches, rush.shard_counts) == (0, (), ())
    assert rush.acknowledged == rush.offered == rush.value > 1_000
    assert 0.9 < rush.attempts_for_each_after < 1.1


def test_what_misses_the_bar(run, rush):
    """A wrong sum in one seed; an addition that was refused after the raise; a raise that never came."""
    raised = replace(rush, per_second=10_000.0, raised_seconds=1.0)
    enough = replace(run, persisted=2_000)
    assert judge({"tokens": [enough], "rush": [raised]}).passed
    wrong = replace(enough, breaches=(Finding("altered", "c", "sum", "41 in a read"),))
    assert not judge({"tokens": [wrong], "rush": [raised]}).passed
    assert not judge({"tokens": [run], "rush": [raised]}).passed
    for missed in (rush, replace(raised, refused_after=1), replace(raised, raised_seconds=None)):
        assert not judge({"tokens": [enough], "rush": [missed]}).passed
