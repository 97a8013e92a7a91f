"""How figures are taken and kept."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tools.benchmarks.measuring import Bar, Measured, Samples, cpu_seconds, interleave, wall_seconds
from tools.benchmarks.results import build_document, describe_machine, describe_versions, print_table, write_document
from tools.benchmarks.rows import ROW_NAMES, find_row


def measured(ours: tuple[float, ...], rival: tuple[float, ...], *bars: Bar, **details: float) -> Measured:
    return Measured(
        unit="us", rival="theirs", samples=Samples(ours, rival), bars=bars, conditions="quiet", details=details
    )


def test_value_and_ratio_are_of_medians() -> None:
    """One disturbed run on either side changes neither figure."""
    row = measured((2.0, 900.0, 3.0), (6.0, 5.0, 0.001))
    assert (row.value, row.rival_value, row.ratio) == (3.0, 5.0, 0.6)


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


def test_bar_on_an_unknown_figure_is_an_error() -> None:
    """A misspelt bar is not a bar that holds."""
    with pytest.raises(KeyError):
        _ = measured((1.0,), (2.0,), Bar("ration", at_most=1)).missed


def test_cpu_is_not_wall_time() -> None:
    """Waiting costs wall time and no CPU."""
    import time  # noqa: PLC0415 - only here

    assert wall_seconds(lambda: time.sleep(0.05)) >= 0.05
    assert cpu_seconds(lambda: time.sleep(0.05)) < 0.04


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
        "bars": [{"bar": "ratio <= 0.4", "holds": False}, {"bar": "value <= 2", "holds": True}],
        "holds": False,
        "runs": {"ours": [1.0, 3.0, 2.0], "rival": [4.0, 4.0, 4.0]},
        "details": {"extra": 5.0},
        "conditions": "quiet",
        "machine": {"cores": 2},
        "versions": {"python": "3.13"},
    }


def test_machine_and_versions_are_named() -> None:
    """Figures of another machine or version cannot be taken for these."""
    assert {"processor", "cores", "system", "load_average"} == set(describe_machine())
    assert {"python", "boto3", "pydynox", "redis"} <= set(describe_versions())


def test_table_marks_missed_bars() -> None:
    """Whoever reads only the table sees which bar was missed."""
    row = measured((1.0,), (2.0,), Bar("ratio", at_most=0.4), Bar("value", at_most=2.0))
    text = StringIO()
    document = build_document("some-row", row, machine={}, versions={})
    print_table([document], Console(file=text, width=120))
    (missed,) = [line for line in text.getvalue().splitlines() if "MISSED" in line]
    assert "ratio <= 0.4" in missed


def test_every_row_can_be_measured() -> None:
    """Each name that `make bench` takes stands for a module with a `measure`."""
    assert all(callable(find_row(name)) for name in ROW_NAMES)
