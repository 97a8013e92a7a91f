"""The engine: time, order, blocking, freezing and death."""

import pytest

from tools.world.clock import Engine, Process, SimulatedExecutor, wait_for


@pytest.fixture
def engine():
    return Engine()


def test_events_of_one_instant_keep_their_order(engine):
    """What was planned first happens first."""
    log = []
    for name in "abc":
        engine.at(1.0, lambda name=name: log.append(name))
    engine.run_until(1.0)
    assert log == ["a", "b", "c"]


def test_a_call_hands_its_error_over(engine):
    """What the effect raises is raised where the response is awaited."""

    def fail():
        raise KeyError("gone")

    caught = []

    def work():
        try:
            engine.call(1.0, fail, 1.0)
        except KeyError as error:
            caught.append((str(error), engine.now))

    engine.spawn(work)
    engine.run_until(5.0)
    assert caught == [("'gone'", 2.0)]


def test_a_bug_in_a_task_ends_the_run(engine):
    """What no task should raise comes out of the loop."""

    def work():
        engine.sleep(1.0)
        raise ZeroDivisionError

    engine.spawn(work)
    with pytest.raises(ZeroDivisionError):
        engine.run_until(5.0)


def test_only_tasks_can_block(engine):
    """Blocking outside of any task is refused, not a deadlock."""
    with pytest.raises(RuntimeError, match="only a task can block"):
        engine.sleep(1.0)


def test_a_frozen_process_goes_on_at_its_thaw(engine):
    """A frozen task's sleep ends when it is thawed, though its request was on its way all the same."""
    process, log = Process(), []

    def work():
        engine.call(1.0, lambda: log.append(("sent", engine.now)), 1.0)
        log.append(("responded", engine.now))

    engine.spawn(work, process)
    engine.at(0.5, lambda: engine.freeze(process))
    engine.at(7.0, lambda: engine.thaw(process))
    engine.run_until(10.0)
    assert log == [("sent", 1.0), ("responded", 7.0)]


def test_a_dead_process_never_goes_on(engine):
    """A killed task hears of nothing, and what it had sent still happens."""
    process, log = Process(), []

    def work():
        engine.call(1.0, lambda: log.append("sent"), 1.0)
        log.append("responded")

    engine.spawn(work, process)
    engine.at(0.5, lambda: engine.kill(process))
    engine.run_until(10.0)
    assert log == ["sent"]
    assert process.is_idle


def test_an_executor_runs_so_many_at_a_time(engine):
    """The third piece of work waits for one of two workers."""
    executor, ended = SimulatedExecutor(engine, None, 2), []

    def sleep(seconds):
        engine.sleep(seconds)
        return seconds, engine.now

    def work():
        futures = [executor.submit(sleep, seconds) for seconds in (3.0, 1.0, 2.5)]
        ended.extend(future.result() for future in futures)

    engine.spawn(work)
    engine.run_until(10.0)
    assert ended == [(3.0, 3.0), (1.0, 1.0), (2.5, 3.5)]


def test_waiting_ends_with_the_first_or_in_time(engine):
    """Of several futures the first one is reported, or none when time is up before."""
    executor, seen = SimulatedExecutor(engine, None, 2), []

    def work():
        futures = [executor.submit(engine.sleep, seconds) for seconds in (3.0, 2.0)]
        for timeout in (1.0, None):
            done, rest = wait_for(engine, futures, timeout)
            seen.append((engine.now, [futures.index(f) for f in done], len(rest)))

    engine.spawn(work)
    engine.run_until(10.0)
    assert seen == [(1.0, [], 2), (2.0, [1], 1)]


def test_a_cancelled_call_never_runs(engine):
    """What waits for a worker can be taken back."""
    executor, ran = SimulatedExecutor(engine, None, 1), []

    def work():
        executor.submit(engine.sleep, 1.0)
        assert executor.submit(ran.append, "second").cancel()

    engine.spawn(work)
    engine.run_until(5.0)
    assert ran == []
