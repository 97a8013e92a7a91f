"""The settings of what serves a table of any form: consumer, operations, `ShardedTable`.

They stand apart since pydantic takes time for each model, and the functions of a request need none of these.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from hotpartition.runtime.settings import (
    CommonSettings,
    CountingSettings,
    Flag,
    PageSettings,
    Rcu,
    ReaderSettings,
    ReportSettings,
    RouteSettings,
    Text,
    Wcu,
    WriterSettings,
)


class JournalSettings(CommonSettings):
    """Where a table's routing items lie."""

    journal_table_name: str = Field(
        default="",
        description="Name of a table of their own for the routing items; empty: they lie in their collections.",
    )
    journal_partition_key_name: Text = Field(
        default="pk", description="With `journal_table_name`: name of that table's only key."
    )
    journal_sort_key: Text = Field(
        default="r#", description="Sort key of a routing item that lies in its collection, behind all items there."
    )


class TableSettings(JournalSettings):
    """How the table looks, and where its routing items lie."""

    partition_key_name: Text = Field(default="pk", description="Name of the table's partition key.")
    sort_key_name: Text = Field(default="sk", description="Name of the table's sort key.")
    key_separator: Text = Field(default="#", description="What stands before the number at the end of a shard key.")
    has_positions: Flag = Field(
        default=True,
        description="Whether sort keys tell positions that are times in ms; without them a raise holds for all items.",
    )
    routing_index_name: Text = Field(
        default="routing-index", description="Name of the sparse index that lists routing items in their collections."
    )


class _DecisionSettings(ReportSettings, TableSettings):
    hot_sustained_wcu: Wcu = Field(
        default=800.0, description="Mean load of five seconds that is hot, in WCU/s for each key that serves it."
    )
    max_shard_count: int = Field(default=128, ge=2, le=1024, description="Largest N that is ever decided.")
    hot_sustained_rcu: Rcu = Field(
        default=1000.0,
        description="Mean load of five seconds that is read-hot, in RCU/s that the pages take or would take uncached.",
    )


class AdaptiveSettings(CountingSettings, PageSettings, JournalSettings):
    """Settings of a `ShardedTable` with `adaptive()`; in code they are its arguments."""


class ConsumerSettings(_DecisionSettings):
    """Settings of the stream consumer: detection and decision."""

    hot_at_once_wcu: Wcu = Field(
        default=1000.0, description="Load of one second that is hot at once, in WCU/s for each key that serves it."
    )
    hot_at_once_rcu: Rcu = Field(default=1500.0, description="Load of one second that is read-hot at once, in RCU/s.")
    cooled_rcu: Rcu = Field(
        default=500.0,
        description="What is read-hot stays so while five seconds of the last fifteen had this mean load, in RCU/s.",
    )
    pages_per_copy: float = Field(
        default=20_000.0,
        ge=1.0,
        le=1_000_000.0,
        description="Pages a second that one copy of a page in Redis is trusted with; more pages make more copies.",
    )
    target_shard_wcu: Wcu = Field(default=330.0, description="Load that a new shard is sized for, in WCU/s.")
    run_seconds: float = Field(
        default=170.0, ge=1.0, le=890.0, description="When a consumer stops even though no successor came, in seconds."
    )


class OperateSettings(RouteSettings, _DecisionSettings):
    """Settings of the operations function: what it must know of the others."""

    consumers: int = Field(
        default=1, ge=1, le=64, description="Number of stream consumers that share the report streams."
    )


FUNCTION_SETTINGS: Mapping[str, type[CommonSettings]] = {
    "write": WriterSettings,
    "read": ReaderSettings,
    "consumer": ConsumerSettings,
    "operate": OperateSettings,
}
"""The settings of each function, by its name in the documents."""
