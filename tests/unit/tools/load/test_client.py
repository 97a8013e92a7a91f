"""The clients: open-loop writes, polite retries, and a history that a right system passes and a wrong one does not."""

from __future__ import annotations

import asyncio

import pytest

from tools.history_checker import check_history
from tools.load.client import Response, browse, play, read_everything
from tools.load.workload import Offer, Workload


def workload() -> Workload:
    offers = tuple(Offer(number * 0.02, f"room-{number % 5}", "ada", f"text {number}") for number in range(300))
    return Workload(
        offers=offers,
        hot_conversation="room-0",
        onset_seconds=0.0,
        hot_end_seconds=6.0,
        duration_seconds=6.0,
        description="test",
    )


def verdict_of(bench, api):
    given = workload()
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
    unresolved = client.recorder.unresolved[0]
    assert unresolved.message_id is not None
    refusal = {"title": "refused", "message_id": unresolved.message_id}
    assert client.recorder.given_up == [f"write to room: status 503 {refusal}"]


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
