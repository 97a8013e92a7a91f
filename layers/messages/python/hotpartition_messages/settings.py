"""The settings of the messages application's functions: what the library's engine needs, and its own."""

from __future__ import annotations

from collections.abc import Mapping

from hotpartition.runtime.declaring import Settings, number, text, whole
from hotpartition.runtime.settings import ConsumerSettings, OperateSettings, ReaderSettings, WriterSettings


class WriteSettings(WriterSettings):
    """Settings of the write function."""

    retention_days = whole("How long after its time a message expires, in days; 0: never.", 0, least=0, most=36_500)
    sender_claim = text(
        "Claim of the caller's token, or value that a Lambda authorizer passes on, that is the sender;"
        " empty: the body names it.",
        "",
    )


class ReadSettings(ReaderSettings):
    """Settings of the read function."""

    settle_seconds = number(
        "How far behind the present a reader may trust that no message is still to come, in seconds.",
        5.0,
        least=0.0,
        most=3600.0,
    )


FUNCTION_SETTINGS: Mapping[str, type[Settings]] = {
    "write": WriteSettings,
    "read": ReadSettings,
    "consumer": ConsumerSettings,
    "operate": OperateSettings,
}
"""The settings of each function, by its name in the documents."""
