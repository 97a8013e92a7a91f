"""Builds what the read function does with counters, beside any reader of messages."""

from __future__ import annotations

from hotpartition.core.backoff import Clock
from hotpartition.core.counter_items import Cell
from hotpartition.core.ports import ItemStore, Telemetry
from hotpartition.engine.counters import Summer
from hotpartition.engine.gatherer import Gatherer
from hotpartition_messages.counters import CounterReader
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.reading import MessageReader
from hotpartition_messages.settings import InBandReadSettings, ReadSettings


def build_counter_reader(
    messages: MessageReader,
    settings: ReadSettings | InBandReadSettings,
    cells: ItemStore[str, Cell],
    *,
    telemetry: Telemetry,
    clock: Clock,
    summer: type[Summer] = Summer,
) -> CounterReader:
    """Build the job that reads counters, by the routes of the one that reads messages."""
    gatherer = Gatherer(
        store=cells,
        routes=messages.gatherer.routes,
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.requests.request_budget_ms,
        form=KEY_FORM,
    )
    return CounterReader(summer(gatherer, is_alone=True, form=KEY_FORM))
