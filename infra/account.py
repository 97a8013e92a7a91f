"""Looks whether the account has what a deployment needs, before CloudFormation finds out after minutes.

`python -m infra.account --environment dev` prints the stack's name, or says in a sentence each what is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from hotpartition_cdk.configuration import ENGINE, ENGINE_VERSION, ZONES
from hotpartition_cdk.errors import ConfigurationError
from infra.bundle import ROOT
from infra.config import load_environment
from infra.environments import DEFAULT_ENVIRONMENT, AdaptiveEnvironment, Environment

BOOTSTRAP_VERSION = 6
"""What the template of this CDK asks for (`requiresBootstrapStackVersion`)."""
LEAST_UNRESERVED = 10
MOST_UNRESERVED = 100
"""Lambda keeps 100 of a quota unreserved, of that of a new account 10 or 50: no call says which before it refuses."""

Client = Callable[[str], Any]
"""Opens the client of a service."""


@dataclass(slots=True)
class Findings:
    """What is missing, and what might be."""

    missing: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def look(environment: Environment, client: Client, *, qualifier: str) -> Findings:
    """Look at the account and its region, with the bootstrap's qualifier; what may not be looked at is a doubt."""
    findings = Findings()
    try:
        identity = client("sts").get_caller_identity()
    except (ClientError, BotoCoreError) as error:
        findings.missing.append(f"no usable AWS credentials and region ({error}): sign in, and set AWS_REGION")
        return findings
    place = f"aws://{identity['Account']}/{client('ssm').meta.region_name}"
    _try(findings, "the bootstrap stack", lambda: _look_at_bootstrap(findings, client("ssm"), place, qualifier))
    if not isinstance(environment, AdaptiveEnvironment):
        return findings
    _try(findings, "Lambda's concurrency", lambda: _look_at_concurrency(findings, client, environment))
    _try(findings, "the availability zones", lambda: _look_at_zones(findings, client("ec2"), environment))
    _try(findings, "ElastiCache's offer", lambda: _look_at_cache(findings, client("elasticache"), environment))
    return findings


def _try(findings: Findings, what: str, look_at: Callable[[], None]) -> None:
    try:
        look_at()
    except (ClientError, BotoCoreError) as error:
        findings.doubts.append(f"{what} could not be looked at ({error})")


def _look_at_bootstrap(findings: Findings, ssm: Any, place: str, qualifier: str) -> None:
    try:
        found = ssm.get_parameter(Name=f"/cdk-bootstrap/{qualifier}/version")["Parameter"]["Value"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ParameterNotFound":
            raise
        findings.missing.append(f"{place} is not bootstrapped: run `npx cdk bootstrap {place}`")
        return
    if int(found) < BOOTSTRAP_VERSION:
        findings.missing.append(
            f"the bootstrap stack of {place} has version {found}, {BOOTSTRAP_VERSION} is needed:"
            f" run `npx cdk bootstrap {place}`"
        )


def _look_at_concurrency(findings: Findings, client: Client, environment: AdaptiveEnvironment) -> None:
    needed = environment.reserved_concurrency
    # What a stack that exists has reserved is in the account's figures already.
    if needed is None or _exists(client("cloudformation"), environment.stack_name):
        return
    limit = client("lambda").get_account_settings()["AccountLimit"]
    left = limit["UnreservedConcurrentExecutions"] - needed
    facts = (
        f"the consumer reserves a concurrency of {needed}, of which Lambda has {needed + left} unreserved here"
        f" (quota {limit['ConcurrentExecutions']})"
    )
    way_out = "ask for a higher quota (Service Quotas, Lambda, Concurrent executions), or set consumer_concurrency to 0"
    if left < LEAST_UNRESERVED:
        findings.missing.append(f"{facts}, and must leave {LEAST_UNRESERVED} at least: {way_out}")
    elif left < MOST_UNRESERVED:
        findings.doubts.append(f"{facts}: in some accounts {MOST_UNRESERVED} must be left. If it is refused, {way_out}")


def _exists(cloudformation: Any, stack_name: str) -> bool:
    try:
        cloudformation.describe_stacks(StackName=stack_name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return False
    return True


def _look_at_zones(findings: Findings, ec2: Any, environment: AdaptiveEnvironment) -> None:
    found = ec2.describe_availability_zones(Filters=[{"Name": "zone-type", "Values": ["availability-zone"]}])
    names = sorted(zone["ZoneName"] for zone in found["AvailabilityZones"] if zone["State"] == "available")
    asked = environment.network.availability_zones
    unknown = [zone for zone in asked if zone not in names]
    if unknown:
        findings.missing.append(
            f"network.availability_zones names {', '.join(unknown)}, and this account has {', '.join(names)} here"
        )
    elif len(names) < ZONES:
        findings.missing.append(f"this account has {len(names)} availability zones here, and {ZONES} are needed")


def _look_at_cache(findings: Findings, elasticache: Any, environment: AdaptiveEnvironment) -> None:
    node_type = environment.registry.node_type
    versions = elasticache.describe_cache_engine_versions(Engine=ENGINE, EngineVersion=ENGINE_VERSION)
    if not versions["CacheEngineVersions"]:
        findings.missing.append(f"ElastiCache has no Valkey {ENGINE_VERSION} in this region")
    # The only call that lists node types. A type could be there and have no reservations.
    offered = elasticache.describe_reserved_cache_nodes_offerings(CacheNodeType=node_type, MaxRecords=20)
    if not offered["ReservedCacheNodesOfferings"]:
        findings.doubts.append(f"ElastiCache may not have {node_type} in this region (registry.node_type)")


def main(arguments: Sequence[str]) -> int:
    """Print the stack's name when nothing is missing; sentences go to standard error."""
    parser = argparse.ArgumentParser(prog="python -m infra.account", description=main.__doc__)
    parser.add_argument("--environment", default=DEFAULT_ENVIRONMENT, metavar="NAME")
    try:
        environment = load_environment(parser.parse_args(arguments).environment, ROOT)
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201 - for people
        return 2
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    qualifier = context.get("@aws-cdk/core:bootstrapQualifier", "hnb659fds")
    session: Any = boto3.Session()
    findings = look(environment, session.client, qualifier=qualifier)
    for doubt in findings.doubts:
        print(f"note: {doubt}", file=sys.stderr)  # noqa: T201 - for people
    for sentence in findings.missing:
        print(f"cannot be deployed: {sentence}", file=sys.stderr)  # noqa: T201 - for people
    if findings.missing:
        return 1
    print(environment.stack_name)  # noqa: T201 - for the Makefile
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
