from __future__ import annotations

import re

import pytest

from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.options import list_options, override
from infra.config import Changes, load_environment, read_environment
from infra.environments import DEV, LITE, PROD
from infrastructure.template import AUTHORIZER, FUNCTIONS, ONCALL, short_name

TOKENS = {"jwt_issuer": "https://login.example.com/", "jwt_audience": ["chat"]}


@pytest.mark.parametrize(
    ("named", "changes"),
    [
        ("colour", {"colour": 1}),
        ("name", {"name": "mine"}),
        ("target.platform", {"target": {"platform": None}}),
        ("api.rate", {"api": {"rate": 1}}),
        ("api", {"api": 5}),
        ("writer.memory_mb", {"writer": {"memory_mb": 64}}),
        ("writer.memory_mb", {"writer": {"memory_mb": "2 GB"}}),
        ("writer.memory_mb", {"writer": {"memory_mb": True}}),
        ("writer.memory_mb", {"writer": {"memory_mb": 512.0}}),
        ("has_dashboard", {"has_dashboard": "yes"}),
        ("has_dashboard", {"has_dashboard": 1}),
        ("log_retention_days", {"log_retention_days": 8}),
        ("target.python_version", {"target": {"python_version": "3.12"}}),
        ("registry.node_type", {"registry": {"node_type": "m7g.large"}}),
        ("table.max_write_units", {"table": {"max_write_units": 0}}),
        ("table.warm_write_units", {"table": {"warm_write_units": 100}}),
        ("api.cors_origins", {"api": {"cors_origins": "https://a.example"}}),
        ("api.cors_origins", {"api": {"cors_origins": ["a.example"]}}),
        ("api.cors_origins", {"api": {"cors_origins": [1]}}),
        ("api.jwt_issuer", {"api": {"jwt_issuer": "http://a", "jwt_audience": ["b"]}}),
        ("api.jwt_audience", {"api": {"jwt_issuer": "https://a/"}}),
        ("api.jwt_issuer", {"api": {"jwt_audience": ["chat"]}}),
        ("api.authorizer_arn", {"api": {**TOKENS, "authorizer_arn": AUTHORIZER}}),
        ("api.write_scopes", {"api": {**TOKENS, "write_scopes": ["w"]}}),
        ("api.jwt_issuer", {"api": {"write_scopes": ["w"], "change_scopes": ["c"], "read_scopes": ["r"]}}),
        ("api.write_scopes", {"api": {**TOKENS, "write_scopes": ["a b"], "read_scopes": ["r"]}}),
        ("api.authorizer_cache_seconds", {"api": {"authorizer_cache_seconds": 1}}),  # so its default is 0
        ("api.sender_claim", {"api": {"sender_claim": "sub"}}),
        ("api.sender_claim", {"api": {**TOKENS, "sender_claim": ""}}),
        ("api.authorizer_arn", {"api": {"authorizer_arn": "who"}}),
        ("alarms.email", {"alarms": {"email": "a@b", "topic_arn": ONCALL}}),
        ("reader.timeout_seconds", {"reader": {"timeout_seconds": 30}}),
        ("is_multi_az", {"registry": {"replicas_per_shard": 0}}),
        ("is_encrypted_in_transit", {"registry": {"is_encrypted_in_transit": False}}),
        ("consumer_concurrency", {"consumer_concurrency": 3}),
        ("name_suffix", {"name_suffix": "a-suffix-too-long"}),
        ("name_suffix", {"name_suffix": "Anna"}),
        ("tags", {"tags": {"aws:team": "chat"}}),
        ("tags.team", {"tags": {"team": 1}}),
        ("tags", {"tags": "team"}),
        ("permissions_boundary", {"permissions_boundary": "boundary"}),
        ("kms_key_arn", {"kms_key_arn": "alias/mine"}),
        ("network.availability_zones", {"network": {"availability_zones": ["eu-west-1"]}}),
        ("network.availability_zones", {"network": {"availability_zones": ["eu-west-1a"]}}),
        ("network.availability_zones", {"network": {"availability_zones": ["eu-west-1a", "eu-west-1a"]}}),
    ],
)
def test_wrong_options_are_named(named, changes):
    """What is wrong is refused, by its path."""
    with pytest.raises(ConfigurationError, match=rf"(?<![\w.]){re.escape(named)}(?![\w.])"):
        override(PROD, changes)


def test_what_is_allowed_is_named():
    """The names, where one is unknown; the type and its bounds, where a value is wrong."""
    with pytest.raises(ConfigurationError, match=r"unknown; allowed are target, log_retention_days, is_data_retained"):
        override(PROD, {"colour": 1})
    with pytest.raises(ConfigurationError, match=r"a whole number, between 128 and 10240, not 64$"):
        override(PROD, {"writer": {"memory_mb": 64}})


def test_lite_has_no_options_of_what_it_has_not():
    """Redis, network and consumer; the rest it shares with `dev`."""
    mine, theirs = ({path for path, _, _ in list_options(each)} for each in (LITE, DEV))
    assert mine < theirs
    assert {path.partition(".")[0].partition("_")[0] for path in theirs - mine} == {
        "consumer",
        "network",
        "registry",
    }
    with pytest.raises(ConfigurationError, match=r"^option registry is unknown; allowed are target"):
        override(LITE, {"registry": {"shard_count": 2}})


def test_all_mistakes_are_reported_at_once():
    """Whether a name is unknown, a value is wrong, or two values contradict each other."""
    with pytest.raises(ConfigurationError) as caught:
        override(PROD, {"colour": 1, "writer": {"memory_mb": 64}, "api": {"jwt_audience": ["chat"]}})
    named = ("colour", "writer.memory_mb", "api.jwt_issuer")
    assert [name in sentence for name, sentence in zip(named, caught.value.args, strict=True)] == [True] * 3


def test_a_setting_may_be_taken_back():
    """Null is what an optional option has by default."""
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

    def test_is_read_by_itself_when_it_is_there(self, tmp_path):
        """`hotpartition.toml` beside app.py needs no context; without it nothing changes. JSON is named."""
        assert load_environment("prod", tmp_path) == PROD
        (tmp_path / "hotpartition.toml").write_text(FILE)
        assert load_environment("prod", tmp_path).consumer_concurrency == 6
        (tmp_path / "mine.json").write_text('{"dev": {"options": {"consumer_concurrency": 5}}}')
        assert read_environment("dev", "mine.json", tmp_path)[1].options == {"consumer_concurrency": 5}

    @pytest.mark.parametrize(
        ("name", "content", "named"),
        [
            ("absent.toml", None, "absent.toml cannot be read"),
            ("mine.toml", "[prod", "mine.toml is no TOML"),
            ("mine.json", "{", "mine.json is no JSON"),
            ("mine.json", "[]", "mine.json should be sections by name"),
            ("mine.toml", "[staging]", "section staging of mine.toml"),
            ("mine.toml", "[staging]\nbase = 'local'", "section staging.base of mine.toml"),
            ("mine.toml", "['My Stage']\nbase = 'dev'", "section My Stage of mine.toml"),
            ("mine.toml", "[prod]\nbase = 'dev'", "section prod of mine.toml has a base"),
            ("mine.toml", "prod = 1", "section prod of mine.toml"),
            ("mine.toml", "[prod.settngs]", "section prod.settngs of mine.toml is unknown"),
        ],
    )
    def test_mistakes_are_named(self, tmp_path, name, content, named):
        """The file and the section that cannot be read."""
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(ConfigurationError, match=re.escape(named)):
            read_environment("prod", name, tmp_path)


def test_an_environment_of_ones_own_begins_as_its_base(tmp_path):
    """Its name and its options are its own; where another name is unknown, it is among those that there are."""
    (tmp_path / "hotpartition.toml").write_text('[staging]\nbase = "prod"\noptions = { log_retention_days = 30 }\n')
    expected = PROD.model_copy(update={"name": "staging", "log_retention_days": 30})
    assert load_environment("staging", tmp_path) == expected
    assert load_environment("prod", tmp_path) == PROD
    with pytest.raises(ConfigurationError, match=r"'stagng' is unknown; .*local-lite, staging. Did you mean staging.$"):
        load_environment("stagng", tmp_path)


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
    names = {dashboard, template.only("AWS::ElastiCache::UserGroup")["UserGroupId"].removesuffix("-users")}
    names |= {user["UserId"].rsplit("-", 2)[0] for user in template.all("AWS::ElastiCache::User")}
    return names | {alarm["AlarmName"].rpartition("-")[0] for alarm in template.all("AWS::CloudWatch::Alarm")}


def test_two_stacks_of_an_environment_fit_into_a_region(staging, prod):
    """The environment and a suffix are in every name that has to be unique; nothing else is named by the stack."""
    assert named_after(prod) == {"hotpartition-prod"}
    assert named_after(staging) == {"hotpartition-staging-anna"}
    assert {"Table", "Registry"} <= staging.body["Resources"].keys()
    for type_, name in NAMED_BY_CLOUDFORMATION.items():
        assert not [made[name] for template in (prod, staging) for made in template.all(type_) if name in made]


def test_the_context_comes_before_the_file(staging):
    """It has the last word over the file, and the file over the code; a setting goes to the functions that know it."""
    assert staging.function("consume_reports")["ReservedConcurrentExecutions"] == 4
    assert {group["RetentionInDays"] for group in staging.all("AWS::Logs::LogGroup")} == {30}
    variables = {folder: staging.variables(folder) for folder in FUNCTIONS}
    assert variables["consume_reports"]["HOTPARTITION_MAX_SHARD_COUNT"] == "32"
    known = {folder: found.get("HOTPARTITION_SAMPLING_DISTANCE_WCU") for folder, found in variables.items()}
    assert known == {"write_message": "2", "read_messages": None, "consume_reports": None, "operate": None}


def test_a_lambda_authorizer_of_ones_own(staging):
    """It is asked on every route, may be invoked by this API only, and names the sender and the access log's caller."""
    (id_,) = staging.of_type("AWS::ApiGatewayV2::Authorizer")
    authorizer = staging.only("AWS::ApiGatewayV2::Authorizer")
    assert {name: authorizer[name] for name in authorizer if name not in {"ApiId", "AuthorizerUri", "Name"}} == {
        "AuthorizerPayloadFormatVersion": "2.0",
        "AuthorizerResultTtlInSeconds": 60,
        "AuthorizerType": "REQUEST",
        "EnableSimpleResponses": True,
        "IdentitySource": ["$request.header.Authorization", "$context.routeKey"],
    }
    assert AUTHORIZER in short_name(authorizer["AuthorizerUri"])
    routes = staging.all("AWS::ApiGatewayV2::Route")
    assert {(route["AuthorizationType"], route["AuthorizerId"]["Ref"]) for route in routes} == {("CUSTOM", id_)}
    (permission,) = [p for p in staging.all("AWS::Lambda::Permission") if p["FunctionName"] == AUTHORIZER]
    assert permission["Principal"] == "apigateway.amazonaws.com"
    assert short_name(permission["SourceArn"]).endswith(f"/authorizers/${{{id_}}}")
    assert staging.variables("write_message")["HOTPARTITION_SENDER_CLAIM"] == "user"
    assert "$context.authorizer.user" in staging.only("AWS::ApiGatewayV2::Stage")["AccessLogSettings"]["Format"]
