"""Opens DynamoDB and Redis as settings say. Nothing is connected before it is used.

An adapter is imported where a setting chooses it: a function imports only what it needs.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from hotpartition.core.access import Certificates
from hotpartition.core.backoff import Clock
from hotpartition.core.hedging import HEDGE_CONNECTIONS, HedgePolicy
from hotpartition.core.keys import KeyForm
from hotpartition.core.ports import PageStore, Telemetry
from hotpartition.core.times import StoreClock
from hotpartition.dynamodb.calls import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS, DynamoDBCalls
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import LARGEST_NUMBER, JournalPlace
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.build import Ends
from hotpartition.runtime.clocks import ElapsedTime, system_clock
from hotpartition.runtime.declaring import variable_name
from hotpartition.runtime.environment import find_certificates, find_credentials, find_dynamodb_endpoint, find_region
from hotpartition.runtime.settings import Settings, name_of

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

    from hotpartition.redis.cluster import RedisConnection

COOLDOWN_MS = 1_000
"""How long Redis is left alone after it failed to respond."""
PATIENT_TIMEOUTS_MS = (2_000, 1_000)
"""Least limits, for a connection and a response, outside a request's path: the consumer reads thousands of
entries at a time, and were connecting always a little too slow for it, nothing would be detected."""
CACHE_TIMEOUTS_MS = (500, 30)
"""Those of a user's own Redis: as a function's, in the path of a request."""


_WRITING = ("engine.writer", "engine.leases", "engine.load_counting")
_REDIS = ("redis.pages", "redis.registry", "redis.report_streams", "engine.registry_routes", "core.sampler")
_MODULES: Mapping[str, Sequence[str]] = {
    "write": (*_REDIS, *_WRITING),
    "read": (*_REDIS, "engine.read_cache", "engine.load_counting"),
    "in-band write": ("dynamodb.load_items", "engine.in_band", "engine.in_band_cooling", *_WRITING),
    "in-band read": ("engine.journal_routes",),
}
"""What a function's engine imports, as its settings choose: by the function's name."""


def import_modules(function: str, environ: Mapping[str, str]) -> None:
    """Import what a function needs while it starts, so that its first request need not wait for it."""
    is_boto3 = environ.get(variable_name("dynamodb_client")) == "boto3"
    for name in (*_MODULES[name_of(function, environ)], *(() if is_boto3 else ("dynamodb.curl",))):
        import_module(f"hotpartition.{name}")


def open_ends(
    settings: Settings,
    telemetry: Telemetry,
    calls: DynamoDBCalls,
    place: JournalPlace,
    *,
    purpose: str = "routes",
    clock: Clock | None = None,
    pause: Callable[[], None] | None = None,
) -> Ends:
    """Build the ends of an engine. Call it on the first request: it makes the environment's id.

    `place` is where the routing items lie; `purpose` names the connection to Redis in log lines. `pause` waits after
    each sending of reports, which have a background of their own then.
    """
    clock, journal = clock or system_clock(), DynamoDBJournal(calls, place)
    if "registry_host" in vars(settings):
        connection = connect_redis(settings, telemetry, purpose)
        return open_redis_ends(settings, telemetry, journal, connection, clock, pause=pause)
    if "is_raising" not in vars(settings):
        return Ends(telemetry=telemetry, clock=clock, journal=journal)
    return open_in_band(calls, place, telemetry, clock)


def open_in_band(calls: DynamoDBCalls, place: JournalPlace, telemetry: Telemetry, clock: Clock) -> Ends:
    """Build the ends of an engine whose writers find hot keys, over a client of DynamoDB."""
    from hotpartition.dynamodb.load_items import DynamoDBLoadItems  # noqa: PLC0415 - see this module's docstring

    store_clock = StoreClock()
    loads = DynamoDBLoadItems(calls, place, store_clock, clock.now_ms)
    journal = DynamoDBJournal(calls, place)
    return Ends(telemetry=telemetry, clock=clock, journal=journal, loads=loads, store_clock=store_clock)


def open_redis_ends(
    settings: Settings,
    telemetry: Telemetry,
    journal: DynamoDBJournal | None,
    connection: RedisConnection,
    clock: Clock,
    *,
    pause: Callable[[], None] | None = None,
    background: BackgroundThread | None = None,
    timer: Callable[[], float] | None = None,
) -> Ends:
    """Build ends on one connection: each new one is authenticated anew, and its users are hardly ever busy together."""
    from hotpartition.redis.pages import RedisPageStore  # noqa: PLC0415 - see this module's docstring
    from hotpartition.redis.registry import RedisRegistry  # noqa: PLC0415 - as above
    from hotpartition.redis.report_streams import RedisReportSink  # noqa: PLC0415 - as above

    name, background, timer = settings.table_name, background or BackgroundThread(), timer or ElapsedTime()
    return Ends(
        telemetry=telemetry,
        clock=clock,
        journal=journal,
        registry=RedisRegistry(connection, name, telemetry),
        # A writer's user in Redis may not repair. Without telemetry: the look-up before has counted already.
        repairs=None if settings.function == "write" else RedisRegistry(connection, name),
        reports=RedisReportSink(
            connection,
            name,
            partitions=settings.stream_partitions,
            background=BackgroundThread() if pause else background,
            now_ms=clock.now_ms,
            pause=pause or (lambda: None),
        ),
        page_store=RedisPageStore(connection, name, telemetry, timer),
        background=background,
        timer=timer,
        environment_id=uuid.uuid4().hex,
    )


def connect_redis(
    settings: Settings, telemetry: Telemetry, purpose: str, *, is_patient: bool = False
) -> RedisConnection:
    """Build the connection of a function; nothing is opened yet.

    `purpose` names it in log lines; one that `is_patient` is for work outside a request's path.
    """
    from hotpartition.redis.cluster import RedisConnection  # noqa: PLC0415 - see this module's docstring

    user = settings.registry_user

    def note_refusal(reason: str) -> None:
        telemetry.event("registry refuses this function", reason=reason, user=user, purpose=purpose)

    least_connect_ms, least_command_ms = PATIENT_TIMEOUTS_MS if is_patient else (0, 0)
    return RedisConnection(
        host=settings.registry_host,
        port=settings.registry_port,
        is_tls=settings.registry_tls,
        certificates=find_redis_certificates(settings),
        is_strict=settings.registry_tls_strict,
        credentials=_find_redis_credentials(settings),
        on_refusal=note_refusal,
        connect_timeout_ms=max(least_connect_ms, settings.registry_connect_timeout_ms),
        command_timeout_ms=max(least_command_ms, settings.registry_command_timeout_ms),
        cooldown_ms=COOLDOWN_MS,
        now_ms=lambda: time.monotonic() * 1000,
    )


def open_page_store(address: str, name: str, telemetry: Telemetry, timer: ElapsedTime) -> PageStore:
    """Open the values that a fleet shares in a user's own Redis; `name` is what keys begin with, after `hp:`.

    Raises:
        ValueError: it is not the address of a Redis cluster.
    """
    from redis.credentials import UsernamePasswordCredentialProvider  # noqa: PLC0415 - see this module's docstring

    from hotpartition.redis.cluster import RedisConnection  # noqa: PLC0415 - as above
    from hotpartition.redis.pages import RedisPageStore  # noqa: PLC0415 - as above

    parts = urlsplit(address)
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
        raise ValueError("redis= is the address of a Redis cluster, such as rediss://user:password@host:6379")
    credentials = None
    if parts.password is not None:
        credentials = UsernamePasswordCredentialProvider(unquote(parts.username or "") or None, unquote(parts.password))
    connection = RedisConnection(
        host=parts.hostname,
        port=parts.port or 6379,
        is_tls=parts.scheme == "rediss",
        credentials=credentials,
        on_refusal=lambda reason: telemetry.event(f"Redis refuses the read cache: {reason}"),
        connect_timeout_ms=CACHE_TIMEOUTS_MS[0],
        command_timeout_ms=CACHE_TIMEOUTS_MS[1],
        cooldown_ms=COOLDOWN_MS,
        now_ms=lambda: time.monotonic() * 1000,
    )
    return RedisPageStore(connection, name, telemetry, timer)


def find_redis_certificates(settings: Settings) -> Certificates:
    """Find the trusted authorities: as DynamoDB's client does, unless a file is named."""
    if settings.registry_ca_file:
        return Certificates(file=settings.registry_ca_file)
    return find_certificates(os.environ) if settings.registry_tls else Certificates()


def _find_redis_credentials(settings: Settings) -> CredentialProvider | None:
    match settings.registry_authentication:
        case "iam":
            from hotpartition.redis.logins import IamCredentials  # noqa: PLC0415 - see this module's docstring

            return IamCredentials(
                cache_name=settings.registry_cache_name,
                user=settings.registry_user,
                region=find_region(os.environ),
                find_credentials=find_credentials(os.environ).get,
                now_seconds=time.time,
            )
        case "password":
            from hotpartition.redis.logins import PasswordFile  # noqa: PLC0415 - as above

            return PasswordFile(user=settings.registry_user, path=Path(settings.registry_password_file))
        case _:
            return None


def open_calls(settings: Settings, *, sends_rounds: bool = False) -> DynamoDBCalls:
    """Open the client of DynamoDB that the settings name; `sends_rounds`: whether queries go several at a time."""
    parallel, quantile = (settings.fan_out_threads, settings.hedge_quantile) if sends_rounds else (1, 0.0)
    policy = HedgePolicy(quantile=quantile) if quantile else None
    if settings.dynamodb_client == "curl":
        return open_curl(endpoint=settings.dynamodb_endpoint, parallel=parallel, policy=policy)
    return open_boto3(parallel=parallel, policy=policy)


def open_curl(
    *,
    endpoint: str = "",
    parallel: int = 1,
    policy: HedgePolicy | None = None,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> DynamoDBCalls:
    """Open libcurl, as the environment's variables say where and with which credentials."""
    from hotpartition.dynamodb.curl import CurlCalls, Target  # noqa: PLC0415 - see this module's docstring

    region = find_region(os.environ)
    address = find_dynamodb_endpoint(os.environ, endpoint, region)
    target = Target(
        endpoint=address,
        region=region,
        certificates=find_certificates(os.environ) if address.startswith("https") else Certificates(),
        connect_timeout_seconds=connect_timeout_seconds,
        timeout_seconds=read_timeout_seconds,
    )
    credentials = find_credentials(os.environ)
    return CurlCalls(target, credentials, timer=time.monotonic, now_seconds=time.time, parallel=parallel, policy=policy)


def open_boto3(
    *,
    parallel: int = 1,
    policy: HedgePolicy | None = None,
    connect_timeout_seconds: float = CONNECT_TIMEOUT_SECONDS,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
) -> DynamoDBCalls:
    """Open boto3's client, with threads for calls at the same time."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - see this module's docstring

    from hotpartition.dynamodb.boto3_client import Boto3Call, create_client  # noqa: PLC0415 - as above
    from hotpartition.dynamodb.threads import ThreadedCalls  # noqa: PLC0415 - as above

    connections = parallel + HEDGE_CONNECTIONS
    # Threads start when there is work for them: a client that only writes has none.
    threads = ThreadPoolExecutor(connections, thread_name_prefix="query")
    client = create_client(
        connections=connections,
        connect_timeout_seconds=connect_timeout_seconds,
        read_timeout_seconds=read_timeout_seconds,
        certificates=find_certificates(os.environ),
    )

    def close() -> None:
        threads.shutdown()
        client.close()

    return ThreadedCalls(Boto3Call(client), threads, parallel=parallel, policy=policy, close=close)


def build_key_form(settings: Settings) -> KeyForm:
    """Build the form of a table's partition keys; in commands a collection is called `conversation_id`."""
    return KeyForm(settings.key_separator, label="conversation_id")


def build_journal_place(
    settings: Settings, partition_key: str, sort_key: str, *, index_name: str = "", sort_type: str = "S"
) -> JournalPlace:
    """Build the place of a table's routing items, given the names of its own keys.

    `index_name` is the index that lists them where they lie in their collections, `sort_type` the type of their sort
    key there.
    """
    if settings.journal_table_name:
        return JournalPlace(settings.journal_table_name, settings.journal_partition_key_name, sort_key="")
    routing_sort_key = LARGEST_NUMBER if sort_type == "N" else settings.journal_sort_key
    return JournalPlace(settings.table_name, partition_key, sort_key, routing_sort_key, index_name, sort_type)


def find_journal(settings: Settings) -> JournalPlace:
    """Build the place of the routing items of the table that the settings describe."""
    names = settings.partition_key_name, settings.sort_key_name
    return build_journal_place(settings, *names, index_name=settings.routing_index_name)
