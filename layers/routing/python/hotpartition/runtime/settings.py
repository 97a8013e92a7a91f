"""Every setting: its meaning, default and bounds, and which functions use it. Read once, from the environment.

The infrastructure builds each function's environment from the same table (`build_environment`), so a name is written
once. What finds hot keys in band has a name of its own: `in-band write` is the write function without Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hotpartition.runtime.declaring import Declared, Functions, flag, number, text, variable_name

DYNAMODB_CLIENTS = ("curl", "boto3")
"""The DynamoDB clients; `runtime/connect.py` opens them."""

WRITE: Functions = frozenset({"write"})
READ: Functions = frozenset({"read"})
CONSUMER: Functions = frozenset({"consumer"})
OPERATE: Functions = frozenset({"operate"})
ADAPTIVE: Functions = frozenset({"adaptive()"})
"""A `ShardedTable` with `adaptive()`; in code its settings are arguments."""
IN_BAND: Functions = frozenset({"in_band()"})
"""A `ShardedTable` with `in_band()`; in code its settings are arguments."""
IN_BAND_WRITE: Functions = frozenset({"in-band write"})
IN_BAND_READ: Functions = frozenset({"in-band read"})
IN_BAND_OPERATE: Functions = frozenset({"in-band operate"})

_REDIS = WRITE | READ | CONSUMER | OPERATE | ADAPTIVE
_FINDERS = IN_BAND | IN_BAND_WRITE
"""What writes items and finds hot keys itself."""
_ALL = _REDIS | _FINDERS | IN_BAND_READ | IN_BAND_OPERATE
_CONTROL = CONSUMER | OPERATE | IN_BAND_OPERATE
"""What works beside requests."""
_CLOSERS = _CONTROL | _FINDERS


class Settings(Declared):
    """The settings of one function."""

    table_name = text("Name of the DynamoDB table; also names the Redis keys.", used_by=_ALL)
    dynamodb_client = text(
        "What speaks to DynamoDB: `curl` (libcurl) or `boto3`.",
        DYNAMODB_CLIENTS[0],
        choices=DYNAMODB_CLIENTS,
        used_by=_ALL,
    )
    dynamodb_endpoint = text(
        "DynamoDB's address for `curl`; AWS's own variables come first. Empty: the region's.", "", used_by=_ALL
    )
    registry_host = text("Host name of the Redis cluster's configuration endpoint.", used_by=_REDIS)
    registry_port = number("Port of the Redis cluster.", 6379, 1, 65_535, used_by=_REDIS)
    registry_tls = flag("Whether the Redis cluster is reached through TLS.", default=True, used_by=_REDIS)
    registry_authentication = text(
        "How a function authenticates to Redis: `none`, `iam` or `password`; the last two need TLS.",
        "none",
        choices=("none", "iam", "password"),
        used_by=_REDIS,
    )
    registry_user = text("Name of the Redis user that authenticates.", "default", used_by=_REDIS)
    registry_cache_name = text(
        "With `iam`: name of the cache (replication group id) that tokens are signed for.", "", used_by=_REDIS
    )
    registry_password_file = text(
        "With `password`: path of the file that holds it, read at each new connection.", "", used_by=_REDIS
    )
    registry_ca_file = text(
        "Path of the certificates (PEM) that Redis's own must descend from; empty: those that DynamoDB's"
        " must (`AWS_CA_BUNDLE`, else the machine's, else botocore's).",
        "",
        used_by=_REDIS,
    )
    registry_tls_strict = flag(
        "Whether Redis's certificates must keep RFC 5280 in all, as Python 3.13 demands (`VERIFY_X509_STRICT`).",
        default=True,
        used_by=_REDIS,
    )
    registry_connect_timeout_ms = number(
        "How long a request waits for a connection to Redis, TLS and authentication included, in ms;"
        " consumer and operations wait 2,000 at least.",
        500,
        1,
        5_000,
        used_by=_REDIS,
    )
    registry_command_timeout_ms = number(
        "How long a request waits for a response of Redis, in ms; consumer and operations wait 1,000 at least.",
        30,
        1,
        5_000,
        used_by=_REDIS,
    )
    stream_partitions = number("Number of report streams.", 4, 1, 1024, used_by=_REDIS)
    route_cache_seconds = number(
        "How long a route is used before Redis is asked again, in seconds.", 2.0, 0.0, 60.0, used_by=_REDIS - CONSUMER
    )
    request_budget_ms = number(
        "How long a request goes on trying while DynamoDB refuses, in ms.",
        300,
        1,
        25_000,
        used_by=WRITE | READ | ADAPTIVE | _FINDERS | IN_BAND_READ,
    )
    sampling_distance_wcu = number(
        "Write units of one key between two reports (z).", 5.0, 0.001, 1000.0, used_by=WRITE | ADAPTIVE
    )
    read_sampling_distance_rcu = number(
        "Read units of one key's pages between two reports.", 100.0, 0.001, 100_000.0, used_by=READ | ADAPTIVE
    )
    page_cache = flag("Whether items and pages of what is read-hot are cached.", default=True, used_by=READ | ADAPTIVE)
    page_ttl_seconds = number(
        "How old a cached page gets before it is read anew, in seconds.", 1.0, 0.2, 60.0, used_by=READ | ADAPTIVE
    )
    page_staleness_seconds = number(
        "How old a page from the cache may be, in seconds; at least twice `page_ttl_seconds`.",
        3.0,
        0.4,
        600.0,
        used_by=READ | ADAPTIVE,
    )
    hedge_quantile = number(
        "A shard's query slower than this share of recent ones is asked again; 0 turns that off.",
        0.97,
        0.0,
        0.999,
        used_by=READ | IN_BAND_READ,
    )
    # The base key's and those of 32 shards: with one too few, a page waits for a second turn.
    fan_out_threads = number("Queries that one read runs at the same time.", 33, 1, 256, used_by=READ | IN_BAND_READ)
    journal_table_name = text(
        "Name of a table of their own for the routing items; empty: they lie in their collections.",
        "",
        used_by=_CONTROL | ADAPTIVE | IN_BAND,
    )
    journal_partition_key_name = text(
        "With `journal_table_name`: name of that table's only key.", "pk", used_by=_CONTROL | ADAPTIVE | IN_BAND
    )
    journal_sort_key = text(
        "Sort key of a routing item that lies in its collection, behind all items there.",
        "r#",
        used_by=_CONTROL | ADAPTIVE | IN_BAND,
    )
    lease_seconds = number(
        "How far behind a writer's last look at the journal an item's time may lie on a shard, in seconds: the same for"
        " all functions beside a table. Never lower it while keys are closed. 0: no leases, for a table that is never"
        " closed.",
        600.0,
        0.0,
        86_400.0,
        used_by=WRITE | ADAPTIVE | _CLOSERS,
    )
    is_closing = flag(
        "Whether keys that have cooled are closed; false until all functions beside the table can read a close.",
        default=True,
        used_by=_CLOSERS,
    )
    close_after_seconds = number(
        "How long a key's load stays below half of what makes it hot before it is closed, in seconds.",
        600.0,
        1.0,
        86_400.0,
        used_by=_CLOSERS,
    )
    partition_key_name = text("Name of the table's partition key.", "pk", used_by=_CONTROL)
    sort_key_name = text("Name of the table's sort key.", "sk", used_by=_CONTROL)
    key_separator = text("What stands before the number at the end of a shard key.", "#", used_by=_CONTROL)
    has_positions = flag(
        "Whether sort keys tell positions that are times in ms; without them a raise holds for all items.",
        default=True,
        used_by=_CONTROL,
    )
    routing_index_name = text(
        "Name of the sparse index that lists routing items in their collections.", "routing-index", used_by=_CONTROL
    )
    max_shard_count = number("Largest N that is ever decided.", 128, 2, 1024, used_by=_CLOSERS)
    hot_sustained_wcu = number(
        "Mean load of five seconds that is hot, in WCU/s for each key that serves it.",
        800.0,
        0.001,
        1_000_000.0,
        used_by=CONSUMER | OPERATE,
    )
    hot_at_once_wcu = number(
        "Load of one second that is hot at once, in WCU/s for each key that serves it.",
        1000.0,
        0.001,
        1_000_000.0,
        used_by=_CLOSERS - OPERATE,
    )
    target_shard_wcu = number(
        "Load that a new shard is sized for, in WCU/s.", 330.0, 0.001, 1_000_000.0, used_by=_CLOSERS - OPERATE
    )
    is_raising = flag(
        "Whether hot keys are raised; false: only operators raise, and the consumer logs what it would have done.",
        default=True,
        used_by=CONSUMER | _FINDERS,
    )
    max_raises_per_hour = number(
        "Raises of all keys together that consumers make in an hour, by Redis's clock; those by hand do not count.",
        1_000,
        1,
        1_000_000,
        used_by=CONSUMER,
    )
    hot_at_once_rcu = number(
        "Load of one second that is read-hot at once, in RCU/s.",
        1500.0,
        0.001,
        10_000_000.0,
        used_by=CONSUMER | OPERATE,
    )
    run_seconds = number(
        "When a consumer stops even though no successor came, in seconds.", 170.0, 1.0, 890.0, used_by=CONSUMER
    )

    def check(self, name_of: Callable[[str], str]) -> Iterable[str]:
        """Refuse a way of authentication without what it needs, and pages that would pass their bound by design."""
        if self.function in _REDIS:
            yield from self._check_authentication(name_of)
        if self.function in READ | ADAPTIVE and self.page_staleness_seconds < 2 * self.page_ttl_seconds:
            yield f"{name_of('page_staleness_seconds')} should be at least twice {name_of('page_ttl_seconds')}"

    def _check_authentication(self, name_of: Callable[[str], str]) -> Iterable[str]:
        way = self.registry_authentication
        needs: Mapping[str, Mapping[str, object]] = {
            "none": {},
            "iam": {
                "registry_tls": self.registry_tls,
                "registry_cache_name": self.registry_cache_name,
                # ElastiCache's own user `default` cannot be one of IAM.
                "registry_user": self.registry_user != "default",
            },
            "password": {"registry_tls": self.registry_tls, "registry_password_file": self.registry_password_file},
        }
        return [
            f"{name_of(name)} should be {'true' if name == 'registry_tls' else 'set'}"
            f" with {name_of('registry_authentication')}={way}"
            for name, is_met in needs[way].items()
            if not is_met
        ]


def is_in_band(environ: Mapping[str, str]) -> bool:
    """Say whether a function is given no Redis at all: then writers find hot keys themselves.

    One that is given a part of what reaches Redis is deployed wrongly, and must say so.
    """
    names = [name for name in Settings.declared("write") if name.startswith("registry_")]
    return not any(variable_name(name) in environ for name in names)


def name_of(function: str, environ: Mapping[str, str]) -> str:
    """Name a function as settings know it, by its environment: `write`, or without Redis `in-band write`."""
    return f"in-band {function}" if is_in_band(environ) else function
