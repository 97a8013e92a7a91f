"""The report: complete, self-contained, well-formed, and the same for the same results."""

import json
import re
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from multiprocessing import get_context
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.unit.tools.simulation.report_builders import contents, run_of
from tools.simulation.report import Plan, gather, read_plan, run_strategy, step_counts, summary, write_files
from tools.simulation.report_assumptions import comparison_assumptions
from tools.simulation.report_charts import Axis, Panel, figure, round_up
from tools.simulation.report_page import build_pictures, build_report
from tools.simulation.report_pictures import STRATEGY_NAMES
from tools.simulation.report_replay import replay
from tools.simulation.report_texts import STRATEGY_TEXTS, SWEEP_TEXTS, rare
from tools.simulation.scale_traffic import Level
from tools.simulation.scenarios import scenario_by_name
from tools.simulation.strategies import STRATEGIES
from tools.simulation.tuning import PLANS

ROOT = Path(__file__).resolve().parents[4]
DOCUMENT = (ROOT / "docs/simulation-summary.md").read_text()

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Outline(HTMLParser):
    """Checks that elements are closed in order, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.loads = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [value for name, value in attrs if name in {"src", "href", "srcset", "xlink:href", "data"}]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def outline(html):
    parsed = Outline()
    parsed.feed(html)
    assert parsed.open == []
    return parsed


def test_report_tells_every_strategy_sweep_and_picture():
    """Names, explanations and pictures are all there, and elements are closed."""
    made = contents()
    html = build_report(made)
    text = " ".join(outline(html).text)
    for run in made.comparison.runs:
        assert STRATEGY_NAMES[run.strategy] in text
        assert STRATEGY_TEXTS[run.strategy] in text
    for title, _ in SWEEP_TEXTS.values():
        assert title in text
    for level in made.scale.levels:
        assert f"{level.writes_per_second:,} writes/s" in text
    for picture in build_pictures(made):
        assert picture.inline() in html
    for assumption in (*made.comparison.assumptions, *made.scale.assumptions):
        assert assumption in text


def test_every_strategy_and_sweep_has_its_words():
    """A strategy or sweep that is added is named and explained."""
    assert set(STRATEGIES) == set(STRATEGY_NAMES) == set(STRATEGY_TEXTS)
    assert {plan.name for plan in PLANS} == set(SWEEP_TEXTS)


def test_report_loads_nothing():
    """No scripts, no files, no addresses but the name of SVG itself."""
    html = build_report(contents())
    assert outline(html).loads == []
    assert "<script" not in html
    assert "@import" not in html
    assert "url(" not in html
    assert set(re.findall(r"https?://[^\s\"'<]+", html)) == {"http://www.w3.org/2000/svg"}


def test_report_shows_the_figures_of_its_results():
    """A figure that changes, changes the page."""
    made = contents()
    ours = next(run for run in made.comparison.runs if run.strategy == "ours")
    lost = replace(ours, safety=replace(ours.safety, missing=4_711))
    runs = tuple(lost if run is ours else run for run in made.comparison.runs)
    changed = replace(made, comparison=replace(made.comparison, runs=runs))
    assert "4,711" not in build_report(made)
    assert build_report(changed).count("4,711") == 1
    assert build_report(changed).count("4711 / 0") == 1


def test_same_results_same_bytes(tmp_path):
    """Report, summary and pictures hold no time, path or order of their own."""
    written = [write_files(contents(), tmp_path / name) for name in ("a", "b")]
    assert [path.name for path in written[0]] == [path.name for path in written[1]]
    assert {"summary.json", "report.html", "comparison.svg", "tuning-cache-life.svg"} <= {p.name for p in written[0]}
    for first, second in zip(*written, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_pictures_are_files_of_their_own(tmp_path):
    """Well-formed SVG with its style, nothing outside the frame, and readable numbers."""
    for path in write_files(contents(), tmp_path):
        if path.suffix != ".svg":
            continue
        root = ET.fromstring(path.read_text())  # noqa: S314 - the project's own file
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        assert "prefers-color-scheme" in path.read_text()
        for text in root.iter("{http://www.w3.org/2000/svg}text"):
            assert 0 <= float(text.attrib["x"]) <= width, (path.name, text.text)
            assert 0 <= float(text.attrib["y"]) <= height, (path.name, text.text)
            assert "nan" not in (text.text or "")


def names_in(value, path=""):
    """List the names of all fields of a JSON value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from names_in(inner)
    elif isinstance(value, list):
        for inner in value[:1]:
            yield from names_in(inner)


def test_every_field_of_the_summary_is_documented():
    """docs/simulation-summary.md names each, and the summary is plain JSON."""
    made = summary(contents())
    written = json.loads(json.dumps(made, allow_nan=False))
    documented = set(re.findall(r"`([a-z0-9_]+)`", DOCUMENT))
    measures = {name for sweep in written["tuning"]["sweeps"] for p in sweep["points"] for name in p["measures"]}
    patterns = re.compile(r"delay_\d+_(p50|p99)_seconds")
    assert sorted(n for n in {*names_in(written), *measures} if n not in documented and not patterns.fullmatch(n)) == []


def test_measures_of_the_sweeps_are_documented():
    """The real ones, at their defaults."""
    documented = set(re.findall(r"`([a-z0-9_]+)`", DOCUMENT))
    patterns = re.compile(r"delay_\d+_(p50|p99)_seconds")
    for plan in PLANS:
        if plan.name in {"cache-life", "hedge-quantile"}:
            continue  # slow to measure; the builders have their names from the pictures
        assert [n for n in plan.measure(plan.default, 1) if n not in documented and not patterns.fullmatch(n)] == []


def test_a_strategy_without_raise_and_one_without_relief_are_told():
    """Never is a word, not a crash."""
    made = contents()
    never = run_of("ours", relieved_bin=None, shards=0)
    runs = tuple(never if run.strategy == "ours" else run for run in made.comparison.runs)
    html = build_report(replace(made, comparison=replace(made.comparison, runs=runs)))
    assert "<b>never</b>" in html


@pytest.mark.parametrize(
    ("per_hour", "words"),
    [
        (12.0, "12 times in such an hour"),
        (0.5, "once in 2 such hours"),
        (1e-5, "once in 11 years of such hours"),
        (0.0, "less than once in a thousand years of such hours"),
    ],
)
def test_rare_events_are_told_in_words(per_hour, words):
    """Nobody has to read exponents."""
    assert rare(per_hour) == words


def test_axes_place_values_and_choose_round_marks():
    """Linear and logarithmic, clipped at their ends."""
    axis, log = Axis(low=0, high=4_000), Axis(low=1, high=1e4, is_log=True)
    assert axis.share(1_000) == 0.25
    assert axis.share(9_999) == 1
    assert list(axis.marks(4)) == [0, 1_000, 2_000, 3_000, 4_000]
    assert log.share(100) == pytest.approx(0.5)
    assert log.share(0) == 0
    assert [round_up(v) for v in (0, 0.3, 1, 3.1, 7, 4_200)] == [1, 0.5, 1, 5, 10, 5_000]
    assert [figure(v) for v in (0, 0.5, 950, 10_000, 2.5e6, 1e-9)] == ["0", "0.5", "950", "10k", "2.5M", "1e-9"]
    panel = Panel(x=axis, y=axis)
    panel.line([(0, 1.0), (1, None), (2, 2.0), (3, 3.0)], "c0")
    assert panel.draw().count('class="line"') == 1


def test_command_line_names_what_is_wrong(capsys, tmp_path):
    """A scenario that does not exist, both inputs at once, a file that is not there."""
    for arguments in (["--scenario", "nonsense"], ["--messages", str(tmp_path / "none")]):
        with pytest.raises(SystemExit):
            read_plan(arguments)
        assert arguments[1] in capsys.readouterr().err
    plan, out_dir = read_plan(["--scenario", "ramp", "--seed", "9"])
    assert (plan.build().name, plan.seed, out_dir) == ("ramp", 9, Path("out/simulation"))
    assert plan.command == "make simulate SCENARIO=ramp SEED=9"


def test_messages_become_a_scenario(tmp_path):
    """The largest conversation is the one that gets hot; a file without messages is refused."""
    path = tmp_path / "messages.jsonl"
    message = {"time": "2026-01-01T10:00:00Z", "sender": "ann", "text": "hello"}
    rooms = ["a", "b", "b", "b", "c"]
    path.write_text("".join(json.dumps({"conversation_id": room, **message}) + "\n" for room in rooms))
    scenario = replay(path)
    assert (scenario.hot_conversation, scenario.onset) == ("b", 0.0)
    assert "5 messages of messages.jsonl, 3 of them" in scenario.description
    path.write_text("")
    with pytest.raises(ValueError, match="holds no messages"):
        replay(path)


def test_assumptions_have_the_scenarios_numbers():
    """And change with them."""
    scenario = scenario_by_name("compare")
    told = " ".join(comparison_assumptions(scenario))
    assert "10,000 WCU/s of other traffic" in told
    assert "1,000 execution environments" in told
    assert comparison_assumptions(replace(scenario, other_wcu=1.0)) != comparison_assumptions(scenario)


class Inline(Executor):
    """Runs what it is given, at once."""

    def submit(self, work, /, *args, **kwargs):
        future = Future()
        future.set_result(work(*args, **kwargs))
        return future


@pytest.mark.slow
def test_whole_command_is_deterministic(tmp_path):
    """Comparison, scale study and sweeps, in one process and in two, give the same bytes."""
    level = Level(writes_per_second=1_000, rushes=1, seeds=2, run_ms=4_500)
    build = partial(replace, scenario_by_name("compare"), seconds=2.0, onset=1.0, drain_seconds=3.0)
    plan = Plan(build=build, seed=3, strategies=("none", "ours"), levels=(level,), sweeps=("at-once-window",))
    done = dict.fromkeys(step_counts(plan), 0)

    def bar(name):
        done[name] += 1

    bars = {name: partial(bar, name) for name in done}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        write_files(gather(plan, pool, bars), tmp_path / "two")
    assert done == step_counts(plan)
    write_files(gather(plan, Inline(), bars), tmp_path / "one")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert run_strategy(build, 4, "ours") != run_strategy(build, 3, "ours")
