"""Makes a call on both tables, and says where they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from boto3.dynamodb.types import Binary
from botocore.exceptions import ClientError

from tools.equivalence.calls import Call

MOST_PAGES = 60
"""Of a walk; one that goes on longer goes in circles."""


_NOT_COMPARED = frozenset({"ResponseMetadata", "ConsumedCapacity", "ConsumedCapacityUnits", "ItemCollectionMetrics"})
"""Units are counted by another test. moto reports them, and metrics, unasked for some calls."""


class Outcome(NamedTuple):
    """What came of a call: a response, or what was raised."""

    response: Mapping[str, Any] | None
    error: tuple[Any, ...] | None
    kind: tuple[str, ...] | None = None
    """What kind of error it was: its type, and DynamoDB's code for it."""


class DifferenceError(AssertionError):
    """The two tables differ."""


def require_equal(what: object, expected: object, found: object) -> None:
    """Compare what came of a call on both tables.

    Raises:
        DifferenceError: it differs; the text shows what was called, and both.
    """
    if expected != found:
        raise DifferenceError(f"{what}\n  boto3: {expected}\n  ours:  {found}")


def perform(table: Any, call: Call) -> Outcome:
    """Make a call, and keep what its caller would see."""
    try:
        response = getattr(table, call.method)(**call.request)
    except ClientError as error:
        kept = {name: value for name, value in error.response.items() if name != "ResponseMetadata"}
        return Outcome(None, (str(error), plain(kept)), (type(error).__name__, error.response["Error"]["Code"]))
    except Exception as error:  # noqa: BLE001 - what boto3 itself refuses, a ShardedTable refuses alike
        return Outcome(None, (str(error),), (type(error).__name__,))
    kept = {name: plain(value) for name, value in response.items() if name not in _NOT_COMPARED}
    kept["status"] = response["ResponseMetadata"]["HTTPStatusCode"]
    if kept.get("Attributes") == {}:
        # Nothing to return: some say so with an empty map, some by leaving it out.
        del kept["Attributes"]
    return Outcome(kept, None)


def plain(value: Any) -> Any:
    """Turn a value into one that can be compared and sorted by its text."""
    match value:
        case {"SS": list(texts)} | {"NS": list(texts)} | {"BS": list(texts)} if len(value) == 1:
            return ["a set", *sorted(texts)]  # in an error's item, which boto3 does not convert
        case {"N": str(text)} if len(value) == 1:
            return Decimal(text).normalize()  # moto leaves zeros behind the point
        case Mapping():
            return {name: plain(value[name]) for name in sorted(value)}
        case list():
            return [plain(each) for each in value]
        case set() | frozenset():
            return ["a set", *sorted((plain(each) for each in value), key=repr)]
        case Binary():
            return bytes(value)  # type: ignore[call-overload]  # it has __bytes__, which the stubs do not know
        case Decimal():
            return value.normalize()
        case _:
            return value


@dataclass(slots=True)
class Pair:
    """An unsharded table, and the sharded one that should do the same."""

    expected: Any
    found: Any

    def same(self, what: object, act: Callable[[Any], object]) -> None:
        """Do something with both tables, and compare what comes of it."""
        require_equal(what, act(self.expected), act(self.found))

    def page(self, call: Call) -> None:
        """Compare the pages of a query, one by one, each from where boto3's table says the last one ended."""
        start: Mapping[str, Any] | None = None
        for _ in range(MOST_PAGES):
            request = call.request if start is None else {**call.request, "ExclusiveStartKey": start}
            asked = Call(call.method, request)
            expected, found = perform(self.expected, asked), perform(self.found, asked)
            self._require_same_page(asked, expected, found)
            if expected.response is None or "LastEvaluatedKey" not in expected.response:
                return
            start = expected.response["LastEvaluatedKey"]
        raise DifferenceError(f"{call}: no end after {MOST_PAGES} pages")

    def walk(self, call: Call, order_of: Callable[[Mapping[str, Any]], Any] | None = None) -> None:
        """Compare a whole walk: the same items, in the order of `order_of`, or in any if there is none."""
        expected, found = walk(self.expected, call), walk(self.found, call)
        if isinstance(expected, Outcome) or isinstance(found, Outcome):
            require_equal(call, expected, found)
            return
        what = f"walk of {call}"
        require_equal(what, sorted(map(repr, expected)), sorted(map(repr, found)))
        if order_of is not None:
            # Items that an index puts at the same place come in any order.
            require_equal(what, [*map(order_of, expected)], [*map(order_of, found)])

    def _require_same_page(self, call: Call, expected: Outcome, found: Outcome) -> None:
        """Compare pages. One may end with a cursor behind which nothing is: DynamoDB's own do now and then."""
        pages = [dict(outcome.response or {}) for outcome in (expected, found)]
        ends = [page.pop("LastEvaluatedKey", None) for page in pages]
        if ends[0] != ends[1]:
            for end, table in zip(ends, (self.expected, self.found), strict=True):
                if end and walk(table, Call(call.method, {**call.request, "ExclusiveStartKey": end})):
                    require_equal(call, expected, found)
        require_equal(call, (pages[0], *expected[1:]), (pages[1], *found[1:]))


def walk(table: Any, call: Call) -> list[Any] | Outcome:
    """Read all pages: their items, or the number of them where only that is asked for."""
    items: list[Any] = []
    request = dict(call.request)
    for _ in range(MOST_PAGES):
        outcome = perform(table, Call(call.method, request))
        if outcome.response is None:
            return outcome
        items += outcome.response.get("Items", [None] * outcome.response["Count"])
        if "LastEvaluatedKey" not in outcome.response:
            return items
        request["ExclusiveStartKey"] = outcome.response["LastEvaluatedKey"]
    raise DifferenceError(f"{call}: no end after {MOST_PAGES} pages")
