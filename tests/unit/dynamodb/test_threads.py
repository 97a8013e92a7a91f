"""Rounds on threads: only the slow calls are asked again, only within the budget, and the first good response wins."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from hotpartition.core.hedging import HEDGE_CONNECTIONS, MIN_LATENCIES, HedgePolicy
from hotpartition.dynamodb.calls import Call
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.errors import StoreUnavailableError

PATIENCE_SECONDS = 0.25
"""Longer than a busy machine needs to start a thread."""
FAILED = StoreUnavailableError("failed")


def response(text):
    return {"text": text}


def responses(*texts):
    return [response(text) for text in texts]


def fail():
    raise FAILED


def policy(latency=0.001):
    """A policy with experience."""
    subject = HedgePolicy(quantile=0.95)
    for _ in range(10 * MIN_LATENCIES):
        subject.record(latency)
    return subject


def run(functions, subject, parallel=12, *, is_hedged=True):
    """Run a round whose calls are these functions."""

    def call(operation, request):
        return functions[request["index"]]()

    executor = ThreadPoolExecutor(parallel + HEDGE_CONNECTIONS)
    calls = ThreadedCalls(call, executor, parallel=parallel, policy=subject)
    try:
        return calls.call_many([Call("Query", {"index": n}) for n in range(len(functions))], is_hedged=is_hedged)
    finally:
        executor.shutdown(wait=False)  # what still hangs ends after the round


def test_a_slow_call_is_asked_again_and_the_first_response_taken():
    """The first attempt hangs until the test ends; the round does not wait for it."""
    released, attempts = Event(), []

    def slow_once():
        attempts.append(len(attempts))
        if len(attempts) == 1:
            assert released.wait(10)
            return response("late")
        return response("soon")

    results, hedges = run([lambda: response("a"), slow_once, lambda: response("c")], policy(latency=PATIENCE_SECONDS))
    released.set()
    assert (results, hedges) == (responses("a", "soon", "c"), 1)


def test_a_failed_attempt_waits_for_the_other_one():
    """The hedge fails at once; the first attempt's response still counts."""
    released, attempts = Event(), []

    def slow_then_failing():
        attempts.append(len(attempts))
        if len(attempts) == 1:
            assert released.wait(10)
            return response("good")
        released.set()
        raise FAILED

    results, hedges = run([slow_then_failing, lambda: response("b")], policy(latency=PATIENCE_SECONDS))
    assert (results, hedges) == (responses("good", "b"), 1)


def test_a_failure_without_another_attempt_is_the_result():
    """Nobody waits for what is not under way."""
    assert run([fail, lambda: response("b")], policy(latency=PATIENCE_SECONDS)) == ([FAILED, response("b")], 0)


def test_what_a_call_raises_is_raised():
    """Bugs are not hidden."""

    def broken():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run([broken], policy())


def test_what_waits_for_a_thread_is_not_slow():
    """The delay counts from when a call begins: a round wider than its threads is no reason to ask twice."""
    results, hedges = run([lambda: time.sleep(0.02)] * 8, policy(latency=0.05), parallel=1)
    assert len(results) == 8
    assert hedges == 0


def test_refusals_do_not_count_as_latencies():
    """A throttle comes fast; the delay is about responses."""
    subject = HedgePolicy(quantile=0.95)
    run([fail] * 100, subject)
    assert subject.delay_seconds() is None


def test_without_experience_nothing_is_hedged():
    """Everything is simply waited for."""
    assert run([lambda: response("a"), lambda: response("b")], HedgePolicy(quantile=0.95)) == (responses("a", "b"), 0)


def test_nothing_is_asked_twice_where_that_is_not_wanted():
    """With a policy or without one."""
    for subject, is_hedged in ((policy(), False), (None, True)):
        assert run([lambda: time.sleep(0.05)] * 3, subject, is_hedged=is_hedged).hedged == 0
