"""The reference: every public name of the constructs has an example in its docstring, and it runs."""

import os
import subprocess
import sys

import pytest

import hotpartition_cdk
from hotpartition_cdk.errors import ConfigurationError
from infra.bundle import ROOT
from infrastructure.apps import App, ec2, imported_table, make_function
from infrastructure.template import Template
from support.examples import run_examples


@pytest.fixture
def names(tmp_path):
    """What examples may use: a stack with a table, two functions and a VPC, and all public names."""
    stack = App(tmp_path).stack("Readings")
    public = {name: getattr(hotpartition_cdk, name) for name in hotpartition_cdk.__all__}
    return {
        "self": stack,
        "stack": stack,
        "vpc": ec2.Vpc(stack, "Vpc", max_azs=2),
        "readings": imported_table(stack),
        **{name: make_function(stack, name) for name in ("ingest", "show")},
        **public,
    }


@pytest.mark.parametrize("name", hotpartition_cdk.__all__)
def test_every_public_name_has_an_example_that_runs(name, names):
    """Of the name itself; those of its methods run after it."""
    assert run_examples("hotpartition_cdk", name, names) > 0


WRONG = """
HotPartition(stack, "Hot", table=readings, options={"registry": {"node_typ": "x"}})
"""


def test_a_wrong_option_is_said_in_a_sentence(names, capsys):
    """With the app's own line, and no traceback; another error still shows one."""
    for code in (WRONG, "1 / 0"):
        try:
            exec(compile(code, "app.py", "exec"), names)  # noqa: S102 - the app above
        except (ConfigurationError, ZeroDivisionError) as error:
            sys.excepthook(type(error), error, error.__traceback__)
    line, *other = capsys.readouterr().err.splitlines()
    assert line.startswith("hotpartition: app.py, line 2: option registry.node_typ is unknown; allowed are")
    assert line.endswith("Did you mean registry.node_type?")
    assert other[0] == "Traceback (most recent call last):"


def test_the_smallest_example_is_synthesized(tmp_path):
    """Its function gets the settings and the rights of a table in band, and nothing else is made for it."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "layers/routing/python")))
    # The CDK's own rules take many seconds; they judge `prod`.
    quick = {"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20", "CDK_VALIDATION": "false"}
    environ = {**os.environ, "PYTHONPATH": path, **quick, "CDK_OUTDIR": str(tmp_path)}
    subprocess.run([sys.executable, "app.py"], cwd=ROOT / "examples" / "events", env=environ, check=True)
    template = Template.read(tmp_path)
    kinds = {resource["Type"] for resource in template.body["Resources"].values()}
    assert not [kind for kind in kinds if "ElastiCache" in kind or "EC2" in kind]
    variables = template.only("AWS::Lambda::Function")["Environment"]["Variables"]
    assert any(name.startswith("HOTPARTITION_") for name in variables)
