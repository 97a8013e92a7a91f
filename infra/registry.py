"""The registry and report streams: ElastiCache for Valkey in cluster mode."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_elasticache as elasticache
from constructs import Construct

from infra.environments import RegistrySize
from infra.network import REGISTRY_PORT, Network

_ENGINE_VERSION = "9.0"
"""The first version that can be durable; ElastiCache takes no patch level here."""

_PARAMETER_FAMILY = "valkey9"
"""Not named in the pages of the ElastiCache guide we could read; as used by public templates that run 9.0.
`aws elasticache describe-cache-engine-versions --engine valkey` lists it."""


class Registry(Construct):
    """A Valkey cluster that only the functions reach.

    What it holds is a copy or a hint, never the truth, so losing all of it loses no message. Where data is retained
    it is retained as well: an empty registry makes every writer use the base key until the routes are back.
    """

    def __init__(
        self, scope: Construct, id_: str, *, network: Network, size: RegistrySize, removal_policy: cdk.RemovalPolicy
    ) -> None:
        super().__init__(scope, id_)
        group = elasticache.CfnReplicationGroup(
            self,
            "ReplicationGroup",
            replication_group_description="hotpartition: routes of hot conversations, and load reports",
            engine="valkey",
            engine_version=_ENGINE_VERSION,
            auto_minor_version_upgrade=True,
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
            durability="sync" if size.is_durable else "disabled",
            at_rest_encryption_enabled=True,
            transit_encryption_enabled=size.is_encrypted_in_transit,
        )
        # The cluster's identity: another logical id is another, empty cluster.
        group.override_logical_id("Registry")
        group.apply_removal_policy(removal_policy)
        # Without it CloudFormation replaces the cluster when the number of shards changes.
        group.cfn_options.update_policy = cdk.CfnUpdatePolicy(use_online_resharding=True)
        self.host = group.attr_configuration_end_point_address
        self.port = group.attr_configuration_end_point_port
        self.is_encrypted_in_transit = size.is_encrypted_in_transit

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
