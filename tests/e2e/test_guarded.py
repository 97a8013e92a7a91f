"""The run whose Redis asks for TLS and a user: refused credentials, and a check of what is broken."""

import time
import uuid
from pathlib import Path

import pytest
import redis

from hotpartition.runtime.connect import COOLDOWN_MS
from stack import (
    HOT_WCU,
    SENDER,
    assert_read_back,
    route_in_journal,
    route_in_redis,
    wait_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REFUSED = "registry refuses this function"


@pytest.fixture
def admin(guarded_stack):
    """The administrator of the guarded Redis."""
    facts = guarded_stack.status()["redis"]
    client = redis.Redis(
        host="127.0.0.1",
        port=facts["port"],
        ssl=True,
        ssl_ca_certs=facts["ca_file"],
        username=facts["admin_user"],
        password=Path(facts["admin_password_file"]).read_text(),
        decode_responses=True,
    )
    yield client
    client.close()


def test_a_changed_password_degrades_and_its_file_repairs(guarded_stack, admin, conversation):
    """Refused: writes go on, and one error says why. Repaired: the registry serves again."""
    stack, facts = guarded_stack, guarded_stack.status()["redis"]
    first = stack.offer_until(lambda: route_in_journal(stack, conversation), conversation)
    wait_for(lambda: route_in_redis(stack, admin, conversation))
    before = len(stack.log_lines("write_message", REFUSED))

    admin.execute_command("ACL", "SETUSER", facts["user"], "resetpass", ">another")
    admin.execute_command("CLIENT", "KILL", "USER", facts["user"])
    admin.config_resetstat()
    started = time.monotonic()
    fresh = f"{conversation}:fresh"
    statuses = set()

    def is_refused():
        statuses.update(stack.write(fresh, {"sender": SENDER, "body": str(i)}).status for i in range(60))
        lines = stack.log_lines("write_message", REFUSED)[before:]
        return 201 in statuses and "routes" in {line["purpose"] for line in lines}

    wait_for(is_refused)
    assert statuses <= {201, 503}
    assert_read_back(stack, conversation, first)
    elapsed = time.monotonic() - started

    lines = stack.log_lines("write_message", REFUSED)[before:]
    assert "invalid username-password pair" in lines[0]["reason"]
    assert all("another" not in str(line) for line in lines)
    # Of each connection at most one attempt in a rest period; fewer than the requests that there were.
    environments = sum(pool["environments"] for pool in stack.status()["functions"].values())
    rests = elapsed * 1000 / COOLDOWN_MS + 1
    attempts = int(admin.info("commandstats")["cmdstat_auth"]["failed_calls"])
    assert 0 < attempts <= 2 * environments * rests
    routes = [line for line in lines if line["purpose"] == "routes"]
    assert len(routes) <= environments * rests

    Path(facts["password_file"]).write_text("another")
    reads = int(admin.info("commandstats").get("cmdstat_sscan", {}).get("calls", 0))

    def is_served() -> bool:
        stack.write(f"{conversation}:{uuid.uuid4().hex}", {"sender": SENDER, "body": "x"})
        return int(admin.info("commandstats").get("cmdstat_sscan", {}).get("calls", 0)) > reads

    wait_for(is_served)
    stack.offer(conversation, rate=HOT_WCU, seconds=1, load=first)
    assert_read_back(stack, conversation, first)


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
