"""The settings of the messages application's functions: the library's, and three of its own."""

from __future__ import annotations

from hotpartition.runtime.declaring import number, text
from hotpartition.runtime.settings import IN_BAND_READ, IN_BAND_WRITE, READ, WRITE, Settings

FUNCTIONS = ("write", "read", "consumer", "operate")
"""The functions, by their names in the documents."""
IN_BAND_FUNCTIONS = ("in-band write", "in-band read", "in-band operate")
"""Those where writers find hot conversations themselves."""


class MessageSettings(Settings):
    """The settings of one function of the application."""

    retention_days = number(
        "How long after its time a message expires, in days; 0: never.", 0, 0, 36_500, used_by=WRITE | IN_BAND_WRITE
    )
    sender_claim = text(
        "Claim of the caller's token, or value that a Lambda authorizer passes on, that is the sender;"
        " empty: the body names it.",
        "",
        used_by=WRITE | IN_BAND_WRITE,
    )
    settle_seconds = number(
        "How far behind the present a reader may trust that no message is still to come, in seconds.",
        5.0,
        0.0,
        3600.0,
        used_by=READ | IN_BAND_READ,
    )
