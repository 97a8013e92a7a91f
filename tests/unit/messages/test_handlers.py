"""The three functions from event to response, with stand-ins for what is behind them.

What a request may say is in `tests/unit/messages/test_requests.py`, what the jobs do in the engine's tests.
"""

import inspect
import json
from dataclasses import dataclass
from typing import Any

import pytest
from aws_lambda_powertools import Metrics

from hotpartition.control.consumer import RunSummary
from hotpartition.core.errors import (
    MalformedGenerationError,
    SettingsError,
    StoreUnavailableError,
    ThrottledError,
)
from hotpartition.core.times import format_time
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.runtime.settings import Settings
from hotpartition_messages.api import build_handler, count_fitting, page_text, remaining_ms, respond
from hotpartition_messages.keys import describe_table
from hotpartition_messages.message_ids import message_time_ms
from hotpartition_messages.messages import Message
from hotpartition_messages.writing import MessageWriter
from support.builders import World, message_id
from support.documents import check_described
from support.events import (
    FakeContext,
    delete_event,
    edit_event,
    http_event,
    load_handler,
    message_event,
    page_event,
    post_event,
)

NOW_MS = 1_700_000_000_000
ID = message_id(NOW_MS)
OTHER_ID = message_id(1)
REASON = "TableWriteKeyRangeThroughputExceeded"
GOOD = {"sender": "ann", "body": "hi", "message_id": ID}


@dataclass
class Response:
    """A function's response, as API Gateway takes it."""

    status: int
    headers: dict[str, str]
    body: Any
    text: str


class Api:
    """Both HTTP functions on one world."""

    def __init__(self, *, sender_claim: str = "", environment: str | None = None) -> None:
        self.world = World()
        self.routes = {
            **load_handler("write_message").build_routes(
                self.world.writer(), self.world.changer(), self.world.telemetry, sender_claim=sender_claim
            ),
            **load_handler("read_messages").build_routes(
                self.world.reader(environment=environment) if environment else self.world.reader(),
                self.world.telemetry,
            ),
        }

    def call(self, event: dict[str, Any], context: FakeContext | None = None) -> Response:
        """Respond to an event, and hold every response to what is promised of all of them."""
        raw = respond(self.routes, event, context or FakeContext())
        json.dumps(raw).encode()
        status, headers, text = raw["statusCode"], raw["headers"], raw["body"]
        text.encode()
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert ("Content-Type" in headers) is bool(text)
        if event["routeKey"] in self.routes:
            check_described(event["routeKey"], status, headers, text)
        body = json.loads(text) if text else None
        if status >= 400:
            assert headers["Content-Type"] == "application/problem+json"
            assert (body["status"], bool(body["title"]), bool(body["detail"])) == (status, True, True)
        return Response(status, headers, body, text)

    def post(self, conversation_id: str = "c", **fields: Any) -> Response:
        """Write a good message with some fields changed."""
        return self.call(post_event(conversation_id, {"sender": "ann", "body": "hi"} | fields))

    def write(self, count: int) -> list[str]:
        """Write messages a millisecond apart; returns their ids."""
        ids = []
        for _ in range(count):
            self.world.clock.now_ms += 1
            ids.append(self.post().body["message_id"])
        return ids

    def walk(self, **query: Any) -> list[str]:
        """Read page after page; returns the messages' ids."""
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.call(page_event("c", **query, **cursor))
            assert page.status == 200
            found += [message["message_id"] for message in page.body["messages"]]
            if page.body["next_cursor"] is None:
                return found
            cursor = {"cursor": page.body["next_cursor"]}


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def stored(api):
    """One with a message."""
    assert api.call(post_event("c", GOOD)).status == 201
    return api


class TestSuccess:
    """What each route returns when all is well."""

    def test_a_message_is_acknowledged(self, api):
        """201 with its id and time; 200 with the same for the same content."""
        wanted = {"conversation_id": "c", "message_id": ID, "sent_at": format_time(NOW_MS)}
        first, again = (api.call(post_event("c", GOOD)) for _ in range(2))
        assert [(first.status, first.body), (again.status, again.body)] == [(201, wanted), (200, wanted)]
        assert list(api.world.table.items) == [("c", f"m#{ID}")]

    def test_a_message_is_what_was_sent(self, api):
        """On a page, by its id in any form, and after an edit, which says when it was."""
        attributes = {"a": [1, None, {"b": "é"}]}
        sent = api.post(body="ü#1", attributes=attributes, message_id=ID).body
        wanted = {**sent, "sender": "ann", "body": "ü#1", "attributes": attributes}
        page = api.call(page_event("c"))
        assert page.body == {"messages": [wanted], "next_cursor": None, "settled_until": format_time(NOW_MS - 5_000)}
        one = api.call(message_event("c", ID.lower(), consistency="strong"))
        assert one.body == wanted
        edited = api.call(edit_event("c", ID, {"body": "hi all"}, if_match=one.headers["ETag"]))
        assert (edited.status, edited.body) == (200, wanted | {"body": "hi all", "edited_at": format_time(NOW_MS)})
        now = api.call(message_event("c", ID))
        assert (now.body, now.headers["ETag"]) == (edited.body, edited.headers["ETag"])
        assert now.headers["ETag"] != one.headers["ETag"]

    def test_a_message_may_expire(self, api):
        """It says when, and is not there from then on, whether DynamoDB has removed it or not."""
        api.post(expires_at="2023-11-14T22:14:20.5Z", message_id=ID)
        assert api.call(message_event("c", ID)).body["expires_at"] == "2023-11-14T22:14:21.000Z"
        api.world.clock.now_ms += 61_000
        assert (api.call(message_event("c", ID)).status, api.walk()) == (404, [])

    def test_a_page_of_large_messages_is_cut_to_what_fits(self, api):
        """All of them are read, on more pages: none is hidden behind a response that is too large."""
        ids = []
        for _ in range(20):
            api.world.clock.now_ms += 1
            ids.append(api.post(body="x" * 390_000).body["message_id"])
        assert api.walk() == ids[::-1]

    @pytest.mark.parametrize(("order", "bound"), [("newest", "after"), ("oldest", "before")])
    def test_a_walk_whose_bounds_have_moved_past_it_is_over(self, api, order, bound):
        """Nothing lies between its cursor and them, and DynamoDB would refuse to look there."""
        times = api.write(4)
        cursor = api.call(page_event("c", limit=2, order=order)).body["next_cursor"]
        passed = message_time_ms(times[3 if order == "newest" else 1])
        api.world.table.calls.clear()
        page = api.call(page_event("c", cursor=cursor, order=order, **{bound: format_time(passed)}))
        assert (page.status, page.body["messages"], page.body["next_cursor"]) == (200, [], None)
        assert not [call for call in api.world.table.calls if call.startswith("query")]

    def test_shards_stay_inside(self, api):
        """Whatever a conversation is stored under, no response names a shard."""
        early = api.write(3)
        api.world.raise_to(8, api.world.clock.now_ms)
        api.world.clock.now_ms += 5000
        ids = early + api.write(20)
        assert any("#" in pk for pk, _ in api.world.table.items)
        responses = [
            api.call(page_event("c", limit=7)),
            *(api.call(message_event("c", id_)) for id_ in ids),
            api.post(message_id=ids[-1]),
            api.post(message_id=ids[-1], body="other"),
            api.call(message_event("c", OTHER_ID)),
        ]
        assert {response.status for response in responses} == {200, 404, 409}
        assert not [response.text for response in responses if "#" in response.text]
        assert api.walk(order="oldest") == ids


def fail(*failures):
    """Let the table refuse for the whole budget."""

    def arrange(api):
        api.world.table.failures = list(failures) * 100

    return arrange


break_journal = fail(MalformedGenerationError("'x' is no generation"))


def delete(api):
    assert api.call(delete_event("c", ID)).status == 204


STALE = '"1-00000000"'
ZIPPED = {**post_event("c", GOOD), "headers": {"content-encoding": "gzip"}}
PROBLEMS = [
    (None, post_event("a#1", GOOD), 400, "invalid-request"),
    (None, post_event("c", {**GOOD, "body": "a\udfff"}), 400, "invalid-request"),
    (None, page_event("c", limit=0), 400, "invalid-request"),
    (None, edit_event("c", ID, {"body": "\ud800"}), 400, "invalid-request"),
    (None, edit_event("c", ID, {"body": "x"}, if_match="1"), 400, "invalid-request"),
    (None, message_event("c", OTHER_ID), 404, "message-not-found"),
    (None, edit_event("c", OTHER_ID, {"body": "x"}), 404, "message-not-found"),
    (None, delete_event("c", OTHER_ID), 404, "message-not-found"),
    (None, http_event("GET", "/elsewhere", {}), 404, "no-such-resource"),
    (None, post_event("c", {**GOOD, "body": "other"}), 409, "message-conflict"),
    (delete, message_event("c", ID), 410, "message-gone"),
    (delete, edit_event("c", ID, {"body": "x"}), 410, "message-gone"),
    (delete, post_event("c", GOOD), 410, "message-gone"),
    (None, post_event("c", {**GOOD, "expires_at": "2023-11-14T22:13:20Z"}), 410, "message-gone"),
    (None, edit_event("c", ID, {"body": "x"}, if_match=STALE), 412, "message-changed"),
    (None, delete_event("c", ID, if_match=STALE), 412, "message-changed"),
    (None, post_event("c", {**GOOD, "body": "x" * 410_000}), 413, "message-too-large"),
    (None, edit_event("c", ID, {"body": "x" * 410_000}), 413, "message-too-large"),
    (None, post_event("c", " " * 5_000_000), 413, "message-too-large"),
    (None, ZIPPED, 415, "unsupported-encoding"),
    (break_journal, page_event("c"), 500, "unreadable-route"),
    (fail(ThrottledError([REASON])), post_event("c", GOOD), 503, "retry-later"),
    (fail(StoreUnavailableError("away")), post_event("c", GOOD), 503, "retry-later"),
    (fail(ThrottledError()), page_event("c"), 503, "retry-later"),
    (fail(ThrottledError()), message_event("c", ID), 503, "retry-later"),
]


@pytest.mark.parametrize(("arrange", "event", "status", "kind"), PROBLEMS)
def test_a_problem_has_its_status_and_kind(stored, arrange, event, status, kind):
    """One that is worth repeating says when; a refused write says with which id."""
    if arrange is not None:
        arrange(stored)
    response = stored.call(event)
    assert (response.status, response.body["type"]) == (status, f"urn:hotpartition:{kind}")
    assert response.headers.get("Retry-After") == ("1" if status == 503 else None)
    is_of_message = kind == "message-conflict" or (status == 503 and event["routeKey"].startswith("POST /conv"))
    assert response.body.get("message_id") == (ID if is_of_message else None)


def test_a_route_that_cannot_be_read_is_reported(stored):
    """An operator hears whose route it is."""
    break_journal(stored)
    stored.call(page_event("c"))
    assert stored.world.telemetry.counts["JournalMalformed"] == 1
    assert stored.world.telemetry.events[-1][1]["collection"] == "c"


def test_the_time_that_is_left_ends_the_attempts(api):
    """Shortly before the timeout one attempt is made, and the response is still out in time."""
    fail(ThrottledError([REASON]))(api)
    assert api.call(post_event("c", GOOD), FakeContext(remaining_ms=400)).status == 503
    assert api.world.table.calls == ["put c"]


@pytest.mark.parametrize(
    "body",
    [
        "{" + ",".join(f'"f{index}":1' for index in range(60_000)) + "}",
        '{"' + "n" * 1_000_000 + '":1}',
        '{"sender":"a","body":"b","attributes":{"' + "n" * 300_000 + '":NaN}}',
    ],
    ids=["many fields", "a long field", "a long attribute"],
)
def test_a_refusal_is_small_however_large_the_request(api, body):
    """The first wrong fields and how many more; the beginning of a long name."""
    response = api.call(post_event("c", body))
    assert response.status == 400
    assert len(response.text) < 10_000


def test_an_item_over_the_limit_is_refused_by_the_byte(api):
    """400 KiB are taken whole, with names, keys and the room that a raise may need; one byte more is not."""
    response = api.post(body="x" * 420_000)
    needed = int(response.body["detail"].split("needs ")[1].split()[0])
    assert api.post(body="x" * (420_000 - needed + 409_601)).status == 413
    assert api.post(body="x" * (420_000 - needed + 409_600)).status == 201


@pytest.mark.parametrize("failure", [ThrottledError([REASON]), StoreUnavailableError("away")])
def test_an_id_made_by_a_clock_that_is_ahead_can_be_repeated_elsewhere(api, failure):
    """Whatever became of the first attempt: by another environment, whose clock is right or a little behind."""
    now_ms = api.world.clock.now_ms
    fail(failure)(api)
    api.world.clock.now_ms = now_ms + 600_000
    refused = api.call(post_event("c", {"sender": "ann", "body": "hi"}, received_ms=now_ms))
    api.world.clock.now_ms, api.world.table.failures = now_ms - 3_000, []
    again = post_event("c", {"sender": "ann", "body": "hi", "message_id": refused.body["message_id"]})
    assert (refused.status, api.call(again).status) == (503, 201)


def test_an_id_is_judged_by_the_later_of_two_clocks(api):
    """One that a client made lately is taken where the function's clock is behind."""
    late_id = message_id(NOW_MS + 60_000)
    assert api.post(message_id=late_id).status == 400
    event = post_event("c", {"sender": "ann", "body": "hi", "message_id": late_id}, received_ms=NOW_MS + 55_000)
    assert api.call(event).status == 201


def test_with_a_sender_claim_only_the_sender_may():
    """403 for everybody else, and for a caller without the claim."""
    api = Api(sender_claim="sub")
    ann, bob = ({"jwt": {"claims": {"sub": name}, "scopes": None}} for name in ("ann", "bob"))
    assert api.call(post_event("c", {"body": "hi", "message_id": ID}, authorizer=ann)).status == 201
    assert api.call(message_event("c", ID)).body["sender"] == "ann"
    for authorizer in (bob, None):
        for event in (
            post_event("c", GOOD, authorizer=authorizer),
            edit_event("c", ID, {"body": "x"}, authorizer=authorizer),
            delete_event("c", ID, authorizer=authorizer),
        ):
            response = api.call(event)
            assert (response.status, response.body["type"]) == (403, "urn:hotpartition:not-the-sender")
    assert api.call(edit_event("c", ID, {"body": "x"}, authorizer=ann)).status == 200
    assert api.call(delete_event("c", ID, authorizer=ann)).status == 204


def counted(capsys, *names):
    """Sum metrics over the embedded metric lines written so far."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    return [sum(sum(line.get(name, [])) for line in lines) for name in names]


class TestNewestPage:
    @pytest.fixture
    def api(self):
        """One whose reader caches pages of what is read-hot: `hot` is, `c` is not."""
        api = Api(environment="e")
        api.world.registry.mark_read_hot("hot")
        for conversation_id in ("c", "hot"):
            api.post(conversation_id=conversation_id)
        return api

    def read(self, api, conversation_id, tags=None, **query):
        event = page_event(conversation_id, **query)
        if tags is not None:
            event["headers"]["if-none-match"] = tags
        return api.call(event)

    @pytest.mark.parametrize("conversation_id", ["c", "hot"])
    def test_a_page_that_the_client_has_is_not_sent_again(self, api, conversation_id):
        """304, with the tag that the client knows; until something is written."""
        etag = self.read(api, conversation_id).headers["ETag"]
        assert etag.startswith('W/"')
        for tags in (etag, etag.removeprefix("W/"), f'"x", {etag}', "*"):
            response = self.read(api, conversation_id, tags)
            assert (response.status, response.headers["ETag"], response.text) == (304, etag, "")
        api.post(conversation_id=conversation_id)
        api.world.clock.now_ms += 1_000
        response = self.read(api, conversation_id, etag)
        assert (response.status, len(response.body["messages"])) == (200, 2)
        assert response.headers["ETag"] != etag

    @pytest.mark.parametrize("tags", ["", "x", '"x"', 'W/"', "W/*", "\x00"])
    def test_other_tags_get_the_page(self, api, tags):
        """Also what are none: they only mean that the page is wanted."""
        assert self.read(api, "hot", tags).status == 200

    def test_a_cached_page_says_how_old_it_is(self, api):
        """In seconds, rounded up; a page that was read for this request has no age."""
        assert "Age" not in self.read(api, "hot").headers
        ages = []
        for _ in range(3):
            api.world.clock.now_ms += 1
            ages.append(self.read(api, "hot").headers["Age"])
        assert ages == ["1", "1", "1"]
        etag = self.read(api, "hot").headers["ETag"]
        assert self.read(api, "hot", etag).headers["Age"] == "1"
        assert "Age" not in self.read(api, "c").headers

    def test_a_page_with_a_cursor_has_neither(self, api):
        """It is not a newest page."""
        api.post(conversation_id="hot")
        cursor = self.read(api, "hot", limit=1).body["next_cursor"]
        response = self.read(api, "hot", "*", cursor=cursor)
        assert (response.status, len(response.body["messages"])) == (200, 1)
        assert not {"ETag", "Age"} & response.headers.keys()


class TestFunctions:
    """The handlers themselves: cold start, metrics, and what the runtime hands over."""

    @pytest.mark.parametrize(
        ("function", "event"),
        [("write_message", post_event("c", GOOD)), ("read_messages", page_event("c")), ("consume_reports", {})],
    )
    def test_missing_settings_are_all_named(self, monkeypatch, function, event):
        """A wrong deployment says everything that is wrong with it, once, at the first request."""
        module = load_handler(function)
        for name in ("TABLE_NAME", "REGISTRY_HOST"):
            monkeypatch.delenv(f"HOTPARTITION_{name}", raising=False)
        monkeypatch.setenv("HOTPARTITION_REGISTRY_PORT", "many")
        with pytest.raises(SettingsError) as raised:
            module.handler(event, FakeContext())
        assert [problem.split()[0] for problem in raised.value.problems] == [
            "HOTPARTITION_TABLE_NAME",
            "HOTPARTITION_REGISTRY_HOST",
            "HOTPARTITION_REGISTRY_PORT",
        ]

    def test_requests_are_served_and_counted(self, capsys):
        """From the runtime's event to the response, with one metric line on stdout, also when a request is refused."""
        world, opened = World(), []

        def open_routes(telemetry):
            opened.append(telemetry)
            return load_handler("write_message").build_routes(world.writer(), world.changer(), telemetry)

        write = build_handler(open_routes)
        read = build_handler(lambda telemetry: load_handler("read_messages").build_routes(world.reader(), telemetry))
        Metrics().clear_metrics()  # Powertools shares what is counted, also by requests of other tests
        assert opened == []
        stored = write(post_event("c", {"sender": "a", "body": "b"}), FakeContext())
        assert stored["statusCode"] == 201
        assert counted(capsys, "Requests", "MessagesWritten") == [1, 1]
        assert write(post_event("a#1", "{"), FakeContext())["statusCode"] == 400
        page = read(page_event("c"), FakeContext())
        assert json.loads(page["body"])["messages"][0]["body"] == "b"
        assert counted(capsys, "Requests", "PagesRead") == [2, 1]
        assert read(message_event("c", message_id(1)), FakeContext())["statusCode"] == 404
        assert counted(capsys, "Requests", "MessagesRead") == [1, 0]
        assert len(opened) == 1

    def test_a_write_is_twelve_frames_deep_at_most(self):
        """From the handler to DynamoDB's client, in the project's own code."""
        world, depths = World(), []

        class Calls:
            def call(self, operation, request):
                frames = [frame.filename for frame in inspect.stack()[1:]]
                depths.append(sum("/layers/" in name or "/lambdas/" in name for name in frames))
                return {}

        store = DynamoDBItemStore(Calls(), describe_table("messages"), Message.from_item)
        writer = MessageWriter(
            world.writer().writer, store, now_ms=lambda: NOW_MS, random_bits=world.random.getrandbits
        )
        routes = load_handler("write_message").build_routes(writer, world.changer(), world.telemetry)
        assert build_handler(lambda _: routes)(post_event("c", GOOD), FakeContext())["statusCode"] == 201
        assert 5 <= depths[0] <= 12

    @pytest.fixture
    def consume(self, monkeypatch):
        """The consumer's handler, with a consumer that ends at once; and how it was run."""
        module, ran = load_handler("consume_reports"), []

        class Consumer:
            def run(self, run_ms):
                ran.append(run_ms)
                return RunSummary(raises=2, ended="successor")

        monkeypatch.setattr(module, "_settings", lambda: Settings.defaults("consumer", run_seconds=170))
        monkeypatch.setattr(module, "_consumer", Consumer)
        return module.handler, ran

    def test_the_consumer_stops_before_its_timeout(self, consume, capsys):
        """It runs for its setting, or until 10 s before the end, whichever comes first, and returns what it did."""
        handler, ran = consume
        for left_ms in (900_000, 60_000):
            summary = handler({"time": "2026-11-21T12:00:00Z"}, FakeContext(remaining_ms=left_ms))
        assert ran == [170_000, 50_000]
        assert (summary["raises"], summary["ended"]) == (2, "successor")
        assert counted(capsys, "ConsumerStarted") == [2]
        json.dumps(summary)

    def test_a_probe_gets_ready_and_does_not_run(self, monkeypatch, capsys):
        """So a person sees that it can start; the one that works is not replaced, and no start is counted."""
        module = load_handler("consume_reports")
        built = []
        monkeypatch.setattr(module, "_consumer", lambda: built.append(1))
        assert module.handler({"probe": True}, FakeContext()) == {"ready": True}
        assert (built, capsys.readouterr().out) == ([1], "")


def test_a_response_is_out_before_the_timeout():
    """The last three seconds belong to an attempt that just began and to the response; time is never below 0."""
    assert remaining_ms(FakeContext(remaining_ms=5000)) == 2000
    assert remaining_ms(FakeContext(remaining_ms=100)) == 0


def filled(body):
    return [Message("c", "0" * 26, "ann", body) for _ in range(200)]


@pytest.mark.parametrize("character", ["a", "é", "✓", "😀", '"', "\\", "\n", "\x01"])
def test_a_page_never_passes_the_functions_response(character):
    """Whatever the messages are made of: the response, escaped as Lambda escapes it, stays below 6 MB."""
    for length in (100, 1_799, 1_800, 20_000, 400_000 // len(character.encode())):
        messages = filled(character * length)
        fitting = messages[: max(1, count_fitting(messages))]
        response = {"body": page_text(fitting, next_cursor="c" * 50, settled_until="2026-11-21T09:30:00.000Z")}
        assert len(json.dumps(response)) < 6_000_000


def test_usual_pages_are_not_cut():
    """200 messages of 1,800 characters, of whatever alphabet."""
    assert count_fitting(filled("😀" * 1_799)) == 200
