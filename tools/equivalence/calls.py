"""Calls on a table, drawn by hypothesis: right ones of every kind, and wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from boto3.dynamodb.conditions import Attr, Key
from hypothesis import strategies as st

from hotpartition.core.capacity import ITEM_LIMIT_BYTES
from tools.equivalence.combinations import ATTRIBUTE, PARTITION, SORT, Combination

COLLECTIONS = ("room-1", "room-2", "über#x")
DEVICES = ("dev-0", "dev-1", "dev-2", "dev-3")
WRONG_CHANGES = ("SET", "SET n =", "SET n = badvalue x", "SET n = a ADD", "SETT n")
PLACES = 14
"""Sort keys of each collection."""


class Call(NamedTuple):
    """A method of the table and its parameters."""

    method: str
    request: Mapping[str, Any]


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
    """The strategies for one combination.

    `between_engines`: boto3's table is on another engine, so no update asks for what it changed: moto leaves out
    attributes that are set to what they were.
    """

    def __init__(self, combination: Combination, *, between_engines: bool = False) -> None:
        self._combination = combination
        self._returned = ["NONE", "ALL_OLD", "ALL_NEW", *(() if between_engines else ("UPDATED_OLD", "UPDATED_NEW"))]
        places = st.integers(0, PLACES - 1)
        self._sort_keys = places.map(lambda place: sort_key(combination, place))
        self.keys = st.builds(self._key, st.sampled_from(COLLECTIONS), places)

    def _key(self, collection: str, place: int) -> dict[str, Any]:
        return {PARTITION: collection, SORT: sort_key(self._combination, place)}

    def device_of(self, key: Mapping[str, Any]) -> str:
        """Return an item's device: it belongs to the item as its key does."""
        return DEVICES[sum(repr((key[PARTITION], key[SORT])).encode()) % len(DEVICES)]

    @property
    def items(self) -> st.SearchStrategy[dict[str, Any]]:
        """Items: key, device, and some of the other attributes."""
        extras = st.fixed_dictionaries(
            {},
            optional={
                "rank": st.integers(0, 5).map(Decimal),
                "colour": st.sampled_from(["red", "green", "blue"]),
                "text": st.sampled_from(["", "hello", "grüß dich", "x" * 300]),
                "tags": st.sets(st.sampled_from(["a", "b", "c"]), min_size=1),
                "nested": st.just({"list": [Decimal(1), "two", None, True], "map": {"size": Decimal("1.5")}}),
            },
        )
        return st.builds(lambda key, extra: {**key, ATTRIBUTE: self.device_of(key), **extra}, self.keys, extras)

    @property
    def puts(self) -> st.SearchStrategy[Call]:
        """Create or replace an item."""
        return _calls("put_item", _given("Item", self.items), _conditions, _returns(["NONE", "ALL_OLD"]))

    @property
    def updates(self) -> st.SearchStrategy[Call]:
        """Change an item, or create it."""

        def build(
            key: Mapping[str, Any], change: str, condition: Mapping[str, Any], returns: Mapping[str, Any]
        ) -> Call:
            values: dict[str, Any] = {":d": self.device_of(key)}
            expression = f"SET #d = :d{_CHANGES[change][0]}"
            values |= _CHANGES[change][1]
            names = {"#d": ATTRIBUTE, "#text": "text", "#log": "log", "#rank": "rank"}
            names = {name: attribute for name, attribute in names.items() if name in expression}
            values |= condition.get("ExpressionAttributeValues", {})
            request = {
                "Key": key,
                "UpdateExpression": expression,
                **{name: value for name, value in condition.items() if name != "ExpressionAttributeValues"},
                "ExpressionAttributeNames": {**names, **condition.get("ExpressionAttributeNames", {})},
                "ExpressionAttributeValues": values,
                **returns,
            }
            return Call("update_item", request)

        changes = st.sampled_from(sorted(_CHANGES))
        return st.builds(build, self.keys, changes, _text_conditions, _returns(self._returned))

    @property
    def deletes(self) -> st.SearchStrategy[Call]:
        """Delete an item."""
        return _calls("delete_item", _given("Key", self.keys), _conditions, _returns(["NONE", "ALL_OLD"]))

    @property
    def gets(self) -> st.SearchStrategy[Call]:
        """Read an item."""
        return _calls("get_item", _given("Key", self.keys), projections, _given("ConsistentRead", st.booleans()))

    @property
    def queries(self) -> st.SearchStrategy[Call]:
        """Read a page of a collection."""

        def condition(collection: str, of_sort_key: Any) -> Any:
            key = Key(PARTITION).eq(collection)
            return key if of_sort_key is None else key & of_sort_key

        conditions = st.builds(condition, st.sampled_from(COLLECTIONS), st.one_of(st.none(), self._of_sort_key))
        return _calls("query", _given("KeyConditionExpression", conditions), _page_options, _shapes)

    @property
    def _of_sort_key(self) -> st.SearchStrategy[Any]:
        """Draw a condition on the sort key."""
        sort = Key(SORT)
        two = st.tuples(self._sort_keys, self._sort_keys).map(lambda pair: sort.between(*sorted(pair)))
        kinds = ["eq", "lt", "lte", "gt", "gte"]
        one = st.builds(lambda kind, value: getattr(sort, kind)(value), st.sampled_from(kinds), self._sort_keys)
        begins = [] if self._combination.sort_type == "N" else [self._sort_keys.map(lambda v: sort.begins_with(v[:1]))]
        return st.one_of(one, two, *begins)

    @property
    def text_queries(self) -> st.SearchStrategy[Call]:
        """Read a page, with the condition as text."""

        def build(collection: str, value: Any, operator: str, options: Mapping[str, Any]) -> Call:
            request = {
                "KeyConditionExpression": f"#p = :p AND {SORT} {operator} :s",
                "ExpressionAttributeNames": {"#p": PARTITION},
                "ExpressionAttributeValues": {":p": collection, ":s": value},
                **options,
            }
            return Call("query", request)

        operators = st.sampled_from(["<", "<=", ">", ">=", "="])
        return st.builds(build, st.sampled_from(COLLECTIONS), self._sort_keys, operators, _page_options)

    @property
    def index_queries(self) -> st.SearchStrategy[tuple[Call, str]]:
        """Read an index; with what sorts it. The local one has the table's partition key, the global one its own."""

        def local(collection: str, rank: int, options: Mapping[str, Any]) -> tuple[Call, str]:
            condition = Key(PARTITION).eq(collection) & Key("rank").gte(rank)
            return Call("query", {"IndexName": "by-rank", "KeyConditionExpression": condition, **options}), "rank"

        def of_colour(colour: str, of_sort_key: Any, options: Mapping[str, Any]) -> tuple[Call, str]:
            of_text = {"KeyConditionExpression": "colour = :c", "ExpressionAttributeValues": {":c": colour}}
            of_both = {"KeyConditionExpression": Key("colour").eq(colour) & of_sort_key} if of_sort_key else of_text
            return Call("query", {"IndexName": "by-colour", **of_both, **options}), SORT

        def of_kind(collection: str, colour: str, rank: int | None, options: Mapping[str, Any]) -> tuple[Call, str]:
            condition = Key(PARTITION).eq(collection) & Key("colour").eq(colour)
            condition = condition if rank is None else condition & Key("rank").gte(rank)
            options = {name: value for name, value in options.items() if name != "ConsistentRead"}
            request = {"IndexName": "by-kind", "KeyConditionExpression": condition, **options}
            return Call("query", request), "rank"

        colours, collections = st.sampled_from(["red", "green", "blue"]), st.sampled_from(COLLECTIONS)
        ranks = st.one_of(st.none(), st.integers(0, 5))
        return st.one_of(
            st.builds(local, collections, st.integers(0, 5), _page_options),
            st.builds(of_colour, colours, st.one_of(st.none(), self._of_sort_key), _global_index_options),
            st.builds(of_kind, collections, colours, ranks, _page_options),
        )

    @property
    def scans(self) -> st.SearchStrategy[Call]:
        """Read the table, all of it or a part."""
        filters: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
            [
                {},
                {"FilterExpression": Attr("colour").eq("red"), "ProjectionExpression": SORT},
                {"FilterExpression": Attr(PARTITION).exists() & Attr("rank").between(1, 4)},
                {"FilterExpression": Attr("rank").gt(1), "Select": "COUNT"},
                {"Select": "COUNT"},
            ]
        )
        limits = st.fixed_dictionaries({}, optional={"Limit": st.integers(1, 9)})
        return _calls("scan", filters, limits)

    @property
    def key_lists(self) -> st.SearchStrategy[list[dict[str, Any]]]:
        """Keys of several items, each once."""
        return st.lists(self.keys, min_size=1, max_size=20, unique_by=repr)

    @property
    def transactions(self) -> st.SearchStrategy[list[tuple[str, Call]]]:
        """Changes of several items at once: what kind of action, and the call of the table that does the same."""
        kinds = {"put_item": "Put", "update_item": "Update", "delete_item": "Delete"}
        changes = st.one_of(self.puts, self.updates, self.deletes).map(lambda call: (kinds[call.method], call))
        conditions: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
            [
                {"ConditionExpression": f"attribute_exists({PARTITION})"},
                {"ConditionExpression": Attr(SORT).not_exists()},
                {"ConditionExpression": Attr("colour").eq("red"), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"},
            ]
        )
        checks = _calls("check", _given("Key", self.keys), conditions).map(lambda call: ("ConditionCheck", call))
        actions = st.lists(st.one_of(changes, checks), min_size=1, max_size=5)
        return actions.filter(lambda drawn: len({repr(self.key_of(call)) for _, call in drawn}) == len(drawn))

    def key_of(self, call: Call) -> dict[str, Any]:
        """Return the key of the item that a call is about."""
        named = call.request.get("Item") or call.request["Key"]
        return {PARTITION: named[PARTITION], SORT: named[SORT]}

    @property
    def ranges(self) -> st.SearchStrategy[Call]:
        """Read a range of time."""

        def condition(collection: str, ends: tuple[Any, Any]) -> Any:
            return Key(PARTITION).eq(collection) & Key(SORT).between(*sorted(ends))

        ends = st.tuples(self._sort_keys, self._sort_keys)
        conditions = st.builds(condition, st.sampled_from(COLLECTIONS), ends)
        options = st.fixed_dictionaries({}, optional={"Limit": st.integers(1, 9), "ScanIndexForward": st.booleans()})
        return _calls("query", _given("KeyConditionExpression", conditions), options, _shapes)

    def list_wrong(self) -> list[Call]:
        """List calls that DynamoDB or boto3 refuses."""
        key = self._key("room-1", 3)
        item = {**key, ATTRIBUTE: self.device_of(key)}
        other_type = 7 if self._combination.sort_type != "N" else "seven"
        condition, of_room = Key(PARTITION).eq("room-1"), {"ExpressionAttributeValues": {":p": "room-1"}}
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
            Call("get_item", {"Key": key, "ProjectionExpression": "#unknown"}),
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


def _given(name: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return values.map(lambda value: {name: value})


def _returns(values: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "ReturnValues": st.sampled_from(values),
            "ReturnValuesOnConditionCheckFailure": st.sampled_from(["NONE", "ALL_OLD"]),
        },
    )


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
_global_index_options: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "Limit": st.integers(1, 9),
        "ScanIndexForward": st.booleans(),
        "FilterExpression": st.just(Attr("rank").between(1, 3)),
        "ProjectionExpression": st.sampled_from([SORT, f"{SORT}, colour, hits"]),
    },
)
_page_options: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "Limit": st.integers(1, 9),
        "ScanIndexForward": st.booleans(),
        "ConsistentRead": st.just(True),
    },
)
