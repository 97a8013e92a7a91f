"""Builds the documentation site into `out/site/html`: `python -m tools.site`, with MkDocs beside this Python.

The pages keep their places, so that their links lead where they lead in the repository. Added are the reference (from
the docstrings of every public name), a map of the tools (from the Makefile) and `llms.txt`. Strict: a broken link, an
anchor that is not there, a page that is in no list, or a public name without an entry fails it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "site"
PAGES, SOURCES, HTML = OUT / "pages", OUT / "sources", OUT / "html"

PACKAGES = {"hotpartition": ROOT / "layers/routing/python/hotpartition", "hotpartition_cdk": ROOT / "hotpartition_cdk"}
SECTIONS = {
    "A table of your own": "docs/sharded-table.md docs/streams.md docs/constructs.md docs/counters.md "
    "docs/reference-hotpartition.md docs/reference-hotpartition_cdk.md examples/*/README.md",
    "The message store": "docs/api.md docs/configuration.md docs/what-you-cannot-choose.md docs/costs.md "
    "docs/security.md",
    "Run it": "docs/operations.md docs/runbook.md docs/command-line.md",
    "How it works": "docs/architecture.md docs/performance.md docs/testing.md docs/simulation-summary.md "
    "tools/limits/README.md",
    "The project": "docs/repository.md docs/tools.md docs/README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md",
}
"""Pages by subject; the references and `docs/tools.md` are made here. A page of `docs` that none names comes last."""
FIRST = {"hotpartition": ["ShardedTable", "fixed", "in_band", "adaptive"], "hotpartition_cdk": ["HotPartition"]}
"""What a reference begins with; all else follows by its name."""
STYLE = """\
.md-grid { max-width: 76rem; }
.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
"""
"""The repository's lines of code are wider than the theme's column: they are wrapped where they would be cut."""
PORT = 8001
LINK = re.compile(r"(?:\]\(|src=\")([^)\s\"#]+)")


def list_sections() -> dict[str, list[Path]]:
    """List the pages by subject."""
    sections = {
        section: [page for name in names.split() for page in sorted(ROOT.glob(name)) or [ROOT / name]]
        for section, names in SECTIONS.items()
    }
    named = {page for pages in sections.values() for page in pages}
    sections["The project"] += sorted({*(ROOT / "docs").glob("*.md")} - named)
    return sections


def list_pages() -> list[Path]:
    """List the pages that are there: the README, all of `docs`, and those beside what they describe."""
    named = [page for pages in list_sections().values() for page in pages if page.exists()]
    return sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *named})


def stage(pages: list[Path]) -> None:
    """Copy the pages, and what they link to, to the same places below `PAGES`."""
    for page in pages:
        linked = [(page.parent / link).resolve() for link in LINK.findall(page.read_text()) if "://" not in link]
        for path in (page, *(path for path in linked if path.is_file())):
            place = PAGES / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)


def list_public(package: str) -> list[str]:
    """Read the public names of a package, without importing it, in the order of its reference."""
    tree = ast.parse((PACKAGES[package] / "__init__.py").read_text())
    (names,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    return [*FIRST[package], *(name for name in names if name not in FIRST[package])]


def find_home(package: str, name: str) -> str:
    """Find the module that defines a public name, by following the imports of packages' `__init__`."""
    module = package
    while True:
        path = PACKAGES[package].joinpath(*module.split(".")[1:])
        if not path.is_dir():
            return module
        tree = ast.parse((path / "__init__.py").read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        (module,) = {str(node.module) for node in imports if any(alias.name == name for alias in node.names)}


def write_reference(package: str) -> None:
    """Write the page of a package, and copy its sources to where its docstrings are read."""
    names = list_public(package)
    entries = "\n\n".join(f"::: {package}.{name}" for name in names)
    note = "Every public name, with an example that the test suite runs. What is not here may change without notice."
    (PAGES / f"docs/reference-{package}.md").write_text(f"# Reference: {package}\n\n{note}\n\n{entries}\n")
    for file in PACKAGES[package].rglob("*.py"):
        place = SOURCES / package / file.relative_to(PACKAGES[package])
        place.parent.mkdir(parents=True, exist_ok=True)
        # One example is `Example:` in the source; the parser knows the plural as a section.
        place.write_text(re.sub(r"^( *)Example:$", r"\1Examples:", file.read_text(), flags=re.MULTILINE))
    # Plain imports: a function may be called like its module.
    plain = "\n".join(f"from {find_home(package, name)} import {name}" for name in names)
    (SOURCES / package / "__init__.py").write_text(f"{plain}\n__all__ = {names}\n")


def write_tool_map() -> None:
    """Write the list of `make` targets, and which folder of `tools` holds what."""
    targets = re.findall(r"^([a-z-]+):.*?## (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    rows = "\n".join(f"| `make {name}` | {text.replace('|', '&#124;')} |" for name, text in sorted(targets))
    folders = (ROOT / "docs/repository.md").read_text().split("## Laboratory")[1].split("\n## ")[0]
    page = f"# Commands and tools\n\n## Targets\n\n| Type | What it does |\n|---|---|\n{rows}\n\n## Folders{folders}"
    (PAGES / "docs/tools.md").write_text(page)


def build_nav() -> list[object]:
    """Build the list of pages: by subject, decisions folded; a page that no list names is an error of MkDocs."""
    folder = ROOT / "docs/decisions"
    indexed = sorted(folder.glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
    decisions = {"Decisions": [str(page.relative_to(ROOT)) for page in indexed]}
    nav: list[object] = [{"Start": "README.md"}]
    for section, pages in list_sections().items():
        own = [str(page.relative_to(ROOT)) for page in pages]
        nav.append({section: [*own, *([decisions] if section == "How it works" else [])]})
    return nav


def title_of(page: Path) -> str:
    """Read a page's first heading."""
    return next(line[2:] for line in page.read_text().splitlines() if line.startswith("# "))


def write_llms() -> None:
    """Write `llms.txt`: the pages as Markdown, for programs that read the documentation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = ["# hotpartition", "", f"> {project['description']}", ""]
    for section, pages in list_sections().items():
        own = [f"- [{title_of(page)}]({page.relative_to(ROOT)})" for page in pages if page.exists()]
        lines += [f"## {section}", "", *own, ""]
    (HTML / "llms.txt").write_text("\n".join(lines))
    for page in PAGES.rglob("*.md"):
        shutil.copy(page, HTML / page.relative_to(PAGES))


def main() -> None:
    """Build the site."""
    shutil.rmtree(OUT, ignore_errors=True)
    stage(list_pages())
    for package in PACKAGES:
        write_reference(package)
    write_tool_map()
    config = (
        (ROOT / "mkdocs.yml")
        .read_text()
        .replace("        python:\n", f"        python:\n          paths: [{json.dumps(str(SOURCES))}]\n")
    )
    (PAGES / "style.css").write_text(STYLE)
    added = {"docs_dir": str(PAGES), "site_dir": str(HTML), "nav": build_nav(), "extra_css": ["style.css"]}
    # JSON is YAML.
    config += "".join(f"{name}: {json.dumps(value)}\n" for name, value in added.items())
    (OUT / "mkdocs.yml").write_text(config)
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "-f", str(OUT / "mkdocs.yml")]
    # Its warning is of MkDocs 2, which is not used.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the site is not built:\n{done.stdout}{done.stderr}")
    write_llms()
    print(f"{len(list(HTML.rglob('*.html')))} pages. To read them, with their search, at http://127.0.0.1:{PORT}:")
    print(f"  python3 -m http.server --bind 127.0.0.1 --directory {HTML.relative_to(ROOT)} {PORT}")


if __name__ == "__main__":
    main()
