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
from jinja2 import UndefinedError

from tests.unit.tools.simulation.report_builders import contents, run_of
from tools.simulation.read_rush import ReadRush
from tools.simulation.report import Plan, gather, read_plan, step_counts, summary, write_files
from tools.simulation.report_assumptions import comparison_assumptions
from tools.simulation.report_page import build_report, rare, since_onset
from tools.simulation.report_pictures import HALVES, STRATEGY_LINES, STRATEGY_NAMES, build_pictures
from tools.simulation.report_replay import replay
from tools.simulation.results import Distribution, StrategySummary
from tools.simulation.run import simulate
from tools.simulation.scale_traffic import Level
from tools.simulation.scenarios import scenario_by_name
from tools.simulation.strategies import STRATEGIES
from tools.simulation.tuning import PLANS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
DOCUMENT = (ROOT / "docs/simulation-summary.md").read_text()

VOID = {"meta", "br", "hr", "img", "input", "link"}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def made():
    return contents()


@pytest.fixture(scope="module")
def pictures(made):
    return build_pictures(made)


@pytest.fixture(scope="module")
def html(made, pictures):
    return build_report(made, pictures)


class Outline(HTMLParser):
    """Checks that elements are closed in order, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.loads, self.ids = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.loads += [value for name, value in attrs if name in {"src", "href", "srcset", "xlink:href", "data"}]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def outline(html):
    parsed = Outline()
    parsed.feed(html)
    assert parsed.open == []
    return parsed


def test_report_tells_every_strategy_sweep_and_picture(made, pictures, html):
    """Names, explanations and pictures are all there, and elements are closed."""
    text = " ".join(outline(html).text)
    for run in made.comparison.runs:
        assert STRATEGY_NAMES[run.strategy] in text
    for sweep in made.tuning.sweeps:
        assert f"Numbers: {sweep.name.replace('-', ' ')}" in text
    for level in made.scale.levels:
        assert f"{level.writes_per_second:,} writes/s" in text
    for picture in pictures.values():
        assert html.count(picture.svg) == 1
    for assumption in (*made.comparison.assumptions, *made.scale.assumptions):
        assert assumption in text


def test_every_strategy_and_sweep_has_its_words(made):
    """A strategy or sweep that is added is named and explained: the report of all of them has no hole."""
    assert set(STRATEGIES) == set(STRATEGY_NAMES) == set(STRATEGY_LINES) == {r.strategy for r in made.comparison.runs}
    assert {plan.name for plan in PLANS} == set(HALVES) == {sweep.name for sweep in made.tuning.sweeps}


@pytest.mark.parametrize("part", ["strategy", "sweep"])
def test_what_has_no_words_is_an_error(made, pictures, part):
    """A hole in the report is found where it is built."""
    if part == "strategy":
        runs = (*made.comparison.runs, replace(made.comparison.runs[0], strategy="new"))
        changed = replace(made, comparison=replace(made.comparison, runs=runs))
    else:
        sweeps = (replace(made.tuning.sweeps[0], name="new"),)
        changed = replace(made, tuning=replace(made.tuning, sweeps=sweeps))
    with pytest.raises((UndefinedError, KeyError), match="new"):
        build_report(changed, pictures)


def test_report_loads_nothing(html):
    """No scripts, no files, no addresses but the names of SVG itself; links lead to parts of the page."""
    page = outline(html)
    assert len(page.ids) == len(set(page.ids))
    assert {*page.loads, *re.findall(r"url\(([^)]*)\)", html)} <= {f"#{name}" for name in page.ids}
    assert "<script" not in html
    assert "@import" not in html
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<]+", html)) == names


def test_report_shows_the_figures_of_its_results(made, pictures, html):
    """A figure that changes, changes the page: one seed's in its table, all seeds' on the first screen."""
    ours = next(run for run in made.comparison.runs if run.strategy == "ours")
    changed = build_report(with_ours(made, replace(ours, safety=replace(ours.safety, missing=4_711))), pictures)
    assert "4,711" not in html
    assert changed.count("4,711") == 1
    assert changed.count("9422 / 0") == 1


def with_ours(made, *runs):
    """Replace what came out of the product's runs."""
    comparison = made.comparison
    return replace(
        made,
        comparison=replace(
            comparison,
            runs=tuple(runs[0] if run.strategy == "ours" else run for run in comparison.runs),
            summaries=tuple(
                StrategySummary.of((*runs, *runs)[:2]) if summary.strategy == "ours" else summary
                for summary in comparison.summaries
            ),
        ),
    )


def test_the_first_screen_says_what_fails_and_what_it_costs(made, pictures):
    """What fails without and with it, how soon, what is paid on the hot key and on all others: each with its range."""
    sound = run_of("ours", relieved_bin=32, shards=8)
    slower = replace(
        sound,
        prompt_seconds=3.5,
        raised_seconds=2.0,
        unserved_share_of_ten_minutes=0.013,
        phases=tuple(
            replace(phase, queries_per_page=10.0, rcu_per_page=7.5) if phase.name == "hot_after" else phase
            for phase in sound.phases
        ),
    )
    page = build_report(with_ours(made, sound, slower), pictures)
    first_screen = page[page.index("<h1>") : page.index('id="problem"')]
    for figure in (
        "<b>75 % → 1 % (1 to 1.3)</b>",
        "<b>1.5 s (1.5 to 2)</b>",
        "<b>3 s (3 to 3.5)</b>",
        "<b>1 → 9 (9 to 10)</b>",
        "read units: 6 → 6 (6 to 8)",
        "<b>1 → 9</b>",
    ):
        assert figure in first_screen, figure
    for phase in ("Quiet conversations", "during the rush", "afterwards"):
        assert phase in first_screen


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0, 0.0], "at once"),
        ([0.5, 0.75, 1.0], "0.75 s (0.5 to 1)"),
        ([2.0, 2.0], "2 s"),
        ([1.0, 1.5, None], "1.5 s (1 to never)"),
        ([1.0, None, None], "never (1 to never)"),
        ([None, None], "never"),
    ],
)
def test_what_happens_at_once_is_not_said_never_to_happen(values, words):
    """Both would be a dash, or a zero, in a table of numbers."""
    assert since_onset(Distribution.of(values)) == words


def test_every_plot_has_its_numbers_in_a_table(made, html):
    """What is drawn over time and what is swept can be read as numbers, each row with its time or value."""
    bins = len(made.comparison.runs[0].series.offered_wcu)
    tables = re.findall(r"<summary>(.*?)</summary>(.*?)</details>", html, flags=re.DOTALL)
    rows = {title: len(re.findall(r"<tr>", table)) - 1 for title, table in tables}
    assert rows.pop("Numbers: failed, WCU/s") == bins
    assert rows.pop("Numbers: write latency p99, ms") == bins
    for sweep in made.tuning.sweeps:
        assert rows.pop(f"Numbers: {sweep.name.replace('-', ' ')}") == len(sweep.points)


def test_same_results_same_bytes(made, pictures, html, tmp_path):
    """Report, summary and pictures hold no time, path or order of their own."""
    written = {path.name: path.read_text(encoding="utf-8") for path in write_files(contents(), tmp_path)}
    assert {"summary.json", "report.html", "comparison.svg", "tuning-cache-life.svg"} <= written.keys()
    files = {f"{name}.svg": picture.file() for name, picture in pictures.items()}
    assert written == {"summary.json": json.dumps(summary(made), indent=1) + "\n", "report.html": html, **files}


def test_pictures_are_files_of_their_own(pictures):
    """Well-formed SVG with its style, nothing outside the frame, and readable numbers with units."""
    for name, picture in pictures.items():
        file = picture.file()
        root = ET.fromstring(file)  # noqa: S314 - the project's own file
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        assert "prefers-color-scheme" in file
        texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
        assert any(
            re.search(r"\b(WCU/s|pages/s|s|seconds|ms|writes/s|WCU|share|quantile)\b", text) for text in texts
        ), name
        for text in root.iter(f"{SVG}text"):
            assert 0 <= float(text.attrib["x"]) <= width, (name, text.text)
            assert 0 <= float(text.attrib["y"]) <= height, (name, text.text)
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
    patterns = re.compile(r"delay_\d+_(p50|p99)_seconds|n_\d+_(p50|p999)|(refused_first|unlucky)_\d+")
    assert sorted(n for n in {*names_in(written), *measures} if n not in documented and not patterns.fullmatch(n)) == []


def test_measures_of_the_sweeps_are_documented():
    """The real ones, at their defaults."""
    documented = set(re.findall(r"`([a-z0-9_]+)`", DOCUMENT))
    patterns = re.compile(r"delay_\d+_(p50|p99)_seconds|n_\d+_(p50|p999)|(refused_first|unlucky)_\d+")
    for plan in PLANS:
        if plan.name in {"cache-life", "hedge-quantile"}:
            continue  # slow to measure; the builders have their names from the pictures
        assert [n for n in plan.measure(plan.default, 1) if n not in documented and not patterns.fullmatch(n)] == []


def test_a_strategy_without_raise_and_one_without_relief_are_told(made):
    """Never is a word, not a crash."""
    changed = with_ours(made, run_of("ours", relieved_bin=None, shards=0))
    assert "<b>never</b>" in build_report(changed, build_pictures(changed))


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


def test_command_line_names_what_is_wrong(capsys, tmp_path):
    """A scenario that does not exist, both inputs at once, a file that is not there."""
    for arguments in (["--scenario", "nonsense"], ["--messages", str(tmp_path / "none")], ["--seeds", "0"]):
        with pytest.raises(SystemExit):
            read_plan(arguments)
        assert arguments[1] in capsys.readouterr().err
    plan, out_dir = read_plan(["--scenario", "ramp", "--seed", "9"])
    assert (plan.scenario.name, plan.seed, out_dir) == ("ramp", 9, Path("out/simulation"))
    assert (plan.seeds, plan.command) == (1, "make simulate SCENARIO=ramp SEED=9")
    plan, _ = read_plan([])
    assert (plan.seeds, plan.command) == (20, "make simulate SCENARIO=compare SEED=1")
    plan, _ = read_plan(["--seeds", "3"])
    assert (plan.seeds, plan.command) == (3, "make simulate SCENARIO=compare SEED=1 SEEDS=3")


def test_messages_become_a_scenario(tmp_path):
    """The largest conversation is the one that gets hot; a file without messages is refused."""
    path = tmp_path / "messages.jsonl"
    message = {"time": "2026-01-01T10:00:00Z", "sender": "ann", "text": "hello"}
    rooms = ["a", "b", "b", "b", "c"]
    path.write_text("".join(json.dumps({"conversation_id": room, **message}) + "\n" for room in rooms))
    scenario = replay(path)
    assert (scenario.hot_conversation, scenario.onset, scenario.heat_ends) == ("b", 0.0, 30.0)
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


def test_whole_command_is_deterministic(tmp_path):
    """Comparison, scale study and sweeps, in one process and in two, give the same bytes."""
    level = Level(writes_per_second=1_000, rushes=1, seeds=2, run_ms=4_500)
    scenario = replace(scenario_by_name("compare"), seconds=2.0, onset=1.0, drain_seconds=3.0)
    rush = ReadRush(name="small", description="A small one.", seconds=1.0, copies=2, scale=0.01)
    plan = Plan(
        scenario=scenario,
        seed=3,
        strategies=("none", "ours"),
        rushes=(rush,),
        levels=(level,),
        sweeps=("at-once-window",),
    )
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
    assert simulate(scenario, 4, "ours") != simulate(scenario, 3, "ours")
