"""DynamoDB's expressions, each parsed once into a function of an item. Pure; values are in the API's own form.

Source: DynamoDB Developer Guide, "Expressions in DynamoDB" and "Comparison operator and function reference".
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
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
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_TRUE = frozenset({"attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "contains"})
"""Functions that say yes or no."""
_SETS = frozenset({"SS", "NS", "BS"})
_SECTIONS = ("SET", "REMOVE", "ADD", "DELETE")
MISTYPED = "An operand in the update expression has an incorrect data type"


class ExpressionError(Exception):
    """DynamoDB would call an expression, or what it meets in an item, invalid."""


class KeyTerm(NamedTuple):
    """One comparison of a key condition: an attribute, an operator, and the names of its values."""

    name: str
    operator: str
    values: tuple[str, ...]


class _Reader:
    """The tokens of an expression, read one after the other."""

    def __init__(self, text: str, names: Names) -> None:
        self._tokens = self._split(text)
        self._names = dict(names)
        self._at = 0

    def _split(self, text: str) -> list[str]:
        tokens, at, end = [], 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                raise ExpressionError(f"syntax error at {text[at:]!r}")
            tokens.append(found[1])
            at = found.end()
        return tokens

    def peek(self, ahead: int = 0) -> str:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise ExpressionError("unexpected end of the expression")
        self._at += 1
        return token

    def takes(self, *tokens: str) -> bool:
        """Take the next token if it is one of these; keywords in either case."""
        if self.peek() in tokens or self.peek().upper() in tokens:
            self._at += 1
            return True
        return False

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

    # Conditions.

    def condition(self) -> Condition:
        parts = [self._all_of()]
        while self.takes("OR"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else lambda item, values: any(part(item, values) for part in parts)

    def _all_of(self) -> Condition:
        parts = [self._one()]
        while self.takes("AND"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda item, values: all(part(item, values) for part in parts)

    def _one(self) -> Condition:
        if self.takes("NOT"):
            negated = self._one()
            return lambda item, values: not negated(item, values)
        if self.takes("("):
            inner = self.condition()
            self.expect(")")
            return inner
        return self._function() if self.peek() in _TRUE and self.peek(1) == "(" else self._comparison()

    def _function(self) -> Condition:
        name = self.next()
        self.expect("(")
        if name in {"attribute_exists", "attribute_not_exists"}:
            path, is_wanted = self.path(), name == "attribute_exists"
            self.expect(")")
            if len(path) == 1:
                (only,) = path
                return lambda item, _: (only in item) is is_wanted
            return lambda item, _: (_find(item, path) is not None) is is_wanted
        left = self.operand()
        self.expect(",")
        right = self.operand()
        self.expect(")")
        test = {"begins_with": _begins, "contains": _contains, "attribute_type": _is_of_type}[name]

        def holds(item: Item, values: Values) -> bool:
            one, other = left(item, values), right(item, values)
            return one is not None and other is not None and test(one, other)

        return holds

    def _comparison(self) -> Condition:
        left = self.operand()
        operator = self.next().upper()
        if operator == "BETWEEN":
            low = self.operand()
            self.expect("AND")
            high = self.operand()
            return lambda item, values: (
                _is_ordered(low(item, values), "<=", left(item, values))
                and _is_ordered(left(item, values), "<=", high(item, values))
            )
        if operator == "IN":
            options = list(self._listed())
            return lambda item, values: any(_is_equal(left(item, values), each(item, values)) for each in options)
        right = self.operand()
        if operator == "=":
            return lambda item, values: _is_equal(left(item, values), right(item, values))
        if operator == "<>":
            return lambda item, values: not _is_equal(left(item, values), right(item, values))
        if operator not in _ORDERS:
            raise ExpressionError(f"{operator!r} is not an operator")
        return lambda item, values: _is_ordered(left(item, values), operator, right(item, values))

    def _listed(self) -> Iterator[Operand]:
        self.expect("(")
        yield self.operand()
        while self.takes(","):
            yield self.operand()
        self.expect(")")

    # Operands.

    def operand(self) -> Operand:
        token = self.peek()
        if token.startswith(":"):
            self.next()
            return lambda _, values: _value(values, token)
        if self.peek(1) == "(" and token in {"size", "if_not_exists", "list_append"}:
            return self._made(self.next())
        path = self.path()
        if len(path) == 1:
            only = str(path[0])
            return lambda item, _: item.get(only)
        return lambda item, _: _find(item, path)

    def _made(self, function: str) -> Operand:
        operands = list(self._listed())
        if function == "size":
            return lambda item, values: _size(operands[0](item, values))
        first, second = operands
        if function == "if_not_exists":

            def choose(item: Item, values: Values) -> Value | None:
                known = first(item, values)
                return second(item, values) if known is None else known

            return choose
        return lambda item, values: {"L": [*_list(first(item, values)), *_list(second(item, values))]}

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


@lru_cache(maxsize=1024)
def parse_key_condition(text: str, names: Names = ()) -> tuple[KeyTerm, ...]:
    """Parse a key condition: comparisons, all of which are to hold."""
    reader = _Reader(text, names)
    terms = tuple(_key_terms(reader))
    reader.end()
    return terms


def _key_terms(reader: _Reader) -> Iterator[KeyTerm]:
    while True:
        if reader.takes("("):
            yield from _key_terms(reader)
            reader.expect(")")
        elif reader.takes("BEGINS_WITH"):
            reader.expect("(")
            name = str(reader.path()[0])
            reader.expect(",")
            yield KeyTerm(name, "begins_with", (reader.next(),))
            reader.expect(")")
        else:
            name, operator = str(reader.path()[0]), reader.next().upper()
            first = reader.next()
            if operator == "BETWEEN":
                reader.expect("AND")
                yield KeyTerm(name, operator, (first, reader.next()))
            else:
                yield KeyTerm(name, operator, (first,))
        if not reader.takes("AND"):
            return


Change = Callable[[Item, Values], dict[str, Value]]


class Update(NamedTuple):
    """An update: what it makes of an item, and which attributes it names."""

    apply: Change
    names: tuple[str, ...]


class _Action(NamedTuple):
    kind: str
    path: Path
    operand: Operand


@lru_cache(maxsize=4096)
def parse_update(text: str, names: Names = ()) -> Update:
    """Parse an update. All its operands see the item as it was."""
    reader = _Reader(text, names)
    actions: list[_Action] = []
    while reader.peek():
        kind = reader.next().upper()
        if kind not in _SECTIONS:
            raise ExpressionError(f"{kind!r} is not a section of an update")
        actions.append(_action(reader, kind))
        while reader.takes(","):
            actions.append(_action(reader, kind))
    if not actions:
        raise ExpressionError("the expression is empty")

    def apply(item: Item, values: Values) -> dict[str, Value]:
        changed = dict(item)
        for action in actions:
            _put(changed, action.path, _changed(action, item, values))
        return changed

    return Update(apply, tuple(dict.fromkeys(str(action.path[0]) for action in actions)))


def _changed(action: _Action, item: Item, values: Values) -> Value | None:
    value = action.operand(item, values)
    if action.kind == "ADD":
        return _added(_find(item, action.path), value or {})
    if action.kind == "DELETE":
        return _taken(_find(item, action.path), value or {})
    if action.kind == "SET" and value is None:
        raise ExpressionError("The provided expression refers to an attribute that does not exist in the item")
    return value


def _action(reader: _Reader, kind: str) -> _Action:
    path = reader.path()
    if kind == "SET":
        reader.expect("=")
        return _Action(kind, path, reader.sum())
    return _Action(kind, path, _nothing if kind == "REMOVE" else reader.operand())


def _nothing(item: Item, values: Values) -> None:
    """Be the value of what is removed."""
    del item, values


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


def _value(values: Values, name: str) -> Value:
    try:
        return values[name]
    except KeyError:
        raise ExpressionError(f"{name} is not defined") from None


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
    if isinstance(here, dict):
        if value is None:
            here.pop(last, None)
        else:
            here[last] = value
    elif value is None:
        del here[last : last + 1]
    else:
        here[last : last + 1] = [value]


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


def _is_ordered(one: Value | None, operator: str, other: Value | None) -> bool:
    if one is None or other is None or one.keys() != other.keys() or not one.keys() & {"S", "N", "B"}:
        return False
    return _ORDERS[operator](rank(one), rank(other))


def _begins(one: Value, other: Value) -> bool:
    if one.keys() != other.keys() or not one.keys() & {"S", "B"}:
        return False
    begins: bool = rank(one).startswith(rank(other))
    return begins


def _contains(one: Value, other: Value) -> bool:
    ((kind, content),) = one.items()
    if kind == "S":
        return "S" in other and other["S"] in content
    if kind in _SETS:
        return kind[0] in other and other[kind[0]] in content
    return kind == "L" and any(_is_equal(each, other) for each in content)


def _is_of_type(one: Value, other: Value) -> bool:
    return other.get("S") in one


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
