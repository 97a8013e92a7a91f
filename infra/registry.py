"""The registry and report streams: ElastiCache for Valkey in cluster mode, and who may use it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import aws_cdk as cdk
from aws_cdk import aws_elasticache as elasticache
from aws_cdk import aws_iam as iam
from constructs import Construct

from hotpartition.redis.acl import Role, build_rights
from infra.acknowledgements import acknowledge
from infra.environments import ENGINE, ENGINE_VERSION, RegistrySize
from infra.network import REGISTRY_PORT, Network

_PARAMETER_FAMILY = "valkey9"
"""Not named in the pages of the ElastiCache guide we could read; as used by public templates that run 9.0.
`aws elasticache describe-cache-engine-versions --engine valkey` lists it."""

_CONNECT = "elasticache:Connect"


class Registry(Construct):
    """A Valkey cluster that only the functions reach, each as a user of its own.

    What it holds is a copy or a hint, never the truth, so losing all of it loses no message. It goes with its stack,
    also where data is retained: kept, it would hold on to subnets and groups that CloudFormation then cannot delete.

    Users authenticate with IAM: a function signs a token with its role's credentials, and there is no password. A
    user group of engine `valkey` needs no user named `default`, so whoever does not authenticate is nobody.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        network: Network,
        size: RegistrySize,
        table_name: str,
        key_arn: str | None,
    ) -> None:
        super().__init__(scope, id_)
        self._users = self._make_users(table_name) if size.is_authenticated else {}
        self._size = size
        self._group = elasticache.CfnReplicationGroup(
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
            user_group_ids=[self._user_group().ref] if self._users else None,
        )
        # The cluster's identity: another logical id is another, empty cluster.
        self._group.override_logical_id("Registry")
        self._group.apply_removal_policy(cdk.RemovalPolicy.DESTROY)
        # Without it CloudFormation replaces the cluster when the number of shards changes.
        self._group.cfn_options.update_policy = cdk.CfnUpdatePolicy(use_online_resharding=True)
        self._acknowledge_findings()
        self.host = self._group.attr_configuration_end_point_address
        self.port = self._group.attr_configuration_end_point_port
        self.node_ids = self._name_nodes()

    def wiring(self) -> dict[str, str]:
        """Build the settings that say where the registry is, by field name."""
        return {
            "registry_host": self.host,
            "registry_port": self.port,
            "registry_tls": str(self._size.is_encrypted_in_transit).lower(),
        }

    def wiring_of(self, role: Role) -> dict[str, str]:
        """Build the settings that say who a function is; none where nobody asks."""
        if role not in self._users:
            return {}
        return {
            "registry_authentication": "iam",
            "registry_user": self._users[role].user_name,
            "registry_cache_name": self._group.ref,
        }

    def grant_connect(self, grantee: iam.IGrantable, role: Role) -> None:
        """Allow connecting as the role's user, and as no other."""
        if role not in self._users:
            return
        iam.Grant.add_to_principal(
            grantee=grantee, actions=[_CONNECT], resource_arns=[self._arn(), self._users[role].attr_arn]
        )

    def _acknowledge_findings(self) -> None:
        if self._users:
            acknowledge(
                self._group,
                "AEC6",
                reason="Functions authenticate as users of a user group, with IAM: there is no shared token, which is"
                " all that the rule knows",
            )
        if not self._size.is_multi_az:
            acknowledge(
                self._group,
                "AEC4",
                reason="An environment without is_multi_az chose the smaller bill: a lost zone costs the registry,"
                " which is filled again from the journal, and no message",
            )

    def _arn(self) -> str:
        return cdk.Stack.of(self).format_arn(
            service="elasticache",
            resource="replicationgroup",
            resource_name=self._group.ref,
            arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
        )

    def _make_users(self, table_name: str) -> Mapping[Role, elasticache.CfnUser]:
        # With IAM the id is the name. Both are the account's and the region's, so they begin with the stack's.
        stack_name = cdk.Stack.of(self).stack_name
        users = {
            role: elasticache.CfnUser(
                self,
                f"User-{role}",
                engine=ENGINE,
                user_id=f"{stack_name}-{role}",
                user_name=f"{stack_name}-{role}",
                access_string=f"on {build_rights([role], table_name)}",
                authentication_mode={"Type": "iam"},
            )
            for role in Role
        }
        # One after another: a group takes one change of its users at a time (`InvalidUserGroupState`).
        for before, user in pairwise(users.values()):
            user.add_resource_dependency(before)
        return users

    def _user_group(self) -> elasticache.CfnUserGroup:
        return elasticache.CfnUserGroup(
            self,
            "Users",
            engine=ENGINE,
            user_group_id=cdk.Stack.of(self).stack_name,
            user_ids=[user.ref for user in self._users.values()],
        )

    def _name_nodes(self) -> list[str]:
        """Name the nodes as ElastiCache does, for their metrics: group, shard from 0001, node from 001."""
        return [
            f"{self._group.ref}-{shard:04d}-{node:03d}"
            for shard in range(1, self._size.shard_count + 1)
            for node in range(1, self._size.replicas_per_shard + 2)
        ]

    def _parameters(self) -> elasticache.CfnParameterGroup:
        return elasticache.CfnParameterGroup(
            self,
            "Parameters",
            cache_parameter_group_family=_PARAMETER_FAMILY,
            description="hotpartition: full is an error, never an eviction",
            properties={
                "cluster-enabled": "yes",
                # The default, volatile-lru, would spare our routes as well since they have no TTL;
                # this says so, and keeps saying so whatever else is stored some day.
                "maxmemory-policy": "noeviction",
            },
        )

    def _subnets(self, network: Network) -> elasticache.CfnSubnetGroup:
        return elasticache.CfnSubnetGroup(
            self,
            "Subnets",
            description="hotpartition: the isolated subnets",
            subnet_ids=network.vpc.select_subnets(subnet_type=network.subnets.subnet_type).subnet_ids,
        )
