"""Builds the jobs of both functions, on the library's engine.

Open them on the first request: a snapshot would share its random numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from hotpartition.core.ports import Telemetry
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.runtime.build import Engine, build_engine
from hotpartition.runtime.connect import open_calls, open_ends
from hotpartition.runtime.settings import name_of
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message, MessagePageCodec
from hotpartition_messages.reading import MessageReader
from hotpartition_messages.settings import MessageSettings
from hotpartition_messages.writing import MessageWriter

Store = DynamoDBItemStore[Message]


def open_writer(environ: Mapping[str, str], telemetry: Telemetry) -> tuple[MessageWriter, str]:
    """Build the write function's job from its variables; return also which of a caller's claims is the sender."""
    settings = MessageSettings.from_env(environ, name_of("write", environ))
    opened = _open(settings, telemetry, sends_rounds=False)
    writer = build_writer(*opened, settings, random_bits=random.SystemRandom().getrandbits)
    return writer, settings.sender_claim


def open_reader(environ: Mapping[str, str], telemetry: Telemetry, **given: object) -> MessageReader:
    """Build the read function's job from its variables; settings given in code come first."""
    settings = MessageSettings.from_env(environ, name_of("read", environ), **given)
    return build_reader(*_open(settings, telemetry, sends_rounds=True), settings)


def build_writer(
    engine: Engine, store: Store, settings: MessageSettings, *, random_bits: Callable[[int], int]
) -> MessageWriter:
    """Build the write function's job on any engine."""
    return MessageWriter(
        engine.writer,
        engine.gatherer(store=store, position_of=position_of),
        store,
        telemetry=engine.telemetry,
        clock=engine.clock,
        random_bits=random_bits,
        budget_ms=engine.budget_ms,
        retention_days=settings.retention_days,
    )


def build_reader(engine: Engine, store: Store, settings: MessageSettings) -> MessageReader:
    """Build the read function's job on any engine."""
    gatherer = engine.gatherer(store=store, position_of=position_of, counting=engine.counting)
    return MessageReader(
        gatherer,
        now_ms=engine.clock.now_ms,
        settle_ms=settings.settle_seconds * 1000,
        cache=engine.make_cache(MessagePageCodec()) if engine.make_cache else None,
        counting=engine.counting,
    )


def _open(settings: MessageSettings, telemetry: Telemetry, *, sends_rounds: bool) -> tuple[Engine, Store]:
    calls, table = open_calls(settings, sends_rounds=sends_rounds), describe_table(settings.table_name)
    ends = open_ends(settings, telemetry, calls, table.journal)
    return build_engine(ends, settings, form=KEY_FORM), DynamoDBItemStore(calls, table, Message.from_item)
