"""`ShardedCounter` with fixed shards, and `CoalescingCounter`; the jobs below them have tests of their own.

Half of it is `CoalescingCounter`: scripts of what is lost or refused between flushes, and a thread that flushes at a
test's ticks.
"""

import json
import subprocess
import sys
from decimal import Decimal
from threading import Event, Thread

import pytest
from boto3.dynamodb.conditions import Key

from hotpartition.core.errors import (
    InvalidRequestError,
    OutcomeUnknownError,
    StoreUnavailableError,
    ThrottledError,
    TokenReusedError,
)
from hotpartition.table import CoalescingCounter, ShardedCounter, ShardedTable, fixed
from support.fakes import FakeClock


@pytest.fixture
def counters(watched, create):
    """A table of counters, empty; no token was used."""
    return create("counters", "PK", "SK")


@pytest.fixture
def build(counters):
    """Builds counters on the table."""
    return lambda shards=None, **options: ShardedCounter(counters, shards or fixed(4), **options)


def places(counters):
    return {item["PK"] for item in counters.scan()["Items"] if item["SK"] != "~route"}


def test_it_counts_up_and_down(build, counters):
    """Over all shards, and what a table without shards had counted before; of each key and name for itself."""
    others = ("count", "count!", "counter", "0", "~", "count#07#")
    for sort_key, counted in (("count#", 1000), *((other, 1) for other in others)):
        counters.put_item(Item={"PK": "post", "SK": sort_key, "counted": counted})
    counter, likes = build(), build(name="likes")
    for amount in (1, 5, -3, 10**18, -(10**18), Decimal("1.0")):  # boto3 returns numbers as such
        counter.add("post", amount)
    likes.add("post", 40, token="t")
    assert counter.get("post") == counter.get("post", consistent=False) == 1004
    assert (likes.get("post"), build(name="views").get("post")) == (40, 0)
    assert counter.get_all(["another", "post"]) == [0, 1004]
    assert counter.get_all([]) == []
    assert places(counters) <= {"post", *(f"post#_{shard}" for shard in range(4))}


def test_a_token_counts_once(build, counters):
    """Also where more shards are known by now."""
    for shards in (fixed(4), fixed(4), fixed(4, 16), fixed(4, 16, 64)):
        build(shards).add("post", 7, token="order 5 ✓")
    assert build(fixed(4, 16, 64)).get("post") == 7
    assert counters.scan()["Count"] == 1
    with pytest.raises(TokenReusedError):
        build(fixed(4, 16)).add("post", 8, token="order 5 ✓")
    for shards in (fixed(4, 16), fixed(4, readable=16)):  # the second does not write to sixteen yet
        build(shards).add("photo", 7, token="t")
        assert build(shards).get("photo") == 7


def test_a_lost_response(build, watched):
    """Nobody knows without a token; with one it counts once."""
    watched.lose_response("UpdateItem")
    with pytest.raises(OutcomeUnknownError, match="may have been added or not"):
        build().add("post")
    assert watched.sent["UpdateItem"] == 2  # the one that was lost, and its carrying out
    watched.lose_response("TransactWriteItems")
    build().add("post", 5, token="t")
    assert build().get("post") == 6


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *(({"amount": amount}, "amount: should be a whole number from -1000000000000000000 to")
          for amount in (1.0, Decimal("0.5"), Decimal("Infinity"), "1", None, True, 10**18 + 1)),
        *(({"token": token}, "token: should be a text of 1 to 1024 bytes") for token in ("", 5, "x" * 1025, "\ud800")),
        *(({"key": key}, "should be") for key in ("", "post#_1", "x" * 2048)),  # of which one is a shard
        ({"name": ""}, "name"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(build, wrong, said):
    """Nothing is sent."""
    with pytest.raises(InvalidRequestError, match=said):
        build(name=wrong.get("name", "likes")).add(**{"key": "post", **{n: v for n, v in wrong.items() if n != "name"}})


def test_the_child_of_a_fork_has_threads_of_its_own(counters, monkeypatch):
    """Those of its parent, which do not exist there, are ended here."""
    table = ShardedTable(counters, shards=fixed(4))
    counter = ShardedCounter(table)
    counter.add("post")
    assert table.query(KeyConditionExpression=Key("PK").eq("post"))["Count"] == 1
    table._built[1].items.sharding.executor.shutdown()
    counter._built[1].executor.shutdown()
    for module in ("counters", "sharded_table"):
        monkeypatch.setattr(f"hotpartition.table.{module}.getpid", lambda: -1)
    assert counter.get_all(["post"]) == [1]
    assert table.query(KeyConditionExpression=Key("PK").eq("post"))["Count"] == 1


def test_a_table_with_numbers_as_sort_keys_is_refused(create):
    """No counter can be named there."""
    numbers = create("numbers", "PK", "SK", types={"SK": "N"})
    with pytest.raises(NotImplementedError, match="Use a table whose sort key is of type S"):
        ShardedCounter(numbers, fixed(2)).add("post")


def test_the_request_under_a_token_is_pinned(counters, watched):
    """To the letter: a version that builds another would not recognise what this one counted."""
    sent = []
    watched.responds = lambda operation, body: sent.append((operation, json.dumps(body)))
    ShardedCounter(counters, fixed(4), name="likes").add("post", 7, token="ann")
    expected = (
        '{"TransactItems": [{"Update": {"TableName": "counters", "Key": {"PK": {"S": "post#_1"}, "SK": {"S": '
        '"likes#10"}}, "UpdateExpression": "ADD counted :amount", "ExpressionAttributeValues": {":amount": {"N": '
        '"7"}}}}], "ClientRequestToken": "e3d0144819fb5901733fcc88fff7b69a"}'
    )
    assert sent == [("TransactWriteItems", expected)]


@pytest.mark.parametrize("token", [None, "ann"])
def test_items_are_created_with_attributes_that_stay(build, counters, token):
    """An expiry, for instance; what is there is not changed, and a token counts once."""
    counter = build(once=lambda key: {"expires_at": 1_800_000_000, "of": key})
    for _ in range(2):
        counter.add("post", 2, token=token)
    facts = {(item["expires_at"], item["of"]) for item in counters.scan()["Items"]}
    assert facts == {(1_800_000_000, "post")}
    assert counter.get("post") == (4 if token is None else 2)


def test_it_takes_what_a_sharded_table_says(counters, watched):
    """Its table, its shards and its transport. Without items at base keys none is asked."""
    seen = []

    def transport(table, clock, budget_ms):
        seen.append(budget_ms)
        return table

    table = ShardedTable(counters, shards=fixed(3, only_shards=True), transport=transport)
    counter = ShardedCounter(table, name="likes")
    counter.add("post", 2)
    assert counter.get("post") == 2
    assert sorted(watched.queried) == [f"post#_{shard}" for shard in range(3)]
    assert seen == [0.0]  # what may have been counted is not sent again
    with pytest.raises(TypeError, match=r"fixed\(n\)"):
        ShardedCounter(counters)


class Counted:
    """What is flushed, with a token's exactness; `fails` are raised by the next calls, after they counted or not."""

    def __init__(self):
        self.calls, self.fails = [], []
        self.sums, self.tokens = {}, {}

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
def coalesce(counted, clock):
    """Builds counters whose thread flushes when `ticks` is told to, and closes them."""
    made = []

    def build(**options):
        options = {"wait": lambda event, _: event.wait(60), "environ": {}, "clock": clock.as_clock(), **options}
        made.append(CoalescingCounter(counted, **options))
        return made[-1]

    yield build
    for each in made:
        each.close()


SCRIPTS = {
    "sums, one request for each key, none for nothing": (
        [("a", 1), ("a", 2), ("b", 1), ("c", 5), ("c", -5), "flushed", "flushed"], [3, 1], {"a": 3, "b": 1}, "",
    ),
    "a sum that is more than one addition takes": (
        [("a", -(10**18)), ("a", -5), "flushed"], [-(10**18), -5], {"a": -(10**18) - 5}, "",
    ),
    "an error that is not the counter's is logged once": (
        [("a", 5), "broken", "broken", "flushed"], [5, 5, 5], {"a": 5}, "additions to a wait: 5",
    ),
    "a hundred additions at once, by who makes the last": ([("a", 1)] * 101, [100], {"a": 100}, ""),
    "a refused flush is tried again as it was, and what came meanwhile goes behind it": (
        [("a", 5), "refused", ("a", 2), "partly", "flushed"], [5, 5, 2], {"a": 7}, "",
    ),
    "a lost response counts once, and the next batch has another token": (
        [("a", 5), "lost", "lost", "flushed", ("a", 5), "flushed"], [5, 5, 5, 5], {"a": 10}, "",
    ),
    "what was never confirmed is given up before its token ends": (
        [("a", 5), "lost", 539_999, "lost", 1, "given up"], [5, 5, 5], {"a": 5}, "given up",
    ),
    "what can never be counted does not hold up the others": (
        [("", 1), ("a", 1), "wrong"], [1, 1], {"a": 1}, "cannot be counted",
    ),
    "closing flushes what waits behind a refused batch": (
        [("a", 5), "lost", ("a", 2), "closed"], [5, 5, 2], {"a": 7}, "",
    ),
    "what is lost at the end is logged": ([("a", 5), "gone"], [5, 5], {}, "additions were lost"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_flushed(coalesce, counted, clock, caplog, name):
    steps, sent, sums, said = SCRIPTS[name]
    counter = coalesce()
    refused = {"refused": [THROTTLED], "gone": [THROTTLED] * 2, "lost": [LOST], "given up": [LOST]}
    refused["broken"] = [(ConnectionError(), False)]
    refused["wrong"] = [(InvalidRequestError.of("PK", "x"), False)]
    for step in steps:
        counted.fails = list(refused.get(step, [])) if isinstance(step, str) else []
        match step:
            case (key, amount):
                counter.add(key, amount)
            case int():
                clock.now_ms += step
            case "closed" | "gone":
                counter.close()
            case _:
                assert counter.flush() is (step in {"flushed", "wrong", "given up"})
    if said == "additions were lost":
        assert caplog.records[-1].lost == {"a": 5}
    assert ([amount for _, amount, _ in counted.calls], counted.sums) == (sent, sums)
    assert said in caplog.text if said else not caplog.records


def test_a_thread_flushes_each_interval_until_the_end_of_a_with(coalesce, counted):
    """100 ms by default; the wait gets the interval, and what came since is flushed at the end."""
    waits, flushed = [], Event()

    def wait(event, seconds):
        waits.append(seconds)
        if len(waits) > 1:
            flushed.set()
            return event.wait(60)
        return False

    with coalesce(wait=wait) as counter:
        counter.add("a", 7)
        assert flushed.wait(60)
        assert (counted.sums, set(waits)) == ({"a": 7}, {0.1})
        counter.add("a", 3)
    counter._thread.join(60)
    assert (counted.sums, counter._thread.is_alive()) == ({"a": 10}, False)
    with pytest.raises(RuntimeError, match="closed"):
        counter.add("a")


@pytest.mark.slow
def test_it_is_flushed_at_exit():
    """Of the interpreter, though it was not closed; in the child of a fork what was added there."""
    program = (
        "import os\n"
        "from hotpartition.table import CoalescingCounter\n"
        "class Printed:\n"
        "    def add(self, key, amount, token): print(key, amount)\n"
        "counter = CoalescingCounter(Printed(), interval_seconds=60, environ={})\n"
        "counter.add('a', 4)\n"
        "os.wait() if os.fork() else counter.add('b', 1)\n"
    )
    command, environ = [sys.executable, "-W", "ignore", "-c", program], {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("b 1\na 4\n", "")


@pytest.mark.parametrize(("act", "total"), [(lambda counter: counter.add("a"), 7), (CoalescingCounter.flush, 6)])
def test_what_another_thread_does_in_the_middle_of_an_addition_waits_for_it(coalesce, counted, act, total):
    """Otherwise one of both sums would be lost, or counted twice."""
    counter, others = coalesce(), []

    class Interrupted(int):
        """Lets the other thread act before it is added itself, if that does not have to wait."""

        def __radd__(self, known):
            others.append(Thread(target=act, args=(counter,)))
            others[0].start()
            others[0].join(0.1)
            return known + int(self)

    counter.add("a", 5)
    counter.add("a", Interrupted(1))
    others[0].join()
    assert counter.flush()
    assert counted.sums == {"a": total}


def test_a_flush_waits_for_the_one_that_is_under_way(coalesce, counted, monkeypatch):
    """Otherwise both would send what waits."""
    counter, add, others = coalesce(), counted.add, []

    def add_slowly(*args, **options):
        if not others:
            others.append(Thread(target=counter.flush))
            others[0].start()
            others[0].join(0.1)
        add(*args, **options)

    monkeypatch.setattr(counted, "add", add_slowly)
    counter.add("a", 5)
    assert counter.flush()
    others[0].join()
    assert [amount for _, amount, _ in counted.calls] == [5]


def test_it_is_refused_in_lambda(counted, monkeypatch):
    """By the process's variables, or those that are given; the error says what to use."""
    with pytest.raises(RuntimeError, match=r"Lambda function work, .*Use ShardedCounter itself"):
        CoalescingCounter(counted, environ={"AWS_LAMBDA_FUNCTION_NAME": "work"})
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "mine")
    with pytest.raises(RuntimeError, match="Lambda function mine"):
        CoalescingCounter(counted)


@pytest.mark.parametrize("amount", [1.5, "1", None, True, 10**19])
def test_other_amounts_and_limits_are_refused_at_once(coalesce, amount):
    for options in ({"interval_seconds": 0}, {"max_additions": 0}):
        with pytest.raises(ValueError, match="interval_seconds should be more than 0, and max_additions at least 1"):
            coalesce(**options)
    with pytest.raises(InvalidRequestError, match="whole number"):
        coalesce().add("a", amount)
