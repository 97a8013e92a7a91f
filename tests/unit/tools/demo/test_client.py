"""The clients: open-loop writes, polite retries, and a history that a right system passes and a wrong one does not."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tools.demo.client import (
    HttpApi,
    NoResponseError,
    Response,
    browse,
    mint_message_id,
    open_session,
    play,
    read_everything,
)
from tools.demo.workload import Offer, Workload
from tools.history_checker import check_history


def workload(messages: int = 300, conversations: int = 5) -> Workload:
    offers = tuple(
        Offer(number * 0.02, f"room-{number % conversations}", "ada", f"text {number}") for number in range(messages)
    )
    return Workload(
        offers=offers,
        hot_conversation="room-0",
        onset_seconds=0.0,
        hot_end_seconds=6.0,
        duration_seconds=6.0,
        description="test",
    )


def verdict_of(bench, api, given=None):
    given = given or workload()
    client = bench.client(api)

    async def everything():
        stopped = asyncio.Event()
        visitor = asyncio.ensure_future(browse(client, given, pause_seconds=0.3, stopped=stopped))
        await play(client, given.offers)
        stopped.set()
        await visitor
        return await read_everything(client, given, readers=2)

    assert bench.run(everything()) == ()
    return check_history(client.recorder.history()), client.recorder


def test_a_right_system_passes(bench):
    """Everything is acknowledged, read back, and the promise holds."""
    verdict, recorder = verdict_of(bench, bench.api())
    assert verdict.holds
    assert verdict.acknowledged == 300
    assert verdict.conversations == 5
    assert recorder.counts.replays > 0
    assert recorder.counts.rejected == 0
    assert verdict.reads > 10


@pytest.mark.parametrize(
    ("misbehaviour", "fault"),
    [
        ({"lose_every": 50}, "missing"),
        ({"double_every": 40}, "duplicated"),
        ({"disorder": True}, "out_of_order"),
        ({"alter_every": 9}, "altered"),
    ],
)
def test_a_wrong_system_is_found_out(bench, misbehaviour, fault):
    """Each misbehaviour of the API ends in a verdict that names it."""
    verdict, _ = verdict_of(bench, bench.api(**misbehaviour))
    assert not verdict.holds
    assert getattr(verdict, fault) > 0
    assert fault in {finding.fault for finding in verdict.examples}


def test_refused_messages_are_offered_again_with_the_same_id(bench):
    """A 503 names the id to repeat; nothing is stored twice and nothing is given up."""
    api = bench.api(refuse_share=0.4, refuse_reads_share=0.2)
    verdict, recorder = verdict_of(bench, api)
    assert verdict.holds
    assert verdict.acknowledged == 300
    assert sum(len(own) for own in api.stored.values()) == 300
    assert recorder.counts.throttled == recorder.counts.retries > 50


def test_writes_without_a_response_are_repeated_only_with_an_id(bench):
    """Without an id a repetition could store a message twice, so the outcome stays unknown and is allowed for."""
    api = bench.api(no_response_share=0.2)
    verdict, recorder = verdict_of(bench, api)
    assert verdict.holds
    assert {offer.message_id for offer in recorder.unresolved} == {None}
    assert verdict.acknowledged + len(recorder.unresolved) == 300
    assert sum(len(own) for own in api.stored.values()) == 300


def test_a_message_that_stays_refused_is_given_up(bench):
    """After its time is over a message counts as rejected, and may or may not be there."""
    client = bench.client(bench.api(refuse_share=1.0))
    bench.run(client.write(Offer(0.0, "room", "ada", "text")))
    assert client.recorder.counts.rejected == 1
    assert client.recorder.counts.acknowledged == 0
    assert client.recorder.unresolved[0].message_id is not None


def test_the_load_is_open_loop(bench):
    """A slow API does not slow the offers down."""
    client = bench.client(bench.api(delay_seconds=5.0))
    bench.run(play(client, [Offer(float(second), "room", "ada", "text") for second in range(10)]))
    offered = [at - client.recorder.offered_at[0][0] for at, _ in client.recorder.offered_at]
    assert offered == pytest.approx(list(range(10)), abs=0.01)


def test_a_wrong_response_is_noted_and_not_retried(bench):
    """A 4xx is the client's or the API's mistake: it is kept for the report."""

    class Refusing:
        calls = 0

        async def write(self, conversation_id, message):
            self.calls += 1
            return Response(400, {"title": "no"})

    api = Refusing()
    client = bench.client(api)
    bench.run(client.write(Offer(0.0, "room", "ada", "text")))
    assert api.calls == 1
    assert client.recorder.counts.rejected == 1
    assert client.recorder.notes == ["write to room answered 400: {'title': 'no'}"]


def test_both_sides_mint_ids(bench):
    """A share of the messages carries the client's id, the rest leaves it to the server."""
    given_ids = []

    class Counting:
        def __init__(self, inner):
            self.inner = inner

        async def write(self, conversation_id, message):
            given_ids.append("message_id" in message)
            return await self.inner.write(conversation_id, message)

    client = bench.client(Counting(bench.api()))
    bench.run(play(client, workload().offers))
    assert 100 < sum(given_ids) < 200


def test_minted_ids_sort_by_time():
    """An id is a ULID of the given moment."""
    rng = random.Random(1)
    early, late = mint_message_id(now=1_700_000_000.0, rng=rng), mint_message_id(now=1_700_000_001.0, rng=rng)
    assert early < late
    assert len(early) == 26


def test_the_http_api_speaks_the_wire_format():
    """Paths, bodies, parameters and Retry-After are what the API documents, and a lost server is unanswered."""
    asked = []

    async def write(request):
        asked.append((request.path, await request.json()))
        return web.json_response(
            {"message_id": "X"},
            status=503,
            content_type="application/problem+json",
            headers={"Retry-After": "2"},
        )

    async def read(request):
        asked.append((request.path, dict(request.query)))
        return web.json_response({"messages": [], "next_cursor": None, "settled_until": "t"})

    async def scenario():
        app = web.Application()
        app.router.add_post("/conversations/{name}/messages", write)
        app.router.add_get("/conversations/{name}/messages", read)
        server = TestServer(app)
        await server.start_server()
        async with open_session(connections=2) as session:
            api = HttpApi(session, f"{server.make_url('/')}")
            responses = [await api.write("a:b", {"sender": "s", "body": "b"}), await api.read("c", {"limit": "5"})]
            await server.close()
            with pytest.raises(NoResponseError):
                await api.read("c", {})
        return responses

    responses = asyncio.run(scenario())
    assert asked == [
        ("/conversations/a:b/messages", {"sender": "s", "body": "b"}),
        ("/conversations/c/messages", {"limit": "5"}),
    ]
    assert responses == [
        Response(503, {"message_id": "X"}, 2.0),
        Response(200, {"messages": [], "next_cursor": None, "settled_until": "t"}),
    ]


def test_a_wait_for_a_connection_is_no_part_of_the_response_time():
    """With one connection, the second of two requests waits for the first."""

    async def write(_request):
        await asyncio.sleep(0.2)
        return web.json_response({"message_id": "X"}, status=201)

    async def scenario():
        app = web.Application()
        app.router.add_post("/conversations/{name}/messages", write)
        server = TestServer(app)
        await server.start_server()
        async with open_session(connections=1) as session:
            api = HttpApi(session, f"{server.make_url('/')}")
            responses = await asyncio.gather(*(api.write("c", {"sender": "s", "body": "b"}) for _ in range(2)))
        await server.close()
        return sorted(response.queued_seconds for response in responses)

    first, second = asyncio.run(scenario())
    assert first == 0.0
    assert second >= 0.19


def test_every_write_with_a_response_is_timed(bench):
    """Refusals too: they are what clients wait for."""
    client = bench.client(bench.api(refuse_share=0.5, delay_seconds=0.25))
    bench.run(play(client, workload(messages=20).offers))
    counts = client.recorder.counts
    assert len(client.recorder.timings) == counts.acknowledged + counts.throttled
    assert {round(timing.seconds, 6) for timing in client.recorder.timings} == {0.25}


def test_the_connections_are_bounded():
    """The session holds no more connections than it was given."""

    async def limit():
        async with open_session(connections=3) as session:
            assert isinstance(session.connector, aiohttp.TCPConnector)
            return session.connector.limit

    assert asyncio.run(limit()) == 3
