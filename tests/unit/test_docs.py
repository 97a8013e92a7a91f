"""Documents stay honest: what the code has, they name; and where they lead, something is."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from hotpartition.control.read_marking import READ_HOT
from hotpartition.core.detector import Reason
from hotpartition.core.metrics import MetricName
from hotpartition_cdk.options import list_options
from hotpartition_cli.main import hotpartition
from infra.environments import DEV
from tools.configuration import construct_options_table, options_table, settings_table
from tools.local.control import Control
from tools.readme import ON_AWS, check_of, does, read_steps

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "layers/routing/python/hotpartition"
README = (ROOT / "README.md").read_text()
OPERATIONS = (ROOT / "docs/operations.md").read_text()
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
SOURCES = [path for name in ("layers", "lambdas", "hotpartition_cdk") for path in (ROOT / name).rglob("*.py")]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted(ROOT.glob("examples/*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "tools/limits/README.md",
]
DATED = {ROOT / "CHANGELOG.md", *(ROOT / "docs/decisions").rglob("0*.md")}
"""What says how things were on their day."""
PAGES = [page for page in DOCUMENTS if page not in DATED]
REASONS = {*map(str, Reason), READ_HOT}
MADE = ("out/", "build/", "cdk.out")
"""Folders that the commands make."""


@pytest.mark.parametrize(
    ("table", "page"),
    [(options_table, "configuration"), (settings_table, "configuration"), (construct_options_table, "constructs")],
)
def test_every_option_and_setting_is_documented(table, page):
    """With its default, what it may be and what it means: as `python -m tools.configuration` prints them."""
    assert table() in (ROOT / f"docs/{page}.md").read_text()


def test_what_can_be_chosen_is_an_option():
    """The page of what cannot be chosen begins with what can, by the options' names."""
    table = (ROOT / "docs/what-you-cannot-choose.md").read_text().split("| You want | Option |")[1].split("\n\n")[0]
    named = {name for row in table.splitlines()[2:] for name in re.findall(r"`([a-z_.]+)`", row.split("|")[2])}
    known = {path for path, _, _ in list_options(DEV)}
    assert len(named) > 5
    assert named - known == {"hotpartition.toml", "base", "cdk.json", "context"}


@pytest.mark.parametrize("names", [MetricName, REASONS], ids=["metrics", "reasons"])
def test_every_metric_and_reason_is_documented(names):
    """A metric under the name that CloudWatch shows; the decisions' by their prefix, since each reason is there."""
    shown = {"Decision-" if name.startswith("Decision-") else name for name in names}
    assert [name for name in sorted(shown) if f"`{name}" not in OPERATIONS] == []


def test_every_metric_that_the_runbook_asks_for_is_one():
    """`own METRIC FUNCTION` prints it."""
    asked = set(re.findall(r"^\$ .*\bown (\w+) ", RUNBOOK, re.MULTILINE))
    assert len(asked) > 5
    assert asked <= set(MetricName)


def test_every_log_line_that_the_runbook_looks_for_is_written():
    """`message = "…"` in a query of Logs Insights, by the very words of the code."""
    clauses = re.findall(r'message (?:= ("[^"]+")|in \[([^\]]+)\])', RUNBOOK)
    wanted = {text for clause in clauses for text in re.findall(r'"([^"]+)"', "".join(clause))}
    sources = "\n".join(source.read_text() for source in SOURCES)
    assert len(wanted) > 3
    assert [text for text in sorted(wanted) if f'"{text}"' not in sources] == []


def test_every_log_line_of_the_library_says_key_and_reason_in_its_message():
    """Python's usual format shows no `extra`."""
    text = "".join(path.read_text() for path in SOURCES if "routing" in path.parts)
    lines = re.findall(r'_logger\.\w+\(\s*"([^"]*)",[^"]*?extra=facts\)', text)
    assert len(lines) > 4
    assert [line for line in lines if len(re.findall("%[sd]", line)) < 2] == []


@pytest.mark.parametrize("text", [README, RUNBOOK], ids=["README", "runbook"])
def test_every_command_of_the_tool_can_be_typed(text):
    """With the options that there are."""
    typed = re.findall(r"^\$ (?:\.venv/bin/)?hotpartition ([a-z].*?)(?:\s+#.*)?$", text, re.MULTILINE)
    assert typed
    for command in typed:
        name, *arguments = shlex.split(command)
        declared = hotpartition.commands[name]
        declared.make_context(name, arguments)


def test_every_metric_is_counted():
    """A name stands in the list only while something counts it; decisions are counted by their reason."""
    text = "\n".join(source.read_text() for source in SOURCES)
    decisions = {name for name in MetricName if name.startswith("Decision-")}
    assert {
        f"Decision-{reason}" for reason in REASONS - {Reason.BELOW_THRESHOLD, Reason.UNLUCKY_PARTITION}
    } == decisions
    assert {name for name in MetricName if f"MetricName.{name.name}" not in text} <= decisions


def named(page):
    return str(page.relative_to(ROOT))


def anchors_of(page):
    """A heading's anchor: small letters, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", DOCUMENTS, ids=named)
def test_every_link_leads_somewhere(page):
    """To a file of the repository and, where it names one, to a section of it."""
    for link in re.findall(r"(?:\]\(|src=\")([^)\s\"]+)[)\"]", page.read_text()):
        if link.startswith(("https:", "http:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_everything_that_is_named_exists(page):
    """`make` targets and modules that are run; paths, from the root, the library or the page's own folder."""
    text = page.read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^\$ )(?:\w+=\S+ )*make (?:-C \S+ )?([a-z-]+)", text, re.MULTILINE)) <= targets
    for name in re.findall(r"python -m ([\w.]+)", text):
        place = ROOT / name.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), name
    starts = [ROOT, page.parent, page.parent / "functions", LIBRARY]
    for path in re.findall(r"`((?:[\w.-]+/)+(?:[\w.-]+)?|[\w-]+\.(?:py|toml|md|json|yaml))`", text):
        is_made = path.startswith((*MADE, "hotpartition.toml", "report.", "summary."))
        assert is_made or any((start / path).exists() for start in starts), path


@pytest.mark.parametrize("index", ["docs/README.md", "docs/decisions/README.md"])
def test_every_document_is_in_its_index(index):
    """The search for a page or a decision begins there."""
    page = ROOT / index
    links = set(re.findall(r"\]\(([\w.-]+)\)", page.read_text()))
    assert {file.name for file in page.parent.glob("*.*")} - {"README.md"} <= links


def test_what_is_to_be_found_in_a_module_is_there():
    """The architecture's table of where to find what names functions and classes as the code does."""
    table = (ROOT / "docs/architecture.md").read_text().split("## Where to find what")[1].split("\n## ")[0]
    places = re.findall(r"`([\w/]+\.py)`((?:(?:,| and) `\w+`)+)", table)
    assert len(places) >= 5
    for path, names in places:
        (source,) = [(start / path).read_text() for start in (ROOT, LIBRARY) if (start / path).exists()]
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^\s*(?:def|class) {name}\b", source, re.MULTILINE), (path, name)


def test_make_readme_checks_every_command_of_the_readme():
    """Each has its output beside it, a check, or is known to need an account."""
    steps = read_steps(README)
    assert len(steps) > 15
    for step in steps:
        assert step.shown or does(step.command, ON_AWS) or check_of(step.command) is not None


async def resolve(app: web.Application, method: str, path: str) -> str | None:
    """Say what is wrong with a request, or nothing."""
    found = await app.router.resolve(make_mocked_request(method, path))
    return found.http_exception and found.http_exception.reason


def test_every_request_that_breaks_a_local_run_is_served():
    """Those of the table in docs/testing.md; a path without a method has that of the one before it."""
    parts = {"status": dict, "dynamodb_url": "", "redis": None, "pools": {}}
    app, method = Control(**parts).app(), ""
    table = (ROOT / "docs/testing.md").read_text().split("| Request | Effect |")[1].split("\n\n")[0]
    named = re.findall(r"`(?:(GET|POST|PUT) )?(/[^`]+)`", table)
    assert len(named) > 8
    for given, path in named:
        method = given or method
        assert asyncio.run(resolve(app, method, path)) is None, f"{method} {path}"
