"""The command line: options, help and what is checked before anybody is called."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from hotpartition_cli.errors import UsageError

FUNCTION_VARIABLE = "HOTPARTITION_FUNCTION"
URL_VARIABLE = "HOTPARTITION_URL"

_EPOCH = datetime.fromtimestamp(0, UTC)

_DESCRIPTION = "Look after a hotpartition stack: what is hot, where its routes are, and what a known event needs."
_EPILOG = f"""\
where to ask:
  --function NAME, or {FUNCTION_VARIABLE}: the stack's output OperateFunctionName, through AWS Lambda
  --url URL, or {URL_VARIABLE}: the control API of a local run, as `make up` names it

exit status:
  0  fine
  1  something to mend: routes differ or cannot be read, a load is not covered
  2  the command is wrong
  3  it could not be done: nobody answered, no credentials, throttled, Redis or DynamoDB away
  130  interrupted

examples:
  hotpartition hot --url http://127.0.0.1:8001
  hotpartition route room-1
  hotpartition plan --rate 5000 --item-bytes 700 --page 50
  hotpartition raise room-1 --n 10
  hotpartition verify --mend
  hotpartition watch
  hotpartition rush room-1
  hotpartition COMMAND --help says more of each; docs/command-line.md describes what --json prints
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as our own error, in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} ({self.prog} --help)")


def parse_arguments(arguments: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """Read a command and its options.

    Returns:
        What was given; `function` and `url`, of which a command that asks somebody has exactly one.

    Raises:
        UsageError: saying what is wrong.
    """
    options = _build_parser().parse_args(arguments)
    if options.command != "plan":
        options.function, options.url = _choose_target(options, environ)
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


def _choose_target(options: argparse.Namespace, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Choose whom to ask: an option before the environment."""
    if options.function and options.url:
        raise UsageError("--function and --url name two places; give one of them")
    if options.function or options.url:
        return options.function, options.url
    function, url = environ.get(FUNCTION_VARIABLE) or None, environ.get(URL_VARIABLE) or None
    if function and url:
        raise UsageError(f"{FUNCTION_VARIABLE} and {URL_VARIABLE} name two places; give --function or --url")
    if not (function or url):
        raise UsageError(
            f"where is the stack? Give --function (the output OperateFunctionName) or --url (of a local run),"
            f" or set {FUNCTION_VARIABLE} or {URL_VARIABLE}"
        )
    return function, url


def _build_parser() -> _Parser:
    as_json = _Parser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON, for programs")
    target = _Parser(add_help=False)
    target.add_argument("--function", metavar="NAME", help="the operations function on AWS")
    target.add_argument("--url", help="the control API of a local run")
    target.add_argument("--region", help="AWS region, unless your AWS configuration names one")
    target.add_argument("--profile", help="AWS profile")

    parser = _Parser(
        prog="hotpartition",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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

    hot = add("hot", "conversations by heat (mean WCU/s of the last 5 s) and age", "hot --limit 50", target)
    _add_limit(hot)
    hot.add_argument("--all", action="store_true", help="every conversation that was ever raised, however many")

    route = add("route", "one conversation's route, in journal and registry, and what made it", "route room-1", target)
    route.add_argument("conversation_id", metavar="ID")

    raise_ = add(
        "raise",
        "spread a conversation before a known event; N only goes up, and stays for ever",
        "raise room-1 --n 10",
        target,
    )
    raise_.add_argument("conversation_id", metavar="ID")
    raise_.add_argument("--n", type=int, required=True, metavar="N", dest="shard_count", help="shards, 2 to 1024")
    raise_.add_argument(
        "--since",
        type=parse_since,
        metavar="TIME",
        dest="since_ms",
        help="for messages from then on (default: 5 s ago)",
    )
    raise_.add_argument("--by", metavar="NAME", help="who asks, for the record (default: your user name)")

    verify = add("verify", "registry against journal: what is equal and what differs", "verify --mend", target)
    verify.add_argument("--mend", action="store_true", help="let each learn what only the other knows")

    add("rebuild-registry", "put every route of the journal into the registry", "rebuild-registry", target)

    watch = add("watch", "`hot`, renewed until you press Ctrl-C", "watch --every 5", target)
    _add_limit(watch)
    watch.add_argument("--every", type=_seconds, default=2.0, metavar="SECONDS", help="default 2")
    watch.add_argument("--once", action="store_true", help="show it once")

    rush = add("rush", "make a conversation of a local run hot, to see it raised", "rush room-1", target)
    rush.add_argument("conversation_id", metavar="ID")
    rush.add_argument("--wcu", type=float, default=2_000.0, metavar="PER_SECOND", help="load (default 2000 WCU/s)")
    rush.add_argument("--seconds", type=float, default=20.0, help="how long (default 20)")

    plan = add(
        "plan",
        "N for a load, and what a page costs before and after; asks nobody",
        'plan --rate 5000 --item \'{"sender": "ann", "body": "hello"}\' --page 50',
    )
    plan.add_argument("--rate", type=float, required=True, metavar="PER_SECOND", help="messages a second, at the peak")
    size = plan.add_mutually_exclusive_group(required=True)
    size.add_argument("--item-bytes", type=int, metavar="BYTES", help="size of a stored item, names included")
    size.add_argument("--item", metavar="JSON", help="a message, to be measured; @FILE reads it from a file")
    plan.add_argument("--page", type=int, default=50, metavar="MESSAGES", help="messages on a page (default 50)")
    plan.add_argument(
        "--target-shard-wcu", type=float, metavar="WCU", help="the stack's setting, if it is not the default"
    )
    plan.add_argument("--max-shard-count", type=int, metavar="N", help="the stack's setting, if it is not the default")
    return parser


def _add_limit(parser: _Parser) -> None:
    parser.add_argument("--limit", type=int, default=20, metavar="ROWS", help="conversations shown (default 20)")


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.1 <= number <= 3_600:
        raise argparse.ArgumentTypeError(f"should be from 0.1 to 3600, not {text}")
    return number
