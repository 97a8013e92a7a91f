from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("context", "named"),
    [
        ('settings={"run_seconds": "soon"}', "setting run_seconds"),
        ("settings={", "settings should be a JSON object, not '{' (Expecting"),
        ("options=[1]", "options should be a JSON object of names to values, not [1]"),
        ("color=red", "context key 'color' is unknown"),
        ("bundling=false", "bundling should be on or off"),
        ("bundling=", "bundling should be on or off"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, context, named):
    """That names what is wrong."""
    from infra.app import main  # noqa: PLC0415 - starts Node.js

    sentence = main(["-c", context, "-o", str(tmp_path)])
    assert named in sentence
    assert "\n" not in sentence
