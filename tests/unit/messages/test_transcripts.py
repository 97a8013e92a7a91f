"""Transcripts of the HTTP API, each pinned whole: edits, deletions, problems, copies, races, tags and senders.

`>` is a request, `<` its response with the metrics that it counted, `=` a stored item that it changed, `%` a step that
changes the world first. `UPDATE_GOLDEN=1` writes what is returned in place of what stands: read it as a diff.
"""

import json
import re
from pathlib import Path

import pytest

from hotpartition.core.errors import StoreUnavailableError, ThrottledError
from hotpartition.core.route import choose_shards
from hotpartition_messages.writing import Edit, Target
from support.builders import message_id, new_message
from support.golden import assert_golden
from tools.local.events import HttpRequest, build_http_event, find_route

from .api import Api

HERE = Path(__file__).parent / "transcripts"
NOW_MS = 1_700_000_000_000
ID = message_id(NOW_MS)
"""The message that steps are about, 01HF7YAT000000000000000000."""
SHOWN_HEADERS = ("ETag", "Age", "Retry-After")
HEADER = re.compile(r"[A-Z][A-Za-z-]+: ")
DERIVED = {"pk", "sk", "conversation_id", "message_id", "sent_at"}
"""Attributes that repeat an item's place and the message's id."""


def write(api, conversation_id):
    """Let another process write the message."""
    api.world.writer().write(new_message(message_id=ID, conversation_id=conversation_id))


def edit(api, conversation_id, body="another's"):
    """Let another process edit the message."""
    api.world.writer().edit(Target(conversation_id=conversation_id, message_id=ID), Edit(body=body))


def delete(api, conversation_id):
    """Let another process delete the message."""
    api.world.writer().delete(Target(conversation_id=conversation_id, message_id=ID))


def spread(api, conversation_id):
    """Raise the conversation, and let everybody know."""
    api.world.raise_to(4, NOW_MS - 1000, conversation_id=conversation_id)
    api.open()


def write_late(api, conversation_id):
    """Let the writer that was under way store its copy where the raised route places it."""
    spread(api, conversation_id)
    write(api, conversation_id)


def move(choice):
    """Let the only copy lie on a later choice of the raised route."""

    def act(api, conversation_id):
        spread(api, conversation_id)
        items = api.world.table.items
        stored = items.pop((conversation_id, f"m#{ID}"))
        key = f"{conversation_id}#{choose_shards(ID, 4)[choice]}"
        items[key, f"m#{ID}"] = {**stored, "pk": {"S": key}}

    return act


def expire(api, conversation_id):
    del api.world.table.items[conversation_id, f"m#{ID}"]


def before_change(*acts, loses=False):
    """Let something happen just before stored items are next changed; and the attempt have no response."""

    def arrange(api, conversation_id):
        def on_call(call):
            if call.startswith("replace"):
                api.world.table.on_call = lambda _: None
                for act in acts:
                    act(api, conversation_id)
                if loses:
                    raise StoreUnavailableError("no response")

        api.world.table.on_call = on_call

    return arrange


def ours(api, conversation_id):
    """Do what the request under way asks for."""
    edit(api, conversation_id, "ours")


def fail(*failures, requests=1):
    """Let the next requests to DynamoDB fail, each by an error of its own; None: one that does not."""

    def arrange(api, _):
        api.world.table.failures = [failure and failure() for _ in range(requests) for failure in failures]

    return arrange


def throttle():
    return ThrottledError(["TableWriteKeyRangeThroughputExceeded"])


def be_away():
    return StoreUnavailableError("DynamoDB does not respond")


def refuse_changes(api, _):
    def on_call(call):
        if call.startswith("replace"):
            raise ThrottledError

    api.world.table.on_call = on_call


def pass_time(api, seconds):
    api.world.clock.now_ms += round(float(seconds) * 1000)


def mark_read_hot(api, conversation_id):
    """Let newest pages of the conversation be cached."""
    api.world.registry.mark_read_hot(conversation_id)
    api.open(environment="e")


def call_as(authorizer):
    def act(api, _):
        api.open(sender_claim="sub")
        api.authorizer = authorizer

    return act


STEPS = {
    "s pass": pass_time,
    "has a message": write,
    "is raised": spread,
    "is written by a late writer": write_late,
    "lies on its second choice": move(1),
    "lies on its third choice": move(2),
    "has an unreadable route": lambda api, name: api.world.table.spoil_route(name, "many"),
    "is edited just before the next change": before_change(edit),
    "is deleted just before the next change": before_change(delete),
    "is written by a late writer just before the next change": before_change(write_late),
    "gets the next change, whose response is lost": before_change(ours, loses=True),
    "does not get the next change, whose response is lost": before_change(loses=True),
    "is edited in place of the next change, whose response is lost": before_change(edit, loses=True),
    "gets the next change, whose response is lost, and then is edited": before_change(ours, edit, loses=True),
    "gets the next change, whose response is lost, and then is deleted": before_change(ours, delete, loses=True),
    "gets the next change, whose response is lost, and then expires": before_change(ours, expire, loses=True),
    "refuses the next request": fail(throttle),
    "refuses the next request but one": fail(None, throttle),
    "refuses changes": refuse_changes,
    "refuses everything": fail(throttle, requests=100),
    "does not respond": fail(be_away, requests=100),
    "responds again": fail(),
    "is read-hot": mark_read_hot,
    "keeps messages for a day": lambda api, _: api.open(retention_days=1),
    "calls from now on": lambda api, name: call_as({"jwt": {"claims": {"sub": name}, "scopes": None}})(api, name),
    "without a claim calls from now on": call_as(None),
}


class Player:
    """Plays a transcript, and writes down what is returned."""

    def __init__(self):
        self.api = Api()
        self.api.authorizer = None
        self.lines = []

    def play(self, text):
        """Return the transcript with what is returned now."""
        for block in re.split(r"\n\n+", text.strip()):
            lines = block.splitlines()
            self.lines += [line for line in lines if line.startswith("#")]
            for step in (line for line in lines if line.startswith("% ")):
                self.lines.append(step)
                name, _, what = step.removeprefix("% ").partition(" ")
                STEPS[what](self.api, name)
            if asked := [line for line in lines if line.startswith("> ")]:
                self.lines += asked
                self._call(read_event([line.removeprefix("> ") for line in asked], self.api))
            self.lines += [""] if lines[-1][0] != "#" else []
        return "\n".join(self.lines)

    def _call(self, event):
        table, counts = self.api.world.table, self.api.world.telemetry.counts
        items, counted = dict(table.items), dict(counts)
        response = self.api.call(event)
        metrics = sorted(name for name in counts if counts[name] != counted.get(name))
        self.lines.append(" ".join(["<", str(response.status), *metrics]))
        self.lines += [f"< {name}: {response.headers[name]}" for name in SHOWN_HEADERS if name in response.headers]
        if response.text:
            self.lines.append(f"< {response.text}")
        changed = {place: item for place, item in table.items.items() if item != items.get(place)}
        self.lines += [f"= {place[0]} {describe(item)}" for place, item in changed.items()]


def read_event(lines, api):
    """Build the event of a request as the gateway does: `METHOD PATH?QUERY`, its headers, its body."""
    head, *rest = lines
    method, _, target = head.partition(" ")
    path, _, query = target.partition("?")
    headers = [tuple(line.split(": ", 1)) for line in rest if HEADER.match(line)]
    body = "\n".join(line for line in rest if not HEADER.match(line)).encode()
    route, names = find_route((*api.routes, "$default"), method, path)
    request = HttpRequest(method, path, query, [("Content-Type", "application/json"), *headers], body, "192.0.2.1")
    event = build_http_event(request, route, names, request_id="-", now_ms=api.world.clock.now_ms)
    event["requestContext"]["authorizer"] = api.authorizer
    return event


def describe(item):
    return json.dumps({name: next(iter(value.values())) for name, value in item.items() if name not in DERIVED})


@pytest.mark.parametrize("name", sorted(file.stem for file in HERE.glob("*.txt")))
def test_a_transcript(name):
    """Statuses, headers, bodies, metrics, and what is stored, as they were reviewed."""
    file = HERE / f"{name}.txt"
    assert_golden(file, Player().play(file.read_text()))
