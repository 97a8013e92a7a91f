"""`HotPartition` beside a table of anybody's: what an app of five lines gets, and what it is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from hotpartition.redis.acl import Role, build_rights
from hotpartition.runtime.settings import Settings
from infra.bundle import ROOT
from infrastructure.apps import (
    App,
    cdk,
    constructs,
    dynamodb,
    ec2,
    ecr,
    imported_table,
    kms,
    lambda_,
    make_function,
)
from infrastructure.template import Statement, short_name

WRITES = ("BatchWriteItem", "ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem")
READS = ("BatchGetItem", "DescribeTable", "GetItem", "Query", "Scan")


def function_of(template, handler):
    """The one function with a handler: its logical id and properties."""
    (found,) = [
        (id_, resource["Properties"])
        for id_, resource in template.of_type("AWS::Lambda::Function").items()
        if resource["Properties"].get("Handler") == handler
    ]
    return found


def environment_of(template, properties):
    known = {short_name({"Ref": id_}): id_.lower() for id_ in template.body["Resources"]}
    values = {name: short_name(value) for name, value in properties["Environment"]["Variables"].items()}
    return {name: "6379" if name.endswith("_PORT") else known.get(value, value) for name, value in values.items()}


class TestFiveLines:
    def test_make_all_that_is_promised(self, five):
        """Registry, consumer with its schedule, operations function, layers, alarms and dashboard."""
        counts = {
            "AWS::ElastiCache::ReplicationGroup": 1,
            "AWS::ElastiCache::UserGroup": 1,
            "AWS::EC2::VPC": 1,
            "AWS::Scheduler::Schedule": 1,
            "AWS::Lambda::Function": 3,
            "AWS::Lambda::LayerVersion": 4,
            "AWS::CloudWatch::Dashboard": 1,
            "AWS::SNS::Topic": 1,
        }
        assert {type_: len(five.of_type(type_)) for type_ in counts} == counts
        schedule, consumer = five.only("AWS::Scheduler::Schedule"), five.function_id("consume_reports")
        assert schedule["Target"]["Arn"] == {"Fn::GetAtt": [consumer, "Arn"]}

    def test_change_nothing_of_the_table(self, five):
        """It is imported; the one table that is made is the journal, which outlives the stack as the given one does."""
        (journal,) = five.of_type("AWS::DynamoDB::Table").values()
        assert [key["AttributeName"] for key in journal["Properties"]["KeySchema"]] == ["pk"]
        assert journal["DeletionPolicy"] == "RetainExceptOnCreate"
        assert journal["Properties"]["TableName"] == "hp-routes-readings"
        assert "GlobalSecondaryIndexes" not in journal["Properties"]

    def test_let_the_function_do_what_it_needs_and_no_more(self, five):
        """The table's items, the routes by key, its own user in Redis; no index, no other table."""
        (journal,) = five.of_type("AWS::DynamoDB::Table")
        (registry,) = five.of_type("AWS::ElastiCache::ReplicationGroup")
        (user,) = [id_ for id_ in five.of_type("AWS::ElastiCache::User") if "table" in id_]
        statements = [s for s in rights_of(five, "ingest.handler") if not s.action.startswith("ec2:")]
        given = arn_of("dynamodb", "table/readings")
        assert set(statements) == {
            *(Statement(f"dynamodb:{name}", given) for name in (*READS, *WRITES)),
            *(Statement(f"dynamodb:{name}", f"${{{journal}.Arn}}") for name in ("BatchGetItem", "GetItem")),
            Statement("elasticache:Connect", f"${{{user}.Arn}}"),
            Statement("elasticache:Connect", arn_of("elasticache", f"replicationgroup:${{{registry}}}")),
        }

    def test_give_each_user_of_redis_the_tables_own_keys(self, five):
        """The function may do what writers and readers do, the others what their names say."""
        rights = {
            user["UserName"].rpartition("-")[2]: user["AccessString"] for user in five.all("AWS::ElastiCache::User")
        }
        roles = {
            "table": (Role.WRITER, Role.READER),
            "reader": (Role.READER,),
            "consumer": (Role.CONSUMER,),
            "operator": (Role.OPERATOR,),
        }
        assert rights == {name: f"on {build_rights(of, 'readings')}" for name, of in roles.items()}

    def test_set_the_environment_that_adaptive_reads(self, five):
        """Every function reads its settings from what it is given, and all mean the same table, journal and keys."""
        _, properties = function_of(five, "ingest.handler")
        ours = Settings.from_env(environment_of(five, properties), "adaptive()")
        consumer = Settings.from_env(environment_of(five, five.function("consume_reports")), "consumer")
        operate = Settings.from_env(environment_of(five, five.function("operate")), "operate")
        for settings in (ours, consumer, operate):
            assert settings.table_name == "readings"
            assert settings.journal_table_name == ours.journal_table_name != ""
            assert (settings.registry_host, settings.registry_authentication) == (
                ours.registry_host,
                "iam",
            )
        for settings in (consumer, operate):
            assert (settings.key_separator, settings.has_positions) == ("#_", False)
        assert len({settings.registry_user for settings in (ours, consumer, operate)}) == 3

    def test_let_one_table_and_its_journal_through_the_endpoint(self, five):
        """And what `ShardedTable` does with them; the function joined this VPC, and reaches no other table."""
        (statement,) = five.only("AWS::EC2::VPCEndpoint")["PolicyDocument"]["Statement"]
        (journal,) = five.of_type("AWS::DynamoDB::Table")
        given = arn_of("dynamodb", "table/readings")
        assert [short_name(resource) for resource in statement["Resource"]] == [given, f"${{{journal}.Arn}}"]
        assert statement["Action"] == [f"dynamodb:{name}" for name in sorted((*READS, *WRITES))]

    def test_put_the_function_where_the_registry_is(self, five):
        """It was in no VPC; its role may join one, which the function waits for."""
        id_, properties = function_of(five, "ingest.handler")
        consumer = five.function("consume_reports")
        assert properties["VpcConfig"] == consumer["VpcConfig"]
        waits = five.body["Resources"][id_]["DependsOn"]
        assert any("JoinVpc" in name for name in waits)

    def test_attach_layers_without_boto3(self, five):
        """The library and redis-py; a pruned boto3 would come before that of Lambda's runtime."""
        _, properties = function_of(five, "ingest.handler")
        resources = five.body["Resources"]

        def layers(function):
            return [resources[layer["Ref"]]["Properties"] for layer in function["Layers"]]

        (library, packages), (our_library, our_packages) = layers(properties), layers(five.function("consume_reports"))
        assert [layer["CompatibleRuntimes"] for layer in (library, packages)] == [["python3.13"]] * 2
        # Python and processor are the same, so what differs is what the layers hold.
        assert library["Content"] == our_library["Content"]
        assert packages["Content"] != our_packages["Content"]

    def test_watch_the_table_and_the_journal(self, five):
        """Alarms and dashboard begin with the construct's name; nothing speaks of an index or an API."""
        names = set(five.alarms())
        assert {"TableWritesThrottled", "JournalThrottled", "ConsumerMissing", "FunctionErrors"} <= names
        assert not {"IndexThrottled", "ApiFailing", "RegistryAhead"} & names
        name = five.only("AWS::CloudWatch::Dashboard")["DashboardName"]
        namespace = five.function("operate")["Environment"]["Variables"]["POWERTOOLS_METRICS_NAMESPACE"]
        assert name == namespace
        assert name.startswith("sensors-hot-")


class TestInBand:
    def test_makes_nothing_but_rights_and_the_journal_that_was_asked_for(self, in_band):
        """No VPC, no node, no schedule, no layer, no function, no alarm."""
        types = {resource["Type"] for resource in in_band.body["Resources"].values()}
        assert types == {"AWS::DynamoDB::Table", "AWS::IAM::Policy", "AWS::IAM::Role", "AWS::Lambda::Function"}
        assert len(in_band.of_type("AWS::DynamoDB::Table")) == 1
        functions = in_band.all("AWS::Lambda::Function")
        assert len(functions) == 4
        assert not any({"Layers", "VpcConfig"} & function.keys() for function in functions)

    def test_a_writer_may_raise_and_count_and_no_more(self, in_band):
        """In the journal's table: routing items by their attributes, load items by their keys. It lists nothing."""
        (journal,) = in_band.of_type("AWS::DynamoDB::Table")
        routes = f"${{{journal}.Arn}}"
        given = arn_of("dynamodb", "table/events")
        attributes = ["pk", "generations", "raises", "reason", "routing_partition", "updated_at"]
        routing_items = {
            "ForAllValues:StringEquals": {"dynamodb:Attributes": attributes},
            "Null": {"dynamodb:Attributes": "false"},
        }
        load_items = {
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["hotpartition#load#*"]},
            "Null": {"dynamodb:LeadingKeys": "false"},
        }
        assert set(rights_of(in_band, "collect.handler")) == {
            *(Statement(f"dynamodb:{name}", given) for name in (*READS, *WRITES)),
            *(Statement(f"dynamodb:{name}", routes) for name in ("BatchGetItem", "GetItem")),
            Statement("dynamodb:UpdateItem", routes, json.dumps(routing_items)),
            Statement("dynamodb:UpdateItem", routes, json.dumps(load_items)),
        }

    @pytest.mark.parametrize("handler", ["ingest.handler", "show.handler", "collect.handler", "look.handler"])
    def test_set_the_environment_that_in_band_reads(self, in_band, handler):
        """The table, where its routes lie, and what was overridden. Readers write nothing, wherever the routes lie."""
        environment = environment_of(in_band, function_of(in_band, handler)[1])
        settings = Settings.from_env(environment, "in_band()")
        assert set(environment) <= {f"HOTPARTITION_{name.upper()}" for name in Settings.declared("in_band()")}
        table, journal = settings.table_name, settings.journal_table_name
        if handler in {"ingest.handler", "show.handler"}:
            assert (table, journal, settings.max_shard_count) == ("readings", "", 16)
        else:
            assert (table, settings.journal_partition_key_name) == ("events", "pk")
            assert journal.startswith("routes")
        if handler in {"show.handler", "look.handler"}:
            assert {s.action for s in rights_of(in_band, handler)} == {f"dynamodb:{name}" for name in READS}

    def test_the_documents_policy_is_what_the_construct_grants(self, in_band):
        """For a role of one's own, with routes in a table of their own."""
        page = (ROOT / "docs/security.md").read_text().split("## Without Redis")[1]
        policy = json.loads(re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0])
        documented = {
            Statement(action, statement["Resource"].rpartition("/")[2], json.dumps(statement.get("Condition", {})))
            for statement in policy["Statement"]
            for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
        }
        granted = rights_of(in_band, "collect.handler")
        assert documented == {
            Statement(each.action, "ROUTES", each.condition) for each in granted if "events" not in each.resource
        }


def arn_of(service, resource):
    """The ARN of something in the stack's own account and region."""
    return f"arn:${{AWS::Partition}}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{resource}"


def rights_of(template, handler):
    """What the one function with a handler may do by all of its role's policies."""
    _, properties = function_of(template, handler)
    role_id = properties["Role"]["Fn::GetAtt"][0]
    role = template.body["Resources"][role_id]["Properties"]
    role = {name: value for name, value in role.items() if name != "ManagedPolicyArns"}
    only = {**template.body["Resources"], role_id: {"Type": "AWS::IAM::Role", "Properties": role}}
    return replace(template, body={**template.body, "Resources": only}).statements(role_id)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Two tables on one registry, in a VPC of the user's, with functions of every kind."""
    app = App(tmp_path_factory.mktemp("shared"))
    stack = app.stack("Shared")
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    key = kms.Key.from_key_arn(stack, "Key", "arn:aws:kms:eu-west-1:123456789012:key/1234")
    events = dynamodb.Table(
        stack,
        "Events",
        partition_key=dynamodb.Attribute(name="Sensor", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="At", type=dynamodb.AttributeType.NUMBER),
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )
    stream = "arn:aws:dynamodb:eu-west-1:123456789012:table/readings/stream/2026"
    arm = lambda_.Architecture.ARM_64
    first = constructs.HotPartition(
        stack,
        "Readings",
        table=imported_table(stack, encryption_key=key, table_stream_arn=stream),
        functions=[make_function(stack, "Ingest", vpc=vpc, runtime=lambda_.Runtime.PYTHON_3_12)],
        readers=[make_function(stack, "Show", vpc=vpc, architecture=arm, handler="show.handler")],
        indexes=["by-time"],
        vpc=vpc,
        options=constructs.PRODUCTION.changed({"alarms": {"is_silent": True}}),
        settings={"max_shard_count": 16, "has_positions": True},
    )
    image = make_function(
        stack,
        "Image",
        runtime=lambda_.Runtime.FROM_IMAGE,
        handler=lambda_.Handler.FROM_IMAGE,
        code=lambda_.Code.from_ecr_image(ecr.Repository.from_repository_name(stack, "Repository", "images")),
    )
    collect = make_function(stack, "Collect", vpc=vpc)
    constructs.HotPartition(
        stack, "Hot", table=events, functions=[collect, image], registry=first.registry, is_joining=True
    )
    return app.template()


class TestSharing:
    def test_one_registry_serves_both(self, shared):
        """Each table has users of its own, who change one after another; the nodes are watched once."""
        assert len(shared.of_type("AWS::ElastiCache::ReplicationGroup")) == 1
        users = shared.of_type("AWS::ElastiCache::User")
        assert len(users) == 8
        assert sum("DependsOn" in user for user in users.values()) == 7
        assert len(shared.only("AWS::ElastiCache::UserGroup")["UserIds"]) == 8
        names = [a["AlarmName"] for a in shared.all("AWS::CloudWatch::Alarm")]
        assert len(names) == len(set(names))
        assert sum(name.endswith("-RegistryMemory") for name in names) == 1
        assert sum(name.endswith("-ConsumerMissing") for name in names) == 2
        keys = {short_name(user["Properties"]["AccessString"]).split()[1] for user in users.values()}
        (events,) = [id_ for id_ in shared.of_type("AWS::DynamoDB::Table") if id_.startswith("Events")]
        assert keys == {"~hp:readings:*", f"~hp:${{{events}}}:*"}

    def test_a_given_vpc_gets_nothing_but_groups(self, shared):
        """No endpoint and no flow log; each function keeps its own group, which the registry lets in."""
        assert len(shared.of_type("AWS::EC2::VPC")) == 1
        assert not shared.of_type("AWS::EC2::VPCEndpoint")
        assert not shared.of_type("AWS::EC2::FlowLog")
        let_in = shared.all("AWS::EC2::SecurityGroupIngress")
        assert [rule["FromPort"] for rule in let_in] == [6379] * 4

    def test_layers_are_those_of_each_functions_python_and_processor(self, shared):
        """One pair for each; the construct's own have theirs, once for each table."""
        layers = shared.all("AWS::Lambda::LayerVersion")
        kinds = [(layer["CompatibleRuntimes"][0], layer["CompatibleArchitectures"][0]) for layer in layers]
        assert sorted(kinds) == sorted(
            [("python3.12", "x86_64"), ("python3.13", "x86_64"), *[("python3.13", "arm64")] * 3] * 2
        )

    def test_a_container_image_brings_its_own_packages(self, shared):
        """It gets no layer, and all the rest; and it joins the VPC, in which it was not."""
        (image,) = [each for each in shared.all("AWS::Lambda::Function") if each.get("PackageType") == "Image"]
        assert "Layers" not in image
        assert Settings.from_env(environment_of(shared, image), "adaptive()").registry_user.endswith("-table")
        assert len(image["VpcConfig"]["SubnetIds"]) == 2

    def test_a_reader_writes_nothing(self, shared):
        """In neither table, and in Redis as readers do; an index is granted by its name, a key through DynamoDB."""
        statements = rights_of(shared, "show.handler")
        assert {s.action for s in statements if s.action.startswith("dynamodb:")} == {f"dynamodb:{n}" for n in READS}
        assert {s.action for s in statements if s.resource.endswith("/index/by-time")} == {
            "dynamodb:Query",
            "dynamodb:Scan",
        }
        (condition,) = {s.condition for s in statements if s.action == "kms:Decrypt" and "key/1234" in s.resource}
        assert "kms:ViaService" in condition
        assert any("reader" in s.resource for s in statements if s.action == "elasticache:Connect")

    def test_settings_and_options_reach_our_functions(self, shared):
        """Of the first table; the second has its own, with defaults."""
        found = [
            function["Environment"]["Variables"]
            for function in shared.all("AWS::Lambda::Function")
            if function.get("Handler") == "handler.handler"
        ]
        given = {
            (v["HOTPARTITION_HAS_POSITIONS"], v.get("HOTPARTITION_MAX_SHARD_COUNT"))
            for v in found
            if v["POWERTOOLS_SERVICE_NAME"] == "consume_reports"
        }
        assert given == {("true", "16"), ("false", None)}
        assert len(shared.of_type("AWS::Scheduler::Schedule")) == 2

    def test_the_journal_goes_when_its_table_does(self, shared):
        """That of the imported table stays; that of the one which is deleted with the stack is deleted, too."""
        policies = {
            short_name(table["Properties"]["TableName"]): table["DeletionPolicy"]
            for id_, table in shared.of_type("AWS::DynamoDB::Table").items()
            if id_.startswith("Routes")
        }
        (events,) = [id_ for id_ in shared.of_type("AWS::DynamoDB::Table") if id_.startswith("Events")]
        assert policies == {"hp-routes-readings": "RetainExceptOnCreate", f"hp-routes-${{{events}}}": "Delete"}


@pytest.mark.slow
def test_cfn_lint_has_nothing_to_say(five, shared, in_band, prod):
    """Of the constructs, nor of `prod`, which has every property of `dev`; in one process, which is slow to start.

    But that the CDK lets each function depend on its role twice (W3005), which is harmless.
    """
    files = [file for template in (five, shared, in_band, prod) for file in template.folder.glob("*.template.json")]
    command = [Path(sysconfig.get_path("scripts")) / "cfn-lint", "--ignore-checks", "W3005", "--template", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
