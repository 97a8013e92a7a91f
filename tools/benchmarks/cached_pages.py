"""What the rows of cached pages share: the newest pages of read-hot conversations, cached and not."""

from __future__ import annotations

from redis import Redis

from hotpartition.core.metrics import MetricName
from hotpartition.redis.cluster import read_hot_key
from tools.benchmarks.conversations import store_conversations
from tools.benchmarks.measuring import CPU_CONDITIONS, Bar, Measured, cpu_seconds, interleave, warm_up
from tools.benchmarks.reading import SERVICE_MS, check_reader, mean_ms, our_reader
from tools.benchmarks.setup import TABLE, Setup, SilentTelemetry

CONVERSATIONS = 24
ROUNDS = 4
"""How often each conversation is read in a run, uncached."""
LASTING = {"page_ttl_seconds": 60.0, "page_staleness_seconds": 600.0}
MOSTLY = 0.99
"""Share of the pages that come from the cache: with a TTL of a minute a few are read anew, which counts as well."""


class _Origins(SilentTelemetry):
    """`Telemetry` that counts where pages came from."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}

    def count(self, metric: str, value: float = 1.0) -> None:
        self.counts[metric] = self.counts.get(metric, 0) + value


def compare_pages(setup: Setup, origin: MetricName, *, at_most: float, **settings: object) -> Measured:
    """Measure the CPU of a cached page of 50 messages against that of the same page from 16 shards.

    Args:
        setup: the row's surroundings.
        origin: where the cached pages must come from.
        at_most: the bar.
        settings: of the read job.

    Raises:
        ValueError: a page was wrong, or came from elsewhere.
    """
    conversations = store_conversations(setup, CONVERSATIONS, 16)
    with Redis(port=setup.redis_port) as redis:
        for conversation in conversations:
            redis.set(read_hot_key(TABLE, conversation.sharded_id), 1)
    setup.control("Configure", usual_ms=SERVICE_MS)
    origins = _Origins()
    cached, uncached = our_reader(origins, None, **LASTING, **settings), our_reader(page_cache=False)
    in_turn = conversations * setup.count(ROUNDS)

    def ours() -> float:
        return mean_ms(cpu_seconds, cached, in_turn * 10)

    def rival() -> float:
        return mean_ms(cpu_seconds, uncached, in_turn)

    for read in (cached, uncached):
        check_reader(read, conversations)
    warm_up(ours, rival)
    origins.counts.clear()
    samples = interleave(ours, rival, setup.runs)
    pages = {name: count for name, count in origins.counts.items() if name.startswith("PagesFrom")}
    if pages.get(origin, 0) < MOSTLY * sum(pages.values()):
        raise ValueError(f"nearly all pages should come as {origin}, and came as {pages}")
    return Measured(
        unit="ms of CPU",
        rival="the same page uncached, as in read-16",
        samples=samples,
        bars=(Bar("ratio", at_most=at_most),),
        conditions=CPU_CONDITIONS
        + f"; every response of DynamoDB takes {SERVICE_MS:g} ms; {CONVERSATIONS} conversations of 16 shards in turn",
    )
