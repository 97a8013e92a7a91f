"""DynamoDB's expressions, each parsed once into a function of an item. Pure; values are in the API's own form.

Source: DynamoDB Developer Guide, "Expressions in DynamoDB" and "Comparison operator and function reference".
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from itertools import pairwise
from operator import ge, gt, le, lt
from typing import Any, NamedTuple

Value = Mapping[str, Any]
Item = Mapping[str, Value]
Values = Mapping[str, Value]
Names = tuple[tuple[str, str], ...]
Path = tuple[str | int, ...]
Operand = Callable[[Item, Values], Value | None]
Condition = Callable[[Item, Values], bool]

_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),.\[\]+-]|[#:]?\w+)")
_SETS = frozenset({"SS", "NS", "BS"})
MISTYPED = "An operand in the update expression has an incorrect data type"


class ExpressionError(Exception):
    """DynamoDB would call an expression, or what it meets in an item, invalid."""


@dataclass(frozen=True, slots=True)
class Place:
    """The operand that lies at a path of the item."""

    path: Path

    def __call__(self, item: Item, values: Values) -> Value | None:
        """Return what lies there."""
        del values
        return _find(item, self.path)


@dataclass(frozen=True, slots=True)
class Given:
    """The operand that comes with the request."""

    name: str

    def __call__(self, item: Item, values: Values) -> Value:
        """Return the request's value."""
        del item
        if self.name not in values:
            raise ExpressionError(f"{self.name} is not defined")
        return values[self.name]


@dataclass(frozen=True, slots=True)
class Term:
    """A comparison, or a function that says yes or no, of its operands."""

    operator: str
    operands: tuple[Operand, ...]

    def __call__(self, item: Item, values: Values) -> bool:
        """Say whether it holds for an item."""
        return _TESTS[self.operator](*[operand(item, values) for operand in self.operands])


class _Reader:
    """The tokens of an expression, read one after the other."""

    def __init__(self, text: str, names: Names) -> None:
        self.tokens = _TOKEN.findall(text)
        self.terms: list[Term] = []
        self._names = dict(names)
        self._at = 0
        unknown = _TOKEN.sub("", text).strip()
        if unknown:
            raise ExpressionError(f"syntax error at {unknown!r}")

    def peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise ExpressionError("unexpected end of the expression")
        self._at += 1
        return token

    def takes(self, token: str) -> bool:
        """Take the next token if it is this one; keywords in either case."""
        is_next = self.peek().upper() == token
        self._at += is_next
        return is_next

    def expect(self, token: str) -> None:
        if not self.takes(token):
            raise ExpressionError(f"{token!r} should come before {self.peek()!r}")

    def end(self) -> None:
        if self.peek():
            raise ExpressionError(f"unexpected {self.peek()!r}")

    def path(self) -> Path:
        steps: list[str | int] = [self._name()]
        while True:
            if self.takes("."):
                steps.append(self._name())
            elif self.takes("["):
                steps.append(int(self.next()))
                self.expect("]")
            else:
                return tuple(steps)

    def _name(self) -> str:
        token = self.next()
        if not token.startswith("#"):
            return token
        if token not in self._names:
            raise ExpressionError(f"{token} is not defined")
        return self._names[token]

    def condition(self) -> Condition:
        return self._joined("OR", any, partial(self._joined, "AND", all, self._one))

    def _joined(self, word: str, holds: Callable[[Iterator[bool]], bool], read: Callable[[], Condition]) -> Condition:
        parts = [read()]
        while self.takes(word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else lambda item, values: holds(part(item, values) for part in parts)

    def _one(self) -> Condition:
        if self.takes("NOT"):
            negated = self._one()
            return lambda item, values: not negated(item, values)
        if self.takes("("):
            inner = self.condition()
            self.expect(")")
            return inner
        return self._term()

    def _term(self) -> Term:
        if self.peek(1) == "(" and self.peek() in _TESTS:
            term = Term(self.next(), tuple(self._listed()))
        else:
            left, operator = self.operand(), self.next().upper()
            term = Term(operator, (left, *self._right(operator)))
        if term.operator not in _TESTS:
            raise ExpressionError(f"{term.operator!r} is not an operator")
        self.terms.append(term)
        return term

    def _right(self, operator: str) -> Iterator[Operand]:
        """Read what stands on the right of an operator."""
        if operator == "IN":
            yield from self._listed()
            return
        yield self.operand()
        if operator == "BETWEEN":
            self.expect("AND")
            yield self.operand()

    def _listed(self) -> Iterator[Operand]:
        self.expect("(")
        yield self.operand()
        while self.takes(","):
            yield self.operand()
        self.expect(")")

    def operand(self) -> Operand:
        if self.peek().startswith(":"):
            return Given(self.next())
        if self.peek(1) == "(" and self.peek() in _MADE:
            make, operands = _MADE[self.next()], tuple(self._listed())
            return lambda item, values: make(*[operand(item, values) for operand in operands])
        return Place(self.path())

    def sum(self) -> Operand:
        """Read the right side of an assignment."""
        left = self.operand()
        if self.peek() not in {"+", "-"}:
            return left
        sign = 1 if self.next() == "+" else -1
        right = self.operand()
        return lambda item, values: _number(_decimal(left(item, values)) + sign * _decimal(right(item, values)))


@lru_cache(maxsize=4096)
def parse_condition(text: str, names: Names = ()) -> Condition:
    """Parse a condition or a filter."""
    reader = _Reader(text, names)
    condition = reader.condition()
    reader.end()
    return condition


KeyTerm = tuple[str, str, tuple[Given, ...]]
"""One comparison of a key condition: an attribute, an operator, and the values given for it."""


@lru_cache(maxsize=1024)
def parse_key_condition(text: str, names: Names = ()) -> tuple[KeyTerm, ...]:
    """Parse a key condition: comparisons, all of which are to hold."""
    reader = _Reader(text, names)
    reader.condition()
    reader.end()
    if not {"OR", "NOT"}.isdisjoint(token.upper() for token in reader.tokens):
        raise ExpressionError("Invalid operator used in KeyConditionExpression")
    terms: list[KeyTerm] = []
    for term in reader.terms:
        place, *given = term.operands
        values = tuple(operand for operand in given if isinstance(operand, Given))
        if not isinstance(place, Place) or len(values) < len(given):
            raise ExpressionError("Invalid condition in KeyConditionExpression")
        terms.append((str(place.path[0]), term.operator, values))
    return tuple(terms)


class Update(NamedTuple):
    """An update: what it makes of an item, and which attributes it names."""

    apply: Callable[[Item, Values], dict[str, Value]]
    names: tuple[str, ...]


class _Action(NamedTuple):
    """Makes a new value of what lies at a path, and of an operand."""

    change: Callable[[Value | None, Any], Value | None]
    path: Path
    operand: Operand


@lru_cache(maxsize=4096)
def parse_update(text: str, names: Names = ()) -> Update:
    """Parse an update. All its operands see the item as it was."""
    actions = tuple(_actions(_Reader(text, names)))
    if not actions:
        raise ExpressionError("the expression is empty")

    def apply(item: Item, values: Values) -> dict[str, Value]:
        changed = dict(item)
        for change, path, operand in actions:
            _put(changed, path, change(_find(item, path), operand(item, values)))
        return changed

    return Update(apply, tuple(dict.fromkeys(str(action.path[0]) for action in actions)))


def _actions(reader: _Reader) -> Iterator[_Action]:
    while reader.peek():
        section = reader.next().upper()
        if section not in _SECTIONS:
            raise ExpressionError(f"{section!r} is not a section of an update")
        yield _action(reader, section)
        while reader.takes(","):
            yield _action(reader, section)


def _action(reader: _Reader, section: str) -> _Action:
    path = reader.path()
    if section == "SET":
        reader.expect("=")
        return _Action(_set, path, reader.sum())
    return _Action(_SECTIONS[section], path, Place(path) if section == "REMOVE" else reader.operand())


@lru_cache(maxsize=1024)
def parse_projection(text: str, names: Names = ()) -> Callable[[Item], dict[str, Value]]:
    """Parse a projection."""
    reader = _Reader(text, names)
    paths = [reader.path()]
    while reader.takes(","):
        paths.append(reader.path())
    reader.end()

    def project(item: Item) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for path in paths:
            value = _find(item, path)
            if value is not None:
                _place(found, path, value)
        return found

    return project


def _place(found: dict[str, Value], path: Path, value: Value) -> None:
    """Put a value at its path into what is made of the parts that a projection names."""
    here: Any = found
    for step, following in pairwise(path):
        empty: Value = {"M": {}} if isinstance(following, str) else {"L": []}
        if isinstance(step, str):
            here = next(iter(here.setdefault(step, empty).values()))
        else:
            here.append(empty)
            here = next(iter(empty.values()))
    if isinstance(path[-1], str):
        here[path[-1]] = value
    else:
        here.append(value)


def rank(value: Value) -> Any:
    """Return what values of one type are ordered by: text, number or bytes."""
    ((kind, content),) = value.items()
    if kind == "S":
        return content
    if kind == "N":
        return Decimal(content)
    return b64decode(content) if isinstance(content, str) else bytes(content)


def _find(item: Item, path: Path) -> Value | None:
    value = item.get(str(path[0]))
    for step in path[1:]:
        if value is None:
            return None
        if isinstance(step, str):
            value = value.get("M", {}).get(step)
        else:
            listed = value.get("L", ())
            value = listed[step] if step < len(listed) else None
    return value


def _put(item: dict[str, Value], path: Path, value: Value | None) -> None:
    """Set, or remove, what is at a path; the containers on the way are copied, since older versions share them."""
    here: Any = item
    for step in path[:-1]:
        known = here.get(step) if isinstance(here, dict) else here[int(step)] if int(step) < len(here) else None
        if known is None or not known.keys() & {"M", "L"}:
            raise ExpressionError("The document path provided in the update expression is invalid for update")
        copied: Value = {"M": dict(known["M"])} if "M" in known else {"L": list(known["L"])}
        here[step] = copied
        here = next(iter(copied.values()))
    last: Any = path[-1]
    if isinstance(here, list):
        here[last : last + 1] = [] if value is None else [value]
    elif value is None:
        here.pop(last, None)
    else:
        here[last] = value


def _is_equal(one: Value | None, other: Value | None) -> bool:
    if one is None or other is None:
        return False
    if one == other:
        return True
    ((kind, left),) = one.items()
    if kind not in other:
        return False
    right = other[kind]
    if kind == "N":
        return Decimal(left) == Decimal(right)
    if kind in _SETS:
        return set(left) == set(right)
    if kind == "L":
        return len(left) == len(right) and all(map(_is_equal, left, right))
    if kind == "M":
        return left.keys() == right.keys() and all(_is_equal(left[name], right[name]) for name in left)
    return False


def _typed(kinds: str, test: Callable[[Any, Any], bool]) -> Callable[[Value | None, Value | None], bool]:
    """Build the test of two values of one kind."""

    def holds(one: Value | None, other: Value | None) -> bool:
        if one is None or other is None or one.keys() != other.keys() or next(iter(one)) not in kinds:
            return False
        return test(rank(one), rank(other))

    return holds


def _contains(one: Value | None, other: Value | None) -> bool:
    if one is None or other is None:
        return False
    ((kind, content),) = one.items()
    if kind == "S":
        return "S" in other and other["S"] in content
    if kind in _SETS:
        return kind[0] in other and other[kind[0]] in content
    return kind == "L" and any(_is_equal(each, other) for each in content)


_begins, _at_most = _typed("SB", lambda one, other: one.startswith(other)), _typed("SNB", le)
_TESTS: Mapping[str, Callable[..., bool]] = {
    "=": _is_equal,
    "<>": lambda one, other: not _is_equal(one, other),
    "<": _typed("SNB", lt),
    "<=": _at_most,
    ">": _typed("SNB", gt),
    ">=": _typed("SNB", ge),
    "BETWEEN": lambda one, low, high: _at_most(low, one) and _at_most(one, high),
    "IN": lambda one, *others: any(_is_equal(one, other) for other in others),
    "attribute_exists": lambda one: one is not None,
    "attribute_not_exists": lambda one: one is None,
    "attribute_type": lambda one, other: one is not None and other["S"] in one,
    "begins_with": _begins,
    "contains": _contains,
}
"""What says yes or no, of the values of its operands; None: the item has none."""


def _size(value: Value | None) -> Value | None:
    if value is None:
        return None
    ((kind, content),) = value.items()
    length = len(content.encode()) if kind == "S" else len(rank(value)) if kind == "B" else len(content)
    return {"N": str(length)}


def _list(value: Value | None) -> list[Value]:
    if value is None or "L" not in value:
        raise ExpressionError(MISTYPED)
    listed: list[Value] = value["L"]
    return listed


def _decimal(value: Value | None) -> Decimal:
    if value is None or "N" not in value:
        raise ExpressionError(MISTYPED)
    return Decimal(value["N"])


def _number(value: Decimal) -> Value:
    return {"N": f"{value.normalize():f}"}


_MADE: Mapping[str, Callable[..., Value | None]] = {
    "size": _size,
    "if_not_exists": lambda known, other: other if known is None else known,
    "list_append": lambda first, second: {"L": [*_list(first), *_list(second)]},
}
"""What makes a value of the values of its operands."""


def _set(known: Value | None, value: Value | None) -> Value:
    del known
    if value is None:
        raise ExpressionError("The provided expression refers to an attribute that does not exist in the item")
    return value


def _added(known: Value | None, value: Value) -> Value:
    if "N" in value:
        return _number((Decimal(0) if known is None else _decimal(known)) + Decimal(value["N"]))
    ((kind, members),) = value.items()
    if kind not in _SETS or (known is not None and kind not in known):
        raise ExpressionError(MISTYPED)
    return {kind: sorted({*members, *(() if known is None else known[kind])})}


def _taken(known: Value | None, value: Value) -> Value | None:
    ((kind, members),) = value.items()
    if known is None:
        return None
    if kind not in _SETS or kind not in known:
        raise ExpressionError(MISTYPED)
    left = sorted(set(known[kind]) - set(members))
    return {kind: left} if left else None


_SECTIONS: Mapping[str, Callable[[Value | None, Any], Value | None]] = {
    "SET": _set,
    "REMOVE": lambda known, value: None,  # noqa: ARG005
    "ADD": _added,
    "DELETE": _taken,
}
"""What the sections of an update make of what there is, and of their operand."""
