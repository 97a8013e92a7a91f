"""Refuses wrong arguments while synthesizing, in one sentence each: AWS would do so minutes later, or never."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from constructs import Construct, IConstruct

from hotpartition.table.sharded_table import DEFAULT_BUDGET_MS
from hotpartition_cdk.configuration import CONSUMER, IN_BAND, LONGEST_NAME, AlarmOptions, CommonOptions
from hotpartition_cdk.errors import ConfigurationError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""ElastiCache stores the ids of users in lower case, and with IAM a user's name is its id (CreateUser)."""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""The runtimes that the library and its packages support."""

_CLAIM = "HotPartition"
"""Of what is made below a table and a function; where it is, a HotPartition has them."""


def check_name(name: str, place: str) -> None:
    """Check the name after which alarms, Redis users, dashboard and metrics are called."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigurationError(
            f"{place} has the name {name!r}, after which Redis users are called: give small letters, digits and single"
            f" hyphens between, a letter first, at most {LONGEST_NAME} characters"
        )


def check_receiver(options: CommonOptions, place: str) -> None:
    """Check that the alarms of a stack whose data outlives it have a receiver."""
    alarms: AlarmOptions = options.alarms
    if options.is_data_retained and alarms.email is None and alarms.topic_arn is None and not alarms.is_silent:
        raise ConfigurationError(
            f"the alarms of {place} reach nobody: give option alarms.email or alarms.topic_arn, or set alarms.is_silent"
        )


_KINDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "table": (("table_arn",), "an aws_dynamodb table, such as Table.from_table_name(...)"),
    "vpc": (("select_subnets",), "an aws_ec2 VPC, such as Vpc.from_lookup(...)"),
    "registry": (("admit",), "a Registry, such as that of another HotPartition: first.registry"),
    "journal": (("wiring",), "a Journal, such as JournalTable(...).journal()"),
    "options": (("changed", "items"), "SMALL, PRODUCTION, or changes by name"),
    "settings": (("items",), "settings by name"),
}
"""Arguments: what a right one has, one of these, and what to give."""


def check_kinds(place: str, given: Mapping[str, object], lists: Mapping[str, object]) -> None:
    """Check that an argument is of its kind, and a list a list: a text would be taken for a list of letters."""
    for name, value in given.items():
        has, wanted = _KINDS[name]
        if not any(hasattr(value, each) for each in has):
            raise ConfigurationError(f"{place} is given {value!r} as {name}=: give {wanted}")
    for name, value in lists.items():
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigurationError(f"{place} is given {value!r} as {name}=: give a list, such as {name}=[...]")
    if not all(isinstance(each, str) for each in cast("Sequence[object]", lists["indexes"])):
        raise ConfigurationError(f"{place} is given {lists['indexes']!r} as indexes=: give their names")


def check_table(scope: Construct, table: dynamodb.ITable, indexes: Sequence[str], *, holds_routes: bool) -> None:
    """Check the table's account and region, its keys and its indexes, as far as they are known here."""
    stack, place = cdk.Stack.of(scope), table.node.path
    if not cdk.Token.is_unresolved(table.table_arn):
        _, _, _, region, account, _ = table.table_arn.split(":", 5)
        for given, own in ((account, stack.account), (region, stack.region)):
            if given != own and not cdk.Token.is_unresolved(own):
                raise ConfigurationError(
                    f"{place} is a table of {account} in {region}, and {scope.node.path} of {stack.account} in"
                    f" {stack.region}: functions would look for the table beside themselves. Put both in one place"
                )
    schema = _read_schema(table)
    if schema is None:
        return
    if len(schema.keys) < 2:
        raise ConfigurationError(
            f"{place} has no sort key, so each of its partition keys holds one item: there is nothing to spread"
        )
    hash_key, sort_key = schema.keys
    if schema.types[hash_key] != "S":
        raise ConfigurationError(
            f"the partition key {hash_key} of {place} is of type {schema.types[hash_key]}, and a shard's number can be"
            " added to texts only: give a table whose partition key is of type S"
        )
    if len(schema.regions) > 1:
        raise ConfigurationError(
            f"{place} has replicas in {', '.join(schema.regions)}, and two regions that write would each raise by"
            " themselves: give a table of one region"
        )
    if holds_routes:
        _check_routes(place, schema, sort_key)
    unknown = [name for name in indexes if name not in schema.indexes]
    if unknown:
        has = f"its indexes are {', '.join(schema.indexes)}" if schema.indexes else "it has none"
        raise ConfigurationError(
            f"{place} has no index {', '.join(unknown)}; {has}: correct indexes=, or add the index before"
            f" {scope.node.path}"
        )


def _check_routes(place: str, schema: _Schema, sort_key: str) -> None:
    """Check that routing items can lie among the table's own."""
    inverted = [name for name, key in schema.indexes.items() if key == sort_key]
    if inverted:
        raise ConfigurationError(
            f"the index {inverted[0]} of {place} has the table's sort key {sort_key} as its partition key, and all"
            " routing items would lie under one key of it: give journal=JournalTable(...).journal()"
        )


@dataclass(frozen=True, slots=True)
class _Schema:
    """A table's keys, partition key first; types of attributes; indexes with their partition keys; regions."""

    keys: list[str]
    types: dict[str, str]
    indexes: dict[str, str]
    regions: list[str]


def _read_schema(table: dynamodb.ITable) -> _Schema | None:
    """Read what a table is made with; None: it is imported."""
    resource: Any = table.node.default_child
    if not isinstance(resource, dynamodb.CfnTable | dynamodb.CfnGlobalTable):
        return None
    resolve = cdk.Stack.of(table).resolve
    replicas = resolve(resource.replicas) if isinstance(resource, dynamodb.CfnGlobalTable) else ()
    keys = _keys(resolve(resource.key_schema))
    found = [*(resolve(resource.global_secondary_indexes) or ()), *(resolve(resource.local_secondary_indexes) or ())]
    return _Schema(
        [keys[kind] for kind in ("HASH", "RANGE") if kind in keys],
        {each["attributeName"]: each["attributeType"] for each in resolve(resource.attribute_definitions) or ()},
        {each["indexName"]: _keys(each["keySchema"])["HASH"] for each in found},
        [str(each["region"]) for each in replicas],
    )


def _keys(schema: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {each["keyType"]: each["attributeName"] for each in schema}


def claim_table(scope: Construct, table: dynamodb.ITable, detection: str) -> None:
    """Take a table for a HotPartition: two consumers would raise past one another, from two journals.

    Only functions that find hot keys in band may be given to several: that makes nothing.
    """
    refused = (CONSUMER, IN_BAND) if detection == CONSUMER else (CONSUMER,)
    places: list[tuple[IConstruct, str]] = [(table, _CLAIM)]
    if not cdk.Token.is_unresolved(table.table_name):
        places.append((cdk.Stack.of(scope), f"{_CLAIM}-{table.table_name}"))
    for place, id_ in places:
        if any(place.node.try_find_child(f"{id_}-{other}") for other in refused):
            raise ConfigurationError(
                f"{scope.node.path} is the second HotPartition of the table {table.node.path}: a table has one journal,"
                " so give its functions to the first (add_function, add_reader)"
            )
        if place.node.try_find_child(f"{id_}-{detection}") is None:
            Construct(place, f"{id_}-{detection}")  # type: ignore[arg-type]


def claim_function(scope: Construct, function: lambda_.Function) -> Construct:
    """Make the place below a function for the constructs that a HotPartition makes for it.

    Raises:
        ConfigurationError: it is not a function of this app, or another HotPartition has it.
    """
    if not isinstance(function, lambda_.Function):
        raise ConfigurationError(
            f"{scope.node.path} is given {type(function).__name__} as a function, which nothing can be added"
            " to: give the aws_lambda.Function itself, not an alias, a version or an imported one"
        )
    if function.node.try_find_child(_CLAIM) is not None:
        raise ConfigurationError(
            f"{function.node.path} was given to a HotPartition already, and its environment says which table is"
            " adaptive: for a second one give adaptive() or in_band() its settings as arguments"
        )
    return Construct(function, _CLAIM)


def check_client(function: lambda_.Function) -> None:
    """Check that the library runs on a function's Python, and that its calls end before Lambda stops it."""
    runtime, place = function.runtime.name, function.node.path
    if runtime != lambda_.Runtime.FROM_IMAGE.name and runtime.removeprefix("python") not in PYTHONS:
        allowed = ", ".join(f"python{each}" for each in PYTHONS)
        raise ConfigurationError(
            f"{place} runs on {runtime}, and the library does on {allowed}: choose another runtime"
        )
    resource: Any = function.node.default_child
    # Lambda stops a function after 3 s where nothing is said.
    seconds = resource.timeout or 3
    if not cdk.Token.is_unresolved(seconds) and seconds * 1000 <= DEFAULT_BUDGET_MS:
        raise ConfigurationError(
            f"{place} is stopped after {seconds:g} s, and one call of ShardedTable may try for"
            f" {DEFAULT_BUDGET_MS / 1000:g} s when DynamoDB refuses: give it a longer timeout"
        )


def check_environment(function: lambda_.Function, names: Collection[str]) -> None:
    """Check that a function's environment has none of these variables: the values there would be replaced."""
    resource: Any = function.node.default_child
    # The resource's own property shows Python an empty environment: it is made at synthesis. An inspector gets it.
    inspector = cdk.TreeInspector()
    resource.inspect(inspector)
    properties = cdk.Stack.of(function).resolve(inspector.attributes)["aws:cdk:cloudformation:props"]
    given = sorted(set(names) & set((properties.get("environment") or {}).get("variables") or {}))
    if given:
        raise ConfigurationError(
            f"{function.node.path} has {', '.join(given)} in its environment already, which HotPartition sets: leave it"
            " out there, and give settings= to HotPartition"
        )


def check_policies(function: lambda_.Function) -> None:
    """Check that a right just granted stands in a policy: an immutable role drops it silently."""
    role = function.role
    if role is None or not any(role.node.try_find_child(id_) for id_ in ("DefaultPolicy", "Policy")):
        raise ConfigurationError(
            f"the role of {function.node.path} accepts no policy (imported with mutable=False, or of another account):"
            " give a role that does"
        )


def check_stacks(scope: Construct, function: lambda_.Function, needed: Mapping[str, IConstruct]) -> None:
    """Check that a function's stack does not have to be deployed both before and after that of a HotPartition."""
    stack = cdk.Stack.of(function)
    if stack is cdk.Stack.of(scope):
        return
    for name, construct in needed.items():
        if construct.node.default_child is not None and cdk.Stack.of(construct) is stack:
            raise ConfigurationError(
                f"{function.node.path} and the {name} {construct.node.path} are in {stack.node.path}, which would need"
                f" {scope.node.path} and be needed by it: put {scope.node.path} into that stack"
            )


def check_vpc(scope: Construct, function: lambda_.Function, vpc: ec2.IVpc) -> None:
    """Check that a function in a VPC is in the registry's, as far as its security groups say."""
    for group in function.connections.security_groups:
        resource = group.node.default_child
        if isinstance(resource, ec2.CfnSecurityGroup) and resource.vpc_id not in (None, vpc.vpc_id):
            raise ConfigurationError(
                f"{function.node.path} runs in another VPC than the registry of {scope.node.path}, which it cannot"
                " reach: put both into one"
            )
