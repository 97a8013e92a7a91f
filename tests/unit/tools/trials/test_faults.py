"""The plan of faults, and what carries it out."""

from __future__ import annotations

import asyncio

import pytest

from tools.load.observer import ControlError
from tools.local.dynamodb_faults import READ_REASONS, WRITE_REASONS, parse_rules
from tools.trials.faults import KINDS, FaultInjector, PlannedFault


class Refusing:
    """A control that refuses each order."""

    async def post(self, path, body=None):
        raise ControlError(f"refused {path}")


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


def test_a_refused_order_ends_the_run():
    """A fault that cannot be injected would be counted as survived."""
    plan = [PlannedFault(0.0, kind, 0.01) for kind in KINDS if kind.name == "redis-killed"]

    async def run():
        await FaultInjector().run(plan, Refusing(), say=lambda _: None, stopped=asyncio.Event())

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(run())
    assert raised.group_contains(ControlError, match="refused /redis")
