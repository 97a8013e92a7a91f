"""A rehearsal's steps: each runs the command line, and judges what it left in the account."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import boto3

from infra.bundle import ROOT
from tools.rehearse.account import BOOTSTRAP, REGION, Account

SECRET = "rehearsal"  # noqa: S105 - of an account that does not exist
PLACE = f"aws://123456789012/{REGION}"
TEAM = ROOT / "examples" / "sensors"
"""An application of another team, with a table of its own."""
TABLE = "AWS::DynamoDB::Table"
LOGS = "AWS::Logs::LogGroup"
REDIS = "AWS::ElastiCache::ReplicationGroup"
OUTPUTS = {"ApiUrl", "OperateFunctionName", "ReadMessagesFunctionName", "TableName", "WriteMessageFunctionName"}
"""The outputs that the documents and `hotpartition` name; with Redis there are two more."""
WITH_REDIS = {"ConsumeReportsFunctionName", "RegistryEndpoint"}
FAILS = "as the rehearsal asked"
"""Why a resource fails on demand."""


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
    steps: list[Step] = field(default_factory=list)

    def step(self, name: str, run: Callable[[], str]) -> None:
        """Carry out a step, unless one before it was broken."""
        if not all(step.is_right for step in self.steps):
            return
        began, step = time.monotonic(), Step(name)
        try:
            step.said = run()
        except BrokenError as error:
            step.said, step.is_right = str(error), False
        step.seconds = round(time.monotonic() - began, 1)
        self.steps.append(step)
        print(f"{'ok ' if step.is_right else 'NOT'} {step.seconds:6.1f} s  {name}: {step.said}", flush=True)

    def run(self, *command: str, **more: str) -> tuple[int, str]:
        """Run a program against the account, with more of an environment; returns its status and all that it wrote."""
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
            **more,
        }
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def cdk(self, command: str, folder: Path) -> tuple[int, str]:
        """Run the CDK's command line on an assembly, without questions."""
        consent = ("--force",) if command == "destroy" else ("--require-approval", "never")
        return self.run("npx", "cdk", command, *consent, "--app", str(folder))

    @property
    def cloudformation(self) -> Any:
        """A client of the account."""
        session: Any = boto3.Session("rehearsal", SECRET, region_name=REGION)
        return session.client("cloudformation", endpoint_url=self.url)

    def synthesize(self, name: str, context: Mapping[str, object], app: Path = ROOT / "app.py") -> Path:
        """Synthesize an app into a folder of its own, with its context as the CDK's command line passes it."""
        folder = self.out / "assemblies" / name
        asked = {"CDK_CONTEXT_JSON": json.dumps(context), "CDK_OUTDIR": str(folder)}
        status, said = self.run(sys.executable, str(app), **asked)
        require(status == 0, f"{app.name} could not be synthesized: {last_line(said)}")
        return folder

    def order(self, command: str, folder: Path, *, reason: str = "") -> str:
        """Have an assembly deployed or destroyed; with a reason it has to fail, and say it. Returns what was said."""
        status, said = self.cdk(command, folder)
        is_right = (status != 0) is bool(reason) and reason in said
        require(is_right, f"cdk {command} ended with status {status}: {last_line(said)}")
        return said

    def bootstrap(self) -> str:
        """Bootstrap the account."""
        status, said = self.run("npx", "cdk", "bootstrap", PLACE)
        found = self.stack(BOOTSTRAP)["StackStatus"] if status == 0 else "missing"
        require(found == "CREATE_COMPLETE", f"cdk bootstrap: {last_line(said)}")
        return f"{PLACE} has its bootstrap stack"

    def stack(self, name: str) -> dict[str, Any]:
        """Describe a stack."""
        (found,) = self.cloudformation.describe_stacks(StackName=name)["Stacks"]
        return dict(found)

    def copy(self) -> dict[tuple[str, str], Any]:
        """Copy what exists, by type and name, to compare with later."""
        return {key: deepcopy(made.properties) for key, made in self.account.made.items()}

    def tables(self) -> dict[str, Any]:
        """Return the tables that exist, by name."""
        return {name: properties for (type_, name), properties in self.copy().items() if type_ == TABLE}


def require(is_right: bool, sentence: str) -> None:
    """Break the step with a sentence, unless it is right."""
    if not is_right:
        raise BrokenError(sentence)


def last_line(text: str) -> str:
    """Find the last line that says something, an error before all."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "❌" in line or "cannot" in line]
    return (errors or lines or [""])[-1]


class _Environment(Rehearsal):
    """An environment of this project, in an account in which nothing is; each step sees what those before it left."""

    def rehearse(self, name: str) -> None:
        self.name, self.stack_name = name, f"hotpartition-{name}"
        self.is_kept = name == "prod"
        self.options: dict[str, object] = {"alarms": {"is_silent": True}} if self.is_kept else {}
        for sentence, run in (
            ("a first deployment fails in the middle", self.fail_first),
            ("the look before it is repeated", self.look),
            ("deploy", self.deploy),
            ("hotpartition check, as far as it can go", self.check),
            ("deploy again, without a change", self.deploy_again),
            ("update a setting and an option", self.update),
            ("an update fails in the middle", self.fail_update),
            ("a stack of another name beside it", self.rename),
            ("a KMS key of one's own", self.change_key),
            ("destroy", self.destroy),
        ):
            self.step(f"{name}: {sentence}", run)

    def changed(self, what: str, settings: Mapping[str, object] | None = None, **options: object) -> Path:
        """Synthesize the environment with other settings and options."""
        context = {"environment": self.name, "options": {**self.options, **options}, "settings": settings or {}}
        return self.synthesize(f"{self.name}-{what}", context)

    def expect(self, status: str) -> None:
        found = self.stack(self.stack_name)["StackStatus"]
        require(found == status, f"the stack is in {found}, not in {status}")

    def fail_first(self) -> str:
        self.account.failing = "AWS::ApiGatewayV2::Stage"
        self.order("deploy", self.changed("first", is_protected=False), reason=FAILS)
        self.expect("ROLLBACK_COMPLETE")
        left = self.copy()
        require(not left, f"it left {sorted(left)} behind")
        return "the stack is in ROLLBACK_COMPLETE, nothing was left behind"

    def look(self) -> str:
        status, said = self.run(sys.executable, "-m", "infra.account", "--environment", self.name)
        expected = f"{self.stack_name} unprotected" if self.is_kept else self.stack_name
        require(status == 0 and expected in said.splitlines(), f"the look says: {last_line(said)}")
        return f"make deploy goes on{', without protection at first' if self.is_kept else ''}"

    def deploy(self) -> str:
        self.order("deploy", self.out / "assemblies" / f"{self.name}-first")
        self.folder = self.changed("stack")
        if self.is_kept:
            self.order("deploy", self.folder)
        template = _template(self.folder)
        missing = len(template["Resources"]) - len(self.account.made)
        require(missing == 0, f"the account has {missing} resources less than the template")
        outputs = {each["OutputKey"]: each["OutputValue"] for each in self.stack(self.stack_name)["Outputs"]}
        expected = OUTPUTS | (WITH_REDIS if self.name != "lite" else set())
        require(set(outputs) == expected, f"outputs missing or too many: {sorted(set(outputs) ^ expected)}")
        tables, named = [*self.tables()], outputs["TableName"]
        require(tables == [named], f"the output TableName is {named}, tables are {tables}")
        require("Table" in template["Resources"], "the table's logical id is not Table: an upgrade would replace it")
        return f"{len(template['Resources'])} resources, {len(outputs)} outputs"

    def check(self) -> str:
        command = str(Path(sys.executable).with_name("hotpartition"))
        status, said = self.run(command, "check", "--stack", self.stack_name, "--wait", "0")
        require("Traceback" not in said, f"hotpartition check ends with a traceback: {last_line(said)}")
        # Without the stack it would be 3.
        require(status == 1, f"hotpartition check ends with status {status}: {last_line(said)}")
        return "it found the stack, and says that its functions do not run (status 1)"

    def deploy_again(self) -> str:
        before = self.copy()
        said = self.order("deploy", self.folder)
        require("no changes" in said, f"cdk deploy does not say that nothing changes: {last_line(said)}")
        require(self.copy() == before, "something changed")
        return "nothing happens"

    def update(self) -> str:
        before = self.copy()
        self.order("deploy", self.changed("changed", {"max_shard_count": 64}, log_retention_days=30))
        after = self.copy()
        require(set(before) == set(after), f"replaced: {sorted(set(before) ^ set(after))}")
        days = {properties["RetentionInDays"] for (type_, _), properties in after.items() if type_ == LOGS}
        require(days == {30}, f"log groups keep their lines for {days} days")
        changed = [type_ for type_, name in after if after[type_, name] != before[type_, name]]
        return f"changed in place: {', '.join(sorted(set(changed)))}"

    def fail_update(self) -> str:
        before = self.copy()
        folder = self.changed("failing", {"max_shard_count": 32}, api={"cors_origins": ["https://chat.example.com"]})
        template = _template(folder)
        template["Resources"]["ZFailing"] = {"Type": "AWS::SSM::Parameter", "Properties": {"Value": "x"}}
        _file(folder).write_text(json.dumps(template))
        self.account.failing = "AWS::SSM::Parameter"
        self.order("deploy", folder, reason=FAILS)
        self.expect("UPDATE_ROLLBACK_COMPLETE")
        require(self.copy() == before, "it did not come back to what it was")
        self.order("deploy", self.folder)
        return "taken back, and repeated"

    def rename(self) -> str:
        before = self.copy()
        folder = self.changed("renamed", name_suffix="next", is_protected=False)
        self.order("deploy", folder)
        require(before.items() <= self.copy().items(), "the first stack's resources changed")
        require(len(self.tables()) == 2, "the new stack has no table of its own")
        self.order("destroy", folder)
        left = set(self.copy()) - set(before)
        kept = {type_ for type_, _ in left}
        require(kept == ({TABLE, LOGS} if self.is_kept else set()), f"destroyed again, it left {sorted(left)}")
        for key in left:
            del self.account.made[key]
        return "the first one keeps all it has"

    def change_key(self) -> str:
        before = self.copy()
        key = f"arn:aws:kms:{REGION}:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
        self.order("deploy", self.changed("key", kms_key_arn=key))
        replaced = {type_ for type_, _ in before.keys() - self.copy().keys()}
        expected = set() if self.name == "lite" else {REDIS}
        require(replaced == expected, f"replaced: {sorted(replaced)}, not {sorted(expected)}")
        return f"replaced: {', '.join(replaced) or 'nothing'}"

    def destroy(self) -> str:
        if self.is_kept:
            require(self.cdk("destroy", self.folder)[0] != 0, "prod is not protected")
            protection = {"StackName": self.stack_name, "EnableTerminationProtection": False}
            self.cloudformation.update_termination_protection(**protection)
        self.order("destroy", self.folder)
        left = Counter(type_ for type_, _ in self.copy())
        logs = sum(each["Type"] == LOGS for each in _template(self.folder)["Resources"].values())
        require(left == ({TABLE: 1, LOGS: logs} if self.is_kept else {}), f"left behind: {dict(left)}")
        return f"left: {dict(left) or 'nothing'}"


PLAIN: Mapping[str, object] = {"pattern": "buckets"}
ADDED: Mapping[str, object] = {"pattern": "adaptive"}
CHANGED: Mapping[str, object] = {**ADDED, "settings": {"max_shard_count": 64}}


class _Team(Rehearsal):
    """An application of another team: its table survives each deployment, and the journal all after the second."""

    def rehearse(self, name: str) -> None:
        for sentence, context, count in (
            ("their table, before", PLAIN, 1),
            ("HotPartition added", ADDED, 2),
            ("a setting changed", CHANGED, 2),
            ("the construct renamed", CHANGED, 2),
            ("taken away", PLAIN, 2),
        ):
            self.step(f"{name}: {sentence}", partial(self.deploy, sentence, context, count))
        self.step(f"{name}: added again", self.add_again)

    def deploy(self, sentence: str, context: Mapping[str, object], count: int) -> str:
        had, app = self.tables(), self.copy_application("Renamed" if "renamed" in sentence else "HotPartition")
        self.order("deploy", self.synthesize(f"team-{sentence.replace(' ', '-')}", context, app))
        tables = self.tables()
        require(had.items() <= tables.items(), f"of {sorted(had)} one is gone or changed; there are {sorted(tables)}")
        require(len(tables) == count, f"there are {sorted(tables)}, and should be {count}")
        return f"tables: {', '.join(sorted(tables))}; {len(self.account.made)} resources"

    def copy_application(self, id_: str) -> Path:
        """Copy the application, with a table that outlives its stack, and the construct under an id."""
        folder = Path(shutil.copytree(TEAM, self.out / "team", dirs_exist_ok=True))
        text = (folder / "stack.py").read_text().replace("RemovalPolicy.DESTROY", "RemovalPolicy.RETAIN")
        (folder / "stack.py").write_text(text.replace('"HotPartition"', f'"{id_}"'))
        return folder / "app.py"

    def add_again(self) -> str:
        """The journal that was left behind is in the way: the deployment fails instead of making an empty one."""
        had = self.tables()
        app = self.copy_application("HotPartition")
        self.order("deploy", self.synthesize("team-again", ADDED, app), reason="already exists")
        require(self.tables() == had, "a table is gone")
        return "the journal that was left behind is in the way, as the documents say"


REHEARSALS: Mapping[str, type[_Environment | _Team]] = {
    "lite": _Environment,
    "dev": _Environment,
    "prod": _Environment,
    "team": _Team,
}


def _file(folder: Path) -> Path:
    (file,) = folder.glob("*.template.json")
    return file


def _template(folder: Path) -> dict[str, Any]:
    template: dict[str, Any] = json.loads(_file(folder).read_text())
    return template
