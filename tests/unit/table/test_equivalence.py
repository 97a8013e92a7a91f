"""A `ShardedTable` answers as boto3's `Table` does: the short form, and what the long one would not let pass.

Half of it tests the comparison itself: one that lets every difference pass would look the same.
"""

from collections import Counter
from dataclasses import replace

import pytest

from tools.equivalence import study
from tools.equivalence.calls import Call
from tools.equivalence.combinations import COMBINATIONS, Combination
from tools.equivalence.compare import DifferenceError, Pair, perform
from tools.equivalence.engines import WORLD, create_table, open_engine
from tools.equivalence.machine import run_machine
from tools.equivalence.own import PLAYS, compare_own, on_both, record, send_all
from tools.figures import Outcome
from tools.world.dynamodb import define_table

pytestmark = pytest.mark.slow

STRINGS = Combination(shards="fixed", hashed="by_sort_key")


@pytest.fixture(scope="module")
def resource():
    with open_engine("moto") as opened:
        yield opened


@pytest.fixture
def tables(resource):
    return [create_table(resource, STRINGS) for _ in range(2)]


@pytest.mark.parametrize("number", range(len(COMBINATIONS)), ids=lambda number: COMBINATIONS[number].name)
def test_calls_have_the_same_results(number):
    """Some histories of each on the simulator's DynamoDB; the first of them is one call, again and again.

    `make table-equivalence` plays many more, on moto as well, and through libcurl.
    """
    counter: Counter[str] = Counter()
    with open_engine(WORLD) as simulated:
        run_machine(replace(COMBINATIONS[number], is_curl=False), simulated, examples=9, counter=counter, seed=number)
    assert counter.pop("refused") > 10
    assert counter.total() > 100


@pytest.mark.parametrize("number", range(0, len(COMBINATIONS), 3), ids=lambda number: COMBINATIONS[number].name)
def test_the_simulators_dynamodb_has_the_same_results(resource, number):
    """A `ShardedTable` on it, beside boto3's `Table` on moto."""
    counter: Counter[str] = Counter()
    combination = replace(COMBINATIONS[number], is_curl=False)
    with open_engine(WORLD) as simulated:
        run_machine(combination, simulated, examples=3, counter=counter, seed=number, reference=resource)
    assert counter.pop("refused") > 10
    assert counter.total() > 10


SENT = (
    {"PutItem", "BatchGetItem"},
    {"UpdateItem", "BatchGetItem"},
    {"TransactWriteItems"},
    {"DeleteItem", "BatchWriteItem", "BatchGetItem"},
)
"""Among what each play sends."""


@pytest.mark.parametrize("number", range(len(PLAYS)), ids=["messages", "in band", "counters", "table"])
def test_the_products_own_requests_have_the_same_results(number):
    """What it sends in the simulator while everything fails: moto responds to it as the simulator's DynamoDB does."""
    counter: Counter[str] = Counter()
    compare_own(counter, seed=5, most=800, plays=[PLAYS[number]])
    assert counter.total() >= 800
    assert {"Query", "GetItem", *SENT[number]} <= counter.keys()


def test_a_double_that_differs_in_them_is_found(monkeypatch):
    """One that takes no notice of a condition."""
    requests = record(PLAYS[0], seed=5, most=800)
    monkeypatch.setattr("tools.world.dynamodb.parse_condition", lambda *_: lambda *_: True)
    with on_both(Counter()) as send, pytest.raises(DifferenceError, match="attribute_not_exists"):
        send_all(send, requests)


STORED = [{"PK": {"S": "room"}, "SK": {"S": f"{n}"}, "n": {"N": f"{n}"}, "kind": {"S": "a"}} for n in (1, 2, 22)]
STORED[1] |= {"tags": {"SS": ["a"]}, "nested": {"M": {"deep": {"N": "1"}}}}
VALUES = {
    ":p": {"S": "room"},
    ":kind": {"S": "a"},
    ":s": {"S": "2"},
    ":one": {"N": "1"},
    ":two": {"N": "2"},
    ":a": {"SS": ["a"]},
}
SECOND = {"Key": {name: STORED[1][name] for name in ("PK", "SK")}, "ReturnValues": "ALL_OLD"}
OPERATIONS = {"KeyConditionExpression": ("Query", {}), "FilterExpression": ("Scan", {})}
EDGES = [
    *(("KeyConditionExpression", f"PK = :p AND SK {sign} :s") for sign in ("<", "<=", ">", ">=")),
    ("KeyConditionExpression", "PK = :p AND begins_with(SK, :s)"),
    ("FilterExpression", "n = :two OR n = :one AND n = :one"),
    ("FilterExpression", "NOT n = :one AND n < :two"),
    ("UpdateExpression", "SET n = if_not_exists(n, :one), nested.deep = :two"),
    ("UpdateExpression", "DELETE tags :a ADD more :a"),
    ("UpdateExpression", "ADD more :a"),
    ("UpdateExpression", "SET n = :one"),
    ("KeyConditionExpression", "kind = :kind AND n >= :one"),
    ("KeyConditionExpression", "kind = :kind AND n = :one AND SK < :s"),
]


def test_the_edges_of_expressions_mean_the_same():
    """Signs, what binds stronger, what is there already, and what an older version of the item, or an index, keeps."""
    requests = [("PutItem", {"TableName": "t", "Item": item}) for item in STORED]
    for parameter, expression in EDGES:
        operation, more = OPERATIONS.get(parameter, ("UpdateItem", SECOND))
        values = {name: value for name, value in VALUES.items() if name in expression}
        index = {"IndexName": "by-kind"} if "kind" in expression else {}
        request = {"TableName": "t", parameter: expression, "ExpressionAttributeValues": values, **more, **index}
        requests.append((operation, request))
    by_kind = {"by-kind": ("kind", ("n", "SK"))}
    creation = ("CreateTable", {"TableName": "t", **define_table("PK", "SK", indexes=by_kind, types={"n": "N"})})
    with on_both(Counter()) as send:
        send_all(send, [creation, *requests, ("Scan", {"TableName": "t"})])


ITEM = {"PK": "room-1", "SK": "1", "device": "dev-1"}
PAGE = {"KeyConditionExpression": "PK = :p", "ExpressionAttributeValues": {":p": "room-1"}}


def test_a_missing_item_is_a_difference(tables):
    """On a page and in a walk."""
    pair = Pair(*tables)
    tables[0].put_item(Item=ITEM)
    with pytest.raises(DifferenceError, match="ours: "):
        pair.page(Call("query", PAGE))
    with pytest.raises(DifferenceError, match="walk of"):
        pair.walk(Call("query", PAGE), order_of=repr)


def test_another_error_is_a_difference(tables):
    """So is a success where there should be one."""
    pair = Pair(*tables)
    call = Call("put_item", {"Item": ITEM, "ConditionExpression": "attribute_not_exists(PK)"})
    pair.same(call, lambda table: perform(table, call))
    tables[1].delete_item(Key={"PK": "room-1", "SK": "1"})
    with pytest.raises(DifferenceError, match="ConditionalCheckFailedException"):
        pair.same(call, lambda table: perform(table, call))


@pytest.mark.parametrize(
    ("calls", "difference", "verdict"),
    [(15_000, None, "equal"), (14_999, None, "too few calls"), (15_000, "it differs", "different")],
)
def test_the_verdict_needs_calls_and_no_difference(calls, difference, verdict):
    """Both."""
    compared = Outcome(combination="c", engine="moto", calls={"put_item": calls}, difference=difference)
    judged = study.judge({"moto": [compared]})
    assert (judged.fields["verdict"], judged.fields["calls"]) == (verdict, calls)
    assert judged.fields["differences"] == ([] if difference is None else ["c on moto: it differs"])
    assert judged.passed == (verdict == "equal")


@pytest.mark.parametrize("engine", ["moto", WORLD])
def test_a_difference_is_reported_with_what_led_to_it(capsys, monkeypatch, engine):
    """The call, both outcomes, and the history as hypothesis shortened it; of the simulator beside moto, too."""

    def fail(combination, resource, *, examples, counter, seed, reference):
        assert (examples > 9, reference is resource) == (True, engine == "moto")
        counter["put_item"] += 3
        error = DifferenceError(f"{combination.name} differs")
        error.add_note(f"state.put_item() of {seed}")
        raise error

    monkeypatch.setattr(study, "run_machine", fail)
    compared, name = study.compare_combination(engine, 2), COMBINATIONS[1].name
    difference = f"{name} differs\nstate.put_item() of 2001"
    assert compared == Outcome(combination=name, engine=engine, seed=2, calls={"put_item": 3}, difference=difference)
    assert capsys.readouterr().err == f"{name} on {engine}: {difference}\n"
