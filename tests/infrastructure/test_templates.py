"""The templates as text that a reviewer reads as a diff, and what holds whatever the diff says."""

from __future__ import annotations

from pathlib import Path

import pytest

from infrastructure.apps import findings
from infrastructure.short_form import write_difference, write_short_form
from support.golden import assert_all_tested, assert_golden

PINNED = Path(__file__).parent / "templates"
WHOLE = ("prod", "lite", "five", "in_band")


@pytest.mark.parametrize("name", WHOLE)
def test_the_short_form(request, name):
    """Of `prod`, `lite`, the document's app in five lines, and functions that find hot keys in band."""
    assert_golden(PINNED / f"{name}.txt", write_short_form(request.getfixturevalue(name)))


def test_what_options_change(prod, changed):
    """The lines in which `prod` with other options differs."""
    assert_golden(PINNED / "changed.txt", write_difference(prod, changed))


def test_every_text_has_its_template():
    """And there is one for each."""
    assert_all_tested(PINNED, [f"{name}.txt" for name in (*WHOLE, "changed")])


@pytest.mark.parametrize("name", WHOLE)
def test_nothing_is_found(request, name):
    """By cdk-nag, errors and warnings alike; what is meant is acknowledged beside its resource."""
    assert findings(request.getfixturevalue(name)) == []
