"""Where functions and registry meet: a VPC without any way in from, or out to, the internet."""

from __future__ import annotations

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

REGISTRY_PORT = 6379

_HTTPS_PORT = 443


class Network(Construct):
    """Isolated subnets in two availability zones, DynamoDB's gateway endpoint, and two security groups.

    A gateway endpoint costs nothing, where a NAT gateway would be the dearest part of an idle stack.
    """

    def __init__(self, scope: Construct, id_: str) -> None:
        super().__init__(scope, id_)
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr("10.0.0.0/16"),
            max_azs=2,
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
            gateway_endpoints={
                "DynamoDb": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.DYNAMODB)
            },
        )
        self.subnets = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
        self.function_security_group = self._security_group("Functions", "What the functions may reach")
        self.registry_security_group = self._security_group("RegistryNodes", "Who may reach the registry")
        self._allow_traffic()

    def _security_group(self, id_: str, description: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(self, id_, vpc=self.vpc, description=description, allow_all_outbound=False)

    def _allow_traffic(self) -> None:
        # Adds both halves: the functions' way out and the registry's way in.
        self.function_security_group.connections.allow_to(
            self.registry_security_group, ec2.Port.tcp(REGISTRY_PORT), "functions to registry"
        )
        # The endpoint's prefix list is only known by asking AWS. In subnets whose one route outwards is
        # that endpoint, "any address" is DynamoDB.
        self.function_security_group.add_egress_rule(
            ec2.Peer.any_ipv4(), ec2.Port.tcp(_HTTPS_PORT), "DynamoDB through the gateway endpoint"
        )
