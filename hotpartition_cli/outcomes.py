"""What commands ask the operations function, and the exit status of its response. Prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hotpartition_cli.errors import Status

MAX_ROWS = 1_000
"""Routes, or keys with a load, that one response holds."""
MESSAGE_WCU = 25
"""Write units of one message of a rush: a machine that cannot send 1,000 a second still offers 1,000 WCU/s."""
CONSUMER_SECONDS = 300
"""One starts each minute, give or take one, and works for three."""

Caller = Callable[[Mapping[str, object]], dict[str, Any]]
"""Sends a command to the operations function, or does its work; raises `ToolError` with the reason."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command's response, as its JSON shows it, and the exit status; `complaint` names missing data."""

    document: Mapping[str, Any]
    status: Status = Status.FINE
    complaint: str | None = None


def ask(call: Caller, command: str, **request: object) -> Outcome:
    """Have a command carried out that has one response, and judge it."""
    return _judge(command, call({"command": command, **request}))


def _judge(command: str, response: Mapping[str, Any]) -> Outcome:
    match command:
        case "hot" if response["active"] is None:
            return Outcome(response, Status.FAILED, "Redis did not respond, so no load can be shown")
        case "hot":
            is_fine = response["is_complete"]
        case "route" if response["agreement"] == "registry-unavailable":
            unknown = "Redis did not respond, so what the registry knows is not known"
            return Outcome(response, Status.FAILED, unknown)
        case "route":
            is_fine = response["agreement"] == "equal"
        case "raise":
            is_fine = response["in_registry"] is not False
        case _:
            is_fine = response["step"] in {"planned", "confirmed"} or response["refusal"] in {"not-raised", "pending"}
    return Outcome(response, Status.FINE if is_fine else Status.FINDING)


def show_all(call: Caller, progress: Progress) -> Outcome:
    """Ask for every route, with its heat, hottest first."""
    hot = call({"command": "hot", "limit": MAX_ROWS})
    rows = {row["conversation_id"]: row for row in hot["routes"]}
    # A conversation without a report is neither written nor read, unless one response cannot hold all that have one.
    is_all = hot["is_complete"] and hot["active"] <= MAX_ROWS
    nothing = ("wcu_per_second", "throttled_share", "rcu_per_second")
    idle = dict.fromkeys(nothing, 0.0) if is_all else {}
    for page in _parts(call, {"command": "routes", "limit": MAX_ROWS}):
        for row in page["routes"]:
            rows.setdefault(row["conversation_id"], {**row, **idle})
        progress(f"{len(rows):,} routes")
    loaded = [row["conversation_id"] for row in hot["routes"] if row["wcu_per_second"] or row["rcu_per_second"]]
    ranks = {conversation_id: rank for rank, conversation_id in enumerate(loaded)}
    # The newest first, then stably by heat: the hottest first, and the newest among equals.
    newest = sorted(rows.values(), key=lambda row: (row["newest_since"] or "", row["conversation_id"]), reverse=True)
    ordered = sorted(newest, key=lambda row: ranks.get(row["conversation_id"], len(ranks)))
    return _judge("hot", {**hot, "routes": ordered})


def find_gap(hot: Mapping[str, Any]) -> str | None:
    """Say what a look at the hot keys did not see; None: it saw all there is."""
    away, streams, started_at = hot["streams_unavailable"], hot["streams"], hot["consumer_started_at"]
    if hot["active"] is None:
        return "Redis does not respond: no load can be shown, nor whether a consumer runs."
    if away:
        unknown = "the load of their partition keys is not shown, nor whether their consumer runs"
        return f"{away} of {streams} report streams cannot be read: {unknown}."
    if not hot["is_complete"] and not streams:
        way_out = " (--limit)" if len(hot["routes"]) < MAX_ROWS else ""
        return f"Only the load of the keys that were raised last was looked at{way_out}."
    if not hot["is_complete"]:
        return "The report streams were not read to their end: there is more load than is shown."
    if streams and (started_at is None or seconds_between(started_at, hot["at"]) > CONSUMER_SECONDS):
        return "No stream consumer has started for minutes: nothing is being detected."
    return None


def seconds_between(since: str, at: str) -> float:
    """Measure the time between two instants of a response."""
    return (datetime.fromisoformat(at) - datetime.fromisoformat(since)).total_seconds()


def verify(call: Caller, progress: Progress, *, repairs: bool) -> Outcome:
    """Compare registry and journal, part by part."""
    counts: dict[str, int] = {}
    differences: list[Mapping[str, str]] = []
    repaired, unrouted = 0, dict[str, int]()
    for part in _parts(call, {"command": "verify", "mend": repairs}):
        counts = {name: counts.get(name, 0) + count for name, count in part["counts"].items()}
        differences += part["differences"]
        repaired += part["mended"]
        unrouted |= part.get("unrouted", {})
        progress(f"{sum(counts.values()):,} routes compared")
    document = {
        "counts": counts,
        "differences": differences,
        "mended": repaired,
        "unrouted": sorted(unrouted),
        "unrouted_shard_counts": unrouted,
    }
    is_fine = len(differences) <= repaired and not unrouted
    readers = f"fixed(0, readable={max(unrouted.values(), default=0)})"
    complaint = f"the journal was lost: fold each of these keys, with readers on {readers}" if unrouted else None
    return Outcome(document, Status.FINE if is_fine else Status.FINDING, complaint)


def _parts(call: Caller, command: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    """Ask for one part after another, to the last one."""
    part = call(command)
    yield part
    while part["cursor"] is not None:
        part = call({**command, "cursor": part["cursor"]})
        yield part
