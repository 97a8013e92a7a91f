"""The plan of faults, and what carries it out."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.load.observer import ControlError
from tools.local.dynamodb_faults import READ_REASONS, WRITE_REASONS, parse_rules
from tools.trials.faults import KINDS, FaultInjector, FaultKind, PlannedFault, plan_faults

SLOW = FaultKind(
    name="slow",
    part="dynamodb",
    rules=({"operation": "PutItem", "fault": "delay", "probability": 1.0, "delay_ms": 5},),
    meets_requests=True,
)
LATE = FaultKind(name="late", part="functions", rules=({"operation": "UpdateItem", "fault": "error"},), end=("/k",))
KILLED = FaultKind(name="killed", part="redis", begin=("/redis/kill",), end=("/redis/start",))


class FakeControl:
    """Records the orders; each look at the faults finds one more request that met them."""

    def __init__(self, refused=None):
        self.orders, self.rules, self.refused = [], [], refused
        self.injected = 0

    async def post(self, path, body=None):
        if path == self.refused:
            raise ControlError(f"refused {path}")
        if path == "/dynamodb/faults":
            self.rules.append([rule["operation"] for rule in body])
        else:
            self.orders.append(path)

    async def get(self, path):
        if path == "/status":
            return {"dynamodb": {"table": "messages"}, "redis": {"port": 1}}
        assert path == "/dynamodb/faults"
        self.injected += 1
        return {"injected": {"delay": self.injected, "error": self.injected}}


def inject(plan, control, *, kinds, stop_after=None, **parts):
    """Carry a plan out; returns the injector and what it said."""
    injector, said = FaultInjector(kinds, patience_seconds=0.1, **parts), []

    async def run():
        stopped = asyncio.Event()
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, stopped.set)
        await injector.run(plan, control, say=said.append, stopped=stopped)

    asyncio.run(run())
    return injector, said


@given(seed=st.integers(0, 10_000), seconds=st.floats(20, 900))
def test_a_plan_tries_everything_within_its_time(seed, seconds):
    """Each kind at least once, nothing outside of the time, no two faults of one part at once, the same for a seed."""
    plan = plan_faults(seed=seed, seconds=seconds)
    assert {fault.kind.name for fault in plan} == {kind.name for kind in KINDS}
    assert min(fault.at_seconds for fault in plan) > 0
    assert max(fault.at_seconds + fault.seconds for fault in plan) < seconds
    for part in {kind.part for kind in KINDS}:
        own = [fault for fault in plan if fault.kind.part == part]
        assert all(one.at_seconds + one.seconds <= two.at_seconds for one, two in pairwise(own))
    assert all(0 < fault.seconds <= fault.kind.seconds for fault in plan)
    assert plan == plan_faults(seed=seed, seconds=seconds)


def test_the_table_names_every_fault_of_the_local_run():
    """All rules are ones that the local run takes, all sixteen reasons among them, and every name is used once."""
    rules = [rule for kind in KINDS for rule in parse_rules([dict(rule) for rule in kind.rules])]
    assert {rule.fault.value for rule in rules} == {"delay", "error", "lose_answer", "late_answer", "throttle"}
    assert {rule.reason for rule in rules if rule.reason} == WRITE_REASONS | READ_REASONS
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    orders = {order for kind in KINDS for order in (*kind.begin, *kind.end)}
    assert {"/redis/kill", "/redis/start?fresh=1", "/redis/pause", "/redis/fail-over"} <= orders
    functions = {order.split("/")[2] for order in orders if order.startswith("/functions/")}
    assert functions == {"write_message", "read_messages", "consume_reports"}


def test_nothing_stays_broken_when_the_load_ends():
    """What is under way is taken back, and what was still to come does not begin."""
    control = FakeControl()
    plan = [PlannedFault(0.0, KILLED, 60.0), PlannedFault(0.0, SLOW, 60.0), PlannedFault(70.0, KILLED, 1.0)]
    injector, _ = inject(plan, control, kinds=(KILLED, SLOW), stop_after=0.1)
    assert control.orders == ["/redis/kill", "/redis/start"]
    assert control.rules[-1] == []
    assert injector.injected == {"killed": 1, "slow": 1}


def test_a_refused_order_ends_the_run():
    """A fault that cannot be injected would be counted as survived."""
    with pytest.raises(ExceptionGroup) as raised:
        inject([PlannedFault(0.0, KILLED, 0.01)], FakeControl(refused="/redis/kill"), kinds=(KILLED,))
    assert raised.group_contains(ControlError, match="refused /redis/kill")


SCRIBBLES = [kind for kind in KINDS if kind.scribble]
CONVERSATIONS = [f"c{number}" for number in range(10)]


@pytest.mark.parametrize("kind", SCRIBBLES, ids=lambda kind: kind.name)
def test_what_is_scribbled_into_redis_is_taken_back(kind):
    """At the fault's end, also when the load ends before it; what could not be written whole as well."""
    commands = []

    @asynccontextmanager
    async def open_redis(status):
        async def execute(command):
            commands.append(command)
            if command[0] in broken:
                raise ControlError("refused")

        yield execute

    broken = ()
    plan = [PlannedFault(0.0, kind, 60.0)]
    parts = {"conversations": CONVERSATIONS, "seed": 3, "open_redis": open_redis}
    injector, _ = inject(plan, FakeControl(), kinds=(kind,), stop_after=0.05, **parts)
    scribble = kind.scribble("messages", CONVERSATIONS, Random(3))
    assert commands == [*scribble.write, *reversed(scribble.take_back)]
    assert injector.injected == {kind.name: 1}
    commands.clear()
    broken = {"SADD", "SET"}
    with pytest.raises(ExceptionGroup):
        inject(plan, FakeControl(), kinds=(kind,), stop_after=0.05, **parts)
    assert commands == [scribble.write[0], *reversed(scribble.take_back)]
