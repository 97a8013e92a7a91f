"""The report: well-formed, complete, and readable without network."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace
from html.parser import HTMLParser

import pytest

from tests.unit.tools.demo.builders import FALLING, FAULTLESS, GOOD, load
from tools.demo.judge import Bars, Hot, judge
from tools.demo.observer import Event, Raise
from tools.demo.report import Run, build_report
from tools.history_checker import Finding

VOID = {"meta", "br", "hr", "img", "link", "input"}
START = 1_700_000_000.0


def run(**changes) -> Run:
    """A run of 80 s like a real one: hot from 22 to 60 s on one key, then on seven."""
    rng = random.Random(1)
    timeline, offered = [], []
    for tick in range(320):
        at_ms, second = int(START * 1000) + tick * 250, tick / 4
        hot = 22 <= second < 60
        timeline.append(load(at_ms, "room-001", 0, rng.randint(0, 3)))
        if hot and second < 24:
            timeline.append(load(at_ms, "launch-day", 12 if second > 22.5 else 0, 5))
        elif hot:
            timeline += [load(at_ms, f"launch-day#{index}", 0, rng.randint(1, 4)) for index in range(7)]
        offered += [(START + second, "launch-day")] * (15 if hot else 0)
        offered += [(START + second, "room-001")] * 10
    judgement = judge(summary=GOOD, history=FAULTLESS, throttles=FALLING, bars=Bars())
    values = {
        "summary": replace(GOOD, hot_conversation="launch-day", max_n=7),
        "judgement": judgement,
        "history": FAULTLESS,
        "throttles": FALLING,
        "hot": Hot(begins=START + 22, ends=START + 60),
        "started_at": START,
        "ended_at": START + 80,
        "offered_at": tuple(offered),
        "timeline": tuple(timeline),
        "raises": (Raise(START + 23.4, 7, 1),),
        "events": (Event(START + 23.4, "launch-day: N raised to 7"),),
        "steps": ("It was started.", "It was <stopped>."),
        "notes": (),
    }
    return Run(**{**values, **changes})


class Nesting(HTMLParser):
    """Checks that every element that is opened is closed, in the right order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(html: str) -> Nesting:
    parser = Nesting()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def test_the_report_is_well_formed():
    """Every element is closed, and every plot is XML in itself."""
    html = build_report(run())
    page = parsed(html)
    plots = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(plots) == page.counts["svg"] == 2 + 8 + 1
    for plot in plots:
        ET.fromstring(plot)  # noqa: S314 - our own text


def test_the_report_needs_no_network_and_no_script():
    """It names no address, and loads nothing."""
    html = build_report(run())
    for forbidden in ("http://", "https://", "//cdn", "<script", "<link", "<img", "@import", "url("):
        assert forbidden not in html


def test_the_report_holds_every_figure():
    """The table has the fields of the summary, the verdict and its conditions."""
    html = build_report(run())
    text = " ".join(parsed(html).text)
    for name in asdict(GOOD):
        assert name in text
    assert "verdict" in text
    assert "5,000" in text
    for condition in run().judgement.conditions:
        assert condition.figures in text
    assert "raised to N = 7 at 23.4 s" in text
    assert "launch-day#6" in text
    assert "It was <stopped>." in text


def test_a_failed_run_says_why():
    """Reasons and examples are on the page, and strange characters cannot break it."""
    summary = replace(GOOD, missing=1, onset_to_raise_seconds=None, max_n=0)
    history = replace(FAULTLESS, missing=1, examples=(Finding("missing", "a&b", "X", "<gone>"),))
    judgement = judge(summary=summary, history=history, throttles=FALLING, bars=Bars())
    html = build_report(
        run(summary=summary, history=history, judgement=judgement, raises=(), notes=("answered <400>",))
    )
    text = " ".join(parsed(html).text)
    assert "FAIL" in text
    assert "N was never raised after the onset" in text
    assert "missing: a&b X: <gone>" in text
    assert "answered <400>" in text


@pytest.mark.parametrize("changes", [{"timeline": (), "offered_at": ()}, {"ended_at": START}])
def test_a_run_that_saw_nothing_still_has_a_report(changes):
    """Nothing to draw is no error."""
    parsed(build_report(run(raises=(), events=(), **changes)))


def test_many_shards_are_cut_and_the_rest_is_told():
    """More keys than can be read are counted instead of drawn."""
    timeline = tuple(load(int(START * 1000), f"launch-day#{index}", 0) for index in range(64))
    html = build_report(run(timeline=timeline))
    assert "32 more keys are not drawn." in html
