"""Runs the README's commands in their order, on a fresh clone with empty caches: `python3 -m tools.readme`.

What stands under a command is compared with what it prints, and each other command has a check here. Only the
standard library is needed, as on a machine that has nothing of the project yet.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

CHECKS = {
    "make wheel": r"out/wheel/hotpartition-\S+\.whl",
    "python3 -m venv first": "",
    "make demo": r"(?s)starting the local run.*verdict: pass",
    "make up": r"the HTTP API serves at",
    "hotpartition rush": r"room-1 has \d+ shards now",
    "curl -s -X PATCH": r'"body": ?"hello all"',
    "curl -s -X DELETE": "",
    "export ": "",
    "hotpartition hot": r"room-1",
    "hotpartition route": r"registry against journal: equal",
    "hotpartition plan": r"N = \d+",
    "make example": r"verdict: pass",
    "make synth": r"(?s)dev: cdk-nag.*prod: cdk-nag.*lite: cdk-nag.*lite: cfn-lint found nothing",
}
"""What a command has to print, by how it begins; what has output in the README is compared with that instead."""
STAYING = ("make up",)
"""This goes on until Ctrl-C, which has to end it well."""
ON_AWS = ("npm ci && npx cdk bootstrap", "make deploy", "make destroy")
"""These need an account. They are listed as not run."""
START_SECONDS, ENDING_SECONDS = 300.0, 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One command, and what the README shows under it."""

    command: str
    shown: str


class WrongError(Exception):
    """Something does not do what the README says."""


@dataclass(slots=True)
class Reader:
    """Does what the README says, in a clone of its own."""

    folder: Path
    environment: dict[str, str]
    ports: Mapping[str, str]
    staying: subprocess.Popen[bytes] | None = None
    """The command that goes on."""
    message_id: str = ""

    def follow(self, step: Step) -> None:
        """Run one command, and check it.

        Raises:
            WrongError: it fails, or prints something else than it should.
        """
        command = step.command.replace("01K9...", self.message_id)
        command = re.sub("|".join(self.ports), lambda found: self.ports[found[0]], command)
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.environment[name] = value
        elif does(command, STAYING):
            self._begin(command)
        else:
            self._call(command, step)

    def _call(self, command: str, step: Step) -> None:
        shell = ["bash", "-c", command]
        done = subprocess.run(shell, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise WrongError(f"it ended with status {done.returncode}:\n{(done.stdout + done.stderr)[-4_000:]}")
        if found := re.search(r'"message_id": ?"(\w{26})"', done.stdout):
            self.message_id = found[1]
        wanted = pattern_of(step.shown) if step.shown else check_of(step.command)
        text = re.sub(r"\s+", "", done.stdout) if step.shown else done.stdout
        if not re.search(wanted, text):
            raise WrongError(f"{command}: it should print {step.shown or wanted!r}, not:\n{done.stdout[-4_000:]}")

    def _begin(self, command: str) -> None:
        path = self.folder.parent / "staying.log"
        with path.open("wb") as log:
            self.staying = subprocess.Popen(
                shlex.split(command),
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + START_SECONDS
        while not re.search(check_of(command), path.read_text(errors="replace")):
            if self.staying.poll() is not None or time.monotonic() > until:
                raise WrongError(f"{command}: it does not serve:\n{path.read_text(errors='replace')[-4_000:]}")
            time.sleep(0.5)

    def end(self, number: signal.Signals = signal.SIGINT) -> None:
        """Press Ctrl-C on what still goes on.

        Raises:
            WrongError: that did not end it.
        """
        staying, self.staying = self.staying, None
        if staying is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(staying.pid, number)
        try:
            staying.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired as error:
            os.killpg(staying.pid, signal.SIGKILL)
            raise WrongError("Ctrl-C did not end what goes on") from error


def does(command: str, beginnings: Sequence[str]) -> bool:
    """Say whether a command begins with one of these, wherever its program lies."""
    return command.removeprefix(".venv/bin/").startswith(tuple(beginnings))


def check_of(command: str) -> str:
    """Find what a command has to print.

    Raises:
        WrongError: nothing says so.
    """
    known = [wanted for beginning, wanted in CHECKS.items() if does(command, (beginning,))]
    if not known:
        raise WrongError(f"{command}: the README shows no output, and tools/readme.py has no check of it")
    return known[0]


def pattern_of(shown: str) -> str:
    """Build what shown output matches: ids and times are others each time, and spaces do not count."""
    text = re.escape(re.sub(r"\s+", "", shown))
    text = text.replace(re.escape("01K9..."), r"\w{26}")
    return re.sub(r"2026\\-11\\-21T[\d:]+\\\.\d+Z", r"[\\d:.TZ-]+", text)


def read_steps(text: str) -> list[Step]:
    """Read the commands of a document, each with the output that follows it."""
    steps = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            steps.append(Step(re.sub(r"\s{2,}#.*$", "", command), shown.strip()))
    return steps


def fresh_environment(home: Path, port: int) -> dict[str, str]:
    """Build the environment of somebody who never worked here: no caches, no credentials."""
    kept = ("PATH", "LANG", "PYENV_ROOT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE")
    environment = {
        name: value for name, value in os.environ.items() if name in kept or name.startswith(("PIP_", "npm_config_"))
    }
    npmrc = {"npm_config_userconfig": str(Path.home() / ".npmrc")}
    caches = {"XDG_CACHE_HOME": str(home / "cache"), "npm_config_cache": str(home / "npm")}
    path = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
    return {**environment, **npmrc, **caches, "PATH": path, "HOME": str(home), "PORT": str(port)}


def find_three_ports() -> int:
    """Find a free loopback port for the API, whose successors are free as well: the control API's and the page's."""
    while True:
        with ExitStack() as held, suppress(OSError, OverflowError):
            port: int = held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for successor in (port + 1, port + 2):
                held.enter_context(socket.create_server(("127.0.0.1", successor)))
            return port


def main() -> int:
    """Follow the README; the exit status says whether all of it is true."""
    # A shell that starts this in the background has it ignore Ctrl-C, and so would all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    text, port = (ROOT / "README.md").read_text(), find_three_ports()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hotpartition-readme-") as folder:
        clone, home = Path(folder) / "hotpartition", Path(folder) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        (clone / "first.py").write_text(text.split("```python\n")[1].split("```")[0])
        reader = Reader(clone, fresh_environment(home, port), {"8000": str(port), "8001": str(port + 1)})
        try:
            for step in read_steps(text):
                if does(step.command, ON_AWS):
                    print(f"not run, it needs an account: {step.command}", flush=True)
                    continue
                if step.command.startswith("make"):
                    reader.end()
                started = time.monotonic()
                print(f"$ {step.command}", flush=True)
                reader.follow(step)
                print(f"  as the README says, after {time.monotonic() - started:.0f} s", flush=True)
            reader.end()
        except WrongError as error:
            print(f"the README is wrong: {error}", file=sys.stderr)
            return 1
        finally:
            reader.end(signal.SIGKILL)
    print(f"the README is right, after {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
