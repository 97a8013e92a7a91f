"""Adaptive write sharding beside any table: everything that raises its hot keys, and access to it for functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hotpartition.core.keys import KeyForm
from hotpartition.redis.acl import Role
from hotpartition_cdk.alarms import Watched
from hotpartition_cdk.checks import check_kinds, check_name, check_receiver, check_table, claim_table
from hotpartition_cdk.clients import ACTIONS, Clients, InBandClients, Kind
from hotpartition_cdk.configuration import CONSUMER, IN_BAND, SMALL, HotPartitionOptions
from hotpartition_cdk.errors import ConfigurationError, refuse
from hotpartition_cdk.functions import Detection, FunctionFactory, Operations, wire_table
from hotpartition_cdk.journal import Journal, JournalTable
from hotpartition_cdk.layers import Layers
from hotpartition_cdk.logs import LogKeeping
from hotpartition_cdk.monitoring import Monitoring
from hotpartition_cdk.names import unique_name
from hotpartition_cdk.network import Network
from hotpartition_cdk.options import TABLE_FUNCTIONS, check_closing, describe_long_run, read_overrides
from hotpartition_cdk.registry import Registry


@dataclass(frozen=True, slots=True)
class Use:
    """How functions use a table.

    Attributes:
        settings: The settings that all functions need for it, by name.
        users: The rights of each kind of function in Redis.
        actions: Their actions in DynamoDB, on the table and its journal; a VPC of its own lets nothing else through.
    """

    settings: Mapping[str, str]
    users: Mapping[str, Sequence[Role]]
    actions: Sequence[str]


SHARDED_TABLE = Use(
    # Without `position=`, a raise holds for all items.
    settings={"key_separator": KeyForm().separator, "has_positions": "false"},
    users={Kind.TABLE: (Role.WRITER, Role.READER), Kind.READER: (Role.READER,)},
    actions=ACTIONS[Kind.TABLE],
)
"""As a `ShardedTable`, by functions that write and read and functions that only read."""

_OURS: Mapping[str, Sequence[Role]] = {role: (role,) for role in (Role.CONSUMER, Role.OPERATOR)}


class HotPartition(Construct):
    """Raises the hot partition keys of a table, and lets functions use it through `ShardedTable(…, adaptive())`.

    Makes a registry (ElastiCache for Valkey), a stream consumer with its schedule, an operations function, the
    journal's table, alarms and a dashboard. In the table itself nothing is changed.

    With `detection=IN_BAND` it makes nothing, and has no attribute but `table`: functions that use the table through
    `ShardedTable(…, in_band())` get rights and settings.

    Example:
        >>> HotPartition(self, "Hot", table=readings, functions=[ingest], readers=[show], is_joining=True)
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        table: dynamodb.ITable,
        detection: str = CONSUMER,
        functions: Sequence[lambda_.Function] = (),
        readers: Sequence[lambda_.Function] = (),
        indexes: Sequence[str] = (),
        vpc: ec2.IVpc | None = None,
        registry: Registry | None = None,
        options: HotPartitionOptions | Mapping[str, object] = SMALL,
        settings: Mapping[str, object] | None = None,
        name: str | None = None,
        journal: Journal | None = None,
        use: Use = SHARDED_TABLE,
        is_watched: bool = True,
        is_joining: bool = False,
    ) -> None:
        """Make all of it.

        Args:
            scope: Where it is made.
            id_: Its id.
            table: The table, new or imported, with whatever keys.
            detection: What finds hot keys: `CONSUMER`, or with `IN_BAND` the functions do. Then `name`, `use`,
                `is_watched` and `is_joining` mean nothing, and `vpc`, `registry` and `options` are refused.
            functions: Functions that read and write the table.
            readers: Functions that only read it.
            indexes: Names of the table's indexes that they query.
            vpc: Where all of it runs; None makes a VPC without a way in or out, but to DynamoDB.
            registry: One that other tables use as well; None makes one.
            options: `SMALL`, `PRODUCTION`, or changes to `SMALL` by name: `{"registry": {"node_type": "…"}}`.
            settings: Settings of the functions, by name: `{"max_shard_count": 64}`.
            name: The prefix of the names of alarms, Redis users, dashboard and metrics; None: made of its path.
            journal: Where the routes lie; None makes a table for them, or with `IN_BAND` leaves them in the table.
            use: How functions use the table.
            is_watched: Whether alarms and the dashboard are made here.
            is_joining: Whether functions in no VPC join that of the registry, in which they lose the internet.

        Raises:
            ConfigurationError: an option is wrong, or a function does not fit; in one sentence that says what to do.
        """
        super().__init__(scope, id_)
        optional = {"vpc": vpc, "registry": registry, "journal": journal, "settings": settings}
        given = {name: value for name, value in optional.items() if value is not None}
        lists = {"functions": functions, "readers": readers, "indexes": indexes}
        check_kinds(self.node.path, {"table": table, "options": options, **given}, lists)
        if detection not in (CONSUMER, IN_BAND):
            raise ConfigurationError(f"detection should be {CONSUMER!r} or {IN_BAND!r}, not {detection!r}")
        check_table(self, table, indexes, holds_routes=detection == IN_BAND and journal is None)
        self.table = table
        self._clients: Clients | InBandClients
        if detection == IN_BAND:
            if vpc is not None or registry is not None or options is not SMALL:
                raise ConfigurationError(
                    f"{self.node.path} finds hot keys in band, and makes nothing for which vpc=, registry= and options="
                    " could be: leave them out"
                )
            own_settings = read_overrides(settings or {}, ("in_band()",))
            claim_table(self, table, detection)
            self._clients = InBandClients(
                scope=self, table=table, indexes=indexes, journal=journal, settings=own_settings
            )
            self._add(functions, readers)
            return
        self.options = options if isinstance(options, HotPartitionOptions) else SMALL.changed(options)
        chosen = {**use.settings, **read_overrides(settings or {}, TABLE_FUNCTIONS)}
        check_closing(chosen, self.node.path)
        refuse(describe_long_run(self.options.consumer.timeout_seconds, chosen, self.node.path))
        self.name = name or unique_name(self)
        check_name(self.name, self.node.path)
        if is_watched:
            check_receiver(self.options, self.node.path)
        claim_table(self, table, detection)
        self.log_keeping = LogKeeping(self.options)
        self.network = self._find_network(vpc, registry)
        self.journal = journal or self._make_journal()
        self.registry = registry or Registry(
            self,
            "Valkey",
            network=self.network,
            size=self.options.registry,
            name=self.name,
            key_arn=self.options.kms_key_arn,
        )
        access = self.registry.admit(self, prefix=self.name, table_name=table.table_name, users={**use.users, **_OURS})
        wired = {**wire_table(self, table, self.journal), **chosen}
        self.layers = Layers(self, "Layers", target=self.options.target)
        self.functions = FunctionFactory(
            scope=self,
            layers=self.layers,
            network=self.network,
            users=access,
            log_keeping=self.log_keeping,
            wiring=wired,
            namespace=self.name,
        )
        self.detection = Detection(
            self, "Detection", functions=self.functions, journal=self.journal, options=self.options
        )
        self.operations = Operations(self, "Operations", functions=self.functions, journal=self.journal)
        self._clients = Clients(
            scope=self,
            table=table,
            indexes=indexes,
            journal=self.journal,
            network=self.network,
            users=access,
            wiring=wired,
            is_vpc_given=vpc is not None or registry is not None,
            is_joining=is_joining,
        )
        self._add(functions, readers)
        self.network.allow_dynamodb(
            use.actions,
            [
                table.table_arn,
                *(f"{table.table_arn}/index/{index}" for index in indexes),
                *([self.journal.table.table_arn] if self.journal.is_apart else []),
            ],
        )
        if is_watched:
            Monitoring(self, "Monitoring", watched=self.watched(), options=self.options).follow_names()

    def _add(self, functions: Sequence[lambda_.Function], readers: Sequence[lambda_.Function]) -> None:
        for function in functions:
            self.add_function(function)
        for function in readers:
            self.add_reader(function)

    def add_function(self, function: lambda_.Function) -> None:
        """Let a function read and write the table through `ShardedTable`.

        Raises:
            ConfigurationError: it does not fit.
        """
        self._clients.add(function, Kind.TABLE)

    def add_reader(self, function: lambda_.Function) -> None:
        """Let a function read the table through `ShardedTable`.

        Raises:
            ConfigurationError: it does not fit.
        """
        self._clients.add(function, Kind.READER)

    def _find_network(self, vpc: ec2.IVpc | None, registry: Registry | None) -> Network:
        if registry is None:
            return Network(self, "Network", options=self.options.network, log_keeping=self.log_keeping, vpc=vpc)
        if cdk.Stack.of(registry) is not cdk.Stack.of(self):
            raise ConfigurationError(
                f"{self.node.path} and its registry {registry.node.path} are in two stacks, and the users of one user"
                " group are made in one: put them into the same stack"
            )
        if vpc is not None:
            raise ConfigurationError(
                f"{self.node.path} is given a registry, which has its VPC, and a vpc: give one of them"
            )
        return registry.network

    def _make_journal(self) -> Journal:
        return JournalTable(
            self,
            "Journal",
            table=self.table,
            is_retained=_is_kept(self.table),
            is_protected=self.options.is_protected,
            has_contributor_insights=self.options.has_contributor_insights,
            key_arn=self.options.kms_key_arn,
        ).journal()

    def watched(self) -> Watched:
        """Name the resources that alarms watch; the nodes only once."""
        return Watched(
            name=self.name,
            table=self.table.table_name,
            journal=self.journal.table.table_name,
            index=self.journal.index_name,
            functions={folder: made.function_name for folder, made in self.functions.made.items()},
            has_consumer=True,
            nodes=self.registry.nodes_to_watch(),
        )


def _is_kept(table: dynamodb.ITable) -> bool:
    """Say whether a table outlives its stack; then the routes of its items must."""
    resource = table.node.default_child
    return not (
        isinstance(resource, cdk.CfnResource) and resource.cfn_options.deletion_policy == cdk.CfnDeletionPolicy.DELETE
    )
