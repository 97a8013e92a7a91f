"""The API through gateway, runtime client, functions, Redis and DynamoDB, whatever is sent to it."""

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import urllib3

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


@pytest.mark.parametrize("body", [b"not zipped", gzip.compress(bytes(50_000_000))])
def test_a_body_with_an_encoding_is_not_unpacked(stack, body):
    """Whatever it holds: 415, as on AWS, where the gateway hands it on as it is."""
    url = f"{stack.api_url}/conversations/zipped/messages"
    response = urllib3.request("POST", url, body=body, headers={"Content-Encoding": "gzip"})
    assert (response.status, response.headers["X-Content-Type-Options"]) == (415, "nosniff")


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
