"""Checks that the account is ready for a deployment, before CloudFormation finds out after minutes.

`python -m infra.account --environment dev` prints the stack's name, and `unprotected` where it is to be deployed
without protection first; or it names each missing thing in a sentence.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from hotpartition_cdk.errors import ConfigurationError
from infra.bundle import ROOT
from infra.config import load_environment
from infra.environments import DEFAULT_ENVIRONMENT, Environment

BOOTSTRAP_VERSION = 6
"""The version that the template of this CDK requires (`requiresBootstrapStackVersion`)."""
LEAST_UNRESERVED = 10
MOST_UNRESERVED = 100
"""Lambda keeps 100 of a quota unreserved, of that of a new account 10 or 50: no call says which before it refuses."""
STUCK = frozenset({"CREATE_FAILED", "DELETE_FAILED", "ROLLBACK_FAILED"})
"""States of a stack that could not be taken back, or deleted, to the end."""

Client = Callable[[str], Any]
"""Opens the client of a service."""


@dataclass(slots=True)
class Findings:
    """Things that are missing, and things that may be."""

    missing: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    is_new: bool = False
    """Whether the stack is yet to be created."""


def look(environment: Environment, client: Client, *, qualifier: str) -> Findings:
    """Look at the account and its region, with the bootstrap's qualifier; a part that may not be read is a doubt."""
    findings = Findings()
    try:
        account = client("sts").get_caller_identity()["Account"]
    except (ClientError, BotoCoreError) as error:
        return Findings([f"no usable AWS credentials and region ({error}): sign in, and set AWS_REGION"])
    region = client("ssm").meta.region_name
    for what, found, asked in (("account", account, environment.account), ("region", region, environment.region)):
        if asked not in (None, found):
            findings.missing.append(
                f"the credentials are of {what} {found}, and {environment.name} belongs into {asked} (option {what})"
            )
    if findings.missing:
        return findings
    place, name = f"aws://{account}/{region}", environment.stack_name
    looks: Mapping[str, Callable[[], None]] = {
        "the bootstrap stack": lambda: _look_at_bootstrap(findings, client("ssm"), place, qualifier),
        "the stack": lambda: _look_at_stack(findings, client("cloudformation"), name),
        "Lambda's concurrency": lambda: _look_at_concurrency(findings, client, environment),
    }
    for what, look_at in looks.items():
        try:
            look_at()
        except (ClientError, BotoCoreError) as error:
            findings.doubts.append(f"{what} could not be looked at ({error})")
    return findings


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


def _look_at_concurrency(findings: Findings, client: Client, environment: Environment) -> None:
    needed = environment.reserved_concurrency
    # The account's figures already include the reservations of existing stacks.
    if not needed or not findings.is_new:
        return
    limit = client("lambda").get_account_settings()["AccountLimit"]
    left = limit["UnreservedConcurrentExecutions"] - needed
    facts = (
        f"{environment.name} reserves a concurrency of {needed}, of which Lambda has {needed + left} unreserved here"
        f" (quota {limit['ConcurrentExecutions']})"
    )
    way_out = (
        "ask for a higher quota (Service Quotas, Lambda, Concurrent executions), or set consumer_concurrency to 0 and"
        " reserve none for writer and reader"
    )
    if left < LEAST_UNRESERVED:
        findings.missing.append(f"{facts}, and must leave {LEAST_UNRESERVED} at least: {way_out}")
    elif left < MOST_UNRESERVED:
        findings.doubts.append(f"{facts}: in some accounts {MOST_UNRESERVED} must be left. If it is refused, {way_out}")


def _look_at_stack(findings: Findings, cloudformation: Any, name: str) -> None:
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        findings.is_new = True
        return
    status = stack["StackStatus"]
    found = f"stack {name} is in {status}"
    # A change set that was never executed, or a creation that was taken back: nothing is there.
    findings.is_new = status in {"REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE"}
    if status in STUCK:
        reason = f" ({stack['StackStatusReason']})" if "StackStatusReason" in stack else ""
        findings.missing.append(
            f"{found}{reason}: remove what is in the way, then `aws cloudformation delete-stack --stack-name {name}`"
        )
    elif status == "UPDATE_ROLLBACK_FAILED":
        findings.missing.append(f"{found}: `aws cloudformation continue-update-rollback --stack-name {name}`")
    elif status.endswith("_IN_PROGRESS") and not findings.is_new:
        findings.missing.append(f"{found}: wait until that has ended")


def main(arguments: Sequence[str]) -> int:
    """Print the stack's name when nothing is missing; sentences go to standard error."""
    parser = argparse.ArgumentParser(prog="python -m infra.account", description=main.__doc__)
    parser.add_argument("--environment", default=DEFAULT_ENVIRONMENT, metavar="NAME")
    given = parser.parse_args(arguments)
    try:
        environment = load_environment(given.environment, ROOT)
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201 - for people
        return 2
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    qualifier = context.get("@aws-cdk/core:bootstrapQualifier", "hnb659fds")
    # boto3 itself does not read this variable, which the CDK's command line does.
    session: Any = boto3.Session(region_name=os.environ.get("AWS_REGION"))
    findings = look(environment, session.client, qualifier=qualifier)
    for doubt in findings.doubts:
        print(f"note: {doubt}", file=sys.stderr)  # noqa: T201 - for people
    for sentence in findings.missing:
        print(f"cannot be deployed: {sentence}", file=sys.stderr)  # noqa: T201 - for people
    if findings.missing:
        return 1
    # A first deployment that fails is taken back, which deletion protection would refuse.
    is_unprotected = findings.is_new and environment.is_protected
    print(environment.stack_name, *(["unprotected"] if is_unprotected else []))  # noqa: T201 - for the Makefile
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
