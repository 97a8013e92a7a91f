"""A rehearsal's steps: each runs the command line, and judges what it left in the account."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import boto3

from infra.bundle import ROOT
from tools.rehearse.account import BOOTSTRAP, Account

REGION = "eu-central-1"
SECRET = "rehearsal"  # noqa: S105 - of an account that does not exist
PLACE = f"aws://123456789012/{REGION}"
TEAM_APP = ROOT / "tools" / "rehearse" / "team_app.py"
TABLE = "AWS::DynamoDB::Table"
LOGS = "AWS::Logs::LogGroup"
OUTPUTS = {"ApiUrl", "OperateFunctionName", "ReadMessagesFunctionName", "TableName", "WriteMessageFunctionName"}
"""The outputs that the documents and `hotpartition` name; with Redis there are two more."""
WITH_REDIS = {"ConsumeReportsFunctionName", "RegistryEndpoint"}

Alter = Callable[[dict[str, Any]], None]
"""Changes a synthesized template: tests break a step on purpose."""


class BrokenError(Exception):
    """A step did not end as the documents say."""


@dataclass
class Step:
    """One step: its name, what came of it, how long it took, and whether it ended as it should."""

    name: str
    said: str = ""
    seconds: float = 0.0
    is_right: bool = True


@dataclass
class Rehearsal:
    """A deployment that is rehearsed: the account, its address, and the steps so far."""

    account: Account
    url: str
    out: Path
    alter: Alter | None = None
    steps: list[Step] = field(default_factory=list)

    def step(self, name: str, run: Callable[[], str]) -> bool:
        """Carry out a step, unless one before it was broken."""
        if not all(step.is_right for step in self.steps):
            return False
        began, step = time.monotonic(), Step(name)
        try:
            step.said = run()
        except BrokenError as error:
            step.said, step.is_right = str(error), False
        step.seconds = round(time.monotonic() - began, 1)
        self.steps.append(step)
        print(f"{'ok ' if step.is_right else 'NOT'} {step.seconds:6.1f} s  {name}: {step.said}", flush=True)
        return step.is_right

    def run(self, *command: str) -> tuple[int, str]:
        """Run a program of the project against the account; returns its status and all that it wrote."""
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAREHEARSAL",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "CI": "true",
            # The CDK's own rules and cdk-nag take many seconds; they judge the stack elsewhere.
            "CDK_VALIDATION": "false",
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        }
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def cdk(self, *arguments: str) -> tuple[int, str]:
        """Run the CDK's command line."""
        return self.run("npx", "cdk", *arguments)

    def client(self, service: str) -> Any:
        """Open a client of the account."""
        session: Any = boto3.Session()
        return session.client(
            service, REGION, endpoint_url=self.url, aws_access_key_id="rehearsal", aws_secret_access_key=SECRET
        )

    def synthesize(self, name: str, contexts: Mapping[str, object], app: Path = ROOT / "app.py") -> Path:
        """Synthesize an app into a folder of its own."""
        folder = self.out / "assemblies" / name
        given = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in contexts.items()]
        pairs = [part for each in given for part in ("-c", each)]
        status, said = self.run(sys.executable, str(app), *pairs, "-o", str(folder))
        require(status == 0, f"{app.name} could not be synthesized: {last_line(said)}")
        if self.alter is not None:
            (file,) = folder.glob("*.template.json")
            template = json.loads(file.read_text())
            self.alter(template)
            file.write_text(json.dumps(template))
        return folder

    def deploy(self, folder: Path) -> str:
        """Deploy an assembly, as `make deploy` does; returns what the command line wrote."""
        status, said = self.cdk("deploy", "--require-approval", "never", "--app", str(folder))
        require(status == 0, f"cdk deploy ended with status {status}: {last_line(said)}")
        return said

    def bootstrap(self) -> str:
        """Bootstrap the account."""
        status, said = self.cdk("bootstrap", PLACE)
        require(status == 0 and self.status(BOOTSTRAP) == "CREATE_COMPLETE", f"cdk bootstrap: {last_line(said)}")
        return f"{PLACE} has its bootstrap stack"

    def status(self, stack: str) -> str:
        """Return a stack's status."""
        (found,) = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        return str(found["StackStatus"])

    def outputs(self, stack: str) -> dict[str, str]:
        """Return a stack's outputs."""
        (found,) = self.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}

    def copy(self) -> dict[tuple[str, str], Any]:
        """Copy what exists, to compare with later."""
        return {key: deepcopy(made.properties) for key, made in self.account.made.items()}


def require(is_right: bool, sentence: str) -> None:
    """Break the step with a sentence, unless it is right."""
    if not is_right:
        raise BrokenError(sentence)


def last_line(text: str) -> str:
    """Find the last line that says something, an error before all."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "❌" in line or "cannot" in line]
    return (errors or lines or [""])[-1]


def rehearse_environment(rehearsal: Rehearsal, name: str) -> None:
    """Rehearse an environment of this project, from an account in which nothing is."""
    _Environment(rehearsal, name).rehearse()


class _Environment:
    """The steps of one environment; each sees what those before it left."""

    def __init__(self, rehearsal: Rehearsal, name: str) -> None:
        self.rehearsal, self.name = rehearsal, name
        self.stack = f"hotpartition-{name}"
        self.is_kept = name == "prod"
        self.options: dict[str, object] = {"alarms": {"is_silent": True}} if self.is_kept else {}

    def rehearse(self) -> None:
        """Carry out all steps."""
        for sentence, run in (
            ("a first deployment fails in the middle", self.fail_first),
            ("the look before it is repeated", self.look),
            ("deploy", self.deploy),
            ("hotpartition check, as far as it can go", self.check),
            ("deploy again, without a change", self.deploy_again),
            ("update a setting and an option", self.update),
            ("an update fails in the middle", self.fail_update),
            ("a stack of another name beside it", self.rename),
            ("destroy", self.destroy),
        ):
            if not self.rehearsal.step(f"{self.name}: {sentence}", run):
                return

    def synthesize(self, what: str, settings: Mapping[str, object] | None = None, **options: object) -> Path:
        contexts = {"environment": self.name, "options": {**self.options, **options}, "settings": settings or {}}
        return self.rehearsal.synthesize(f"{self.name}-{what}", contexts)

    def fail_first(self) -> str:
        self.rehearsal.account.failing = "AWS::ApiGatewayV2::Stage"
        folder = self.synthesize("first", is_protected=False)
        status, said = self.rehearsal.cdk("deploy", "--require-approval", "never", "--app", str(folder))
        require(status != 0, "cdk deploy ended with status 0 although a resource failed")
        require("as the rehearsal asked" in said, f"cdk deploy does not say what failed: {last_line(said)}")
        found = self.rehearsal.status(self.stack)
        require(found == "ROLLBACK_COMPLETE", f"the stack is in {found}, not in ROLLBACK_COMPLETE")
        left = self.rehearsal.account.count()
        require(not left, f"it left {left} behind")
        return "the stack is in ROLLBACK_COMPLETE, nothing was left behind"

    def look(self) -> str:
        status, said = self.rehearsal.run(sys.executable, "-m", "infra.account", "--environment", self.name)
        expected = f"{self.stack} unprotected" if self.is_kept else self.stack
        require(status == 0 and expected in said.splitlines(), f"the look says: {last_line(said)}")
        return f"make deploy goes on{', without protection at first' if self.is_kept else ''}"

    def deploy(self) -> str:
        self.rehearsal.deploy(self.rehearsal.out / "assemblies" / f"{self.name}-first")
        self.folder = self.synthesize("stack")
        if self.is_kept:
            self.rehearsal.deploy(self.folder)
        template = _template(self.folder)
        missing = len(template["Resources"]) - len(self.rehearsal.account.made)
        require(missing == 0, f"the account has {missing} resources less than the template")
        outputs = self.rehearsal.outputs(self.stack)
        expected = OUTPUTS | (WITH_REDIS if self.name != "lite" else set())
        require(set(outputs) == expected, f"outputs missing or too many: {sorted(set(outputs) ^ expected)}")
        (table,) = self.rehearsal.account.names(TABLE)
        require(outputs["TableName"] == table, f"the output TableName is {outputs['TableName']}, the table {table}")
        require("Table" in template["Resources"], "the table's logical id is not Table: an upgrade would replace it")
        return f"{len(template['Resources'])} resources, {len(outputs)} outputs"

    def check(self) -> str:
        command = str(Path(sys.executable).with_name("hotpartition"))
        status, said = self.rehearsal.run(command, "check", "--stack", self.stack, "--wait", "0")
        require("Traceback" not in said, f"hotpartition check ends with a traceback: {last_line(said)}")
        require(status != 0, "hotpartition check succeeds, and no function runs here")
        return f"it found the stack, and says that its functions do not run (status {status})"

    def deploy_again(self) -> str:
        before = self.rehearsal.copy()
        said = self.rehearsal.deploy(self.folder)
        require("no changes" in said, f"cdk deploy does not say that nothing changes: {last_line(said)}")
        require(self.rehearsal.copy() == before, "something changed")
        return "nothing happens"

    def update(self) -> str:
        before = self.rehearsal.copy()
        folder = self.synthesize("changed", {"max_shard_count": 64}, log_retention_days=30)
        self.rehearsal.deploy(folder)
        after = self.rehearsal.copy()
        require(set(before) == set(after), f"replaced: {sorted(set(before) ^ set(after))}")
        days = {properties["RetentionInDays"] for (type_, _), properties in after.items() if type_ == LOGS}
        require(days == {30}, f"log groups keep their lines for {days} days")
        changed = [type_ for type_, name in after if after[type_, name] != before[type_, name]]
        return f"changed in place: {', '.join(sorted(set(changed)))}"

    def fail_update(self) -> str:
        before = self.rehearsal.copy()
        folder = self.synthesize("failing", {"max_shard_count": 32}, api={"cors_origins": ["https://chat.example.com"]})
        template = _template(folder)
        template["Resources"]["ZFailing"] = {"Type": "AWS::SSM::Parameter", "Properties": {"Value": "x"}}
        _file(folder).write_text(json.dumps(template))
        self.rehearsal.account.failing = "AWS::SSM::Parameter"
        status, _ = self.rehearsal.cdk("deploy", "--require-approval", "never", "--app", str(folder))
        found = self.rehearsal.status(self.stack)
        require(status != 0 and found == "UPDATE_ROLLBACK_COMPLETE", f"status {status}, the stack is in {found}")
        require(self.rehearsal.copy() == before, "it did not come back to what it was")
        self.rehearsal.deploy(self.folder)
        return "taken back, and repeated"

    def rename(self) -> str:
        before = self.rehearsal.copy()
        folder = self.synthesize("renamed", name_suffix="next", is_protected=False)
        self.rehearsal.deploy(folder)
        require(before.items() <= self.rehearsal.copy().items(), "the first stack's resources changed")
        require(len(self.rehearsal.account.names(TABLE)) == 2, "the new stack has no table of its own")
        self.destroy_folder(folder)
        left = set(self.rehearsal.copy()) - set(before)
        kept = {type_ for type_, _ in left}
        require(kept == ({TABLE, LOGS} if self.is_kept else set()), f"destroyed again, it left {sorted(left)}")
        for key in left:
            del self.rehearsal.account.made[key]
        return "the first one keeps all it has"

    def destroy(self) -> str:
        if self.is_kept:
            status, _ = self.rehearsal.cdk("destroy", "--force", "--app", str(self.folder))
            require(self.rehearsal.status(self.stack) != "DELETE_COMPLETE" and status != 0, "prod is not protected")
            self.rehearsal.client("cloudformation").update_termination_protection(
                StackName=self.stack, EnableTerminationProtection=False
            )
        self.destroy_folder(self.folder)
        left = self.rehearsal.account.count()
        logs = sum(each["Type"] == LOGS for each in _template(self.folder)["Resources"].values())
        require(left == ({TABLE: 1, LOGS: logs} if self.is_kept else {}), f"left behind: {left}")
        return f"left: {left or 'nothing'}"

    def destroy_folder(self, folder: Path) -> None:
        status, said = self.rehearsal.cdk("destroy", "--force", "--app", str(folder))
        require(status == 0, f"cdk destroy ended with status {status}: {last_line(said)}")


TEAM_STEPS = {
    "their table, before": {},
    "HotPartition added": {"hot": "yes"},
    "options changed": {"hot": "yes", "size": "larger"},
    "the construct renamed": {"hot": "yes", "size": "larger", "id": "Renamed"},
    "taken away": {},
}
"""An application of another team with a table of its own, from deployment to deployment."""


def rehearse_team(rehearsal: Rehearsal) -> None:
    """Rehearse an application of another team: its table survives each step, and the journal all after the second."""
    for number, name in enumerate(TEAM_STEPS):
        if not rehearsal.step(f"team: {name}", partial(_deploy_team, rehearsal, name, has_journal=number > 0)):
            return
    rehearsal.step("team: added again", partial(_add_again, rehearsal))


def _deploy_team(rehearsal: Rehearsal, name: str, *, has_journal: bool) -> str:
    before = rehearsal.copy()
    rehearsal.deploy(rehearsal.synthesize(f"team-{name.replace(' ', '-')}", TEAM_STEPS[name], TEAM_APP))
    after = rehearsal.copy()
    theirs = (TABLE, "readings")
    require(theirs in after and before.get(theirs, after[theirs]) == after[theirs], "their table is gone or changed")
    expected = ["hp-routes-readings", "readings"] if has_journal else ["readings"]
    tables = rehearsal.account.names(TABLE)
    require(tables == expected, f"the tables are {tables}, not {expected}")
    return f"tables: {', '.join(tables)}; {len(after)} resources"


def _add_again(rehearsal: Rehearsal) -> str:
    """The journal that was left behind is in the way: the deployment fails instead of making an empty one."""
    folder = rehearsal.synthesize("team-again", {"hot": "yes"}, TEAM_APP)
    status, said = rehearsal.cdk("deploy", "--require-approval", "never", "--app", str(folder))
    require(status != 0 and "hp-routes-readings already exists" in said, f"status {status}: {last_line(said)}")
    require("readings" in rehearsal.account.names(TABLE), "their table is gone")
    return "the journal that was left behind is in the way, as the documents say"


def _file(folder: Path) -> Path:
    (file,) = folder.glob("*.template.json")
    return file


def _template(folder: Path) -> dict[str, Any]:
    template: dict[str, Any] = json.loads(_file(folder).read_text())
    return template
