"""Whatever is sent to the API, its response is one that `docs/openapi.json` describes, and never 500."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.described import DOCUMENT_FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LEAST_CASES = 500
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


@pytest.fixture(scope="session")
def unsigned(tmp_path_factory) -> Path:
    """The document without signatures, which the local run does not check."""
    document = json.loads(DOCUMENT_FILE.read_text(encoding="utf-8"))
    del document["security"], document["components"]["securitySchemes"]
    file = tmp_path_factory.mktemp("fuzz") / "openapi.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def test_generated_requests_get_described_responses(stack, unsigned):
    """Right and wrong requests of every shape, alone and in sequences along the links, the same ones in each run."""
    report = unsigned.parent / "report.ndjson"
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", str(unsigned), "--url", stack.api_url),
        *("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing,stateful"),
        *("--seed", "1", "--generation-deterministic", "--max-examples", "80"),
        *("--request-timeout", "60", "--continue-on-failure", "--no-color"),
        *("--report", "ndjson", "--report-ndjson-path", str(report)),
    ]
    finished = subprocess.run(command, cwd=unsigned.parent, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-6_000:] + finished.stderr[-2_000:]
    statuses: Counter[int] = Counter()
    for line in report.read_text(encoding="utf-8").splitlines():
        scenario = json.loads(line).get("ScenarioFinished")
        for interaction in _interactions(scenario):
            statuses[interaction["response"]["status_code"]] += 1
    assert statuses.total() >= LEAST_CASES, statuses
    # Both sides were tried: what is refused, and what is taken.
    assert min(statuses[201], statuses[200], statuses[400], statuses[404]) >= 10, statuses
    assert statuses.keys() <= {200, 201, 204, 400, 404, 409, 410, 412, 413, 503}


def _interactions(scenario: dict[str, Any] | None) -> list[dict[str, Any]]:
    return list(scenario["recorder"].get("interactions", {}).values()) if scenario else []
