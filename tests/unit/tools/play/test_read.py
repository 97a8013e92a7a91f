"""What the read trials pass and fail on."""

from dataclasses import replace

import pytest

from tools.history import Acknowledged, Read, Seen
from tools.play.client import Recorder
from tools.play.read import Kill, Run, judge, summarize
from tools.play.readers import Asked

FOUND = 100.0
LATER = 110.0
MESSAGE = "0" * 26


def served(age: float = 0.3) -> Asked:
    return Asked(LATER, LATER + 0.01, 200, LATER - age)


def run_of(*asked: Asked, kills: tuple[bool, ...] = (True,)) -> Run:
    """A run with the messages looked for."""
    acknowledged = Acknowledged(conversation_id="c", message_id=MESSAGE, digest="d", acknowledged_at=1.0)
    read = Read(
        conversation_id="c",
        order="newest",
        consistency="strong",
        started_at=LATER,
        messages=(Seen(MESSAGE, "d"),),
        complete=True,
    )
    return Run(
        began=FOUND - 1.0,
        found=FOUND,
        copies=2,
        asked=list(asked),
        kills=[Kill(LATER, 0.05, hit_holder=hit) for hit in kills],
        recorder=Recorder(acknowledged=[acknowledged], reads=[read]),
    )


def test_a_killed_holder_may_take_its_own_request_along():
    """One for each process that was killed, and no more."""
    died = Asked(LATER, LATER + 0.1, 500)
    assert judge(run_of(served(), died), 1) == []
    assert judge(run_of(served(), died, died), 1) == ["2 requests died, of 1 processes that were killed with one each"]


@pytest.mark.parametrize(
    ("asked", "kills", "words"),
    [
        (Asked(LATER, LATER + 0.1, 503, None, "busy"), (True,), "a page was refused with 503: busy"),
        (served(age=3.1), (True,), "a page was 3.10 s old, at most 3 s allowed"),
        (served(), (True, False), "1 of 2 kills hit a holder, 2 needed"),
    ],
)
def test_what_falls_short_is_named(asked, kills, words):
    """Refusals, pages beyond the bound, and kills that tried nothing."""
    assert judge(run_of(asked, kills=kills), len(kills)) == [words]


def test_a_machine_that_stood_still_refuses_nothing():
    """No fault of these trials keeps DynamoDB's stand-in from responding."""
    late = Asked(LATER, LATER + 2.1, 503, None, "DynamoDB did not respond (curl error 28)")
    assert judge(run_of(served(), late), 1) == []


def test_what_came_before_everybody_knew_counts_as_before():
    """Refused or not: it is what the cache is for."""
    refused = Asked(FOUND - 0.5, FOUND - 0.4, 503)
    run = run_of(refused, served())
    assert judge(run, 1) == []
    assert summarize(run)["before"] == {"asked": 1, "refused": 1}


def test_a_conversation_that_is_never_found_fails():
    """Nothing else was tried."""
    (fault,) = judge(replace(run_of(), found=None), 1)
    assert "not found read-hot" in fault


def test_the_history_is_judged():
    """A page that lacks what was acknowledged a bound before it is a fault."""
    run = run_of(served())
    page = replace(run.recorder.reads[0], consistency="eventual", messages=(), bound_seconds=3.0)
    run.recorder.reads.append(page)
    (fault,) = judge(run, 1)
    assert fault.startswith(f"stale: {MESSAGE}")
