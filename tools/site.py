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
from typing import Any

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "site"
PAGES, SOURCES, HTML = OUT / "pages", OUT / "sources", OUT / "html"

PACKAGES = {"hotpartition": ROOT / "layers/routing/python/hotpartition", "hotpartition_cdk": ROOT / "hotpartition_cdk"}
FIRST = {"hotpartition": ["ShardedTable", "fixed", "in_band", "adaptive"], "hotpartition_cdk": ["HotPartition"]}
"""What a reference begins with; all else follows by its name."""
STYLE = """\
.md-grid { max-width: 76rem; }
.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
"""
"""The repository's lines of code are wider than the theme's column: they are wrapped where they would be cut."""
PORT = 8001
LINK = re.compile(r"(?:\]\(|src=\")([^)\s\"#]+)")


def expand(nav: Any) -> Any:
    """Replace the pattern in a list of pages by the pages that match it, the README first."""
    if isinstance(nav, list):
        return [expand(each) for each in nav]
    if isinstance(nav, dict):
        return {title: expand(pages) for title, pages in nav.items()}
    if "*" not in nav:
        return nav
    found = sorted(ROOT.glob(nav), key=lambda page: (page.name != "README.md", page.name))
    return [str(page.relative_to(ROOT)) for page in found]


def stage(nav: Any) -> None:
    """Copy the pages that are there, all of `docs`, and what they link to, to the same places below `PAGES`."""
    named = {ROOT / page for page in re.findall(r'[^"]+\.md', json.dumps(nav))}
    for page in {*(page for page in named if page.exists()), *(ROOT / "docs").rglob("*.md")}:
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


def title_of(page: Path) -> str:
    """Read a page's first heading."""
    return next(line[2:] for line in page.read_text().splitlines() if line.startswith("# "))


def write_llms(nav: list[dict[str, Any]]) -> None:
    """Write `llms.txt`: the pages as Markdown, for programs that read the documentation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = ["# hotpartition", "", f"> {project['description']}", ""]
    for section, pages in (each for group in nav[1:] for each in group.items()):
        there = [ROOT / page for page in pages if isinstance(page, str) and (ROOT / page).exists()]
        own = [f"- [{title_of(page)}]({page.relative_to(ROOT)})" for page in there]
        lines += [f"## {section}", "", *own, ""]
    (HTML / "llms.txt").write_text("\n".join(lines))
    for page in PAGES.rglob("*.md"):
        shutil.copy(page, HTML / page.relative_to(PAGES))


def main() -> None:
    """Build the site."""
    shutil.rmtree(OUT, ignore_errors=True)
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    config["nav"] = expand(config["nav"])
    stage(config["nav"])
    for package in PACKAGES:
        write_reference(package)
    write_tool_map()
    (PAGES / "style.css").write_text(STYLE)
    config |= {"docs_dir": str(PAGES), "site_dir": str(HTML)}
    config["plugins"][1]["mkdocstrings"]["handlers"]["python"]["paths"] = [str(SOURCES)]
    # JSON is YAML.
    (OUT / "mkdocs.yml").write_text(json.dumps(config))
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "-f", str(OUT / "mkdocs.yml")]
    # Its warning is of MkDocs 2, which is not used.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the site is not built:\n{done.stdout}{done.stderr}")
    write_llms(config["nav"])
    print(f"{len(list(HTML.rglob('*.html')))} pages. To read them, with their search, at http://127.0.0.1:{PORT}:")
    print(f"  python3 -m http.server --bind 127.0.0.1 --directory {HTML.relative_to(ROOT)} {PORT}")


if __name__ == "__main__":
    main()
