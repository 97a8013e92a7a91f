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


Document = Mapping[str, Any]


def view_hot(document: Document) -> Group:
    """Show partition keys by heat and age."""
    rows = [_describe_heat(row, document["at"]) for row in document["routes"]]
    columns = ("<partition key", "WCU/s", "of capacity", "throttled", "N", "raised", "RCU/s")
    parts: list[RenderableType] = [_table(columns, rows)]
    if not rows:
        is_read = document["active"] is not None and not document["streams_unavailable"] and document["streams"]
        nothing = "Nothing is being written or read, and no" if is_read else "No"
        parts = [Text(f"{nothing} partition key was ever raised.")]
    if gap := find_gap(document):
        parts.append(Text(gap, "red"))
    return Group(*parts)


def _describe_heat(row: Document, at: str) -> Sequence[str | Text]:
    wcu, throttled = row["wcu_per_second"], row["throttled_share"]
    load = None if wcu is None else wcu / row["capacity_wcu_per_second"]
    return (
        row["conversation_id"],
        _figure(wcu, ",.0f"),
        Text(_figure(load, ".0%"), "red" if load and load > 1 else ""),
        Text(_figure(throttled, ".0%") if wcu or throttled is None else "-", "red" if throttled else ""),
        str(row["shard_count"] or "-"),
        "unreadable" if row["is_malformed"] else _describe_age(row, at),
        _figure(row["rcu_per_second"], ",.0f"),
    )


def _describe_age(row: Document, at: str) -> str:
    """Say how long ago the key was raised, or closed since then."""
    since, closed_at, raised_at = row["newest_since"], row["closed_at"], row["raised_at"]
    if closed_at is None or (since is not None and since >= closed_at):
        unknown = "-" if since is None else "?"
        return unknown if raised_at is None else f"{_duration(seconds_between(raised_at, at))} ago"
    seconds = seconds_between(closed_at, at)
    return f"closed {_duration(seconds)} ago" if seconds >= 0 else f"closes in {_duration(-seconds)}"


def view_route(document: Document) -> Group:
    """Show one route: its generations, where they are known, and the decisions that made them."""
    id_, agreement, n = document["conversation_id"], document["agreement"], document["shard_count"]
    if not document["generations"] and agreement in {"equal", "registry-unavailable"}:
        by = "" if agreement == "equal" else ", by the journal"
        return Group(Text(f"{id_} was never raised{by}: its items, if there are any, are on the base key."))
    head = Text(f"{id_}: new items go to {f'{n} shards' if n else 'the base key'}")
    is_compared = agreement != "equal"
    if is_compared or any(generation["in_registry"] for generation in document["generations"]):
        head.append("; registry against journal: ").append(agreement, _AGREEMENT_STYLES.get(agreement, "red"))
    columns = ("N", "<since", "<journal", "<registry", "<decided", "<by")
    parts: list[RenderableType] = [head, _table(columns, _list_steps(document, is_compared=is_compared))]
    if document["malformed_members"]:
        members = ", ".join(map(repr, document["malformed_members"]))
        parts.append(Text(f"The journal cannot be read because of {members}", "red"))
    elif agreement == "malformed":
        parts.append(Text("The journal's item cannot be read: it has no string set `generations`", "red"))
    return Group(*parts)


def _list_steps(document: Document, *, is_compared: bool) -> Iterable[Sequence[str | Text]]:
    """List generations, a row for each decision, and closes."""
    for made in document["generations"]:
        in_registry = _presence(made["in_registry"]) if is_compared or made["in_registry"] else "-"
        first, *more = [_decision(record) for record in made["raises"] or [None]]
        yield str(made["shard_count"]), made["since"], _presence(made["in_journal"]), in_registry, *first
        yield from (("", "", "", "", *decision) for decision in more)
    for close in document["closes"]:
        in_registry = _presence(close["in_registry"]) if close["in_registry"] else "-"
        step = "closed" if close["is_confirmed"] else "announced"
        yield "0", close["at"], _presence(close["in_journal"]), in_registry, step, ""


def _presence(is_there: bool | None) -> Text:
    if is_there is None:
        return Text("?", "yellow")
    return Text("yes") if is_there else Text("missing", "red")


def _decision(record: Document | None) -> tuple[str, str]:
    if record is None:
        return "not recorded", ""
    rate = record["rate_wcu_per_second"]
    why = record["reason"] if rate is None else f"{record['reason']} at {rate:,} WCU/s"
    return f"{record['decided_at'][:19]}Z {why}", record["by"] or ""


def view_raise(document: Document) -> Group:
    """Show the changes by a raise by hand."""
    id_, since, n = document["conversation_id"], document["since"], document["shard_count"]
    before = document["shard_count_before"]
    if document["changed"]:
        was = f"N was {before}" if before else "it was on the base key alone"
        head = f"{id_} is spread over {n} shards for items from {since} on; {was}."
    else:
        head = f"{id_} has N = {before} for items from {since} on already: nothing was changed."
    return Group(Text(head, "green"), *(Text(f"- {warning}") for warning in document["warnings"]))


def view_close(document: Document) -> RenderableType:
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


def view_verification(document: Document) -> Group:
    """Show the counts, and the first routes that differ."""
    rows = [
        (Text(agreement, _AGREEMENT_STYLES.get(agreement, "red") if count else ""), f"{count:,}")
        for agreement, count in document["counts"].items()
    ]
    differences: Sequence[Mapping[str, str]] = document["differences"]
    said = [Text(f"{each['conversation_id']}: {each['agreement']}") for each in differences[:MAX_DIFFERENCES_SHOWN]]
    if (more := len(differences) - MAX_DIFFERENCES_SHOWN) > 0:
        said.append(Text(f"and {more:,} more (--json names all)"))
    if document["mended"]:
        said.append(Text(f"{document['mended']:,} repaired: each place has what only the other knew.", "green"))
    for id_, n in document["unrouted_shard_counts"].items():
        said.append(Text(f"{id_} has items on shards that no route names: fold {id_} --n {n}", "red"))
    return Group(_table(("<registry against journal", "routes"), rows), *said)


def view_plan(document: Document) -> RenderableType:
    """Show a plan beside the present state."""
    n, before, after = document["shard_count"], document["before"], document["after"]
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
    labels = {
        "keys": "keys that take the writes",
        "wcu_per_second_per_key": "WCU/s on each",
        "wcu_per_second_refused": "WCU/s refused",
    }
    rows = [(label, f"{before[name]:,.0f}", f"{after[name]:,.0f}") for name, label in labels.items()]
    table = _table(("<", "base key alone", f"with N = {n}"), rows)
    tail = (
        f"Pre-split before a known event with: hotpartition raise ID --n {n}"
        if document["is_covered"]
        else "That does not take the whole load: split the conversation itself, or raise max_shard_count."
    )
    return Group(Text("\n".join(sentences)), table, Text(tail))


def view_rush(document: Document) -> RenderableType:
    """Show the outcome for messages and conversation, and whether the requested load was reached."""
    count = document["shard_count"]
    sent = (
        MESSAGE_WCU * (document["stored"] + document["throttled"] + document["failed"]) / max(0.1, document["seconds"])
    )
    is_less = sent < FULL_LOAD_SHARE * document["offered_wcu_per_second"]
    less = f" This machine offered {sent:,.0f} WCU/s, not {document['offered_wcu_per_second']:,.0f}." if is_less else ""
    return Text(
        f"{document['stored']:,} messages stored, {document['throttled']:,} refused for now and"
        f" {document['failed']:,} failed in {document['seconds']:g} s; {document['conversation_id']} "
        + (f"has {count} shards now." if count else "was not raised.")
        + less
    )


def view_check(document: Document) -> Group:
    """Show each step: its expectation, its outcome and its time."""
    rows = [
        (Text(*_RESULTS[step["result"]]), step["name"], step["expected"], step["came"], f"{step['seconds']:.2f}")
        for step in document["steps"]
    ]
    counts = Counter(step["result"] for step in document["steps"])
    verdict = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    head = f"{document['stack']}: {verdict} in {document['seconds']:.0f} s."
    table = _table(("<", "<tried", "<expected", "<came", "s"), rows)
    return Group(table, Text(head, "green" if document["passed"] else "red"))


def view_diagnosis(document: Document) -> RenderableType:
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


def view_fold(document: Document) -> RenderableType:
    """Show how many items `fold` moved."""
    lines = [f"{document['moved']:,} items of {document['conversation_id']} were moved to its base key."]
    if document["left"]:
        lines.append(f"{document['left']:,} changed meanwhile, or are new on its shards: run it again.")
    return Text("\n".join(lines))


def view_copies(document: Document) -> RenderableType:
    """Show how many items `copy-back` put back."""
    lines = [f"{document['routes']:,} routes were looked at; {document['items']:,} items were missing."]
    lines += [f"{key} has a routing item that cannot be read" for key in document["malformed"]]
    return Text("\n".join(lines))


VIEWS: Mapping[str, Callable[[Document], RenderableType]] = {
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


def _table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Build a table; `<` before a column's name aligns it left. `[…]` in a cell is no markup."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for column in columns:
        name = column.removeprefix("<")
        table.add_column(name, justify="right" if name == column else "left", overflow="fold")
    for cells in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return table


def _figure(value: float | None, form: str) -> str:
    return "?" if value is None else format(value, form)


def _duration(seconds: float) -> str:
    for length, name in _UNITS:
        if seconds >= length:
            return f"{seconds / length:.0f} {name}"
    return "0 s"
