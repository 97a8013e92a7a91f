"""Counts what a month takes, in the units that AWS bills and not in money: `python -m infra.costs`, for docs/costs.md.

Capacity units come from the functions' own code: `write_units` for a write, and for a page the read function's own
merge, as `hotpartition plan` runs it. What no code knows (how long a request takes on AWS, how long a line of Lambda's
own log is) is a constant here with its origin, to be replaced by what a running stack shows.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, read_units, write_units
from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.runtime.settings import WriterSettings
from hotpartition_cdk.alarms import WatchedRoute, list_alarms
from hotpartition_messages.page_costs import Load, read_pages
from hotpartition_messages.reading import MAX_LIMIT
from infra.environments import DEV, PROD, Environment

HOURS = 730
"""Hours of an average month, as AWS's own calculator takes them."""
SECONDS = HOURS * 3600

WRITE_MS = 15.0
PAGE_MS = 25.0
RAISED_PAGE_MS = 50.0
MESSAGE_MS = 15.0
"""Time that Lambda bills for a warm request: assumed, not measured; the metric `Duration` says it."""

STARTS = HOURS * 60
"""Starts of a consumer: one a minute."""
RUN_SECONDS = 61.5
"""What a consumer's run takes: until its successor, a minute later, has started, caught up and been noticed."""

METRICS_LINE_BYTES = 262
"""The line of metrics that a request writes; measured on the local run."""
LAMBDA_LINES_BYTES = 450
"""Lambda's own two lines of a request (`platform.start`, `platform.report`): assumed."""
ACCESS_LINE_BYTES = 350
"""The API's line of a request, with the ARN of an assumed role in it: estimated from its format."""

REGISTRY_CALL_BYTES = 250
"""A request for a route and its response, or a report: estimated, protocol and TLS included."""
REPORT_BYTES = 160
"""A report as it is stored in its stream."""

STORAGE_OVERHEAD_BYTES = 100
"""What DynamoDB adds to each stored item (Developer Guide, "Item sizes and formats")."""

TRACED_PER_SECOND = 1.0
TRACED_SHARE = 0.05
"""X-Ray's default rule: one request a second, and 5 % of those beyond, for each function."""

SMALLEST_ITEM_BYTES = 1

_FUNCTIONS = ("write_message", "read_messages", "consume_reports", "operate")
_ROUTE_NAMES = ("Write", "Edit", "Delete", "Add", "ReadPage", "ReadMessage", "ReadSampler")
_API_METRICS = 6
"""Metrics that an HTTP API keeps of each route: `Count`, `4xx`, `5xx`, two latencies, `DataProcessed`."""

_INSIGHT_RULES = 4
"""In the mode for throttled keys two for the table and two for its index: both have a sort key."""

_GIGABYTE = 1e9
_MILLION = 1e6
_WHOLE_FROM = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """How much is written and read, as means over a month.

    Attributes:
        name: Its name in the tables.
        writes_per_second: Messages written.
        pages_per_second: Newest pages read, eventually consistent.
        messages_per_second: Single messages read by their id.
        item_bytes: Stored size of a message, attribute names included.
        page: Messages on a page.
        hot_share: Share of the reads that are of conversations that have been raised, 0 to 1.
        shard_count: N of those.
    """

    name: str
    writes_per_second: float
    pages_per_second: float
    messages_per_second: float
    item_bytes: int = 500
    page: int = 50
    hot_share: float = 0.0
    shard_count: int = 2

    @property
    def requests_per_second(self) -> float:
        """All requests."""
        return self.writes_per_second + self.pages_per_second + self.messages_per_second

    @property
    def reports_per_second(self) -> float:
        """Reports of load that writers send."""
        z = WriterSettings.defaults().sampling.sampling_distance_wcu
        return self.writes_per_second * write_units(self.item_bytes) / z


USES = (
    Use(name="small", writes_per_second=1, pages_per_second=2, messages_per_second=0.1),
    Use(
        name="medium",
        writes_per_second=100,
        pages_per_second=200,
        messages_per_second=10,
        hot_share=0.1,
        shard_count=4,
    ),
    Use(
        name="large",
        writes_per_second=10_000,
        pages_per_second=20_000,
        messages_per_second=1_000,
        hot_share=0.3,
        shard_count=10,
    ),
)
"""The three of docs/costs.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One line of a bill: what, in which unit, and how many of them in a month."""

    what: str
    unit: str
    count: float


def list_standing(environment: Environment) -> Iterator[Quantity]:
    """List what a stack takes although nobody uses it."""
    alarms = list_alarms(environment, functions=_FUNCTIONS, routes=_routes())
    watched = sum(len(alarm.metrics) for alarm in alarms)
    memory_gb = environment.consumer.memory_mb / 1024
    yield Quantity(what="Redis nodes", unit="node hours", count=environment.registry.node_count * HOURS)
    starts = environment.consumers * STARTS
    yield Quantity(what="consumer, running without pause", unit="GB-s", count=starts * RUN_SECONDS * memory_gb)
    yield Quantity(what="consumer, starts", unit="requests", count=starts)
    yield Quantity(what="schedule", unit="invocations", count=starts)
    yield Quantity(what="alarms", unit="metrics watched", count=watched)
    yield Quantity(what="dashboard", unit="dashboards", count=1)
    yield Quantity(what="metrics of the API's routes", unit="metrics", count=_API_METRICS * len(_ROUTE_NAMES))
    yield Quantity(what="rules of Contributor Insights", unit="rules", count=_INSIGHT_RULES)


def list_used(environment: Environment, use: Use) -> Iterator[Quantity]:
    """List what use takes, on top of what stands."""
    requests, rcu = use.requests_per_second * SECONDS, _rcu(use, use.hot_share)
    yield Quantity(what="API", unit="million requests", count=requests / _MILLION)
    yield Quantity(what="Lambda", unit="million requests", count=requests / _MILLION)
    yield Quantity(what="Lambda, write", unit="GB-s", count=_writer_gb_seconds(environment, use))
    yield Quantity(what="Lambda, read", unit="GB-s", count=_reader_gb_seconds(environment, use))
    yield Quantity(what="DynamoDB, writes", unit="million WCU", count=_wcu(use) / _MILLION)
    yield Quantity(what="DynamoDB, reads", unit="million RCU", count=rcu / _MILLION)
    yield Quantity(what="… of which salting", unit="million RCU", count=(rcu - _rcu(use, 0.0)) / _MILLION)
    yield Quantity(what="DynamoDB, stored", unit="GB more each month", count=_stored_bytes(use) / _GIGABYTE)
    yield Quantity(what="logs, taken in", unit="GB", count=_log_bytes(use) / _GIGABYTE)
    yield Quantity(what="traces", unit="million traces", count=_traces(use) / _MILLION)
    yield Quantity(what="responses, to the internet", unit="GB", count=_answer_bytes(use) / _GIGABYTE)
    yield Quantity(what="reports, into the durable log", unit="GB", count=_report_bytes(use) / _GIGABYTE)
    yield Quantity(what="calls of Redis, at most", unit="GB", count=_registry_bytes(use) / _GIGABYTE)


def render_standing() -> str:
    """Write the table of what stands, for `dev` and `prod`."""
    columns = [list(list_standing(environment)) for environment in (DEV, PROD)]
    return _render(["standing", "unit", DEV.name, PROD.name], columns)


def render_used(uses: Sequence[Use]) -> str:
    """Write the table of what is used in `prod`."""
    return _render(["used", "unit", *(use.name for use in uses)], [list(list_used(PROD, use)) for use in uses])


def render_amplification(*, item_bytes: int, page: int, shard_counts: Sequence[int]) -> str:
    """Write the table of what a newest page costs at some N, from the plan's own count."""
    load = Load(messages_per_second=1, item_bytes=item_bytes, page=page)
    alone = read_pages(0, load)
    rows = []
    for count in (0, *shard_counts):
        cost = read_pages(count, load)
        figures = (cost.queries, cost.items_read, cost.rcu_eventual, cost.rcu_strong)
        times = f"{cost.rcu_eventual / alone.rcu_eventual:.2f}"
        rows.append([str(count) if count else "none", *(f"{figure:.1f}" for figure in figures), times])
    return render_table(["N", "queries", "items read", "RCU, eventual", "RCU, strong", "times"], rows, labels=0)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str]) -> None:
    """Print the tables; with options, that of a use of one's own."""
    parser = _Parser(prog="python -m infra.costs", description=main.__doc__)
    own = parser.add_argument_group("a use of your own")
    rate, share = _number(float, 0, math.inf), _number(float, 0, 1)
    size, page, count = _number(int, 1, ITEM_LIMIT_BYTES), _number(int, 1, MAX_LIMIT), _number(int, 2, MAX_SHARD_COUNT)
    own.add_argument("--writes", type=rate, metavar="PER_SECOND", help="messages written")
    own.add_argument("--pages", type=rate, metavar="PER_SECOND", help="newest pages read")
    own.add_argument("--messages", type=rate, metavar="PER_SECOND", help="single messages read")
    own.add_argument("--item-bytes", type=size, metavar="BYTES", help="stored size (default 500)")
    own.add_argument("--page", type=page, metavar="MESSAGES", help="messages on a page (default 50)")
    own.add_argument("--hot-share", type=share, metavar="SHARE", help="reads of raised conversations, 0 to 1")
    own.add_argument("--shard-count", type=count, metavar="N", help="their N (default 2)")
    options = parser.parse_args(arguments)
    uses = (_read_use(options),) if any(value is not None for value in vars(options).values()) else USES
    amplification = render_amplification(
        item_bytes=uses[0].item_bytes, page=uses[0].page, shard_counts=(2, 4, 10, 32, 128)
    )
    print(render_standing(), render_used(uses), amplification, sep="\n\n")  # noqa: T201


def _number(kind: type[int | float], least: float, most: float) -> Callable[[str], float]:
    """Make a reader of numbers within bounds."""
    allowed = f"should be a {'whole ' if kind is int else ''}number, " + (
        f"{least:g} or more" if most == math.inf else f"from {least:,g} to {most:,}"
    )

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or math.isinf(value):
            raise argparse.ArgumentTypeError(f"{allowed}, not {text}")
        return value

    return read


def _read_use(options: argparse.Namespace) -> Use:
    given = {
        "writes_per_second": options.writes or 0.0,
        "pages_per_second": options.pages or 0.0,
        "messages_per_second": options.messages or 0.0,
        "item_bytes": options.item_bytes,
        "page": options.page,
        "hot_share": options.hot_share,
        "shard_count": options.shard_count,
    }
    return Use(name="yours", **{name: value for name, value in given.items() if value is not None})


def _routes() -> list[WatchedRoute]:
    """Name the API's routes; only how many they are matters here."""
    return [WatchedRoute(name=name, method="", path="", slow_ms=1) for name in _ROUTE_NAMES]


def _writer_gb_seconds(environment: Environment, use: Use) -> float:
    return use.writes_per_second * SECONDS * WRITE_MS / 1000 * environment.writer.memory_mb / 1024


def _reader_gb_seconds(environment: Environment, use: Use) -> float:
    page_ms = (1 - use.hot_share) * PAGE_MS + use.hot_share * RAISED_PAGE_MS
    busy_ms = use.pages_per_second * page_ms + use.messages_per_second * MESSAGE_MS
    return busy_ms / 1000 * SECONDS * environment.reader.memory_mb / 1024


def _wcu(use: Use) -> float:
    """Salting adds nothing: an item on a shard is charged like one on the base key."""
    return use.writes_per_second * write_units(use.item_bytes) * SECONDS


def _rcu(use: Use, hot_share: float) -> float:
    load = Load(messages_per_second=1, item_bytes=use.item_bytes, page=use.page)
    alone = read_pages(0, load).rcu_eventual
    raised = read_pages(use.shard_count, load).rcu_eventual if hot_share else alone
    page = (1 - hot_share) * alone + hot_share * raised
    # The base key, the routing item, and once raised one shard: each a key of its own, there or not.
    key = read_units(max(use.item_bytes, SMALLEST_ITEM_BYTES), is_strong=False)
    message = 2 * key + hot_share * key
    return (use.pages_per_second * page + use.messages_per_second * message) * SECONDS


def _stored_bytes(use: Use) -> float:
    return use.writes_per_second * SECONDS * (use.item_bytes + STORAGE_OVERHEAD_BYTES)


def _log_bytes(use: Use) -> float:
    return use.requests_per_second * SECONDS * (METRICS_LINE_BYTES + LAMBDA_LINES_BYTES + ACCESS_LINE_BYTES)


def _traces(use: Use) -> float:
    reads = use.pages_per_second + use.messages_per_second
    return (_traced(use.writes_per_second) + _traced(reads)) * SECONDS


def _traced(rate: float) -> float:
    """Return how many of so many requests a second are traced."""
    return min(rate, TRACED_PER_SECOND) + TRACED_SHARE * max(rate - TRACED_PER_SECOND, 0.0)


def _answer_bytes(use: Use) -> float:
    """A message in a response takes about what it takes in storage."""
    return (use.pages_per_second * use.page + use.messages_per_second) * use.item_bytes * SECONDS


def _report_bytes(use: Use) -> float:
    return use.reports_per_second * REPORT_BYTES * SECONDS


def _registry_bytes(use: Use) -> float:
    """As if no environment kept a route: each request asks for one."""
    return (use.requests_per_second + use.reports_per_second) * REGISTRY_CALL_BYTES * SECONDS


def _render(head: Sequence[str], columns: Sequence[Sequence[Quantity]]) -> str:
    rows = (
        [quantities[0].what, quantities[0].unit, *(_figure(quantity.count) for quantity in quantities)]
        for quantities in zip(*columns, strict=True)
    )
    return render_table(head, rows, labels=2)


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, labels: int) -> str:
    """Write a table: so many columns of text, and then numbers."""
    sides = ["---"] * labels + ["---:"] * (len(head) - labels)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, sides, *rows))


_FORMS: tuple[tuple[float, Callable[[float], str]], ...] = (
    (_WHOLE_FROM, "{:,.0f}".format),
    (1.0, "{:.1f}".format),
    (0.0, "{:.2g}".format),
)


def _figure(count: float) -> str:
    """Write a number as exactly as anybody needs it."""
    if count == int(count):
        return f"{count:,.0f}"
    return next(form(count) for least, form in _FORMS if count >= least)


if __name__ == "__main__":
    main(sys.argv[1:])
