"""Reads as much of DynamoDB's expressions as sharding needs: key conditions, filters, projections, updates.

Everything else in an expression is passed on unchanged. Where it cannot be read here, all of it is, so that DynamoDB
says what is wrong. Source: DynamoDB Developer Guide, "Key condition expressions" and "Expression attribute names".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from typing import Any, NamedTuple

from hotpartition.core.errors import InvalidRequestError
from hotpartition.dynamodb.python_values import Attributes, with_placeholders, write_conditions

_TOKEN = re.compile(r"\s*([#:]?\w+|<=|>=|<>|[^\s\w])")
_COMPARISONS = frozenset({"=", "<", "<=", ">", ">="})


class UnreadableExpressionError(ValueError):
    """The expression cannot be read here; it is sent to DynamoDB, which judges it."""


class Comparison(NamedTuple):
    """One part of a key condition, attribute, operator (`BEGINS_WITH`, `BETWEEN` or a sign) and operands."""

    attribute: str
    operator: str
    operands: tuple[Any, ...]

    def write(self, name: str, operands: Sequence[str]) -> str:
        """Build its text, with these placeholders."""
        match self.operator:
            case "BEGINS_WITH":
                return f"begins_with({name}, {operands[0]})"
            case "BETWEEN":
                return f"{name} BETWEEN {operands[0]} AND {operands[1]}"
            case _:
                return f"{name} {self.operator} {operands[0]}"


@dataclass(frozen=True, slots=True)
class KeyCondition:
    """Which collection a query asks for, and which part of it."""

    partition: Any
    sort: Comparison | None
    others: tuple[Comparison, ...] = ()
    """Those of an index that has more keys than two."""


def split(text: str) -> list[str]:
    """Split an expression into its words, placeholders and signs."""
    return _TOKEN.findall(text)


_READ = ("KeyConditionExpression", "FilterExpression", "ProjectionExpression")
"""The expressions of a query."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a query: each text is split into words once."""

    request: Attributes
    """The query, with its conditions as text."""
    rest: Attributes
    """The query without its key condition, and without the placeholders that nothing else uses.

    What no expression uses at all stays: DynamoDB refuses it, here as there.
    """
    _words: Mapping[str, Sequence[str]]
    """Those of each of its expressions."""

    @classmethod
    def parse(cls, request: Mapping[str, Any]) -> Conditions:
        """Read a query of the owner's."""
        written = write_conditions(request)
        words = {name: split(written[name]) for name in _READ if isinstance(written.get(name), str)}
        elsewhere = {word for name in words if name != _READ[0] for word in words[name]}
        gone = set(words.get(_READ[0], ())) - elsewhere
        rest = {name: value for name, value in written.items() if name != _READ[0]}
        for parameter in ("ExpressionAttributeNames", "ExpressionAttributeValues") if gone else ():
            if parameter in rest:
                left = {word: value for word, value in rest.pop(parameter).items() if word not in gone}
                rest |= {parameter: left} if left else {}
        return cls(written, rest, words)

    def read_key(self, partition: str, sort: str, others: Sequence[str] = ()) -> KeyCondition:
        """Read the key condition.

        Args:
            partition: the partition key.
            sort: the sort key that it may name: the table's or that of an index.
            others: the other keys of an index that has more.

        Raises:
            UnreadableExpressionError: it is not a condition on these keys.
        """
        words = self._words.get("KeyConditionExpression")
        if words is None:
            raise UnreadableExpressionError("there is no key condition")
        parts = [_read_comparison(part, self._names, self._values) for part in conjuncts(words)]
        comparisons = {part.attribute: part for part in parts}
        if len(comparisons) < len(parts):
            raise UnreadableExpressionError("it has two conditions on one key")
        whole, rest = comparisons.pop(partition, None), comparisons.pop(sort, None)
        more = tuple(comparisons.pop(name) for name in others if name in comparisons)
        if comparisons or whole is None or whole.operator != "=":
            raise UnreadableExpressionError("it does not say which partition key")
        return KeyCondition(whole.operands[0], rest, more)

    def find_equality(self, attribute: str, parameter: str = "FilterExpression") -> Any:
        """Find the value that an expression demands of an attribute; None where it demands no single one.

        Only what every item must fulfil counts: parts joined by AND, not by OR, and not under NOT.
        """
        names, values = self._names, self._values
        for part in conjuncts(self._words.get(parameter, ())):
            if len(part) == 3 and part[1] == "=":  # name and value, in either order
                name, _, value = part if part[2] in values else part[::-1]
                if names.get(name, name) == attribute and value in values:
                    return values[value]
        return None

    def names_in(self, parameter: str) -> frozenset[str]:
        """List the attribute names that an expression mentions, placeholders resolved."""
        return frozenset(self._names.get(word, word) for word in self._words.get(parameter, ()))

    @property
    def _names(self) -> Mapping[str, str]:
        return self.request.get("ExpressionAttributeNames") or {}

    @property
    def _values(self) -> Mapping[str, Any]:
        return self.request.get("ExpressionAttributeValues") or {}


def _read_comparison(words: Sequence[str], names: Mapping[str, str], values: Mapping[str, Any]) -> Comparison:
    match words:
        case ["begins_with", "(", name, ",", value, ")"]:  # names of functions have one spelling, keywords any
            operator, operands = "BEGINS_WITH", [value]
        case [name, word, first, joint, last] if (word.upper(), joint.upper()) == ("BETWEEN", "AND"):
            operator, operands = "BETWEEN", [first, last]
        case [name, operator, value] if operator in _COMPARISONS:
            operands = [value]
        case _:
            raise UnreadableExpressionError(f"{' '.join(words)} is no part of a key condition")
    if not set(operands) <= values.keys():
        raise UnreadableExpressionError("a value is missing")
    return Comparison(names.get(name, name), operator, tuple([values[token] for token in operands]))


class Update(NamedTuple):
    """The change of one attribute by an `UpdateExpression`; `is_plain`: it sets it to `value`."""

    is_plain: bool
    value: Any = None
    is_removed: bool = False


_CLAUSES = frozenset({"SET", "REMOVE", "ADD", "DELETE"})


def find_update(request: Mapping[str, Any], attribute: str) -> Update | None:
    """Find the change of an attribute as a whole by an `UpdateExpression`; None: nothing."""
    names, values = request.get("ExpressionAttributeNames") or {}, request.get("ExpressionAttributeValues") or {}
    clause = ""
    words = ["", *split(request.get("UpdateExpression") or ""), "", "", ""]
    for before, word, following, operand, after in zip(*(words[start:] for start in range(5)), strict=False):
        clause = word.upper() if word.upper() in _CLAUSES else clause
        if names.get(word, word) != attribute or before == "." or following in {".", "["}:
            continue
        if clause == "SET" and following == "=":
            is_plain = operand in values and after not in {"+", "-"}
            return Update(is_plain, values.get(operand))
        if clause in {"REMOVE", "ADD", "DELETE"}:
            return Update(is_plain=False, is_removed=clause == "REMOVE")
    return None


_DEPTHS: Mapping[str, int] = {"(": 1, ")": -1}
"""How a sign changes the depth of parentheses."""


def conjuncts(words: Sequence[str]) -> list[list[str]]:
    """Split at the ANDs, in parentheses too; parts joined by OR, or denied, stay together."""
    parts: list[list[str]] = [[]]
    depth, is_range = 0, False
    for word in words:
        depth += _DEPTHS.get(word, 0)
        joint = "" if depth else word.upper()
        if joint == "OR":
            return [list(words)]
        if joint == "AND" and not is_range:
            parts.append([])
        else:
            parts[-1].append(word)
        is_range = joint == "BETWEEN" or (is_range and joint != "AND")
    found: list[list[str]] = []
    for part in parts:
        found += conjuncts(part[1:-1]) if is_enclosed(part) else [part]
    return found


def enclose(expression: str) -> str:
    """Put an expression into parentheses, unless it is: DynamoDB refuses redundant ones."""
    return expression if is_enclosed(split(expression)) else f"({expression})"


def is_enclosed(tokens: Sequence[str]) -> bool:
    """Say whether the first parenthesis closes with the last one."""
    depths = accumulate(_DEPTHS.get(word, 0) for word in tokens)
    return tokens[:1] == ["("] and [position for position, depth in enumerate(depths) if depth == 0] == [
        len(tokens) - 1
    ]


def has_texts(request: Mapping[str, Any]) -> bool:
    """Say whether each expression of a change is a text that says something; DynamoDB refuses any other best."""
    given = [request[name] for name in ("ConditionExpression", "UpdateExpression") if name in request]
    return all(isinstance(expression, str) and expression for expression in given)


def names_in(request: Mapping[str, Any], parameter: str) -> frozenset[str]:
    """List the attribute names that an expression mentions, placeholders resolved."""
    names = request.get("ExpressionAttributeNames") or {}
    return frozenset(names.get(token, token) for token in split(request.get(parameter) or ""))


def only_condition(request: Mapping[str, Any]) -> Attributes:
    """Take a request's condition out of it, with the placeholders that it uses."""
    condition = request["ConditionExpression"]
    used = set(split(condition)) if isinstance(condition, str) else set()
    parts: Attributes = {"ConditionExpression": condition}
    for parameter in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        if kept := {token: value for token, value in (request.get(parameter) or {}).items() if token in used}:
            parts[parameter] = kept
    return parts


def compares(request: Mapping[str, Any], parameter: str, attribute: str) -> bool:
    """Say whether an expression looks at an attribute's value, not only at whether the attribute exists."""
    names = request.get("ExpressionAttributeNames") or {}
    words = ["", "", *split(request.get(parameter) or "")]
    return any(
        names.get(word, word) == attribute
        and before != "."
        and not (before == "(" and function.lower() in {"attribute_exists", "attribute_not_exists"})
        for function, before, word in zip(words, words[1:], words[2:], strict=False)
    )


def project_also(request: Mapping[str, Any], wanted: Iterable[str]) -> tuple[Attributes, frozenset[str]]:
    """Add attributes to a request's projection, if it has one.

    Returns:
        The request, and the attributes that were added, which the caller does not expect in items.
    """
    expression = request.get("ProjectionExpression")
    if not isinstance(expression, str):
        return dict(request), frozenset()
    names = request.get("ExpressionAttributeNames") or {}
    tokens = [",", *split(expression)]
    asked = {names.get(token, token) for before, token in pairwise(tokens) if before == ","}
    added = sorted(set(wanted) - asked)
    placeholders = {f"#hp{position}": name for position, name in enumerate(added)}
    completed = {**request, "ProjectionExpression": ", ".join([expression, *placeholders])}
    return with_placeholders(completed, placeholders), frozenset(added)


def wants_count(request: Mapping[str, Any]) -> bool:
    """Say whether a request asks for the number of items alone; DynamoDB refuses a projection with it."""
    return request.get("Select") == "COUNT" and "ProjectionExpression" not in request


def ask_for_keys(request: Mapping[str, Any], name: str) -> Attributes:
    """Ask for `name` of each item where their number is wanted, so that what `Items` would not hold is not counted."""
    if not wants_count(request):
        return dict(request)
    projected = {**request, "ProjectionExpression": "#hpt"}
    del projected["Select"]
    return with_placeholders(projected, {"#hpt": name})


def with_key_condition(request: Mapping[str, Any], names: Sequence[str], condition: KeyCondition) -> Attributes:
    """Add a key condition to a query; `names` are those of its partition and sort key."""
    partition_name, sort_name = names
    text, used_names, used_values = "#hpp = :hpp", {"#hpp": partition_name}, {":hpp": condition.partition}
    if condition.sort is not None:
        operands = {f":hps{position}": operand for position, operand in enumerate(condition.sort.operands)}
        text += f" AND {condition.sort.write('#hps', list(operands))}"
        used_names["#hps"] = sort_name
        used_values |= operands
    for number, other in enumerate(condition.others):
        operands = {f":hpk{number}{position}": operand for position, operand in enumerate(other.operands)}
        text += f" AND {other.write(f'#hpk{number}', list(operands))}"
        used_names[f"#hpk{number}"] = other.attribute
        used_values |= operands
    return with_placeholders({**request, "KeyConditionExpression": text}, used_names, used_values)


ADD, SET, SET_ONLY_NEW, REMOVE = (
    ("ADD", "n", "{0} {1}"),
    ("SET", "i", "{0} = {1}"),
    ("SET", "k", "{0} = if_not_exists({0}, {1})"),
    ("REMOVE", "r", "{0}"),
)
"""What is added to updates: the clause, a letter in placeholders, and the form of each attribute in it."""


def add_clause(
    request: Attributes, addition: tuple[str, str, str], names: Iterable[str], values: Iterable[Any] = ()
) -> Attributes:
    """Let an update change reserved attributes as well, by their names."""
    keyword, kind, form = addition
    used_names = {f"#hp{kind}{position}": name for position, name in enumerate(names)}
    used_values = {f":hp{kind}{position}": value for position, value in enumerate(values)}
    if not used_names:
        return request
    added = ", ".join(form.format(*used) for used in zip_longest(used_names, used_values))
    expression = request.get("UpdateExpression") or ""
    clause = re.compile(rf"(?<![#:.\w]){keyword}(?!\w)", re.IGNORECASE)
    if clause.search(expression):
        expression = clause.sub(f"{keyword} {added},", expression, count=1)
    else:
        expression = f"{expression} {keyword} {added}".strip()
    return with_placeholders({**request, "UpdateExpression": expression}, used_names, used_values)


def guard(request: Attributes, condition_of_ours: str, names: Mapping[str, str]) -> Attributes:
    """Add a condition to the owner's, and ask for the item that fails it."""
    request = write_conditions(request)
    condition = request.get("ConditionExpression")
    guarded = {
        **request,
        "ConditionExpression": f"{enclose(condition)} AND {condition_of_ours}" if condition else condition_of_ours,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    return with_placeholders(guarded, names)


_EXPRESSIONS_INSTEAD = "is the form of 2012, which is not read here. Use {instead}"

_PARAMETERS_OF_2012: Mapping[str, str] = {
    "KeyConditions": _EXPRESSIONS_INSTEAD.format(instead="KeyConditionExpression"),
    "QueryFilter": _EXPRESSIONS_INSTEAD.format(instead="FilterExpression"),
    "ScanFilter": _EXPRESSIONS_INSTEAD.format(instead="FilterExpression"),
    "ConditionalOperator": _EXPRESSIONS_INSTEAD.format(instead="the expressions, with AND and OR"),
    "AttributesToGet": _EXPRESSIONS_INSTEAD.format(instead="ProjectionExpression"),
    "AttributeUpdates": _EXPRESSIONS_INSTEAD.format(instead="UpdateExpression"),
    "Expected": _EXPRESSIONS_INSTEAD.format(instead="ConditionExpression"),
}
_PLACEHOLDERS_OF_OURS = re.compile(r"[#:]hp(?:[a-z]\d*|\d+)")


def refuse_parameters(method: str, request: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be honoured.

    Raises:
        NotImplementedError: naming the parameter, the reason and what to use instead.
        InvalidRequestError: a placeholder is called as one of those that are added to requests.
    """
    for name in request:
        if why := _PARAMETERS_OF_2012.get(name):
            raise NotImplementedError(f"{method}({name}=…): {name} {why}")
    for parameter in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        for placeholder in request.get(parameter) or ():
            if _PLACEHOLDERS_OF_OURS.fullmatch(placeholder):
                raise InvalidRequestError.of(placeholder, "is reserved for ShardedTable. Call it something else")
