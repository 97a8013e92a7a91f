"""Which client of DynamoDB the settings choose, what its responses mean, and how one node of Redis fails alone."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from hotpartition.core.access import Certificates
from hotpartition.core.errors import (
    ConditionFailedError,
    RegistryUnavailableError,
    StoreRefusedError,
    ThrottledError,
)
from hotpartition.dynamodb.calls import Call, build_error
from hotpartition.dynamodb.curl import CurlCalls
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.runtime.connect import open_calls
from hotpartition.runtime.settings import Settings
from support.fakes import FakeClock
from support.world import connect

HERE = {"table_name": "t", "registry_host": "h"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [({}, CurlCalls), ({"dynamodb_client": "curl"}, CurlCalls), ({"dynamodb_client": "boto3"}, ThreadedCalls)],
)
def test_the_setting_names_the_client(aws_environment, values, kind):
    calls = open_calls(Settings.defaults("write", **HERE, **values))
    assert isinstance(calls, kind)
    calls.close()


def test_settings_reach_the_client(aws_environment):
    """Threads and hedges of a reader; the configured endpoint, unless a variable of AWS's own names another one."""
    for quantile in (0.0, 0.9):
        settings = Settings.defaults("read", **HERE, fan_out_threads=3, hedge_quantile=quantile)
        calls = open_calls(settings, sends_rounds=True)
        assert calls._parallel == 3
        assert (calls._policy is None) == (quantile == 0.0)
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
    """Look again, wait in the same place, or correct the code; in each case nothing was written."""
    facts = {"CancellationReasons": [{"Code": reason} for reason in reasons]}
    error = build_error(code, status=400, facts=facts)
    assert type(error) is kind
    assert not getattr(error, "is_key_range", False)


@pytest.fixture
def _no_collector():
    """Only what nothing refers to is freed."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
def test_a_refused_call_is_freed_with_its_round():
    """Thousands are refused each second while a key is hot: none waits for the garbage collector."""
    errors = []

    def refuse(operation, request):
        error = ThrottledError()
        errors.append(weakref.ref(error))
        raise error

    with ThreadPoolExecutor(2) as executor:
        calls = ThreadedCalls(refuse, executor, parallel=2)
        round_ = calls.call_many([Call("Query", {})] * 4, is_hedged=False)
    assert [type(outcome) for outcome in round_.outcomes] == [ThrottledError] * 4
    del round_
    assert [error() for error in errors] == [None] * 4


def test_a_failed_node_rests_and_the_others_serve():
    """A consumer that polls four streams goes on with those of the healthy nodes, and tries after a cooldown."""
    clock = FakeClock(0)
    server, connection = connect(clock, nodes=2, cooldown_ms=1_000)
    away, well = (next(key for key in "abcd" if server.node_of(key) is node) for node in server.nodes)
    server.nodes[0].is_down, sent = True, []
    for clock.now_ms in (0, 999, 1_000, 1_500, 2_000):
        before = server.commands
        with pytest.raises(RegistryUnavailableError):
            connection.run(away, ("GET", away))
        sent.append(server.commands - before)
        assert connection.run(well, ("GET", well)) == [None]
    assert sent == [1, 0, 1, 0, 1]
