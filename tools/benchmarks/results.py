"""What is kept of a row (`out/bench/<name>.json`), and the table at the end."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.benchmarks.measuring import Measured

PACKAGES = ("aws-lambda-powertools", "awslambdaric", "boto3", "botocore", "pydantic", "pydynox", "redis", "urllib3")


def describe_machine() -> dict[str, Any]:
    """Describe what the figures were taken on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 2),
    }


def describe_versions() -> dict[str, str]:
    """List the versions of everything that is compared."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def build_document(
    name: str, measured: Measured, *, machine: Mapping[str, Any], versions: Mapping[str, str]
) -> dict[str, Any]:
    """Build the content of a row's file."""
    return {
        "name": name,
        "value": measured.value,
        "unit": measured.unit,
        "rival": measured.rival,
        "rival_value": measured.rival_value,
        "ratio": measured.ratio,
        "bars": [
            {"bar": str(bar), "holds": bar not in measured.missed, "judged": bar not in measured.unjudged}
            for bar in measured.bars
        ],
        "holds": not measured.missed,
        "spread": {of: {"from": low, "to": high} for of, (low, high) in measured.spreads.items()},
        "runs": {"ours": measured.samples.ours, "rival": measured.samples.rival},
        "details": dict(measured.details),
        "conditions": measured.conditions,
        "machine": dict(machine),
        "versions": dict(versions),
    }


def write_document(folder: Path, document: Mapping[str, Any]) -> Path:
    """Write a row's file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{document['name']}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def print_table(documents: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one line a row."""
    table = Table(
        "row", "ours", "rival", "unit", "ratio", "spread", "bars", title="ours against what one would use instead"
    )
    for column in (1, 2, 4, 5):
        table.columns[column].justify = "right"
    for document in documents:
        ratios = document["spread"]["ratio"]
        table.add_row(
            document["name"],
            _figure(document["value"]),
            _figure(document["rival_value"]),
            document["unit"],
            f"{document['ratio']:.2f}",
            f"{ratios['from']:.2f} to {ratios['to']:.2f}",
            "\n".join(bar["bar"] + _outcome(bar) for bar in document["bars"]),
            style="red" if any(bar["judged"] and not bar["holds"] for bar in document["bars"]) else None,
        )
    console.print(table)


def _outcome(bar: Mapping[str, Any]) -> str:
    if not bar["judged"]:
        return "  not judged"
    return "" if bar["holds"] else "  MISSED"


def _figure(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def _processor() -> str:
    """Name the processor; `platform.processor` is empty on Linux."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
