"""The package can be used by itself."""

from __future__ import annotations

import ast
import doctest
import sys
from pathlib import Path

from tools import limits

FOLDER = Path(limits.__file__).parent


def imported_names(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level
            yield node.module


def test_it_imports_the_standard_library_and_itself_alone():
    """Nothing else of the project, and no package that has to be installed."""
    modules = list(FOLDER.glob("*.py"))
    assert len(modules) > 5
    for path in modules:
        for name in imported_names(path):
            assert name.startswith("tools.limits") or name.partition(".")[0] in sys.stdlib_module_names, path


def test_the_examples_of_its_documents_run():
    """The docstring's and the README's."""
    assert doctest.testmod(limits, raise_on_error=True).attempted > 3
    results = doctest.testfile(str(FOLDER / "README.md"), module_relative=False, raise_on_error=True, encoding="utf-8")
    assert results.attempted > 5
