"""Builds the jobs of the write function, on any writer."""

from __future__ import annotations

import random
from typing import NamedTuple

from hotpartition.core.backoff import Clock
from hotpartition.core.ports import Telemetry
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.writer import Writer
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.messages import Message
from hotpartition_messages.settings import MessageSettings
from hotpartition_messages.writing import MessageWriter


class WriteJobs(NamedTuple):
    """The write function's jobs, and which of a caller's claims is the sender."""

    messages: MessageWriter
    changer: MessageChanger
    sender_claim: str


def build_jobs(
    writer: Writer,
    gatherer: Gatherer[str, Message],
    settings: MessageSettings,
    store: DynamoDBItemStore[Message],
    *,
    telemetry: Telemetry,
    clock: Clock,
) -> WriteJobs:
    """Build all jobs of the function, given the gatherer by the writer's routes."""
    messages = MessageWriter(
        writer,
        store,
        now_ms=clock.now_ms,
        random_bits=random.SystemRandom().getrandbits,
        retention_days=settings.retention_days,
    )
    budget_ms = settings.request_budget_ms
    return WriteJobs(
        messages,
        MessageChanger(messages, gatherer, telemetry=telemetry, clock=clock, budget_ms=budget_ms),
        settings.sender_claim,
    )
