"""What the functions' wiring shares: the clock, and the connection to Redis.

Each function's own wiring is a module of its own, `wiring_<job>.py`, and its handler calls it once, at cold start: so a
function imports what it needs and nothing else. For the same reason, what a setting chooses is imported where it is
chosen.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from redis.credentials import CredentialProvider

from hotpartition.core.backoff import Clock
from hotpartition.ports import Telemetry
from hotpartition.redis.cluster import RedisConnection
from hotpartition.runtime.settings import CommonSettings

CONSUMER_COMMAND_TIMEOUT_MS = 1_000
"""The consumer is on nobody's request path and reads thousands of entries at a time: it may wait."""


def wall_clock_ms() -> int:
    """Return Unix time in ms."""
    return time.time_ns() // 1_000_000


def system_clock() -> Clock:
    """Build the real clock, sleep and chance."""
    # Seeded here: the module's own generator is in a snapshot that many environments start from (SnapStart).
    return Clock(now_ms=wall_clock_ms, sleep=time.sleep, random=random.Random().random)


def connect_redis(
    settings: CommonSettings, telemetry: Telemetry, purpose: str, *, command_timeout_ms: int | None = None
) -> RedisConnection:
    """Build a connection of its own for one purpose; nothing is opened yet."""
    user = settings.registry_user

    def note_refusal(reason: str) -> None:
        telemetry.event("registry refuses this function", reason=reason, user=user, purpose=purpose)

    return RedisConnection(
        host=settings.registry_host,
        port=settings.registry_port,
        is_tls=settings.registry_tls,
        ca_file=settings.registry_ca_file,
        credentials=_find_credentials(settings),
        on_refusal=note_refusal,
        connect_timeout_ms=settings.registry_connect_timeout_ms,
        command_timeout_ms=command_timeout_ms or settings.registry_command_timeout_ms,
        cooldown_ms=settings.registry_rest_ms,
        now_ms=lambda: time.monotonic() * 1000,
    )


def _find_credentials(settings: CommonSettings) -> CredentialProvider | None:
    match settings.registry_authentication:
        case "iam":
            from hotpartition.redis.credentials import iam_credentials  # noqa: PLC0415 - see this module's docstring

            return iam_credentials(
                cache_name=settings.registry_cache_name,
                user=settings.registry_user,
                environ=os.environ,
                now_seconds=time.time,
            )
        case "password":
            from hotpartition.redis.credentials import PasswordFile  # noqa: PLC0415 - as above

            return PasswordFile(user=settings.registry_user, path=Path(settings.registry_password_file))
        case _:
            return None
