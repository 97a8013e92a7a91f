"""DynamoDB's limits beside plain buckets, and with AWS's numbers; and what a transaction's token lets happen."""

import doctest
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import limits
from tools.limits import READ_PROFILE, REASONS, WRITE_PROFILE, Demand, Kind, Latency, Partitions, Resource, admit
from tools.limits.request_tokens import RequestTokenError, RequestTokens

FOLDER = Path(limits.__file__).parent
LIMIT = 16
"""A power of two, as times and units are multiples of one: sums are exact, and so are edges."""


class PlainBuckets:
    """What is left of each partition of tables and indexes: at most a second's worth, filled as time goes."""

    def __init__(self):
        self.left, self.filled_at = {}, {}

    def fill(self, bucket, now):
        left = self.left.get(bucket, LIMIT) + LIMIT * (now - self.filled_at.get(bucket, now))
        self.left[bucket], self.filled_at[bucket] = min(LIMIT, left), now
        return self.left[bucket]

    def ask(self, demands, now):
        """Take everything, or nothing and return reason and ARN; a read goes while anything is left."""
        wanted = Counter()
        for each in demands:
            wanted[each.resource.arn, each.kind, each.resource.partition_index(each.key)] += each.units
        for (arn, kind, partition), units in wanted.items():
            left = self.fill((arn, kind, partition), now)
            if left <= 0 if kind is Kind.READ else left < min(units, LIMIT):
                return f"{arn}{kind}KeyRangeThroughputExceeded", arn
        self.left.update({bucket: self.left[bucket] - units for bucket, units in wanted.items()})
        return None


GAPS = st.sampled_from([0.0, 0.015625, 0.125, 0.5, 2.0])
ARNS, KEYS, UNITS = ["Table", "Index"], "abcd", [1, 4, 12, 40]
ASKED = st.tuples(st.sampled_from(ARNS), st.sampled_from(KEYS), st.sampled_from(UNITS))


@given(st.lists(st.tuples(GAPS, st.sampled_from(Kind), st.lists(ASKED, min_size=1, max_size=3)), max_size=60))
def test_requests_are_admitted_as_by_plain_buckets(steps):
    """A write of several keys gets all or nothing, by their sum on each partition; a read may leave a debt."""
    partitions = Partitions(write_limit_wcu=LIMIT, read_limit_rcu=LIMIT, count=3)
    resources = {arn: Resource(arn, partitions, is_index=arn == "Index") for arn in ARNS}
    plain, now = PlainBuckets(), 0.0
    for gap, kind, asked in steps:
        now += gap
        demands = [Demand(resources[arn], kind, key, units) for arn, key, units in asked]
        if kind is Kind.READ:
            del demands[1:]
            throttle = demands[0].resource.read(demands[0].key, demands[0].units, now)
        else:
            refusal = admit(demands, now)
            throttle = refusal and refusal.throttle
            assert refusal is None or refusal.demand.resource.arn == throttle.resource
        assert (throttle and (throttle.reason, throttle.resource)) == plain.ask(demands, now)
        assert throttle is None or throttle.reason in REASONS


def test_one_key_takes_1000_wcu_and_3000_rcu_a_second():
    """Each by itself, after one second's worth that was saved; what was charged can be given back."""
    table = Resource()
    admitted = [table.write("hot", 1_000, at) is None for at in (0.0, 0.99, 1.0)]
    assert admitted == [True, False, True]
    assert [table.write("tenths", 0.1, 1.0) for _ in range(10_000)] == [None] * 10_000
    table.charge(Kind.READ, "hot", 4_500, 1.0)
    assert table.refuses(Kind.READ, "hot", 1.49)
    assert table.refuses(Kind.READ, "hot", 1.51) is None
    table.charge(Kind.READ, "hot", -4_500, 1.51)
    assert table.read("hot", 3_000, 1.51) is None
    assert table.refuses(Kind.READ, "hot", 1.51)
    assert len(REASONS) == 16


@pytest.mark.parametrize(("wcu", "taken"), [(3_000, 3_000 * 10), (8_000, 4_000 * 11)])
def test_even_traffic_takes_what_all_partitions_have(wcu, taken):
    """In ten seconds: all of what is less than they have, else that and a second's worth that they saved."""
    table = Resource()
    assert sum(table.write_evenly(wcu / 2, step / 2, 0.5) for step in range(1, 21)) == pytest.approx(taken)


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


MISMATCH = "IdempotentParameterMismatchException"


def use(tokens, item, now):
    """Make a transaction of an item under one token; what became of it."""
    try:
        return tokens.once({"TransactItems": [item], "ClientRequestToken": "t"}, now, lambda: "made")
    except RequestTokenError as error:
        return error.code


@pytest.mark.parametrize("binds_cancelled", [False, True])
def test_a_token_lets_one_transaction_happen(binds_cancelled):
    """It is not made again for ten minutes, and no other one is made under its token."""
    tokens = RequestTokens(binds_cancelled=binds_cancelled)
    asked = [("a", 0.0), ("b", 599.9), ("a", 599.9), ("b", 600.0)]
    assert [use(tokens, *each) for each in asked] == ["made", MISMATCH, None, "made"]


def test_without_a_token_everything_is_made():
    tokens = RequestTokens()
    assert [tokens.once({"TransactItems": [item]}, 0.0, lambda: "made") for item in "aab"] == ["made"] * 3
