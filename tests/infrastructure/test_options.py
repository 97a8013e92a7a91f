from __future__ import annotations

import pytest

from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.options import override
from hotpartition_cdk.settings import check_shares
from infra.config import Changes, load_environment, read_environment
from infra.environments import DEV, PROD
from infrastructure.templates import FUNCTIONS, short_name

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
UNKNOWN = "option {} is unknown; allowed are"


TOKENS = {"jwt_issuer": "https://login.example.com/", "jwt_audience": ["chat"]}
ASKED = "arn:aws:lambda:eu-west-1:123456789012:function:who-calls"


def test_nothing_changes_nothing():
    """Without overrides an environment is what its code says."""
    assert override(PROD, {}) == PROD


def test_any_number_may_be_changed():
    """Options are replaced at any depth, and the rest stays."""
    changed = override(
        PROD,
        {
            "consumer_concurrency": 6,
            "writer": {"memory_mb": 2048},
            "registry": {"node_type": "cache.r7g.xlarge", "shard_count": 4},
            "table": {"max_write_units": 40_000, "warm_write_units": 10_000},
            "api": {"jwt_issuer": "https://login.example.com/", "jwt_audience": ["chat", "feed"]},
            "alarms": {"email": "oncall@example.com"},
            "target": {"python_version": "3.13"},
        },
    )
    assert changed == PROD.model_copy(
        update={
            "consumer_concurrency": 6,
            "writer": PROD.writer.model_copy(update={"memory_mb": 2048}),
            "registry": PROD.registry.model_copy(update={"node_type": "cache.r7g.xlarge", "shard_count": 4}),
            "table": PROD.table.model_copy(update={"max_write_units": 40_000, "warm_write_units": 10_000}),
            "api": PROD.api.model_copy(
                update={"jwt_issuer": "https://login.example.com/", "jwt_audience": ("chat", "feed")}
            ),
            "alarms": PROD.alarms.model_copy(update={"email": "oncall@example.com"}),
            "target": PROD.target.model_copy(update={"python_version": "3.13"}),
        }
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"colour": 1}, f"{UNKNOWN.format('colour')} target, consumer, consumer_concurrency, consumers,"),
        ({"name": "mine"}, f"{UNKNOWN.format('name')} target,"),
        (
            {"target": {"wheel_platforms": None}},
            f"{UNKNOWN.format('target.wheel_platforms')} target.python_version",
        ),
        ({"api": {"rate": 1}}, f"{UNKNOWN.format('api.rate')} api.write_rate, api.write_burst, api.read_rate,"),
        ({"api": 5}, "option api should be values by name (write_rate, write_burst, "),
        (
            {"writer": {"memory_mb": 64}},
            "option writer.memory_mb should be a whole number, between 128 and 10240, not 64",
        ),
        ({"writer": {"memory_mb": "2 GB"}}, "option writer.memory_mb should be a whole number, between 128 and 10240"),
        ({"writer": {"memory_mb": True}}, "option writer.memory_mb should be a whole number, between 128 and 10240"),
        ({"writer": {"memory_mb": 512.0}}, "option writer.memory_mb should be a whole number, between 128 and 10240"),
        ({"is_snap_started": "yes"}, "option is_snap_started should be true or false, not 'yes'"),
        ({"is_snap_started": 1}, "option is_snap_started should be true or false, not 1"),
        ({"log_retention_days": 8}, "option log_retention_days should be one of 1, 3, 5, 7, 14, 30,"),
        ({"target": {"python_version": "3.12"}}, "option target.python_version should be one of 3.13, 3.14,"),
        (
            {"registry": {"node_type": "m7g.large"}},
            "option registry.node_type should be a text, like cache.m7g.large, not 'm7g.large'",
        ),
        (
            {"table": {"max_write_units": 0}},
            "option table.max_write_units should be a whole number, between 1 and 10000000 or null, not 0",
        ),
        ({"table": {"warm_write_units": 100}}, "option table.warm_write_units should be a whole number, between 4000"),
        (
            {"api": {"cors_origins": "https://a.example"}},
            "option api.cors_origins should be a list of texts, like https://chat.example.com, not 'https://a.example'",
        ),
        ({"api": {"cors_origins": ["a.example"]}}, "option api.cors_origins should be a list of texts, like https://"),
        ({"api": {"cors_origins": [1]}}, "option api.cors_origins should be a list of texts, like https://"),
        (
            {"api": {"jwt_issuer": "http://a", "jwt_audience": ["b"]}},
            "option api.jwt_issuer should be a text, like https://login.example.com/ or null, not 'http://a'",
        ),
        ({"api": {"jwt_issuer": "https://a/"}}, "options api.jwt_issuer and api.jwt_audience are given together, or"),
        ({"api": {"jwt_audience": ["chat"]}}, "options api.jwt_issuer and api.jwt_audience are given together, or"),
        ({"api": {**TOKENS, "authorizer_arn": ASKED}}, "options api.jwt_issuer and api.authorizer_arn exclude each"),
        (
            {"api": {**TOKENS, "write_scopes": ["w"]}},
            "options api.write_scopes, change_scopes and read_scopes are given",
        ),
        (
            {"api": {"write_scopes": ["w"], "change_scopes": ["c"], "read_scopes": ["r"]}},
            "options api.write_scopes, change_scopes and read_scopes need api.jwt_issuer",
        ),
        (
            {"api": {**TOKENS, "write_scopes": ["a b"], "read_scopes": ["r"]}},
            "option api.write_scopes should be a list of texts, like messages.write, not 'a b'",
        ),
        ({"api": {"authorizer_cache_seconds": 1}}, "option api.authorizer_cache_seconds needs api.authorizer_arn"),
        ({"api": {"sender_claim": "sub"}}, "option api.sender_claim needs api.jwt_issuer or api.authorizer_arn"),
        ({"api": {**TOKENS, "sender_claim": ""}}, "option api.sender_claim should be a text, like sub or null, not ''"),
        ({"api": {"authorizer_arn": "who"}}, "option api.authorizer_arn should be a text, like arn:aws:lambda:"),
        (
            {"alarms": {"email": "a@b", "topic_arn": "arn:aws:sns:eu-west-1:123456789012:t"}},
            "option alarms.email is for a topic of ours; give it or alarms.topic_arn, not both",
        ),
        (
            {"alarms": {"tomorrow_email": "a@b", "tomorrow_topic_arn": "arn:aws:sns:eu-west-1:123456789012:t"}},
            "option alarms.tomorrow_email is for a topic of ours; give it or alarms.tomorrow_topic_arn, not both",
        ),
        (
            {"reader": {"timeout_seconds": 30}},
            "option reader.timeout_seconds should be a whole number, between 1 and 29, not 30",
        ),
        ({"registry": {"replicas_per_shard": 0}}, "a registry over several zones (is_multi_az) needs a replica per"),
        ({"registry": {"is_encrypted_in_transit": False}}, "a registry with users (is_authenticated) needs is_encryp"),
        (
            {"consumer_concurrency": 3},
            "option consumer_concurrency should be 0 or at least 4, not 3",
        ),
        (
            {"name_suffix": "a-suffix-too-long"},
            "the stack's name hotpartition-prod-a-suffix-too-long has more than 31 characters: choose a shorter",
        ),
        ({"name_suffix": "Anna"}, "option name_suffix should be a text, like anna or null, not 'Anna'"),
        (
            {"tags": {"aws:team": "chat"}},
            "option tags should have names of 1 to 128 characters, not in aws:, not 'aws:",
        ),
        ({"tags": {"team": 1}}, "option tags.team should be a text, not 1"),
        ({"tags": "team"}, "option tags should be texts by name, not 'team'"),
        ({"permissions_boundary": "boundary"}, "option permissions_boundary should be a text, like arn:aws:iam::1234"),
        (
            {"kms_key_arn": "alias/mine"},
            "option kms_key_arn should be a text, like arn:aws:kms:eu-west-1:123456789012:",
        ),
        (
            {"network": {"availability_zones": ["eu-west-1"]}},
            "option network.availability_zones should be a list of texts, like eu-west-1a, not 'eu-west-1'",
        ),
        (
            {"network": {"availability_zones": ["eu-west-1a"]}},
            "option network.availability_zones should name two to six different zones, not ['eu-west-1a']",
        ),
        (
            {"network": {"availability_zones": ["eu-west-1a", "eu-west-1a"]}},
            "option network.availability_zones should name two to six different zones, not",
        ),
    ],
)
def test_wrong_options_are_named(changes, sentence):
    """What is wrong is named by its path, together with what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        override(PROD, changes)
    assert str(caught.value).startswith(sentence)


def test_each_consumer_has_a_stream():
    """More consumers than streams would start some that have nothing to read."""
    environment = override(PROD, {"consumers": 8})
    with pytest.raises(
        ConfigurationError,
        match=r"^option consumers should be at most 4, the number of report streams .*, not 8$",
    ):
        check_shares(environment, {})
    check_shares(environment, {"stream_partitions": "8"})


def test_all_mistakes_are_told_at_once():
    """Whether a name is unknown, a value is wrong, or two values contradict each other."""
    with pytest.raises(ConfigurationError) as caught:
        override(PROD, {"colour": 1, "writer": {"memory_mb": 64}, "api": {"jwt_audience": ["chat"]}})
    assert [sentence.split(";")[0] for sentence in caught.value.args] == [
        "option colour is unknown",
        "option writer.memory_mb should be a whole number, between 128 and 10240, not 64",
        "options api.jwt_issuer and api.jwt_audience are given together, or not at all",
    ]


def test_a_setting_may_be_taken_back():
    """Null is what an optional option has when nobody chose."""
    limited = override(DEV, {"table": {"max_write_units": 5}})
    assert override(limited, {"table": {"max_write_units": None}}) == DEV


FILE = """
[prod.options]
consumer_concurrency = 6
registry = { shard_count = 3 }

[prod.settings]
max_shard_count = 64
"""


class TestFile:
    def test_sections_belong_to_their_environment(self, tmp_path):
        """The file may speak of several environments; each takes its own section."""
        (tmp_path / "mine.toml").write_text(FILE)
        _, found = read_environment("prod", "mine.toml", tmp_path)
        assert found.options == {"consumer_concurrency": 6, "registry": {"shard_count": 3}}
        assert found.settings == {"max_shard_count": 64}
        assert read_environment("dev", "mine.toml", tmp_path) == (DEV, Changes())

    def test_may_be_json(self, tmp_path):
        """A program may write it."""
        (tmp_path / "mine.json").write_text('{"dev": {"options": {"consumer_concurrency": 5}}}')
        _, found = read_environment("dev", "mine.json", tmp_path)
        assert found.options == {"consumer_concurrency": 5}

    def test_is_read_by_itself_when_it_is_there(self, tmp_path):
        """`hotpartition.toml` beside app.py needs no context; without it nothing changes."""
        assert load_environment("prod", tmp_path) == PROD
        (tmp_path / "hotpartition.toml").write_text(FILE)
        assert load_environment("prod", tmp_path).consumer_concurrency == 6

    @pytest.mark.parametrize(
        ("name", "content", "sentence"),
        [
            ("absent.toml", None, "config file absent.toml cannot be read: No such file or directory"),
            ("mine.toml", "[prod", "config file mine.toml is no TOML: "),
            ("mine.json", "{", "config file mine.json is no JSON: "),
            ("mine.json", "[]", "mine.json should be sections by name, not []"),
            (
                "mine.toml",
                "[staging]",
                "section staging of mine.toml is none of dev, prod, local; an environment of your own needs a base",
            ),
            (
                "mine.toml",
                "[staging]\nbase = 'local'",
                "section staging.base of mine.toml should be one of dev, prod or null, not 'local'",
            ),
            (
                "mine.toml",
                "['My Stage']\nbase = 'dev'",
                "section My Stage of mine.toml should be called by small letters and digits, with single hyphens",
            ),
            (
                "mine.toml",
                "[prod]\nbase = 'dev'",
                "section prod of mine.toml has a base, which only environments of another name have",
            ),
            (
                "mine.toml",
                "prod = 1",
                "section prod of mine.toml should be values by name (base, options, settings), not 1",
            ),
            (
                "mine.toml",
                "[prod.settngs]",
                "section prod.settngs of mine.toml is unknown; allowed are base, options, settings",
            ),
        ],
    )
    def test_mistakes_are_one_sentence(self, tmp_path, name, content, sentence):
        """What cannot be read is named."""
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(ConfigurationError) as caught:
            read_environment("prod", name, tmp_path)
        assert str(caught.value).startswith(sentence)


class TestOwnEnvironment:
    """A section of the file with a name that is none of ours."""

    STAGING = '[staging]\nbase = "prod"\noptions = { log_retention_days = 30 }\n'

    def test_begins_as_its_base(self, tmp_path):
        """Its name and its options are its own, the rest is the base's."""
        (tmp_path / "hotpartition.toml").write_text(self.STAGING)
        expected = PROD.model_copy(update={"name": "staging", "log_retention_days": 30})
        assert load_environment("staging", tmp_path) == expected
        assert load_environment("prod", tmp_path) == PROD

    def test_is_named_where_another_is_unknown(self, tmp_path):
        """Whoever mistypes it reads which ones there are."""
        (tmp_path / "hotpartition.toml").write_text(self.STAGING)
        with pytest.raises(ConfigurationError) as caught:
            load_environment("stagng", tmp_path)
        assert str(caught.value) == "environment 'stagng' is unknown; allowed are dev, prod, local, staging"

    def test_has_a_stack_of_its_own(self, synthesize, tmp_path, prod):
        """With its name in all that has a name; the stateful resources are called as ever."""
        (tmp_path / "mine.toml").write_text(self.STAGING)
        template = synthesize("staging", config=str(tmp_path / "mine.toml"))
        assert named_after(template) == {"hotpartition-staging"}
        assert named_after(prod) == {"hotpartition-prod"}
        assert {"Table", "Registry"} <= template.body["Resources"].keys()
        days = {g["Properties"]["RetentionInDays"] for g in template.of_type("AWS::Logs::LogGroup").values()}
        assert days == {30}


NAMED_BY_CLOUDFORMATION = {
    "AWS::DynamoDB::Table": "TableName",
    "AWS::ElastiCache::ReplicationGroup": "ReplicationGroupId",
    "AWS::IAM::Role": "RoleName",
    "AWS::Lambda::Function": "FunctionName",
    "AWS::SNS::Topic": "TopicName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::Scheduler::Schedule": "Name",
}


def named_after(template):
    """What the names that have to be unique in an account and region begin with."""
    dashboard = template.only("AWS::CloudWatch::Dashboard")["DashboardName"]
    names = {dashboard, template.only("AWS::ElastiCache::UserGroup")["UserGroupId"]}
    names |= {u["Properties"]["UserId"].rpartition("-")[0] for u in template.of_type("AWS::ElastiCache::User").values()}
    alarms = [alarm["Properties"]["AlarmName"] for alarm in template.of_type("AWS::CloudWatch::Alarm").values()]
    names |= {alarm.rpartition("-")[0] for alarm in alarms}
    return names


def test_two_stacks_of_an_environment_fit_into_a_region(synthesize, dev):
    """A suffix is in every name that has to be unique; nothing else has a name of ours."""
    template = synthesize("dev", options={"name_suffix": "anna"})
    assert named_after(template) == {"hotpartition-dev-anna"}
    for type_, name in NAMED_BY_CLOUDFORMATION.items():
        for both in (dev, template):
            assert [id_ for id_, made in both.of_type(type_).items() if name in made["Properties"]] == []


def test_what_an_organisation_asks_for_is_on_everything(synthesize):
    """Tags on what takes tags, a boundary around every role, a key of one's own for what is stored."""
    template = synthesize(
        "prod",
        options={"tags": {"team": "chat", "project": "feed"}, "permissions_boundary": BOUNDARY, "kms_key_arn": KEY},
    )
    tagged = [template.only(type_)["Tags"] for type_ in ("AWS::DynamoDB::Table", "AWS::ElastiCache::ReplicationGroup")]
    expected = [("environment", "prod"), ("project", "feed"), ("team", "chat")]
    assert [[(tag["Key"], tag["Value"]) for tag in tags] for tags in tagged] == [expected] * 2
    roles = template.of_type("AWS::IAM::Role").values()
    assert {role["Properties"].get("PermissionsBoundary") for role in roles} == {BOUNDARY}
    assert template.only("AWS::DynamoDB::Table")["SSESpecification"] == {
        "KMSMasterKeyId": KEY,
        "SSEEnabled": True,
        "SSEType": "KMS",
    }
    assert template.only("AWS::ElastiCache::ReplicationGroup")["KmsKeyId"] == KEY
    groups = template.of_type("AWS::Logs::LogGroup").values()
    assert {group["Properties"].get("KmsKeyId") for group in groups} == {KEY}
    for folder in FUNCTIONS:
        allowed = {s for s in template.statements(template.role_id(folder)) if s.action.startswith("kms:")}
        assert {s.action for s in allowed} == {"kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"}
        assert {s.resource for s in allowed} == {KEY}
        # Through DynamoDB only: a function cannot use the key by itself.
        assert all("kms:ViaService" in s.condition and "dynamodb." in s.condition for s in allowed)


def test_options_reach_the_template(synthesize):
    """Numbers, authorizer, origins, limits and receivers of a changed environment are in its template."""
    template = synthesize(
        "prod",
        options={
            "writer": {"memory_mb": 3008},
            "log_retention_days": 400,
            "retention_days": 30,
            "table": {"max_write_units": 40_000, "max_read_units": 80_000, "warm_write_units": 9000},
            "registry": {"node_type": "cache.r7g.large", "shard_count": 6, "replicas_per_shard": 1},
            "api": {
                "write_rate": 700,
                "read_burst": 900,
                "jwt_issuer": "https://login.example.com/",
                "jwt_audience": ["chat"],
                "cors_origins": ["https://chat.example.com"],
                "write_scopes": ["messages.write", "messages.all"],
                "change_scopes": ["messages.change"],
                "read_scopes": ["messages.read"],
                "sender_claim": "sub",
            },
            "network": {
                "dynamodb_prefix_list": "pl-6da54004",
                "availability_zones": ["eu-west-1a", "eu-west-1c", "eu-west-1b"],
            },
            "consumer_concurrency": 0,
            "alarms": {"topic_arn": "arn:aws:sns:eu-west-1:123456789012:oncall"},
            "is_snap_started": True,
        },
        settings='{"max_shard_count": 64}',
    )
    table = template.only("AWS::DynamoDB::Table")
    assert table["OnDemandThroughput"] == {"MaxWriteRequestUnits": 40_000, "MaxReadRequestUnits": 80_000}
    assert table["WarmThroughput"] == {"WriteUnitsPerSecond": 9000}
    registry = template.only("AWS::ElastiCache::ReplicationGroup")
    assert (registry["CacheNodeType"], registry["NumNodeGroups"]) == ("cache.r7g.large", 6)
    assert template.function("write_message")["MemorySize"] == 3008
    assert template.variables("write_message")["HOTPARTITION_RETENTION_DAYS"] == "30"
    assert template.variables("consume_reports")["HOTPARTITION_MAX_SHARD_COUNT"] == "64"
    assert template.of_type("AWS::SNS::Topic") == {}
    alarms = [alarm["Properties"] for alarm in template.of_type("AWS::CloudWatch::Alarm").values()]
    assert {alarm["AlarmActions"][0] for alarm in alarms} == {"arn:aws:sns:eu-west-1:123456789012:oncall"}
    # Twelve nodes are more than one alarm can watch.
    names = {alarm["AlarmName"] for alarm in alarms}
    assert {"hotpartition-prod-RegistryEvictions", "hotpartition-prod-RegistryEvictions2"} <= names
    check_api(template)
    check_snapshots(template)
    egress = [rule["Properties"] for rule in template.of_type("AWS::EC2::SecurityGroupEgress").values()]
    assert [rule["DestinationPrefixListId"] for rule in egress if rule["FromPort"] == 443] == ["pl-6da54004"]
    open_rules = [
        g["Properties"].get("SecurityGroupEgress") for g in template.of_type("AWS::EC2::SecurityGroup").values()
    ]
    assert "0.0.0.0/0" not in str(open_rules)
    zones = [subnet["Properties"]["AvailabilityZone"] for subnet in template.of_type("AWS::EC2::Subnet").values()]
    assert zones == ["eu-west-1a", "eu-west-1c", "eu-west-1b"]
    assert "ReservedConcurrentExecutions" not in template.function("consume_reports")
    days = {g["Properties"]["RetentionInDays"] for g in template.of_type("AWS::Logs::LogGroup").values()}
    assert days == {400}


def check_api(template):
    """Every route asks for a token, a page of that origin may call, and what differs from the stage has own limits."""
    authorizer = template.only("AWS::ApiGatewayV2::Authorizer")
    assert authorizer["JwtConfiguration"] == {"Issuer": "https://login.example.com/", "Audience": ["chat"]}
    routes = [route["Properties"] for route in template.of_type("AWS::ApiGatewayV2::Route").values()]
    assert {route["AuthorizationType"] for route in routes} == {"JWT"}
    assert {(route["RouteKey"].split()[0], *route["AuthorizationScopes"]) for route in routes} == {
        ("POST", "messages.write", "messages.all"),
        ("PATCH", "messages.change"),
        ("DELETE", "messages.change"),
        ("GET", "messages.read"),
    }
    assert template.variables("write_message")["HOTPARTITION_SENDER_CLAIM"] == "sub"
    cors = template.only("AWS::ApiGatewayV2::Api")["CorsConfiguration"]
    assert cors["AllowOrigins"] == ["https://chat.example.com"]
    assert cors["AllowMethods"] == ["GET", "POST", "PATCH", "DELETE"]
    stage = template.only("AWS::ApiGatewayV2::Stage")
    limits = {
        key.split()[0]: (limit["ThrottlingRateLimit"], limit["ThrottlingBurstLimit"])
        for key, limit in stage["RouteSettings"].items()
    }
    writes = dict.fromkeys(("POST", "PATCH", "DELETE"), (700, 2500))
    assert limits == {**writes, "GET": (5000, 900)}
    assert "$context.authorizer.claims.sub" in stage["AccessLogSettings"]["Format"]


def test_a_lambda_authorizer_of_ones_own(synthesize):
    """It is asked on every route, may be invoked by this API only, and names the sender and the access log's caller."""
    changes = {"authorizer_arn": ASKED, "sender_claim": "user", "authorizer_cache_seconds": 60}
    template = synthesize("dev", options={"api": changes})
    (id_,) = template.of_type("AWS::ApiGatewayV2::Authorizer")
    authorizer = template.only("AWS::ApiGatewayV2::Authorizer")
    assert {name: authorizer[name] for name in authorizer if name not in {"ApiId", "AuthorizerUri", "Name"}} == {
        "AuthorizerPayloadFormatVersion": "2.0",
        "AuthorizerResultTtlInSeconds": 60,
        "AuthorizerType": "REQUEST",
        "EnableSimpleResponses": True,
        "IdentitySource": ["$request.header.Authorization", "$context.routeKey"],
    }
    assert ASKED in short_name(authorizer["AuthorizerUri"])
    for route in template.of_type("AWS::ApiGatewayV2::Route").values():
        assert route["Properties"]["AuthorizationType"] == "CUSTOM"
        assert route["Properties"]["AuthorizerId"] == {"Ref": id_}
    permissions = [p["Properties"] for p in template.of_type("AWS::Lambda::Permission").values()]
    (permission,) = [p for p in permissions if p["FunctionName"] == ASKED]
    assert permission["Principal"] == "apigateway.amazonaws.com"
    assert short_name(permission["SourceArn"]).endswith(f"/authorizers/${{{id_}}}")
    assert template.variables("write_message")["HOTPARTITION_SENDER_CLAIM"] == "user"
    assert "$context.authorizer.user" in template.only("AWS::ApiGatewayV2::Stage")["AccessLogSettings"]["Format"]


def test_a_decision_is_not_kept_unless_asked_for(synthesize):
    """A decision that is kept is one for every conversation, which only its owner can know to be right."""
    template = synthesize("dev", options={"api": {"authorizer_arn": ASKED}})
    assert template.only("AWS::ApiGatewayV2::Authorizer")["AuthorizerResultTtlInSeconds"] == 0
    assert "HOTPARTITION_SENDER_CLAIM" not in template.variables("write_message")


def check_snapshots(template):
    """Writer and reader start from a snapshot, and the API invokes the version that has one."""
    for folder, expected in (("write_message", True), ("read_messages", True), ("consume_reports", False)):
        assert ("SnapStart" in template.function(folder)) is expected
    aliases = template.of_type("AWS::Lambda::Alias")
    assert [alias["Properties"]["Name"] for alias in aliases.values()] == ["live", "live"]
    targets = {
        i["Properties"]["IntegrationUri"]["Ref"] for i in template.of_type("AWS::ApiGatewayV2::Integration").values()
    }
    assert targets == set(aliases)
