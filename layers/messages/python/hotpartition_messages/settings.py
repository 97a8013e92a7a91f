"""The settings of the messages application's functions: those of the library's engine, and its own."""

from __future__ import annotations

from collections.abc import Mapping

from hotpartition.runtime.declaring import Settings, number, text, whole
from hotpartition.runtime.settings import (
    ConsumerSettings,
    InBandOperateSettings,
    InBandWriterSettings,
    OperateSettings,
    QuerySettings,
    ReaderSettings,
    RequestSettings,
    StoreSettings,
    WriterSettings,
)


class MessageWriting(Settings):
    """How messages are written, however hot conversations are found."""

    retention_days = whole("How long after its time a message expires, in days; 0: never.", 0, least=0, most=36_500)
    sender_claim = text(
        "Claim of the caller's token, or value that a Lambda authorizer passes on, that is the sender;"
        " empty: the body names it.",
        "",
    )


class MessageReading(Settings):
    """How messages are read, however hot conversations are found."""

    settle_seconds = number(
        "How far behind the present a reader may trust that no message is still to come, in seconds.",
        5.0,
        least=0.0,
        most=3600.0,
    )


class WriteSettings(WriterSettings, MessageWriting):
    """Settings of the write function."""


class ReadSettings(ReaderSettings, MessageReading):
    """Settings of the read function."""


class InBandWriteSettings(InBandWriterSettings, MessageWriting):
    """Settings of a write function that finds hot conversations itself."""


class InBandReadSettings(MessageReading):
    """Settings of the read function beside such writers."""

    store: StoreSettings
    requests: RequestSettings
    queries: QuerySettings


FUNCTION_SETTINGS: Mapping[str, type[Settings]] = {
    "write": WriteSettings,
    "read": ReadSettings,
    "consumer": ConsumerSettings,
    "operate": OperateSettings,
}
"""The settings of each function, by its name in the documents."""

IN_BAND_SETTINGS: Mapping[str, type[Settings]] = {
    "write": InBandWriteSettings,
    "read": InBandReadSettings,
    "operate": InBandOperateSettings,
}
"""The same where writers find hot conversations themselves."""
