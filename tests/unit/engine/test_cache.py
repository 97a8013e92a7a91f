"""The read cache: one load for the process and for the fleet, never an error of its own, never older than the bound.

Its timetables say to the millisecond what each process gets, where the drawn requests give bounds only; both need a
world of processes around one Redis.
"""

from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from math import inf
from random import Random
from types import SimpleNamespace
from weakref import ref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import MalformedPageError, RetryLaterError
from hotpartition.core.freshness import LEASE_MS, CacheLimits, choose_copy
from hotpartition.core.ports import StoredPage
from hotpartition.engine.read_cache import MAX_REMEMBERED, MAX_SHARED_BYTES, REFUSED_MS, Origin, ReadCache
from hotpartition.redis.cluster import page_key
from hotpartition.redis.pages import RedisPageStore
from support.fakes import KEY_RANGE_THROTTLE, FakeTelemetry
from support.landing import Landing
from tools.world.clock import Engine
from tools.world.redis import RedisServer, SimulatedConnection

LIMITS = CacheLimits(ttl_ms=1_000, bound_ms=3_000)
KEY, OTHER = ("c", "newest"), ("other", "newest")


def decode(text):
    if text.startswith("!"):
        raise MalformedPageError(text)
    return [text]


TEXT = SimpleNamespace(encode=lambda value: value[0], decode=decode, copy=list, size_bytes=lambda value: len(value[0]))
"""Values that are lists of one text; a text with `!` cannot be read."""


class Died(BaseException):
    """Ends a thread, as `SystemExit` does."""


class VirtualTime(Engine):
    """The simulator's engine. Requests to Redis take no time; with `random`, up to 60 ms there and back."""

    def __init__(self, random):
        super().__init__()
        self._random = random

    def draw(self, most_ms):
        """Draw how long something takes, in seconds: now and then nothing, or the most."""
        return self._random.choice((0, most_ms, self._random.randint(0, most_ms))) / 1_000

    def call(self, _, effect, __):
        out, back = (self.draw(60), self.draw(60)) if self._random else (0, 0)
        return super().call(out, effect, back)

    def delay(self, most_ms):
        self.sleep(self.draw(most_ms) if self._random else most_ms / 1_000)


class Pages(RedisPageStore):
    """The product's adapter; what is stored may be under way for long."""

    def __init__(self, world):
        connection = SimulatedConnection(world.redis, timeout_ms=60_000, cooldown_ms=0)
        super().__init__(connection, "t", world.telemetry, lambda: world.engine.now)
        self._world = world

    def put(self, *page):
        self._world.engine.delay(self._world.put_ms)
        super().put(*page)


class World:
    """Processes around one Redis. A value's text is when its load began. Without `random` nothing is left to chance.

    With it, a task gives way to others each time that it looks at the clock.
    """

    def __init__(self, random=None, **values):
        self.engine, self.telemetry = VirtualTime(random), FakeTelemetry()
        self.redis = RedisServer(self.engine, nodes=1, random=Random(1))
        self.load_ms, self.put_ms, self.size, self.loads = 20, 0, 0, 0
        self.is_refusing, self.refused_at_ms = False, -inf
        drawn = random.random if random else lambda: 0.0
        self.clock = Clock(now_ms=self.engine.now_ms, sleep=self.engine.sleep, random=drawn)
        self.random, self.values, self.processes = random, values, {}

    def process(self, name):
        if name in self.processes:
            return self.processes[name]
        parts = {"codec": TEXT, "limits": LIMITS, "telemetry": self.telemetry, "clock": self.clock, "timer": self.timer}
        parts |= {"store": Pages(self), "environment_id": name, "new_event": lambda: Landing(self.engine)}
        return self.processes.setdefault(name, ReadCache(**{**parts, **self.values}))

    def timer(self):
        if self.random:
            self.engine.sleep(0.0)
        return self.engine.now

    @property
    def now_ms(self):
        return round(self.engine.now * 1_000)

    def load(self, load_ms=None, *, dies=False):
        self.loads += 1
        began_ms, load_ms = self.now_ms, self.load_ms if load_ms is None else load_ms
        self.engine.sleep(load_ms / 2_000)
        if dies:
            raise Died
        self.engine.sleep(load_ms / 2_000)
        if self.is_refusing:
            self.refused_at_ms = self.now_ms
            raise KEY_RANGE_THROTTLE
        return [f"{began_ms}".ljust(self.size)], 4.0

    def get(self, name, load=None, *, is_together=False, **values):
        """Ask a process for the value, alone or with another one that is at hand."""
        known, load = self.process(name), load or self.load
        if not is_together:
            return known.get(KEY, load, **values)
        known.get(OTHER, lambda: (["other"], 1.0))
        loaded = {KEY: load, OTHER: lambda: (["other"], 1.0)}
        return known.get_many([KEY, OTHER], lambda keys: {key: loaded[key]() for key in keys})[KEY]

    def at(self, ms, work):
        self.engine.at(ms / 1_000, lambda: self.engine.spawn(work))

    def run(self):
        self.engine.run_until(inf)
        self.engine.close()

    def ask(self, name, **values):
        try:
            found = self.get(name, **values)
        except RetryLaterError as error:
            return type(error).__name__
        return f"{found.value[0].strip()} from {found.origin}, {round(found.age_ms, -1)} ms old"

    def happen(self, what):
        """Do what a line of a timetable says, and return what is seen."""
        for words, event in EVENTS.items():
            if what.startswith(words):
                return event(self, *what.removeprefix(words).split())
        name, _, remaining_ms = what.partition(" within ")
        return self.ask(name, remaining_ms=int(remaining_ms or 10_000))

    def die(self, name):
        with suppress(Died):
            self.get(name, lambda: self.load(dies=True))

    def lose_copy(self, name):
        self.redis.do("DEL", page_key("t", *KEY, choose_copy(name)))

    def store(self, text, _, age_ms):
        Pages(self).put(*KEY, StoredPage(text, self.engine.now_ms() - int(age_ms), 3_000, 20, 1.0))


EVENTS = {
    "a changes it": lambda world: world.process("a").forget(KEY[0]),
    "a dies": lambda world: world.die("a"),
    "a load takes": lambda world, ms: vars(world).update(load_ms=int(ms)),
    "a put takes": lambda world, ms: vars(world).update(put_ms=int(ms)),
    "somebody takes the lease": lambda world: Pages(world).take_lease(*KEY, LEASE_MS),
    "Redis goes": lambda world: vars(world.redis.nodes[0]).update(is_down=True),
    "Redis comes": lambda world: vars(world.redis.nodes[0]).update(is_down=False),
    "Redis is emptied": lambda world: world.redis.empty(),
    "Redis gets": World.store,
    "Redis loses the copy of": World.lose_copy,
    "DynamoDB refuses": lambda world: vars(world).update(is_refusing=True),
    "DynamoDB serves": lambda world: vars(world).update(is_refusing=False),
    "counted": lambda world, metric: f"{world.telemetry.counts[metric]:g}",
    "values have": lambda world, size, _: vars(world).update(size=int(size)),
    "together": lambda world, name: world.ask(name, is_together=True),
    "loads so far": lambda world: str(world.loads),
    "commands to Redis": lambda world: str(world.redis.commands),
}
TIMETABLES = {
    "one process loads for all, the others keep it in memory": """
        0 a: 0 from dynamodb, 20 ms old
        20 a: 0 from l1, 20 ms old
        120 b: 0 from redis, 120 ms old
        220 b: 0 from l1, 220 ms old
        300 counted PageFills: 1
        300 counted PagesFromDynamoDB: 1
        300 counted PagesFromRedis: 1
        300 counted PagesFromL1: 2
    """,
    "one process loads a stale value anew, the others get the last one meanwhile": """
        0 a: 0 from dynamodb, 20 ms old
        1000 a: 1000 from dynamodb, 20 ms old
        1010 a: 0 from l1, 1010 ms old
        1010 c: 0 from redis, 1010 ms old
        1270 c: 1000 from redis, 270 ms old
    """,
    "a process without a value waits for another one's": """
        0 a: 0 from dynamodb, 20 ms old
        5 b: 0 from redis, 20 ms old
    """,
    "it loads for itself once it has waited long enough, and stores that for no other one": """
        0 somebody takes the lease
        0 a: 90 from dynamodb, 20 ms old
        0 b within 5: 0 from dynamodb, 20 ms old
        120 c: 210 from dynamodb, 20 ms old
    """,
    "a process that was refused of late loads only with the lease": """
        0 DynamoDB refuses
        0 a: ThrottledError
        30 DynamoDB serves
        700 somebody takes the lease
        700 a: ThrottledError
        1000 somebody takes the lease
        1000 a: 1090 from dynamodb, 20 ms old
    """,
    "a refused load leaves the last value up to the bound, however long DynamoDB was tried": """
        0 a: 0 from dynamodb, 20 ms old
        1500 DynamoDB refuses
        1500 b: 0 from l1, 1520 ms old
        1790 a load takes 320
        1800 c: 0 from redis, 2120 ms old
        3100 c: ThrottledError
        3500 counted PageFillsFailed: 3
    """,
    "without Redis each process loads once a TTL, also where it fails while a value is stored": """
        0 a: 0 from dynamodb, 20 ms old
        10 Redis goes
        10 b: 11 from dynamodb, 20 ms old
        900 a: 0 from l1, 900 ms old
        900 counted RegistryUnavailable: 2
        1020 b: 1021 from dynamodb, 20 ms old
    """,
    "garbage in Redis is counted and replaced": """
        0 Redis gets ! of 0
        10 a: 10 from dynamodb, 20 ms old
        100 b: 10 from redis, 90 ms old
        100 counted PagesMalformed: 1
    """,
    "each process reads a copy of its own": """
        0 a: 0 from dynamodb, 20 ms old
        300 Redis loses the copy of g
        300 c: 0 from redis, 300 ms old
        300 g: 300 from dynamodb, 20 ms old
    """,
    "a value that is too large for Redis is kept in memory, and Redis is asked no more for it": f"""
        0 values have {MAX_SHARED_BYTES + 1} bytes
        0 a: 0 from dynamodb, 20 ms old
        30 commands to Redis: 5
        300 b: 300 from dynamodb, 20 ms old
        400 commands to Redis: 10
        1000 a: 1000 from dynamodb, 20 ms old
        1100 commands to Redis: 10
    """,
    "an older value that arrives later does not replace a newer one while it can be served": """
        990 Redis gets newer of 890
        1000 a: newer from redis, 900 ms old
        1010 Redis gets older of 960
        1150 somebody takes the lease
        1150 a: newer from l1, 1050 ms old
        1260 a: older from redis, 1210 ms old
    """,
    "the same value is looked at again, so that it can be served for longer": """
        0 a: 0 from dynamodb, 20 ms old
        120 b: 0 from redis, 120 ms old
        900 b: 0 from redis, 900 ms old
        1140 somebody takes the lease
        1140 b: 0 from redis, 1140 ms old
    """,
    "a stale value of Redis does not replace a newer one that was loaded without the lease": """
        1000 somebody takes the lease
        1000 a within 5: 1000 from dynamodb, 20 ms old
        1030 Redis gets older of 620
        2000 somebody takes the lease
        2000 a: 1000 from l1, 1000 ms old
    """,
    "a process reads its own changes, though Redis holds what was before, or a load was under way": """
        0 b: 0 from dynamodb, 20 ms old
        300 a changes it
        301 a: 301 from dynamodb, 20 ms old
        311 a changes it
        312 a: 402 from dynamodb, 20 ms old
        330 a: 402 from l1, 20 ms old
        432 a: 402 from l1, 30 ms old
    """,
    "a thread does not wait until the value is in Redis": """
        0 a put takes 4000
        0 a: 0 from dynamodb, 4020 ms old
        5 a: 0 from l1, 20 ms old
    """,
    "threads that ask for several values share one load, too, and its error": """
        0 Redis goes
        0 together a: 2 from dynamodb, 20 ms old
        5 together a: 2 from l1, 20 ms old
        4000 DynamoDB refuses
        4000 together a: ThrottledError
        4005 together a: ThrottledError
        4030 DynamoDB serves
        4050 loads so far: 2
    """,
    "a thread that waits has its own time limit": """
        0 a load takes 900
        0 a: 0 from dynamodb, 900 ms old
        1 a load takes 0
        1 a within 200: 201 from dynamodb, 0 ms old
    """,
    "what is served since a load failed is for all threads that wait": """
        0 DynamoDB refuses
        0 a load takes 100
        0 a: last from redis, 550 ms old
        50 Redis gets last of 500
        60 a: last from l1, 550 ms old
    """,
    "an error is that of all threads that wait; after a death one of them loads": """
        0 Redis goes
        0 DynamoDB refuses
        0 a: ThrottledError
        5 a: ThrottledError
        30 DynamoDB serves
        40 loads so far: 1
        500 Redis comes
        1000 a dies
        1005 a: 1100 from dynamodb, 20 ms old
        1006 a: 1100 from l1, 20 ms old
    """,
}


@pytest.mark.parametrize("timetable", TIMETABLES.values(), ids=TIMETABLES)
def test_what_each_request_gets(timetable):
    """Each line says when, and what happens or who asks; behind a colon is what is seen, values by when they began."""
    expected = [line.strip() for line in timetable.strip().splitlines()]
    world, seen = World(), [line.partition(":")[0] for line in expected]

    def happen(index, what):
        found = world.happen(what)
        if ":" in expected[index]:
            seen[index] += f": {found}"

    for index, line in enumerate(expected):
        at_ms, what = line.partition(":")[0].split(" ", 1)
        world.at(int(at_ms), partial(happen, index, what))
    world.run()
    assert seen == expected


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([("a", 1), ("b", 1), ("a", 1), ("c", 1)], "ac"),  # two values at the most: the least recently used one goes
        ([("a", 60), ("b", 50)], "b"),  # 100 bytes at the most
        ([("a", 60), ("b", 101)], "a"),  # one that is larger than all of it is not kept, nor are others dropped for it
    ],
)
def test_memory_is_bounded(sizes, kept):
    process = World(store=None, max_entries=2, max_bytes=100).process("a")
    for name, size in sizes:
        process.get((name, ""), lambda size=size: (["x" * size], 1.0))
    assert {process.get((name, ""), lambda: (["new"], 1.0)).origin for name in kept} == {Origin.L1}
    dropped = {name for name, _ in sizes} - set(kept)
    assert {process.get((name, ""), lambda: (["new"], 1.0)).origin for name in dropped} == {Origin.LOADED}


def test_an_error_that_is_excused_leaves_the_last_value_up_to_the_bound():
    """Any error may be. None is kept."""
    world = World(store=None, excused=(ZeroDivisionError,))
    process = world.process("a")
    assert process.get(KEY, lambda: (["value"], 1.0)).value == ["value"]
    world.engine.now = 2.0
    assert process.get(KEY, lambda: 1 / 0).value == ["value"]
    world.engine.now = 3.0
    with pytest.raises(ZeroDivisionError):
        process.get(KEY, lambda: 1 / 0)


def test_what_a_failed_load_held_is_let_go_when_the_last_value_is_served():
    """At once: no collection of garbage is waited for."""
    world = World(store=None, excused=(ZeroDivisionError,))
    process, held = world.process("a"), []

    def fail():
        connection = set()
        held.append(ref(connection))
        return 1 / 0

    process.get(KEY, lambda: (["value"], 1.0))
    world.engine.now = 2.0
    process.get(KEY, fail)
    assert [each() for each in held] == [None]


def test_unless_said_otherwise_only_a_refusal_is_excused():
    world = World(store=None)
    process = world.process("a")
    process.get(KEY, lambda: (["value"], 1.0))
    world.engine.now = 2.0
    with pytest.raises(ZeroDivisionError):
        process.get(KEY, lambda: 1 / 0)


def test_what_passes_the_bound_while_others_are_loaded_is_loaded_too():
    """Several values are each as fresh as one, also where Redis has a stale one."""
    world, served = World(), []

    def load_both(keys):
        world.load_ms = LIMITS.bound_ms if len(keys) == 1 else 20
        return {key: world.load() for key in keys}

    def ask(keys):
        found = world.process("a").get_many(keys, load_both)
        served.append([value.value[0] for value in found.values()])

    world.at(0, lambda: ask([KEY, OTHER]))
    world.at(1_100, lambda: world.get("a"))
    world.at(1_200, lambda: ask([KEY, OTHER]))
    world.run()
    assert served == [["0", "20"], ["4200", "1200"]]


def test_a_thread_does_not_wait_for_values_that_it_did_not_ask_for():
    """Redis responds after 10 ms, and loading the other value takes 20."""

    class SlowPages(Pages):
        def get(self, *place):
            world.engine.delay(10)
            return super().get(*place)

    world, ended_ms = World(), []
    process = world.process("a")
    process.store = SlowPages(world)
    world.at(0, lambda: world.process("b").get(OTHER, world.load))
    world.at(100, lambda: process.get_many([OTHER, KEY], lambda keys: {key: world.load() for key in keys}))
    world.at(105, lambda: process.get(OTHER, world.load) and ended_ms.append(world.now_ms))
    world.run()
    assert (ended_ms, world.loads) == ([110], 2)


def test_a_thread_that_dies_before_it_loads_keeps_no_other_waiting():
    """Of two values, the load of the first is announced already."""
    world = World(store=None)
    process = world.process("a")

    def die():
        process.new_event = lambda: Landing(world.engine)
        raise Died

    def announce():
        process.new_event = die
        return Landing(world.engine)

    process.new_event = announce
    with pytest.raises(Died):
        process.get_many([KEY, OTHER], lambda keys: {key: world.load() for key in keys})
    served = []
    world.at(100, lambda: served.append(process.get(KEY, lambda: (["value"], 1.0)).value))
    world.run()
    assert served == [["value"]]


def test_many_changes_take_bounded_memory():
    """Above the limit, all values count as changed."""
    world = World(store=None)
    process = world.process("a")
    process.get(KEY, lambda: (["before"], 1.0))
    for index in range(MAX_REMEMBERED + 1):
        process.forget(f"k{index}")
    world.engine.now += 0.001
    assert process.get(KEY, lambda: (["after"], 1.0)).value == ["after"]
    assert len(process._changes.at_ms) <= MAX_REMEMBERED


REQUESTS = st.lists(
    st.tuples(
        # When: around the first load, and around when it reaches the bound, no process having loaded in between.
        st.one_of(st.integers(0, 300), st.integers(2_200, 3_300), st.integers(0, 8_000)),
        st.sampled_from("abcde"),  # by which process
        st.sampled_from([4, 20, 400, 1_500]),  # what a load takes
        st.sampled_from([False, False, False, False, True]),  # whether its process dies
    ),
    min_size=20,
    max_size=60,
)
TROUBLES = ["Redis goes", "Redis comes", "Redis is emptied", "DynamoDB refuses", "DynamoDB serves", "a changes it"]


class Rush(World):
    """Requests to five processes, of which any dies in the middle of a load, and what came of them."""

    def __init__(self, seed):
        super().__init__(Random(seed))
        self.put_ms = 4_500
        self.ended, self.changed_at_ms, self.loading = 0, defaultdict(lambda: -inf), Counter()

    def request(self, name, load_ms, *, dies):
        asked_at_ms, process = self.now_ms, self.process(name)
        changed_at_ms = self.changed_at_ms[process]

        def load():
            # One thread loads, and the others wait for it, but those that must not get what was before a change.
            assert not self.loading[process] or self.changed_at_ms[process] > -inf
            self.loading[process] += 1
            try:
                return self.load(load_ms, dies=dies)
            except Died:
                self.processes.pop(name, None)
                raise
            finally:
                self.loading[process] -= 1

        try:
            found = self.get(name, load, is_together=name in "de")
        except Died:
            return
        except RetryLaterError:
            assert self.now_ms - self.refused_at_ms < 1.5 * REFUSED_MS
        else:
            read_at_ms = int(found.value[0])
            # A value that was loaded for this very request is as new as the request could have it.
            assert read_at_ms >= asked_at_ms or found.age_ms <= LIMITS.bound_ms
            assert found.age_ms >= self.now_ms - read_at_ms - 1
            assert read_at_ms >= changed_at_ms
        self.ended += 1

    def happen(self, what):
        super().happen(what)
        if what == "a changes it":
            self.changed_at_ms[self.process("a")] = self.now_ms


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32),
    requests=REQUESTS,
    troubles=st.lists(st.tuples(st.integers(0, 8_000), st.sampled_from(TROUBLES))),
)
@settings(max_examples=100)
def test_nothing_is_served_that_is_older_than_the_bound(seed, requests, troubles):
    """Nor is an age reported that is too small, whoever dies, and however late values reach Redis.

    A process serves nothing of before its own change. No request fails but those whose own load was refused, or that
    another's load refused a moment ago.
    """
    rush = Rush(seed)
    for at_ms, name, load_ms, dies in requests:
        rush.at(at_ms, lambda asked=(name, load_ms), dies=dies: rush.request(*asked, dies=dies))
    for at_ms, what in troubles:
        rush.at(at_ms, lambda what=what: rush.happen(what))
    rush.run()
    assert rush.ended >= len(requests) - sum(dies for *_, dies in requests)
