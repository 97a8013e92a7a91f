from __future__ import annotations

from dataclasses import replace

import pytest

from hotpartition_cdk.configuration import Host
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.options import override
from hotpartition_cdk.settings import _CONSUMER_END_SECONDS
from infra.environments import DEV, LITE, PROD, build_local, choose_environment
from infra.settings import check_times, read_overrides

LAPTOP = Host(python_version="3.12", machine="arm64", system="Darwin")
SERVER = Host(python_version="3.11", machine="x86_64", system="Linux")


def test_values_become_texts():
    """Numbers and texts of numbers both end as the text that a variable holds."""
    assert read_overrides({"settle_seconds": 0.5, "max_shard_count": "16", "fan_out_threads": 8}, DEV) == {
        "fan_out_threads": "8",
        "max_shard_count": "16",
        "settle_seconds": "0.5",
    }


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            {"nope": 1},
            "setting nope is unknown; allowed are close_after_seconds, dynamodb_client",
        ),
        ({"table_name": "mine"}, "setting table_name is set by the stack itself and cannot be overridden"),
        ({"registry_tls": False}, "setting registry_tls is set by the stack itself and cannot be overridden"),
        ({"dynamodb_client": "sdk"}, "setting dynamodb_client should be one of curl, boto3, not 'sdk'"),
        ({"max_shard_count": 1025}, "setting max_shard_count should be a whole number, between 2 and 1024, not '1025'"),
        ({"max_shard_count": 2.5}, "setting max_shard_count should be a whole number, between 2 and 1024, not '2.5'"),
        (
            {"settle_seconds": float("nan")},
            "setting settle_seconds should be a number, between 0.0 and 3600.0, not 'nan'",
        ),
        ({"settle_seconds": None}, "setting settle_seconds should be a text, a number, true or false, not None"),
    ],
)
def test_wrong_overrides_are_named(overrides, sentence):
    """What is wrong is named together with what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        read_overrides(overrides, DEV)
    assert str(caught.value).startswith(sentence)


def test_a_setting_that_no_function_of_the_environment_has_is_unknown():
    """Nothing in `lite` sends reports; what it has can be set."""
    assert read_overrides({"target_shard_wcu": 500}, LITE) == {"target_shard_wcu": "500"}
    with pytest.raises(ConfigurationError, match="setting stream_partitions is unknown; allowed are"):
        read_overrides({"stream_partitions": 8}, LITE)


@pytest.mark.parametrize(
    ("name", "most", "reason"),
    [
        ("run_seconds", 170, "the last pass may take 10 s more"),
        ("request_budget_ms", 7_000, "an attempt that starts at its end may take 3 s more"),
    ],
)
def test_what_lambda_would_cut_is_refused(name, most, reason):
    """A run of the consumer and a request end before the function's timeout, which the default just does."""
    check_times(DEV, {name: str(most)})
    with pytest.raises(ConfigurationError) as caught:
        check_times(DEV, {name: str(most + 1)})
    assert str(caught.value) == (
        f"setting {name} should be at most {most} in environment dev, not {most + 1}, because {reason}"
        " and Lambda stops the function after its timeout"
    )


def test_the_consumer_is_left_the_margin_that_its_handler_keeps(root):
    """The handler's own margin, which the limit of `run_seconds` repeats, is the same."""
    source = (root / "lambdas" / "consume_reports" / "handler.py").read_text()
    assert f"STOP_MARGIN_MS = {int(_CONSUMER_END_SECONDS * 1000):_}\n" in source


def test_local_follows_the_host():
    """Environment local is built for the machine that runs it; only Linux takes manylinux wheels."""
    server, laptop = build_local(SERVER), build_local(LAPTOP)
    assert (server.target.python_version, server.target.architecture) == ("3.11", "x86_64")
    assert server.target.platform == "x86_64-manylinux_2_28"
    assert (laptop.target.python_version, laptop.target.architecture) == ("3.12", "arm64")
    assert laptop.target.platform == ""
    assert server.model_copy(update={"name": "dev", "target": DEV.target, "registry": DEV.registry}) == DEV


def test_unknown_machine():
    """A processor that Lambda does not have is named."""
    with pytest.raises(ConfigurationError, match="this machine is a riscv64; functions run on aarch64, "):
        choose_environment("local", replace(SERVER, machine="riscv64"))


@pytest.mark.parametrize("name", ["", "Prod", None, 3])
def test_unknown_environment(name):
    """Only these names are environments."""
    with pytest.raises(ConfigurationError, match="is unknown; allowed are dev, prod, lite, local, local-lite"):
        choose_environment(name, SERVER)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"node_type": "cache.t4g.micro"}, "node type cache.t4g.micro cannot be durable"),
        ({"replicas_per_shard": 0, "is_multi_az": False}, "a durable registry needs"),
        ({"is_multi_az": False}, "a durable registry needs"),
        ({"is_encrypted_in_transit": False, "is_authenticated": False}, "a durable registry needs"),
    ],
)
def test_durability_has_conditions(wrong, sentence):
    """What ElastiCache would refuse while deploying is refused before."""
    with pytest.raises(ConfigurationError, match=sentence):
        override(PROD, {"registry": wrong})
