"""Installs the built wheel in a fresh environment and uses all of it there: `python -m tools.wheel FILE` (minutes).

Packages come from the index, in the locked versions; nothing of the checkout is on the path.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CDK = ROOT / "node_modules" / ".bin" / "cdk"
FIXED = "docs/sharded-table.md"
CONSTRUCT = "docs/constructs.md"

_PIN = re.compile(r"^[A-Za-z0-9_.\[\]-]+==\S+", re.MULTILINE)
_PROBE = "import importlib.util as u; print([n for n in ('pydantic', 'redis', 'rich', 'aws_cdk') if u.find_spec(n)])"


class Fresh:
    """An environment of its own, in which the wheel is installed step by step."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self._folder = folder
        self._wheel = wheel
        self._constraints = folder / "constraints.txt"
        locked = (ROOT / "requirements" / "run.txt").read_text()
        self._constraints.write_text("\n".join(_PIN.findall(locked)))
        venv.create(folder / "venv", with_pip=True)

    def install(self, extra: str, *packages: str) -> None:
        """Install the wheel with an extra, and what else is named."""
        wheel = f"{self._wheel}[{extra}]" if extra else str(self._wheel)
        pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        self.run(*pip, "--constraint", str(self._constraints), wheel, *packages)

    def run(self, *arguments: str) -> str:
        """Run the environment's Python; raises as `call` does."""
        return self.call(str(self._folder / "venv" / "bin" / "python"), *arguments)

    def call(self, *command: str) -> str:
        """Run a program outside of the checkout, with a cache of its own, and return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed; what it said is shown.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in {"PATH", "HOME"} or name.startswith(("PIP_", "HTTP", "SSL_"))
        }
        # Warnings of Node.js's age are no findings.
        silent = {"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20"}
        environment = {**kept, **silent, "XDG_CACHE_HOME": str(self._folder / "cache")}
        done = subprocess.run(command, cwd=self._folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()


def read_codes(document: str) -> list[str]:
    """Read the pieces of Python code of a document."""
    return [piece.split("```")[0] for piece in (ROOT / document).read_text().split("```python\n")[1:]]


def check(wheel: Path, folder: Path) -> None:
    """Use the wheel as its documents say; raise at the first thing that does not work."""
    fresh = Fresh(folder, wheel)
    fresh.install("")
    found = fresh.run("-c", f"import hotpartition.table; {_PROBE}")
    if found != "[]":
        raise SystemExit(f"the library alone brings {found}, and should bring boto3 only")
    print("library: installed with boto3 alone")
    fresh.install("", "moto[dynamodb]")
    print(f"fixed table ({FIXED}):", fresh.run("-c", read_codes(FIXED)[0]).replace("\n", " · "))
    fresh.install("adaptive")
    fresh.run("-c", "from hotpartition.table import adaptive; import hotpartition.redis.registry")
    print("adaptive: its packages are there")
    fresh.install("cli")
    print("command:", fresh.run("-m", "hotpartition_cli", "--help").splitlines()[0])
    fresh.install("cdk")
    (folder / "functions").mkdir()
    (folder / "functions" / "ingest.py").write_text("def handler(event, context): pass\n")
    in_band, _, with_redis, *_ = read_codes(CONSTRUCT)
    for code in (in_band, re.sub(r"^HotPartition\(.*\n", with_redis, in_band, flags=re.MULTILINE)):
        (folder / "app.py").write_text(code)
        fresh.call(str(CDK), "synth", "--quiet", "--app", "venv/bin/python app.py")
    built = sorted(path.name for path in (folder / "cache" / "hotpartition" / "layers").iterdir())
    print(f"five lines ({CONSTRUCT}): synthesized in band and with Redis, layers", ", ".join(built))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hotpartition-wheel-") as work:
        check(Path(sys.argv[1]).resolve(), Path(work))
