from __future__ import annotations

import json
import platform
import re
import sys

import pytest

from hotpartition.redis.acl import Role
from hotpartition_messages.settings import MessageSettings
from infrastructure.template import FUNCTIONS, short_name
from support.tables import TABLE_SCHEMA

ROLES = {
    "write_message": Role.WRITER,
    "read_messages": Role.READER,
    "consume_reports": Role.CONSUMER,
    "operate": Role.OPERATOR,
}
COMMANDS = {
    "write_message": "sscan xadd",
    "read_messages": "getrange hget hpexpiretime hpttl hsetex sadd sscan xadd",
    "consume_reports": "exists getrange incr pexpire sadd set sscan xread zadd zscore",
    "operate": "exists getrange sadd scan set sscan xread zscore",
}
"""Written out, so that another command is allowed in two places."""

KEPT_IDS = {
    "ApiGatewayV2::Api": {"ApiHttpApi4C294DC0"},
    "DynamoDB::Table": {"Table"},
    "EC2::SecurityGroup": {"NetworkFunctions0F81B4F4", "NetworkRegistryNodesECE37F11"},
    "EC2::Subnet": {"NetworkVpcisolatedSubnet1Subnet188D06DD", "NetworkVpcisolatedSubnet2Subnet811E27B8"},
    "EC2::VPC": {"NetworkVpc7FB7348F"},
    "ElastiCache::ParameterGroup": {"ValkeyParameters76A20572"},
    "ElastiCache::ReplicationGroup": {"Registry"},
    "ElastiCache::SubnetGroup": {"ValkeySubnetsCD20AA30"},
    "ElastiCache::User": {
        "RedisUserconsumer5f3fe3a9",
        "RedisUseroperator22c1a096",
        "RedisUserreader5929ca24",
        "RedisUserwriter4fbfe109",
    },
    "ElastiCache::UserGroup": {"RedisUserse8535c57"},
    "Logs::LogGroup": {
        "AccessLogD598EBE9",
        "ConsumeReportsLogsEB998F40",
        "NetworkRefusedTrafficLogAA392462",
        "OperateLogs5F9C50A4",
        "ReadMessagesLogsBFB46D65",
        "WriteMessageLogs5BFAF20B",
    },
    "SNS::Topic": {"MonitoringTopic2EDA8B02"},
    "SQS::Queue": {"DetectionFailures85417064"},
}
"""What a moved construct would replace: with its data, or with the address that clients and people have."""
MESSAGES = "/conversations/{conversation_id}/messages"


class TestTable:
    def test_is_that_of_the_tests_with_recovery(self, template):
        """On demand, with the keys and the index that the adapters' tests create; restored to any second."""
        table = template.only("AWS::DynamoDB::Table")
        for index in (indexes := [dict(index) for index in table["GlobalSecondaryIndexes"]]):
            # What is watched has no part in how a table behaves.
            index.pop("ContributorInsightsSpecification", None)
        assert {name: table[name] for name in TABLE_SCHEMA} | {"GlobalSecondaryIndexes": indexes} == TABLE_SCHEMA
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}

    def test_forgets_what_has_expired(self, template):
        """By the attribute that readers look at, too."""
        specification = template.only("AWS::DynamoDB::Table")["TimeToLiveSpecification"]
        assert specification == {"AttributeName": "expires_at", "Enabled": True}
        assert "HOTPARTITION_RETENTION_DAYS" not in template.variables("write_message")

    def test_is_watched_and_protected_in_prod_only(self, prod, dev):
        """Elsewhere `hotpartition hot` names throttled keys, without a bill, and a stack leaves nothing behind."""
        for template, insights in ((prod, {"Enabled": True, "Mode": "THROTTLED_KEYS"}), (dev, None)):
            table = template.only("AWS::DynamoDB::Table")
            assert table["DeletionProtectionEnabled"] is (template is prod)
            for watched in (table, *table["GlobalSecondaryIndexes"]):
                assert watched.get("ContributorInsightsSpecification") == insights


class TestStatefulResources:
    def test_what_holds_something_stays_where_it_is(self, dev, prod):
        """Whatever the code is cut into: data, logs, network, queue and the API's address keep their logical ids."""
        for template in (dev, prod):
            # Ids of users hold the stack's name.
            expected = {type_: ids for type_, ids in KEPT_IDS.items() if template is prod or "User" not in type_}
            assert {type_: set(template.of_type(f"AWS::{type_}")) for type_ in expected} == expected

    def test_physical_names_of_users_are_pinned(self, dev, prod):
        """A user's id is its identity for IAM and for Redis; another one is another user."""
        for name, registry, template in (("dev", "0326", dev), ("prod", "b35a", prod)):
            assert {user["UserId"] for user in template.all("AWS::ElastiCache::User")} == {
                f"hotpartition-{name}-{registry}-{role}" for role in ("consumer", "operator", "reader", "writer")
            }
            assert template.only("AWS::ElastiCache::UserGroup")["UserGroupId"] == f"hotpartition-{name}-users"

    def test_nothing_else_is_stateful(self, template):
        """A store that is added needs its identity pinned here."""
        stores = ("AWS::S3", "AWS::RDS", "AWS::EFS", "AWS::Kinesis", "AWS::SecretsManager", "AWS::DynamoDB", "AWS::SSM")
        kept = [r["Type"] for r in template.body["Resources"].values() if r["Type"].startswith(stores)]
        assert kept == ["AWS::DynamoDB::Table"]

    @pytest.mark.parametrize(
        ("name", "id_", "expected"),
        [("prod", "Table", "Retain"), ("prod", "Registry", "Delete"), ("dev", "Table", "Delete")],
    )
    def test_outlive_the_stack_where_they_are_the_truth(self, request, name, id_, expected):
        """Production retains its table, but for a creation that fails; the registry is a copy, and would be left."""
        resource = request.getfixturevalue(name).body["Resources"][id_]
        deleted = "RetainExceptOnCreate" if expected == "Retain" else expected
        assert [resource[policy] for policy in ("DeletionPolicy", "UpdateReplacePolicy")] == [deleted, expected]


class TestRegistry:
    def test_is_an_encrypted_valkey_cluster_that_never_evicts(self, template):
        """A full one refuses writes, and drops no routes.

        After an upgrade by itself the next deployment would ask for a downgrade, which ElastiCache refuses.
        """
        registry = template.only("AWS::ElastiCache::ReplicationGroup")
        assert (registry["Engine"], registry["EngineVersion"], registry["ClusterMode"]) == ("valkey", "9.0", "enabled")
        assert (registry["AtRestEncryptionEnabled"], registry["AutomaticFailoverEnabled"]) == (True, True)
        assert registry["AutoMinorVersionUpgrade"] is False
        assert registry["CacheSubnetGroupName"]["Ref"] in template.of_type("AWS::ElastiCache::SubnetGroup")
        group = template.only("AWS::ElastiCache::ParameterGroup")
        assert group["Properties"] == {"cluster-enabled": "yes", "maxmemory-policy": "noeviction"}
        (id_,) = template.of_type("AWS::ElastiCache::ParameterGroup")
        assert registry["CacheParameterGroupName"] == {"Ref": id_}

    def test_is_durable_in_prod(self, prod, dev, local):
        """It acknowledges what is in the Multi-AZ log, and has a replica elsewhere.

        Without durability nothing is said of it: older engine versions and some regions do not know the property.
        """
        registry = prod.only("AWS::ElastiCache::ReplicationGroup")
        assert (registry["Durability"], registry["MultiAZEnabled"]) == ("sync", True)
        assert (registry["ReplicasPerNodeGroup"], registry["CacheNodeType"]) == (1, "cache.m7g.large")
        for template in (dev, local):
            assert "Durability" not in template.only("AWS::ElastiCache::ReplicationGroup")

    def test_speaks_tls_except_locally(self, dev, prod, local):
        """Functions and registry agree on TLS; only the local run goes without."""
        for template, is_tls in ((dev, True), (prod, True), (local, False)):
            registry = template.only("AWS::ElastiCache::ReplicationGroup")
            assert registry["TransitEncryptionEnabled"] is is_tls
            variables = {template.variables(folder)["HOTPARTITION_REGISTRY_TLS"] for folder in FUNCTIONS}
            assert variables == {str(is_tls).lower()}

    def test_knows_each_function_as_a_user_of_its_own(self, dev, prod):
        """Users authenticate with IAM and belong to the cluster's one group, which takes one change at a time."""
        for template in (dev, prod):
            (group_id,) = template.of_type("AWS::ElastiCache::UserGroup")
            users = template.of_type("AWS::ElastiCache::User")
            assert template.only("AWS::ElastiCache::ReplicationGroup")["UserGroupIds"] == [{"Ref": group_id}]
            assert template.only("AWS::ElastiCache::UserGroup")["UserIds"] == [{"Ref": id_} for id_ in users]
            for user in template.all("AWS::ElastiCache::User"):
                assert user["AuthenticationMode"] == {"Type": "iam"}
                assert user["UserId"] == user["UserName"] != "default"
                assert not {"Passwords", "NoPasswordRequired"} & user.keys()
            waits = [user.get("DependsOn", []) for user in users.values()]
            assert waits == [[], *([id_] for id_ in list(users)[:-1])]

    @pytest.mark.parametrize("folder", FUNCTIONS)
    def test_lets_a_user_do_what_its_function_does(self, dev, folder):
        """Each user is confined to the table's keys and its own commands; none may delete, flush or configure."""
        (user,) = [user for user in dev.all("AWS::ElastiCache::User") if user["UserId"].endswith(f"-{ROLES[folder]}")]
        rules = short_name(user["AccessString"]).split()
        assert rules[:4] == ["on", "~hp:${Table}:*", "resetchannels", "-@all"]
        assert set(rules[4:]) == {f"+{command}" for command in (*COMMANDS[folder].split(), "asking", "cluster|slots")}
        assert dev.variables(folder)["HOTPARTITION_REGISTRY_USER"] == user["UserId"]

    def test_has_no_users_locally(self, local):
        """The local run makes users of its own, where it makes any."""
        assert local.of_type("AWS::ElastiCache::User") == {}
        assert "HOTPARTITION_REGISTRY_AUTHENTICATION" not in local.variables("write_message")


class TestNetwork:
    @pytest.mark.parametrize(
        "type_", ["InternetGateway", "NatGateway", "EgressOnlyInternetGateway", "VPCGatewayAttachment", "EIP", "Route"]
    )
    def test_has_no_way_out(self, template, type_):
        """Nothing in the VPC reaches the internet or is reached from there."""
        assert template.of_type(f"AWS::EC2::{type_}") == {}

    def test_has_two_isolated_subnets(self, template):
        """Two availability zones, and no address is public; what a security group turns away leaves a line."""
        subnets = template.all("AWS::EC2::Subnet")
        assert [subnet["MapPublicIpOnLaunch"] for subnet in subnets] == [False, False]
        assert sorted(subnet["AvailabilityZone"]["Fn::Select"][0] for subnet in subnets) == [0, 1]
        log = template.only("AWS::EC2::FlowLog")
        assert (log["TrafficType"], log["LogDestinationType"]) == ("REJECT", "cloud-watch-logs")
        assert log["LogGroupName"]["Ref"] in template.of_type("AWS::Logs::LogGroup")

    def test_reaches_dynamodb_by_a_gateway(self, template):
        """The route tables of both subnets lead to DynamoDB's gateway endpoint, which lets five actions through."""
        endpoint = template.only("AWS::EC2::VPCEndpoint")
        assert endpoint["VpcEndpointType"] == "Gateway"
        assert endpoint["ServiceName"]["Fn::Join"][1][-1] == ".dynamodb"
        assert len(endpoint["RouteTableIds"]) == 2
        (statement,) = endpoint["PolicyDocument"]["Statement"]
        assert [short_name(resource) for resource in statement["Resource"]] == [
            "${Table.Arn}",
            "${Table.Arn}/index/routing-index",
        ]
        assert statement["Action"] == [
            f"dynamodb:{action}" for action in ("BatchGetItem", "GetItem", "PutItem", "Query", "UpdateItem")
        ]
        assert statement["Condition"] == {"StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}}

    def test_functions_reach_two_things(self, template):
        """The registry, and HTTPS, which in these subnets is DynamoDB. Nothing else reaches the registry."""
        (registry,) = template.only("AWS::ElastiCache::ReplicationGroup")["SecurityGroupIds"]
        of_functions = [template.function(folder)["VpcConfig"]["SecurityGroupIds"] for folder in FUNCTIONS]
        assert of_functions == [of_functions[0]] * len(FUNCTIONS)
        functions, registry = (group["Fn::GetAtt"][0] for group in (*of_functions[0], registry))
        groups = {id_: group["Properties"] for id_, group in template.of_type("AWS::EC2::SecurityGroup").items()}
        assert not any("SecurityGroupIngress" in group for group in groups.values())
        (https,), (nothing,) = (groups.pop(id_)["SecurityGroupEgress"] for id_ in (functions, registry))
        assert groups == {}
        assert (https["CidrIp"], https["FromPort"], https["ToPort"]) == ("0.0.0.0/0", 443, 443)
        assert (nothing["CidrIp"], nothing["IpProtocol"]) == ("255.255.255.255/32", "icmp")
        out, in_ = (template.only(f"AWS::EC2::SecurityGroup{way}") for way in ("Egress", "Ingress"))
        assert (out["GroupId"]["Fn::GetAtt"][0], in_["GroupId"]["Fn::GetAtt"][0]) == (functions, registry)
        assert in_["SourceSecurityGroupId"]["Fn::GetAtt"][0] == functions
        for rule in (out, in_):
            assert (rule["IpProtocol"], rule["FromPort"], rule["ToPort"]) == ("tcp", 6379, 6379)


class TestFunctions:
    @pytest.mark.parametrize("folder", FUNCTIONS)
    def test_environment_parses(self, template, folder):
        """What is synthesized is what the function's own settings class reads, without surplus variables."""
        variables = template.variables(folder)
        settings = MessageSettings.from_env(variables, FUNCTIONS[folder])
        assert settings.table_name == "hotpartition-table"
        assert (settings.registry_host, settings.registry_port) == ("registry.example", 6379)
        if folder == "consume_reports":
            (index,) = template.only("AWS::DynamoDB::Table")["GlobalSecondaryIndexes"]
            assert variables["HOTPARTITION_ROUTING_INDEX_NAME"] == index["IndexName"]
        assert settings.dynamodb_endpoint == "https://dynamodb.cn-north-1.amazonaws.com.cn"
        assert variables["POWERTOOLS_METRICS_NAMESPACE"].startswith("hotpartition-")
        prefixes = {name.split("_")[0] for name in variables}
        assert prefixes == {"HOTPARTITION", "POWERTOOLS"}

    @pytest.mark.parametrize("folder", FUNCTIONS)
    def test_have_their_layers(self, template, folder):
        """The library and its dependencies are layers, built for the function's own Python and processor."""
        function = template.function(folder)
        layers = template.of_type("AWS::Lambda::LayerVersion")
        serves_api = folder in {"write_message", "read_messages"}
        assert len(layers) == 3
        assert {layer["Ref"] for layer in function["Layers"]} == {
            name for name in layers if serves_api or not name.startswith("LayersMessages")
        }
        for layer in layers.values():
            assert layer["Properties"]["CompatibleRuntimes"] == [function["Runtime"]]
            assert layer["Properties"]["CompatibleArchitectures"] == function["Architectures"]

    @pytest.mark.parametrize("folder", FUNCTIONS)
    def test_are_observable_and_isolated(self, template, folder):
        """Each is traced, writes JSON to a log group of its own that forgets, and stands in both subnets."""
        function = template.function(folder)
        assert function["TracingConfig"] == {"Mode": "Active"}
        assert function["LoggingConfig"]["LogFormat"] == "JSON"
        log_group = template.body["Resources"][function["LoggingConfig"]["LogGroup"]["Ref"]]
        assert log_group["Type"] == "AWS::Logs::LogGroup"
        subnets = {subnet["Ref"] for subnet in function["VpcConfig"]["SubnetIds"]}
        assert subnets == set(template.of_type("AWS::EC2::Subnet"))

    def test_concurrency_is_reserved_for_the_consumer_of_prod_alone(self, dev, prod, local):
        """With room for runs that overlap; a new account, with a concurrency of 10, refuses any reservation."""
        for template, expected in ((prod, {"consume_reports": 4}), (dev, {}), (local, {})):
            reserved = {folder: template.function(folder).get("ReservedConcurrentExecutions") for folder in FUNCTIONS}
            assert {folder: number for folder, number in reserved.items() if number is not None} == expected

    def test_local_ones_run_on_this_machine(self, local):
        """The local run's functions take the interpreter and the processor that are there."""
        architecture = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64"}[platform.machine()]
        runtime = f"python3.{sys.version_info.minor}"
        functions = local.all("AWS::Lambda::Function")
        # They are the stack's own, and no others that the CDK brings along.
        assert len(functions) == len(FUNCTIONS)
        assert {(f["Runtime"], *f["Architectures"]) for f in functions} == {(runtime, architecture)}


class TestApi:
    def test_routes_need_signed_requests(self, template):
        """Every route is there once, is authorized by IAM, and leads to its function."""
        routes = {route["RouteKey"]: route for route in template.all("AWS::ApiGatewayV2::Route")}
        assert {key: self._folder(template, route) for key, route in routes.items()} == {
            f"POST {MESSAGES}": "write_message",
            f"GET {MESSAGES}": "read_messages",
            f"GET {MESSAGES}/{{message_id}}": "read_messages",
            f"PATCH {MESSAGES}/{{message_id}}": "write_message",
            f"DELETE {MESSAGES}/{{message_id}}": "write_message",
        }
        assert {route["AuthorizationType"] for route in routes.values()} == {"AWS_IAM"}

    def _folder(self, template, route):
        _, integration_id = route["Target"]["Fn::Join"][1]
        integration = template.body["Resources"][integration_id["Ref"]]["Properties"]
        assert integration["PayloadFormatVersion"] == "2.0"
        function_id = integration["IntegrationUri"]["Fn::GetAtt"][0]
        return next(folder for folder in FUNCTIONS if template.function_id(folder) == function_id)

    def test_stage_throttles_each_route_and_logs(self, template):
        """Every route has a rate and a burst, the stage's; the log names no conversation.

        API Gateway has one policy for all log groups of an account: names below `/aws/vendedlogs` share an entry of it.
        """
        stage = template.only("AWS::ApiGatewayV2::Stage")
        assert stage["StageName"] == "$default"
        limits = stage["DefaultRouteSettings"]
        assert limits["ThrottlingRateLimit"] > 0
        assert limits["ThrottlingBurstLimit"] > 0
        assert "$context.path" not in stage["AccessLogSettings"]["Format"]
        # A stage that names a route which a failed deployment took away cannot be rolled back.
        assert "RouteSettings" not in stage
        group = template.body["Resources"][stage["AccessLogSettings"]["DestinationArn"]["Fn::GetAtt"][0]]
        separator, (folder, part) = group["Properties"]["LogGroupName"]["Fn::Join"]
        name = template.only("AWS::CloudWatch::Dashboard")["DashboardName"]
        assert (separator, folder) == ("", f"/aws/vendedlogs/{name}/access-")
        # Another stack of this name has another group.
        assert '{"Ref": "AWS::StackId"}' in json.dumps(part)

    def test_admits_no_page_of_another_origin(self, template):
        """Without an option, browsers keep foreign pages out."""
        assert "CorsConfiguration" not in template.only("AWS::ApiGatewayV2::Api")


class TestDetection:
    def test_starts_the_consumer_each_minute(self, template):
        """Neither the schedule nor Lambda tries a run twice; one that fails leaves its event in the queue."""
        schedule = template.only("AWS::Scheduler::Schedule")
        (queue,) = template.of_type("AWS::SQS::Queue")
        assert (schedule["ScheduleExpression"], schedule["State"]) == ("rate(1 minute)", "ENABLED")
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
        target = schedule["Target"]
        assert target["Arn"] == {"Fn::GetAtt": [template.function_id("consume_reports"), "Arn"]}
        assert "Input" not in target  # the Scheduler's own event: all streams are its share
        assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
        assert target["DeadLetterConfig"] == {"Arn": {"Fn::GetAtt": [queue, "Arn"]}}

        config = template.only("AWS::Lambda::EventInvokeConfig")
        assert config["FunctionName"] == {"Ref": template.function_id("consume_reports")}
        assert (config["MaximumRetryAttempts"], config["MaximumEventAgeInSeconds"]) == (0, 60)
        assert config["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": [queue, "Arn"]}


def test_log_groups_forget(templates):
    """Every log group has the environment's retention, and production keeps its logs when the stack goes."""
    expected = {"dev": {(7, "Delete")}, "prod": {(90, "RetainExceptOnCreate")}, "local": {(7, "Delete")}}
    actual = {
        name: {
            (group["Properties"]["RetentionInDays"], group["DeletionPolicy"])
            for group in templates[name].of_type("AWS::Logs::LogGroup").values()
        }
        for name in expected
    }
    assert expected == actual


def test_outputs(template):
    """The outputs name what one needs to use the stack."""
    assert set(template.body["Outputs"]) == {
        "OperateFunctionName",
        "ApiUrl",
        "TableName",
        "RegistryEndpoint",
        "WriteMessageFunctionName",
        "ReadMessagesFunctionName",
        "ConsumeReportsFunctionName",
    }


def test_local_differs_only_where_it_must(dev, local):
    """Environment local has the resources of dev under the same logical ids, except for the registry's users."""
    # Ids of security group rules hold the stack's name, and with it the environment's.
    ids, others = (
        [
            id_
            for id_, resource in template.body["Resources"].items()
            if not resource["Type"].startswith(("AWS::EC2::SecurityGroup", "AWS::ElastiCache::User"))
        ]
        for template in (dev, local)
    )
    # Layers hold what their own interpreter needs, and an id of theirs follows their content.
    assert [id_ for id_ in ids if not id_.startswith("Layers")] == [
        id_ for id_ in others if not id_.startswith("Layers")
    ]


def test_the_page_of_costs_names_every_type_of_resource(dev, prod, lite, root):
    """With what of it costs, or as free."""
    section = (root / "docs/costs.md").read_text().split("## Every resource of the template")[1]
    made = {resource["Type"] for template in (dev, prod, lite) for resource in template.body["Resources"].values()}
    assert sorted(re.findall(r"`(AWS::\w+::\w+)`", section)) == sorted(made)
