"""One dated example in money for docs/costs.md: list prices of one region, on the quantities of `costs.py`.

An example and no quote: prices differ between regions and contracts, and change. Put yours in their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.costs import Quantity, Use, list_standing, list_used, render_table
from infra.environments import DEV, PROD, Environment

DATE = "22 November 2026"
REGION = "us-east-1"
"""US dollars, without free tiers, discounts and taxes. As known on that day, not compared with AWS's price list."""

NODE_HOUR: Mapping[str, float] = {"cache.t4g.micro": 0.0128, "cache.m7g.large": 0.1264}
"""ElastiCache for Valkey, on demand."""

_GB_SECOND = 13.3334e-6
_LAMBDA_REQUESTS = 0.20
_METRIC = 0.30

STANDING: Mapping[str, float] = {
    "consumer, running without pause": _GB_SECOND,
    "consumer, starts": _LAMBDA_REQUESTS / 1e6,
    "schedule": 1.00 / 1e6,
    "alarms": 0.10,
    "dashboard": 3.00,
    "metrics of the API's routes": _METRIC,
    "rules of Contributor Insights": 0.50,
}
"""For each unit of what stands beside the nodes."""

USED: Mapping[str, float] = {
    "API": 1.00,
    "Lambda": _LAMBDA_REQUESTS,
    "Lambda, write": _GB_SECOND,
    "Lambda, read": _GB_SECOND,
    "DynamoDB, writes": 0.625,
    "DynamoDB, reads": 0.125,
    # The table's own, and that of its continuous backups; of the first month.
    "DynamoDB, stored": 0.25 + 0.20,
    "logs, taken in": 0.50,
    "traces": 5.00,
    "responses, to the internet": 0.09,
    # Half of the calls cross zones, and both ends pay.
    "calls of Redis, at most": 0.5 * 2 * 0.01,
}
"""For each unit of what is used."""

NOT_PRICED = frozenset({"… of which salting", "reports, into the durable log"})
"""The first is in the line above it; no price of the second was to be found."""


def price_standing(environment: Environment) -> Iterator[tuple[str, float]]:
    """Price what an environment takes although nobody uses it, line by line."""
    prices = {**STANDING, "Redis nodes": NODE_HOUR[environment.registry.node_type]}
    yield from _price(list_standing(environment), prices)


def price_used(use: Use) -> Iterator[tuple[str, float]]:
    """Price what use takes in `prod`, line by line."""
    yield from _price(list_used(PROD, use), USED)


def render_example(uses: Sequence[Use]) -> str:
    """Write both tables."""
    standing = _render(["standing, $ a month", DEV.name, PROD.name], [list(price_standing(e)) for e in (DEV, PROD)])
    used = _render(["used, $ a month", *(use.name for use in uses)], [list(price_used(use)) for use in uses])
    return f"{standing}\n\n{used}"


def _price(quantities: Iterator[Quantity], prices: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for quantity in quantities:
        if quantity.what not in NOT_PRICED:
            yield quantity.what, quantity.count * prices[quantity.what]


def _render(head: Sequence[str], columns: Sequence[Sequence[tuple[str, float]]]) -> str:
    rows = [[cells[0][0], *(f"{cost:,.2f}" for _, cost in cells)] for cells in zip(*columns, strict=True)]
    sums = (sum(cost for _, cost in column) for column in columns)
    return render_table(head, [*rows, ["**all of it**", *(f"**{cost:,.0f}**" for cost in sums)]], labels=1)
