"""How consumers divide the streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.shares import WHOLE, Share, list_shares


@given(st.integers(1, 64), st.integers(1, 1024))
def test_each_stream_has_one_consumer(consumers, streams):
    """None is left out and none is read twice; the shares differ by one stream at most."""
    parts = [share.partitions(streams) for share in list_shares(consumers)]
    assert sorted(stream for part in parts for stream in part) == list(range(streams))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_one_consumer_has_all():
    """And needs no event that says so: the Scheduler's own, or an operator's, has no share."""
    assert list_shares(1) == (WHOLE,)
    assert Share.decode({"time": "2026-11-21T12:00:00Z"}) == WHOLE
    assert list(WHOLE.partitions(4)) == [0, 1, 2, 3]


@given(st.integers(1, 64), st.data())
def test_an_event_says_which_share(consumers, data):
    share = data.draw(st.sampled_from(list_shares(consumers)))
    assert Share.decode({"share": share.encode()}) == share


@pytest.mark.parametrize("share", [{}, 1, "0/2", {"index": 2, "count": 2}, {"index": -1, "count": 2}, {"index": "0"}])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(InvalidRequestError, match=r"^share: should be an index below its count, not "):
        Share.decode({"share": share})
