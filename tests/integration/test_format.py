"""Readers in other languages: docs/format-vectors.json is what the library does; the JavaScript reader obeys it."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import boto3
import pytest
from boto3.dynamodb.conditions import Key
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from moto import mock_aws

from hotpartition.core import route as routing
from hotpartition.core.errors import MalformedGenerationError
from hotpartition.core.items import ItemKey
from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import choose_copy
from hotpartition.core.route import Close, Generation, Route
from hotpartition.table import ShardedTable, fixed, in_band
from hotpartition.table.schema import order_of, text_of
from hotpartition_messages import Message
from hotpartition_messages.keys import position_of
from support.servers import DynamoDBServer, running
from support.tables import define_table

ROOT = Path(__file__).resolve().parents[2]
READER = ROOT / "examples" / "reader-node"
VECTORS: dict[str, list[Any]] = json.loads((ROOT / "docs" / "format-vectors.json").read_text(encoding="utf-8"))
NUMBERS = (1, 2, 3, 4, 5, 7, 10, 16)
NOW_MS = 1_700_000_000_000
FORM = KeyForm()
Values = dict[str, Any]
typed, untyped = TypeSerializer().serialize, TypeDeserializer().deserialize


def position(sort_key: str) -> int:
    return int(sort_key[:13])


def convert(item: Values | None, value: Callable[[Any], Any]) -> Values | None:
    return item and {name: value(content) for name, content in item.items()}


def decode(vector: Values) -> Route:
    return Route.decode(vector["members"])


def work_unreadable(vector: Values) -> Values:
    with pytest.raises(MalformedGenerationError):
        decode(vector)
    return {"refused": True}


def work_messages(vector: Values) -> Values:
    valid = choose_copy([Message.from_item(item) for item in vector["copies"]])
    return {"shown": valid.body if valid.is_shown_at(vector["now_ms"]) else None}


def open_table(vector: Values) -> ShardedTable:
    """Make a table of what a vector stores."""
    resource = boto3.resource("dynamodb", region_name="eu-central-1")
    table = resource.create_table(TableName=vector["name"], **define_table("pk", "sk"))
    # A key's response may hold less than was asked for: DynamoDB cuts it at 1 MB, and here at a number of items.
    cut = lambda params, **_: params.update(Limit=min(params["Limit"], vector.get("cut_at", 99)))  # noqa: E731
    table.meta.client.meta.events.register("before-parameter-build.dynamodb.Query", cut)
    with table.batch_writer() as batch:
        for item in vector["stored"]:
            batch.put_item(convert(item, untyped))
    numbers = vector["numbers"]
    for known, sort_key in vector.get("written", ()):
        ShardedTable(table, shards=fixed(*numbers[:known], choices=3)).put_item(Item={"pk": "room", "sk": sort_key})
    if numbers is None:
        return ShardedTable(table, shards=in_band(), position=position)
    return ShardedTable(table, shards=fixed(*numbers, choices=3, only_shards=vector.get("only_shards", False)))


def work_table(vector: Values) -> Values:
    """Read all pages, and some items."""
    table = open_table(vector)
    request = {"Limit": vector["limit"], "ScanIndexForward": not vector["newest_first"], "ConsistentRead": True}
    read = table.query_pages(KeyConditionExpression=Key("pk").eq("room"), **request)
    pages = [[convert(item, typed) for item in page["Items"]] for page in read]
    keys = [{"pk": "room", "sk": sort_key} for sort_key in vector["asked"]]
    items = [[convert(key, typed), convert(table.get_item(Key=key).get("Item"), typed)] for key in keys]
    return {"pages": pages, "items": items}


def work_shown(vector: Values) -> Values:
    return {"shown": open_table({"name": uuid4().hex, "stored": [], **vector}).logical_item(vector["item"])}


RULES: dict[str, Callable[[Values], Values]] = {
    "hashes": lambda v: {"hash": str(routing.stable_hash(v["text"]))},
    "choices": lambda v: {"shards": [*routing.choose_shards(v["text"], v["n"])]},
    "texts": lambda v: {"text": text_of(untyped({k: b64decode(x) if k == "B" else x for k, x in v["value"].items()}))},
    "orders": lambda v: {"sorted": sorted(v["keys"], key=lambda key: order_of(untyped(key)))},
    "partition_keys": lambda v: dict(
        zip(("collection", "shard"), KeyForm(v["separator"]).parse(v["key"]), strict=True)
    ),
    "unreadable": work_unreadable,
    "routes": lambda v: {"shards_at": [[at, decode(v).shard_count_at(at)] for at in v["positions"]]},
    "page_keys": lambda v: {
        "keys": [*routing.needed_keys(decode(v), "room", v["last"], FORM, from_position=v["first"])],
    },
    "point_keys": lambda v: {"keys": list(routing.keys_of_hashed(decode(v), "room", v["text"], v["position"], FORM))},
    "shown": work_shown,
    "messages": work_messages,
    "message_positions": lambda v: {"position": position_of(v["sort_key"])},
    "tables": work_table,
}


@mock_aws
@pytest.mark.parametrize("rule", sorted({*RULES, *VECTORS}))
def test_the_vectors_are_what_the_library_does(rule):
    """Every rule has some."""
    assert [{**vector, **RULES[rule](vector)} for vector in VECTORS[rule]] == VECTORS[rule]


def draw_routes(random: Random) -> list[Route]:
    """What the journal showed, one after the other: raises, and closes in two steps."""
    seen, at_ms = [Route()], NOW_MS
    for _ in range(random.randrange(4)):
        at_ms += random.randrange(1_000)
        closes = [Close(at_ms, False), Close(at_ms, True)]
        for member in closes if random.random() < 0.4 else [Generation(at_ms, random.choice(NUMBERS))]:
            seen.append(Route.of({*seen[-1].members, member}))
    return seen


def draw_table(seed: int) -> Values:
    """Items where writers put them, some of which knew an older route."""
    random = Random(seed)
    texts = [f"{NOW_MS - 500 + random.randrange(4_000)}#{index}" for index in range(random.randrange(12))]
    drawn = {
        "name": f"drawn-{seed}",
        "limit": random.randint(3, 12),
        "newest_first": random.random() < 0.6,
        "asked": [*texts[:1], f"{NOW_MS}#none"],
    }
    if random.random() < 0.3:
        numbers = sorted(random.sample(NUMBERS, 2))
        return {**drawn, "numbers": numbers, "stored": [], "written": [(random.randint(1, 2), text) for text in texts]}
    routes = draw_routes(random)
    members = sorted(routes[-1].encode())
    stored = [{"pk": {"S": "room"}, "sk": {"S": "r#"}, "generations": {"SS": members}}] if members else []
    for text in texts:
        behind = {close.at_ms for close in routes[-1].closes if close.at_ms <= position(text)}
        # Behind a close only those write who know it: that is what a lease is for.
        known = [route for route in routes if behind <= {close.at_ms for close in route.closes}]
        key = ItemKey("room", text, position(text), text)
        place = random.choice(routing.choose_placements(random.choice(known).as_announced, key, FORM))
        stored.append({"pk": {"S": place.partition_key}, "sk": {"S": text}})
    return {**drawn, "numbers": None, "stored": stored}


@mock_aws
@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.long)])
def test_the_reader_in_javascript_reads_what_python_reads(tmp_path, seeds):
    """The vectors, and drawn tables: N from 1 to 16, fixed or raised and closed, in both directions."""
    assert (READER / "node_modules").is_dir(), "the reader's packages are missing: `make setup` installs them"
    tables = [{**table, **work_table(table), "stored": None} for table in map(draw_table, seeds)]
    file = tmp_path / "tables.json"
    with running(DynamoDBServer()) as endpoint:
        file.write_text(json.dumps({"endpoint": endpoint, "tables": tables}))
        environ = {**os.environ, "READER_TABLES": str(file)}
        command = ["node", "--test", "test/"]
        done = subprocess.run(command, cwd=READER, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[done.stdout.find("not ok") :][:4_000]
    # A test for each table, for each other rule, and two of the reader's own.
    assert f"# tests {len(seeds) + len(VECTORS['tables']) + len(RULES) - 1 + 2}" in done.stdout
