"""How figures are taken and judged."""

import json
from pathlib import Path

import pytest

from tools.benchmarks import __main__ as command
from tools.benchmarks.measuring import Bar, Measured, Samples, interleave
from tools.benchmarks.results import build_document, write_document


def measured(ours: tuple[float, ...], rival: tuple[float, ...], *bars: Bar, **details: float) -> Measured:
    return Measured(
        unit="us", rival="theirs", samples=Samples(ours, rival), bars=bars, conditions="quiet", details=details
    )


def test_the_ratio_is_the_median_of_the_runs_ratios() -> None:
    """The ratio of the medians, 7 / 9 here, can lie outside of the spread of what it is to be the middle of."""
    row = measured((8.0, 1.0, 7.0, 7.0, 1.0), (12.0, 9.0, 8.0, 14.0, 6.0))
    assert row.spreads["ratio"] == (1 / 6, 2 / 3)
    assert (row.value / row.rival_value, row.ratio) == (7 / 9, 0.5)


def test_sides_take_turns_and_change_who_begins() -> None:
    """A drift of the machine meets both sides alike."""
    order: list[str] = []

    def side(name: str) -> float:
        order.append(name)
        return float(len(order))

    samples = interleave(lambda: side("a"), lambda: side("b"), 3)
    assert list("abbaab") == order
    assert Samples((1.0, 4.0, 5.0), (2.0, 3.0, 6.0)) == samples


@pytest.mark.parametrize(
    ("bar", "holds"),
    [
        (Bar("ratio", at_most=0.5), True),
        (Bar("ratio", at_most=0.49), False),
        (Bar("value", at_least=1.0), True),
        (Bar("value", at_least=1.01), False),
        (Bar("kept", at_most=8), True),
        (Bar("kept", at_most=7), False),
    ],
)
def test_bars_hold_up_to_their_edge(bar: Bar, *, holds: bool) -> None:
    """A bound belongs to what is allowed, whichever figure it is on."""
    row = measured((1.0,), (2.0,), bar, kept=8)
    assert ([] if holds else [bar]) == row.missed


def test_document_says_everything_needed_to_judge_and_repeat(tmp_path: Path) -> None:
    """A row's file holds the figures, the bars, each run, the machine and the versions."""
    row = measured((1.0, 3.0, 2.0), (4.0, 4.0, 4.0), Bar("ratio", at_most=0.4), Bar("value", at_most=2.0), extra=5.0)
    document = build_document("some-row", row, machine={"cores": 2}, versions={"python": "3.13"})
    path = write_document(tmp_path / "bench", document)
    assert path == tmp_path / "bench" / "some-row.json"
    assert json.loads(path.read_text()) == {
        "name": "some-row",
        "value": 2.0,
        "unit": "us",
        "rival": "theirs",
        "rival_value": 4.0,
        "ratio": 0.5,
        "bars": [
            {"bar": "ratio <= 0.4", "holds": False, "judged": False},
            {"bar": "value <= 2", "holds": True, "judged": False},
        ],
        "holds": False,
        "spread": {"value": {"from": 1.0, "to": 3.0}, "ratio": {"from": 0.25, "to": 0.75}},
        "runs": {"ours": [1.0, 3.0, 2.0], "rival": [4.0, 4.0, 4.0]},
        "details": {"extra": 5.0},
        "conditions": "quiet",
        "machine": {"cores": 2},
        "versions": {"python": "3.13"},
    }


@pytest.mark.parametrize(
    ("ours", "judged"),
    [
        ((4.0, 4.0, 4.0, 4.0, 9.0), True),  # one disturbed run of five
        ((4.0, 4.0, 4.0, 6.0, 9.0), False),
        ((4.0, 6.0), False),
        ((6.0, 7.0, 8.0), True),
        ((5.0, 5.0, 5.0), True),  # at the bound, which belongs to what is allowed
    ],
)
def test_a_bar_within_the_spread_is_not_judged(ours: tuple[float, ...], *, judged: bool) -> None:
    """Runs on both sides of a bar do not decide it."""
    bar = Bar("ratio", at_most=0.5)
    assert ([] if judged else [bar]) == measured(ours, (10.0,) * len(ours), bar).unjudged


def test_strict_fails_for_a_missed_bar_and_not_for_one_that_was_not_judged(monkeypatch, capsys) -> None:
    """What these runs do not decide is no failure, and no success either: the table says it."""
    rows = {"missed": (6.0, 7.0, 8.0), "open": (4.0, 5.0, 7.0)}

    async def rows_of(names: list[str], **_: object) -> list[dict[str, object]]:
        bar = Bar("ratio", at_most=0.5)
        return [build_document(n, measured(rows[n], (10.0,) * 3, bar), machine={}, versions={}) for n in names]

    monkeypatch.setattr(command, "measure_rows", rows_of)
    monkeypatch.setattr(command, "ROWS", rows)
    statuses = [command.main([*strict, "--only", name]) for name in rows for strict in ([], ["--strict"])]
    assert statuses == [0, 1, 0, 0]
    printed = capsys.readouterr().out
    assert "MISSED" in printed
    assert "not judged" in printed
