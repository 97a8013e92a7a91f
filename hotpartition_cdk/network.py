"""Where functions and registry meet: a VPC without any way in from, or out to, the internet."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from hotpartition_cdk.configuration import SMALL, ZONES, NetworkOptions
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.logs import LogKeeping

REGISTRY_PORT = 6379

_HTTPS_PORT = 443


class Network(Construct):
    """The VPC in which functions reach the registry and DynamoDB, and two security groups.

    A new one has isolated subnets in two or more availability zones, and DynamoDB's gateway endpoint. Functions call
    two things in there, the registry and DynamoDB. A gateway endpoint costs nothing, where a NAT gateway would be the
    dearest part of an idle stack. Nothing else is called: tokens for the registry are signed without a request, and
    logs, metrics and traces leave through Lambda itself, outside the VPC.

    A given one is not changed: its owner must make DynamoDB reachable from its subnets.

    Example:
        >>> network = Network(stack, "Network", vpc=vpc)
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        log_keeping: LogKeeping | None = None,
        options: NetworkOptions = SMALL.network,
        vpc: ec2.IVpc | None = None,
        subnets: Sequence[ec2.ISubnet] | None = None,
    ) -> None:
        """Make the groups, and a VPC unless one is given, of which functions and registry take the private subnets.

        Raises:
            ConfigurationError: the given VPC has only public subnets, where no function runs.
        """
        super().__init__(scope, id_)
        self._dynamodb: ec2.GatewayVpcEndpoint | None = None
        self.vpc: ec2.IVpc = vpc or self._make_vpc(options)
        self.subnets = list(subnets or _find_private(self.vpc))
        self.function_security_group = self._security_group("Functions", "What the functions may reach")
        self.registry_security_group = self._security_group("RegistryNodes", "Who may reach the registry")
        if vpc is None:
            # The same logical id as the endpoints that the VPC makes by itself.
            self._dynamodb = self.vpc.add_gateway_endpoint(
                "DynamoDb", service=ec2.GatewayVpcEndpointAwsService.DYNAMODB
            )
        self._allow_traffic()
        if vpc is None:
            self._log_refused_traffic(log_keeping or LogKeeping())

    def _make_vpc(self, options: NetworkOptions) -> ec2.Vpc:
        return ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr("10.0.0.0/16"),
            availability_zones=list(options.availability_zones) or None,
            max_azs=None if options.availability_zones else ZONES,
            nat_gateways=0,
            create_internet_gateway=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="isolated",
                    subnet_type=ec2.SubnetType.PRIVATE_ISOLATED,
                    # Functions of one subnet and security group share their network interfaces: 250 addresses do.
                    cidr_mask=24,
                )
            ],
            # Emptying the default security group takes a function of CDK's own with rights on security groups.
            # Nothing here is in that group.
            restrict_default_security_group=False,
        )

    def allow_dynamodb(self, actions: Sequence[str], resource_arns: Sequence[str]) -> None:
        """Let these actions through the endpoint, for this account; an endpoint without a policy lets all through.

        That of a given VPC is its owner's.
        """
        if self._dynamodb is None:
            return
        self._dynamodb.add_to_policy(
            iam.PolicyStatement(
                # The callers' own roles limit their rights.
                principals=[iam.AnyPrincipal()],
                actions=list(actions),
                resources=list(resource_arns),
                conditions={"StringEquals": {"aws:PrincipalAccount": cdk.Aws.ACCOUNT_ID}},
            )
        )

    def _security_group(self, id_: str, description: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(self, id_, vpc=self.vpc, description=description, allow_all_outbound=False)

    def _allow_traffic(self) -> None:
        # Adds both halves: the functions' way out and the registry's way in.
        self.function_security_group.connections.allow_to(
            self.registry_security_group, ec2.Port.tcp(REGISTRY_PORT), "functions to registry"
        )
        # The endpoint's prefix list is only known by asking AWS. In subnets whose one route outwards is that endpoint,
        # "any address" is DynamoDB.
        self.function_security_group.add_egress_rule(
            ec2.Peer.any_ipv4(), ec2.Port.tcp(_HTTPS_PORT), "DynamoDB through the gateway endpoint"
        )

    def _log_refused_traffic(self, log_keeping: LogKeeping) -> None:
        """Log the packets that a security group refused: hardly any, unless something is wrong or an intruder tries."""
        self.vpc.add_flow_log(
            "RefusedTraffic",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(log_keeping.make_group(self, "RefusedTrafficLog")),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
        )


def _find_private(vpc: ec2.IVpc) -> list[ec2.ISubnet]:
    selected = vpc.select_subnets()
    if selected.has_public:
        raise ConfigurationError(
            f"{vpc.node.path} has public subnets only, in which no function reaches DynamoDB: give a VPC with private"
            " or isolated subnets, or none"
        )
    return list(selected.subnets)
