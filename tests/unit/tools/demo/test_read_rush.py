"""The demonstration's rush of readers: what is asked, what came, and where from."""

import asyncio
import json
from collections import Counter

import pytest

from tools.demo import read_rush
from tools.demo.client import NoResponseError, Recorder, Response
from tools.demo.read_rush import Asked, ReadRush, RushCourse, read_counts


def page(settled_until="2026-01-01T00:00:05Z"):
    return Response(200, {"messages": [], "next_cursor": None, "settled_until": settled_until})


class FakeApi:
    """Responds with what it is given, in turn."""

    def __init__(self, *responses):
        self.responses = list(responses)

    async def read(self, conversation_id, parameters):
        assert (conversation_id, parameters) == ("c", {})
        response = self.responses.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


def ask(*responses):
    recorder = Recorder()
    rush = ReadRush(api=FakeApi(*responses), recorder=recorder, conversation_id="c", now=lambda: 1767225612.0)
    asyncio.run(rush.ask())
    return rush.asked, recorder


def test_the_age_of_a_page_is_told_by_what_is_settled():
    """It counts from when the page was read, which was the settling time later."""
    (asked,), recorder = ask(page())
    assert asked.age_ms == pytest.approx(2_000.0)
    (read,) = recorder.reads
    assert read.bound_seconds == 3.0


@pytest.mark.parametrize("death", [Response(500, {}), NoResponseError("reset")])
def test_who_got_no_response_asks_again(death):
    """Once: whoever served it died."""
    asked, recorder = ask(death, page())
    assert [each.is_served for each in asked] == [False, True]
    assert len(recorder.reads) == 1


def test_who_is_refused_does_not():
    """Refusals are what is counted."""
    (asked,), recorder = ask(Response(503, {}))
    assert (asked.status, asked.is_served, recorder.reads) == (503, False, [])


def test_what_has_no_response_in_time_was_not_served(monkeypatch):
    """A machine that cannot keep up does not make the demonstration last."""
    monkeypatch.setattr(read_rush, "PATIENCE_SECONDS", 0.0)

    class SlowApi:
        async def read(self, conversation_id, parameters):
            await asyncio.sleep(60.0)

    rush = ReadRush(api=SlowApi(), recorder=Recorder(), conversation_id="c", now=lambda: 1.0)
    asyncio.run(rush.last(0.05, 100.0))
    assert rush.asked
    assert not any(each.is_served for each in rush.asked)


COURSE = RushCourse(
    began=10.0,
    asked=(
        Asked(10.1, 10.2, 200, 10.2),
        Asked(10.5, 10.6, 200, 10.4),
        Asked(11.0, 11.1, 503),
        Asked(11.5, 11.6, 200, 11.2),
    ),
    counts=((9.0, Counter(l1=7)), (10.6, Counter(l1=1)), (11.6, Counter(redis=1))),
)


def test_pages_are_counted_by_where_they_came_from():
    """What neither cache gave was read from DynamoDB; what was counted before the rush is left out."""
    assert [COURSE.total(origin) for origin in ("l1", "redis", "dynamodb")] == [1, 1, 1]
    by_second = {name: COURSE.by_second(name) for name in ("asked", "refused", "l1", "redis", "dynamodb")}
    assert by_second == {"asked": [2, 2], "refused": [0, 1], "l1": [1, 0], "redis": [0, 1], "dynamodb": [1, 0]}
    assert COURSE.age_ms(1.0) == pytest.approx(400.0)
    assert COURSE.ages_by_second(0.99) == [pytest.approx(200.0), pytest.approx(400.0)]
    assert RushCourse(began=1.0).age_ms(0.5) is None


def test_counts_are_read_from_the_functions_log(tmp_path):
    """Each of them, also where two environments wrote on one line."""
    metrics = {"_aws": {"Timestamp": 12_000}, "PagesFromL1": [1.0], "PageFills": [1.0, 1.0]}
    line = json.dumps(metrics, separators=(",", ":"))
    (tmp_path / "read_messages.log").write_text(f"START\n{line}{line}\n{{}}\n")
    assert list(read_counts(tmp_path)) == [(12.0, Counter(l1=1, fills=2))] * 2
