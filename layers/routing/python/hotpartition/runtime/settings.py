"""The settings, grouped by subject, and which groups each function has: read once from the environment.

A setting's name, in capitals and behind `HOTPARTITION_`, is its environment variable. The infrastructure builds each
function's environment from the same classes (`build_environment`), so a name is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hotpartition.runtime.declaring import Settings, flag, number, text, variable_name, whole

DYNAMODB_CLIENTS = ("curl", "boto3")
"""The DynamoDB clients; `dynamodb/clients.py` opens them."""


class StoreSettings(Settings):
    """The table, and its client."""

    table_name = text("Name of the DynamoDB table; also names the Redis keys.")
    dynamodb_client = text(
        "What speaks to DynamoDB: `curl` (libcurl) or `boto3`.", DYNAMODB_CLIENTS[0], choices=DYNAMODB_CLIENTS
    )
    dynamodb_endpoint = text("DynamoDB's address for `curl`; AWS's own variables come first. Empty: the region's.", "")


class RegistrySettings(Settings):
    """Where Redis is, how to get in, and how long to wait for it."""

    registry_host = text("Host name of the Redis cluster's configuration endpoint.")
    registry_port = whole("Port of the Redis cluster.", 6379, least=1, most=65_535)
    registry_tls = flag("Whether the Redis cluster is reached through TLS.", default=True)
    registry_authentication = text(
        "How a function authenticates to Redis: `none`, `iam` or `password`; the last two need TLS.",
        "none",
        choices=("none", "iam", "password"),
    )
    registry_user = text("Name of the Redis user that authenticates.", "default")
    registry_cache_name = text("With `iam`: name of the cache (replication group id) that tokens are signed for.", "")
    registry_password_file = text("With `password`: path of the file that holds it, read at each new connection.", "")
    registry_ca_file = text(
        "Path of the certificates (PEM) that Redis's own must descend from; empty: those that DynamoDB's"
        " must (`AWS_CA_BUNDLE`, else the machine's, else botocore's).",
        "",
    )
    registry_tls_strict = flag(
        "Whether Redis's certificates must keep RFC 5280 in all, as Python 3.13 demands (`VERIFY_X509_STRICT`).",
        default=True,
    )
    registry_connect_timeout_ms = whole(
        "How long a request waits for a connection to Redis, TLS and authentication included, in ms;"
        " consumer and operations wait 2,000 at least.",
        500,
        least=1,
        most=5_000,
    )
    registry_command_timeout_ms = whole(
        "How long a request waits for a response of Redis, in ms; consumer and operations wait 1,000 at least.",
        30,
        least=1,
        most=5_000,
    )
    registry_rest_ms = whole(
        "How long Redis is left alone after it failed to respond, in ms.", 1_000, least=0, most=60_000
    )

    def check(self, name_of: Callable[[str], str]) -> Iterable[str]:
        """Refuse a way of authentication without the values that it needs."""
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


class ReportSettings(Settings):
    """Where reports go."""

    stream_partitions = whole("Number of report streams.", 4, least=1, most=1024)


class RouteSettings(Settings):
    """How long routes are used."""

    route_cache_seconds = number(
        "How long a route is used before Redis is asked again, in seconds.", 2.0, least=0.0, most=60.0
    )


class RequestSettings(Settings):
    """Limits of a request."""

    route_cache_entries = whole("How many routes one execution environment keeps.", 10_000, least=1, most=1_000_000)
    request_budget_ms = whole(
        "How long a request goes on trying while DynamoDB refuses, in ms.", 300, least=1, most=25_000
    )


class SamplingSettings(Settings):
    """How writes are counted."""

    sampling_distance_wcu = number(
        "Write units of one conversation between two reports (z).", 5.0, least=0.001, most=1000.0
    )


class PageSettings(Settings):
    """How pages are counted, and how newest pages of read-hot keys are cached."""

    read_sampling_distance_rcu = number(
        "Read units of one conversation's pages between two reports.", 100.0, least=0.001, most=100_000.0
    )
    page_cache = flag("Whether newest pages of what is read-hot are cached.", default=True)
    page_ttl_seconds = number(
        "How old a cached page gets before it is read anew, in seconds.", 1.0, least=0.2, most=60.0
    )
    page_staleness_seconds = number(
        "How old a page from the cache may be, in seconds; at least twice `page_ttl_seconds`.",
        3.0,
        least=0.4,
        most=600.0,
    )
    page_l1_entries = whole("How many cached pages one execution environment keeps.", 200, least=1, most=100_000)
    page_l1_bytes = whole(
        "Bytes of cached pages, as JSON, that one execution environment keeps; in memory they are larger.",
        16_000_000,
        least=8_000_000,
        most=1_000_000_000,
    )

    def check(self, name_of: Callable[[str], str]) -> Iterable[str]:
        """Refuse a staleness bound that pages would pass in the normal course of things."""
        if self.page_staleness_seconds < 2 * self.page_ttl_seconds:
            return [f"{name_of('page_staleness_seconds')} should be at least twice {name_of('page_ttl_seconds')}"]
        return []


class QuerySettings(Settings):
    """How a read's queries are sent."""

    hedge_quantile = number(
        "A shard's query slower than this share of recent ones is asked again; 0 turns that off.",
        0.97,
        least=0.0,
        most=0.999,
    )
    # The base key's and those of 32 shards: with one too few, a page waits for a second turn.
    fan_out_threads = whole("Queries that one read runs at the same time.", 33, least=1, most=256)


class JournalSettings(Settings):
    """Where a table's routing items lie."""

    journal_table_name = text(
        "Name of a table of their own for the routing items; empty: they lie in their collections.", ""
    )
    journal_partition_key_name = text("With `journal_table_name`: name of that table's only key.", "pk")
    journal_sort_key = text("Sort key of a routing item that lies in its collection, behind all items there.", "r#")


class LeaseSettings(Settings):
    """How long writers may place items by a known route. All functions beside a table need the same."""

    lease_seconds = number(
        "How far behind a writer's last look at the journal an item's time may lie on a shard, in seconds. Never"
        " lower it while keys are closed. 0: no leases, for a table that is never closed.",
        600.0,
        least=0.0,
        most=86_400.0,
    )
    lease_margin_seconds = number(
        "How much the clocks of DynamoDB's servers may differ, in seconds.", 60.0, least=0.0, most=3_600.0
    )

    def check(self, name_of: Callable[[str], str]) -> Iterable[str]:
        """Refuse a margin that a lease would not outlast."""
        if 0 < self.lease_seconds < self.lease_margin_seconds:
            return [f"{name_of('lease_seconds')} should be at least {name_of('lease_margin_seconds')}, or 0"]
        return []


class ClosingSettings(Settings):
    """When a route is closed."""

    is_closing = flag(
        "Whether keys that have cooled are closed; false until all functions beside the table can read a close.",
        default=True,
    )
    close_after_seconds = number(
        "How long a key's load stays below half of what makes it hot before it is closed, in seconds.",
        600.0,
        least=1.0,
        most=86_400.0,
    )
    close_pause_seconds = number(
        "Least time between two closes of one key, in seconds.", 3_600.0, least=0.0, most=31_536_000.0
    )


class KeySettings(Settings):
    """How a table of any form looks."""

    partition_key_name = text("Name of the table's partition key.", "pk")
    sort_key_name = text("Name of the table's sort key.", "sk")
    key_separator = text("What stands before the number at the end of a shard key.", "#")
    has_positions = flag(
        "Whether sort keys tell positions that are times in ms; without them a raise holds for all items.",
        default=True,
    )
    routing_index_name = text(
        "Name of the sparse index that lists routing items in their collections.", "routing-index"
    )


class SizeSettings(Settings):
    """How far a route goes."""

    max_shard_count = whole("Largest N that is ever decided.", 128, least=2, most=1024)


class HeatSettings(Settings):
    """When a key is hot: the consumer decides by it, and operations shows it."""

    hot_sustained_wcu = number(
        "Mean load of five seconds that is hot, in WCU/s for each key that serves it.",
        800.0,
        least=0.001,
        most=1_000_000.0,
    )
    hot_sustained_rcu = number(
        "Mean load of five seconds that is read-hot, in RCU/s that the pages take or would take uncached.",
        1000.0,
        least=0.001,
        most=10_000_000.0,
    )


class LoadSettings(Settings):
    """The load that one key serves: it decides when a route is raised, and how far."""

    hot_at_once_wcu = number(
        "Load of one second that is hot at once, in WCU/s for each key that serves it.",
        1000.0,
        least=0.001,
        most=1_000_000.0,
    )
    target_shard_wcu = number("Load that a new shard is sized for, in WCU/s.", 330.0, least=0.001, most=1_000_000.0)


class RaiseSettings(Settings):
    """Whether detection may raise."""

    is_raising = flag(
        "Whether hot keys are raised; false: only operators raise, and the consumer logs what it would have done.",
        default=True,
    )


class DetectionSettings(Settings):
    """The consumer's other thresholds."""

    max_raises_per_hour = whole(
        "Raises of all keys together that consumers make in an hour, by Redis's clock; those by hand do not count.",
        1_000,
        least=1,
        most=1_000_000,
    )
    hot_at_once_rcu = number(
        "Load of one second that is read-hot at once, in RCU/s.", 1500.0, least=0.001, most=10_000_000.0
    )
    cooled_rcu = number(
        "What is read-hot stays so while five seconds of the last fifteen had this mean load, in RCU/s.",
        500.0,
        least=0.001,
        most=10_000_000.0,
    )
    pages_per_copy = number(
        "Pages a second that one copy of a page in Redis is trusted with; more pages make more copies.",
        20_000.0,
        least=1.0,
        most=1_000_000.0,
    )


class EngineSettings(Settings):
    """Settings of all that reads or writes items with Redis."""

    store: StoreSettings
    registry: RegistrySettings
    routes: RouteSettings
    requests: RequestSettings
    reports: ReportSettings


class WriterSettings(EngineSettings):
    """Settings of functions that write items."""

    sampling: SamplingSettings
    leases: LeaseSettings


class ReaderSettings(EngineSettings):
    """Settings of functions that read items."""

    pages: PageSettings
    queries: QuerySettings


class AdaptiveSettings(WriterSettings):
    """Settings of a `ShardedTable` with `adaptive()`; in code they are its arguments."""

    pages: PageSettings
    journal: JournalSettings


class InBandWriterSettings(Settings):
    """Settings of all that writes items and finds hot keys itself."""

    store: StoreSettings
    requests: RequestSettings
    size: SizeSettings
    load: LoadSettings
    leases: LeaseSettings
    closing: ClosingSettings
    raising: RaiseSettings


class InBandSettings(InBandWriterSettings):
    """Settings of a `ShardedTable` with `in_band()`; in code they are its arguments."""

    journal: JournalSettings


class ControlSettings(Settings):
    """Settings of all that works beside requests."""

    store: StoreSettings
    journal: JournalSettings
    keys: KeySettings
    size: SizeSettings
    leases: LeaseSettings
    closing: ClosingSettings


class ConsumerSettings(ControlSettings):
    """Settings of the stream consumer: detection and decision."""

    registry: RegistrySettings
    reports: ReportSettings
    heat: HeatSettings
    load: LoadSettings
    raising: RaiseSettings
    detection: DetectionSettings

    run_seconds = number(
        "When a consumer stops even though no successor came, in seconds.", 170.0, least=1.0, most=890.0
    )


class OperateSettings(ControlSettings):
    """Settings of the operations function: those of the others that it needs."""

    registry: RegistrySettings
    routes: RouteSettings
    reports: ReportSettings
    heat: HeatSettings

    consumers = whole("Number of stream consumers that share the report streams.", 1, least=1, most=64)


class InBandOperateSettings(ControlSettings):
    """Settings of the operations function where writers find hot keys themselves."""

    load: LoadSettings


def is_in_band(environ: Mapping[str, str]) -> bool:
    """Say whether a function is given no Redis at all: then writers find hot keys themselves.

    One that is given a part of what reaches Redis is deployed wrongly, and must say so.
    """
    return not any(variable_name(name) in environ for name in RegistrySettings.declared())
