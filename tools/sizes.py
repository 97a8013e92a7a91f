"""Prints the sizes of deployed parts: `python -m tools.sizes FOLDER` for a synthesized assembly."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

LIMIT_BYTES = 250 * 1024 * 1024
"""Unzipped size of a function with all its layers (Lambda quotas)."""

_MEBIBYTE = 1024 * 1024


def measure(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Measure the functions of an assembly's one stack: the bytes of the code and of each layer."""
    (template_path,) = folder.glob("*.template.json")
    resources: dict[str, dict[str, Any]] = json.loads(template_path.read_text())["Resources"]
    functions = (each["Properties"] for each in resources.values() if each["Type"] == "AWS::Lambda::Function")
    for function in functions:
        layers = (resources[layer["Ref"]]["Properties"]["Content"] for layer in function["Layers"])
        name = function["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
        yield name, [_asset_bytes(folder, code) for code in (function["Code"], *layers)]


def main(arguments: Sequence[str]) -> str | None:
    """Print the sizes of an assembly; return the parts that are too large."""
    (folder,) = arguments
    for name, (code, *layers) in sorted(measure(Path(folder))):
        total = code + sum(layers)
        parts = " + ".join(f"{layer / _MEBIBYTE:.2f}" for layer in layers)
        print(f"size: {name}: {code / 1024:.1f} KiB + layers {parts} MiB = {total / _MEBIBYTE:.1f} MiB")
        if total > LIMIT_BYTES:
            return f"function {name} is larger than the {LIMIT_BYTES // _MEBIBYTE} MiB that Lambda unpacks"
    return None


def _asset_bytes(folder: Path, code: dict[str, Any]) -> int:
    asset = folder / f"asset.{code['S3Key'].removesuffix('.zip')}"
    return sum(path.stat().st_size for path in asset.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
