"""The report: well-formed, complete, and readable without network."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import asdict, replace
from html.parser import HTMLParser
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.unit.tools.demo.builders import FALLING, FAULTLESS, GOOD, load
from tools.demo.__main__ import say_outcome
from tools.demo.client import Timing
from tools.demo.judge import Bars, Hot, judge, measure_machine
from tools.demo.observer import Event, Raise
from tools.demo.read_rush import Asked, RushCourse
from tools.demo.report import Run, build_pictures, build_report
from tools.history_checker import Finding

pytestmark = pytest.mark.slow

VOID = {"meta", "br", "hr", "img", "link", "input"}
START = 1_700_000_000.0


def run(**changes) -> Run:
    """A run of 80 s like a real one: hot from 22 to 60 s on one key, then on seven."""
    rng = random.Random(1)
    timeline, offered, timings = [], [], []
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
        timings += [Timing(START + second, 0.9 if second == 23 else 0.01, 0.0)] * 10
    judgement = judge(summary=GOOD, history=FAULTLESS, throttles=FALLING, bars=Bars())
    values = {
        "summary": replace(GOOD, hot_conversation="launch-day", max_n=7),
        "judgement": judgement,
        "history": FAULTLESS,
        "throttles": FALLING,
        "machine": measure_machine([0.0] * 100),
        "hot": Hot(begins=START + 22, ends=START + 60),
        "started_at": START,
        "ended_at": START + 80,
        "offered_at": tuple(offered),
        "timings": tuple(timings),
        "timeline": tuple(timeline),
        "raises": (Raise(START + 23.4, 7, 1),),
        "events": (Event(START + 23.4, "launch-day: N raised to 7"),),
        "steps": ("It was started.", "It was <stopped>."),
        "notes": (),
        "read_rush": RushCourse(
            began=START + 70,
            asked=tuple(Asked(START + 70 + n / 10, START + 70 + n / 10, 200, START + 69.8 + n / 10) for n in range(60)),
            counts=tuple((START + 70 + n / 10, Counter(l1=1)) for n in range(5, 60)),
        ),
    }
    return Run(**{**values, **changes})


def report_of(given: Run) -> str:
    return build_report(given, build_pictures(given))


@pytest.fixture(scope="module")
def pictures():
    return build_pictures(run())


@pytest.fixture(scope="module")
def html(pictures) -> str:
    return build_report(run(), pictures)


class Nesting(HTMLParser):
    """Checks that every element that is opened is closed, in the right order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.counts: dict[str, int] = {}
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in {"href", "src", "srcset", "xlink:href", "data"}]
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

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


def test_the_report_is_well_formed(html):
    """Every element is closed, and every plot is XML in itself."""
    page = parsed(html)
    plots = re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL)
    assert len(plots) == page.counts["svg"] == 4
    for plot in plots:
        ET.fromstring(plot)  # noqa: S314 - our own text


def test_the_report_needs_no_network_and_no_script(html):
    """It names no address but those of SVG's namespaces, and links only to parts of its own that are there."""
    assert set(re.findall(r"https?://[^\s\"'<]+", html)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    for forbidden in ("//cdn", "<script", "<link", "<img", "<image", "@import"):
        assert forbidden not in html
    page = parsed(html)
    assert len(page.ids) == len(set(page.ids))
    assert {*page.links, *re.findall(r"url\(([^)]*)\)", html)} <= {f"#{name}" for name in page.ids}


def test_the_report_holds_every_figure(html):
    """The table has the fields of the summary, the verdict and its conditions."""
    text = " ".join(parsed(html).text)
    for name in asdict(GOOD):
        assert name in text
    assert "verdict" in text
    assert "5,000" in text
    for condition in run().judgement.conditions:
        assert condition.figures in text
    assert "raised to N = 7 at 23.4 s" in text
    assert "launch-day#6" in text
    for unit in ("writes/s", "ms, logarithmic", "N, shards", "seconds since the workload began"):
        assert unit in text
    assert "It was <stopped>." in text


def test_a_failed_run_says_why(pictures):
    """Reasons and examples are on the page, and strange characters cannot break it."""
    summary = replace(GOOD, missing=1, onset_to_raise_seconds=None, max_n=0)
    history = replace(FAULTLESS, missing=1, examples=(Finding("missing", "a&b", "X", "<gone>"),))
    judgement = judge(summary=summary, history=history, throttles=FALLING, bars=Bars())
    failed = run(summary=summary, history=history, judgement=judgement, raises=(), notes=("answered <400>",))
    text = " ".join(parsed(build_report(failed, pictures)).text)
    assert "FAIL" in text
    assert "N was never raised after the onset" in text
    assert "missing: a&b X: <gone>" in text
    assert "answered <400>" in text


def test_the_numbers_beside_the_plots_are_those_of_whole_seconds(html):
    """What was offered, stored and refused in the second of the raise, its latencies, and N."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    (row,) = (row for row in rows if row.startswith('<th scope="row">23</th>'))
    cells = re.findall(r"<td>(.*?)</td>", row)
    assert cells[:8] == ["60", "20", "0", "48", "7", "10", "900", "0"]


def test_the_same_run_gives_the_same_bytes(html):
    """Nothing in it depends on the time or the order of a hash."""
    assert report_of(run()) == html


def test_a_machine_that_was_too_slow_is_named_with_its_figures(html, pictures):
    """By how much, at the top of the page, and what to do."""
    slow = measure_machine([0.0] * 90 + [1.5] * 10)
    assert not slow.kept_up
    head, _, _ = build_report(run(machine=slow), pictures).partition("<nav")
    assert "could not keep up: 10 of 100 write requests (10.0 %) waited more than 50 ms" in head
    assert "p99 of that wait: 1,500 ms" in head
    assert "run it again" in head
    assert "could not keep up" not in html


@pytest.mark.parametrize(
    ("waits", "words"), [([1.5] * 10, ", on a machine that could not keep up (10 % of"), ([], ";")]
)
def test_the_verdict_line_says_whether_the_machine_kept_up(tmp_path, waits, words):
    """By how much, and what to do: whoever reads no other line reads this one."""
    told, files = Console(file=StringIO(), width=200), {"summary_file": tmp_path / "s", "report_file": tmp_path / "r"}
    shown = run(machine=measure_machine([0.0] * 90 + waits))
    assert say_outcome(shown, SimpleNamespace(**files), told) == 0
    line = told.file.getvalue().splitlines()[-1]
    assert line.startswith("verdict: pass after")
    assert f" s{words}" in line


@pytest.mark.parametrize(
    "changes", [{"timeline": (), "offered_at": (), "timings": ()}, {"ended_at": START}, {"summary": GOOD}]
)
def test_a_run_that_saw_nothing_still_has_a_report(changes):
    """Nothing to draw is no error."""
    parsed(report_of(run(raises=(), events=(), **changes)))


def test_many_shards_are_cut_and_the_number_of_others_is_shown():
    """More keys than can be read are counted instead of drawn."""
    timeline = tuple(load(int(START * 1000), f"launch-day#{index}", 0) for index in range(64))
    html = report_of(run(timeline=timeline))
    assert "32 more keys are not drawn." in html
