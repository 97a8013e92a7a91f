"""The run whose Redis asks for TLS and a user, checked while something is broken."""

from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REFUSED = "registry refuses this function"
WRONG = "no-longer-valid"


@contextmanager
def wrong_password(stack):
    """Let Redis refuse whatever connects to it."""
    status = stack.status()
    password_file = Path(status["redis"]["password_file"])
    password = password_file.read_text()
    password_file.write_text(WRONG)
    for function in ("operate", "write_message", "read_messages"):
        for _ in range(status["functions"][function]["environments"]):
            stack.control(f"/functions/{function}/kill")
    try:
        yield
    finally:
        password_file.write_text(password)


def test_a_missing_permission_of_the_table_fails_the_writes(guarded_stack, check):
    """The write function may not put; what needs no write passes."""
    guarded_stack.set_faults({"operation": "PutItem", "fault": "deny"})
    try:
        came = check(guarded_stack, fails={"write", "read all shards"})
    finally:
        guarded_stack.set_faults()
    assert came["write"].startswith("500")


def test_a_redis_that_refuses_the_user_fails_what_needs_it(guarded_stack, check):
    """Messages are written and read nevertheless; the log says why, and no password. Then the right one is taken up."""
    with wrong_password(guarded_stack):
        came = check(guarded_stack, "--wait", "0", fails={"raise by hand", "find the consumer"})
    assert "but not in Redis" in came["raise by hand"]
    lines = guarded_stack.log_lines("write_message", REFUSED)
    assert "routes" in {line["purpose"] for line in lines}
    assert all("invalid username-password pair" in line["reason"] for line in lines)
    assert WRONG not in str(lines)
    check(guarded_stack)
