from __future__ import annotations

import platform
import sys

import pytest

from infrastructure.templates import FUNCTIONS

LOGS_AND_NETWORK = {
    "*": [
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:UnassignPrivateIpAddresses",
        "xray:PutTelemetryRecords",
        "xray:PutTraceSegments",
    ]
}
STATEFUL_IDS = {"Table": "AWS::DynamoDB::Table", "Registry": "AWS::ElastiCache::ReplicationGroup"}


class TestTable:
    def test_is_on_demand_with_recovery(self, template):
        """Every environment's table is on demand, can be restored to any second, and names throttled keys."""
        table = template.only("AWS::DynamoDB::Table")
        assert table["BillingMode"] == "PAY_PER_REQUEST"
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert table["ContributorInsightsSpecification"] == {"Enabled": True, "Mode": "THROTTLED_KEYS"}

    def test_schema(self, template):
        """The keys are `pk` and `sk`; the index takes its own two attributes, which only routing items carry."""
        table = template.only("AWS::DynamoDB::Table")
        assert table["KeySchema"] == [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ]
        assert table["GlobalSecondaryIndexes"] == [
            {
                "IndexName": "routing-index",
                "KeySchema": [
                    {"AttributeName": "routing_partition", "KeyType": "HASH"},
                    {"AttributeName": "updated_at", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ]
        assert {a["AttributeType"] for a in table["AttributeDefinitions"]} == {"S"}

    def test_is_protected_in_prod_only(self, prod, dev):
        """Production's table cannot be deleted by mistake; a development stack leaves nothing behind."""
        assert prod.only("AWS::DynamoDB::Table")["DeletionProtectionEnabled"] is True
        assert dev.only("AWS::DynamoDB::Table")["DeletionProtectionEnabled"] is False


class TestStatefulResources:
    def test_logical_ids_are_pinned(self, template):
        """Another logical id would be another, empty table or cluster: these never change."""
        resources = template.body["Resources"]
        assert {id_: resources[id_]["Type"] for id_ in STATEFUL_IDS} == STATEFUL_IDS

    @pytest.mark.parametrize("id_", STATEFUL_IDS)
    def test_outlive_the_stack_in_prod_only(self, prod, dev, id_):
        """Production retains table and registry when the stack is deleted or they are replaced."""
        policies = ("DeletionPolicy", "UpdateReplacePolicy")
        assert [prod.body["Resources"][id_][policy] for policy in policies] == ["Retain", "Retain"]
        assert [dev.body["Resources"][id_][policy] for policy in policies] == ["Delete", "Delete"]


class TestRegistry:
    def test_is_an_encrypted_valkey_cluster(self, template):
        """The registry is a Valkey cluster, encrypted at rest, in the subnets of its group."""
        registry = template.only("AWS::ElastiCache::ReplicationGroup")
        assert (registry["Engine"], registry["ClusterMode"]) == ("valkey", "enabled")
        assert registry["AtRestEncryptionEnabled"] is True
        assert registry["AutomaticFailoverEnabled"] is True
        assert registry["CacheSubnetGroupName"]["Ref"] in template.of_type("AWS::ElastiCache::SubnetGroup")

    def test_never_evicts(self, template):
        """A full registry refuses writes; it does not drop routes."""
        group = template.only("AWS::ElastiCache::ParameterGroup")
        assert group["Properties"] == {"cluster-enabled": "yes", "maxmemory-policy": "noeviction"}
        (id_,) = template.of_type("AWS::ElastiCache::ParameterGroup")
        assert template.only("AWS::ElastiCache::ReplicationGroup")["CacheParameterGroupName"] == {"Ref": id_}

    def test_is_durable_in_prod(self, prod):
        """Production acknowledges what is in the Multi-AZ log, and has a replica of every shard elsewhere."""
        registry = prod.only("AWS::ElastiCache::ReplicationGroup")
        assert registry["Durability"] == "sync"
        assert registry["EngineVersion"] == "9.0"
        assert registry["MultiAZEnabled"] is True
        assert registry["ReplicasPerNodeGroup"] >= 1
        assert registry["CacheNodeType"].split(".")[1] == "m7g"

    def test_is_the_smallest_in_dev(self, dev):
        """Development pays for one small node."""
        registry = dev.only("AWS::ElastiCache::ReplicationGroup")
        assert registry["CacheNodeType"] == "cache.t4g.micro"
        assert (registry["NumNodeGroups"], registry["ReplicasPerNodeGroup"]) == (1, 0)
        assert registry["Durability"] == "disabled"

    def test_speaks_tls_except_locally(self, dev, prod, local):
        """Functions and registry agree on TLS; only the local run goes without."""
        for template, is_tls in ((dev, True), (prod, True), (local, False)):
            registry = template.only("AWS::ElastiCache::ReplicationGroup")
            assert registry["TransitEncryptionEnabled"] is is_tls
            variables = [template.variables(folder)["HOTPARTITION_REGISTRY_TLS"] for folder in FUNCTIONS]
            assert variables == [str(is_tls).lower()] * 3


class TestNetwork:
    @pytest.mark.parametrize(
        "type_", ["InternetGateway", "NatGateway", "EgressOnlyInternetGateway", "VPCGatewayAttachment", "EIP", "Route"]
    )
    def test_has_no_way_out(self, template, type_):
        """Nothing in the VPC reaches the internet or is reached from there."""
        assert template.of_type(f"AWS::EC2::{type_}") == {}

    def test_has_two_isolated_subnets(self, template):
        """Two availability zones, and no address is public."""
        subnets = list(template.of_type("AWS::EC2::Subnet").values())
        assert [s["Properties"]["MapPublicIpOnLaunch"] for s in subnets] == [False, False]
        zones = [s["Properties"]["AvailabilityZone"]["Fn::Select"][0] for s in subnets]
        assert sorted(zones) == [0, 1]

    def test_reaches_dynamodb_by_a_gateway(self, template):
        """The route tables of both subnets lead to DynamoDB's gateway endpoint."""
        endpoint = template.only("AWS::EC2::VPCEndpoint")
        assert endpoint["VpcEndpointType"] == "Gateway"
        assert endpoint["ServiceName"]["Fn::Join"][1][-1] == ".dynamodb"
        assert len(endpoint["RouteTableIds"]) == 2

    def test_only_functions_reach_the_registry(self, template):
        """The registry admits the functions' security group on its port, and nothing else."""
        (group,) = template.only("AWS::ElastiCache::ReplicationGroup")["SecurityGroupIds"]
        ingress = template.only("AWS::EC2::SecurityGroupIngress")
        assert ingress["GroupId"] == group
        assert (ingress["IpProtocol"], ingress["FromPort"], ingress["ToPort"]) == ("tcp", 6379, 6379)
        for folder in FUNCTIONS:
            groups = template.function(folder)["VpcConfig"]["SecurityGroupIds"]
            assert groups == [ingress["SourceSecurityGroupId"]]
        for resource in template.of_type("AWS::EC2::SecurityGroup").values():
            assert "SecurityGroupIngress" not in resource["Properties"]


class TestFunctions:
    def test_are_three(self, template):
        """The stack holds our functions and none that the CDK brings along."""
        functions = template.of_type("AWS::Lambda::Function")
        assert {template.function_id(folder) for folder in FUNCTIONS} == set(functions)

    @pytest.mark.parametrize("folder", FUNCTIONS)
    def test_environment_parses(self, template, folder):
        """What is synthesized is what the function's own settings class reads, without surplus variables."""
        variables = template.variables(folder)
        settings = FUNCTIONS[folder].from_env(variables)
        assert settings.table_name == "hotpartition-table"
        assert (settings.registry_host, settings.registry_port) == ("registry.example", 6379)
        assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "hotpartition"
        prefixes = {name.split("_")[0] for name in variables}
        assert prefixes == {"HOTPARTITION", "POWERTOOLS"}

    def test_consumer_knows_the_index(self, template):
        """The consumer is told the name of the index that the table has."""
        (index,) = template.only("AWS::DynamoDB::Table")["GlobalSecondaryIndexes"]
        assert template.variables("consume_reports")["HOTPARTITION_ROUTING_INDEX_NAME"] == index["IndexName"]

    @pytest.mark.parametrize("folder", FUNCTIONS)
    def test_have_both_layers(self, template, folder):
        """Routing code and dependencies are layers, built for the function's own Python and processor."""
        function = template.function(folder)
        layers = template.of_type("AWS::Lambda::LayerVersion")
        assert {layer["Ref"] for layer in function["Layers"]} == set(layers)
        assert len(layers) == 2
        for layer in layers.values():
            assert layer["Properties"]["CompatibleRuntimes"] == [function["Runtime"]]
            assert layer["Properties"]["CompatibleArchitectures"] == function["Architectures"]

    @pytest.mark.parametrize("folder", FUNCTIONS)
    def test_are_observable(self, template, folder):
        """Each function is traced and writes to a log group of its own that forgets."""
        function = template.function(folder)
        assert function["TracingConfig"] == {"Mode": "Active"}
        log_group = template.body["Resources"][function["LoggingConfig"]["LogGroup"]["Ref"]]
        assert log_group["Type"] == "AWS::Logs::LogGroup"

    @pytest.mark.parametrize("folder", FUNCTIONS)
    def test_run_in_the_isolated_subnets(self, template, folder):
        """Each function stands in both subnets."""
        subnets = template.function(folder)["VpcConfig"]["SubnetIds"]
        assert {subnet["Ref"] for subnet in subnets} == set(template.of_type("AWS::EC2::Subnet"))

    def test_timeouts(self, template):
        """Request functions end before the API gives up (30 s); the consumer outlives its own hard stop (170 s)."""
        timeouts = {folder: template.function(folder)["Timeout"] for folder in FUNCTIONS}
        assert timeouts == {"write_message": 10, "read_messages": 15, "consume_reports": 180}

    def test_consumer_may_overlap(self, template):
        """Only the consumer's concurrency is reserved, with room for runs that overlap."""
        reserved = {f: template.function(f).get("ReservedConcurrentExecutions") for f in FUNCTIONS}
        assert reserved == {"write_message": None, "read_messages": None, "consume_reports": 4}

    def test_deployed_ones_run_on_arm(self, dev, prod):
        """Deployed functions run Python 3.13 on arm64."""
        for template in (dev, prod):
            functions = [template.function(folder) for folder in FUNCTIONS]
            assert {(f["Runtime"], *f["Architectures"]) for f in functions} == {("python3.13", "arm64")}

    def test_local_ones_run_on_this_machine(self, local):
        """The local run's functions take the interpreter and the processor that are there."""
        architecture = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64"}[platform.machine()]
        runtime = f"python3.{sys.version_info.minor}"
        functions = [local.function(folder) for folder in FUNCTIONS]
        assert {(f["Runtime"], *f["Architectures"]) for f in functions} == {(runtime, architecture)}


class TestRights:
    def _own_logs(self, template, folder):
        id_ = template.function(folder)["LoggingConfig"]["LogGroup"]["Ref"]
        return {id_: ["logs:CreateLogStream", "logs:PutLogEvents"]}

    def test_of_the_writer(self, template):
        """The writer puts messages and reads routes; it cannot query, change or delete an item."""
        assert template.allowed("write_message") == {
            **LOGS_AND_NETWORK,
            **self._own_logs(template, "write_message"),
            "Table": ["dynamodb:GetItem", "dynamodb:PutItem"],
        }

    def test_of_the_reader(self, template):
        """The reader reads, and adds generations to the journal; it cannot put or delete."""
        assert template.allowed("read_messages") == {
            **LOGS_AND_NETWORK,
            **self._own_logs(template, "read_messages"),
            "Table": ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem"],
        }

    def test_of_the_consumer(self, template):
        """The consumer reads and raises routes, lists them by the index, and its failures reach the queue."""
        (queue,) = template.of_type("AWS::SQS::Queue")
        assert template.allowed("consume_reports") == {
            **LOGS_AND_NETWORK,
            **self._own_logs(template, "consume_reports"),
            "Table": ["dynamodb:GetItem", "dynamodb:UpdateItem"],
            "Table/index/routing-index": ["dynamodb:Query"],
            queue: ["sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"],
        }


class TestApi:
    def test_routes_need_signed_requests(self, template):
        """Every route is there once, is authorized by IAM, and leads to its function."""
        routes = {
            r["Properties"]["RouteKey"]: r["Properties"] for r in template.of_type("AWS::ApiGatewayV2::Route").values()
        }
        messages = "/conversations/{conversation_id}/messages"
        assert {key: self._folder(template, route) for key, route in routes.items()} == {
            f"POST {messages}": "write_message",
            f"GET {messages}": "read_messages",
            f"GET {messages}/{{message_id}}": "read_messages",
        }
        assert {route["AuthorizationType"] for route in routes.values()} == {"AWS_IAM"}

    def _folder(self, template, route):
        _, (_, integration_id) = route["Target"]["Fn::Join"][1][0], route["Target"]["Fn::Join"][1]
        integration = template.body["Resources"][integration_id["Ref"]]["Properties"]
        assert integration["PayloadFormatVersion"] == "2.0"
        function_id = integration["IntegrationUri"]["Fn::GetAtt"][0]
        return next(folder for folder in FUNCTIONS if template.function_id(folder) == function_id)

    def test_stage_throttles_and_logs(self, template):
        """The default stage has a rate, a burst and an access log, which names no conversation."""
        stage = template.only("AWS::ApiGatewayV2::Stage")
        assert stage["StageName"] == "$default"
        assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] > 0
        assert stage["DefaultRouteSettings"]["ThrottlingBurstLimit"] > 0
        destination = stage["AccessLogSettings"]["DestinationArn"]["Fn::GetAtt"][0]
        assert destination in template.of_type("AWS::Logs::LogGroup")
        assert "$context.path" not in stage["AccessLogSettings"]["Format"]


class TestDetection:
    def test_starts_the_consumer_each_minute(self, template):
        """The schedule invokes the consumer every minute and never tries twice."""
        schedule = template.only("AWS::Scheduler::Schedule")
        (queue,) = template.of_type("AWS::SQS::Queue")
        assert (schedule["ScheduleExpression"], schedule["State"]) == ("rate(1 minute)", "ENABLED")
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
        target = schedule["Target"]
        assert target["Arn"] == {"Fn::GetAtt": [template.function_id("consume_reports"), "Arn"]}
        assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
        assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}

    def test_failed_runs_are_kept(self, template):
        """A run that fails is not repeated by Lambda either; its event goes to the queue."""
        config = template.only("AWS::Lambda::EventInvokeConfig")
        (queue,) = template.of_type("AWS::SQS::Queue")
        assert config["FunctionName"] == {"Ref": template.function_id("consume_reports")}
        assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (0, 60)
        assert config["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": [queue, "Arn"]}

    def test_queue_is_encrypted(self, template):
        """The queue is encrypted at rest and in transit."""
        assert template.only("AWS::SQS::Queue")["SqsManagedSseEnabled"] is True
        (statement,) = template.only("AWS::SQS::QueuePolicy")["PolicyDocument"]["Statement"]
        assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_log_groups_forget(templates):
    """Every log group has the environment's retention, and production keeps its logs when the stack goes."""
    expected = {"dev": {(7, "Delete")}, "prod": {(90, "Retain")}, "local": {(7, "Delete")}}
    actual = {
        name: {
            (group["Properties"]["RetentionInDays"], group["DeletionPolicy"])
            for group in template.of_type("AWS::Logs::LogGroup").values()
        }
        for name, template in templates.items()
    }
    assert expected == actual


def test_outputs(template):
    """The outputs name what one needs to use the stack."""
    assert set(template.body["Outputs"]) == {
        "ApiUrl",
        "TableName",
        "RegistryEndpoint",
        "WriteMessageFunctionName",
        "ReadMessagesFunctionName",
        "ConsumeReportsFunctionName",
    }


def test_local_differs_only_where_it_must(dev, local):
    """Environment local has the resources of dev under the same logical ids."""
    pairs = zip(dev.body["Resources"].items(), local.body["Resources"].items(), strict=True)
    # Ids of security group rules hold the stack's name, and with it the environment's.
    assert [
        (mine, yours)
        for (mine, resource), (yours, _) in pairs
        if mine != yours and not resource["Type"].startswith("AWS::EC2::SecurityGroup")
    ] == []
