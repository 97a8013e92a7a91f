"""What is refused while synthesizing, in one sentence: what AWS would refuse later, or what would fail in silence.

Options, settings, files and contexts of this stack, and a `HotPartition` of anybody's. It is long: each rule is a row.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hotpartition_cdk.configuration import Host
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.options import override
from infra.config import read_environment
from infra.environments import DEV, LITE, PROD, build_local, choose_environment
from infra.settings import check_times, read_overrides
from infrastructure.apps import App, Lazy, cdk, constructs, dynamodb, ec2, imported_table, lambda_, make_function
from infrastructure.template import AUTHORIZER, ONCALL

iam = Lazy("aws_cdk.aws_iam")
IN_BAND = {"detection": "in-band"}
TYPES = {"S": "STRING", "N": "NUMBER", "B": "BINARY"}
TOKENS = {"jwt_issuer": "https://login.example.com/", "jwt_audience": ["chat"]}
SCOPES = {"write_scopes": ["w"], "change_scopes": ["c"], "read_scopes": ["r"]}
HOST = Host(python_version="3.11", machine="x86_64", system="Linux")


def refused(sentence):
    """Expects an error that begins with these words."""
    return pytest.raises(ConfigurationError, match=f"^{re.escape(sentence)}")


OPTIONS = [
    ({"colour": 1}, "option colour is unknown; allowed are target, log_retention_days, is_data_retained"),
    ({"target": {"platform": None}}, "option target.platform is unknown; allowed are target.python_version"),
    ({"target": {"python_version": "3.12"}}, "option target.python_version should be '3.13' or '3.14', not "),
    ({"api": 5}, "option api should be a valid dictionary or instance of ApiOptions, not 5"),
    ({"writer": {"memory_mb": 64}}, "option writer.memory_mb should be greater than or equal to 128, not 64"),
    ({"has_dashboard": 1}, "option has_dashboard should be a valid boolean, not 1"),
    ({"log_retention_days": 8}, "option log_retention_days should be 1, 3, 5, 7, 14, 30, 60, 90, 120, "),
    ({"reader": {"timeout_seconds": 30}}, "option reader.timeout_seconds should be less than or equal to 29, not 30"),
    ({"consumer_concurrency": 3}, "option consumer_concurrency should be 0 or at least 4, not 3"),
    ({"table": {"max_write_units": 0}}, "option table.max_write_units should be greater than or equal to 1, not 0"),
    ({"table": {"warm_write_units": 100}}, "option table.warm_write_units should be greater than or equal to 4000, n"),
    ({"api": {"cors_origins": ["a.example"]}}, "option api.cors_origins should match pattern '^(\\*|https?://[^/"),
    ({"api": {**TOKENS, "jwt_issuer": "http://a"}}, "option api.jwt_issuer should match pattern '^https://\\S+$'"),
    ({"api": {"jwt_issuer": "https://a/"}}, "options api.jwt_issuer and api.jwt_audience are given together, or not"),
    ({"api": {**TOKENS, "authorizer_arn": AUTHORIZER}}, "options api.jwt_issuer and api.authorizer_arn exclude"),
    ({"api": {**TOKENS, "write_scopes": ["w"]}}, "options api.write_scopes, change_scopes and read_scopes are given"),
    ({"api": SCOPES}, "options api.write_scopes, change_scopes and read_scopes need api.jwt_issuer, its tokens"),
    ({"api": {**TOKENS, "write_scopes": ["a b"]}}, "option api.write_scopes should match pattern '^[\\x21\\x23-"),
    ({"api": {"authorizer_cache_seconds": 1}}, "option api.authorizer_cache_seconds needs api.authorizer_arn"),
    ({"api": {"sender_claim": "sub"}}, "option api.sender_claim needs api.jwt_issuer or api.authorizer_arn, whose"),
    ({"api": {**TOKENS, "sender_claim": ""}}, "option api.sender_claim should match pattern '^[A-Za-z0-9_.:/-]{1,"),
    ({"api": {"authorizer_arn": "who"}}, "option api.authorizer_arn should match pattern '^arn:aws[a-z-]*:lambda:[a-"),
    ({"alarms": {"email": "a@b", "topic_arn": ONCALL}}, "option alarms.email is for a topic of the stack; give it or"),
    ({"registry": {"node_type": "m7g.large"}}, "option registry.node_type should match pattern '^cache\\.[a-z0-"),
    ({"registry": {"replicas_per_shard": 0}}, "a registry over several zones (is_multi_az) needs a replica per shard"),
    ({"registry": {"is_encrypted_in_transit": False}}, "a registry with users (is_authenticated) needs is_encrypted"),
    ({"registry": {"node_type": "cache.t4g.micro"}}, "node type cache.t4g.micro cannot be durable; allowed families"),
    ({"registry": {"is_multi_az": False}}, "a durable registry needs is_multi_az, a replica and is_encrypted_in_tr"),
    ({"name_suffix": "a-suffix-too-long"}, "the stack's name hotpartition-prod-a-suffix-too-long has more than 31"),
    ({"name_suffix": "Anna"}, "option name_suffix should match pattern '^[a-z0-9]+(-[a-z0-9]+)*$'"),
    ({"tags": {"aws:team": "chat"}}, "option tags should have names of 1 to 128 characters, not in aws:, not"),
    ({"tags": {"team": 1}}, "option tags.team should be a valid strin"),
    ({"permissions_boundary": "boundary"}, "option permissions_boundary should match pattern '^arn:aws[a-z-]*:iam::"),
    ({"kms_key_arn": "alias/mine"}, "option kms_key_arn should match pattern '^arn:aws[a-z-]*:kms:[a-z0-9-]+:\\d{12"),
    ({"network": {"availability_zones": ["eu-west-1"]}}, "option network.availability_zones should match pattern '^[a"),
    *(
        ({"network": {"availability_zones": zones}}, "option network.availability_zones should name two to six diff")
        for zones in (["eu-west-1a"], ["eu-west-1a", "eu-west-1a"])
    ),
]


@pytest.mark.parametrize(("changes", "sentence"), OPTIONS)
def test_options(changes, sentence):
    """By their paths, with what is allowed."""
    with refused(sentence):
        override(PROD, changes)


def test_all_mistakes_are_reported_at_once():
    """Whether a name is unknown, a value is wrong, or two values contradict each other."""
    with pytest.raises(ConfigurationError) as caught:
        override(PROD, {"colour": 1, "writer": {"memory_mb": 64}, "api": {"jwt_audience": ["chat"]}})
    named = ("colour", "writer.memory_mb", "api.jwt_issuer")
    assert [name in sentence for name, sentence in zip(named, caught.value.args, strict=True)] == [True] * 3


@pytest.mark.parametrize(
    ("environment", "overrides", "sentence"),
    [
        (DEV, {"nope": 1}, "setting nope is unknown; allowed are close_after_seconds, dynamodb_client"),
        (DEV, {"table_name": "mine"}, "setting table_name is set by the stack itself and cannot be overridden"),
        (DEV, {"dynamodb_client": "sdk"}, "setting dynamodb_client should be one of curl, boto3, not 'sdk'"),
        (DEV, {"settle_seconds": float("nan")}, "setting settle_seconds should be a number, between 0.0 and 3600.0"),
        (DEV, {"settle_seconds": None}, "setting settle_seconds should be a text, a number, true or false, not None"),
        # Nothing in `lite` sends reports.
        (LITE, {"stream_partitions": 8}, "setting stream_partitions is unknown; allowed are"),
        (LITE, {"registry_tls": False}, "setting registry_tls is set by the stack itself and cannot be overridden"),
    ],
)
def test_settings(environment, overrides, sentence):
    """Of the environment's functions alone."""
    with refused(sentence):
        read_overrides(overrides, environment)


@pytest.mark.parametrize(
    ("name", "most", "reason"),
    [
        ("run_seconds", 170, "the last pass may take 10 s more"),
        ("request_budget_ms", 7_000, "an attempt that starts at its end may take 3 s more"),
    ],
)
def test_times_that_lambda_would_cut(name, most, reason):
    """A run of the consumer and a request end before the function's timeout, which the default just does."""
    check_times(DEV, {name: str(most)})
    with refused(f"setting {name} should be at most {most} in environment dev, not {most + 1}, because {reason} and"):
        check_times(DEV, {name: str(most + 1)})


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("absent.toml", None, "config file absent.toml cannot be read"),
        ("mine.toml", "[prod", "config file mine.toml is no TOML"),
        ("mine.json", "{", "config file mine.json is no JSON"),
        ("mine.json", "[]", "mine.json should be sections by name"),
        ("mine.toml", "[staging]", "section staging of mine.toml is not one of dev, prod"),
        ("mine.toml", "[staging]\nbase = 'local'", "section staging.base of mine.toml should be 'dev', 'prod' or 'l"),
        ("mine.toml", "['My Stage']\nbase = 'dev'", "section My Stage of mine.toml should be called by small letters"),
        ("mine.toml", "[prod]\nbase = 'dev'", "section prod of mine.toml has a base"),
        ("mine.toml", "prod = 1", "section prod of mine.toml should be a valid dictionary"),
        ("mine.toml", "[prod.settngs]", "section prod.settngs of mine.toml is unknown"),
    ],
)
def test_files(tmp_path, name, content, sentence):
    """The file and the section that cannot be read."""
    if content is not None:
        (tmp_path / name).write_text(content)
    with refused(sentence):
        read_environment("prod", name, tmp_path)


@pytest.mark.parametrize(
    ("context", "named"),
    [
        ('settings={"run_seconds": "soon"}', "setting run_seconds"),
        ("settings={", "settings should be a JSON object, not '{' (Expecting"),
        ("options=[1]", "options should be a JSON object of names to values, not [1]"),
        ("color=red", "context key 'color' is unknown"),
        ("bundling=", "bundling should be on or off"),
    ],
)
def test_contexts(tmp_path, context, named):
    """The command line's own."""
    from infra.app import main  # noqa: PLC0415 - starts Node.js

    sentence = main(["-c", context, "-o", str(tmp_path)])
    assert named in sentence
    assert "\n" not in sentence


def test_environments_and_machines():
    """Only these names are environments, and only what Lambda has is a processor."""
    for name in ("", "Prod", None, 3):
        with refused(f"environment {name!r} is unknown; allowed are dev, prod, lite, local, local-lite"):
            choose_environment(name, HOST)
    with refused("this machine is a riscv64; functions run on aarch64, "):
        build_local(replace(HOST, machine="riscv64"))


@pytest.fixture
def stack(tmp_path):
    return App(tmp_path).stack("Refused", region="eu-west-1")


@pytest.fixture
def table(stack):
    return imported_table(stack)


@pytest.fixture
def hot(stack, table):
    """A HotPartition with a VPC of its own."""
    return constructs.HotPartition(stack, "Hot", table=table, is_joining=True)


def make_table(stack, *, sort="S", partition="S", replica=None, inverted=None):
    """A table made here; without a sort key, or with a replica, one of the newer kind."""

    def attribute(name, type_):
        return dynamodb.Attribute(name=name, type=getattr(dynamodb.AttributeType, TYPES[type_]))

    key = attribute("Id", partition)
    if sort is None:
        return dynamodb.TableV2(stack, "Table", partition_key=key)
    if replica is not None:
        replicas = [dynamodb.ReplicaTableProps(region=replica)]
        return dynamodb.TableV2(stack, "Table", partition_key=key, sort_key=attribute("At", sort), replicas=replicas)
    table = dynamodb.Table(stack, "Table", partition_key=key, sort_key=attribute("At", sort))
    if inverted is not None:
        table.add_global_secondary_index(index_name=inverted, partition_key=attribute("At", sort), sort_key=key)
    return table


def quiet(options):
    return options.changed({"alarms": {"is_silent": True}})


CONSTRUCTS = [
    # ElastiCache would say so after minutes, or store another.
    *(
        (lambda _, name=name: {"name": name}, f"Refused/Hot has the name {name!r}, after which Redis users are called:")
        for name in ("a" * 32, "MyTable_Prod", "9lives", "a--b", "hot-", "Hot")
    ),
    (lambda _: {"settings": {"table_name": "x"}}, "setting table_name is set by the stack itself and cannot be"),
    (lambda _: {"settings": {"run_seconds": 180}}, "setting run_seconds should be at most 170 in Refused/Hot"),
    (lambda _: {"detection": "redis"}, "detection should be 'consumer' or 'in-band', not 'redis'"),
    (lambda _: {**IN_BAND, "options": {}}, "Refused/Hot finds hot keys in band, and makes nothing for"),
    (lambda _: {**IN_BAND, "settings": {"registry_host": "r"}}, "setting registry_host is set by the stack itself"),
    (lambda _: {**IN_BAND, "settings": {"run_seconds": 9}}, "setting run_seconds is unknown; allowed are"),
    (lambda stack: {"table": make_table(stack, sort=None)}, "Refused/Table has no sort key, so each of its partition"),
    (lambda stack: {"table": make_table(stack, partition="N")}, "the partition key Id of Refused/Table is of type N"),
    (lambda stack: {"table": make_table(stack), "indexes": ["at"]}, "Refused/Table has no index at; it has none:"),
    (lambda stack: {"table": make_table(stack, replica="us-east-1")}, "Refused/Table has replicas in us-east-1,"),
    (lambda stack: {"table": make_table(stack, inverted="at"), **IN_BAND}, "the index at of Refused/Table has the"),
    (lambda _: {"settings": {"is_closing": True}}, "Refused/Hot shall close keys (setting is_closing), which needs"),
    # A text would be taken for a list of letters.
    (lambda _: {"table": "readings"}, "Refused/Hot is given 'readings' as table=: give an aws_dynamodb table"),
    (lambda _: {"indexes": "at"}, "Refused/Hot is given 'at' as indexes=: give a list, such as indexes=[...]"),
    (lambda _: {"functions": 3}, "Refused/Hot is given 3 as functions=: give a list"),
    (lambda stack: {"functions": [make_function(stack, "Out")]}, "Refused/Out runs in no VPC, and in that of"),
    (lambda _: {"options": constructs.PRODUCTION}, "the alarms of Refused/Hot reach nobody: give option alarms.email"),
    # The zone's name is known to CloudFormation alone.
    (
        lambda stack: {"options": quiet(constructs.PRODUCTION), "vpc": ec2.Vpc(stack, "Vpc", max_azs=1)},
        "Refused/Hot/Valkey stands in several zones (option registry.is_multi_az), and its subnets in one alone: give",
    ),
]


@pytest.mark.parametrize(("given", "sentence"), CONSTRUCTS)
def test_arguments_of_a_construct(stack, table, given, sentence):
    """Names, options, settings, tables, and things of another kind."""
    with refused(sentence):
        constructs.HotPartition(stack, "Hot", **({"table": table} | given(stack)))


FUNCTIONS = [
    (lambda: {"runtime": lambda_.Runtime.PYTHON_3_10}, "runs on python3.10, and the library does on python3.11"),
    (lambda: {"timeout": cdk.Duration.seconds(1)}, "is stopped after 1 s, and one call of"),
    (
        lambda: {"environment": {"LEVEL": "INFO", "HOTPARTITION_TABLE_NAME": "mine"}},
        "has HOTPARTITION_TABLE_NAME in its environment already, which HotPartition sets:",
    ),
]


@pytest.mark.parametrize("way", [{"is_joining": True}, IN_BAND], ids=["consumer", "in band"])
@pytest.mark.parametrize(("given", "sentence"), FUNCTIONS)
def test_a_function_that_cannot_use_the_library(stack, table, way, given, sentence):
    """With Redis and without."""
    ingest = make_function(stack, "Ingest", **given())
    with refused(f"Refused/Ingest {sentence}"):
        constructs.HotPartition(stack, "Hot", table=table, functions=[ingest], **way)


def test_a_function_that_does_not_fit(hot, stack):
    """Its kind, its VPC, or what it was given already."""
    with refused("Refused/Hot is given Alias as a function, which nothing can be added to: give the aws_lambda.Func"):
        hot.add_function(make_function(stack, "Aliased").add_alias("live"))
    with refused("Refused/Inside runs in a VPC, from which the registry in a new one cannot be reached: give that"):
        hot.add_function(make_function(stack, "Inside", vpc=ec2.Vpc(stack, "Elsewhere", max_azs=1)))
    function = make_function(stack, "Twice")
    hot.add_function(function)
    with refused("Refused/Twice was given to a HotPartition already"):
        hot.add_reader(function)


def test_a_registry_that_does_not_fit(hot, stack):
    """In another stack, its users would be made apart from their group; ElastiCache looks late at the zones."""
    other = cdk.Stack(cdk.App(), "Other")
    with pytest.raises(ConfigurationError, match=r"put them into the same stack$"):
        constructs.HotPartition(other, "Hot", table=imported_table(other), registry=hot.registry)
    subnets = [ec2.Subnet.from_subnet_attributes(stack, "A", subnet_id="a", availability_zone="eu-west-1a")]
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Given", vpc_id="v", availability_zones=["eu-west-1a"])
    network = constructs.Network(stack, "OneZone", vpc=vpc, subnets=subnets)
    with pytest.raises(ConfigurationError, match=r"its subnets in eu-west-1a alone"):
        constructs.Registry(stack, "Spread", network=network, size=constructs.PRODUCTION.registry)


@pytest.mark.parametrize("sort", ["N", "B"])
def test_what_fits_in_band_is_taken(stack, sort):
    """A sort key that is no text, and a function with variables of its own; each function once."""
    ingest = make_function(stack, "Ingest", environment={"LEVEL": "INFO", "HOTPARTITION_MAX_SHARD_COUNT": "64"})
    hot = constructs.HotPartition(stack, "Hot", table=make_table(stack, sort=sort), functions=[ingest], **IN_BAND)
    with refused("Refused/Ingest was given to a HotPartition already"):
        hot.add_reader(ingest)


def test_a_vpc_that_does_not_fit(stack, table):
    """No function reaches DynamoDB from public subnets, nor the registry from another VPC."""
    subnets = [ec2.SubnetConfiguration(name="public", subnet_type=ec2.SubnetType.PUBLIC)]
    vpc = ec2.Vpc(stack, "Open", max_azs=1, subnet_configuration=subnets)
    with refused("Refused/Open has public subnets only"):
        constructs.Network(stack, "OpenNetwork", vpc=vpc)
    here, there = (ec2.Vpc(stack, name, max_azs=2) for name in ("Here", "There"))
    hot = constructs.HotPartition(stack, "Hot", table=table, vpc=here)
    hot.add_function(make_function(stack, "Inside", vpc=here))
    with refused("Refused/Outside runs in another VPC than the registry of"):
        hot.add_function(make_function(stack, "Outside", vpc=there))


@pytest.mark.parametrize("place", ["eu-west-1:210987654321", "us-east-1:123456789012"])
def test_a_table_of_another_account_or_region(place):
    """Functions get the bare name."""
    stack = cdk.Stack(cdk.App(), "Placed", env=cdk.Environment(account="123456789012", region="eu-west-1"))
    table = dynamodb.Table.from_table_arn(stack, "Far", f"arn:aws:dynamodb:{place}:table/readings")
    with pytest.raises(ConfigurationError, match=r"functions would look for the table beside themselves"):
        constructs.HotPartition(stack, "Hot", table=table)


def test_a_second_one_for_a_table(stack, table):
    """Of the same one, or another import of it. Several in-band ones make nothing, and are taken."""
    constructs.HotPartition(stack, "Once", table=table)
    again = dynamodb.Table.from_table_name(stack, "Again", "readings")
    other = imported_table(stack, "in-band")
    for id_ in ("Here", "There"):
        constructs.HotPartition(stack, id_, table=other, detection=constructs.IN_BAND)
    second = [(table, "consumer"), (again, "consumer"), (again, "in-band"), (other, "consumer")]
    for number, (given, detection) in enumerate(second):
        with refused(f"Refused/Twice{number} is the second HotPartition of the table"):
            constructs.HotPartition(stack, f"Twice{number}", table=given, detection=detection)


def test_a_role_that_accepts_no_policy(stack, table):
    """Every right would be dropped in silence."""
    hot = constructs.HotPartition(stack, "Hot", table=table, detection=constructs.IN_BAND)

    def function(name, *, is_mutable):
        arn = "arn:aws:iam::123456789012:role/given"
        role = iam.Role.from_role_arn(stack, f"{name}Role", arn, mutable=is_mutable)
        return make_function(stack, name, role=role)

    hot.add_function(function("Mutable", is_mutable=True))
    with refused("the role of Refused/Immutable accepts no policy"):
        hot.add_reader(function("Immutable", is_mutable=False))


def test_stacks_that_would_need_one_another(tmp_path):
    """Function and table, or function and VPC, in one stack, HotPartition in another; what has an order is taken."""
    app = App(tmp_path)
    theirs, ours = app.stack("Theirs"), app.stack("Ours")
    hot = constructs.HotPartition(ours, "Hot", table=make_table(theirs), is_joining=True)
    with refused("Theirs/Ingest and the table Theirs/Table are in Theirs, which"):
        hot.add_function(make_function(theirs, "Ingest"))
    hot.add_function(make_function(ours, "Here"))
    vpc = ec2.Vpc(theirs, "Vpc", max_azs=2)
    apart = constructs.HotPartition(ours, "Apart", table=imported_table(ours), vpc=vpc)
    with refused("Theirs/Inside and the VPC Theirs/Vpc are in Theirs, which"):
        apart.add_function(make_function(theirs, "Inside", vpc=vpc))
    app.app.synth()
