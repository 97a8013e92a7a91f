"""`hotpartition check` against a stack of which a part is broken: it fails its own line. `make acceptance` passes."""

import time
from pathlib import Path

import pytest

from hotpartition.runtime.ends import COOLDOWN_MS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_missing_permission_of_the_table_fails_the_writes(guarded_stack, check):
    """The write function may not put; what needs no write passes."""
    guarded_stack.set_faults({"operation": "PutItem", "fault": "deny"})
    try:
        came = check(guarded_stack, fails={"write", "read all shards"})
    finally:
        guarded_stack.set_faults()
    assert came["write"].startswith("500")


def test_a_redis_that_refuses_the_user_fails_what_needs_it(guarded_stack, check):
    """Messages are written and read nevertheless."""
    password_file = Path(guarded_stack.status()["redis"]["password_file"])
    password = password_file.read_text()
    password_file.write_text("wrong")
    try:
        for function in ("operate", "write_message", "read_messages"):
            for _ in range(guarded_stack.status()["functions"][function]["environments"]):
                guarded_stack.control(f"/functions/{function}/kill")
        came = check(guarded_stack, "--wait", "0", fails={"raise by hand", "find the consumer"})
    finally:
        password_file.write_text(password)
        time.sleep(COOLDOWN_MS / 1_000)
    assert "but not in Redis" in came["raise by hand"]
