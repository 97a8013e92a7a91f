"""The API through gateway, runtime client, functions, Redis and DynamoDB: one by one, and whatever is sent to it."""

import gzip
import json
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
import urllib3
from ulid import ULID

from hotpartition.core.route import stable_hash
from stack import undisturbed
from support.documents import DOCUMENT_FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHECKS = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "ensure_resource_availability",
)
"""Not `positive_data_acceptance`: no schema can say that an id lies 5 s ahead at most, or that a cursor was issued.

Nor `not_a_server_error`: on a busy machine the local DynamoDB may respond too late, which the test allows (503).
"""
STATUSES = {200, 201, 204, 400, 404, 409, 410, 412, 413, 503}


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


@pytest.mark.parametrize(
    ("phases", "most_examples", "least_requests"),
    [
        ("examples,coverage,stateful", 8, 200),
        pytest.param("examples,coverage,fuzzing,stateful", 80, 500, marks=pytest.mark.long),
    ],
)
def test_generated_requests_get_described_responses(stack, tmp_path, phases, most_examples, least_requests):
    """By `docs/openapi.json`, and never 500: right and wrong ones of every shape, alone and in sequences along links.

    The same ones in each run. The unit tests let the functions respond to odder ones.
    """
    # The local run checks no signatures.
    document = json.loads(DOCUMENT_FILE.read_text(encoding="utf-8"))
    del document["security"], document["components"]["securitySchemes"]
    unsigned, report = tmp_path / "openapi.json", tmp_path / "report.ndjson"
    unsigned.write_text(json.dumps(document), encoding="utf-8")
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", str(unsigned), "--url", stack.api_url),
        *("--checks", ",".join(CHECKS), "--phases", phases),
        *("--seed", "1", "--generation-deterministic", "--max-examples", str(most_examples)),
        *("--request-timeout", "60", "--continue-on-failure", "--no-color"),
        *("--report", "ndjson", "--report-ndjson-path", str(report)),
    ]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-6_000:] + finished.stderr[-2_000:]
    statuses: Counter[int] = Counter()
    for line in report.read_text(encoding="utf-8").splitlines():
        scenario = json.loads(line).get("ScenarioFinished") or {"recorder": {}}
        interactions = scenario["recorder"].get("interactions", {}).values()
        statuses.update(interaction["response"]["status_code"] for interaction in interactions)
    assert statuses.total() >= least_requests, statuses
    # Both sides were tried: what is refused, and what is taken.
    assert min(statuses[201], statuses[200], statuses[400], statuses[404]) >= least_requests // 50, statuses
    assert statuses.keys() <= STATUSES
