"""What is seen from outside: raises in the journal, loads of keys, changes of the parts."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from tools.demo.observer import (
    Control,
    ControlError,
    Event,
    Observations,
    Raise,
    count_environments,
    key_loads,
    look_at_parts,
    new_raises,
    read_routing_item,
)

ITEM = {
    "pk": {"S": "c"},
    "generations": {"SS": ["8@1700000000500", "4@1700000000000"]},
    "updated_at": {"S": "2023-11-14T22:13:21.250Z"},
}


def test_raises_are_read_from_the_journal():
    """Every generation that was not known is a raise, at the item's own time."""
    assert new_raises(ITEM, [], now=1_700_000_001.4, previous=1_700_000_001.2) == (
        Raise(1_700_000_001.25, 4, 1_700_000_000_000),
        Raise(1_700_000_001.25, 8, 1_700_000_000_500),
    )
    known = [Raise(0.0, 4, 1_700_000_000_000), Raise(0.0, 8, 1_700_000_000_500)]
    assert new_raises(ITEM, known, now=1_700_000_001.4, previous=0.0) == ()


@pytest.mark.parametrize("item", [{**ITEM, "updated_at": {"S": "soon"}}, {"generations": ITEM["generations"]}, ITEM])
def test_without_a_believable_time_the_look_is_the_time(item):
    """A missing or impossible time is replaced by the moment of the look."""
    found = new_raises(item, [], now=1_700_000_009.0, previous=1_700_000_008.8)
    assert {raised.seen_at for raised in found} == {1_700_000_009.0}


BUCKET = {
    "at_ms": 250,
    "key": "c#1",
    "writes": 2,
    "write_wcu": 2.0,
    "throttled_writes": 1,
    "throttled_wcu": 1.0,
    "reads": 0,
    "read_rcu": 0.0,
    "throttled_reads": 0,
}


def status(*, redis: bool, errors: int = 0) -> dict:
    functions = {"write_message": {"environments": 4, "errors": errors}, "read_messages": {"environments": 2}}
    return {"functions": functions, "redis": {"running": redis}, "dynamodb": {}}


def test_the_timeline_is_read_by_bucket_and_key():
    """A bucket that was still open is replaced by its later state."""
    first = key_loads({"buckets": [BUCKET]})
    later = key_loads({"buckets": [{**BUCKET, "writes": 5}]})
    assert {**first, **later}[250, "c#1", ""].writes == 5


def test_environments_are_counted_over_all_functions():
    """The status has them by function."""
    assert count_environments(status(redis=True)) == 6
    assert count_environments({}) == 0


def test_the_parts_are_looked_at_through_the_control_api():
    """Loads are kept, the most environments remembered, and what changed is told."""
    states = iter([status(redis=True), status(redis=False, errors=2)])
    asked = []

    async def timeline(request):
        asked.append(request.query["since_ms"])
        return web.json_response({"buckets": [{**BUCKET, "at_ms": 5_000}]})

    async def give_status(request):
        return web.json_response(next(states))

    async def scenario():
        app = web.Application()
        app.router.add_get("/dynamodb/timeline", timeline)
        app.router.add_get("/status", give_status)
        server = TestServer(app)
        await server.start_server()
        observations = Observations()
        async with ClientSession() as session:
            control = Control(session, str(server.make_url("/")))
            await look_at_parts(control, observations, now=lambda: 1.0)
            await look_at_parts(control, observations, now=lambda: 2.0)
            with pytest.raises(ControlError, match="answered 404 to POST /redis/kill"):
                await control.post("/redis/kill")
            await server.close()
            with pytest.raises(ControlError, match="does not respond GET /status"):
                await control.get("/status")
        return observations

    observations = asyncio.run(scenario())
    assert asked == ["0", "3000"]
    assert observations.events == [Event(2.0, "Redis is down"), Event(2.0, "write_message failed (2)")]
    assert observations.most_environments == 6
    assert [load.at_ms for load in observations.timeline()] == [5_000]


def test_the_journal_is_asked_as_dynamodb_is():
    """The item comes from GetItem; a refusal is no item this time."""
    responses = iter([(200, {"Item": ITEM}), (200, {}), (400, {"__type": "ThrottlingException"})])
    targets = []

    async def dynamodb(request):
        targets.append(request.headers["X-Amz-Target"])
        assert (await request.json())["Key"] == {"pk": {"S": "c"}, "sk": {"S": "r#"}}
        code, body = next(responses)
        return web.json_response(body, status=code)

    async def scenario():
        app = web.Application()
        app.router.add_post("/", dynamodb)
        server = TestServer(app)
        await server.start_server()
        async with ClientSession() as session:
            facts = {"endpoint": str(server.make_url("/")), "tables": {"t": {"table_name": "t"}, "another": None}}
            items = [await read_routing_item(session, facts, "c") for _ in range(3)]
            await server.close()
            return [*items, await read_routing_item(session, facts, "c")]

    assert asyncio.run(scenario()) == [ITEM, None, None, None]
    assert targets == ["DynamoDB_20120810.GetItem"] * 3
