"""The model of DynamoDB's `ClientRequestToken`."""

from __future__ import annotations

import pytest

from tools.limits.request_tokens import RequestTokenError, RequestTokens

ONE = "t"


def request(place: str, token: str | None = ONE) -> dict:
    return {"TransactItems": [{"Update": {"Key": place}}], **({"ClientRequestToken": token} if token else {})}


@pytest.fixture(params=[False, True], ids=["frees cancelled", "binds cancelled"])
def binds_cancelled(request):
    return request.param


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def tokens(binds_cancelled, clock):
    return RequestTokens(lambda: clock[0], binds_cancelled=binds_cancelled)


def make(tokens, place, *, is_done=True):
    """Make a transaction, unless its token says that it was made; say whether it was."""
    is_new = tokens.begin(request(place))
    if is_new:
        tokens.end(request(place), is_done=is_done)
    return is_new


def code_of(tokens, place):
    with pytest.raises(RequestTokenError) as refused:
        tokens.begin(request(place))
    return refused.value.code


def test_what_succeeded_is_not_made_again_for_ten_minutes(tokens, clock):
    """From its end on."""
    assert make(tokens, "a")
    clock[0] = 599.9
    assert not make(tokens, "a")
    assert code_of(tokens, "b") == "IdempotentParameterMismatchException"
    clock[0] = 600.0
    assert make(tokens, "b")


def test_while_it_is_under_way_it_is_not_repeated(tokens):
    """Nor is another made under its token."""
    assert tokens.begin(request("a"))
    assert code_of(tokens, "a") == "TransactionInProgressException"
    assert code_of(tokens, "b") == "IdempotentParameterMismatchException"
    tokens.end(request("a"), is_done=True)
    assert not tokens.begin(request("a"))


def test_a_cancelled_one_can_be_repeated(tokens, binds_cancelled):
    """Its token is bound to it, or free, by the reading that is asked for."""
    assert make(tokens, "a", is_done=False)
    if binds_cancelled:
        assert code_of(tokens, "b") == "IdempotentParameterMismatchException"
        assert make(tokens, "a")
    else:
        assert make(tokens, "b")


def test_without_a_token_everything_is_made(tokens):
    """Each time."""
    for _ in range(2):
        assert tokens.begin(request("a", token=None))
        tokens.end(request("a", token=None), is_done=True)


def test_old_tokens_are_forgotten(tokens, clock):
    """Memory is bounded by what ten minutes bring."""
    for number in range(100):
        clock[0] = number * 60.0
        tokens.begin(request("a", token=str(number)))
        tokens.end(request("a", token=str(number)), is_done=True)
    assert len(tokens._uses) <= 11
