"""The rehearsal's own judgement: a deployment that is right passes, and each that is broken on purpose is caught.

`make rehearse` runs the CDK's command line; here CloudFormation is called directly, with the templates of the tests.
"""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError


def write(template, options, settings):
    """Write `prod` as options and settings change it."""
    text = json.dumps(template).replace('"DeletionProtectionEnabled": true', '"DeletionProtectionEnabled": false')
    if options.get("name_suffix"):
        text = text.replace("hotpartition-prod", "hotpartition-prod-next")
    if settings:
        text = text.replace('"RetentionInDays": 90', '"RetentionInDays": 30')
    template = json.loads(text)
    if key := options.get("kms_key_arn"):
        template["Resources"]["Table"]["Properties"]["SSESpecification"] = {"KMSMasterKeyId": key}
        template["Resources"]["Registry"]["Properties"]["KmsKeyId"] = key
    return template


def deploy(client, stack, body, *, protect):
    """Create or update a stack by a change set, as the command line does."""
    known = {each["StackName"]: each["StackStatus"] for each in client.describe_stacks()["Stacks"]}
    if known.get(stack) == "ROLLBACK_COMPLETE":
        client.delete_stack(StackName=stack)
        del known[stack]
    elif stack in known and client.get_template(StackName=stack)["TemplateBody"] == json.loads(body):
        return "no changes"
    kind = "UPDATE" if stack in known else "CREATE"
    client.create_change_set(StackName=stack, ChangeSetName="c", ChangeSetType=kind, TemplateBody=body)
    client.execute_change_set(StackName=stack, ChangeSetName="c")
    client.update_termination_protection(StackName=stack, EnableTerminationProtection=protect)
    return client.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]


@pytest.fixture
def rehearse(templates, tmp_path, monkeypatch):
    """Rehearses `prod` with a template that is altered; it calls CloudFormation itself."""
    pytest.importorskip("flask")
    from tools.rehearse import account, steps  # noqa: PLC0415 - moto's server takes a second to import

    class Direct(steps._Environment):
        def synthesize(self, name, context, app=None):
            template = write(templates["prod"].body, context["options"], context["settings"])
            self.alter(template, name)
            folder = self.out / "assemblies" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stack.template.json").write_text(json.dumps(template))
            return folder

        def cdk(self, command, folder):
            stack = "hotpartition-prod-next" if "renamed" in folder.name else "hotpartition-prod"
            if command == "deploy":
                protect = "first" not in folder.name and "renamed" not in folder.name
                body = (folder / "stack.template.json").read_text()
                said = deploy(self.cloudformation, stack, body, protect=protect)
                return int("ROLLBACK" in said), f"{said}, as the rehearsal asked"
            try:
                self.cloudformation.delete_stack(StackName=stack)
            except ClientError as error:
                return 1, str(error)
            return 0, ""

    # What the look and the check of a stack say is judged with the command line alone.
    monkeypatch.setattr(steps._Environment, "look", lambda _: "")
    monkeypatch.setattr(steps._Environment, "check", lambda _: "")

    def rehearse(alter=lambda _template, _name: None):
        with account.open_account() as (made, url):
            rehearsal = Direct(made, url, tmp_path)
            rehearsal.alter = alter
            rehearsal.rehearse("prod")
            return rehearsal.steps

    return rehearse


def test_a_deployment_that_is_right_passes(rehearse):
    """All ten steps."""
    steps = rehearse()
    assert [step for step in steps if not step.is_right] == []
    assert len(steps) == 10


def forget_the_policy(template, _):
    template["Resources"]["Table"]["DeletionPolicy"] = "Delete"


def rename_the_table(template, _):
    text = json.dumps(template).replace('"Table"', '"Messages"').replace("Table.Arn", "Messages.Arn")
    template.clear()
    template.update(json.loads(text))


def forget_an_output(template, _):
    del template["Outputs"]["OperateFunctionName"]


def replace_the_key(template, name):
    if name.endswith("changed"):
        template["Resources"]["Table"]["Properties"]["KeySchema"][0]["AttributeName"] = "sk"


@pytest.mark.parametrize(
    ("alter", "step", "said"),
    [
        (forget_the_policy, "a stack of another name beside it", "destroyed again, it left"),
        (rename_the_table, "deploy", "the table's logical id is not Table"),
        (forget_an_output, "deploy", "outputs missing or too many: ['OperateFunctionName']"),
        (replace_the_key, "update a setting and an option", "replaced: "),
    ],
)
def test_a_step_that_is_broken_on_purpose_is_caught(rehearse, alter, step, said):
    """A deletion policy, a logical id, an output, a key that replaces the table."""
    last = rehearse(alter)[-1]
    assert (last.name, last.is_right) == (f"prod: {step}", False)
    assert last.said.startswith(said)
