"""The command line: options, help and the checks before any request."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from types import MappingProxyType
from typing import NoReturn

from hotpartition import __version__
from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition_cli.errors import UsageError
from hotpartition_cli.rush import MESSAGE_WCU

FUNCTION_VARIABLE = "HOTPARTITION_FUNCTION"
STACK_VARIABLE = "HOTPARTITION_STACK"
TOKEN_VARIABLE = "HOTPARTITION_TOKEN"  # noqa: S105 - the variable's name
URL_VARIABLE = "HOTPARTITION_URL"

_SOURCES = {
    "function": (FUNCTION_VARIABLE, "the output OperateFunctionName"),
    "stack": (STACK_VARIABLE, "the stack's name, as `make deploy` prints it"),
}
"""How a stack on AWS is named: its variable, and where the name comes from."""

OWN = frozenset({"fold", "copy-back"})
"""The commands that work on a table itself, with the caller's own credentials."""

_EPOCH = datetime.fromtimestamp(0, UTC)

_DESCRIPTION = "Look after a hotpartition stack: what is hot, where its routes are, and what a known event needs."
_EPILOG = f"""\
where to ask:
  --function NAME, or {FUNCTION_VARIABLE}: the stack's output OperateFunctionName, through AWS Lambda
  --url URL, or {URL_VARIABLE}: the control API of a local run, as `make up` names it; with
    --function, where several tables are operated there
  --table NAME: a table with `in_band()`, without a function, with your own AWS credentials
  --stack NAME, or {STACK_VARIABLE}: for `check`, the stack on AWS

exit status:
  0  fine
  1  something to repair: routes differ or cannot be read, a load is not covered
  2  the command is wrong
  3  it could not be done: no response, no credentials, throttled, Redis or DynamoDB away
  130  interrupted

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
  hotpartition hot --table readings
  hotpartition COMMAND --help says more of each; docs/command-line.md describes what --json prints
"""


class _Parser(argparse.ArgumentParser):
    """Raises parse errors as `UsageError`, in one sentence."""

    commands: Mapping[str, argparse.ArgumentParser] = MappingProxyType({})

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"unrecognized arguments: (--[\w-]+)|invalid choice: '([^']+)'", message)
        options = {
            option for each in self.commands.values() for option in re.findall(r"--[a-z-]+", each.format_usage())
        }
        near = get_close_matches(wrong[1] or wrong[2], [*self.commands, *sorted(options)], n=1) if wrong else ()
        hint = f". Did you mean {near[0]}?" if near else ""
        raise UsageError(f"{message}{hint} ({self.prog} --help)")


def parse_arguments(arguments: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """Read a command and its options.

    Returns:
        The options. A command that sends requests has one of `function` (for `check`: `stack`), `url` and `table`.

    Raises:
        UsageError: saying what is wrong.
    """
    options = _build_parser().parse_args(arguments)
    if options.command in OWN:
        return options
    if getattr(options, "table", None):
        if options.function or options.url:
            raise UsageError("--table is looked after without a function: give neither --function nor --url with it")
        return options
    if getattr(options, "journal_table", None):
        raise UsageError("--journal-table belongs to a table: give --table as well")
    if options.command == "verify" and options.all:
        raise UsageError("verify --all looks through a table: name it with --table")
    if options.command != "plan":
        way = "stack" if options.command == "check" else "function"
        name, options.url = _choose_target(way, getattr(options, way), options.url, environ)
        setattr(options, way, name)
    return options


def parse_since(text: str) -> int:
    """Parse a time with its offset (RFC 3339) to Unix ms."""
    try:
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"should be a time with its offset, like 2026-11-21T09:30:00Z, not {text!r}")
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _choose_target(
    way: str, name: str | None, url: str | None, environ: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """Choose where requests go: an option before the environment."""
    variable, source = _SOURCES[way]
    if name and url and way != "function":
        raise UsageError(f"--{way} and --url name two places; give one of them")
    if name or url:
        return name, url
    name, url = environ.get(variable) or None, environ.get(URL_VARIABLE) or None
    if name and url:
        raise UsageError(f"{variable} and {URL_VARIABLE} name two places; give --{way} or --url")
    if not (name or url):
        raise UsageError(
            f"where is the stack? Give --{way} ({source}) or --url (of a local run),"
            f" or set {variable} or {URL_VARIABLE}"
        )
    return name, url


def _build_parser() -> _Parser:
    as_json = _Parser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON, for programs")
    target = _add_target("--function", "the operations function on AWS")
    table = _add_table("a table with in_band(), instead of a function")
    key, rows, by = (_Parser(add_help=False) for _ in range(3))
    key.add_argument("conversation_id", metavar="ID")
    rows.add_argument("--limit", type=int, default=20, metavar="ROWS", help="keys shown (default 20)")
    by.add_argument("--by", metavar="NAME", help="who asks, for the record (default: your user name)")

    parser = _Parser(
        prog="hotpartition",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hotpartition {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def add(name: str, help_: str, example: str, *parents: _Parser) -> _Parser:
        return commands.add_parser(
            name,
            help=help_,
            description=f"{help_[0].upper()}{help_[1:]}.",
            epilog=f"example:\n  hotpartition {example}",
            parents=[as_json, *parents],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    hot = add(
        "hot", "partition keys by heat (mean WCU/s of the last 5 s) and age", "hot --limit 50", target, table, rows
    )
    hot.add_argument("--all", action="store_true", help="every key that was ever raised, however many")

    purpose = "one partition key's route, in journal and registry, and what made it"
    add("route", purpose, "route room-1", target, table, key)

    raise_ = add("raise", "spread a partition key before a known event", "raise room-1 --n 16", target, table, key, by)
    raise_.add_argument(
        "--n", type=_parse_count, required=True, metavar="N", dest="shard_count", help=f"shards, 2 to {MAX_SHARD_COUNT}"
    )
    raise_.add_argument(
        "--since",
        type=parse_since,
        metavar="TIME",
        dest="since_ms",
        help="for items from then on (default: 5 s ago; with --table: all items)",
    )

    close = add(
        "close",
        "let the N of a partition key that has cooled come down again, from some minutes ahead on",
        "close room-1 --dry-run",
        target,
        table,
        key,
        by,
    )
    close.add_argument("--dry-run", action="store_true", help="say what would be done")
    close.add_argument(
        "--timed",
        action="store_true",
        help="with --table: all its writers have had closing=True for ten minutes",
    )

    verify = add("verify", "registry against journal: what is equal and what differs", "verify --mend", target, table)
    verify.add_argument("--mend", action="store_true", help="repair both: each gets what only the other has")
    verify.add_argument(
        "--all", action="store_true", help="with --table: look through all stored keys for shards that no route names"
    )

    _add_repairs(add, key)

    watch = add("watch", "`hot`, renewed until you press Ctrl-C", "watch --every 5", target, table, rows)
    watch.add_argument("--every", type=_between(0.1, 3_600), default=2.0, metavar="SECONDS", help="default 2")
    watch.add_argument("--once", action="store_true", help="show it once")

    rush = add("rush", "make a conversation of a local run hot, to see it raised", "rush room-1", target, key)
    rush.add_argument(
        "--wcu",
        type=_between(MESSAGE_WCU, 20_000, " WCU/s"),
        default=2_000.0,
        metavar="PER_SECOND",
        help="load (default 2000 WCU/s)",
    )
    rush.add_argument("--seconds", type=_between(1, 600), default=20.0, help="how long (default 20)")

    check = add(
        "check",
        "try a stack from end to end: functions, messages, a raise by hand, the consumer; it writes for real",
        "check --stack hotpartition-dev",
        _add_target("--stack", "the stack on AWS"),
    )
    check.add_argument(
        "--wait",
        type=_between(0, 600),
        default=150.0,
        metavar="SECONDS",
        help="how long to wait for the consumer's first start after a deployment (default 150)",
    )

    plan = add(
        "plan",
        "N for a load, and the load of each key before and after; sends no request",
        'plan --rate 5000 --item \'{"sender": "ann", "body": "hello"}\'',
    )
    plan.add_argument("--rate", type=float, required=True, metavar="PER_SECOND", help="messages a second, at the peak")
    size = plan.add_mutually_exclusive_group(required=True)
    size.add_argument("--item-bytes", type=int, metavar="BYTES", help="size of a stored item, names included")
    size.add_argument("--item", metavar="JSON", help="a message, to be measured; @FILE reads it from a file")
    plan.add_argument(
        "--target-shard-wcu", type=float, metavar="WCU", help="the stack's setting, if it is not the default"
    )
    plan.add_argument("--max-shard-count", type=int, metavar="N", help="the stack's setting, if it is not the default")
    parser.commands = commands.choices
    return parser


def _add_target(option: str, help_: str) -> _Parser:
    target = _Parser(add_help=False)
    target.add_argument(option, metavar="NAME", help=help_)
    target.add_argument("--url", help="the control API of a local run")
    _add_credentials(target)
    return target


def _add_table(help_: str) -> _Parser:
    table = _Parser(add_help=False)
    table.add_argument("--table", metavar="NAME", help=help_)
    table.add_argument("--journal-table", metavar="NAME", help="where the table's routing items lie, if apart")
    return table


def _add_credentials(parser: _Parser) -> None:
    parser.add_argument("--region", help="AWS region, unless your AWS configuration names one")
    parser.add_argument("--profile", help="AWS profile")


def _add_repairs(add: Callable[..., _Parser], key: _Parser) -> None:
    """Add the commands that work on a table itself."""
    own = _Parser(add_help=False)
    own.add_argument("--table", metavar="NAME", required=True, help="the table")
    _add_credentials(own)
    fold = add(
        "fold",
        "move a partition key's items from its shards to its base key, where all readers run fixed(0, readable=N)",
        "fold room-1 --table readings --n 16",
        own,
        key,
    )
    fold.add_argument(
        "--n",
        type=int,
        required=True,
        metavar="N",
        dest="shard_count",
        help="shards that may hold items",
    )
    fold.add_argument("--items-per-second", type=_between(0.1, 1_000), default=50.0, metavar="ITEMS", help="default 50")
    fold.add_argument(
        "--settle",
        type=_between(0, 3_600),
        default=60.0,
        metavar="SECONDS",
        help="longer than any read or change of the table takes (default 60)",
    )

    copy_back = add(
        "copy-back",
        "put into a table, or a journal's, what only a restored copy has; overwrites nothing",
        "copy-back --table readings --from readings-restored",
        own,
    )
    copy_back.add_argument("--from", required=True, metavar="NAME", dest="source", help="the restored table")


def _parse_count(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MAX_SHARD_COUNT:
        raise argparse.ArgumentTypeError(f"should be from 2 to {MAX_SHARD_COUNT}, not {text}")
    return int(text)


def _between(low: float, high: float, unit: str = "") -> Callable[[str], float]:
    def seconds(text: str) -> float:
        number = float(text)
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"should be from {low:g} to {high:g}{unit}, not {text}")
        return number

    return seconds
