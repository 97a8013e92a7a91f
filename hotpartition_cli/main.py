"""The command line: each command with its options, what it does, and its exit status.

Imports that only one command needs stand in it: `hot` should not wait for those of `plan`.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import isnan
from typing import Any

import click

from hotpartition import __version__
from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.core.route_history import MAX_NAME_LENGTH, NAME_PATTERN, NAME_RULE
from hotpartition_cli import outcomes
from hotpartition_cli.callers import OPERATIONS, LambdaCaller, Stack, UrlCaller, find_stack, open_local
from hotpartition_cli.errors import FailedError, Status, ToolError, UsageError
from hotpartition_cli.outcomes import Caller, Outcome, Progress
from hotpartition_cli.screen import Screen

TOKEN_VARIABLE = "HOTPARTITION_TOKEN"  # noqa: S105 - the variable's name
URL_VARIABLE = "HOTPARTITION_URL"

_EPOCH = datetime.fromtimestamp(0, UTC)

_EPILOG = f"""\b
where to ask:
  --function NAME, or HOTPARTITION_FUNCTION: the stack's output OperateFunctionName, through AWS Lambda
  --url URL, or {URL_VARIABLE}: the control API of a local run, as `make up` names it; with
    --function, where several tables are operated there
  --table NAME: a table with `in_band()`, without a function, with your own AWS credentials; for `diagnose`, any table
  --stack NAME, or HOTPARTITION_STACK: for `check`, the stack on AWS

\b
exit status:
  0  fine
  1  something to repair: routes differ or cannot be read, a load is not covered
  2  the command is wrong
  3  it could not be done: no response, no credentials, throttled, Redis or DynamoDB away
  130  interrupted

\b
examples (COMMAND --help says more of each; docs/command-line.md describes what --json prints):
"""

Options = Mapping[str, Any]
Sleep = Callable[[float], None]


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
    connect: Callable[[Target, Mapping[str, str], Sleep], Caller]
    connect_stack: Callable[[Target, Mapping[str, str]], Stack]
    sleep: Sleep
    now: Callable[[], datetime]

    def reach(self, target: Options) -> Caller:
        """Connect to where a command goes."""
        return self.connect(find_target(target, self.environ), self.environ, self.sleep)

    def ask(self, command: str, target: Options, **request: object) -> int:
        """Have the operations function carry a command out, and show its response."""
        return self.work(command, target, lambda call, _: outcomes.ask(call, command, **request))

    def work(self, command: str, target: Options, work: Callable[..., Outcome], **how: object) -> int:
        """Work through a connection to where a command goes."""
        call = self.reach(target)
        return self.show(command, lambda progress: work(call, progress, **how))

    def show(self, command: str, work: Callable[[Progress], Outcome]) -> int:
        """Carry out a command, show its progress and its response, and return the exit status."""
        with self.screen.progress() as progress:
            outcome = work(progress)
        return self.screen.finish(command, outcome)


def connect(target: Target, environ: Mapping[str, str], sleep: Sleep) -> Caller:
    """Connect to the function, URL or table."""
    where = {"region": target.region, "profile": target.profile}
    if target.table:
        from hotpartition_cli.tables import TableCaller  # noqa: PLC0415

        all_items = target.looks_at_all
        return TableCaller.connect(target.table, target.journal_table, environ, sleep, looks_at_all=all_items, **where)
    function = target.function or OPERATIONS
    return UrlCaller(target.url, function) if target.url else LambdaCaller.connect(function, **where)


def connect_stack(target: Target, environ: Mapping[str, str]) -> Stack:
    """Reach all of a stack, as `check` needs it."""
    if target.url:
        return open_local(target.url)
    token = environ.get(TOKEN_VARIABLE) or None
    return find_stack(target.stack or "", region=target.region, profile=target.profile, token=token)


def find_target(options: Options, environ: Mapping[str, str]) -> Target:
    """Find where a command goes: an option before the environment.

    Raises:
        UsageError: saying what is wrong.
    """
    target = Target(**options)
    if target.table and (target.function or target.url):
        raise UsageError("--table is looked after without a function: give neither --function nor --url with it")
    if target.journal_table and not target.table:
        raise UsageError("--journal-table belongs to a table: give --table as well")
    if target.looks_at_all and not target.table:
        raise UsageError("verify --all looks through a table: name it with --table")
    if target.stack and target.url:
        raise UsageError("--stack and --url name two places; give one of them")
    if target.table or target.function or target.stack or target.url:
        return target
    if "stack" in options:
        return replace(target, **_read_place(environ, "stack", "the stack's name, as `make deploy` prints it"))
    return replace(target, **_read_place(environ, "function", "the output OperateFunctionName"))


def _read_place(environ: Mapping[str, str], way: str, source: str) -> Mapping[str, Any]:
    """Read the place that the environment names."""
    variable = f"HOTPARTITION_{way.upper()}"
    name, url = environ.get(variable), environ.get(URL_VARIABLE)
    if name and url:
        raise UsageError(f"{variable} and {URL_VARIABLE} name two places; give --{way} or --url")
    if not (name or url):
        raise UsageError(
            f"where is the stack? Give --{way} ({source}) or --url (of a local run),"
            f" or set {variable} or {URL_VARIABLE}"
        )
    return {way: name, "url": url}


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


class _Number(click.FloatRange):
    """A number between two others: click's own range takes NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Implement `ParamType.convert`."""
        number = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number.", param, ctx) if isnan(number) else number


def _number(
    name: str, least: float, most: float, default: float, meaning: str, *, unit: str | None = None
) -> Decorator:
    """Declare an option that is a number between two others."""
    return click.option(name, type=_Number(least, most), default=default, metavar=unit, help=meaning)


def _shards(least: int, meaning: str) -> Decorator:
    """Declare the option that is a number of shards."""
    kind = click.IntRange(least, MAX_SHARD_COUNT)
    return click.option("--n", "shard_count", type=kind, required=True, metavar="N", help=meaning)


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
TOOLS = click.make_pass_decorator(Tools)


def _name_caller(_context: click.Context, _option: click.Parameter, name: str | None) -> str:
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


BY = click.option(
    "--by", metavar="NAME", callback=_name_caller, help="Who asks, for the record (default: your user name)."
)


@click.group(epilog=_EPILOG, no_args_is_help=False)
@click.version_option(__version__, message="hotpartition %(version)s")
def hotpartition() -> None:
    """Look after a hotpartition stack: what is hot, where its routes are, and what a known event needs."""


def _command(example: str, *decorators: Decorator) -> Decorator:
    """Declare the command of an example, with `--json`; the help of all commands shows each example as well."""
    hotpartition.epilog = f"{hotpartition.epilog}  hotpartition {example}\n"
    declare = hotpartition.command(example.split(maxsplit=1)[0], epilog=f"\b\nexample:\n  hotpartition {example}")
    return _together(declare, AS_JSON, *decorators, TOOLS)


@_command("hot --limit 50", FUNCTION, TABLE, LIMIT)
@click.option("--all", "shows_all", is_flag=True, help="Every key that was ever raised, however many.")
def hot(tools: Tools, limit: int, *, shows_all: bool, **target: Any) -> int:
    """Partition keys by heat (mean WCU/s of the last 5 s) and age."""
    return tools.work("hot", target, outcomes.show_all) if shows_all else tools.ask("hot", target, limit=limit)


@_command("route room-1", FUNCTION, TABLE, KEY)
def route(tools: Tools, key: str, **target: Any) -> int:
    """One partition key's route, in journal and registry, and what made it."""
    return tools.ask("route", target, conversation_id=key)


@_command("raise room-1 --n 16", FUNCTION, TABLE, KEY, BY, _shards(2, "Shards."))
@click.option(
    "--since",
    "since_ms",
    type=parse_time,
    metavar="TIME",
    help="For items from then on (default: 5 s ago; with --table: all items).",
)
def raise_(tools: Tools, key: str, shard_count: int, since_ms: int | None, by: str, **target: Any) -> int:
    """Spread a partition key before a known event."""
    return tools.ask("raise", target, conversation_id=key, shard_count=shard_count, since_ms=since_ms, by=by)


@_command("close room-1 --dry-run", FUNCTION, TABLE, KEY, BY)
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
@click.option("--timed", is_flag=True, help="With --table: all its writers have had closing=True for ten minutes.")
def close(tools: Tools, key: str, by: str, *, dry_run: bool, timed: bool, **target: Any) -> int:
    """Let the N of a partition key that has cooled come down again, from some minutes ahead on."""
    return tools.ask("close", target, conversation_id=key, dry_run=dry_run, timed=timed, by=by)


@_command("verify --mend", FUNCTION, TABLE)
@click.option("--mend", is_flag=True, help="Repair both: each gets what only the other has.")
@click.option(
    "--all", "looks_at_all", is_flag=True, help="With --table: look through all stored keys for unrouted shards."
)
def verify(tools: Tools, *, mend: bool, **target: Any) -> int:
    """Registry against journal: what is equal and what differs."""
    return tools.work("verify", target, outcomes.verify, repairs=mend)


@_command(
    "fold room-1 --table readings --n 16",
    OWN_TABLE,
    KEY,
    _shards(1, "Shards that may hold items."),
    _number("--items-per-second", 0.1, 1_000, 50.0, "Default 50.", unit="ITEMS"),
    _number("--settle", 0, 3_600, 60.0, "Longer than any read or change takes (default 60).", unit="SECONDS"),
)
def fold(
    tools: Tools, table: str, key: str, shard_count: int, items_per_second: float, settle: float, **where: Any
) -> int:
    """Move a partition key's items from its shards to its base key, where all readers run fixed(0, readable=N)."""
    from hotpartition_cli import repairs  # noqa: PLC0415

    opened = repairs.open_table(table, tools.environ, tools.sleep, **where)
    pace = {"items_per_second": items_per_second, "settle_seconds": settle}
    return tools.show("fold", lambda progress: repairs.fold(opened, key, shard_count, progress, **pace))


@_command("copy-back --table readings --from readings-restored", OWN_TABLE)
@click.option("--from", "source", required=True, metavar="NAME", help="The restored table.")
def copy_back(tools: Tools, table: str, source: str, **where: Any) -> int:
    """Put into a table, or a journal's, what only a restored copy has; overwrites nothing."""
    from hotpartition_cli import repairs  # noqa: PLC0415

    opened, restored = (repairs.open_table(name, tools.environ, tools.sleep, **where) for name in (table, source))
    return tools.show("copy-back", lambda progress: repairs.copy_back(opened, restored, progress))


@_command("watch --every 5", FUNCTION, TABLE, LIMIT, _number("--every", 0.1, 3_600, 2.0, "Default 2.", unit="SECONDS"))
@click.option("--once", is_flag=True, help="Show it once.")
@click.option(
    "--page", is_flag=True, help="Serve a page with a heat map of the last ten minutes, on this machine alone."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The page's port (default: a free one).")
def watch(tools: Tools, limit: int, every: float, port: int, *, once: bool, page: bool, **target: Any) -> int:
    """`hot`, renewed until you press Ctrl-C, which ends it and is not an error."""
    call = tools.reach(target)
    first = outcomes.ask(call, "hot", limit=limit)
    if page:
        return _serve_page(tools, call, every, limit, port)
    if once:
        return tools.screen.finish("watch", first)
    with suppress(KeyboardInterrupt), tools.screen.renewed() as show:
        show(first)
        while True:
            tools.sleep(every)
            try:
                show(outcomes.ask(call, "hot", limit=limit))
            except FailedError as error:
                show(error)
    return Status.FINE


def _serve_page(tools: Tools, call: Caller, every: float, limit: int, port: int) -> int:
    """Serve the page of heat until Ctrl-C."""
    from hotpartition_cli.heat import MOST_KEYS, Heat, Server  # noqa: PLC0415

    if limit > MOST_KEYS:
        raise UsageError(f"--page shows at most {MOST_KEYS} keys of a look, not {limit} (--limit)")
    try:
        server = Server(Heat(call, now=tools.now, every=every, limit=limit), port)
    except OSError as error:
        raise UsageError(f"port {port} cannot be used: {error.strerror}") from error
    server.start(at_once=True)
    tools.screen.say(f"the page is at {server.url} until you press Ctrl-C")
    with suppress(KeyboardInterrupt):
        while True:
            tools.sleep(every)
    server.stop()
    return Status.FINE


@_command(
    "rush room-1",
    FUNCTION,
    KEY,
    _number("--wcu", 25, 20_000, 2_000.0, "Load (default 2000 WCU/s).", unit="PER_SECOND"),
    _number("--seconds", 1, 600, 20.0, "How long (default 20)."),
)
def rush(tools: Tools, key: str, wcu: float, seconds: float, **target: Any) -> int:
    """Make a conversation of a local run hot, to see it raised."""
    from hotpartition_cli.rush import make_rush  # noqa: PLC0415

    return tools.work("rush", target, make_rush, conversation_id=key, wcu_per_second=wcu, seconds=seconds)


@_command(
    "check --stack hotpartition-dev",
    URL,
    CREDENTIALS,
    click.option("--stack", metavar="NAME", help="The stack on AWS."),
    _number(
        "--wait", 0, 600, 150.0, "For the consumer's first start after a deployment (default 150).", unit="SECONDS"
    ),
)
def check(tools: Tools, wait: float, **target: Any) -> int:
    """Try a stack from end to end: functions, messages, a raise by hand, the consumer; it writes for real."""
    from hotpartition_cli.check import check, describe_costs  # noqa: PLC0415

    stack = tools.connect_stack(find_target(target, tools.environ), tools.environ)
    tools.screen.say(f"check {describe_costs(stack)}")
    return tools.show("check", lambda progress: check(stack, progress, wait_seconds=wait, sleep=tools.sleep))


# CloudWatch keeps minutes for fifteen days.
@_command(
    "diagnose --table readings --hours 3",
    OWN_TABLE,
    _number("--hours", 0.1, 336, 1.0, "How far back (default 1).", unit="HOURS"),
)
@click.option("--enable", is_flag=True, help="Have Contributor Insights count refused keys, after a question.")
def diagnose(tools: Tools, table: str, hours: float, *, enable: bool, **where: Any) -> int:
    """What DynamoDB refused of any table, by which keys, why, and what helps; needs read rights only."""
    from hotpartition_cli.diagnose import Reader  # noqa: PLC0415
    from hotpartition_cli.diagnose import diagnose as judge  # noqa: PLC0415

    reader = Reader.connect(**where)
    with tools.screen.progress():
        seen = reader.read(table, hours, tools.now())
    if enable and click.confirm(f"Count the refused keys of {table} and its indexes, at DynamoDB's price?", err=True):
        for place in reader.enable_insights(table, seen):
            tools.screen.say(f"Contributor Insights counts refused keys of {place} from now on")
    return tools.screen.finish("diagnose", judge(seen))


@_command('plan --rate 5000 --item \'{"sender": "ann", "body": "hello"}\'')
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


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    *,
    connect: Callable[[Target, Mapping[str, str], Sleep], Caller] = connect,
    connect_stack: Callable[[Target, Mapping[str, str]], Stack] = connect_stack,
    sleep: Sleep = time.sleep,
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
    except (OSError, SystemExit) as error:
        # A disk is full, or the reader of the output has closed it: then click and rich exit. What is buffered would
        # fail once more at the end.
        if isinstance(error, OSError):
            screen.warn(f"the output cannot be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.FAILED


def main() -> int:
    """Run the command line's command."""
    return run(sys.argv[1:], os.environ)
