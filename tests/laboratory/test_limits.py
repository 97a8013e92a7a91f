"""DynamoDB's limits, with numbers worked out by hand or taken from AWS's pages; and what holds for any traffic."""

import doctest
import itertools
import random
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import limits
from tools.limits import (
    READ_PROFILE,
    REASONS,
    WRITE_PROFILE,
    Demand,
    Kind,
    Latency,
    OnDemand,
    Partitions,
    Resource,
    Table,
    TableConfig,
    admit,
)
from tools.limits.model import position_of
from tools.limits.request_tokens import RequestTokenError, RequestTokens

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/t"
FOLDER = Path(limits.__file__).parent
KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"
UNLIMITED = OnDemand(quota_wcu=None, quota_rcu=None)
LIMIT = 20.0
FEW = Partitions(write_limit_wcu=LIMIT, read_limit_rcu=LIMIT, count=3)
KEYS = [f"k{number}" for number in range(8)]
REQUESTS = st.lists(
    st.tuples(
        st.floats(0, 1.5, allow_subnormal=False),
        st.sampled_from(KEYS),
        st.one_of(st.integers(1, 20), st.floats(0.5, 20)),
    ),
    min_size=1,
    max_size=150,
)


def build(**changes):
    return Table(TableConfig(**{"arn": ARN, **changes}))


def test_one_key_takes_1000_wcu_and_3000_rcu_a_second():
    """Ten seconds of twice the limits: ten seconds' worth, and the second's worth that was saved."""
    table = build()
    assert sum(table.write("hot", 1, number / 2000) is None for number in range(20_001)) == 11_000
    assert sum(table.read("hot", 1, number / 6000) is None for number in range(60_001)) == 33_000


def test_even_traffic_meets_the_accounts_quota():
    """A table of 64 partitions takes 40,000 units a second, after one second's worth that was saved."""
    table = build(throughput=OnDemand(warm_wcu=64_000))
    assert table.write_evenly(64_000, 1.0, 1.0) == 64_000
    taken = sum(table.write_evenly(64_000, second, 1.0) for second in range(2, 12))
    assert taken == pytest.approx(40_000 * 10 + (80_000 - 64_000))


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("is_index", [False, True])
@pytest.mark.parametrize(
    ("limit", "throughput"),
    [("AccountLimitExceeded", OnDemand(quota_wcu=10, quota_rcu=10)), ("KeyRangeThroughputExceeded", OnDemand())],
)
def test_each_reason_is_met(kind, is_index, limit, throughput):
    """Table and index, reads and writes, both limits; the resource is an ARN and never the key."""
    assert len(REASONS) == 16
    arn = f"{ARN}/index/i" if is_index else ARN
    resource = Resource(arn, throughput, Partitions(count=1), is_index=is_index)
    ask = partial(resource.read if kind is Kind.READ else resource.write, "secret", 1, 0.0)
    throttle = next(response for response in iter(ask, "never") if response is not None)
    assert throttle.reason == f"{'Index' if is_index else 'Table'}{kind}{limit}"
    assert throttle.reason in REASONS
    assert throttle.resource == arn
    assert "secret" not in repr(throttle)


def test_a_throttled_index_refuses_its_tables_write():
    """Even keys, but an index keyed by one status: 1,000 writes, then the index's reason."""
    table, index = build(), Resource(f"{ARN}/index/by-status", OnDemand(), Partitions(), is_index=True)
    entry = Demand(index, Kind.WRITE, "open", 1)
    refusals = [admit([Demand(table, Kind.WRITE, f"k{n}", 1), entry], 0.0) for n in range(1500)]
    assert refusals.count(None) == 1000
    assert refusals[-1].demand == entry
    assert refusals[-1].throttle.resource == f"{ARN}/index/by-status"
    assert index.throttled == {"IndexWriteKeyRangeThroughputExceeded": 500}


def test_what_one_partition_is_asked_for_is_one_demand():
    """600 units out of one key and 600 into another on the same partition are 1,200, which it does not have."""
    table = build(partitions=Partitions(count=1))
    moved = [Demand(table, Kind.WRITE, key, 600) for key in ("old", "new")]
    assert admit(moved[:1], 0.0) is None
    assert admit(moved, 0.0).throttle.reason == KEY_RANGE
    assert admit(moved, 0.8) is None, "a full bucket admits a request of more than a second's worth"
    assert admit(moved[:1], 1.5) is not None, "and is in debt then"


def test_a_read_of_unknown_cost_is_admitted_while_anything_is_left():
    """It leaves a debt, and what is given back is there again."""
    table = build()
    assert table.refuses(Kind.READ, "a", 0.0) is None
    table.charge(Kind.READ, "a", 4500, 0.0)
    assert table.refuses(Kind.READ, "a", 0.4).reason == "TableReadKeyRangeThroughputExceeded"
    assert table.refuses(Kind.READ, "a", 0.51) is None
    table.charge(Kind.READ, "a", -4500, 0.51)
    assert table.read("a", 3000, 0.51) is None


def test_where_keys_lie_is_pinned():
    """The same on every machine."""
    assert position_of("") == 0xE4A6A0577479B2B4
    assert position_of("room-1#0") == 0x43899AFC8DE3245C
    assert [build().partition_index(f"party#{shard}") for shard in range(4)] == [0, 0, 3, 1]


@pytest.mark.parametrize(
    ("throughput", "partitions"),
    [({}, 4), ({"warm_wcu": 32_000}, 32), ({"warm_rcu": 30_000}, 10), ({"warm_wcu": 4001}, 5)],
)
def test_throughput_decides_the_number_of_partitions(throughput, partitions):
    """As many as carry the warm throughput; a table on demand starts with four."""
    assert build(throughput=OnDemand(**throughput)).partition_count == partitions


def test_keys_apart_have_each_a_partition():
    """The neighbour of a hot key notices nothing."""
    table = build(partitions=Partitions(is_key_apart=True, write_limit_wcu=10), throughput=UNLIMITED)
    assert table.write("hot", 10, 0.0) is None
    assert table.write("hot", 1, 0.0).reason == KEY_RANGE
    assert all(table.write(f"k{number}", 10, number * 0.01) is None for number in range(2_000))
    assert table.partition_count == 2_001
    with pytest.raises(ValueError, match="no share of the positions"):
        table.write_evenly(1, 300.0, 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OnDemand(quota_wcu=0), "quota_wcu should be a number greater than 0, not 0"),
        (lambda: OnDemand(warm_rcu=float("inf")), "warm_rcu should be a number greater than 0"),
        (lambda: Partitions(count=0), "count should be a number greater than 0"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_sentence(make, message):
    """Nothing is corrected silently."""
    with pytest.raises(ValueError, match=message):
        make()


def most_over_any_window(taken, limit):
    """Return by how much the units of any window [a, b] exceed `limit` x (b - a + 1 s), at most."""
    before = [0, *accumulate(units for _, units in taken)]
    excess = [units - limit * at for (at, _), units in zip(taken, before, strict=False)]
    ends = enumerate(before[1:])
    return max(total - limit * taken[end][0] - min(excess[: end + 1]) - limit for end, total in ends)


@given(REQUESTS, st.booleans())
def test_no_partition_takes_more_than_its_limit_in_any_window(asked, reads):
    """In any T seconds at most T + 1 seconds' worth, whatever came before; and the debt of one read."""
    table = build(throughput=UNLIMITED, partitions=FEW)
    now = 0.0
    taken = {}
    for gap, key, amount in asked:
        now += gap
        if (table.read if reads else table.write)(key, amount, now) is None:
            taken.setdefault(table.partition_index(key), []).append((now, amount))
    for each in taken.values():
        debt = max(units for _, units in each) if reads else 0
        assert most_over_any_window(each, LIMIT) <= debt + 1e-3


@given(REQUESTS, st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
def test_a_refusal_takes_nothing(asked, index_keys):
    """Two tables, one of which is never asked what the other refuses: they end with the same levels."""
    (table, index), spared = [
        (build(throughput=UNLIMITED, partitions=FEW), Resource("index", UNLIMITED, FEW, is_index=True))
        for _ in range(2)
    ]
    now = 0.0
    for (gap, key, amount), index_key in zip(asked, itertools.cycle(index_keys), strict=False):
        now += gap

        def demand(on, key=key, index_key=index_key, amount=amount):
            return [Demand(on[0], Kind.WRITE, key, amount), Demand(on[1], Kind.WRITE, index_key, amount)]

        if admit(demand((table, index)), now) is None:
            assert admit(demand(spared), now) is None
    for key in KEYS:
        for one, other in ((table, spared[0]), (index, spared[1])):
            levels = [[bucket.level(now) for bucket in each.buckets(Kind.WRITE, key)] for each in (one, other)]
            assert levels[0] == levels[1]


@settings(max_examples=25)
@given(st.floats(1, 200), st.sampled_from([0.1, 1.0, 2.5]))
def test_evenly_spread_traffic_takes_what_its_partitions_have(demand, step):
    """Three partitions of equal width: three times the limit at most, and all that is demanded below it."""
    table = build(throughput=UNLIMITED, partitions=FEW)
    steps = 20
    taken = sum(table.write_evenly(demand * step, (n + 1) * step, step) for n in range(steps))
    seconds = steps * step
    assert taken == pytest.approx(min(demand * seconds, 3 * LIMIT * (seconds + 1)))


@pytest.mark.parametrize("profile", [WRITE_PROFILE, READ_PROFILE])
def test_the_percentiles_are_those_of_the_profile(profile):
    """At each given percentile exactly, in seconds; draws follow; in between the logarithm is interpolated."""
    latency = Latency(profile, random.Random(1))
    for percentile, milliseconds in profile.items():
        assert latency.at(percentile / 100) == pytest.approx(milliseconds / 1000)
    draws = sorted(latency.draw() for _ in range(50_000))
    assert draws[25_000] == pytest.approx(profile[50] / 1000, rel=0.02)
    assert Latency({0: 1, 100: 100}, random.Random(1)).at(0.5) == pytest.approx(0.010)


def test_the_examples_of_its_documents_run():
    """The docstring's and the README's."""
    assert doctest.testmod(limits, raise_on_error=True).attempted > 3
    results = doctest.testfile(str(FOLDER / "README.md"), module_relative=False, raise_on_error=True, encoding="utf-8")
    assert results.attempted > 5


MISMATCH, IN_PROGRESS = "IdempotentParameterMismatchException", "TransactionInProgressException"
SUCCEEDED = [
    # While it is under way, neither it nor another is made; then it is not made again for ten minutes from its end on.
    (0.0, "a", True),
    (0.0, "b", MISMATCH),
    (0.0, "a", IN_PROGRESS),
    (0.0, "a", "ends"),
    (599.9, "b", MISMATCH),
    (599.9, "a", False),
    (600.0, "b", True),
]
CANCELLED = [(0.0, "a", True), (0.0, "a", "is cancelled")]
USED = [
    *((binds_cancelled, SUCCEEDED) for binds_cancelled in (False, True)),
    (False, [*CANCELLED, (0.0, "b", True)]),
    (True, [*CANCELLED, (0.0, "b", MISMATCH), (0.0, "a", True)]),
]


def begin(tokens, request):
    try:
        return tokens.begin(request)
    except RequestTokenError as error:
        return error.code


@pytest.mark.parametrize(("binds_cancelled", "steps"), USED)
def test_a_token_lets_one_transaction_happen(binds_cancelled, steps):
    """At each moment: whether a transaction of an item is made under one token, or what becomes of it."""
    now = 0.0
    tokens = RequestTokens(lambda: now, binds_cancelled=binds_cancelled)
    for now, item, expected in steps:  # noqa: B007 - the tokens' clock
        request = {"TransactItems": [item], "ClientRequestToken": "t"}
        if expected in ("ends", "is cancelled"):
            tokens.end(request, is_done=expected == "ends")
        else:
            assert begin(tokens, request) == expected


def test_without_a_token_everything_is_made_and_old_tokens_are_forgotten():
    """Memory is bounded by what ten minutes bring."""
    now = 0.0
    tokens = RequestTokens(lambda: now)
    for number in range(100):
        now = number * 60.0
        for request in ({"TransactItems": [], "ClientRequestToken": str(number)}, {"TransactItems": []}):
            assert tokens.begin(request) is True
            tokens.end(request, is_done=True)
    assert len(tokens._uses) <= 11
