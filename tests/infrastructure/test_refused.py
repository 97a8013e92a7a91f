"""What a `HotPartition` refuses while synthesizing: what AWS would refuse later, or what would fail in silence."""

from __future__ import annotations

import re

import pytest

from hotpartition_cdk.errors import ConfigurationError
from infrastructure.apps import (
    App,
    Lazy,
    cdk,
    constructs,
    dynamodb,
    ec2,
    imported_table,
    lambda_,
    make_function,
)

iam = Lazy("aws_cdk.aws_iam")
IN_BAND = {"detection": "in-band"}
TYPES = {"S": "STRING", "N": "NUMBER", "B": "BINARY"}


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


def refused(sentence):
    """Expects an error that begins with these words."""
    return pytest.raises(ConfigurationError, match=f"^{re.escape(sentence)}")


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


WRONG = [
    # ElastiCache would say so after minutes, or store another.
    *(
        (lambda _, name=name: {"name": name}, f"Refused/Hot has the name {name!r}, after which Redis users are called:")
        for name in ("a" * 32, "MyTable_Prod", "9lives", "a--b", "hot-", "Hot")
    ),
    (lambda _: {"settings": {"table_name": "x"}}, "setting table_name is set by the stack itself and cannot be"),
    (lambda _: {"settings": {"max_shard_count": 1}}, "setting max_shard_count should be a whole number, between 2"),
    (lambda _: {"settings": {"run_seconds": 180}}, "setting run_seconds should be at most 170 in Refused/Hot"),
    (lambda _: {"detection": "redis"}, "detection should be 'consumer' or 'in-band', not 'redis'"),
    (
        lambda _: {**IN_BAND, "options": {}},
        "Refused/Hot finds hot keys in band, and makes nothing for",
    ),
    (lambda _: {**IN_BAND, "settings": {"registry_host": "r"}}, "setting registry_host is set by the stack itself"),
    (lambda _: {**IN_BAND, "settings": {"run_seconds": 9}}, "setting run_seconds is unknown; allowed are"),
    (lambda stack: {"table": make_table(stack, sort=None)}, "Refused/Table has no sort key, so each of its partition"),
    (lambda stack: {"table": make_table(stack, partition="N")}, "the partition key Id of Refused/Table is of type N"),
    (lambda stack: {"table": make_table(stack, sort="B"), **IN_BAND}, "the sort key At of Refused/Table is of type B,"),
    (
        lambda stack: {"table": make_table(stack), "indexes": ["at"]},
        "Refused/Table has no index at; it has none: correct indexes=",
    ),
    (
        lambda stack: {"table": make_table(stack, replica="us-east-1")},
        "Refused/Table has replicas in us-east-1,",
    ),
    (
        lambda stack: {"table": make_table(stack, inverted="by-time"), **IN_BAND},
        "the index by-time of Refused/Table has the table's sort key At as its partition key, and all routing items",
    ),
    (lambda _: {"settings": {"is_closing": True}}, "Refused/Hot shall close keys (setting is_closing), which needs"),
    *(
        (
            lambda stack, given=given, more=more: {"functions": [make_function(stack, "Ingest", **given())], **more},
            f"Refused/Ingest {sentence}",
        )
        for more in ({"is_joining": True}, IN_BAND)
        for given, sentence in (
            (
                lambda: {"runtime": lambda_.Runtime.PYTHON_3_10},
                "runs on python3.10, and the library does",
            ),
            (lambda: {"runtime": lambda_.Runtime.NODEJS_22_X}, "runs on nodejs22.x, and the library does on"),
            (
                lambda: {"timeout": cdk.Duration.seconds(1)},
                "is stopped after 1 s, and one call of",
            ),
        )
    ),
    # A text would be taken for a list of letters.
    (lambda _: {"table": "readings"}, "Refused/Hot is given 'readings' as table=: give an aws_dynamodb table"),
    (lambda _: {"indexes": "at"}, "Refused/Hot is given 'at' as indexes=: give a list, such as indexes=[...]"),
    (lambda _: {"functions": 3}, "Refused/Hot is given 3 as functions=: give a list"),
    (
        lambda stack: {"functions": [make_function(stack, "Ingest")]},
        "Refused/Ingest runs in no VPC, and in that of",
    ),
    (lambda _: {"options": constructs.PRODUCTION}, "the alarms of Refused/Hot reach nobody: give option alarms.email"),
    # The zone's name is known to CloudFormation alone.
    (
        lambda stack: {"options": quiet(constructs.PRODUCTION), "vpc": ec2.Vpc(stack, "Vpc", max_azs=1)},
        "Refused/Hot/Valkey stands in several zones (option registry.is_multi_az), and its subnets in one alone: give",
    ),
]


@pytest.mark.parametrize(("given", "sentence"), WRONG)
def test_what_is_wrong_is_said_with_what_is_allowed(stack, table, given, sentence):
    """Names, options, settings, tables, and things of another kind."""
    with refused(sentence):
        constructs.HotPartition(stack, "Hot", **({"table": table} | given(stack)))


def test_a_function_that_does_not_fit(hot, stack):
    """Its runtime, its kind, its VPC, or what it was given already."""
    with refused("Refused/Old runs on python3.10, and the library does on python3.11, python3.12, python3.13, "):
        hot.add_function(make_function(stack, "Old", runtime=lambda_.Runtime.PYTHON_3_10))
    with refused("Refused/Hot is given Alias as a function, which nothing can be added to: give the aws_lambda.Func"):
        hot.add_function(make_function(stack, "Aliased").add_alias("live"))
    with refused("Refused/Inside runs in a VPC, from which the registry in a new one cannot be reached: give that"):
        hot.add_function(make_function(stack, "Inside", vpc=ec2.Vpc(stack, "Elsewhere", max_azs=1)))
    function = make_function(stack, "Twice")
    hot.add_function(function)
    with refused("Refused/Twice was given to a HotPartition already"):
        hot.add_reader(function)


def test_a_registry_of_another_stack(hot):
    """Its users are made beside their group."""
    other = cdk.Stack(cdk.App(), "Other")
    with pytest.raises(ConfigurationError, match=r"put them into the same stack$"):
        constructs.HotPartition(other, "Hot", table=imported_table(other), registry=hot.registry)


def test_a_vpc_of_public_subnets(stack):
    """No function reaches DynamoDB from there."""
    subnets = [ec2.SubnetConfiguration(name="public", subnet_type=ec2.SubnetType.PUBLIC)]
    vpc = ec2.Vpc(stack, "Open", max_azs=1, subnet_configuration=subnets)
    with refused("Refused/Open has public subnets only"):
        constructs.Network(stack, "OpenNetwork", vpc=vpc)


def test_a_registry_over_zones_that_are_not_there(stack):
    """ElastiCache would say so only after minutes of deploying."""
    subnets = [ec2.Subnet.from_subnet_attributes(stack, "A", subnet_id="a", availability_zone="eu-west-1a")]
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Given", vpc_id="v", availability_zones=["eu-west-1a"])
    network = constructs.Network(stack, "OneZone", vpc=vpc, subnets=subnets)
    with pytest.raises(ConfigurationError, match=r"its subnets in eu-west-1a alone"):
        constructs.Registry(stack, "Spread", network=network, size=constructs.PRODUCTION.registry)


def test_what_fits_is_taken(stack, table):
    """An index that is there, and a numeric sort key with a journal apart; production that is meant to be silent."""
    made = make_table(stack, sort="N")
    key = dynamodb.Attribute(name="Hour", type=dynamodb.AttributeType.STRING)
    made.add_global_secondary_index(index_name="by-hour", partition_key=key)
    constructs.HotPartition(stack, "Hot", table=made, indexes=["by-hour"])
    constructs.HotPartition(stack, "Quiet", table=table, options=quiet(constructs.PRODUCTION))


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


def test_a_function_in_another_vpc(stack, table):
    """From which the registry in the given one is out of reach."""
    here, there = (ec2.Vpc(stack, name, max_azs=2) for name in ("Here", "There"))
    hot = constructs.HotPartition(stack, "Hot", table=table, vpc=here)
    hot.add_function(make_function(stack, "Inside", vpc=here))
    with refused("Refused/Outside runs in another VPC than the registry of"):
        hot.add_function(make_function(stack, "Outside", vpc=there))


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
