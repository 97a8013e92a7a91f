"""DynamoDB's expressions, each parsed once into a function of an item. Pure; values are in the API's own form.

All of them are made of terms: an operator or a function, and its operands. A key condition is one of terms that all
hold, and an update a term for each path that it changes. Not understood: list elements in paths, and the functions
`attribute_type` and `contains`.

Source: DynamoDB Developer Guide, "Expressions in DynamoDB" and "Comparison operator and function reference".
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from operator import ge, gt, le, lt
from typing import Any, TypeVar

PartT = TypeVar("PartT")
Value = Mapping[str, Any]
Item = Mapping[str, Value]
Values = Mapping[str, Value]
Names = tuple[tuple[str, str], ...]
Operand = Callable[[Item, Values], Any]

_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),+-]|[#:]?\w+(?:\.#?\w+)*)")
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_OF_KEYS = frozenset({"=", "<", "<=", ">", ">=", "BETWEEN", "begins_with"})
_SETS = frozenset({"SS", "NS", "BS"})


class ExpressionError(Exception):
    """DynamoDB would call an expression, or what it meets in an item, invalid."""


@dataclass(frozen=True, slots=True)
class Place:
    """The operand that lies at a path of the item, or comes with the request."""

    path: tuple[str, ...]
    is_given: bool = False
    """Whether it comes with the request; a name of the item may start with a colon as well."""

    def __call__(self, item: Item, values: Values) -> Value | None:
        """Return what lies there."""
        first, *steps = self.path
        if self.is_given:
            if first not in values:
                raise ExpressionError(f"{first} is not defined")
            return values[first]
        value = item.get(first)
        for name in steps:
            value = None if value is None else value.get("M", {}).get(name)
        return value


@dataclass(frozen=True, slots=True)
class Term:
    """An operator, or a function, of its operands: says yes or no, or makes a value."""

    operator: str
    operands: tuple[Operand, ...]

    def __call__(self, item: Item, values: Values) -> Any:
        """Return what comes of it for an item."""
        return _MEANINGS[self.operator](*[operand(item, values) for operand in self.operands])


# Reading.


class _Tokens:
    """The tokens of an expression, taken one after the other."""

    def __init__(self, text: str, names: Names) -> None:
        unknown = _TOKEN.sub("", text).strip()
        if unknown:
            raise ExpressionError(f"syntax error at {unknown!r}")
        self._left = _TOKEN.findall(text)[::-1]
        self._names = dict(names)

    def peek(self) -> str:
        return self._left[-1] if self._left else ""

    def next(self) -> str:
        if not self._left:
            raise ExpressionError("unexpected end of the expression")
        token: str = self._left.pop()
        return token

    def takes(self, *wanted: str) -> str:
        """Take the next token if it is one of these, keywords in either case, and return it."""
        return self.next().upper() if self.peek().upper() in wanted else ""

    def expect(self, token: str) -> None:
        if not self.takes(token):
            raise ExpressionError(f"{token!r} should come before {self.peek()!r}")

    def listed(self, read: Callable[[_Tokens], PartT]) -> tuple[PartT, ...]:
        """Read parts between commas."""
        parts = [read(self)]
        while self.takes(","):
            parts.append(read(self))
        return tuple(parts)

    def place(self) -> Place:
        """Read a path, the steps of which are joined by dots."""
        steps = self.next().split(".")
        for step in steps:
            if step.startswith("#") and step not in self._names:
                raise ExpressionError(f"{step} is not defined")
        return Place(tuple(self._names.get(step, step) for step in steps), is_given=steps[0].startswith(":"))


def _parse(read: Callable[[_Tokens], PartT], text: str, names: Names) -> PartT:
    """Read a whole expression."""
    tokens = _Tokens(text, names)
    parsed = read(tokens)
    if tokens.peek():
        raise ExpressionError(f"unexpected {tokens.peek()!r}")
    return parsed


_STRENGTHS = {"OR": 1, "AND": 2, **dict.fromkeys([*_COMPARISONS, "BETWEEN", "IN"], 4), "+": 5, "-": 5}
"""How strongly an operator between operands holds them."""
_OF_NOT = 3


def _operand(tokens: _Tokens, strength: int = 0) -> Operand:
    """Read an operand, with all operators behind it that hold it more strongly than the one before it."""
    operand = _first(tokens)
    while _STRENGTHS.get(tokens.peek().upper(), 0) > strength:
        operator = tokens.next().upper()
        if operator == "IN":
            operand = Term(operator, (operand, *_arguments(tokens)))
            continue
        right = [_operand(tokens, _STRENGTHS[operator])]
        if operator == "BETWEEN":
            tokens.expect("AND")
            right.append(_operand(tokens, _STRENGTHS[operator]))
        operand = Term(operator, (operand, *right))
    return operand


def _first(tokens: _Tokens) -> Operand:
    """Read an operand that no operator stands behind."""
    if tokens.takes("NOT"):
        return Term("NOT", (_operand(tokens, _OF_NOT),))
    if tokens.takes("("):
        inner = _operand(tokens)
        tokens.expect(")")
        return inner
    if tokens.peek() in _FUNCTIONS:
        return Term(tokens.next(), _arguments(tokens))
    return tokens.place()


def _arguments(tokens: _Tokens) -> tuple[Operand, ...]:
    tokens.expect("(")
    operands = tokens.listed(_operand)
    tokens.expect(")")
    return operands


def _changes(tokens: _Tokens) -> list[tuple[Place, Term]]:
    """Read the sections of an update."""
    changes: list[tuple[Place, Term]] = []
    while section := tokens.takes(*_SECTIONS):
        changes += tokens.listed(partial(_change, section))
    if not changes:
        raise ExpressionError("the expression is empty")
    return changes


def _change(section: str, tokens: _Tokens) -> tuple[Place, Term]:
    """Read one change: the place, and what the section makes of what lies there, and of its operand."""
    place = tokens.place()
    if section == "SET":
        tokens.expect("=")
    return place, Term(section, (place, place if section == "REMOVE" else _operand(tokens)))


# What is parsed.


@lru_cache(maxsize=4096)
def parse_condition(text: str, names: Names = ()) -> Term:
    """Parse a condition or a filter."""
    condition = _parse(_operand, text, names)
    if not isinstance(condition, Term):
        raise ExpressionError("an operand is not a condition")
    return condition


@lru_cache(maxsize=1024)
def parse_key_condition(text: str, names: Names = ()) -> Mapping[str, Term]:
    """Parse a key condition into its terms, by their attributes; the other operands come with the request."""
    terms: dict[str, Term] = {}
    left: list[Any] = [parse_condition(text, names)]
    while left:
        match left.pop():
            case Term("AND", both):
                left += both
            case Term(operator, (Place((name,)), *given)) as term if operator in _OF_KEYS and _all_given(given):
                terms[name] = term
            case _:
                raise ExpressionError("Invalid operator used in KeyConditionExpression")
    return terms


def _all_given(operands: Sequence[Any]) -> bool:
    return all(isinstance(operand, Place) and operand.is_given for operand in operands)


@lru_cache(maxsize=4096)
def parse_update(text: str, names: Names = ()) -> Sequence[tuple[Place, Term]]:
    """Parse an update into the places that it changes, and what it makes of each."""
    return tuple(_parse(_changes, text, names))


def apply_update(changes: Sequence[tuple[Place, Term]], item: Item, values: Values) -> dict[str, Value]:
    """Return the item that comes of an update. All operands see the item as it was."""
    changed = dict(item)
    for place, change in changes:
        _put(changed, place, change(item, values))
    return changed


@lru_cache(maxsize=1024)
def parse_projection(text: str, names: Names = ()) -> Sequence[Place]:
    """Parse a projection into the places that it shows."""
    return _parse(lambda tokens: tokens.listed(_Tokens.place), text, names)


def project(places: Sequence[Place], item: Item) -> dict[str, Value]:
    """Return what lies at some places of an item."""
    found: dict[str, Value] = {}
    for place in places:
        value = place(item, {})
        if value is not None:
            _put(found, place, value, makes_maps=True)
    return found


def _put(item: dict[str, Any], place: Place, value: Value | None, *, makes_maps: bool = False) -> None:
    """Set, or remove, what is at a place; the maps on the way are copied, since older versions share them."""
    *maps, last = place.path
    for name in maps:
        known = item.get(name, {"M": {}} if makes_maps else {})
        if "M" not in known:
            raise ExpressionError("The document path provided in the update expression is invalid for update")
        inner = dict(known["M"])
        item[name] = {"M": inner}
        item = inner
    if value is None:
        item.pop(last, None)
    else:
        item[last] = value


# What terms mean. An operand that the item does not have is None.


def rank(value: Value) -> Any:
    """Return what values of one type are compared by."""
    ((kind, content),) = value.items()
    if kind == "S":
        return content
    if kind == "N":
        return Decimal(content)
    if kind == "B":
        return b64decode(content) if isinstance(content, str) else bytes(content)
    return frozenset(content) if kind in _SETS else content


def _alike(test: Callable[[Any, Any], bool]) -> Callable[[Value | None, Value | None], bool]:
    """Build the test of two values, which are of one type."""

    def holds(one: Value | None, other: Value | None) -> bool:
        return one is not None and other is not None and one.keys() == other.keys() and test(rank(one), rank(other))

    return holds


def _size(value: Value | None) -> Value | None:
    if value is None:
        return None
    content = rank(value)
    return {"N": str(len(content.encode() if isinstance(content, str) else content))}


def _content(value: Value | None, kind: str) -> Any:
    """Return the content of a value, which is to be there and of one kind."""
    if value is None or kind not in value:
        raise ExpressionError("An operand in the update expression has an incorrect data type")
    return value[kind]


def _sum(one: Value | None, other: Value | None, sign: int = 1) -> Value:
    total = Decimal(_content(one, "N")) + sign * Decimal(_content(other, "N"))
    return {"N": f"{total.normalize():f}"}


def _set(_: Value | None, value: Value | None) -> Value:
    if value is None:
        raise ExpressionError("The provided expression refers to an attribute that does not exist in the item")
    return value


def _added(known: Value | None, value: Value) -> Value:
    if "N" in value:
        return _sum(known or {"N": "0"}, value)
    kind, before, members = _members(known, value)
    return {kind: sorted(before | members)}


def _taken(known: Value | None, value: Value) -> Value | None:
    kind, before, members = _members(known, value)
    return {kind: sorted(before - members)} if before - members else None


def _members(known: Value | None, value: Value) -> tuple[str, set[Any], set[Any]]:
    """Return the kind of two sets, and the members of both."""
    kind = next((kind for kind in value if kind in _SETS), "SS")
    return kind, set() if known is None else set(_content(known, kind)), set(_content(value, kind))


_is_equal, _at_most = _alike(lambda one, other: one == other), _alike(le)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "attribute_exists": lambda one: one is not None,
    "attribute_not_exists": lambda one: one is None,
    "begins_with": _alike(lambda one, other: one.startswith(other)),
    "if_not_exists": lambda known, other: other if known is None else known,
    "size": _size,
    "list_append": lambda first, second: {"L": [*_content(first, "L"), *_content(second, "L")]},
}
_SECTIONS: Mapping[str, Callable[..., Value | None]] = {
    "SET": _set,
    "REMOVE": lambda *_: None,
    "ADD": _added,
    "DELETE": _taken,
}
_MEANINGS: Mapping[str, Callable[..., Any]] = {
    **_FUNCTIONS,
    **_SECTIONS,
    "AND": lambda one, other: one and other,
    "OR": lambda one, other: one or other,
    "NOT": lambda holds: not holds,
    "=": _is_equal,
    "<>": lambda one, other: not _is_equal(one, other),
    "<": _alike(lt),
    "<=": _at_most,
    ">": _alike(gt),
    ">=": _alike(ge),
    "BETWEEN": lambda one, low, high: _at_most(low, one) and _at_most(one, high),
    "IN": lambda one, *others: any(_is_equal(one, other) for other in others),
    "+": _sum,
    "-": lambda one, other: _sum(one, other, -1),
}
