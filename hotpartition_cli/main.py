"""Runs one command: asks, prints a table or JSON, and returns the exit status.

Imports that only one command needs stand in it: `hot` should not wait for those of `plan`.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from hotpartition.core.route_history import MAX_NAME_LENGTH, NAME_PATTERN, NAME_RULE
from hotpartition_cli.arguments import OWN, TOKEN_VARIABLE, parse_arguments
from hotpartition_cli.callers import OPERATIONS, LambdaCaller, UrlCaller
from hotpartition_cli.commands import Caller, Outcome, Progress, ask
from hotpartition_cli.errors import FailedError, Status, ToolError, UsageError
from hotpartition_cli.views import VIEWS

if TYPE_CHECKING:
    from hotpartition_cli.stacks import Stack

PIPED_WIDTH = 120
"""Columns of a table outside a terminal."""


class Screen:
    """Where responses go: tables or JSON on standard output, sentences about trouble on standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
        self.errors = Console(stderr=True, highlight=False, soft_wrap=True)

    def show(self, command: str, outcome: Outcome) -> None:
        """Print a response."""
        if self.as_json:
            print(json.dumps(outcome.document), flush=True)
        else:
            view = VIEWS[command](outcome.document)
            for part in view.renderables if isinstance(view, Group) else [view]:
                # In a file or a pipe a sentence stays one line, so that it can be searched for.
                self.console.print(part, soft_wrap=isinstance(part, Text) and not self.console.is_terminal)

    def say(self, sentence: str) -> None:
        """Print a sentence beside the response."""
        self.errors.print(f"hotpartition: {sentence}", markup=False)

    def warn(self, sentence: str) -> None:
        """Print a sentence that a person should not miss."""
        self.errors.print(f"hotpartition: {sentence}", markup=False, style="red")

    def complain(self, error: ToolError) -> None:
        """Print an error instead of a response: a sentence for a person, and an object for a program."""
        self.warn(str(error))
        if self.as_json:
            print(json.dumps({"error": {"kind": error.kind, "message": str(error)}}), flush=True)

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        """Show the progress of a long command, on a terminal."""
        if self.as_json or not self.errors.is_terminal:
            yield lambda _: None
            return
        with self.errors.status("working") as status:
            yield status.update


def connect(options: argparse.Namespace) -> Caller:
    """Connect to the function, URL or table that the options name."""
    if getattr(options, "table", None):
        from hotpartition_cli.tables import TableCaller  # noqa: PLC0415

        return TableCaller.connect(
            options.table,
            options.journal_table,
            os.environ,
            region=options.region,
            profile=options.profile,
            looks_at_all=getattr(options, "all", False),
        )
    if options.url:
        return UrlCaller(options.url, options.function or OPERATIONS)
    return LambdaCaller.connect(options.function, region=options.region, profile=options.profile)


def connect_stack(options: argparse.Namespace, environ: Mapping[str, str]) -> Stack:
    """Reach all of a stack, as `check` needs it."""
    from hotpartition_cli.stacks import AwsStack, LocalStack  # noqa: PLC0415

    if options.url:
        return LocalStack(options.url)
    token = environ.get(TOKEN_VARIABLE) or None
    return AwsStack.connect(options.stack, region=options.region, profile=options.profile, token=token)


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    connect: Callable[[argparse.Namespace], Caller] = connect,
    connect_stack: Callable[[argparse.Namespace, Mapping[str, str]], Stack] = connect_stack,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run a command and return its exit status."""
    # argparse has not run yet, and a wrong option should be reported in JSON as well.
    screen = Screen(as_json="--json" in arguments)
    try:
        options = parse_arguments(arguments, environ)
        if options.command == "plan":
            from hotpartition_cli.plan import plan_load  # noqa: PLC0415

            return _show(screen, "plan", plan_load(options))
        if options.command == "check":
            return _show(screen, "check", _check(connect_stack(options, environ), options, screen, sleep))
        by = _name_caller(getattr(options, "by", None))
        if options.command in OWN:
            from hotpartition_cli.repairs import repair  # noqa: PLC0415

            with screen.progress() as progress:
                outcome = repair(options, progress, sleep=sleep)
            return _show(screen, options.command, outcome)
        call = connect(options)
        if options.command == "watch":
            return _watch(partial(ask, call, options, lambda _: None, by=by), options, screen, sleep)
        with screen.progress() as progress:
            if options.command == "rush":
                outcome = _rush(call, options, progress)
            else:
                outcome = ask(call, options, progress, by=by)
        return _show(screen, options.command, outcome)
    except ToolError as error:
        screen.complain(error)
        return error.status
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed it; buffered output would fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.FAILED


def _show(screen: Screen, command: str, outcome: Outcome) -> int:
    screen.show(command, outcome)
    # The table of `hot` says it itself.
    if outcome.complaint and (screen.as_json or command != "hot"):
        screen.warn(outcome.complaint)
    return outcome.status


def _watch(
    look: Callable[[], Outcome], options: argparse.Namespace, screen: Screen, sleep: Callable[[float], None]
) -> int:
    """Show the hot keys again and again; Ctrl-C ends it and is not an error."""

    def look_again() -> Iterator[Outcome | FailedError]:
        """Wait and ask, for ever; a failure is given as well, and tried again the next time."""
        while True:
            sleep(options.every)
            try:
                yield look()
            except FailedError as error:
                yield error

    outcome = look()
    if options.once:
        return _show(screen, "watch", outcome)
    with suppress(KeyboardInterrupt):
        if screen.as_json or not screen.console.is_terminal:
            screen.show("watch", outcome)
            for again in look_again():
                screen.complain(again) if isinstance(again, FailedError) else screen.show("watch", again)
        view = VIEWS["watch"]
        with Live(view(outcome.document), console=screen.console, auto_refresh=False, screen=False) as live:
            for again in look_again():
                shown = (
                    Text(f"hotpartition: {again}", "red") if isinstance(again, FailedError) else view(again.document)
                )
                live.update(shown, refresh=True)
    return Status.FINE


def _rush(call: Caller, options: argparse.Namespace, progress: Progress) -> Outcome:
    """Make a conversation of a local run hot, and show what its route is afterwards."""
    from hotpartition_cli.api import Api  # noqa: PLC0415
    from hotpartition_cli.rush import Rush, make_rush  # noqa: PLC0415

    rush = Rush(options.conversation_id, options.wcu, options.seconds)
    if not isinstance(call, UrlCaller):
        raise UsageError("rush is for a local run (--url): it signs nothing, and such a load costs money on AWS")
    status = call.status()
    if "write_message" not in status["functions"]:
        raise UsageError("rush writes messages, and this local run has no function write_message")
    made = make_rush(rush, Api(status["api_url"]), progress)
    document = {
        "conversation_id": rush.conversation_id,
        "offered_wcu_per_second": rush.wcu_per_second,
        "seconds": round(made.seconds, 1),
        "stored": len(made.stored),
        "throttled": made.throttled,
        "failed": made.failed + made.unheard,
        "shard_count": call({"command": "route", "conversation_id": rush.conversation_id})["shard_count"],
    }
    return Outcome(document)


def _check(stack: Stack, options: argparse.Namespace, screen: Screen, sleep: Callable[[float], None]) -> Outcome:
    """Try a stack from end to end; its highest cost is shown first."""
    from hotpartition_cli.check import WRITE_UNITS_AT_MOST, check, has_messages  # noqa: PLC0415

    costs = f"raises a partition key of its own by hand in {stack.name}, which stays there"
    if has_messages(stack):
        costs = (
            f"writes to {stack.name}: at most {WRITE_UNITS_AT_MOST} DynamoDB write units;"
            " one raised conversation stays there, and its messages for a day"
        )
    screen.say(f"check {costs}")
    with screen.progress() as progress:
        return check(stack, progress, wait_seconds=options.wait, sleep=sleep)


def _name_caller(name: str | None) -> str:
    """Return the given name of the caller, or the name they are logged in by."""
    if name is None:
        try:
            user = getpass.getuser()
        except (ImportError, KeyError, OSError):  # a user without a name, as in some containers
            return "unknown"
        return re.sub(r"[^A-Za-z0-9_.:@/+=,-]", "_", user)[:MAX_NAME_LENGTH] or "unknown"
    if not re.fullmatch(NAME_PATTERN, name):
        raise UsageError(f"--by should be {NAME_RULE}, not {name!r}")
    return name


def main() -> int:
    """Run the command line's command."""
    return run(sys.argv[1:], os.environ)
