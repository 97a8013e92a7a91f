"""The commands of operators as JSON: parsed, carried out, and rendered.

| command | further members | response |
|---|---|---|
| `hot` | `limit` | the hottest keys, then the routes raised last |
| `routes` | `limit`, `cursor` | some routes of the journal |
| `route` | `conversation_id` | one route, in both places |
| `raise` | `conversation_id`, `shard_count`, `since_ms`, `by` | what it changed |
| `close` | `conversation_id`, `dry_run`, `timed`, `by` | from when on N is down again, or why not |
| `verify` | `mend`, `cursor` | registry against journal, a part |

A `cursor` in a response that is not null asks for the next part. What cannot be done is a response as well:
`{"error": {"kind", "message", "fields"}}`, `fields` naming the wrong ones of the command.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hotpartition.control.operations import Operations
from hotpartition.control.reconcile import RouteState, Verification
from hotpartition.core.errors import (
    HotPartitionError,
    InvalidRequestError,
    MalformedGenerationError,
    RegistryUnavailableError,
    RetryLaterError,
)
from hotpartition.core.route import EMPTY_ROUTE, decode_member
from hotpartition.core.route_history import NAME_PATTERN, NAME_RULE
from hotpartition.core.times import format_time
from hotpartition.engine.closing import Closing

MAX_ROWS = 1_000
"""Routes in one response: at most some 500 bytes each, far below Lambda's 6 MB."""
MAX_CURSOR_LENGTH = 2_000
PART_MS = 15_000
"""How long one part of a long command works, so that the operator sees progress."""
STOP_MARGIN_MS = 10_000
"""Time kept before the timeout for a part's last page of routes, should every item need a second try."""

_PUBLISHED = {"collection": "conversation_id", "rows": "routes"}
"""Fields whose published name is another one than the code's. An instant, `…_ms`, is published without its unit."""
_DIGITS = {"wcu_per_second": 1, "throttled_share": 3, "rcu_per_second": 1}


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


Cursor = Annotated[str, Field(max_length=MAX_CURSOR_LENGTH)]
Limit = Annotated[int, Field(ge=1, le=MAX_ROWS)]
Name = Annotated[str, Field(pattern=NAME_PATTERN, description=NAME_RULE)]


class HotCommand(_Command):
    """The hot keys."""

    command: Literal["hot"]
    limit: Limit = 20


class RoutesCommand(_Command):
    """Some routes."""

    command: Literal["routes"]
    limit: Limit = MAX_ROWS
    cursor: Cursor | None = None


class RouteCommand(_Command):
    """One route."""

    command: Literal["route"]
    conversation_id: str


class RaiseCommand(_Command):
    """A raise by hand; `since_ms` is Unix time, by default a few seconds ago; `by` names the operator."""

    command: Literal["raise"]
    conversation_id: str
    shard_count: int
    since_ms: int | None = None
    by: Name | None = None


class CloseCommand(_Command):
    """A close by hand; `timed` says that positions are times where this is not known; `by` names the operator."""

    command: Literal["close"]
    conversation_id: str
    dry_run: bool = False
    timed: bool = False
    by: Name | None = None


class VerifyCommand(_Command):
    """Registry against journal."""

    command: Literal["verify"]
    mend: bool = False
    cursor: Cursor | None = None


Command = HotCommand | RoutesCommand | RouteCommand | RaiseCommand | CloseCommand | VerifyCommand
_COMMANDS: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="command")])


def respond(event: object, operations: Operations, *, remaining_ms: float) -> dict[str, Any]:
    """Carry a command out, or say why not."""
    try:
        command = _COMMANDS.validate_python(event)
    except ValidationError as error:
        return _refuse_command(error)
    budget_ms = max(0.0, min(PART_MS, remaining_ms - STOP_MARGIN_MS))
    try:
        return _carry_out(command, operations, budget_ms)
    except HotPartitionError as error:
        return _explain(error)


def _carry_out(command: Command, operations: Operations, budget_ms: float) -> dict[str, Any]:
    match command:
        case HotCommand(limit=limit):
            return dict(_publish(operations.hot_keys.list_hot(limit)))
        case RoutesCommand(cursor=cursor, limit=limit):
            return dict(_publish(operations.list_routes(cursor, limit)))
        case RouteCommand(conversation_id=key):
            return _render_state(operations.reconciler.show(key))
        case RaiseCommand(conversation_id=key, shard_count=n, since_ms=since_ms, by=by):
            return dict(_publish(operations.raise_by_hand(key, n, since_ms=since_ms, by=by)))
        case CloseCommand(conversation_id=key, dry_run=dry_run, timed=timed, by=by):
            return _render_close(operations.close_by_hand(key, is_dry_run=dry_run, is_timed=timed, by=by))
        case VerifyCommand(cursor=cursor, mend=mend):
            return _render_verification(operations.reconciler.compare_all(cursor, repairs=mend, budget_ms=budget_ms))


def _refuse_command(error: ValidationError) -> dict[str, Any]:
    wrong = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        # The place begins with the tag of the command.
        place = ".".join(str(part) for part in problem["loc"][1:]) or "command"
        wrong.append({"field": place, "message": problem["msg"]})
    return _error("invalid-request", "; ".join(f"{f['field']}: {f['message']}" for f in wrong), wrong)


def _explain(error: HotPartitionError) -> dict[str, Any]:
    match error:
        case InvalidRequestError():
            wrong = [{"field": p.field, "message": p.message} for p in error.problems]
            return _error("invalid-request", str(error), wrong)
        case RetryLaterError():
            return _error("retry-later", f"{error}; repeating the command is safe")
        case RegistryUnavailableError():
            return _error("registry-unavailable", str(error))
        case MalformedGenerationError():
            return _error("malformed-route", f"the conversation's routing item cannot be read: {error}")
        case _:
            raise error


def _error(kind: str, message: str, wrong: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message, "fields": wrong or []}}


def _publish(value: Any, name: str = "") -> Any:
    """Render a dataclass by its fields' names; instants as text, and figures with the digits that mean something."""
    match value:
        case _ if is_dataclass(value):
            named = {field.name: getattr(value, field.name) for field in fields(value)}
            return {_published_name(field): _publish(each, field) for field, each in named.items()}
        case tuple() | list():
            return [_publish(each, name) for each in value]
        case int() if name.endswith("_ms"):
            return format_time(value)
        case float() if name in _DIGITS:
            return round(value, _DIGITS[name])
        case StrEnum():
            return str(value)
        case _:
            return value


def _published_name(field: str) -> str:
    return _PUBLISHED.get(field, field.removesuffix("_ms"))


def _render_state(state: RouteState) -> dict[str, Any]:
    item, registry = state.item, state.registry
    journal = (item.route if item else None) or EMPTY_ROUTE
    known_there = registry or EMPTY_ROUTE
    known = journal.union(known_there)
    raises = item.raises if item else ()

    def places(in_journal: Collection[object], in_registry: Collection[object], member: object) -> dict[str, Any]:
        is_in_registry = None if registry is None else member in in_registry
        return {"in_journal": member in in_journal, "in_registry": is_in_registry}

    return {
        "conversation_id": state.collection,
        "agreement": str(state.agreement),
        "at": format_time(state.at_ms),
        "shard_count": known.shard_count_at(state.at_ms),
        "generations": [
            {
                **_publish(generation),
                **places(journal.generations, known_there.generations, generation),
                "raises": [
                    {"decided_at": format_time(record.decided_at_ms), **_publish(record.cause)}
                    for record in raises
                    if record.generation == generation
                ],
            }
            for generation in sorted(known.generations)
        ],
        "closes": [
            {**_publish(close), **places(journal.closes, known_there.closes, close)} for close in sorted(known.closes)
        ],
        "updated_at": _publish(item.updated_at_ms if item else None, "updated_at_ms"),
        "reason": item.reason if item else None,
        "malformed_members": [member for member in item.members if not _is_readable(member)]
        if item and item.route is None
        else [],
    }


def _is_readable(member: str) -> bool:
    try:
        decode_member(member)
    except MalformedGenerationError:
        return False
    return True


def _render_close(done: Closing) -> dict[str, Any]:
    return {
        "conversation_id": done.collection,
        "step": str(done.step),
        "refusal": _publish(done.refusal),
        "at": _publish(done.close.at_ms if done.close else None, "at_ms"),
        "shard_count": done.entry.route.as_announced.shard_count_at(done.entry.date_ms),
    }


def _render_verification(part: Verification) -> dict[str, Any]:
    return {
        "counts": {str(agreement): count for agreement, count in part.counts.items()},
        "differences": [{"conversation_id": c, "agreement": str(agreement)} for c, agreement in part.differences],
        "mended": part.mended,
        "cursor": part.cursor,
    }
