"""What a `HotPartition` refuses while synthesizing: what AWS would refuse later, or what would fail in silence."""

from __future__ import annotations

import re

import pytest

from hotpartition_cdk.errors import ConfigurationError
from infrastructure.test_constructs import App, Lazy, cdk, constructs, dynamodb, ec2, imported_table, make_function

iam = Lazy("aws_cdk.aws_iam")
TYPES = {"S": "STRING", "N": "NUMBER", "B": "BINARY"}


@pytest.fixture
def stack(tmp_path):
    return App(tmp_path).stack("Refused")


@pytest.fixture
def table(stack):
    return imported_table(stack)


def make_table(stack, name, *, sort="S", partition="S"):
    """A table made here; without a sort key one of the newer kind."""

    def attribute(name, type_):
        return dynamodb.Attribute(name=name, type=getattr(dynamodb.AttributeType, TYPES[type_]))

    key = attribute("Id", partition)
    if sort is None:
        return dynamodb.TableV2(stack, name, partition_key=key)
    return dynamodb.Table(stack, name, partition_key=key, sort_key=attribute("At", sort))


@pytest.mark.parametrize("name", ["a" * 32, "MyTable_Prod", "9lives", "a--b", "hot-", "Hot"])
def test_a_name_that_no_redis_user_can_have(stack, table, name):
    """ElastiCache would say so after minutes, or store another."""
    with pytest.raises(ConfigurationError, match=r"^Refused/Hot has the name .* small letters, digits and single"):
        constructs.HotPartition(stack, "Hot", table=table, name=name)


@pytest.mark.parametrize(
    ("schema", "more", "sentence"),
    [
        ({"sort": None}, {}, "Refused/Unfit has no sort key, so each of its partition keys holds one item"),
        (
            {"partition": "N"},
            {},
            "the partition key Id of Refused/Unfit is of type N, and a shard's number can be",
        ),
        (
            {"sort": "B"},
            {"detection": "in-band"},
            "the sort key At of Refused/Unfit is of type B, under which no routing item can lie: give journal=",
        ),
        (
            {},
            {"indexes": ["by-time"]},
            "Refused/Unfit has no index by-time, but none: correct indexes=, or add",
        ),
    ],
)
def test_a_table_that_does_not_fit(stack, schema, more, sentence):
    """Without a sort key, with another type of key, or without the index."""
    with pytest.raises(ConfigurationError) as caught:
        constructs.HotPartition(stack, "Hot", table=make_table(stack, "Unfit", **schema), **more)
    assert str(caught.value).startswith(sentence)


def test_what_fits_is_taken(stack):
    """An index that is there, and a numeric sort key with a journal apart."""
    table = make_table(stack, "Indexed", sort="N")
    key = dynamodb.Attribute(name="Hour", type=dynamodb.AttributeType.STRING)
    table.add_global_secondary_index(index_name="by-hour", partition_key=key)
    constructs.HotPartition(stack, "Hot", table=table, indexes=["by-hour"])


@pytest.mark.parametrize("place", ["eu-west-1:210987654321", "us-east-1:123456789012"])
def test_a_table_of_another_account_or_region(place):
    """Functions get the bare name."""
    stack = cdk.Stack(cdk.App(), "Placed", env=cdk.Environment(account="123456789012", region="eu-west-1"))
    table = dynamodb.Table.from_table_arn(stack, "Far", f"arn:aws:dynamodb:{place}:table/readings")
    with pytest.raises(ConfigurationError, match=r"functions would look for the table beside themselves"):
        constructs.HotPartition(stack, "Hot", table=table)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"table": "readings"}, "is given 'readings' as table=: give an aws_dynamodb table"),
        ({"indexes": "by-time"}, "is given 'by-time' as indexes=: give a list, such as indexes=[...]"),
        ({"functions": 3}, "is given 3 as functions=: give a list"),
    ],
)
def test_another_kind_of_thing(stack, table, given, sentence):
    """A text would be taken for a list of letters."""
    with pytest.raises(ConfigurationError, match=re.escape(sentence)):
        constructs.HotPartition(stack, "Hot", **({"table": table} | given))


def test_a_second_one_for_a_table(stack, table):
    """Of the same one, or another import of it. Several in-band ones make nothing, and are taken."""
    constructs.HotPartition(stack, "Once", table=table)
    again = dynamodb.Table.from_table_name(stack, "Again", "readings")
    for number, (given, detection) in enumerate([(table, "consumer"), (again, "consumer"), (again, "in-band")]):
        with pytest.raises(ConfigurationError, match=r"is the second HotPartition of the table"):
            constructs.HotPartition(stack, f"Twice{number}", table=given, detection=detection)
    other = imported_table(stack, "in-band")
    for id_ in ("Here", "There"):
        constructs.HotPartition(stack, id_, table=other, detection=constructs.IN_BAND)
    with pytest.raises(ConfigurationError, match=r"is the second HotPartition of the table"):
        constructs.HotPartition(stack, "Everywhere", table=other)


def test_a_function_that_would_lose_the_internet(stack, table):
    """Unless that is meant (`is_joining`)."""
    with pytest.raises(ConfigurationError, match=r"^Refused/Outside runs in no VPC, .* no internet: say is_join"):
        constructs.HotPartition(stack, "Hot", table=table, functions=[make_function(stack, "Outside")])


def test_a_function_in_another_vpc(stack, table):
    """From which the registry in the given one is out of reach."""
    here, there = (ec2.Vpc(stack, name, max_azs=2) for name in ("Here", "There"))
    hot = constructs.HotPartition(stack, "Hot", table=table, vpc=here)
    hot.add_function(make_function(stack, "Inside", vpc=here))
    with pytest.raises(ConfigurationError, match=r"^Refused/Outside runs in another VPC than the registry of"):
        hot.add_function(make_function(stack, "Outside", vpc=there))


def test_a_role_that_accepts_no_policy(stack, table):
    """Every right would be dropped in silence."""
    hot = constructs.HotPartition(stack, "Hot", table=table, detection=constructs.IN_BAND)

    def function(name, *, is_mutable):
        arn = "arn:aws:iam::123456789012:role/given"
        role = iam.Role.from_role_arn(stack, f"{name}Role", arn, mutable=is_mutable)
        return make_function(stack, name, role=role)

    hot.add_function(function("Mutable", is_mutable=True))
    with pytest.raises(ConfigurationError, match=r"^the role of Refused/Immutable accepts no policy"):
        hot.add_reader(function("Immutable", is_mutable=False))


def test_stacks_that_would_need_one_another(tmp_path):
    """Function and table, or function and VPC, in one stack, HotPartition in another; what has an order is taken."""
    app = App(tmp_path)
    theirs, ours = app.stack("Theirs"), app.stack("Ours")
    table = make_table(theirs, "Readings")
    hot = constructs.HotPartition(ours, "Hot", table=table, is_joining=True)
    with pytest.raises(ConfigurationError, match=r"^Theirs/Ingest and the table Theirs/Readings are in Theirs, which"):
        hot.add_function(make_function(theirs, "Ingest"))
    hot.add_function(make_function(ours, "Here"))
    vpc = ec2.Vpc(theirs, "Vpc", max_azs=2)
    apart = constructs.HotPartition(ours, "Apart", table=imported_table(ours), vpc=vpc)
    with pytest.raises(ConfigurationError, match=r"^Theirs/Inside and the VPC Theirs/Vpc are in Theirs, which"):
        apart.add_function(make_function(theirs, "Inside", vpc=vpc))
    app.app.synth()


def test_production_that_tells_nobody(stack, table):
    """Unless that is meant (`is_silent`)."""
    with pytest.raises(ConfigurationError, match=r"^the alarms of Refused/Silent reach nobody: give option alarms"):
        constructs.HotPartition(stack, "Silent", table=table, options=constructs.PRODUCTION)
    quiet = constructs.LARGE.changed({"alarms": {"is_silent": True}})
    constructs.HotPartition(stack, "Quiet", table=table, options=quiet)


def test_production_in_one_zone(stack, table):
    """Also where the zone's name is known to CloudFormation alone."""
    quiet = constructs.PRODUCTION.changed({"alarms": {"is_silent": True}})
    with pytest.raises(ConfigurationError, match=r"its subnets in one alone: give subnets of two zones"):
        constructs.HotPartition(stack, "Hot", table=table, options=quiet, vpc=ec2.Vpc(stack, "Vpc", max_azs=1))
