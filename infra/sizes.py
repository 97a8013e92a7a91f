"""Prints how large what is deployed is: `python -m infra.sizes FOLDER` for a synthesized assembly."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT_BYTES = 250 * 1024 * 1024
"""Unzipped size of a function with all its layers (Lambda quotas)."""

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSizes:
    """Bytes of one function's code and of each of its layers."""

    name: str
    code: int
    layers: tuple[int, ...]

    @property
    def total(self) -> int:
        """Count what Lambda unpacks."""
        return self.code + sum(self.layers)


def measure(folder: Path) -> Iterator[FunctionSizes]:
    """Measure the functions of the one stack of an assembly."""
    (template_path,) = folder.glob("*.template.json")
    resources: dict[str, dict[str, Any]] = json.loads(template_path.read_text())["Resources"]
    for resource in resources.values():
        if resource["Type"] != "AWS::Lambda::Function":
            continue
        properties = resource["Properties"]
        layers = (resources[layer["Ref"]]["Properties"]["Content"] for layer in properties["Layers"])
        yield FunctionSizes(
            name=properties["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"],
            code=_asset_bytes(folder, properties["Code"]),
            layers=tuple(_asset_bytes(folder, layer) for layer in layers),
        )


def main(arguments: Sequence[str]) -> str | None:
    """Print the sizes of an assembly; return what is too large, if anything."""
    (folder,) = arguments
    for sizes in sorted(measure(Path(folder)), key=lambda each: each.name):
        layers = " + ".join(f"{layer / _MEBIBYTE:.2f}" for layer in sizes.layers)
        total = f"{sizes.total / _MEBIBYTE:.1f} MiB"
        print(f"size: {sizes.name}: {sizes.code / 1024:.1f} KiB + layers {layers} MiB = {total}")  # noqa: T201
        if sizes.total > LIMIT_BYTES:
            return (
                f"function {sizes.name} is larger than the {LIMIT_BYTES // _MEBIBYTE} MiB that Lambda unpacks: {total}"
            )
    return None


def _asset_bytes(folder: Path, code: dict[str, Any]) -> int:
    asset = folder / f"asset.{code['S3Key'].removesuffix('.zip')}"
    return sum(path.stat().st_size for path in asset.rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
