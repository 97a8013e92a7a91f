"""The real ends of an engine that has Redis. Nothing is opened before it is used.

An adapter is imported where a setting chooses it: a function imports only what it needs.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from redis.credentials import CredentialProvider

from hotpartition.aws.credentials import find_credentials
from hotpartition.aws.environment import Certificates, find_certificates, find_region
from hotpartition.core.backoff import Clock
from hotpartition.core.ports import Telemetry
from hotpartition.redis.cluster import Connected, RedisConnection
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSink
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.building import Ends
from hotpartition.runtime.clocks import ElapsedTime, system_clock
from hotpartition.runtime.settings import Settings

COOLDOWN_MS = 1_000
"""How long Redis is left alone after it failed to respond."""
PATIENT_TIMEOUTS_MS = (2_000, 1_000)
"""Least limits, for a connection and a response, outside a request's path: the consumer reads thousands of
entries at a time, and were connecting always a little too slow for it, nothing would be detected."""


def open_ends(
    settings: Settings,
    telemetry: Telemetry,
    connection: RedisConnection,
    *,
    repairs: bool,
    clock: Clock | None = None,
    pause: Callable[[], None] | None = None,
) -> Ends:
    """Build the ends of an engine. Call it on the first request: it makes the environment's id.

    All share one `connection`: each new one is authenticated anew, and its users are hardly ever at work together.
    `repairs`: the engine's user in Redis may repair routes. `pause` waits after each sending of reports, which have a
    background of their own then.
    """
    clock, name = clock or system_clock(), settings.table_name
    background = BackgroundThread()
    reports = RedisReportSink(
        connection,
        name,
        partitions=settings.stream_partitions,
        background=BackgroundThread() if pause else background,
        now_ms=clock.now_ms,
        pause=pause or (lambda: None),
    )
    timer = ElapsedTime()
    return Ends(
        registry=RedisRegistry(connection, name, telemetry),
        # Without telemetry: the look-up before a repair has counted already.
        repairs=RedisRegistry(connection, name) if repairs else None,
        reports=reports,
        background=background,
        telemetry=telemetry,
        clock=clock,
        timer=timer,
        page_store=RedisPageStore(connection, name, telemetry, timer),
        environment_id=uuid.uuid4().hex,
    )


def connect_redis(
    settings: Settings, telemetry: Telemetry, purpose: str, *, is_patient: bool = False
) -> RedisConnection:
    """Build the connection of a function; nothing is opened yet.

    `purpose` names it in log lines; one that `is_patient` is for work outside a request's path.
    """
    user = settings.registry_user

    def note_refusal(reason: str) -> None:
        telemetry.event("registry refuses this function", reason=reason, user=user, purpose=purpose)

    def note_connected(connected: Connected) -> None:
        facts = {"purpose": purpose, "connect_ms": round(connected.ms, 1), "limit_ms": connected.limit_ms}
        if connected.error is None:
            telemetry.event("connected to Redis", **facts)
        else:
            telemetry.event("no connection to Redis", reason=str(connected.error), **facts)

    least_connect_ms, least_command_ms = PATIENT_TIMEOUTS_MS if is_patient else (0, 0)
    return RedisConnection(
        host=settings.registry_host,
        port=settings.registry_port,
        is_tls=settings.registry_tls,
        certificates=_find_certificates(settings),
        is_strict=settings.registry_tls_strict,
        credentials=_find_credentials(settings),
        on_refusal=note_refusal,
        on_connect=note_connected,
        connect_timeout_ms=max(least_connect_ms, settings.registry_connect_timeout_ms),
        command_timeout_ms=max(least_command_ms, settings.registry_command_timeout_ms),
        cooldown_ms=COOLDOWN_MS,
        now_ms=lambda: time.monotonic() * 1000,
    )


def _find_certificates(settings: Settings) -> Certificates:
    """Find the trusted authorities: as DynamoDB's client does, unless a file is named."""
    if settings.registry_ca_file:
        return Certificates(file=settings.registry_ca_file)
    return find_certificates(os.environ) if settings.registry_tls else Certificates()


def _find_credentials(settings: Settings) -> CredentialProvider | None:
    match settings.registry_authentication:
        case "iam":
            from hotpartition.redis.credentials import IamCredentials  # noqa: PLC0415 - see this module's docstring

            return IamCredentials(
                cache_name=settings.registry_cache_name,
                user=settings.registry_user,
                region=find_region(os.environ),
                find_credentials=find_credentials(os.environ).get,
                now_seconds=time.time,
            )
        case "password":
            from hotpartition.redis.credentials import PasswordFile  # noqa: PLC0415 - as above

            return PasswordFile(user=settings.registry_user, path=Path(settings.registry_password_file))
        case _:
            return None
