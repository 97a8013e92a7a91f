"""`CoalescingCounter`: sums that are flushed in time, kept when they are refused, and counted once."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from hotpartition.core.errors import InvalidRequestError, StoreUnavailableError, ThrottledError
from hotpartition.table import CoalescingCounter
from support.fakes import FakeClock


class Counted:
    """What is flushed, with a token's exactness; `fails` are raised by the next calls, after they counted or not."""

    def __init__(self):
        self.calls = []
        self.sums = {}
        self.tokens = {}
        self.fails = []

    def add(self, key, amount=1, token=None):
        self.calls.append((key, amount, token))
        failure, is_counted = self.fails.pop(0) if self.fails else (None, True)
        if is_counted and token not in self.tokens:
            self.tokens[token] = amount
            self.sums[key] = self.sums.get(key, 0) + amount
        if failure is not None:
            raise failure


THROTTLED = (ThrottledError(), False)
LOST = (StoreUnavailableError("no response"), True)


@pytest.fixture
def counted():
    return Counted()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def build(counted, clock):
    """Builds counters whose thread flushes when `ticks` is told to, and closes them."""
    made = []

    def build(**options):
        options = {"wait": lambda event, _: event.wait(60), "environ": {}, "clock": clock.as_clock(), **options}
        made.append(CoalescingCounter(counted, **options))
        return made[-1]

    yield build
    for each in made:
        each.close()


def test_additions_are_summed_up(build, counted):
    """One request for each key; what sums up to nothing needs none."""
    counter = build()
    for amount in (1, 2, 3):
        counter.add("a", amount)
    counter.add("b")
    counter.add("c", 5)
    counter.add("c", -5)
    assert counted.calls == []
    assert counter.flush()
    assert counted.sums == {"a": 6, "b": 1}
    assert counter.flush()
    assert len(counted.calls) == 2


def test_a_hundred_additions_are_flushed_at_once(build, counted):
    """By who makes the last of them."""
    counter = build()
    for _ in range(99):
        counter.add("a")
    assert counted.calls == []
    counter.add("a")
    assert counted.sums == {"a": 100}


def test_a_thread_flushes_each_interval(build, counted):
    """100 ms by default; it is told the interval to wait for, and ends when it is closed."""
    waits, flushed = [], Event()

    def wait(event, seconds):
        waits.append(seconds)
        if len(waits) > 1:
            flushed.set()
            return event.wait(60)
        return False

    counter = build(wait=wait)
    counter.add("a", 7)
    assert flushed.wait(60)
    assert counted.sums == {"a": 7}
    assert set(waits) == {0.1}
    counter.close()
    counter._thread.join(60)
    assert not counter._thread.is_alive()


def test_a_refused_flush_keeps_its_amounts(build, counted):
    """It is tried again as it was; what came meanwhile goes behind it."""
    counter = build()
    counter.add("a", 5)
    counted.fails = [THROTTLED]
    assert not counter.flush()
    counter.add("a", 2)
    assert not counter.flush()
    assert counter.flush()
    assert [amount for _, amount, _ in counted.calls] == [5, 5, 2]
    assert counted.sums == {"a": 7}


def test_a_lost_response_counts_once(build, counted):
    """The same token until it is confirmed, and another for the next batch."""
    counter = build()
    counter.add("a", 5)
    counted.fails = [LOST, LOST]
    assert not counter.flush()
    assert not counter.flush()
    assert counter.flush()
    counter.add("a", 5)
    counter.flush()
    assert counted.sums == {"a": 10}
    assert len({token for _, _, token in counted.calls}) == 2


def test_what_was_never_confirmed_is_given_up_before_its_token_ends(build, counted, clock, caplog):
    counter = build()
    counter.add("a", 5)
    counted.fails = [LOST] * 3
    assert not counter.flush()
    clock.now_ms += 539_999
    assert not counter.flush()
    clock.now_ms += 1
    assert counter.flush()
    assert "given up" in caplog.text
    assert counted.sums == {"a": 5}


def test_what_can_never_be_counted_is_dropped(build, counted, caplog):
    """A key that is none does not hold up the others."""
    counter = build()
    counter.add("", 1)
    counter.add("a", 1)
    counted.fails = [(InvalidRequestError.of("PK", "is none"), False)]
    assert counter.flush()
    assert counted.sums == {"a": 1}
    assert "cannot be counted" in caplog.text


def test_it_flushes_at_the_end_of_a_with(build, counted):
    with build() as counter:
        counter.add("a", 3)
    assert counted.sums == {"a": 3}
    with pytest.raises(RuntimeError, match="closed"):
        counter.add("a")


def test_closing_flushes_what_waits_behind_a_refused_batch(build, counted):
    counter = build()
    counter.add("a", 5)
    counted.fails = [LOST]
    counter.flush()
    counter.add("a", 2)
    counter.close()
    assert counted.sums == {"a": 7}


def test_what_is_lost_at_the_end_is_logged(build, counted, caplog):
    counter = build()
    counter.add("a", 5)
    counted.fails = [THROTTLED] * 2
    counter.close()
    assert "additions were lost" in caplog.text
    assert caplog.records[-1].lost == {"a": 5}


@pytest.mark.slow
def test_it_is_flushed_at_exit():
    """Of the interpreter, though nobody closed it."""
    program = (
        "from hotpartition.table import CoalescingCounter\n"
        "class Printed:\n"
        "    def add(self, key, amount, token): print(key, amount)\n"
        "counter = CoalescingCounter(Printed(), interval_seconds=60, environ={})\n"
        "counter.add('a', 4)\n"
    )
    environ = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("a 4\n", "")


def test_threads_lose_nothing(build, counted):
    """Eight of them, and flushes by all."""
    counter = build(max_additions=10)

    def work(_):
        for _ in range(500):
            counter.add("a")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    counter.close()
    assert counted.sums == {"a": 4_000}


def test_it_is_refused_in_lambda(counted, monkeypatch):
    """By the process's variables, or those that are given; the error says what to use."""
    with pytest.raises(RuntimeError, match=r"Lambda function work, .*Use ShardedCounter itself"):
        CoalescingCounter(counted, environ={"AWS_LAMBDA_FUNCTION_NAME": "work"})
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "mine")
    with pytest.raises(RuntimeError, match="Lambda function mine"):
        CoalescingCounter(counted)


@pytest.mark.parametrize("options", [{"interval_seconds": 0}, {"max_additions": 0}])
def test_other_limits_are_refused(counted, options):
    with pytest.raises(ValueError, match="interval_seconds should be more than 0, and max_additions at least 1"):
        CoalescingCounter(counted, environ={}, **options)


@pytest.mark.parametrize("amount", [1.5, "1", None, True])
def test_other_amounts_are_refused_at_once(build, amount):
    with pytest.raises(InvalidRequestError, match="whole number"):
        build().add("a", amount)
