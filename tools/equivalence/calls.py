"""Calls on a table, drawn by hypothesis: right ones of every kind, and wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import reduce
from typing import Any, NamedTuple

from boto3.dynamodb.conditions import And, Attr, Key
from hypothesis import strategies as st

from hotpartition.core.capacity import ITEM_LIMIT_BYTES
from tools.equivalence.combinations import ATTRIBUTE, COLLECTIONS, PARTITION, SORT, Combination

Request = Mapping[str, Any]
DEVICES = ("dev-0", "dev-1", "dev-2", "dev-3")
WRONG_CHANGES = ("SET", "SET n =", "SET n = badvalue x", "SET n = a ADD", "SETT n")
PLACES = 14
"""Sort keys of each collection."""


class Call(NamedTuple):
    """A method of the table and its parameters."""

    method: str
    request: Request


def name_of(item: Request) -> str:
    """Write an item's key, or a key, as a text."""
    return repr((item[PARTITION], item[SORT]))


def sort_key(combination: Combination, place: int) -> Any:
    """Return one of the sort keys; their order is that of their places."""
    if combination.has_buckets:
        return f"2026-11-21T{8 + place // 3:02d}:{place % 3 * 20:02d}:00Z#{place}"
    match combination.sort_type:
        case "N":
            return Decimal(place * 7 - 30) / 4
        case "B":
            return bytes([place, 255 - place])
        case _:
            return ("é" if place > PLACES - 3 else "") + f"{place:02d}#{'x' * (place % 3)}"


class Calls:
    """The strategies for one combination: calls about an item, pages of collections, ranges of time, and scans.

    `between_engines`: boto3's table is on another engine, so no update asks for what it changed: moto leaves out
    attributes that are set to what they were.
    """

    def __init__(self, combination: Combination, *, between_engines: bool = False) -> None:
        self._combination = combination
        self._returned = ["NONE", "ALL_OLD", "ALL_NEW", *(() if between_engines else ("UPDATED_OLD", "UPDATED_NEW"))]
        places = st.integers(0, PLACES - 1)
        self._sort_keys = places.map(lambda place: sort_key(combination, place))
        self.keys = st.builds(self._key, st.sampled_from(COLLECTIONS), places)
        self.key_lists = st.lists(self.keys, min_size=1, max_size=20, unique_by=repr)
        old = _returns(["NONE", "ALL_OLD"])
        self.puts = _calls("put_item", _given("Item", self.items), _conditions, old)
        self.deletes = _calls("delete_item", _given("Key", self.keys), _conditions, old)
        self.gets = _calls("get_item", _given("Key", self.keys), projections, _given("ConsistentRead", st.booleans()))
        self.ranges = _calls("query", _condition(_all_of(_of_collection, self._between)), _index_options, _shapes)
        self.scans = _calls("scan", _filters, _some_of(Limit=_PAGE["Limit"]))

    def _key(self, collection: str, place: int) -> dict[str, Any]:
        return {PARTITION: collection, SORT: sort_key(self._combination, place)}

    def device_of(self, key: Request) -> str:
        """Return an item's device: it belongs to the item as its key does."""
        return DEVICES[sum(name_of(key).encode()) % len(DEVICES)]

    def list_first(self) -> list[dict[str, Any]]:
        """List the items that tables begin with: of one collection, at every other place."""
        keys = [self._key(COLLECTIONS[0], place) for place in range(0, PLACES, 2)]
        return [{**key, ATTRIBUTE: self.device_of(key), "colour": "red", "rank": 3} for key in keys]

    def place(self, request: Request) -> Request:
        """Add to a request what the shard of its item is chosen by, if its key does not say it."""
        is_open = "Key" in request and self._combination.hashed == "by_attribute"
        return {**request, "Hashed": self.device_of(request["Key"])} if is_open else request

    def complete(self, call: Call) -> Call:
        """Return a call as the table under test takes it: an update may create an item, so its place is added."""
        return call._replace(request=self.place(call.request)) if call.method == "update_item" else call

    @property
    def items(self) -> st.SearchStrategy[dict[str, Any]]:
        """Items: key, device, and some of the other attributes."""
        extras = _some_of(
            rank=st.integers(0, 5).map(Decimal),
            colour=st.sampled_from(["red", "green", "blue"]),
            text=st.sampled_from(["", "hello", "grüß dich", "x" * 300]),
            tags=st.sets(st.sampled_from(["a", "b", "c"]), min_size=1),
            nested=st.just({"list": [Decimal(1), "two", None, True], "map": {"size": Decimal("1.5")}}),
        )
        return st.builds(lambda key, extra: {**key, ATTRIBUTE: self.device_of(key), **extra}, self.keys, extras)

    @property
    def updates(self) -> st.SearchStrategy[Call]:
        """Change an item, or create it."""

        def build(key: Request, change: str, condition: Request, returns: Request) -> Call:
            text, more = _CHANGES[change]
            expression = f"SET #d = :d{text}"
            names = {"#d": ATTRIBUTE, "#text": "text", "#log": "log", "#rank": "rank"}
            names = {name: attribute for name, attribute in names.items() if name in expression}
            values = {":d": self.device_of(key), **more}
            request = {
                **condition,
                **returns,
                "Key": key,
                "UpdateExpression": expression,
                "ExpressionAttributeNames": {**names, **condition.get("ExpressionAttributeNames", {})},
                "ExpressionAttributeValues": {**values, **condition.get("ExpressionAttributeValues", {})},
            }
            return Call("update_item", request)

        changes = st.sampled_from(sorted(_CHANGES))
        return st.builds(build, self.keys, changes, _text_conditions, _returns(self._returned))

    @property
    def queries(self) -> st.SearchStrategy[Call]:
        """Read a page of a collection."""

        def text(collection: str, operator: str, value: Any) -> dict[str, Any]:
            return {
                "KeyConditionExpression": f"{PARTITION} = :p AND {SORT} {operator} :s",
                "ExpressionAttributeValues": {":p": collection, ":s": value},
            }

        conditions = _condition(_of_collection, _all_of(_of_collection, self._of_sort_key))
        texts = st.builds(
            text, st.sampled_from(COLLECTIONS), st.sampled_from(["<", "<=", ">", ">=", "="]), self._sort_keys
        )
        return _calls("query", st.one_of(conditions, conditions, texts), _page_options, _shapes)

    @property
    def _of_sort_key(self) -> st.SearchStrategy[Any]:
        """Draw a condition on the sort key."""
        sort = Key(SORT)
        kinds = ["eq", "lt", "lte", "gt", "gte"]
        one = st.builds(lambda kind, value: getattr(sort, kind)(value), st.sampled_from(kinds), self._sort_keys)
        begins = [] if self._combination.sort_type == "N" else [self._sort_keys.map(lambda v: sort.begins_with(v[:1]))]
        return st.one_of(one, self._between, *begins)

    @property
    def _between(self) -> st.SearchStrategy[Any]:
        """Draw a range of sort keys."""
        return st.tuples(self._sort_keys, self._sort_keys).map(lambda ends: Key(SORT).between(*sorted(ends)))

    @property
    def index_queries(self) -> st.SearchStrategy[tuple[Call, tuple[str, ...]]]:
        """Read an index; with what sorts it.

        Two have the table's partition key among their hashed ones, one has it as its range key, and one not at all.
        """
        of_colour = st.sampled_from(["red", "green", "blue"]).map(Key("colour").eq)
        ranks = st.integers(0, 5)
        from_rank, at_rank = ranks.map(Key("rank").gte), ranks.map(Key("rank").eq)
        of_kind = _all_of(_of_collection, of_colour)
        kinds = [of_kind, _all_of(of_kind, from_rank), _all_of(of_kind, at_rank, self._of_sort_key)]
        text = {"KeyConditionExpression": "colour = :c", "ExpressionAttributeValues": {":c": "red"}}
        colours = st.one_of(_condition(of_colour, _all_of(of_colour, self._of_sort_key)), st.just(text))
        return st.one_of(
            _of_index("by-rank", ("rank",), _condition(_all_of(_of_collection, from_rank)), _page_options),
            _of_index("by-sort-key", (), _condition(self._sort_keys.map(Key(SORT).eq)), _index_options),
            _of_index("by-colour", (SORT,), colours, _global_index_options),
            _of_index("by-kind", ("rank", SORT), _condition(*kinds), _index_options),
        )

    @property
    def transactions(self) -> st.SearchStrategy[list[tuple[str, Request]]]:
        """Changes of several items at once, by kind. boto3 builds no conditions of an action, so they are texts."""
        kinds = {"put_item": "Put", "update_item": "Update", "delete_item": "Delete", "check": "ConditionCheck"}
        conditions, returns = _text_conditions.filter(bool), _some_of(**_OF_FAILURE)
        checks = _calls("check", _given("Key", self.keys), conditions, returns)

        def action_of(call: Call) -> tuple[str, Request]:
            return kinds[call.method], {name: call.request[name] for name in call.request if name != "ReturnValues"}

        calls = st.one_of(self.puts, self.updates, self.deletes, checks).filter(
            lambda call: isinstance(call.request.get("ConditionExpression", ""), str)
        )
        return st.lists(
            calls.map(action_of),
            min_size=1,
            max_size=5,
            unique_by=lambda action: name_of(action[1].get("Item") or action[1]["Key"]),
        )

    def list_wrong(self) -> list[Call]:
        """List calls that DynamoDB or boto3 refuses."""
        key = self._key("room-1", 3)
        item = {**key, ATTRIBUTE: self.device_of(key)}
        other_type = 7 if self._combination.sort_type != "N" else "seven"
        condition, of_kind = Key(PARTITION).eq("room-1"), Key(PARTITION).eq("room-1") & Key("colour").eq("red")
        of_room = {"ExpressionAttributeValues": {":p": "room-1"}}
        return [
            Call("put_item", {"Item": {PARTITION: "room-1", ATTRIBUTE: "dev-1"}}),
            Call("put_item", {"Item": {**item, SORT: other_type}}),
            Call("put_item", {"Item": {**item, PARTITION: ""}}),
            Call("put_item", {"Item": {**item, "rank": "no number"}}),
            Call("put_item", {"Item": item, "ConditionExpression": "attribute_exists("}),
            Call("put_item", {"Item": item, "ConditionExpression": "n > :missing"}),
            Call("put_item", {"Item": item, "ReturnValues": "ALL_NEW"}),
            Call("put_item", {"Item": {**item, "ratio": 1.5}}),
            Call("put_item", {"Item": {**item, "text": "x" * ITEM_LIMIT_BYTES}}),
            Call("put_item", {}),
            Call("get_item", {"Key": {PARTITION: "room-1"}}),
            Call("get_item", {"Key": {**key, "more": "1"}}),
            Call("get_item", {"Key": {**key, SORT: other_type}}),
            Call("get_item", {"Key": key, "Nonsense": True}),
            *(Call("update_item", {"Key": key, "UpdateExpression": change}) for change in WRONG_CHANGES),
            Call("update_item", {"Key": key, "UpdateExpression": f"SET {SORT} = :p", **of_room}),
            Call("delete_item", {"Key": {SORT: key[SORT]}}),
            Call("delete_item", {"Key": key, "ReturnValues": "ALL_NEW"}),
            Call("query", {"KeyConditionExpression": Key(SORT).eq(key[SORT])}),
            Call("query", {"KeyConditionExpression": Key(PARTITION).gt("room-1")}),
            Call("query", {"KeyConditionExpression": condition & Key("colour").eq("red")}),
            Call("query", {"KeyConditionExpression": condition, "Limit": 0}),
            Call("query", {"KeyConditionExpression": f"{PARTITION} = :p AND BEGINS_WITH({SORT}, :p)", **of_room}),
            Call("query", {"KeyConditionExpression": condition, "IndexName": "no-such-index"}),
            Call("query", {"KeyConditionExpression": condition, "IndexName": "by-kind"}),
            Call("query", {"KeyConditionExpression": of_kind & Key(SORT).eq(key[SORT]), "IndexName": "by-kind"}),
            Call("query", {"KeyConditionExpression": condition & Key("colour").gt("a"), "IndexName": "by-kind"}),
            Call("query", {"KeyConditionExpression": of_kind, "IndexName": "by-kind", "ConsistentRead": True}),
            Call("query", {"KeyConditionExpression": Key(SORT).eq(key[SORT]), "IndexName": "by-colour"}),
            Call("query", {"KeyConditionExpression": Key("colour").gt("a"), "IndexName": "by-colour"}),
            Call("query", {"KeyConditionExpression": condition, "FilterExpression": Attr(SORT).eq(key[SORT])}),
            Call("query", {"KeyConditionExpression": condition, "ExpressionAttributeNames": {"#x": "x"}}),
            Call("query", {}),
        ]


_CHANGES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "add": (" ADD hits :one", {":one": 1}),
    "append": (", #log = list_append(if_not_exists(#log, :none), :more)", {":none": [], ":more": ["entry"]}),
    "colour": (", colour = :colour", {":colour": "green"}),
    "count": (", hits = if_not_exists(hits, :zero) + :one", {":zero": 0, ":one": 1}),
    "delete": (" DELETE tags :a", {":a": {"a"}}),
    "remove": (" REMOVE #text, colour", {}),
    "set": (", #text = :text, #rank = :rank", {":text": "changed", ":rank": 3}),
}


def _calls(method: str, *parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[Call]:
    """Build calls of a method, whose parameters come in parts."""
    return st.tuples(*parts).map(lambda drawn: Call(method, {name: part[name] for part in drawn for name in part}))


def _condition(*conditions: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw a condition on keys."""
    return _given("KeyConditionExpression", st.one_of(*conditions))


def _all_of(*conditions: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*conditions).map(lambda drawn: reduce(And, drawn))


def _of_index(
    name: str, order: tuple[str, ...], *parts: st.SearchStrategy[dict[str, Any]]
) -> st.SearchStrategy[tuple[Call, tuple[str, ...]]]:
    return st.tuples(_calls("query", st.just({"IndexName": name}), *parts), st.just(order))


def _some_of(**options: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw some of the parameters."""
    return st.fixed_dictionaries({}, optional=options)


def _given(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return values.map(lambda value: {name: value})


def _returns(values: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return _some_of(ReturnValues=st.sampled_from(values), **_OF_FAILURE)


_OF_FAILURE: Mapping[str, Any] = {"ReturnValuesOnConditionCheckFailure": st.sampled_from(["NONE", "ALL_OLD"])}
_of_collection = st.sampled_from(COLLECTIONS).map(Key(PARTITION).eq)
_text_conditions: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"ConditionExpression": f"attribute_exists({PARTITION})"},
        {"ConditionExpression": "attribute_not_exists(#s)", "ExpressionAttributeNames": {"#s": SORT}},
        {"ConditionExpression": "hits < :three", "ExpressionAttributeValues": {":three": 3}},
        {
            "ConditionExpression": "attribute_not_exists(hits) OR hits > :two",
            "ExpressionAttributeValues": {":two": 2},
        },
    ]
)
_conditions: st.SearchStrategy[dict[str, Any]] = st.one_of(
    _text_conditions,
    st.sampled_from(
        [
            {"ConditionExpression": Attr(PARTITION).not_exists()},
            {"ConditionExpression": Attr(SORT).exists() & Attr("colour").is_in(["red", "blue"])},
            {"ConditionExpression": ~Attr("text").eq("hello")},
        ]
    ),
)
projections: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {},
        {"ProjectionExpression": "colour, #t", "ExpressionAttributeNames": {"#t": "text"}},
        {"ProjectionExpression": f"{SORT}, nested.#m", "ExpressionAttributeNames": {"#m": "map"}},
        {"ProjectionExpression": "hits"},
    ]
)
_shapes: st.SearchStrategy[dict[str, Any]] = st.one_of(
    projections,
    st.sampled_from(
        [
            {"Select": "COUNT"},
            {"FilterExpression": Attr("colour").eq("red")},
            {"FilterExpression": Attr(ATTRIBUTE).eq("dev-1")},
            {"FilterExpression": Attr(ATTRIBUTE).eq("dev-1"), "Select": "COUNT"},
            {"FilterExpression": Attr("rank").between(1, 3) | Attr("text").exists(), "ProjectionExpression": SORT},
        ]
    ),
)
_filters: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"FilterExpression": Attr("colour").eq("red"), "ProjectionExpression": SORT},
        {"FilterExpression": Attr(PARTITION).exists() & Attr("rank").between(1, 4)},
        {"FilterExpression": Attr("rank").gt(1), "Select": "COUNT"},
        {"Select": "COUNT"},
    ]
)
_PAGE: Mapping[str, Any] = {"Limit": st.integers(1, 9), "ScanIndexForward": st.booleans()}
_index_options = _some_of(**_PAGE)
_global_index_options = _some_of(
    **_PAGE,
    FilterExpression=st.just(Attr("rank").between(1, 3)),
    ProjectionExpression=st.sampled_from([SORT, f"{SORT}, colour, hits"]),
)
_page_options = _some_of(**_PAGE, ConsistentRead=st.just(True))
