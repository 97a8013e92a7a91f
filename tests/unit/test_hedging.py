"""Hedged requests: only the slow ones, only within the budget, and the first good answer wins."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from hotpartition.hedging import MAX_SAVED_HEDGES, MIN_LATENCIES, HedgePolicy, Hedger

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
    assert run(pool, [lambda: "failed", lambda: "b"], policy()) == (["failed", "b"], 0)


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
