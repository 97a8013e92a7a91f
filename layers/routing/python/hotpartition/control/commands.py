"""The commands of operators as JSON: parsed, carried out, and rendered.

| command | further members | response |
|---|---|---|
| `hot` | `limit` | the hottest conversations, then the routes raised last |
| `routes` | `limit`, `cursor` | some routes of the journal |
| `route` | `conversation_id` | one route, in both places |
| `raise` | `conversation_id`, `shard_count`, `since_ms`, `by` | what it changed |
| `close` | `conversation_id`, `dry_run`, `timed`, `by` | from when on N is down again, or why not |
| `verify` | `mend`, `cursor` | registry against journal, a part |

A `cursor` in a response that is not null asks for the next part. What cannot be done is a response as well:
`{"error": {"kind", "message", "fields"}}`, `fields` naming the wrong ones of the command.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from hotpartition.control.hot_keys import HotList, RouteRow
from hotpartition.control.operations import Operations, RaiseByHand, RoutePage
from hotpartition.control.reconcile import Reconciler, RouteState, Verification
from hotpartition.core.errors import (
    HotPartitionError,
    InvalidRequestError,
    MalformedGenerationError,
    RegistryUnavailableError,
    RetryLaterError,
)
from hotpartition.core.route import EMPTY_ROUTE, decode_member
from hotpartition.core.route_history import NAME_PATTERN, NAME_RULE, Raise
from hotpartition.core.timestamps import format_time
from hotpartition.engine.closing import Closing

MAX_ROWS = 1_000
"""Routes in one response: at most some 500 bytes each, far below Lambda's 6 MB."""
MAX_CURSOR_LENGTH = 2_000
PART_MS = 15_000
"""How long one part of a long command works, so that the operator sees progress."""
STOP_MARGIN_MS = 10_000
"""Time kept before the timeout for a part's last page of routes, should every item need a second try."""


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


Cursor = Annotated[str, Field(max_length=MAX_CURSOR_LENGTH)]
Limit = Annotated[int, Field(ge=1, le=MAX_ROWS)]


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
    by: Annotated[str, Field(pattern=NAME_PATTERN, description=NAME_RULE)] | None = None


class CloseCommand(_Command):
    """A close by hand; `timed` says that positions are times where this is not known; `by` names the operator."""

    command: Literal["close"]
    conversation_id: str
    dry_run: bool = False
    timed: bool = False
    by: Annotated[str, Field(pattern=NAME_PATTERN, description=NAME_RULE)] | None = None


class VerifyCommand(_Command):
    """Registry against journal."""

    command: Literal["verify"]
    mend: bool = False
    cursor: Cursor | None = None


Command = HotCommand | RoutesCommand | RouteCommand | RaiseCommand | CloseCommand | VerifyCommand
_COMMANDS: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="command")])


def respond(event: object, operations: Operations, check: Reconciler, *, remaining_ms: float) -> dict[str, Any]:
    """Carry a command out, or say why not."""
    try:
        command = _COMMANDS.validate_python(event)
    except ValidationError as error:
        return _refuse_command(error)
    budget_ms = max(0.0, min(PART_MS, remaining_ms - STOP_MARGIN_MS))
    try:
        return _carry_out(command, operations, check, budget_ms)
    except HotPartitionError as error:
        return _explain(error)


def _carry_out(command: Command, operations: Operations, check: Reconciler, budget_ms: float) -> dict[str, Any]:
    match command:
        case HotCommand():
            return _render_hot(operations.list_hot(command.limit))
        case RoutesCommand():
            return _render_page(operations.list_routes(command.cursor, command.limit))
        case RouteCommand():
            return _render_state(operations.show_route(command.conversation_id))
        case RaiseCommand():
            return _render_raise(
                operations.raise_by_hand(
                    command.conversation_id, command.shard_count, since_ms=command.since_ms, by=command.by
                )
            )
        case CloseCommand():
            return _render_close(
                operations.close_by_hand(
                    command.conversation_id, is_dry_run=command.dry_run, is_timed=command.timed, by=command.by
                )
            )
        case VerifyCommand():
            return _render_verification(check.compare_all(command.cursor, repairs=command.mend, budget_ms=budget_ms))
        case _:
            assert_never(command)


def _refuse_command(error: ValidationError) -> dict[str, Any]:
    fields = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        # The place begins with the tag of the command.
        place = ".".join(str(part) for part in problem["loc"][1:]) or "command"
        fields.append({"field": place, "message": problem["msg"]})
    return _error("invalid-request", "; ".join(f"{f['field']}: {f['message']}" for f in fields), fields)


def _explain(error: HotPartitionError) -> dict[str, Any]:
    match error:
        case InvalidRequestError():
            return _error(
                "invalid-request", str(error), [{"field": p.field, "message": p.message} for p in error.problems]
            )
        case RetryLaterError():
            return _error("retry-later", f"{error}; repeating the command is safe")
        case RegistryUnavailableError():
            return _error("registry-unavailable", str(error))
        case MalformedGenerationError():
            return _error("malformed-route", f"the conversation's routing item cannot be read: {error}")
        case _:
            raise error


def _error(kind: str, message: str, fields: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message, "fields": fields or []}}


def _render_hot(hot: HotList) -> dict[str, Any]:
    return {
        "at": format_time(hot.at_ms),
        "routes": [_render_row(row) for row in hot.rows],
        "active": hot.active,
        "is_complete": hot.is_complete,
        "streams": hot.streams,
        "streams_unavailable": hot.streams_unavailable,
        "consumer_started_at": _time(hot.consumer_started_ms),
        "consumers_started_at": [_time(started_ms) for started_ms in hot.consumers_started_ms],
    }


def _render_page(page: RoutePage) -> dict[str, Any]:
    return {"routes": [_render_row(row) for row in page.rows], "cursor": page.cursor}


def _render_row(row: RouteRow) -> dict[str, Any]:
    return {
        "conversation_id": row.collection,
        "wcu_per_second": _rounded(row.wcu_per_second, 1),
        "throttled_share": _rounded(row.throttled_share, 3),
        "shard_count": row.shard_count,
        "capacity_wcu_per_second": row.capacity_wcu_per_second,
        "newest_since": _time(row.newest_since_ms),
        "closed_at": _time(row.closed_at_ms),
        "is_malformed": row.is_malformed,
        "rcu_per_second": _rounded(row.rcu_per_second, 1),
        "pages_per_second": _rounded(row.pages_per_second, 1),
        "page_copies": row.page_copies,
    }


def _render_state(state: RouteState) -> dict[str, Any]:
    item = state.item
    journal = (item.route if item else None) or EMPTY_ROUTE
    registry = state.registry or EMPTY_ROUTE
    known = journal.union(registry)
    return {
        "conversation_id": state.collection,
        "agreement": str(state.agreement),
        "at": format_time(state.at_ms),
        "shard_count": known.shard_count_at(state.at_ms),
        "generations": [
            {
                "shard_count": generation.shard_count,
                "since": format_time(generation.since_ms),
                "in_journal": generation in journal.generations,
                "in_registry": None if state.registry is None else generation in registry.generations,
                "raises": [_render_decision(r) for r in (item.raises if item else ()) if r.generation == generation],
            }
            for generation in sorted(known.generations)
        ],
        "closes": [
            {
                "at": format_time(close.at_ms),
                "is_confirmed": close.is_confirmed,
                "in_journal": close in journal.closes,
                "in_registry": None if state.registry is None else close in registry.closes,
            }
            for close in sorted(known.closes)
        ],
        "updated_at": _time(item.updated_at_ms) if item else None,
        "reason": item.reason if item else None,
        "malformed_members": _unreadable(item.members) if item and item.route is None else [],
    }


def _render_decision(record: Raise) -> dict[str, Any]:
    return {
        "decided_at": format_time(record.decided_at_ms),
        "reason": record.cause.reason,
        "rate_wcu_per_second": record.cause.rate_wcu_per_second,
        "by": record.cause.by,
    }


def _unreadable(members: tuple[str, ...]) -> list[str]:
    return [member for member in members if not _is_readable(member)]


def _is_readable(member: str) -> bool:
    try:
        decode_member(member)
    except MalformedGenerationError:
        return False
    return True


def _render_raise(done: RaiseByHand) -> dict[str, Any]:
    return {
        "conversation_id": done.collection,
        "changed": done.is_changed,
        "shard_count": max(done.generation.shard_count, done.shard_count_before),
        "shard_count_before": done.shard_count_before,
        "since": format_time(done.generation.since_ms),
        "in_registry": done.is_in_registry,
        "generations": [
            {"shard_count": g.shard_count, "since": format_time(g.since_ms)} for g in sorted(done.route.generations)
        ],
        "warnings": list(done.warnings),
    }


def _render_close(done: Closing) -> dict[str, Any]:
    return {
        "conversation_id": done.collection,
        "step": str(done.step),
        "refusal": done.refusal and str(done.refusal),
        "at": _time(done.close.at_ms if done.close else None),
        "shard_count": done.entry.route.as_announced.shard_count_at(done.entry.date_ms),
    }


def _render_verification(part: Verification) -> dict[str, Any]:
    return {
        "counts": {str(agreement): count for agreement, count in part.counts.items()},
        "differences": [{"conversation_id": c, "agreement": str(agreement)} for c, agreement in part.differences],
        "mended": part.mended,
        "cursor": part.cursor,
    }


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time(time_ms)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
