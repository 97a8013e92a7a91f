"""Options and settings, from the code, a file and the command line: which counts, and what it changes."""

from __future__ import annotations

import pytest

from hotpartition_cdk.configuration import Host
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.options import _CONSUMER_END_SECONDS, list_options, override
from infra.config import Changes, load_environment, read_environment
from infra.environments import DEV, LITE, PROD, build_local
from infrastructure.template import FUNCTIONS, short_name

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
options = { log_retention_days = 30 }
"""


def test_a_file_changes_its_environments(tmp_path):
    """Each takes its own section; `hotpartition.toml` beside app.py needs no context, and JSON is named."""
    assert load_environment("prod", tmp_path) == PROD
    (tmp_path / "hotpartition.toml").write_text(FILE)
    _, found = read_environment("prod", "hotpartition.toml", tmp_path)
    assert found.options == {"consumer_concurrency": 6, "registry": {"shard_count": 3}}
    assert found.settings == {"max_shard_count": 64}
    assert read_environment("dev", "hotpartition.toml", tmp_path) == (DEV, Changes())
    assert load_environment("prod", tmp_path).consumer_concurrency == 6
    (tmp_path / "mine.json").write_text('{"dev": {"options": {"consumer_concurrency": 5}}}')
    assert read_environment("dev", "mine.json", tmp_path)[1].options == {"consumer_concurrency": 5}


def test_an_environment_of_ones_own_begins_as_its_base(tmp_path):
    """Its name and its options are its own; where another name is unknown, it is among those that there are."""
    (tmp_path / "hotpartition.toml").write_text(FILE)
    expected = PROD.model_copy(update={"name": "staging", "log_retention_days": 30})
    assert load_environment("staging", tmp_path) == expected
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


def test_the_consumer_is_left_the_margin_that_its_handler_keeps(root):
    """The handler's own margin, which the limit of `run_seconds` repeats, is the same."""
    source = (root / "lambdas" / "consume_reports" / "handler.py").read_text()
    assert f"STOP_MARGIN_MS = {int(_CONSUMER_END_SECONDS * 1000):_}\n" in source


def test_two_stacks_of_an_environment_fit_into_a_region(staging):
    """The environment and a suffix are in every name that has to be unique in account and region."""
    assert "hotpartition-staging-anna-ApiFailing" in staging.text
    assert "hotpartition-prod" not in staging.text


def test_the_context_comes_before_the_file(staging):
    """It has the last word over the file, and the file over the code; a setting goes to the functions that know it."""
    assert staging.function("consume_reports")["ReservedConcurrentExecutions"] == 4
    assert {group["RetentionInDays"] for group in staging.all("AWS::Logs::LogGroup")} == {30}
    variables = {folder: staging.variables(folder) for folder in FUNCTIONS}
    assert variables["consume_reports"]["HOTPARTITION_MAX_SHARD_COUNT"] == "32"
    known = {folder: found.get("HOTPARTITION_SAMPLING_DISTANCE_WCU") for folder, found in variables.items()}
    assert known == {"write_message": "2", "read_messages": None, "consume_reports": None, "operate": None}


def test_a_lambda_authorizer_of_ones_own(staging):
    """It is asked on every route, may be invoked by this API only, and names the sender and the access log's caller."""
    (id_,) = staging.of_type("AWS::ApiGatewayV2::Authorizer")
    authorizer = staging.only("AWS::ApiGatewayV2::Authorizer")
    assert authorizer["AuthorizerResultTtlInSeconds"] == 60
    assert authorizer["IdentitySource"] == ["$request.header.Authorization", "$context.routeKey"]
    assert "function:who-calls" in short_name(authorizer["AuthorizerUri"])
    routes = staging.all("AWS::ApiGatewayV2::Route")
    assert {(route["AuthorizationType"], route["AuthorizerId"]["Ref"]) for route in routes} == {("CUSTOM", id_)}
    (permission,) = [p for p in staging.all("AWS::Lambda::Permission") if "who-calls" in short_name(p["FunctionName"])]
    assert short_name(permission["SourceArn"]).endswith(f"/authorizers/${{{id_}}}")
    assert staging.variables("write_message")["HOTPARTITION_SENDER_CLAIM"] == "user"
    assert "$context.authorizer.user" in staging.only("AWS::ApiGatewayV2::Stage")["AccessLogSettings"]["Format"]
