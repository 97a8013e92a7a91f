"""Three applications written for boto3's `Table`, moved onto a `ShardedTable` by changing a few of their lines."""

from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

PORTS = Path(__file__).parents[2] / "support" / "ports"
MOST_CHANGED_LINES = 10

IMPORT = "import boto3\n"
SHARDED_IMPORT = "import boto3\nfrom hotpartition.table import ShardedTable, fixed\n"
OPEN = 'self._table = boto3.resource("dynamodb").Table(table_name)'
OPEN_SHARDED = 'self._table = ShardedTable(boto3.resource("dynamodb").Table(table_name), shards=fixed(8))'

# Powertools calls a client, which has DynamoDB's types where a table has Python's.
TYPED = """\
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from hotpartition.table import ShardedTable, fixed
def typed(call, fields=("Item", "Key", "ExpressionAttributeValues")):
    def send(TableName, **given):
        found = call(**{n: TypeDeserializer().deserialize({"M": v}) if n in fields else v for n, v in given.items()})
        return {n: TypeSerializer().serialize(v)["M"] if n in fields else v for n, v in found.items()}
    return send
"""
TYPED_CLIENT = """\
        boto3_client=(lambda table: type("Client", (), {"meta": table.meta} | {
            name: typed(getattr(table, name)) for name in ("get_item", "put_item", "update_item", "delete_item")
        }))(ShardedTable(boto3.resource("dynamodb").Table(table_name), shards=fixed(8))),
"""

CHANGES = {
    "event_log": [(IMPORT, SHARDED_IMPORT), (OPEN, OPEN_SHARDED)],
    "outbox": [(IMPORT, SHARDED_IMPORT), (OPEN, OPEN_SHARDED)],
    "idempotency": [(IMPORT, IMPORT + TYPED), ('        boto3_client=boto3.client("dynamodb"),\n', TYPED_CLIENT)],
}


def load(name, changes=()):
    """Build a port's module, with these changes of its source."""
    source = (PORTS / f"{name}.py").read_text()
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    module = ModuleType(name)
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)  # noqa: S102 - our own source
    return module


def changed_lines(changes):
    return sum(len(set(new.splitlines()) - set(old.splitlines())) for old, new in changes)


@pytest.fixture(params=["boto3", "sharded"])
def changes_of(request):
    """A port's changes: none, or all of them. Both must behave alike."""
    return lambda name: CHANGES[name] if request.param == "sharded" else ()


@pytest.mark.parametrize("name", CHANGES)
def test_at_most_ten_lines_change(name):
    """That is the promise."""
    assert 0 < changed_lines(CHANGES[name]) <= MOST_CHANGED_LINES


def stored_keys(plain):
    return {item["PK"] for item in plain.scan()["Items"]}


def test_an_event_log(plain, changes_of):
    """Events are appended once, read in order over many pages, and the newest come first."""
    log = load("event_log", changes_of("event_log")).EventLog(plain.name)
    assert log.append("orders", "2026-11-21T09:00:00Z", "e-0", {"n": 0})
    assert not log.append("orders", "2026-11-21T09:00:00Z", "e-0", {"n": 0})
    log.append_all(
        "orders", [(f"2026-11-21T09:{minute:02d}:00Z", f"e-{minute}", {"n": minute}) for minute in range(1, 60)]
    )
    events = list(log.read("orders", "2026-11-21T09:00", "2026-11-21T09:50", page_size=7))
    assert [event["payload"]["n"] for event in events] == list(range(50))
    assert {event["PK"] for event in events} == {"orders"}
    assert [event["payload"]["n"] for event in log.latest("orders", 3)] == [59, 58, 57]
    assert (len(stored_keys(plain)) > 1) == bool(changes_of("event_log"))


def test_an_outbox(plain, changes_of):
    """Messages are claimed in order and by one claimer, given back, and forgotten once they were sent."""
    outbox = load("outbox", changes_of("outbox")).Outbox(plain.name)
    for number in range(40):
        outbox.add(f"{number:04d}", f"m-{number}", f"body {number}")
    first = outbox.claim(10)
    assert [item["body"] for item in first] == [f"body {number}" for number in range(10)]
    assert {(item["PK"], item["tries"]) for item in first} == {("outbox", 1)}
    assert [item["body"] for item in outbox.claim(1)] == ["body 10"]
    outbox.give_back(first[0]["SK"])
    assert [(item["body"], item["tries"]) for item in outbox.claim(1)] == [("body 0", 2)]
    assert outbox.sent(first[0]["SK"])["body"] == "body 0"
    assert outbox.sent(first[0]["SK"]) is None
    assert outbox.count() == 39
    assert (len(stored_keys(plain)) > 1) == bool(changes_of("outbox"))


class FailingError(Exception):
    """What goes wrong in a charge."""


def test_powertools_idempotency(plain, changes_of):
    """An order is charged once; one whose charge failed is charged anew."""
    charged = []
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 5_000)

    def charge(order):
        charged.append(order["id"])
        if charged.count("o-7") == 1 and order["id"] == "o-7":
            raise FailingError
        return {"charged": order["id"]}

    charge_once = load("idempotency", changes_of("idempotency")).build(plain.name, charge, context)
    for _ in range(2):
        assert [charge_once(order={"id": f"o-{n}"}) for n in range(6)] == [{"charged": f"o-{n}"} for n in range(6)]
    assert charged == [f"o-{n}" for n in range(6)]
    with pytest.raises(FailingError):
        charge_once(order={"id": "o-7"})
    assert charge_once(order={"id": "o-7"}) == charge_once(order={"id": "o-7"}) == {"charged": "o-7"}
    assert charged.count("o-7") == 2
    assert (len(stored_keys(plain)) > 1) == bool(changes_of("idempotency"))
