"""What the report says in words: the story, the ways to meet a rush, what each sweep shows, and the limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.simulation.tuning import Sweep

PROBLEM = """
<section><h2>The problem, and what hotpartition does</h2>
<p>DynamoDB keeps all items with the same partition key together, and one partition serves at most <b>1,000 write units
a second</b> (a unit is a write of up to 1 KB), however much the table may take as a whole. It splits partitions that
are too busy, but not where each new item sorts after all others, as in a chat, a feed or an event log. So when a
conversation gets popular, its writes are refused, and no setting helps.</p>
<p>The known remedy is to write under several keys, <code>room-1#0</code> … <code>room-1#7</code>, and to read them all.
Doing that always, for every conversation, makes every read dearer. Doing it only where it is needed means to notice the
heat in time, and never to lose a message when writers and readers disagree for a moment about where it lies. That is
what hotpartition does:</p>
<ol><li><b>Notice.</b> Each Lambda environment counts what it writes and sends a sample of it, one report in five write
units, to a stream in Redis. A consumer adds up the whole fleet's reports.</li>
<li><b>Spread.</b> When a conversation passes 1,000 units in a second (or 800 for five seconds), the number N of keys
that its new messages are spread over is raised, once, with room for growth. N never goes down.</li>
<li><b>Hide it.</b> Clients go on naming the conversation. Readers ask the journal of N, which lies in the table beside
the messages, with every page, so no message is missed and none shown twice.</li></ol></section>
""".strip()

COMPARISON = """
<p>Each row is the same traffic, message by message. Grey is what was stored under the conversations' own keys, green
what was stored on shards. Red never arrived: it was refused until the client gave up.</p>
""".strip()

SCALE_METHOD = """
<p class="soft small">Writes are drawn in steps of 25 ms and recorded as sums by each environment's own counter. What a
counter has reported by the end of a slot of 250 ms depends on the slot's sum only, so the estimate is exact; the time
of a report is off by at most 12.5 ms. Both are checked against a run of single writes at 10,000 a second.</p>
""".strip()

TUNING = """
<p>Each picture varies one number and leaves the others at their defaults (dotted line). Loads step from 100 WCU/s to
what the picture says, over 2,000 environments, 2,000 times. False raises are computed, not drawn: how often noise alone
passes a threshold, for 50 conversations of 600 WCU/s each, which must not be raised, since N never goes down.</p>
""".strip()

STRATEGY_TEXTS: Mapping[str, str] = {
    "none": "DynamoDB alone, with the clients' retries.",
    "sources": (
        "the design that this project began with, taken literally: an environment reports a conversation when it alone "
        "passes 800 writes a second, a poller looks once a minute, and a message goes to shard id % N."
    ),
    "static": "every conversation is always spread over 16 keys, hot or not.",
    "ours": "this project, with its default settings.",
    "oracle": (
        "has the N for this load before the rush begins: the bound of how soon one can react. It does not know which "
        "shards will share a partition."
    ),
}

LIMITS = (
    "No real AWS account was used. The model follows AWS's pages; what they do not say is assumed, and listed above.",
    (
        "Latencies are drawn from plausible distributions, not from measured ones. They serve to compare strategies, "
        "not to promise anything."
    ),
    (
        "The scale study counts the consumer's work and does not time it. Measured beside it, on one core, a report "
        "takes about 0.01 ms and a judged conversation about 0.025 ms. One consumer keeps its pace of ten passes a "
        "second for some 50,000 reports a second, and judges only what can be hot; beyond, raises come later."
    ),
    "Arrivals are random and independent. Real people react to one another; ramps and bursts are other scenarios.",
    "Sweeps vary one number at a time around the defaults.",
)

SOURCES = (
    "Amazon DynamoDB Developer Guide: partition limits, burst and adaptive capacity, on-demand capacity, throttling.",
    "W. G. Cochran, Sampling Techniques, chapter 8: systematic sampling with a random start.",
    "J. Dean, L. A. Barroso, The Tail at Scale, Communications of the ACM 56 (2013): hedged requests.",
    "A. Vattani, F. Chierichetti, K. Lowenstein, Optimal Probabilistic Cache Stampede Prevention, VLDB 2015.",
    "The project's own records: docs/decisions, above all 9 (sampling distance) and 22 to 24 (from these sweeps).",
)


def _at_once(sweep: Sweep) -> str:
    return (
        f"At {sweep.default:,.0f} WCU/s, what one partition serves, noise raises "
        f"{rare(at_default(sweep, 'false_raises_per_hour'))}. A lower threshold would gain hundredths of a second on a "
        "rush and raise quiet conversations for ever; a higher one waits while writes are refused."
    )


def _sustained(sweep: Sweep) -> str:
    return (
        f"At {sweep.default:,.0f} WCU/s a load of 900 is decided within "
        f"{seconds(at_default(sweep, 'delay_900_p99_seconds'))} (p99), and noise raises "
        f"{rare(at_default(sweep, 'false_raises_per_hour'))}. Loads just above the threshold take longer."
    )


def _at_once_window(sweep: Sweep) -> str:
    return (
        "A shorter window decides sooner by a few tenths of a second, and noise gets its chance: half a second would "
        f"raise {rare(at(sweep, 0.5, 'false_raises_per_hour'))}, one second raises "
        f"{rare(at_default(sweep, 'false_raises_per_hour'))}."
    )


def _sustained_window(sweep: Sweep) -> str:
    return (
        "The wait is about the window's length. Two seconds would raise by noise "
        f"{rare(at(sweep, 2.0, 'false_raises_per_hour'))}; {sweep.default:g} s leave room for traffic that is burstier "
        "than the random arrivals here."
    )


def _distance(sweep: Sweep) -> str:
    return (
        f"With one report in {sweep.default:g} units, noise raises "
        f"{rare(at_default(sweep, 'false_raises_per_hour'))}; with one in ten, "
        f"{rare(at(sweep, 10, 'false_raises_per_hour'))}. Halving z again would double the traffic and change nothing "
        "that can be seen: the delay hardly depends on z at all."
    )


def _cache_life(sweep: Sweep) -> str:
    whole = at_default(sweep, "seconds_to_shards_whole_life_after_throttle")
    return (
        f"At {sweep.default:g} s the writers have followed a raise after "
        f"{seconds(at_default(sweep, 'seconds_to_shards'))}, and {at_default(sweep, 'lookups_per_write'):.2f} of all "
        f"writes ask Redis; 10 s would still leave {at(sweep, 10, 'lookups_per_write'):.2f}, because most environments "
        "meet most conversations rarely. The wait does not depend on the life, since what a refused writer is told is "
        "used for a quarter of a second only. With a whole life it would be "
        f"{seconds(whole)}: writers ask just before the raise, are told the old route, and would use that for a life."
    )


def _hedge(sweep: Sweep) -> str:
    return (
        f"Hedging above the {100 * sweep.default:g}th percentile of recent queries brings a page's p99 from "
        f"{at(sweep, 0, 'p99_ms'):.0f} to {at_default(sweep, 'p99_ms'):.0f} ms, for "
        f"{100 * at_default(sweep, 'extra_share'):.1f} % more queries. Below, the budget of 5 % is spent on queries "
        "that are hardly slow, and is gone when one stalls."
    )


SWEEP_TEXTS: Mapping[str, tuple[str, Callable[[Sweep], str]]] = {
    "at-once-threshold": ("Hot at once: above how much in one second", _at_once),
    "sustained-threshold": ("Hot for long: above which mean of five seconds", _sustained),
    "at-once-window": ("Length of the short window", _at_once_window),
    "sustained-window": ("Length of the long window", _sustained_window),
    "sampling-distance": ("Sampling distance z: one report in how many write units", _distance),
    "cache-life": ("Life of a cached route", _cache_life),
    "hedge-quantile": ("When a slow query is asked again", _hedge),
}
"""Title of each sweep, and what it shows."""


def at(sweep: Sweep, value: float, measure: str) -> float:
    """Return a measure at one value of the setting; infinite where it never happened."""
    found = next(point for point in sweep.points if point.value == value).measures[measure]
    return float("inf") if found is None else found


def at_default(sweep: Sweep, measure: str) -> float:
    """Return a measure at the setting's default."""
    return at(sweep, sweep.default, measure)


def rare(per_hour: float) -> str:
    """Say how often something happens that is expected so often in an hour."""
    if per_hour >= 1:
        return f"{per_hour:,.0f} times in such an hour"
    if per_hour > 1 / 8_766:
        return f"once in {1 / per_hour:,.0f} such hours"
    if per_hour > 1 / 8_766 / 1_000:
        return f"once in {1 / per_hour / 8_766:,.0f} years of such hours"
    return "less than once in a thousand years of such hours"


def seconds(value: float | None) -> str:
    """Write a time, or that it never came."""
    return "never" if value is None or value == float("inf") else f"{value:.2f} s"
