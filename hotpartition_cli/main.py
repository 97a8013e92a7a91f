"""The command line: each command with its options, what it does, and its exit status.

Imports that only one command needs stand in it: `hot` should not wait for those of `plan`.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from hotpartition import __version__
from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.core.route_history import MAX_NAME_LENGTH, NAME_PATTERN, NAME_RULE
from hotpartition_cli import outcomes
from hotpartition_cli.errors import FailedError, Status, ToolError, UsageError
from hotpartition_cli.outcomes import Caller, Outcome, Progress
from hotpartition_cli.screen import Screen

if TYPE_CHECKING:
    from hotpartition_cli.stacks import Stack

FUNCTION_VARIABLE = "HOTPARTITION_FUNCTION"
STACK_VARIABLE = "HOTPARTITION_STACK"
TOKEN_VARIABLE = "HOTPARTITION_TOKEN"  # noqa: S105 - the variable's name
URL_VARIABLE = "HOTPARTITION_URL"

_EPOCH = datetime.fromtimestamp(0, UTC)

_EPILOG = f"""\b
where to ask:
  --function NAME, or {FUNCTION_VARIABLE}: the stack's output OperateFunctionName, through AWS Lambda
  --url URL, or {URL_VARIABLE}: the control API of a local run, as `make up` names it; with
    --function, where several tables are operated there
  --table NAME: a table with `in_band()`, without a function, with your own AWS credentials; for `diagnose`, any table
  --stack NAME, or {STACK_VARIABLE}: for `check`, the stack on AWS

\b
exit status:
  0  fine
  1  something to repair: routes differ or cannot be read, a load is not covered
  2  the command is wrong
  3  it could not be done: no response, no credentials, throttled, Redis or DynamoDB away
  130  interrupted

\b
examples:
  hotpartition hot --url http://127.0.0.1:8001
  hotpartition route room-1
  hotpartition plan --rate 5000 --item-bytes 700
  hotpartition raise room-1 --n 16
  hotpartition close room-1 --dry-run
  hotpartition verify --mend
  hotpartition watch
  hotpartition rush room-1
  hotpartition check --stack hotpartition-dev
  hotpartition diagnose --table readings
  hotpartition hot --table readings
  hotpartition COMMAND --help says more of each; docs/command-line.md describes what --json prints
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where commands go: an operations function, a local run, a stack, or a table itself."""

    function: str | None = None
    url: str | None = None
    stack: str | None = None
    table: str | None = None
    journal_table: str | None = None
    region: str | None = None
    profile: str | None = None
    looks_at_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What commands get from outside; tests replace it."""

    environ: Mapping[str, str]
    screen: Screen
    connect: Callable[[Target], Caller]
    connect_stack: Callable[[Target, Mapping[str, str]], Stack]
    sleep: Callable[[float], None]
    now: Callable[[], datetime]

    def ask(self, command: str, target: Mapping[str, Any], ask: Callable[[Caller, Progress], Outcome]) -> int:
        """Have a command carried out at its target, and show the response."""
        call = self.connect(find_target(target, self.environ))
        return self.show(command, lambda progress: ask(call, progress))

    def show(self, command: str, work: Callable[[Progress], Outcome]) -> int:
        """Carry out a command, show its progress and its response, and return the exit status."""
        with self.screen.progress() as progress:
            outcome = work(progress)
        return self.screen.finish(command, outcome)


def connect(target: Target) -> Caller:
    """Connect to the function, URL or table."""
    from hotpartition_cli.callers import OPERATIONS, LambdaCaller, UrlCaller  # noqa: PLC0415

    if target.table:
        from hotpartition_cli.tables import TableCaller  # noqa: PLC0415

        credentials = {"region": target.region, "profile": target.profile}
        return TableCaller.connect(
            target.table, target.journal_table, os.environ, looks_at_all=target.looks_at_all, **credentials
        )
    if target.url:
        return UrlCaller(target.url, target.function or OPERATIONS)
    assert target.function is not None  # noqa: S101  `find_target` has one of the three
    return LambdaCaller.connect(target.function, region=target.region, profile=target.profile)


def connect_stack(target: Target, environ: Mapping[str, str]) -> Stack:
    """Reach all of a stack, as `check` needs it."""
    from hotpartition_cli.stacks import AwsStack, LocalStack  # noqa: PLC0415

    if target.url:
        return LocalStack(target.url)
    token = environ.get(TOKEN_VARIABLE) or None
    return AwsStack.connect(target.stack or "", region=target.region, profile=target.profile, token=token)


def find_target(options: Mapping[str, Any], environ: Mapping[str, str]) -> Target:
    """Find where a command goes: an option before the environment.

    Raises:
        UsageError: saying what is wrong.
    """
    target = Target(**options)
    if target.table:
        if target.function or target.url:
            raise UsageError("--table is looked after without a function: give neither --function nor --url with it")
        return target
    if target.journal_table:
        raise UsageError("--journal-table belongs to a table: give --table as well")
    if target.looks_at_all:
        raise UsageError("verify --all looks through a table: name it with --table")
    if "stack" not in options:
        return _find_place(options, environ, "function", FUNCTION_VARIABLE, "the output OperateFunctionName")
    if target.stack and target.url:
        raise UsageError("--stack and --url name two places; give one of them")
    return _find_place(options, environ, "stack", STACK_VARIABLE, "the stack's name, as `make deploy` prints it")


def _find_place(options: Mapping[str, Any], environ: Mapping[str, str], way: str, variable: str, source: str) -> Target:
    if options[way] or options["url"]:
        return Target(**options)
    name, url = environ.get(variable) or None, environ.get(URL_VARIABLE) or None
    if name and url:
        raise UsageError(f"{variable} and {URL_VARIABLE} name two places; give --{way} or --url")
    if not (name or url):
        raise UsageError(
            f"where is the stack? Give --{way} ({source}) or --url (of a local run),"
            f" or set {variable} or {URL_VARIABLE}"
        )
    return Target(**{**options, way: name, "url": url})


def parse_time(text: str) -> int:
    """Parse a time with its offset (RFC 3339) to Unix ms."""
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise click.BadParameter(f"should be a time with its offset, like 2026-11-21T09:30:00Z, not {text!r}")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _together(*decorators: Decorator) -> Decorator:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


# Read before everything else is parsed (`run`), so that a wrong option is reported in JSON as well.
AS_JSON = click.option("--json", "as_json", is_flag=True, expose_value=False, help="Print JSON, for programs.")
CREDENTIALS = _together(
    click.option("--region", help="AWS region, unless your AWS configuration names one."),
    click.option("--profile", help="AWS profile."),
)
URL = click.option("--url", help="The control API of a local run.")
FUNCTION = _together(
    click.option("--function", metavar="NAME", help="The operations function on AWS."), URL, CREDENTIALS
)
TABLE = _together(
    click.option("--table", metavar="NAME", help="A table with in_band(), instead of a function."),
    click.option("--journal-table", metavar="NAME", help="Where the table's routing items lie, if apart."),
)
OWN_TABLE = _together(click.option("--table", metavar="NAME", required=True, help="The table."), CREDENTIALS)
KEY = click.argument("key", metavar="ID")
LIMIT = click.option("--limit", type=int, default=20, metavar="ROWS", help="Keys shown (default 20).")
BY = click.option("--by", metavar="NAME", help="Who asks, for the record (default: your user name).")
TOOLS = click.make_pass_decorator(Tools)


@click.group(epilog=_EPILOG, no_args_is_help=False)
@click.version_option(__version__, message="hotpartition %(version)s")
def hotpartition() -> None:
    """Look after a hotpartition stack: what is hot, where its routes are, and what a known event needs."""


def _command(name: str, example: str, *decorators: Decorator) -> Decorator:
    """Declare a command, with `--json` and an example."""
    declare = hotpartition.command(name, epilog=f"\b\nexample:\n  hotpartition {example}")
    return _together(declare, AS_JSON, *decorators, TOOLS)


@_command("hot", "hot --limit 50", FUNCTION, TABLE, LIMIT)
@click.option("--all", "shows_all", is_flag=True, help="Every key that was ever raised, however many.")
def hot(tools: Tools, limit: int, *, shows_all: bool, **target: Any) -> int:
    """Partition keys by heat (mean WCU/s of the last 5 s) and age."""
    if shows_all:
        return tools.ask("hot", target, outcomes.show_all)
    return tools.ask("hot", target, lambda call, _: outcomes.show_hot(call, limit))


@_command("route", "route room-1", FUNCTION, TABLE, KEY)
def route(tools: Tools, key: str, **target: Any) -> int:
    """One partition key's route, in journal and registry, and what made it."""
    return tools.ask("route", target, lambda call, _: outcomes.show_route(call, key))


@_command("raise", "raise room-1 --n 16", FUNCTION, TABLE, KEY, BY)
@click.option("--n", "shard_count", type=click.IntRange(2, MAX_SHARD_COUNT), required=True, metavar="N", help="Shards.")
@click.option(
    "--since",
    "since_ms",
    type=parse_time,
    metavar="TIME",
    help="For items from then on (default: 5 s ago; with --table: all items).",
)
def raise_(tools: Tools, key: str, shard_count: int, since_ms: int | None, by: str | None, **target: Any) -> int:
    """Spread a partition key before a known event."""
    name = _name_caller(by)
    return tools.ask("raise", target, lambda call, _: outcomes.raise_key(call, key, shard_count, since_ms, by=name))


@_command("close", "close room-1 --dry-run", FUNCTION, TABLE, KEY, BY)
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@click.option("--timed", is_flag=True, help="With --table: all its writers have had closing=True for ten minutes.")
def close(tools: Tools, key: str, by: str | None, *, dry_run: bool, timed: bool, **target: Any) -> int:
    """Let the N of a partition key that has cooled come down again, from some minutes ahead on."""
    name = _name_caller(by)
    asked: dict[str, Any] = {"is_dry_run": dry_run, "is_timed": timed, "by": name}
    return tools.ask("close", target, lambda call, _: outcomes.close_key(call, key, **asked))


@_command("verify", "verify --mend", FUNCTION, TABLE)
@click.option("--mend", is_flag=True, help="Repair both: each gets what only the other has.")
@click.option(
    "--all", "looks_at_all", is_flag=True, help="With --table: look through all stored keys for unrouted shards."
)
def verify(tools: Tools, *, mend: bool, **target: Any) -> int:
    """Registry against journal: what is equal and what differs."""
    return tools.ask("verify", target, lambda call, progress: outcomes.verify(call, progress, repairs=mend))


@_command("fold", "fold room-1 --table readings --n 16", OWN_TABLE, KEY)
@click.option(
    "--n",
    "shard_count",
    type=click.IntRange(1, MAX_SHARD_COUNT),
    required=True,
    metavar="N",
    help="Shards that may hold items.",
)
@click.option(
    "--items-per-second", type=click.FloatRange(0.1, 1_000), default=50.0, metavar="ITEMS", help="Default 50."
)
@click.option(
    "--settle",
    type=click.FloatRange(0, 3_600),
    default=60.0,
    metavar="SECONDS",
    help="Longer than any read or change of the table takes (default 60).",
)
def fold(tools: Tools, key: str, shard_count: int, items_per_second: float, settle: float, **where: Any) -> int:
    """Move a partition key's items from its shards to its base key, where all readers run fixed(0, readable=N)."""
    from hotpartition_cli import repairs  # noqa: PLC0415

    opened = repairs.open_table(**where, environ=tools.environ, sleep=tools.sleep)
    pace = {"items_per_second": items_per_second, "settle_seconds": settle}
    return tools.show("fold", lambda progress: repairs.fold(opened, key, shard_count, progress, **pace))


@_command("copy-back", "copy-back --table readings --from readings-restored", OWN_TABLE)
@click.option("--from", "source", required=True, metavar="NAME", help="The restored table.")
def copy_back(tools: Tools, table: str, source: str, **where: Any) -> int:
    """Put into a table, or a journal's, what only a restored copy has; overwrites nothing."""
    from hotpartition_cli import repairs  # noqa: PLC0415

    from_outside = {**where, "environ": tools.environ, "sleep": tools.sleep}
    opened, restored = (repairs.open_table(table=name, **from_outside) for name in (table, source))
    return tools.show("copy-back", lambda progress: repairs.copy_back(opened, restored, progress))


@_command("watch", "watch --every 5", FUNCTION, TABLE, LIMIT)
@click.option("--every", type=click.FloatRange(0.1, 3_600), default=2.0, metavar="SECONDS", help="Default 2.")
@click.option("--once", is_flag=True, help="Show it once.")
@click.option(
    "--page", is_flag=True, help="Serve a page with a heat map of the last ten minutes, on this machine alone."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The page's port (default: a free one).")
def watch(tools: Tools, limit: int, every: float, port: int, *, once: bool, page: bool, **target: Any) -> int:
    """`hot`, renewed until you press Ctrl-C, which ends it and is not an error."""
    call = tools.connect(find_target(target, tools.environ))
    screen = tools.screen
    outcome = outcomes.show_hot(call, limit)
    if page:
        return _serve_page(tools, call, every, limit, port)
    if once:
        return screen.finish("watch", outcome)

    def look_again() -> Iterator[Outcome | FailedError]:
        """Wait and ask, for ever; a failure is given as well, and tried again the next time."""
        while True:
            tools.sleep(every)
            try:
                yield outcomes.show_hot(call, limit)
            except FailedError as error:
                yield error

    with suppress(KeyboardInterrupt):
        if screen.as_json or not sys.stdout.isatty():
            screen.show("watch", outcome)
            for again in look_again():
                screen.complain(again) if isinstance(again, FailedError) else screen.show("watch", again)
        _watch_live(screen, outcome, look_again())
    return Status.FINE


def _serve_page(tools: Tools, call: Caller, every: float, limit: int, port: int) -> int:
    """Serve the page of heat until Ctrl-C."""
    from hotpartition_cli.heat import MOST_KEYS, Heat, Server  # noqa: PLC0415

    if limit > MOST_KEYS:
        raise UsageError(f"--page shows at most {MOST_KEYS} keys of a look, not {limit} (--limit)")
    try:
        server = Server(Heat.of(call, now=tools.now, every=every, limit=limit), port)
    except OSError as error:
        raise UsageError(f"port {port} cannot be used: {error.strerror}") from error
    server.start(at_once=True)
    tools.screen.say(f"the page is at {server.url} until you press Ctrl-C")
    with suppress(KeyboardInterrupt):
        while True:
            tools.sleep(every)
    server.stop()
    return Status.FINE


def _watch_live(screen: Screen, outcome: Outcome, looks: Iterator[Outcome | FailedError]) -> None:
    """Renew one table in a terminal."""
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from hotpartition_cli.views import view_hot  # noqa: PLC0415

    with Live(view_hot(outcome.document), console=screen.open(), auto_refresh=False, screen=False) as live:
        for again in looks:
            shown = (
                Text(f"hotpartition: {again}", "red") if isinstance(again, FailedError) else view_hot(again.document)
            )
            live.update(shown, refresh=True)


@_command("rush", "rush room-1", FUNCTION, KEY)
@click.option(
    "--wcu", type=click.FloatRange(25, 20_000), default=2_000.0, metavar="PER_SECOND", help="Load (default 2000 WCU/s)."
)
@click.option("--seconds", type=click.FloatRange(1, 600), default=20.0, help="How long (default 20).")
def rush(tools: Tools, key: str, wcu: float, seconds: float, **target: Any) -> int:
    """Make a conversation of a local run hot, to see it raised."""
    from hotpartition_cli.rush import make_rush  # noqa: PLC0415

    return tools.ask("rush", target, lambda call, progress: make_rush(call, progress, key, wcu, seconds))


@_command("check", "check --stack hotpartition-dev", URL, CREDENTIALS)
@click.option("--stack", metavar="NAME", help="The stack on AWS.")
@click.option(
    "--wait",
    type=click.FloatRange(0, 600),
    default=150.0,
    metavar="SECONDS",
    help="How long to wait for the consumer's first start after a deployment (default 150).",
)
def check(tools: Tools, wait: float, **target: Any) -> int:
    """Try a stack from end to end: functions, messages, a raise by hand, the consumer; it writes for real."""
    from hotpartition_cli.check import check, describe_costs  # noqa: PLC0415

    stack = tools.connect_stack(find_target(target, tools.environ), tools.environ)
    tools.screen.say(f"check {describe_costs(stack)}")
    return tools.show("check", lambda progress: check(stack, progress, wait_seconds=wait, sleep=tools.sleep))


@_command("diagnose", "diagnose --table readings --hours 3", OWN_TABLE)
@click.option(
    "--hours",
    type=click.FloatRange(0.1, 336),  # CloudWatch keeps minutes for fifteen days
    default=1.0,
    metavar="HOURS",
    help="How far back (default 1).",
)
@click.option("--enable", is_flag=True, help="Have Contributor Insights count refused keys, after a question.")
def diagnose(tools: Tools, table: str, hours: float, *, enable: bool, **where: Any) -> int:
    """What DynamoDB refused of any table, by which keys, why, and what helps; needs read rights only."""
    from hotpartition_cli.diagnose import Reader  # noqa: PLC0415
    from hotpartition_cli.diagnosis import diagnose as judge  # noqa: PLC0415

    reader = Reader.connect(**where)
    with tools.screen.progress():
        seen = reader.read(table, hours, tools.now())
    if enable and click.confirm(f"Count the refused keys of {table} and its indexes, at DynamoDB's price?", err=True):
        for place in reader.enable_insights(table, seen):
            tools.screen.say(f"Contributor Insights counts refused keys of {place} from now on")
    return tools.screen.finish("diagnose", judge(seen))


@_command("plan", 'plan --rate 5000 --item \'{"sender": "ann", "body": "hello"}\'')
@click.option("--rate", type=float, required=True, metavar="PER_SECOND", help="Messages a second, at the peak.")
@click.option("--item-bytes", type=int, metavar="BYTES", help="Size of a stored item, names included.")
@click.option("--item", metavar="JSON", help="A message, to be measured; @FILE reads it from a file.")
@click.option("--target-shard-wcu", type=float, metavar="WCU", help="The stack's setting, if it is not the default.")
@click.option("--max-shard-count", type=int, metavar="N", help="The stack's setting, if it is not the default.")
def plan(tools: Tools, rate: float, item_bytes: int | None, item: str | None, **sizing: Any) -> int:
    """N for a load, and the load of each key before and after; sends no request."""
    from hotpartition_cli.plan import plan_load  # noqa: PLC0415

    if (item is None) == (item_bytes is None):
        raise UsageError("give one of --item-bytes and --item (hotpartition plan --help)")
    return tools.screen.finish("plan", plan_load(rate, item_bytes, item, **sizing))


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


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    connect: Callable[[Target], Caller] = connect,
    connect_stack: Callable[[Target, Mapping[str, str]], Stack] = connect_stack,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> int:
    """Run a command and return its exit status."""
    screen = Screen(as_json="--json" in arguments)
    tools = Tools(environ=environ, screen=screen, connect=connect, connect_stack=connect_stack, sleep=sleep, now=now)
    try:
        return int(hotpartition.main(list(arguments), prog_name="hotpartition", standalone_mode=False, obj=tools))
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "hotpartition"
        screen.complain(UsageError(f"{error.format_message()} ({path} --help)"))
        return Status.USAGE
    except ToolError as error:
        screen.complain(error)
        return error.status
    except (KeyboardInterrupt, click.Abort):
        return Status.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed it; buffered output would fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.FAILED


def main() -> int:
    """Run the command line's command."""
    return run(sys.argv[1:], os.environ)
