"""The registry and report streams: ElastiCache for Valkey in cluster mode, and its users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_elasticache as elasticache
from aws_cdk import aws_iam as iam
from constructs import Construct

from hotpartition.redis.acl import Role, build_rights
from hotpartition_cdk.checks import check_name
from hotpartition_cdk.configuration import ENGINE, ENGINE_VERSION, PARAMETER_FAMILY, SMALL, RegistrySize, user_prefix
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.names import follow_name, short_hash, unique_name
from hotpartition_cdk.network import REGISTRY_PORT, Network
from hotpartition_cdk.rights import acknowledge

_CONNECT = "elasticache:Connect"


@dataclass(frozen=True, slots=True)
class RegistryUsers:
    """Redis users for one table's keys; without authentication there are no users."""

    place: Mapping[str, str]
    _cache_name: str
    _arn: str
    _users: Mapping[str, elasticache.CfnUser]

    def wiring_of(self, user: str) -> dict[str, str]:
        """Build the settings of a function that is this user, by field name."""
        if user not in self._users:
            return dict(self.place)
        return {
            **self.place,
            "registry_authentication": "iam",
            "registry_user": self._users[user].user_name,
            "registry_cache_name": self._cache_name,
        }

    def grant_connect(self, grantee: iam.IGrantable, user: str) -> None:
        """Allow connecting as this user, and as no other."""
        if user in self._users:
            arns = [self._arn, self._users[user].attr_arn]
            iam.Grant.add_to_principal(grantee=grantee, actions=[_CONNECT], resource_arns=arns)


class Registry(Construct):
    """A Valkey cluster that only the functions reach, each as a user of its own.

    Its data is a copy or a hint, never the truth, so losing all of it loses no message. It goes with its stack,
    also where data is retained: kept, it would hold on to subnets and groups that CloudFormation then cannot delete.

    Users authenticate with IAM: a function signs a token with its role's credentials, and there is no password. A
    user group of engine `valkey` needs no user named `default`, so without authentication no command is accepted.

    Example:
        >>> registry = Registry(stack, "Registry", network=Network(stack, "RegistryNetwork", vpc=vpc))
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        network: Network,
        size: RegistrySize = SMALL.registry,
        name: str | None = None,
        key_arn: str | None = None,
    ) -> None:
        """Make the cluster, to which no function is admitted yet.

        Its user group is called after the name, unique in account and region; None: made of its path.

        Raises:
            ConfigurationError: its nodes shall stand in several zones, and there is one; or its name is malformed.
        """
        super().__init__(scope, id_)
        zones = {subnet.availability_zone for subnet in network.subnets}
        if size.is_multi_az and len(zones) == 1:
            raise ConfigurationError(
                f"{self.node.path} stands in several zones (option registry.is_multi_az), and its subnets in"
                f" {'one' if cdk.Token.is_unresolved(*zones) else zones.pop()} alone: give subnets of two zones, or set"
                " the option to false"
            )
        self.network = network
        self.size = size
        self._users: list[elasticache.CfnUser] = []
        self._name = name or unique_name(self)
        check_name(self._name, self.node.path)
        self._user_group = self._make_user_group() if size.is_authenticated else None
        self.cluster = elasticache.CfnReplicationGroup(
            self,
            "ReplicationGroup",
            replication_group_description="hotpartition: routes of hot conversations, and load reports",
            engine=ENGINE,
            engine_version=ENGINE_VERSION,
            # A later deployment sends the version again. After an upgrade by itself that would be a downgrade: refused.
            auto_minor_version_upgrade=False,
            cache_node_type=size.node_type,
            cache_parameter_group_name=self._parameters().ref,
            cache_subnet_group_name=self._subnets(network).ref,
            security_group_ids=[network.registry_security_group.security_group_id],
            port=REGISTRY_PORT,
            cluster_mode="enabled",
            num_node_groups=size.shard_count,
            replicas_per_node_group=size.replicas_per_shard,
            # Cluster mode demands it, replicas or not.
            automatic_failover_enabled=True,
            multi_az_enabled=size.is_multi_az,
            # Said only where it is not the default: not every region and engine version knows the property.
            durability="sync" if size.is_durable else None,
            at_rest_encryption_enabled=True,
            kms_key_id=key_arn,
            transit_encryption_enabled=size.is_encrypted_in_transit,
            user_group_ids=[self._user_group.ref] if self._user_group else None,
        )
        self.cluster.apply_removal_policy(cdk.RemovalPolicy.DESTROY)
        # Without it CloudFormation replaces the cluster when the number of shards changes.
        self.cluster.cfn_options.update_policy = cdk.CfnUpdatePolicy(use_online_resharding=True)
        self._acknowledge_findings()
        self.host = self.cluster.attr_configuration_end_point_address
        self.port = self.cluster.attr_configuration_end_point_port
        self._unwatched = self._name_nodes()

    def nodes_to_watch(self) -> list[str]:
        """Name the nodes the first time, and none after that: several tables share the alarms of one registry."""
        nodes, self._unwatched = self._unwatched, []
        return nodes

    def wiring(self) -> dict[str, str]:
        """Build the settings that say where the registry is, by field name."""
        return {
            "registry_host": self.host,
            "registry_port": self.port,
            "registry_tls": str(self.size.is_encrypted_in_transit).lower(),
        }

    def admit(
        self, scope: Construct, *, prefix: str, table_name: str, users: Mapping[str, Sequence[Role]]
    ) -> RegistryUsers:
        """Admit users to one table's keys, and to no others.

        A user's name is of the prefix, unique in account and region, of this registry, and of its name among the
        users. So a table that moves to another registry has other users there, as long as the old ones exist.
        """
        arn = cdk.Stack.of(self).format_arn(
            service="elasticache",
            resource="replicationgroup",
            resource_name=self.cluster.ref,
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )
        made: dict[str, elasticache.CfnUser] = {}
        if self._user_group is None:
            return RegistryUsers(self.wiring(), self.cluster.ref, arn, made)
        for user, roles in users.items():
            # With IAM the id is the name.
            name = f"{user_prefix(prefix)}-{short_hash(f'{prefix} {self._name}', 4)}-{user}"
            made[user] = elasticache.CfnUser(
                scope,
                f"User-{user}",
                engine=ENGINE,
                user_id=name,
                user_name=name,
                access_string=f"on {build_rights(roles, table_name)}",
                authentication_mode={"Type": "iam"},
            )
            follow_name(made[user], f"RedisUser{user}", name)
            # One after another: a group takes one change of its users at a time (`InvalidUserGroupState`).
            if self._users:
                made[user].add_resource_dependency(self._users[-1])
            self._users.append(made[user])
        self._user_group.user_ids = [user.ref for user in self._users]
        return RegistryUsers(self.wiring(), self.cluster.ref, arn, made)

    def _acknowledge_findings(self) -> None:
        if self._user_group:
            acknowledge(
                self.cluster,
                "AEC6",
                reason="Functions authenticate as users of a user group, with IAM: there is no shared token, which is"
                " all that the rule knows",
            )
        if not self.size.is_multi_az:
            acknowledge(
                self.cluster,
                "AEC4",
                reason="An environment without is_multi_az chose the smaller bill: a lost zone costs the registry,"
                " which is filled again from the journal, and no message",
            )

    def _make_user_group(self) -> elasticache.CfnUserGroup:
        name = f"{self._name}-users"
        group = elasticache.CfnUserGroup(self, "Users", engine=ENGINE, user_group_id=name, user_ids=[])
        follow_name(group, "RedisUsers", name)
        return group

    def _name_nodes(self) -> list[str]:
        """Name the nodes as ElastiCache does, for their metrics: group, shard from 0001, node from 001."""
        return [
            f"{self.cluster.ref}-{shard:04d}-{node:03d}"
            for shard in range(1, self.size.shard_count + 1)
            for node in range(1, self.size.replicas_per_shard + 2)
        ]

    def _parameters(self) -> elasticache.CfnParameterGroup:
        return elasticache.CfnParameterGroup(
            self,
            "Parameters",
            cache_parameter_group_family=PARAMETER_FAMILY,
            description="hotpartition: full is an error, never an eviction",
            properties={
                "cluster-enabled": "yes",
                # The default, volatile-lru, would spare routes as well, since they have no TTL;
                # this says so, and keeps saying so whatever else is stored some day.
                "maxmemory-policy": "noeviction",
            },
        )

    def _subnets(self, network: Network) -> elasticache.CfnSubnetGroup:
        return elasticache.CfnSubnetGroup(
            self,
            "Subnets",
            description="hotpartition: the isolated subnets",
            subnet_ids=[subnet.subnet_id for subnet in network.subnets],
        )
