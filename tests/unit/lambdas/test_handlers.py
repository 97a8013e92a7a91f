"""The three functions from event to response, with stand-ins for what is behind them."""

from __future__ import annotations

import base64
import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotpartition.control.consumer import GC_THRESHOLDS, RunSummary
from hotpartition.core.shares import WHOLE, Share
from hotpartition.core.timestamps import format_time
from hotpartition.errors import (
    InvalidRequestError,
    MalformedGenerationError,
    OutcomeUnknownError,
    SettingsError,
    StoreUnavailableError,
    ThrottledError,
)
from hotpartition.runtime.settings import ConsumerSettings
from hotpartition_messages.api import route_event
from hotpartition_messages.cursor import build_cursor
from support.builders import World, message_id, route_of
from support.events import (
    FakeContext,
    add_event,
    counter_event,
    delete_event,
    edit_event,
    http_event,
    message_event,
    page_event,
    post_event,
)
from support.handlers import load_handler

NOW_MS = 1_700_000_000_000
ID_RULE = "should be 1 to 256 characters out of A-Z a-z 0-9 _ . : @ -, and neither '.' nor '..'"
MESSAGE_ID_RULE = "should be a ULID (26 characters) or a UUIDv7"
REASON = "TableWriteKeyRangeThroughputExceeded"

BAD_IDS = ["a#1", "#", "", "x" * 257, "é", "a b", "a/b", "a%2F", "a\x00", ".", "..", "a\n", "\ud800"]


@dataclass
class Response:
    """A function's response, as API Gateway takes it."""

    status: int
    headers: dict[str, str]
    body: Any
    text: str

    @property
    def wrong_fields(self) -> list[str]:
        return [error["field"] for error in self.body["errors"]]


class Api:
    """Both HTTP functions on one world."""

    def __init__(self) -> None:
        self.world = World()
        self.write_app = load_handler("write_message").build_app(
            self.world.writer(), self.world.changer(), self.world.counter_writer()
        )
        self.read_app = load_handler("read_messages").build_app(self.world.reader(), self.world.counter_reader())

    def call(self, event: dict[str, Any], context: FakeContext | None = None) -> Response:
        """Resolve an event, and hold every response to what is promised of all of them."""
        app = self.read_app if event["routeKey"].startswith("GET") else self.write_app
        raw = app.resolve(route_event(event), context or FakeContext())
        json.dumps(raw).encode()
        raw["body"].encode()
        if raw["statusCode"] in {204, 304}:
            assert raw["body"] == ""
            return Response(raw["statusCode"], raw["headers"], None, "")
        response = Response(raw["statusCode"], raw["headers"], json.loads(raw["body"]), raw["body"])
        if response.status >= 400:
            check_problem(response)
        else:
            assert response.headers["Content-Type"] == "application/json"
        return response

    def post(self, raw: object = None, /, conversation_id: str = "c", **fields: Any) -> Response:
        """Write a good message with some fields changed, or a body of one's own."""
        body = {"sender": "ann", "body": "hi"} | fields if raw is None else raw
        return self.call(post_event(conversation_id, body))


def by_token(**claims: Any) -> dict[str, Any]:
    """What API Gateway passes on of a token that it has verified."""
    return {"jwt": {"claims": claims, "scopes": None}}


def check_problem(response: Response) -> None:
    """Check the shape of a problem document (RFC 9457)."""
    assert response.headers["Content-Type"] == "application/problem+json"
    document = response.body
    assert {"type", "title", "status", "detail"} <= document.keys()
    assert document.keys() <= {"type", "title", "status", "detail", "errors", "message_id"}
    assert document["status"] == response.status
    assert document["type"].startswith("urn:hotpartition:")
    assert all(isinstance(document[member], str) and document[member] for member in ("type", "title", "detail"))
    if response.status == 400:
        assert document["errors"]
        assert all(set(error) == {"field", "message"} for error in document["errors"])


@pytest.fixture
def api() -> Api:
    return Api()


class TestWrite:
    def test_a_message_is_stored(self, api):
        """201 with the id that was minted and its time."""
        response = api.post(attributes={"n": 1})
        assert response.status == 201
        assert response.body.keys() == {"conversation_id", "message_id", "sent_at"}
        assert (response.body["conversation_id"], response.body["sent_at"]) == ("c", format_time(NOW_MS))
        ((pk, sk),) = api.world.table.items
        assert (pk, sk) == ("c", "m#" + response.body["message_id"])

    def test_a_retry_is_a_replay_and_other_content_a_conflict(self, api):
        """The same id again: 200 with the same response for the same content, 409 for other content."""
        first = api.post(message_id=message_id(NOW_MS))
        again = api.post(message_id=message_id(NOW_MS))
        other = api.post(message_id=message_id(NOW_MS), body="other")
        assert [first.status, again.status, other.status] == [201, 200, 409]
        assert first.body == again.body
        assert other.body["message_id"] == message_id(NOW_MS)
        assert other.body["type"] == "urn:hotpartition:message-conflict"

    @pytest.mark.parametrize(
        "sent",
        ["018bcfe5-6800-7000-8000-000000000005", "018BCFE5-6800-7000-8000-000000000005", "01hf7yat00e00800000000000 5"],
    )
    def test_every_form_of_an_id_is_one_id(self, api, sent):
        """UUIDv7 and ULID, in either case, are stored and answered in the canonical form."""
        value = int("018bcfe56800700080000000000000" + "05", 16)
        canonical = message_id(NOW_MS, value & ((1 << 80) - 1))
        sent = canonical.lower() if " " in sent else sent
        assert api.post(message_id=sent).body["message_id"] == canonical
        assert api.post(message_id=canonical).status == 200

    @pytest.mark.parametrize(
        "wrong",
        [
            "",
            "garbage",
            "0" * 25,
            "0" * 27,
            "8" + "0" * 25,
            "U" * 26,
            str(uuid.UUID(int=0, version=4)),
            "\u017f" * 26,
            "\ud800",
        ],
    )
    def test_other_message_ids_are_refused(self, api, wrong):
        """Neither a ULID nor a UUIDv7: 400, and nothing is stored."""
        response = api.post(message_id=wrong)
        assert (response.status, response.wrong_fields) == (400, ["message_id"])
        assert not api.world.table.items

    def test_an_id_lies_at_most_five_seconds_ahead(self, api):
        """At the edge it is taken, 1 ms further it is not; the past has no limit."""
        assert api.post(message_id=message_id(NOW_MS + 5000)).status == 201
        assert api.post(message_id=message_id(0)).status == 201
        response = api.post(message_id=message_id(NOW_MS + 5001))
        assert (response.status, response.wrong_fields) == (400, ["message_id"])
        assert "5001 ms" in response.body["detail"]

    @pytest.mark.parametrize("conversation_id", BAD_IDS)
    def test_other_conversation_ids_are_refused(self, api, conversation_id):
        """A `#`, nothing, too much, or other characters: 400 naming the rule."""
        response = api.post(conversation_id=conversation_id)
        assert response.status == 400
        assert response.body["errors"] == [{"field": "conversation_id", "message": ID_RULE}]
        assert not api.world.table.calls

    @pytest.mark.parametrize("conversation_id", ["a", "x" * 256, "...", "a.b:c@d-e_f"])
    def test_allowed_ids_are_taken_as_they_are(self, api, conversation_id):
        """All 67 characters survive, up to 256 of them."""
        assert api.post(conversation_id=conversation_id).body["conversation_id"] == conversation_id

    @pytest.mark.parametrize(
        "body", [None, "", "{", "not json", "[]", "null", "5", '"text"', "[" * 100_000, "\ufeff{}"]
    )
    def test_a_body_that_is_no_json_object_is_refused(self, api, body):
        """400 that says that the body as a whole is meant, not the field of this name."""
        response = api.call(post_event("c", body))
        assert response.status == 400
        assert response.body["errors"] == [{"field": "body", "message": "the request's body should be a JSON object"}]

    def test_all_wrong_fields_are_named_at_once(self, api):
        """Missing, wrongly typed, unknown and out of range, together with the path."""
        response = api.post({"sender": 5, "body": None, "attributes": [], "message_id": 7, "extra": 1}, "a#1")
        assert response.status == 400
        expected = ["attributes", "body", "conversation_id", "extra", "message_id", "sender"]
        assert sorted(response.wrong_fields) == expected
        assert all(f"{field}: " in response.body["detail"] for field in expected)
        assert sorted(api.post({}).wrong_fields) == ["body", "sender"]

    @pytest.mark.parametrize("sender", ["", "x" * 257])
    def test_a_sender_has_1_to_256_characters(self, api, sender):
        """Somebody sent it."""
        assert api.post(sender=sender).wrong_fields == ["sender"]

    @pytest.mark.parametrize(
        "number", ["NaN", "Infinity", "-Infinity", "1e999", "1e126", "1e-131", "9" * 39, "-" + "9" * 39]
    )
    def test_a_number_that_cannot_be_kept_is_refused(self, api, number):
        """What DynamoDB would round, or not take at all, is named by its place."""
        response = api.post('{"sender":"a","body":"b","attributes":{"x":[1,' + number + "]}}")
        assert (response.status, response.wrong_fields) == (400, ["attributes.x[1]"])

    @pytest.mark.parametrize("number", ["0", "-0.0", "1e125", "1e-130", "9" * 38, "1" + "0" * 125, "0.1", "5e-1"])
    def test_other_numbers_come_back_equal(self, api, number):
        """A number is returned with its value, if not in its spelling."""
        sent = api.post('{"sender":"a","body":"b","attributes":{"x":' + number + "}}")
        got = api.call(message_event("c", sent.body["message_id"]))
        wanted = json.loads(number)
        assert type(wanted)(got.body["attributes"]["x"]) == wanted

    def test_a_number_too_long_to_parse_is_refused(self, api):
        """Python refuses to turn very long digits into a number; that is the client's mistake, not ours."""
        assert api.post('{"sender":"a","body":"b","attributes":{"x":' + "9" * 5000 + "}}").status == 400

    @pytest.mark.parametrize(("levels", "status"), [(30, 201), (31, 400), (500, 400)])
    def test_nesting_has_a_limit(self, api, levels, status):
        """30 levels, the first of which is `attributes` itself."""
        body = '{"sender":"a","body":"b","attributes":{"x":' + "[" * (levels - 1) + "]" * (levels - 1) + "}}"
        assert api.post(body).status == status

    @pytest.mark.parametrize(
        "fields",
        [
            {"sender": "\ud800"},
            {"body": "a\udfff"},
            {"attributes": {"\ud800": 1}},
            {"attributes": {"x": ["\ud800"]}},
            {"\ud800": 1},
            {"attributes": {"": 1}},
        ],
    )
    def test_what_no_encoding_takes_is_refused(self, api, fields):
        """Lone surrogates anywhere, and empty names: 400, in a document that can be encoded."""
        assert api.post(**fields).status == 400
        assert not api.world.table.items

    def test_an_item_over_the_limit_is_413(self, api):
        """400 KiB are taken whole, with names, keys and the room that a raise may need; one byte more is not."""
        too_much = 420_000
        response = api.post(body="x" * too_much)
        assert (response.status, response.body["type"]) == (413, "urn:hotpartition:message-too-large")
        needed = int(re.search(r"needs (\d+) bytes", response.body["detail"])[1])
        assert api.post(body="x" * (too_much - needed + 409_600)).status == 201
        assert api.post(body="x" * (too_much - needed + 409_601)).status == 413
        assert api.post(body="é" * (too_much // 2)).status == 413

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ("{" + ",".join(f'"f{index}":1' for index in range(60_000)) + "}", 400),
            ('{"' + "n" * 1_000_000 + '":1}', 400),
            ('{"sender":"a","body":"b","attributes":{"' + "n" * 300_000 + '":NaN}}', 400),
            ('{"sender":"a","body":"b","attributes":{"x":[' + "1," * 800_000 + "1]}}", 413),
            ('{"sender":"a","body":"b","attributes":{"x":[' + "1," * 400_000 + "1]}}", 413),
            (" " * 5_000_000 + '{"sender":"a","body":"b"}', 413),
        ],
        ids=["many fields", "a long field", "a long attribute", "too many values", "large values", "a long body"],
    )
    def test_a_refusal_is_small_however_large_the_request(self, api, body, status):
        """The first wrong fields and how many more; the beginning of a long name."""
        response = api.post(body)
        assert response.status == status
        assert len(response.text) < 10_000

    def test_a_compressed_body_is_415(self, api):
        """The response says that the encoding is meant, and not the JSON."""
        event = post_event("c", {"sender": "a", "body": "b"})
        response = api.call({**event, "headers": {**event["headers"], "content-encoding": "gzip"}})
        assert (response.status, response.body["type"]) == (415, "urn:hotpartition:unsupported-encoding")

    @pytest.mark.parametrize(
        "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/xml"]
    )
    def test_the_content_type_does_not_matter(self, api, content_type):
        """A body is JSON, whatever its label."""
        event = post_event("c", {"sender": "a", "body": "b"}, content_type=content_type)
        assert api.call(event).status == 201

    def test_a_body_may_come_in_base64(self, api):
        """As the gateway sends what it takes for binary."""
        body = base64.b64encode('{"sender":"é","body":"ü"}'.encode()).decode()
        assert api.call(post_event("c", body, is_base64=True, content_type="application/octet-stream")).status == 201
        assert api.call(post_event("c", "***", is_base64=True)).status == 400

    @pytest.mark.parametrize("failure", [ThrottledError([REASON]), ThrottledError(), StoreUnavailableError("away")])
    def test_a_refusal_names_the_id_to_retry_with(self, api, failure):
        """503 with Retry-After and the id; repeating with it is the same message, whatever became of the first try."""
        api.world.table.failures = [failure] * 100
        response = api.post()
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert response.body["type"] == "urn:hotpartition:retry-later"
        api.world.table.failures.clear()
        retried = api.post(message_id=response.body["message_id"])
        assert (retried.status, retried.body["message_id"]) == (201, response.body["message_id"])

    def test_a_refusal_keeps_the_clients_own_id(self, api):
        """In its canonical form."""
        api.world.table.failures = [ThrottledError([REASON])] * 100
        response = api.post(message_id=message_id(NOW_MS, 9).lower())
        assert (response.status, response.body["message_id"]) == (503, message_id(NOW_MS, 9))

    def test_the_time_that_is_left_ends_the_attempts(self, api):
        """Shortly before the timeout one attempt is made, and the response is still out in time."""
        api.world.table.failures = [ThrottledError([REASON])] * 100
        event = post_event("c", {"sender": "a", "body": "b"})
        assert api.call(event, FakeContext(remaining_ms=400)).status == 503
        assert api.world.table.calls == ["put c"]

    def test_a_write_goes_on_without_redis(self, api):
        """Registry and streams away: 201 as ever."""
        api.world.registry.is_down = api.world.reports.is_down = True
        assert api.post().status == 201


class TestChange:
    """`PATCH` and `DELETE`, and what is left of a message behind them."""

    @pytest.fixture
    def stored(self, api):
        return api.post(message_id=message_id(NOW_MS), attributes={"n": 1}).body["message_id"]

    def test_an_edit_returns_the_message(self, api, stored):
        """As it is read from then on, with its tag."""
        before = api.call(message_event("c", stored))
        response = api.call(edit_event("c", stored, {"body": "hi all"}, if_match=before.headers["ETag"]))
        after = api.call(message_event("c", stored))
        assert (response.status, response.body, response.headers["ETag"]) == (200, after.body, after.headers["ETag"])
        assert after.body == {**before.body, "body": "hi all", "edited_at": format_time(NOW_MS)}
        assert api.call(page_event("c")).body["messages"] == [after.body]
        assert after.headers["ETag"] != before.headers["ETag"]

    def test_a_stale_tag_is_412(self, api, stored):
        """For either change; `*` and a list that has the right one are not stale; a weak tag matches nothing."""
        tag = api.call(message_event("c", stored)).headers["ETag"]
        assert api.call(edit_event("c", stored, {"body": "x"}, if_match=f'"old", {tag}')).status == 200
        response = api.call(edit_event("c", stored, {"body": "y"}, if_match=tag))
        assert (response.status, response.body["type"]) == (412, "urn:hotpartition:message-changed")
        assert api.call(delete_event("c", stored, if_match=tag)).status == 412
        now = api.call(message_event("c", stored)).headers["ETag"]
        assert api.call(delete_event("c", stored, if_match=f"W/{now}")).status == 412
        assert api.call(edit_event("c", stored, {"body": "z"}, if_match="*")).status == 200

    @pytest.mark.parametrize("tag", ["", "1-abc", '"', "'x'", '"a" "b"', '"a",', '"a\x7f"', "\ud800"])
    def test_what_is_no_tag_is_refused(self, api, stored, tag):
        """A tag without its quotation marks would never match: 400 says so."""
        response = api.call(delete_event("c", stored, if_match=tag))
        assert (response.status, response.wrong_fields) == (400, ["If-Match"])

    def test_a_deleted_message_is_gone(self, api, stored):
        """204, and again; then 410 for reading, editing and writing it, and no page has it."""
        assert [api.call(delete_event("c", stored)).status for _ in range(2)] == [204, 204]
        gone = [
            api.call(message_event("c", stored)),
            api.call(edit_event("c", stored, {"body": "x"})),
            api.post(message_id=stored, attributes={"n": 1}),
            api.post(message_id=stored, body="other"),
        ]
        assert {(a.status, a.body["type"]) for a in gone} == {(410, "urn:hotpartition:message-gone")}
        assert api.call(page_event("c")).body["messages"] == []

    def test_an_unknown_message_is_404(self, api):
        """For both."""
        for event in (edit_event("c", message_id(1), {"body": "x"}), delete_event("c", message_id(1))):
            assert api.call(event).status == 404

    @pytest.mark.parametrize(
        ("body", "wrong"),
        [
            ({}, ["body"]),
            ({"body": None}, ["body"]),
            ({"attributes": None, "body": 5, "sender": "bob"}, ["attributes", "body", "sender"]),
            ({"attributes": {"a": float("nan")}}, ["attributes.a"]),
            ({"body": "\ud800"}, ["body"]),
            ("[]", ["body"]),
        ],
    )
    def test_an_edit_has_a_new_body_or_attributes(self, api, stored, body, wrong):
        """And nothing else: a message keeps its sender."""
        response = api.call(edit_event("c", stored, body))
        assert (response.status, sorted(response.wrong_fields)) == (400, wrong)

    def test_an_edit_over_the_limit_is_413(self, api, stored):
        """As a write."""
        assert api.call(edit_event("c", stored, {"body": "x" * 409_600})).status == 413
        assert api.call(edit_event("c", stored, {"body": "x" * 409_000})).status == 200

    def test_a_message_may_expire(self, api):
        """It says when, and is not there from then on: 404, whether DynamoDB has removed it or not."""
        sent = api.post(expires_at="2023-11-14T22:14:20.5Z")
        event = message_event("c", sent.body["message_id"])
        assert api.call(event).body["expires_at"] == "2023-11-14T22:14:21.000Z"
        api.world.clock.now_ms += 61_000
        assert api.call(event).status == 404
        assert api.call(page_event("c")).body["messages"] == []
        assert api.post(expires_at="2023-11-14T22:13:20Z").status == 410

    @pytest.mark.parametrize("expires_at", [5, "tomorrow", "2026-01-01T00:00:00", "0001-01-01T00:00:00Z", True])
    def test_other_expiries_are_refused(self, api, expires_at):
        """An RFC 3339 time."""
        assert api.post(expires_at=expires_at).wrong_fields == ["expires_at"]

    def test_with_a_sender_claim_only_the_sender_may(self, api, stored):
        """403 for everybody else, and for whoever is nobody."""
        api.write_app = load_handler("write_message").build_app(
            api.world.writer(), api.world.changer(), api.world.counter_writer(), sender_claim="sub"
        )
        for authorizer in (by_token(sub="bob"), by_token(), None):
            for event in (
                edit_event("c", stored, {"body": "x"}, authorizer=authorizer),
                delete_event("c", stored, authorizer=authorizer),
            ):
                response = api.call(event)
                assert (response.status, response.body["type"]) == (403, "urn:hotpartition:not-the-sender")
        ann = by_token(sub="ann")
        assert api.call(edit_event("c", stored, {"body": "x"}, authorizer=ann)).status == 200
        assert api.call(delete_event("c", stored, authorizer=ann)).status == 204


class TestCounters:
    """`POST` adds, `GET` reads."""

    def test_what_is_added_is_read(self, api):
        """Up and down; 0 before."""
        assert api.call(counter_event("likes:a")).body == {"counter_id": "likes:a", "value": 0}
        assert api.call(add_event("likes:a", {})).body == {"counter_id": "likes:a", "amount": 1}
        assert api.call(add_event("likes:a", {"amount": -3})).status == 200
        for _ in range(2):
            assert api.call(add_event("likes:a", {"amount": 44, "token": "ann"})).status == 200
        assert api.call(counter_event("likes:a", consistency="eventual")).body["value"] == 42

    def test_a_token_with_another_amount_is_a_conflict(self, api):
        """409, and nothing is counted."""
        assert api.call(add_event("likes", {"amount": 1, "token": "ann"})).status == 200
        response = api.call(add_event("likes", {"amount": 2, "token": "ann"}))
        assert (response.status, response.body["type"]) == (409, "urn:hotpartition:token-reused")
        assert api.call(counter_event("likes")).body["value"] == 1

    @pytest.mark.parametrize("counter_id", BAD_IDS)
    def test_other_ids_are_refused(self, api, counter_id):
        """By the rule of conversations."""
        for event in (add_event(counter_id, {}), counter_event(counter_id)):
            response = api.call(event)
            assert (response.status, response.body["errors"]) == (400, [{"field": "counter_id", "message": ID_RULE}])

    @pytest.mark.parametrize(
        ("body", "fields"),
        [
            ({"amount": 1.5}, ["amount"]),
            ({"amount": "1"}, ["amount"]),
            ({"amount": True}, ["amount"]),
            ({"amount": 1_000_000_001, "token": ""}, ["amount", "token"]),
            ({"amount": None}, ["amount"]),
            ({"token": "a b"}, ["token"]),
            ({"token": "x" * 129}, ["token"]),
            ({"token": "\ud800"}, ["token"]),
            ({"tokens": "t"}, ["tokens"]),
            ("", ["body"]),
            ("[]", ["body"]),
        ],
    )
    def test_wrong_additions_are_refused(self, api, body, fields):
        """Each wrong field is named."""
        response = api.call(add_event("likes", body))
        assert (response.status, response.wrong_fields) == (400, fields)
        assert api.world.counters.total == 0

    def test_a_refused_addition_is_503(self, api):
        """With `Retry-After`; nothing was counted, or there is a token."""
        for body in ({}, {"token": "ann"}):
            api.world.counters.fails = lambda _: ThrottledError([REASON])
            response = api.call(add_event("likes", body))
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert "message_id" not in response.body

    def test_an_unknown_outcome_is_504(self, api):
        """Without `Retry-After`: a repetition may count it twice."""
        api.world.counters.loses = lambda _: OutcomeUnknownError("no response: it may have been added or not")
        response = api.call(add_event("likes", {}))
        assert (response.status, response.body["type"]) == (504, "urn:hotpartition:outcome-unknown")
        assert "Retry-After" not in response.headers

    def test_counters_are_apart_from_conversations(self, api):
        """No conversation's id is a counter's key."""
        api.call(add_event("c", {}))
        assert {place for place, _ in api.world.counters.cells} == {"counter/c"}
        assert api.call(page_event("c")).body["messages"] == []
        assert api.call(page_event("counter/c")).status == 400


class TestSender:
    """With `sender_claim`, who writes is who the authorizer says."""

    @pytest.fixture
    def claimed(self, api):
        api.write_app = load_handler("write_message").build_app(
            api.world.writer(), api.world.changer(), api.world.counter_writer(), sender_claim="sub"
        )
        return api

    @pytest.mark.parametrize("authorizer", [by_token(sub="ann", aud="chat"), {"lambda": {"sub": "ann"}}])
    @pytest.mark.parametrize("fields", [{}, {"sender": "ann"}])
    def test_it_is_the_callers(self, claimed, authorizer, fields):
        """A token's claim, or what a Lambda authorizer passed on; the body may say the same."""
        response = claimed.call(post_event("c", {"body": "hi", **fields}, authorizer=authorizer))
        assert response.status == 201
        assert claimed.call(message_event("c", response.body["message_id"])).body["sender"] == "ann"

    @pytest.mark.parametrize("sender", ["bob", "", None, 5, ["ann"]])
    def test_a_body_that_names_another_is_refused(self, claimed, sender):
        """403, and nothing is stored."""
        event = post_event("c", {"sender": sender, "body": "hi"}, authorizer=by_token(sub="ann"))
        response = claimed.call(event)
        assert (response.status, response.body["type"]) == (403, "urn:hotpartition:not-the-sender")
        assert not claimed.world.table.calls

    @pytest.mark.parametrize(
        "authorizer",
        [
            *(None, {}, {"jwt": None}, by_token(), by_token(sub=""), by_token(sub="x" * 257)),
            *(by_token(name="ann"), {"lambda": {"sub": 5}}, {"lambda": None}, {"iam": {"userArn": "arn"}}),
        ],
    )
    def test_a_caller_without_one_cannot_write(self, claimed, authorizer):
        """Nor is what the body says taken for it."""
        response = claimed.call(post_event("c", {"sender": "ann", "body": "hi"}, authorizer=authorizer))
        assert response.status == 403
        assert "the caller's sub should be a text" in response.body["detail"]
        assert not claimed.world.table.calls

    @pytest.mark.parametrize("body", ["{", "[]", "null"])
    def test_a_body_that_is_no_object_is_refused_as_such(self, claimed, body):
        """There is no sender to compare."""
        assert claimed.call(post_event("c", body, authorizer=by_token(sub="ann"))).wrong_fields == ["body"]

    def test_without_the_setting_the_body_names_it(self, api):
        """Whoever calls."""
        event = post_event("c", {"sender": "bob", "body": "hi"}, authorizer=by_token(sub="ann"))
        assert api.call(event).status == 201


class TestRead:
    def write(self, api, count=5, **fields):
        ids = []
        for _ in range(count):
            api.world.clock.now_ms += 1
            ids.append(api.post(**fields).body["message_id"])
        return ids

    def test_pages_follow_one_another(self, api):
        """Newest first by default, oldest first on request, each message once, and null after the last page."""
        ids = self.write(api, 5)
        for order, wanted in [("newest", ids[::-1]), ("oldest", ids)]:
            seen, cursor = [], {}
            while True:
                page = api.call(page_event("c", limit=2, order=order, consistency="strong", **cursor))
                assert page.status == 200
                assert page.body.keys() == {"messages", "next_cursor", "settled_until"}
                seen += [m["message_id"] for m in page.body["messages"]]
                if page.body["next_cursor"] is None:
                    break
                cursor = {"cursor": page.body["next_cursor"]}
            assert seen == wanted

    def test_a_message_is_what_was_sent(self, api):
        """On a page and by its id, with its attributes and without anything of ours."""
        (id_,) = self.write(api, 1, body="ü#1", attributes={"a": [1, None, {"b": "é"}]})
        wanted = {
            "conversation_id": "c",
            "message_id": id_,
            "sender": "ann",
            "body": "ü#1",
            "sent_at": format_time(NOW_MS + 1),
            "attributes": {"a": [1, None, {"b": "é"}]},
        }
        assert api.call(page_event("c")).body["messages"] == [wanted]
        assert api.call(message_event("c", id_)).body == wanted
        assert api.call(message_event("c", id_.lower(), consistency="strong")).body == wanted

    def test_shards_stay_inside(self, api):
        """Whatever a conversation is stored under, no response names a shard."""
        early = self.write(api, 3)
        api.world.raise_to(8, api.world.clock.now_ms)
        api.world.clock.now_ms += 5000
        ids = early + self.write(api, 20)
        assert any("#" in pk for pk, _ in api.world.table.items)
        responses = [
            api.call(page_event("c", limit=7)),
            api.call(page_event("c", limit=200, order="oldest")),
            *(api.call(message_event("c", id_)) for id_ in ids),
            api.post(message_id=ids[-1]),
            api.post(message_id=ids[-1], body="other"),
            api.call(message_event("c", message_id(1))),
        ]
        assert {response.status for response in responses} == {200, 404, 409}
        assert not [response.text for response in responses if "#" in response.text]
        assert [m["message_id"] for m in responses[1].body["messages"]] == ids

    def test_a_message_that_is_not_there_is_404(self, api):
        """By any form of its id, in a conversation that exists or not."""
        for id_ in (message_id(1), message_id(1).lower(), "018bcfe5-6800-7000-8000-000000000005"):
            response = api.call(message_event("c", id_))
            assert (response.status, response.body["type"]) == (404, "urn:hotpartition:message-not-found")

    @pytest.mark.parametrize("conversation_id", BAD_IDS)
    def test_other_conversation_ids_are_refused(self, api, conversation_id):
        """On both routes, as for writing."""
        for event in (page_event(conversation_id), message_event(conversation_id, message_id(1))):
            response = api.call(event)
            assert response.status == 400
            assert response.body["errors"] == [{"field": "conversation_id", "message": ID_RULE}]

    @pytest.mark.parametrize("wrong", ["x", "", str(uuid.UUID(int=0, version=4)), "a#b", "a/b", "\ud800"])
    def test_other_message_ids_are_refused(self, api, wrong):
        """400, not 404: such a message cannot exist."""
        response = api.call(message_event("c", wrong))
        assert response.status == 400
        assert response.body["errors"] == [{"field": "message_id", "message": MESSAGE_ID_RULE}]

    @pytest.mark.parametrize(
        ("query", "field"),
        [({"limit": limit}, "limit") for limit in (0, 201, -1, "", "x", "1.5", "1,2", "9" * 5000, "1_0", " 5")]
        + [({"order": order}, "order") for order in ("", "up", "NEWEST")]
        + [({"consistency": c}, "consistency") for c in ("", "weak", "true")]
        + [({"after": t}, "after") for t in ("", "x", "2026-01-01", "2026-01-01T00:00:00", "1700000000000")]
        + [({"before": t}, "before") for t in ("", "x", "2026-13-01T00:00:00Z")]
        + [({"cursor": c}, "cursor") for c in ("", "x", "A" * 42, "é" * 42, "\ud800" * 42)],
    )
    def test_wrong_parameters_are_refused(self, api, query, field):
        """400 naming the parameter."""
        response = api.call(page_event("c", **query))
        assert (response.status, response.wrong_fields) == (400, [field])

    def test_all_wrong_parameters_are_named_at_once(self, api):
        """One round trip tells all."""
        response = api.call(page_event("a#1", limit=0, after="x", before="y", order="z", consistency="w"))
        fields = ["after", "before", "consistency", "conversation_id", "limit", "order"]
        assert sorted(response.wrong_fields) == fields
        response = api.call(message_event("a#1", "x", consistency="w"))
        assert sorted(response.wrong_fields) == ["consistency", "conversation_id", "message_id"]

    @pytest.mark.parametrize("limit", [1, 200])
    def test_the_limits_edges_are_allowed(self, api, limit):
        """1 to 200."""
        ids = self.write(api, 3)
        assert len(api.call(page_event("c", limit=limit)).body["messages"]) == min(limit, len(ids))

    def test_a_cursor_belongs_to_its_conversation_and_order(self, api):
        """Elsewhere it is refused and not misread."""
        self.write(api, 3)
        cursor = api.call(page_event("c", limit=1)).body["next_cursor"]
        assert api.call(page_event("c", cursor=cursor)).status == 200
        changed = cursor[:-1] + ("A" if cursor[-1] != "A" else "B")
        for event in (
            page_event("d", cursor=cursor),
            page_event("c", cursor=cursor, order="oldest"),
            page_event("c", cursor=build_cursor("c", message_id(5), newest_first=False, walk_started_ms=5)),
            page_event("c", cursor=changed),
        ):
            response = api.call(event)
            assert (response.status, response.wrong_fields) == (400, ["cursor"])

    def test_a_range_is_half_open(self, api):
        """At or after `after`, and before `before`."""
        ids = self.write(api, 5)
        after, before = format_time(NOW_MS + 2), format_time(NOW_MS + 4)
        page = api.call(page_event("c", after=after, before=before, order="oldest"))
        assert [m["message_id"] for m in page.body["messages"]] == ids[1:3]

    @pytest.mark.parametrize(
        ("after", "before"),
        [
            ("2026-01-01T00:00:00Z", "2025-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("0001-01-01T00:00:00Z", "1960-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", None),
        ],
    )
    def test_an_empty_range_is_an_empty_page(self, api, after, before):
        """Nothing can lie there: 200 with nothing."""
        self.write(api, 2)
        times = {"after": after} | ({"before": before} if before else {})
        page = api.call(page_event("c", **times))
        assert (page.status, page.body["messages"], page.body["next_cursor"]) == (200, [], None)

    @pytest.mark.parametrize(
        ("event", "allowed"),
        [
            (page_event("c", utm="x"), "allowed are limit, after, before, order, cursor, consistency"),
            (message_event("c", message_id(NOW_MS), utm="x"), "allowed are consistency"),
            (post_event("c", {"sender": "a", "body": "b"}, query={"utm": "x"}), "no query parameter is allowed here"),
        ],
    )
    def test_unknown_parameters_are_refused(self, api, event, allowed):
        """A misspelt `afer` would read everything: 400 that says what there is."""
        response = api.call(event)
        assert (response.status, response.body["errors"]) == (
            400,
            [{"field": "utm", "message": f"is unknown; {allowed}"}],
        )

    def test_a_signature_in_the_url_is_no_parameter(self, api):
        """Whether the gateway passes its own parameters on or not."""
        signature = {"X-Amz-Signature": "f00d", "X-Amz-Date": "20261121T093000Z"}
        assert api.call(page_event("c", **signature, limit=1)).status == 200

    def test_a_wrong_cursor_is_named_with_all_other_wrong_parameters(self, api):
        """Whatever it is wrong about: its form, its conversation or its order."""
        cursor = build_cursor("c", message_id(NOW_MS), newest_first=True, walk_started_ms=NOW_MS)
        cases = [
            (page_event("c", cursor="x", limit=0, after="now", colour="red"), ["limit", "after", "cursor", "colour"]),
            (page_event("c", cursor=cursor, order="oldest", limit=0), ["limit", "cursor"]),
            (page_event("d", cursor=cursor, limit=0), ["limit", "cursor"]),
            (page_event("a#1", cursor="x"), ["conversation_id", "cursor"]),
            (page_event("c", cursor="x", order="up"), ["order", "cursor"]),
            (page_event("c", cursor=cursor, order="up"), ["order"]),
        ]
        for event, expected in cases:
            response = api.call(event)
            assert (response.status, response.wrong_fields) == (400, expected)
        assert not api.world.table.calls

    def test_a_page_is_complete_or_503(self, api):
        """DynamoDB refuses for the whole budget: nothing partial, and when to come again."""
        ids = self.write(api, 3)
        for event in (page_event("c"), message_event("c", ids[0])):
            api.world.table.failures = [ThrottledError()] * 100
            response = api.call(event)
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert "message_id" not in response.body
        api.world.table.failures.clear()

    def test_reads_are_complete_without_redis(self, api):
        """The journal knows what Redis would have said."""
        api.world.raise_to(4, NOW_MS)
        api.write_app = load_handler("write_message").build_app(
            api.world.writer(), api.world.changer(), api.world.counter_writer()
        )
        ids = self.write(api, 10)
        api.world.registry.is_down = True
        api.read_app = load_handler("read_messages").build_app(api.world.reader(), api.world.counter_reader())
        page = api.call(page_event("c", consistency="strong", order="oldest"))
        assert [m["message_id"] for m in page.body["messages"]] == ids

    def test_a_route_that_cannot_be_read_is_an_error(self, api):
        """Fails closed, and loudly: the page could be incomplete, and an operator hears whose route it is."""

        def break_journal(name):
            raise MalformedGenerationError("'x' is no generation")

        api.world.table.on_call = break_journal
        response = api.call(page_event("c"))
        assert response.status == 500
        assert api.world.telemetry.counts["JournalMalformed"] == 1
        assert api.world.telemetry.events[-1][1]["conversation_id"] == "c"

    def test_a_page_of_large_messages_is_cut_to_what_fits(self, api):
        """All of them are read, on more pages: none is hidden behind a response that is too large."""
        for _ in range(20):
            api.world.clock.now_ms += 1
            assert api.post(sender="ann", body="x" * 390_000).status == 201
        found, cursor = [], None
        while True:
            response = api.call(page_event("c", **({"cursor": cursor} if cursor else {})))
            assert response.status == 200
            found += [m["message_id"] for m in response.body["messages"]]
            cursor = response.body["next_cursor"]
            if cursor is None:
                break
        assert len(found) == len(set(found)) == 20
        assert found == sorted(found, reverse=True)

    def test_message_id_and_attributes_are_named_with_the_rest(self, api):
        """Checks of values and of shapes in one response."""
        response = api.post({"sender": "s", "message_id": "nope", "attributes": {"a": {"": 1}}})
        assert response.status == 400
        assert sorted(response.wrong_fields) == ["attributes.a", "body", "message_id"]


def counted(capsys, *names):
    """Sum metrics over the embedded metric lines written so far."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    return [sum(sum(line.get(name, [])) for line in lines) for name in names]


class TestNewestPage:
    @pytest.fixture
    def api(self, api):
        """One whose reader caches pages of what is read-hot: `hot` is, `c` is not."""
        api.read_app = load_handler("read_messages").build_app(
            api.world.reader(environment="e"), api.world.counter_reader()
        )
        api.world.registry.mark_read_hot("hot", 1)
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

    @pytest.mark.parametrize(
        "query",
        [
            {"consistency": "strong"},
            {"order": "oldest"},
            {"after": format_time(NOW_MS)},
            {"before": format_time(NOW_MS)},
        ],
    )
    def test_other_pages_have_neither(self, api, query):
        """They are read each time, and sent."""
        response = self.read(api, "hot", "*", **query)
        assert response.status == 200
        assert not {"ETag", "Age"} & response.headers.keys()

    def test_a_page_with_a_cursor_has_neither(self, api):
        """It is no newest page."""
        api.post(conversation_id="hot")
        cursor = self.read(api, "hot", limit=1).body["next_cursor"]
        response = self.read(api, "hot", "*", cursor=cursor)
        assert (response.status, len(response.body["messages"])) == (200, 1)
        assert not {"ETag", "Age"} & response.headers.keys()

    def test_wrong_requests_are_refused_as_ever(self, api):
        """However hot the conversation is."""
        assert self.read(api, "hot", "*", limit="0").status == 400
        assert self.read(api, "a#1", "*").status == 400


class TestFunctions:
    """The handlers themselves: cold start, metrics, and what the runtime hands over."""

    @pytest.mark.parametrize(
        "function",
        ["write_message", "read_messages", "consume_reports"],
    )
    def test_missing_settings_are_all_named(self, monkeypatch, function):
        """A wrong deployment says everything that is wrong with it, once, at the first request."""
        module = load_handler(function)
        for name in ("TABLE_NAME", "REGISTRY_HOST"):
            monkeypatch.delenv(f"HOTPARTITION_{name}", raising=False)
        monkeypatch.setenv("HOTPARTITION_REGISTRY_PORT", "many")
        event = {} if function == "consume_reports" else page_event("c")
        if function == "write_message":
            event = post_event("c", {"sender": "a", "body": "b"})
        with pytest.raises(SettingsError) as raised:
            module.handler(event, FakeContext())
        assert [problem.split()[0] for problem in raised.value.problems] == [
            "HOTPARTITION_TABLE_NAME",
            "HOTPARTITION_REGISTRY_HOST",
            "HOTPARTITION_REGISTRY_PORT",
        ]

    @pytest.mark.parametrize("stage", ["$default", "v1"])
    def test_requests_are_served_and_counted(self, monkeypatch, capsys, api, stage):
        """From the runtime's event to the response, with one metric line on stdout, also when a request is refused."""
        write, read = load_handler("write_message"), load_handler("read_messages")
        write.metrics.clear_metrics()  # Powertools shares what is counted, also by requests of other tests
        monkeypatch.setattr(write, "_app", lambda: api.write_app)
        monkeypatch.setattr(read, "_app", lambda: api.read_app)
        stored = write.handler(post_event("c", {"sender": "a", "body": "b"}, stage=stage), FakeContext())
        assert stored["statusCode"] == 201
        assert counted(capsys, "Requests", "MessagesWritten") == [1, 1]
        assert write.handler(post_event("a#1", "{", stage=stage), FakeContext())["statusCode"] == 400
        page = read.handler(page_event("c"), FakeContext())
        assert json.loads(page["body"])["messages"][0]["body"] == "b"
        assert counted(capsys, "Requests", "PagesRead") == [2, 1]
        assert read.handler(message_event("c", message_id(1)), FakeContext())["statusCode"] == 404
        assert counted(capsys, "Requests", "MessagesRead") == [1, 0]

    def test_the_consumer_stops_before_its_timeout(self, monkeypatch, capsys):
        """It runs for its setting, or until 10 s before the end, whichever comes first, and returns what it did."""
        module = load_handler("consume_reports")
        ran = []

        class Consumer:
            def run(self, run_ms, share):
                ran.append((run_ms, share))
                return RunSummary(raises=2, ended="successor")

        settings_ = ConsumerSettings.defaults(run_seconds=170)
        monkeypatch.setattr(module, "_settings", lambda: settings_)
        monkeypatch.setattr(module, "_consumer", Consumer)
        for remaining_ms in (900_000, 60_000):
            summary = module.handler({"time": "2026-11-21T12:00:00Z"}, FakeContext(remaining_ms=remaining_ms))
        assert ran == [(170_000, WHOLE), (50_000, WHOLE)]
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

    def test_a_consumer_of_a_share_is_counted_by_its_share_too(self, monkeypatch, capsys):
        """So that an alarm notices one that is missing; whoever starts it with nonsense starts nothing."""
        module = load_handler("consume_reports")
        ran = []

        class Consumer:
            def run(self, _, share):
                ran.append(share)
                return RunSummary()

        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "hotpartition-test")
        monkeypatch.setattr(module, "_settings", ConsumerSettings.defaults)
        monkeypatch.setattr(module, "_consumer", Consumer)
        module.handler({"share": {"index": 1, "count": 2}}, FakeContext(remaining_ms=900_000))
        assert ran == [Share(1, 2)]
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "_aws" in line]
        started = [line for line in lines if "ConsumerStarted" in line]
        assert [line.get("share") for line in started] == ["1", None]
        (sets,) = started[0]["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
        assert set(sets) == {"service", "share"}
        with pytest.raises(InvalidRequestError):
            module.handler({"share": {"index": 2, "count": 2}}, FakeContext(remaining_ms=900_000))
        assert ran == [Share(1, 2)]

    def test_the_consumer_keeps_the_garbage_collector_from_its_state(self, monkeypatch):
        """Set once, where the process is known to be a consumer's."""
        module = load_handler("consume_reports")
        told = []
        monkeypatch.setattr(module.gc, "set_threshold", lambda *thresholds: told.append(thresholds))
        monkeypatch.setattr(module, "open_consumer", lambda *_: "the consumer")
        monkeypatch.setattr(module, "_settings", lambda: None)
        assert [module._consumer(), module._consumer()] == ["the consumer"] * 2
        assert told == [GC_THRESHOLDS]

    def test_an_unknown_route_is_404(self, api):
        """Should the gateway ever send one that no function has."""
        response = api.call(http_event("GET", "/elsewhere", {}))
        assert (response.status, response.body["type"]) == (404, "urn:hotpartition:no-such-resource")


surrogates = st.characters(codec=None, categories=["Cs"])
texts = st.text(max_size=20) | st.text(st.characters(codec="utf-8") | surrogates, max_size=5)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
bodies = st.dictionaries(
    st.sampled_from(["sender", "body", "message_id", "attributes"]) | texts, json_values, max_size=5
) | st.fixed_dictionaries(
    {"sender": texts, "body": texts},
    optional={"attributes": st.dictionaries(texts, json_values, max_size=4), "message_id": texts},
)
ids = st.sampled_from(["c", "a.b"]) | texts
parameters = st.dictionaries(
    st.sampled_from(["limit", "after", "before", "order", "cursor", "consistency", "other"]),
    texts | st.sampled_from(["1", "200", "oldest", "newest", "strong", "2026-01-01T00:00:00Z"]),
    max_size=4,
)


class TestFuzz:
    """Whatever arrives, the response is one of ours, and can be encoded."""

    @settings(max_examples=150, deadline=None)
    @given(ids, json_values | bodies | st.binary(max_size=20) | texts)
    def test_writes(self, conversation_id, body):
        """Any JSON, any text, any bytes; what is acknowledged can be read."""
        api = Api()
        if isinstance(body, bytes):
            event = post_event(conversation_id, base64.b64encode(body).decode(), is_base64=True)
        else:
            event = post_event(conversation_id, body)
        response = api.call(event)
        assert response.status in {200, 201, 400, 413}
        if response.status == 201:
            assert api.call(message_event(conversation_id, response.body["message_id"])).status == 200
            assert len(api.call(page_event(conversation_id)).body["messages"]) == 1

    @settings(max_examples=150, deadline=None)
    @given(ids, texts, parameters)
    def test_reads(self, conversation_id, id_, query):
        """Any path and any parameters."""
        api = Api()
        api.world.table.routes.clear()
        assert api.call(page_event(conversation_id, **query)).status in {200, 400}
        assert api.call(message_event(conversation_id, id_, **query)).status in {200, 400, 404}


def test_the_fakes_route_like_the_real_thing():
    """The world that the functions stand in here knows raises."""
    world = World()
    world.raise_to(4, NOW_MS)
    assert world.registry.get("c") == route_of((4, NOW_MS))
