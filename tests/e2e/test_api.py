"""The API through gateway, runtime client, functions, Redis and DynamoDB."""

import gzip
import uuid

import pytest
import urllib3
from ulid import ULID

from hotpartition.core.route import stable_hash
from stack import undisturbed

pytestmark = pytest.mark.slow


@undisturbed
def test_a_repeated_write_is_a_replay_and_other_content_a_conflict(stack, conversation):
    """200 for the same content, 409 for other content, and the first stays."""
    identifier = str(uuid.UUID(bytes=_uuid7_bytes()))
    message = {"sender": "ann", "body": "one", "message_id": identifier}
    assert stack.write(conversation, message).status == 201
    assert stack.write(conversation, message).status == 200
    conflict = stack.write(conversation, {**message, "body": "two"})
    assert (conflict.status, conflict.content_type) == (409, "application/problem+json")
    assert [m["body"] for m in stack.read_all(conversation, consistency="strong")] == ["one"]


@pytest.mark.parametrize("body", [b"not zipped", gzip.compress(bytes(50_000_000))])
def test_a_body_with_an_encoding_is_not_unpacked(stack, body):
    """Whatever it holds: 415, as on AWS, where the gateway hands it on as it is."""
    url = f"{stack.api_url}/conversations/zipped/messages"
    response = urllib3.request("POST", url, body=body, headers={"Content-Encoding": "gzip"})
    assert (response.status, response.headers["X-Content-Type-Options"]) == (415, "nosniff")


@undisturbed
def test_a_message_is_edited_and_deleted(stack, conversation):
    """With its tag; then nothing brings it back, a copy on a shard that a late writer leaves there included."""
    message = {"sender": "ann", "body": "one", "message_id": str(ULID())}
    identifier = stack.write(conversation, message).body["message_id"]
    tag = stack.read_one(conversation, identifier, consistency="strong").headers["etag"]
    edited = stack.change("PATCH", conversation, identifier, {"body": "two"}, if_match=tag)
    assert (edited.status, edited.body["body"], "edited_at" in edited.body) == (200, "two", True)
    assert stack.change("PATCH", conversation, identifier, {"body": "three"}, if_match=tag).status == 412
    assert stack.write(conversation, message).status == 200
    assert stack.write(conversation, {**message, "body": "two"}).status == 409
    stack.raise_in_journal(conversation, 4)
    late = {"pk": {"S": f"{conversation}#{stable_hash(identifier) % 4}"}, "sk": {"S": f"m#{identifier}"}}
    kept = {"conversation_id": conversation, "message_id": identifier, "sender": "ann", "body": "one", "sent_at": "-"}
    stack.dynamodb("PutItem", Item={**late, **{name: {"S": text} for name, text in kept.items()}})
    assert [m["body"] for m in stack.read_all(conversation, consistency="strong")] == ["two"]
    assert stack.change("PATCH", conversation, identifier, {"body": "four"}).status == 200
    assert stack.change("DELETE", conversation, identifier).status == 204
    assert stack.change("DELETE", conversation, identifier).status == 204
    assert stack.read_all(conversation, consistency="strong") == []
    assert stack.read_one(conversation, identifier, consistency="strong").status == 410
    assert stack.change("PATCH", conversation, identifier, {"body": "five"}).status == 410
    assert stack.write(conversation, message).status == 410


def _uuid7_bytes():
    raw = bytearray(ULID().bytes)
    raw[6] = raw[6] & 0x0F | 0x70
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)
