"""Answers read out of bytes that come in any pieces."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.dynamodb.http_answers import MAX_BODY_BYTES, MAX_HEAD_BYTES, AnswerParser, BadAnswerError, HttpAnswer

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Amz-Crc32: 7\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\n\r\n"
TRAILERS = CHUNKS[:-2] + b"X-Sum: 1\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH
CLOSED = b"HTTP/1.1 200 OK\r\n\r\nhello"


def read(data, pieces=()):
    """Feed data cut at these places; the answer must come with the last byte, and not before."""
    parser, answers = AnswerParser(), []
    places = [0, *sorted({p % len(data) for p in pieces} - {0}), len(data)]
    for start, end in pairwise(places):
        assert answers in ([], [None])
        answers = [parser.feed(data[start:end])]
    return parser, answers[0]


cuts = st.lists(st.integers(0, 10_000), max_size=12)


@given(cuts, st.sampled_from([LENGTH, CHUNKS, TRAILERS, CONTINUED]))
def test_an_answer_is_whole_with_its_last_byte(places, data):
    """However it is cut: a length, chunks, trailers, or another answer ahead of it."""
    _, answer = read(data, places)
    assert (answer.status, answer.body, answer.is_last) == (200, b"hello", False)


@given(cuts)
def test_a_body_may_end_with_the_connection(places):
    """Nothing else bounds it; the connection is over then."""
    parser, answer = read(CLOSED, places)
    assert answer is None
    assert parser.end() == HttpAnswer(200, {}, b"hello", is_last=True)


@given(st.sampled_from([LENGTH, CHUNKS, TRAILERS]), st.integers(1, 200))
def test_half_an_answer_is_none(data, place):
    """Whatever is missing; what a length or chunks bound never ends with the connection."""
    parser = AnswerParser()
    assert parser.feed(data[: min(place, len(data) - 1)]) is None
    assert parser.has_begun
    with pytest.raises(BadAnswerError, match="in the middle"):
        parser.end()


@pytest.mark.parametrize(
    ("head", "is_last"),
    [
        (b"HTTP/1.1 200 OK\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\n", True),
        (b"HTTP/1.0 200 OK\r\n", True),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", False),
    ],
)
def test_the_other_side_says_whether_the_connection_stays(head, is_last):
    """In HTTP/1.1 it does unless it says so, in HTTP/1.0 the other way round."""
    assert AnswerParser().feed(head + b"Content-Length: 2\r\n\r\n{}").is_last is is_last


def test_what_follows_an_answer_ends_the_connection():
    """Nobody asked for it; the next answer would be the wrong one."""
    for data in (LENGTH, CHUNKS):
        answer = AnswerParser().feed(data + b"HTTP/1.1 200 OK")
        assert (answer.body, answer.is_last) == (b"hello", True)


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status):
    """Whatever their length says."""
    assert AnswerParser().feed(b"HTTP/1.1 %d X\r\nContent-Length: 9\r\n\r\n" % status).body == b""


def test_headers_are_found_under_lower_case_names():
    """With the space around their values taken off."""
    answer = AnswerParser().feed(b"HTTP/1.1 400 Bad Request\r\nX-Amz-CRC32:  12 \r\ncontent-length:0\r\n\r\n")
    assert (answer.status, answer.headers) == (400, {b"x-amz-crc32": b"12", b"content-length": b"0"})


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\x15\x03\x01\x00\x02\x02",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % (MAX_BODY_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * (MAX_HEAD_BYTES + 1),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES,
    ],
)
def test_what_is_unclear_is_no_answer(data):
    """Never a guess."""
    with pytest.raises(BadAnswerError):
        AnswerParser().feed(data)


@given(st.binary(max_size=300), cuts)
def test_noise_is_never_an_answer_by_accident(noise, places):
    """Any bytes at all are refused, waited on, or end as they must: no other error comes out."""
    parser = AnswerParser()
    for data in (b"HTTP/1.1 200 OK\r\n", noise):
        try:
            if parser.feed(data) is not None:
                return
        except BadAnswerError:
            return
