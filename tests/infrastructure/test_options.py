"""Options, settings and constructs: which counts, and what is refused while synthesizing, in a sentence.

Refused is what AWS would refuse later, or what would fail in silence. Requests and what is said to each are in
`refused/*.txt`; below them stands what no line can ask.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hotpartition_cdk.configuration import Host
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.options import _CONSUMER_END_SECONDS, list_options, override
from infra.bundle import ROOT
from infra.config import Changes, check_times, load_environment, read_environment, read_overrides
from infra.environments import DEV, LITE, PROD, build_local, choose_environment
from infrastructure.apps import App, Lazy, cdk, constructs, dynamodb, ec2, imported_table, make_function, make_table
from support.golden import assert_answers

iam = Lazy("aws_cdk.aws_iam")
HERE = Path(__file__).parent / "refused"
LAPTOP = Host(python_version="3.12", machine="arm64", system="Darwin")
SERVER = Host(python_version="3.11", machine="x86_64", system="Linux")

FILE = """
[prod.options]
consumer_concurrency = 6
registry = { shard_count = 3 }

[prod.settings]
max_shard_count = 64

[staging]
base = "prod"
"""


def refused(sentence):
    """Expects an error that begins with these words."""
    return pytest.raises(ConfigurationError, match=f"^{re.escape(sentence)}")


def ask_environment(name, given, folder):
    """What kind of environment: by its name, or for a machine."""
    return build_local(replace(SERVER, machine=given)) if name == "on" else choose_environment(given, SERVER)


def ask_settings(name, given, folder):
    """Settings of an environment's functions, as a deployment has them read and checked."""
    environment = choose_environment(name, SERVER)
    check_times(environment, read_overrides(given, environment))


def ask_file(name, given, folder):
    """What `prod` becomes by a file, which has this content, or is not there."""
    if given is not None:
        (folder / name).write_text(given)
    read_environment("prod", name, folder)


def ask_context(name, given, folder):
    """The app itself, with one key of the command line's."""
    from infra.app import main  # noqa: PLC0415 - starts Node.js

    return main(["-c", f"{name}={given}", "-o", str(folder)])


def ask_construct(size, given, folder):
    """A `HotPartition` of this size, or in band, beside an imported table; tables and functions are made as given."""
    stack = App(folder).stack("Refused", region="eu-west-1")
    how = {"detection": constructs.IN_BAND} if size == "IN_BAND" else {"options": getattr(constructs, size)}
    made = {**how, "table": imported_table(stack), **given}
    if isinstance(made["table"], dict):
        made["table"] = make_table(stack, **made["table"])
    if isinstance(made.get("functions"), list):
        made["functions"] = [make_function(stack, "Ingest", **each) for each in made["functions"]]
    constructs.HotPartition(stack, "Hot", **made)


ASKED = {
    "options": lambda name, given, _: override(choose_environment(name, SERVER), given),
    "environment": ask_environment,
    "settings": ask_settings,
    "file": ask_file,
    "context": ask_context,
    "construct": ask_construct,
}


@pytest.mark.parametrize("name", ["options", "constructs"])
def test_what_is_said(name, tmp_path):
    """All mistakes of a request at once, each in a line. Of long lists of names the first three stand for all."""

    def answer(line):
        kind, name, given = line.split(" ", 2)
        try:
            said = ASKED[kind](name, json.loads(given), tmp_path)
        except ConfigurationError as error:
            return [re.sub(r"(allowed are (?:[\w.]+, ){3})(?:[\w.]+, ){3,}[\w.]+", r"\1…", each) for each in error.args]
        return [said if isinstance(said, str) else "fine"]

    assert_answers(HERE / f"{name}.txt", answer)


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
    with refused("Refused/Named has the name 'My Redis', after which"):
        constructs.Registry(stack, "Named", network=network, name="My Redis")


def test_a_vpc_that_does_not_fit(stack, table):
    """No function reaches DynamoDB from public subnets, nor the registry from another VPC; zones may be few.

    The zone's name is known to CloudFormation alone.
    """
    subnets = [ec2.SubnetConfiguration(name="public", subnet_type=ec2.SubnetType.PUBLIC)]
    vpc = ec2.Vpc(stack, "Open", max_azs=1, subnet_configuration=subnets)
    with refused("Refused/Open has public subnets only"):
        constructs.Network(stack, "OpenNetwork", vpc=vpc)
    here, there = (ec2.Vpc(stack, name, max_azs=2) for name in ("Here", "There"))
    hot = constructs.HotPartition(stack, "Hot", table=table, vpc=here)
    hot.add_function(make_function(stack, "Inside", vpc=here))
    with refused("Refused/Outside runs in another VPC than the registry of"):
        hot.add_function(make_function(stack, "Outside", vpc=there))
    options = constructs.PRODUCTION.changed({"alarms": {"is_silent": True}})
    narrow = {"vpc": ec2.Vpc(stack, "Narrow", max_azs=1), "options": options}
    with refused("Refused/Flat/Valkey stands in several zones (option registry.is_multi_az), and its subnets in one"):
        constructs.HotPartition(stack, "Flat", table=imported_table(stack, "flat"), **narrow)


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


def test_a_name_that_is_taken(stack, table):
    """CDK would say of what only by a logical id."""
    constructs.HotPartition(stack, "Hot", table=table, name="hot")
    with refused("Refused/Hotter/Valkey/Users is called after 'hot-users', as another resource of Refused is: give"):
        constructs.HotPartition(stack, "Hotter", table=imported_table(stack, "events"), name="hot")


def test_a_role_that_accepts_no_policy(stack, table):
    """Every right would be dropped in silence. The first function is taken, once."""
    hot = constructs.HotPartition(stack, "Hot", table=table, detection=constructs.IN_BAND)

    def function(name, *, is_mutable):
        arn = "arn:aws:iam::123456789012:role/given"
        role = iam.Role.from_role_arn(stack, f"{name}Role", arn, mutable=is_mutable)
        return make_function(stack, name, role=role)

    hot.add_function(taken := function("Mutable", is_mutable=True))
    with refused("Refused/Mutable was given to a HotPartition already"):
        hot.add_reader(taken)
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


def test_a_file_changes_its_environments(tmp_path):
    """Each takes its own section; `hotpartition.toml` beside app.py needs no context, and JSON is named.

    Its own environments are among those that there are; what becomes of one is in `templates/staging.txt`.
    """
    assert load_environment("prod", tmp_path) == PROD
    (tmp_path / "hotpartition.toml").write_text(FILE)
    _, found = read_environment("prod", "hotpartition.toml", tmp_path)
    assert found.options == {"consumer_concurrency": 6, "registry": {"shard_count": 3}}
    assert found.settings == {"max_shard_count": 64}
    assert read_environment("dev", "hotpartition.toml", tmp_path) == (DEV, Changes())
    assert load_environment("prod", tmp_path).consumer_concurrency == 6
    (tmp_path / "mine.json").write_text('{"dev": {"options": {"consumer_concurrency": 5}}}')
    assert read_environment("dev", "mine.json", tmp_path)[1].options == {"consumer_concurrency": 5}
    with pytest.raises(ConfigurationError, match=r"'stagng' is unknown; .*local-lite, staging. Did you mean staging.$"):
        load_environment("stagng", tmp_path)


def test_an_option_may_be_taken_back():
    """Null is what an optional option has by default."""
    limited = override(DEV, {"table": {"max_write_units": 5}})
    assert override(limited, {"table": {"max_write_units": None}}) == DEV


def test_lite_has_no_options_of_what_it_has_not():
    """Redis, network and consumer; the rest it shares with `dev`."""
    mine, theirs = ({path for path, _, _ in list_options(each)} for each in (LITE, DEV))
    assert mine < theirs
    assert {path.partition(".")[0].partition("_")[0] for path in theirs - mine} == {"consumer", "network", "registry"}


def test_local_follows_the_host():
    """Environment local is `dev` for the machine that runs it, its Redis open; only Linux takes manylinux wheels."""
    server, laptop = build_local(SERVER), build_local(LAPTOP)
    assert (server.target.python_version, server.target.architecture) == ("3.11", "x86_64")
    assert server.target.platform == "x86_64-manylinux_2_28"
    assert (laptop.target.python_version, laptop.target.architecture) == ("3.12", "arm64")
    assert laptop.target.platform == ""
    assert server.model_copy(update={"name": "dev", "target": DEV.target, "registry": DEV.registry}) == DEV
    assert (server.registry.is_encrypted_in_transit, server.registry.is_authenticated) == (False, False)


def test_the_consumer_is_left_the_margin_that_its_handler_keeps():
    """The handler's own margin, which the limit of `run_seconds` repeats, is the same."""
    source = (ROOT / "lambdas" / "consume_reports" / "handler.py").read_text()
    assert f"STOP_MARGIN_MS = {int(_CONSUMER_END_SECONDS * 1000):_}\n" in source
