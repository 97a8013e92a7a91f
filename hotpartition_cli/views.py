"""The responses as people read them: tables and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hotpartition_cli.outcomes import MESSAGE_WCU, find_gap, seconds_between

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_RESULTS = {"passed": ("ok", "green"), "failed": ("FAILED", "red"), "skipped": ("-", "yellow")}
_AGREEMENT_STYLES = {"equal": "green", "missing-in-registry": "yellow", "registry-unavailable": "yellow"}
_REFUSALS = {
    "no-positions": "its positions are not times, as far as is known (--timed)",
    "no-leases": "its writers have no leases (lease_seconds is 0)",
    "not-raised": "its newest items are on the base key already, or will be from a close on that is confirmed",
    "pending": "a close is announced already, and its time has not come",
    "too-soon": "too little time has passed since its last close (an hour)",
    "full": "its route has too many members",
    "no-date": "DynamoDB's response had no Date",
    "grew": "its route has grown meanwhile; try again",
}
MAX_DIFFERENCES_SHOWN = 20
_BARS = "▁▂▃▄▅▆▇█"
FULL_LOAD_SHARE = 0.8


def view_hot(document: Mapping[str, Any]) -> RenderableType:
    """Show partition keys by heat and age."""
    at = document["at"]
    columns = ("WCU/s", "of capacity", "throttled", "N", "raised", "RCU/s")
    table = _table(("partition key", "left"), *columns)
    for row in document["routes"]:
        wcu, throttled = row["wcu_per_second"], row["throttled_share"]
        load = wcu / row["capacity_wcu_per_second"] if wcu is not None else None
        age = "unreadable" if row["is_malformed"] else _era(row, at)
        _add(
            table,
            row["conversation_id"],
            "?" if wcu is None else f"{wcu:,.0f}",
            "?" if load is None else Text(f"{load:.0%}", "red" if load > 1 else ""),
            "?" if throttled is None else Text(f"{throttled:.0%}" if wcu else "-", "red" if throttled else ""),
            str(row["shard_count"] or "-"),
            age,
            "?" if (rcu := row["rcu_per_second"]) is None else f"{rcu:,.0f}",
        )
    parts: list[RenderableType] = [table]
    if not document["routes"]:
        is_read = document["active"] is not None and not document["streams_unavailable"] and document["streams"]
        nothing = "Nothing is being written or read, and no" if is_read else "No"
        parts = [Text(f"{nothing} partition key was ever raised.")]
    if gap := find_gap(document):
        parts.append(Text(gap, "red"))
    return Group(*parts)


def view_route(document: Mapping[str, Any]) -> RenderableType:
    """Show one route: its generations, where they are known, and the decisions that made them."""
    id_, agreement = document["conversation_id"], document["agreement"]
    if not document["generations"] and agreement == "equal":
        return Text(f"{id_} was never raised: its items, if there are any, are on the base key.")
    if not document["generations"] and agreement == "registry-unavailable":
        return Text(f"{id_} was never raised, by the journal: its items, if there are any, are on the base key.")
    table = _table(
        "N", ("since", "left"), ("journal", "left"), ("registry", "left"), ("decided", "left"), ("by", "left")
    )
    for generation in document["generations"]:
        is_compared = agreement != "equal" or generation["in_registry"]
        in_registry = _presence(generation["in_registry"]) if is_compared else Text("-")
        known = _presence(generation["in_journal"]), in_registry
        decisions = [_decision(record) for record in generation["raises"] or [None]]
        _add(table, str(generation["shard_count"]), generation["since"], *known, *decisions[0])
        for decision in decisions[1:]:
            _add(table, "", "", "", "", *decision)
    for close in document["closes"]:
        known = _presence(close["in_journal"]), _presence(close["in_registry"]) if close["in_registry"] else Text("-")
        _add(table, "0", close["at"], *known, "closed" if close["is_confirmed"] else "announced", "")
    head = Text(f"{id_}: {_placing(document['shard_count'])}")
    if agreement != "equal" or any(generation["in_registry"] for generation in document["generations"]):
        head.append("; registry against journal: ").append(agreement, _AGREEMENT_STYLES.get(agreement, "red"))
    parts: list[RenderableType] = [head, table]
    if document["malformed_members"]:
        parts.append(
            Text(f"The journal cannot be read because of {', '.join(map(repr, document['malformed_members']))}", "red")
        )
    elif agreement == "malformed":
        parts.append(Text("The journal's item cannot be read: it has no string set `generations`", "red"))
    return Group(*parts)


def view_raise(document: Mapping[str, Any]) -> RenderableType:
    """Show the changes by a raise by hand."""
    id_, since, n = document["conversation_id"], document["since"], document["shard_count"]
    before = document["shard_count_before"]
    if document["changed"]:
        was = f"N was {before}" if before else "it was on the base key alone"
        head = f"{id_} is spread over {n} shards for items from {since} on; {was}."
    else:
        head = f"{id_} has N = {before} for items from {since} on already: nothing was changed."
    return Group(Text(head, "green"), *(Text(f"- {warning}") for warning in document["warnings"]))


def view_close(document: Mapping[str, Any]) -> RenderableType:
    """Show the outcome of a close by hand."""
    id_, at, n = document["conversation_id"], document["at"], document["shard_count"]
    if document["step"] == "refused":
        return Text(f"{id_} is not closed: {_REFUSALS.get(document['refusal'], document['refusal'])}.", "yellow")
    if document["step"] == "planned":
        return Text(f"{id_} would be closed: items from {at} on go to the base key; N is {n} now.")
    if document["step"] == "confirmed":
        head = f"{id_} is closed: items from {at} on go to the base key, and pages of them query one key."
        return Group(Text(head, "green"), Text("- A raise until then holds on. Items from before stay where they are."))
    late = "DynamoDB took the announcement too late. Writers obey it; try again in an hour"
    return Text(f"{id_} is not closed: {late}.", "red")


def view_verification(document: Mapping[str, Any]) -> RenderableType:
    """Show the counts, and the first routes that differ."""
    table = _table(("registry against journal", "left"), "routes")
    for agreement, count in document["counts"].items():
        _add(table, Text(agreement, _AGREEMENT_STYLES.get(agreement, "red") if count else ""), f"{count:,}")
    parts: list[RenderableType] = [table]
    differences: Sequence[Mapping[str, str]] = document["differences"]
    parts += [Text(f"{d['conversation_id']}: {d['agreement']}") for d in differences[:MAX_DIFFERENCES_SHOWN]]
    if len(differences) > MAX_DIFFERENCES_SHOWN:
        parts.append(Text(f"and {len(differences) - MAX_DIFFERENCES_SHOWN:,} more (--json names all)"))
    if document["mended"]:
        parts.append(Text(f"{document['mended']:,} repaired: each place has what only the other knew.", "green"))
    for id_, n in document["unrouted_shard_counts"].items():
        parts.append(Text(f"{id_} has items on shards that no route names: fold {id_} --n {n}", "red"))
    return Group(*parts)


def view_plan(document: Mapping[str, Any]) -> RenderableType:
    """Show a plan beside the present state."""
    n = document["shard_count"]
    load = f"{document['messages_per_second']:,g} messages/s of {document['item_bytes']:,} bytes"
    cost = f"{document['wcu_per_message']} WCU each: {document['wcu_per_second']:,g} WCU/s"
    sentences = [f"{load} cost {cost}."]
    if not n:
        sentences.append("One partition key serves that: the conversation stays on its base key.")
        return Text("\n".join(sentences))
    sentences.append(
        f"One key takes 1,000 WCU/s, so at least {document['least_shard_count']:,} are needed; "
        f"with room for growth and uneven spread, N = {n}."
    )
    if document["is_at_cap"]:
        sentences.append("That is the largest N that is allowed; the load asks for more.")
    table = _table(("", "left"), "base key alone", f"with N = {n}")
    rows: Iterable[tuple[str, str, str]] = (
        ("keys that take the writes", "keys", ",.0f"),
        ("WCU/s on each", "wcu_per_second_per_key", ",.0f"),
        ("WCU/s refused", "wcu_per_second_refused", ",.0f"),
    )
    for label, name, form in rows:
        _add(table, label, *(f"{document[side][name]:{form}}" for side in ("before", "after")))
    tail = (
        f"Pre-split before a known event with: hotpartition raise ID --n {n}"
        if document["is_covered"]
        else "That does not take the whole load: split the conversation itself, or raise max_shard_count."
    )
    return Group(Text("\n".join(sentences)), table, Text(tail))


def view_rush(document: Mapping[str, Any]) -> RenderableType:
    """Show the outcome for messages and conversation, and whether the requested load was reached."""
    count = document["shard_count"]
    sent = MESSAGE_WCU * (document["stored"] + document["throttled"] + document["failed"]) / document["seconds"]
    is_less = sent < FULL_LOAD_SHARE * document["offered_wcu_per_second"]
    less = f" This machine offered {sent:,.0f} WCU/s, not {document['offered_wcu_per_second']:,.0f}." if is_less else ""
    return Text(
        f"{document['stored']:,} messages stored, {document['throttled']:,} refused for now and"
        f" {document['failed']:,} failed in {document['seconds']:g} s; {document['conversation_id']} "
        + (f"has {count} shards now." if count else "was not raised.")
        + less
    )


def view_check(document: Mapping[str, Any]) -> RenderableType:
    """Show each step: its expectation, its outcome and its time."""
    table = _table(("", "left"), ("tried", "left"), ("expected", "left"), ("came", "left"), "s")
    for step in document["steps"]:
        mark, style = _RESULTS[step["result"]]
        row = (step["name"], step["expected"], step["came"], f"{step['seconds']:.2f}")
        _add(table, Text(mark, style), *row)
    counts = Counter(step["result"] for step in document["steps"])
    verdict = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    head = f"{document['stack']}: {verdict} in {document['seconds']:.0f} s."
    return Group(table, Text(head, "green" if document["passed"] else "red"))


def view_diagnosis(document: Mapping[str, Any]) -> RenderableType:
    """Show each finding: where, how often over time, which keys, what it means and what helps."""
    parts: list[RenderableType] = []
    for finding in document["findings"]:
        where = f"index {finding['index']}" if finding["index"] else f"table {document['table']}"
        head = Text(finding["finding"], "red" if finding["is_hot"] else "green").append(f", {where}")
        if finding["refused"]:
            head.append(f": {finding['refused']:,} {finding['operation']}s refused in {document['hours']:g} h")
            parts += [head, Text(f"  {draw_bars(finding['refused_over_time'])}")]
        else:
            parts.append(head)
        parts += [Text(f"  {key['share']:4.0%}  {key['key']}") for key in finding["keys"]]
        parts += [Text(f"  {finding['meaning']}"), Text(f"  {finding['advice']}")]
        parts += [Text(f"      {line}", "cyan") for line in finding["code"]]
    parts += [Text(sentence, "yellow") for sentence in document["unknown"]]
    return Group(*parts)


def draw_bars(figures: Sequence[int]) -> str:
    """Draw figures as a line of small bars; zero is a dot."""
    most = max(figures, default=0) or 1
    return "".join("·" if not figure else _BARS[ceil(figure / most * len(_BARS)) - 1] for figure in figures)


def view_fold(document: Mapping[str, Any]) -> RenderableType:
    """Show how many items `fold` moved."""
    lines = [f"{document['moved']:,} items of {document['conversation_id']} were moved to its base key."]
    if document["left"]:
        lines.append(f"{document['left']:,} changed meanwhile, or are new on its shards: run it again.")
    return Text("\n".join(lines))


def view_copies(document: Mapping[str, Any]) -> RenderableType:
    """Show how many items `copy-back` put back."""
    lines = [f"{document['routes']:,} routes were looked at; {document['items']:,} items were missing."]
    lines += [f"{key} has a routing item that cannot be read" for key in document["malformed"]]
    return Text("\n".join(lines))


VIEWS: Mapping[str, Callable[[Mapping[str, Any]], RenderableType]] = {
    "hot": view_hot,
    "watch": view_hot,
    "route": view_route,
    "raise": view_raise,
    "close": view_close,
    "verify": view_verification,
    "fold": view_fold,
    "copy-back": view_copies,
    "diagnose": view_diagnosis,
    "plan": view_plan,
    "rush": view_rush,
    "check": view_check,
}


def _table(*columns: str | tuple[str, str]) -> Table:
    """Build a table; a column is right-aligned unless it says otherwise."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        name, side = column if isinstance(column, tuple) else (column, "right")
        table.add_column(name, justify="left" if side == "left" else "right", overflow="fold")
    return table


def _add(table: Table, *cells: str | Text) -> None:
    """Add a row whose cells are shown as they are: `[…]` in a key or an answer is no markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _presence(is_there: bool | None) -> Text:
    if is_there is None:
        return Text("?", "yellow")
    return Text("yes") if is_there else Text("missing", "red")


def _placing(shard_count: int) -> str:
    return f"new items go to {shard_count} shards" if shard_count else "new items go to the base key"


def _decision(record: Mapping[str, Any] | None) -> tuple[Text, Text]:
    if record is None:
        return Text("not recorded"), Text()
    rate = record["rate_wcu_per_second"]
    why = record["reason"] if rate is None else f"{record['reason']} at {rate:,} WCU/s"
    return Text(f"{record['decided_at'][:19]}Z {why}"), Text(record["by"] or "")


def _era(row: Mapping[str, Any], at: str) -> str:
    """Say how long ago the key was raised, or closed since then."""
    since, closed_at, raised_at = row["newest_since"], row["closed_at"], row["raised_at"]
    if closed_at is None or (since is not None and since >= closed_at):
        unknown = "-" if since is None else "?"
        return unknown if raised_at is None else f"{_duration(seconds_between(raised_at, at))} ago"
    seconds = seconds_between(closed_at, at)
    return f"closed {_duration(seconds)} ago" if seconds >= 0 else f"closes in {_duration(-seconds)}"


def _duration(seconds: float) -> str:
    for length, name in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return "0 s"
