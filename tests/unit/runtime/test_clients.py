"""Which client of DynamoDB the settings choose."""

import pytest

from hotpartition.core.access import Certificates
from hotpartition.core.errors import ConditionFailedError, SettingsError, StoreRefusedError, ThrottledError
from hotpartition.dynamodb.calls import build_error
from hotpartition.dynamodb.curl import CurlCalls
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.runtime.connect import open_calls
from hotpartition.runtime.settings import Settings

HERE = {"table_name": "t", "registry_host": "h"}


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch):
    """What Lambda hands a function."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("name", "kind"), [("curl", CurlCalls), ("boto3", ThreadedCalls)])
def test_the_setting_names_the_client(name, kind):
    settings = Settings.defaults("write", **HERE, dynamodb_client=name)
    calls = open_calls(settings)
    assert isinstance(calls, kind)
    calls.close()


def test_curl_is_the_default():
    assert Settings.defaults("write", **HERE).dynamodb_client == "curl"
    with pytest.raises(SettingsError, match="HOTPARTITION_DYNAMODB_CLIENT should be one of curl, boto3, not 'lean'"):
        Settings.from_env(
            {
                "HOTPARTITION_TABLE_NAME": "t",
                "HOTPARTITION_REGISTRY_HOST": "h",
                "HOTPARTITION_DYNAMODB_CLIENT": "lean",
            },
            "write",
        )


@pytest.mark.parametrize("quantile", [0.0, 0.9])
def test_a_reader_runs_as_many_queries_as_it_is_told(quantile):
    settings = Settings.defaults("read", **HERE, fan_out_threads=3, hedge_quantile=quantile)
    calls = open_calls(settings, sends_rounds=True)
    assert calls._parallel == 3
    assert (calls._policy is None) == (quantile == 0.0)


def test_the_configured_endpoint_is_used():
    """Unless a variable of AWS's own names another one."""
    settings = Settings.defaults("write", **HERE, dynamodb_endpoint="https://dynamodb.cn-north-1.amazonaws.com.cn")
    calls = open_calls(settings)
    assert calls._target.endpoint == "https://dynamodb.cn-north-1.amazonaws.com.cn"
    assert calls._target.certificates != Certificates()


@pytest.mark.parametrize(
    ("code", "reasons", "kind"),
    [
        ("TransactionConflictException", (), ThrottledError),
        ("TransactionInProgressException", (), ThrottledError),
        ("TransactionCanceledException", ("None", "ConditionalCheckFailed"), ConditionFailedError),
        ("TransactionCanceledException", ("TransactionConflict", "None"), ThrottledError),
        ("TransactionCanceledException", ("ThrottlingError", "None"), ThrottledError),
        ("TransactionCanceledException", ("ThrottlingError", "ConditionalCheckFailed"), ConditionFailedError),
        ("TransactionCanceledException", ("ValidationError", "None"), StoreRefusedError),
    ],
)
def test_a_cancelled_transaction_says_what_to_do(code, reasons, kind):
    """Look again, wait in the same place, or mend the code; in each case nothing was written."""
    facts = {"CancellationReasons": [{"Code": reason} for reason in reasons]}
    error = build_error(code, status=400, facts=facts)
    assert type(error) is kind
    assert not getattr(error, "is_key_range", False)
