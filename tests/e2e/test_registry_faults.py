"""The registry's own faults: credentials that are refused, a replica that missed the last writes, Redis gone."""

import time
import uuid
from pathlib import Path

import pytest
import redis

from stack import (
    SENDER,
    SETTINGS,
    WRITE_LIMIT_WCU,
    Load,
    assert_read_back,
    read_meanwhile,
    route_in_journal,
    route_in_redis,
    wait_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RATE = 2 * WRITE_LIMIT_WCU
"""Writes a second that make a conversation hot."""
REFUSED = "registry refuses this function"


@pytest.fixture
def conversation():
    return f"registry:{uuid.uuid4().hex}"


class TestCredentials:
    @pytest.fixture
    def admin(self, guarded_stack):
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
            socket_timeout=5,
        )
        yield client
        client.close()

    def test_a_changed_password_degrades_and_its_file_repairs(self, guarded_stack, admin, conversation):
        """Raised through TLS and ACL; refused: writes go on, one error says why; mended: the registry serves again."""
        stack, facts = guarded_stack, guarded_stack.status()["redis"]
        first = stack.offer(conversation, rate=RATE, seconds=4)
        assert wait_for(lambda: route_in_journal(stack, conversation), seconds=5)
        assert wait_for(lambda: route_in_redis(stack, admin, conversation), seconds=5)
        assert stack.log_lines("write_message", REFUSED) == []

        admin.execute_command("ACL", "SETUSER", facts["user"], "resetpass", ">another")
        admin.execute_command("CLIENT", "KILL", "USER", facts["user"])
        admin.config_resetstat()
        started = time.monotonic()
        fresh = f"{conversation}:fresh"
        statuses = {stack.write(fresh, {"sender": SENDER, "body": str(i)}).status for i in range(60)}
        assert statuses == {201}
        assert_read_back(stack, conversation, first)
        elapsed = time.monotonic() - started

        lines = stack.log_lines("write_message", REFUSED)
        assert {line["purpose"] for line in lines} >= {"routes"}
        assert "invalid username-password pair" in lines[0]["reason"]
        assert all("another" not in str(line) for line in lines)
        # Of each connection at most one attempt in a rest period; fewer than the requests that there were.
        environments = sum(pool["environments"] for pool in stack.status()["functions"].values())
        rests = elapsed * 1000 / SETTINGS["registry_rest_ms"] + 1
        attempts = int(admin.info("commandstats")["cmdstat_auth"]["failed_calls"])
        assert 0 < attempts <= 2 * environments * rests
        routes = [line for line in lines if line["purpose"] == "routes"]
        assert len(routes) <= environments * rests

        Path(facts["password_file"]).write_text("another")
        reads = int(admin.info("commandstats").get("cmdstat_sscan", {}).get("calls", 0))
        second = Load()

        def is_served() -> bool:
            stack.write_until_stored(f"{conversation}:{uuid.uuid4().hex}", "x", second)
            return int(admin.info("commandstats").get("cmdstat_sscan", {}).get("calls", 0)) > reads

        assert wait_for(is_served, seconds=5)
        stack.offer(conversation, rate=RATE, seconds=1, first=10_000, load=first)
        assert_read_back(stack, conversation, first)


class TestReplica:
    @pytest.fixture
    def registry(self, replicated_stack):
        """The node that serves now."""
        port = replicated_stack.status()["redis"]["port"]
        client = redis.Redis(host="127.0.0.1", port=port, decode_responses=True, socket_timeout=2)
        yield client
        client.close()

    def test_a_promoted_replica_that_missed_a_raise_loses_nothing(self, replicated_stack, registry, conversation):
        """The raise is in the journal and died with the primary: reads are complete, and the route comes back."""
        stack = replicated_stack
        load, known = Load(), set()
        stack.control("/redis/cut-replica")

        def lose_the_primary():
            assert wait_for(lambda: route_in_redis(stack, registry, conversation), seconds=10), "nothing was raised"
            # Seen by the primary alone.
            replica = redis.Redis(port=stack.status()["redis"]["replica_port"], decode_responses=True)
            with replica:
                replica.readonly()
                known.update(route_in_redis(stack, replica, conversation))
            stack.control("/redis/fail-over")
            # Complete at once, whatever the promoted replica knows.
            read_meanwhile(stack, conversation, load, seconds=1)

        stack.offer(conversation, rate=RATE, seconds=6, during=lose_the_primary, load=load)
        assert known == set()
        assert_read_back(stack, conversation, load)
        route = route_in_journal(stack, conversation)
        assert route
        assert wait_for(lambda: route_in_redis(stack, registry, conversation) == route, seconds=15)
        status = stack.control("/redis/start").body
        assert status["running"]
        assert wait_for(lambda: registry.info("replication")["connected_slaves"] == 1, seconds=5)
