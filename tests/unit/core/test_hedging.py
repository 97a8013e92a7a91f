"""Hedged requests, only the slow ones and only within the budget; and keys that refused of late.

It has a transport with a clock of its own, so that a race between attempts is a script of one line.
"""

from math import inf

import pytest

from hotpartition.core.errors import StoreUnavailableError
from hotpartition.core.hedging import MAX_SAVED_HEDGES, MIN_LATENCIES, HedgePolicy, run_round
from hotpartition.core.refusals import RecentRefusals
from hotpartition.core.route import Placement

FAILED = StoreUnavailableError("failed")


def policy(quantile=0.95, latency=0.001, count=200):
    """A policy with experience."""
    subject = HedgePolicy(quantile=quantile)
    for _ in range(count):
        subject.record(latency)
    return subject


def test_the_delay_follows_recent_latencies():
    """Slower than 95 % of the recent ones; unknown until there are some."""
    subject = HedgePolicy(quantile=0.95)
    for i in range(1, MIN_LATENCIES):
        subject.record(i / 1000)
        assert subject.delay_seconds() is None
    for i in range(1, 301):
        subject.record(i / 1000)
    assert subject.delay_seconds() == pytest.approx(0.288, abs=0.002)


class Transport:
    """Attempts that take as long as a script says, on a clock of their own; what fails is an error in the script."""

    def __init__(self, *script):
        self.script = [list(attempts) for attempts in script]
        self.now, self.most = 0.0, 0
        self.under_way = {}

    def start(self, attempt):
        seconds, result = self.script[attempt.call].pop(0)
        self.under_way[attempt] = (self.now + seconds, result)
        self.most = max(self.most, len(self.under_way))

    def wait(self, timeout_seconds):
        until = inf if timeout_seconds is None else self.now + timeout_seconds
        self.now = min([until, *[ends_at for ends_at, _ in self.under_way.values()]])
        ended = [attempt for attempt, (ends_at, _) in self.under_way.items() if ends_at <= self.now < until]
        results = [(attempt, self.under_way.pop(attempt)[1]) for attempt in ended]
        for _, result in results:
            if isinstance(result, ZeroDivisionError):
                raise result
        return results

    def abandon(self, attempt):
        self.under_way.pop(attempt, None)


def run(transport, *, parallel=17, subject=None):
    return run_round(len(transport.script), transport, timer=lambda: transport.now, parallel=parallel, policy=subject)


TWO_ANSWERS = [[(9.0, number), (9.0, number)] for number in range(17)]
TWO_ARE_LATE = [[(9.0, number), (0.002, number)] if number < 2 else [(0.001, number)] for number in range(17)]


@pytest.mark.parametrize(
    ("script", "results", "hedges", "ends_at"),
    [
        # The round does not wait for the slow one.
        ([[(0.001, "a")], [(9.0, "late"), (0.002, "soon")]], ["a", "soon"], 1, 0.012),
        # What fails waits for the other attempt, and is the result where that fails as well, or there is only one.
        ([[(1.0, "good"), (0.1, FAILED)]], ["good"], 1, 1.0),
        ([[(0.1, FAILED), (0.2, "good")]], ["good"], 1, 0.21),
        ([[(1.0, FAILED), (0.1, FAILED)]], [FAILED], 1, 1.0),
        ([[(0.001, FAILED)], [(0.001, "b")]], [FAILED, "b"], 0, 0.001),
        # Of two that end at once one counts.
        ([[(0.02, "first"), (0.01, "hedge")], [(0.5, "b"), (9.0, "late")]], ["first", "b"], 2, 0.5),
        # A round that is late as a whole spends nothing: the next straggler needs the budget.
        (TWO_ANSWERS, [*range(17)], 0, 9.0),
        (TWO_ARE_LATE, [*range(17)], 2, 0.012),
    ],
)
def test_what_takes_too_long_is_asked_again(script, results, hedges, ends_at):
    """More than 10 ms. The first response is taken; what is under way then is given up."""
    transport = Transport(*script)
    assert run(transport, subject=policy(latency=0.01)) == (results, hedges)
    assert transport.now == pytest.approx(ends_at)
    assert transport.under_way == {}


def test_a_result_that_came_while_the_thread_was_busy_is_read_before_it_is_asked_for_again():
    class Busy(Transport):
        def wait(self, timeout_seconds):
            began = self.now
            ended = super().wait(timeout_seconds)
            self.now = max(began, self.now) + 1.0
            return ended

    transport = Busy([(0.001, "a")], [(0.002, "b"), (9.0, "needless")])
    assert run(transport, subject=policy(latency=0.01)) == (["a", "b"], 0)


def test_responses_teach_the_policy_and_refusals_do_not():
    """A refusal comes fast. What was given up took at least as long as it was waited for."""
    subject = HedgePolicy(quantile=0.5)
    run(Transport(*[[(0.001, FAILED)]] * MIN_LATENCIES), subject=subject)
    assert subject.delay_seconds() is None
    run(Transport(*[[(0.010, "good")]] * MIN_LATENCIES), parallel=MIN_LATENCIES, subject=subject)
    assert subject.delay_seconds() == pytest.approx(0.010)
    subject = policy(latency=0.1, count=MIN_LATENCIES)
    run(Transport([(9.0, "late"), (0.3, "soon")]), subject=subject)
    assert sorted(subject._latencies)[-2:] == pytest.approx([0.3, 0.4])


def test_no_more_run_at_once_than_allowed():
    """But for hedges, which come on top; the delay counts from when a call begins."""
    transport = Transport(*[[(0.02, n)] for n in range(8)])
    assert run(transport, parallel=3, subject=policy(latency=0.05)) == (list(range(8)), 0)
    assert transport.most == 3


def test_the_budget_bounds_what_is_asked_twice():
    """A twentieth over any longer time, and a few that were saved up."""
    subject = policy(count=10_000)
    rounds = [run(Transport(*[[(9.0, n), (9.0, n)] for n in range(2)]), subject=subject) for _ in range(4)]
    assert [results for results, _ in rounds] == [[0, 1]] * 4
    assert sum(hedges for _, hedges in rounds) == MAX_SAVED_HEDGES


def test_what_is_raised_ends_the_round():
    transport = Transport([(0.1, ZeroDivisionError())], [(9.0, "late")])
    with pytest.raises(ZeroDivisionError):
        run(transport)
    assert transport.under_way == {}


PLACEMENTS = tuple(Placement(f"c#{index}", 8) for index in (5, 1, 2))


def test_what_refused_comes_last_until_it_is_forgotten():
    """Several keep their order."""
    refusals = RecentRefusals(ttl_ms=1_000)
    refusals.add("c#5", 0)
    assert refusals.order(PLACEMENTS, 999) == [PLACEMENTS[1], PLACEMENTS[2], PLACEMENTS[0]]
    refusals.add("c#1", 500)
    assert refusals.order(PLACEMENTS, 999) == [PLACEMENTS[2], PLACEMENTS[0], PLACEMENTS[1]]
    assert refusals.order(PLACEMENTS, 1_000) == [PLACEMENTS[0], PLACEMENTS[2], PLACEMENTS[1]]
    assert refusals.order(PLACEMENTS, 1_500) == list(PLACEMENTS)


def test_the_oldest_is_forgotten_first():
    """Memory does not grow with the number of keys."""
    refusals = RecentRefusals(max_keys=2)
    for key in ("c#5", "c#1", "c#5", "c#2"):
        refusals.add(key, 0)
    assert refusals.order(PLACEMENTS, 0) == [PLACEMENTS[1], PLACEMENTS[0], PLACEMENTS[2]]
