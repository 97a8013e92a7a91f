"""Hedged requests: only the slow ones, only within the budget, and the first good answer wins."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from hotpartition.core.hedging import MAX_SAVED_HEDGES, MIN_LATENCIES, HedgePolicy, Hedger, RoundState

PATIENCE_SECONDS = 0.25
"""Longer than a busy machine needs to start a thread."""


@pytest.fixture
def pool():
    with ThreadPoolExecutor(12) as executor:
        yield executor


def policy(quantile=0.95, latency=0.001, count=200):
    """A policy with experience."""
    subject = HedgePolicy(quantile=quantile)
    for _ in range(count):
        subject.record(latency)
    return subject


def run(pool, calls, subject):
    with ThreadPoolExecutor(2) as hedges:
        return Hedger(subject, hedges, time.monotonic).run(pool, calls, is_failure=lambda r: r == "failed")


def test_a_slow_call_is_asked_again_and_the_first_answer_taken(pool):
    """The first attempt hangs until the test ends; the round does not wait for it."""
    released, attempts = Event(), []

    def slow_once():
        attempts.append(len(attempts))
        if len(attempts) == 1:
            assert released.wait(10)
            return "late"
        return "soon"

    results, hedges = run(pool, [lambda: "a", slow_once, lambda: "c"], policy(latency=PATIENCE_SECONDS))
    released.set()
    assert (results, hedges) == (["a", "soon", "c"], 1)


def test_a_failed_attempt_waits_for_the_other_one(pool):
    """The hedge fails at once; the first attempt's answer still counts."""
    released, attempts = Event(), []

    def slow_then_failing():
        attempts.append(len(attempts))
        if len(attempts) == 1:
            assert released.wait(10)
            return "good"
        released.set()
        return "failed"

    results, hedges = run(pool, [slow_then_failing, lambda: "b"], policy(latency=PATIENCE_SECONDS))
    assert (results, hedges) == (["good", "b"], 1)


def test_a_failure_without_another_attempt_is_the_result(pool):
    """Nobody waits for what is not under way."""
    assert run(pool, [lambda: "failed", lambda: "b"], policy(latency=PATIENCE_SECONDS)) == (["failed", "b"], 0)


def test_what_a_call_raises_is_raised(pool):
    """Bugs are not hidden."""

    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(pool, [broken], policy())


def test_what_waits_for_a_thread_is_not_slow():
    """The delay counts from when a call begins: a round wider than its threads is no reason to ask twice."""
    with ThreadPoolExecutor(1) as narrow:
        results, hedges = run(narrow, [lambda: time.sleep(0.02)] * 8, policy(latency=0.05))
    assert len(results) == 8
    assert hedges == 0


def test_refusals_do_not_count_as_latencies(pool):
    """A throttle is answered fast; the delay is about answers."""
    subject = HedgePolicy(quantile=0.95)
    run(pool, [lambda: "failed"] * 100, subject)
    assert subject.delay_seconds() is None


def test_hedges_add_at_most_a_twentieth():
    """Over any longer time, however slow everything is."""
    subject, spent = HedgePolicy(quantile=0.95), 0
    for _ in range(10_000):
        subject.record(1.0)
        spent += subject.try_spend()
    assert spent <= 0.05 * 10_000
    assert spent >= 0.05 * 10_000 - 1


def test_little_is_saved_up():
    """A long quiet time does not allow a burst of hedges."""
    subject = policy(count=100_000)
    assert sum(subject.try_spend() for _ in range(100)) == MAX_SAVED_HEDGES


def test_the_delay_follows_recent_latencies():
    """Slower than 95 % of the recent ones; unknown until there are some; never with hedging off."""
    subject = HedgePolicy(quantile=0.95)
    for i in range(1, MIN_LATENCIES):
        subject.record(i / 1000)
        assert subject.delay_seconds() is None
    for i in range(1, 301):
        subject.record(i / 1000)
    assert subject.delay_seconds() == pytest.approx(0.288, abs=0.002)
    assert policy(quantile=0.0).delay_seconds() is None


def test_without_experience_nothing_is_hedged(pool):
    """Everything is simply waited for."""
    assert run(pool, [lambda: 1, lambda: 2], HedgePolicy(quantile=0.95)) == ([1, 2], 0)


class TestRoundState:
    """One round on one thread: the same rules, with time as an argument."""

    def test_a_round_is_complete_with_its_last_result(self):
        """In the order of the calls, whatever the order of the answers."""
        state = RoundState(3, None)
        for index in range(3):
            state.begin(index, now=0.0)
        for index in (2, 0, 1):
            assert not state.is_complete
            state.end(index, f"r{index}", is_failure=False, seconds=0.01)
        assert (state.is_complete, state.results(), state.hedged) == (True, ["r0", "r1", "r2"], 0)

    def test_hedges_are_due_one_delay_after_each_call_begins(self):
        """Not before; each call at most once; and those that have their result, never."""
        state = RoundState(3, policy(latency=0.01))
        for index in range(3):
            state.begin(index, now=1.0 + index)
        state.end(1, "soon", is_failure=False, seconds=0.001)
        assert state.next_due() == pytest.approx(1.01)
        assert state.take_hedge(1.009) is None
        assert state.take_hedge(1.01) == 0
        state.begin(0, now=1.01)
        assert state.take_hedge(2.9) is None
        assert state.next_due() == pytest.approx(3.01)
        assert state.take_hedge(3.5) == 2
        assert (state.next_due(), state.hedged) == (None, 2)

    def test_a_failure_counts_only_without_another_attempt(self):
        """Whichever of the two fails first."""
        state = RoundState(1, policy())
        state.begin(0, now=0.0)
        assert state.take_hedge(9.0) == 0
        state.begin(0, now=9.0)
        state.end(0, "failed", is_failure=True, seconds=9.1)
        assert not state.is_settled(0)
        state.end(0, "failed too", is_failure=True, seconds=9.2)
        assert state.results() == ["failed too"]

    def test_the_first_answer_stays(self):
        """What comes later changes nothing."""
        state = RoundState(1, policy())
        state.begin(0, now=0.0)
        state.begin(0, now=1.0)
        state.end(0, "first", is_failure=False, seconds=1.5)
        state.end(0, "second", is_failure=False, seconds=1.6)
        assert state.results() == ["first"]

    def test_without_a_budget_nothing_more_is_due_in_the_round(self):
        """However slow the rest is."""
        subject = policy()
        while subject.try_spend():
            pass
        state = RoundState(2, subject)
        for index in range(2):
            state.begin(index, now=0.0)
        assert state.take_hedge(9.0) is None
        assert (state.next_due(), state.hedged) == (None, 0)

    def test_without_experience_or_policy_nothing_is_due(self):
        """As with threads."""
        for subject in (None, HedgePolicy(quantile=0.95), policy(quantile=0.0)):
            state = RoundState(1, subject)
            state.begin(0, now=0.0)
            assert (state.next_due(), state.take_hedge(99.0)) == (None, None)

    def test_answers_teach_the_policy_and_refusals_do_not(self):
        """What was given up took at least as long as it was waited for."""
        subject = HedgePolicy(quantile=0.5)
        state = RoundState(3 * MIN_LATENCIES, subject)
        for index in range(3 * MIN_LATENCIES):
            state.begin(index, now=0.0)
        for index in range(MIN_LATENCIES):
            state.end(index, "failed", is_failure=True, seconds=0.001)
        assert subject.delay_seconds() is None
        for index in range(MIN_LATENCIES, 2 * MIN_LATENCIES):
            state.end(index, "good", is_failure=False, seconds=0.010)
        assert subject.delay_seconds() == pytest.approx(0.010)
        for index in range(2 * MIN_LATENCIES, 3 * MIN_LATENCIES):
            state.abandon(index, seconds=0.5)
        assert subject.delay_seconds() == pytest.approx(0.5)
