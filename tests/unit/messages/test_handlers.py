"""The functions from event to response, where no transcript shows it: sizes, clocks, time, metrics and cold starts."""

import inspect
import json

import pytest
from aws_lambda_powertools import Metrics

from hotpartition.control.consumer import RunSummary
from hotpartition.core.errors import StoreUnavailableError, ThrottledError
from hotpartition.core.times import format_time
from hotpartition.runtime.settings import Settings
from hotpartition_messages.api import build_handler, count_fitting, page_text, remaining_ms
from hotpartition_messages.message_ids import message_time_ms
from hotpartition_messages.messages import Message
from support.builders import World, message_id
from support.events import FakeContext, delete_event, edit_event, load_handler, message_event, page_event, post_event

from .api import Api

NOW_MS = 1_700_000_000_000
GOOD = {"sender": "ann", "body": "hi"}


@pytest.fixture
def api():
    return Api()


def test_pages_hold_every_message_and_name_no_shard(api):
    """Of a raised conversation; and where a page is cut to what fits into a response."""
    ids = api.write(3)
    api.world.raise_to(8, api.world.clock.now_ms)
    api.world.clock.now_ms += 5000
    ids += api.write(10) + api.write(20, body="x" * 390_000)
    assert any("#" in partition_key for partition_key, _ in api.world.table.items)
    assert (api.walk(), api.walk(order="oldest", limit=7)) == (ids[::-1], ids)
    assert "#" not in api.call(page_event("c")).text


@pytest.mark.parametrize(("order", "bound"), [("newest", "after"), ("oldest", "before")])
def test_a_walk_whose_bounds_have_moved_past_it_is_over(api, order, bound):
    """Nothing lies between its cursor and them, and DynamoDB would refuse to look there."""
    ids = api.write(4)
    cursor = api.call(page_event("c", limit=2, order=order)).body["next_cursor"]
    passed = message_time_ms(ids[3 if order == "newest" else 1])
    api.world.table.calls.clear()
    page = api.call(page_event("c", cursor=cursor, order=order, **{bound: format_time(passed)}))
    assert (page.status, page.body["messages"], page.body["next_cursor"]) == (200, [], None)
    assert not [call for call in api.world.table.calls if call.startswith("query")]


def test_the_time_that_is_left_ends_the_attempts(api):
    """The last three seconds belong to an attempt that just began and to the response."""
    api.world.table.failures = [ThrottledError()] * 100
    assert api.call(post_event("c", GOOD), FakeContext(remaining_ms=400)).status == 503
    assert api.world.table.calls == ["put c"]
    assert [remaining_ms(FakeContext(remaining_ms=left)) for left in (100, 5_000)] == [0, 2_000]


@pytest.mark.parametrize(("budget_ms", "left_ms"), [(1, 60_000), (300, 400)])
def test_the_budget_and_the_time_that_is_left_end_a_change(api, budget_ms, left_ms):
    """Whichever is over first, while DynamoDB refuses the replacement."""
    (stored,) = api.write(1)
    api.open(budget_ms=budget_ms)
    refused = []

    def refuse(name):
        if name == "replace c":
            refused.append(name)
            raise ThrottledError

    api.world.table.on_call = refuse
    for event in (edit_event("c", stored, {"body": "anew"}), delete_event("c", stored)):
        assert api.call(event, FakeContext(remaining_ms=left_ms)).status == 503
    assert refused == ["replace c"] * 2


@pytest.mark.parametrize(
    "body", ['{"' + "n" * 1_000_000 + '":1}', '{"sender":"a","body":"b","attributes":{"' + "n" * 300_000 + '":NaN}}']
)
def test_a_refusal_is_small_however_large_the_request(api, body):
    """The beginning of a long name."""
    response = api.call(post_event("c", body))
    assert (response.status, len(response.text) < 10_000) == (400, True)


def test_an_item_over_the_limit_is_refused_by_the_byte(api):
    """400 KiB are taken whole, with names, keys and the room that a raise may need; one byte more is not."""
    response = api.post(body="x" * 420_000)
    assert (api.world.table.calls, api.world.reports.sent) == ([], [])
    needed = int(response.body["detail"].split("needs ")[1].split()[0])
    assert api.post(body="x" * (420_000 - needed + 409_601)).status == 413
    assert api.post(body="x" * (420_000 - needed + 409_600)).status == 201
    assert api.call(post_event("c", " " * 5_000_000)).status == 413
    (stored,) = api.walk()
    assert api.call(edit_event("c", stored, {"body": "x" * 410_000})).status == 413


@pytest.mark.parametrize("failure", [ThrottledError(), StoreUnavailableError("away")])
def test_an_id_made_by_a_clock_that_is_ahead_can_be_repeated_elsewhere(api, failure):
    """Whatever became of the first attempt: by another environment, whose clock is right or a little behind."""
    api.world.table.failures = [failure] * 100
    api.world.clock.now_ms = NOW_MS + 600_000
    refused = api.call(post_event("c", GOOD, received_ms=NOW_MS))
    api.world.clock.now_ms, api.world.table.failures = NOW_MS - 3_000, []
    assert (refused.status, api.post(message_id=refused.body["message_id"]).status) == (503, 201)


def test_an_id_is_judged_by_the_later_of_two_clocks(api):
    """One that a client made lately is taken where the function's clock is behind."""
    late = {**GOOD, "message_id": message_id(NOW_MS + 60_000)}
    assert api.call(post_event("c", late)).status == 400
    assert api.call(post_event("c", late, received_ms=NOW_MS + 55_000)).status == 201


def filled(body):
    return [Message("c", "0" * 26, "ann", body) for _ in range(200)]


@pytest.mark.parametrize("character", ["a", "é", "✓", "😀", '"', "\\", "\n", "\x01"])
def test_a_page_never_passes_the_functions_response(character):
    """The response, escaped as Lambda escapes it, stays below 6 MB; 200 messages of 1,799 characters are not cut."""
    for length in (100, 1_799, 1_800, 20_000, 400_000 // len(character.encode())):
        messages = filled(character * length)
        fitting = messages[: max(1, count_fitting(messages))]
        response = {"body": page_text(fitting, next_cursor="c" * 50, settled_until="2026-11-21T09:30:00.000Z")}
        assert len(json.dumps(response)) < 6_000_000
        assert length > 1_799 or fitting == messages


def counted(capsys, *names):
    """Sum metrics over the embedded metric lines written so far."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    return [sum(sum(line.get(name, [])) for line in lines) for name in names]


def test_requests_are_served_and_counted(capsys):
    """From the runtime's event to the response, with one metric line on stdout, also when a request is refused.

    From the handler to what sends requests there are twelve frames of the project's own at most.
    """
    world, opened, depths = World(), [], []

    def look(_):
        frames = [frame.filename for frame in inspect.stack()]
        depths.append(sum("/layers/" in name or "/lambdas/" in name for name in frames))

    def open_routes(telemetry):
        opened.append(telemetry)
        return load_handler("write_message").build_routes(world.writer(), telemetry)

    write = build_handler(open_routes)
    read = build_handler(lambda telemetry: load_handler("read_messages").build_routes(world.reader(), telemetry))
    Metrics().clear_metrics()  # Powertools shares what is counted, also by requests of other tests
    assert opened == []
    world.table.on_call = look
    assert write(post_event("c", GOOD), FakeContext())["statusCode"] == 201
    assert 5 <= depths[0] <= 12
    assert counted(capsys, "Requests", "MessagesWritten") == [1, 1]
    assert write(post_event("a#1", "{"), FakeContext())["statusCode"] == 400
    assert read(page_event("c"), FakeContext())["statusCode"] == 200
    assert counted(capsys, "Requests", "PagesRead") == [2, 1]
    assert read(message_event("c", message_id(1)), FakeContext())["statusCode"] == 404
    assert counted(capsys, "Requests", "MessagesRead") == [1, 0]
    assert len(opened) == 1


def test_the_consumer_stops_before_its_timeout(monkeypatch, capsys):
    """It runs for its setting, or until 10 s before the end, whichever comes first, and returns what it did."""
    module, ran = load_handler("consume_reports"), []

    class Consumer:
        def run(self, run_ms):
            ran.append(run_ms)
            return RunSummary(raises=2, ended="successor")

    monkeypatch.setattr(module, "_settings", lambda: Settings.defaults("consumer", run_seconds=170))
    monkeypatch.setattr(module, "_consumer", Consumer)
    for left_ms in (900_000, 60_000):
        summary = module.handler({"time": "2026-11-21T12:00:00Z"}, FakeContext(remaining_ms=left_ms))
    assert ran == [170_000, 50_000]
    assert (json.loads(json.dumps(summary))["raises"], summary["ended"]) == (2, "successor")
    assert counted(capsys, "ConsumerStarted") == [2]


def test_a_probe_gets_ready_and_does_not_run(monkeypatch, capsys):
    """So a person sees that it can start; the one that works is not replaced, and no start is counted."""
    module, built = load_handler("consume_reports"), []
    monkeypatch.setattr(module, "_consumer", lambda: built.append(1))
    assert module.handler({"probe": True}, FakeContext()) == {"ready": True}
    assert (built, capsys.readouterr().out) == ([1], "")
