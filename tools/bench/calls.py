"""The rows of one call's CPU.

`record`: counting one write, against pydynox's hot-partition detector at its best case. `route`: deciding where a
message goes by a cached route, against a dictionary lookup and one BLAKE2b. `write`, `write-floor`: a whole write
request, against a rival's function and a bare `put_item`.
"""

from __future__ import annotations

import hashlib
import logging
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pydynox.diagnostics import HotPartitionDetector

from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Generation, Route, choose_placement
from hotpartition.core.sampler import LoadSampler
from hotpartition.dynamodb.boto3_client import create_client
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.table.routes import LoggedTelemetry
from hotpartition_messages import Message
from hotpartition_messages.keys import KEY_FORM, build_key
from hotpartition_messages.message_ids import mint_message_id
from tools.bench.measure import CPU_CONDITIONS, MICROSECONDS, Measured, Work, compare, cpu_seconds, interleave
from tools.bench.setup import (
    BODY,
    HOT_CONVERSATION,
    LAMBDAS,
    RIVALS,
    TABLE,
    Setup,
    Unasked,
    load_function,
    prepare_hot_conversation,
    write_event,
)
from tools.local.events import Context

WRITES = 100_000
DISTINCT_KEYS = 1_000_000
START_MS = 1_800_000_000_000
WRITES_PER_MS = 2_000
"""What a loop without pause amounts to: so fast the instants pass for the rival, which reads the clock itself."""
KEPT_LIMIT_BYTES = 1 << 20
FLAT = 2.5
"""The dearest case as a multiple of the cheapest: a constant factor, however the rate and the number of keys grow."""
BEST_FOR_THE_RIVAL = (100, 100)
"""Keys, and writes to each. pydynox keeps each write's time for its window and counts them at each write."""


def measure_record(setup: Setup) -> Measured:
    """Count the same writes at the same instants on both sides, in the case that suits the rival best; then others."""
    logging.getLogger("pydynox.diagnostics").setLevel(logging.ERROR)  # its warnings are not what is timed
    keys, each = BEST_FOR_THE_RIVAL
    few, writes = _keys(keys) * each, setup.count(WRITES)
    one, distinct = _keys(1) * writes, _keys(setup.count(DISTINCT_KEYS))
    cases = {
        "one_key_1000_per_second_us": _time_ours(one, writes_per_ms=1),
        "one_key_1_per_second_us": _time_ours(one, writes_per_ms=0.001),
        "thousand_keys_1_per_second_us": _time_ours(_keys(1_000) * (writes // 1_000), writes_per_ms=1),
        "distinct_keys_us": _time_ours(distinct, writes_per_ms=1),
        "distinct_keys_at_once_us": _time_ours(distinct, writes_per_ms=WRITES_PER_MS),
    }
    slowest = max(cases.values())
    return Measured(
        unit="us",
        rival="pydynox HotPartitionDetector.record_write, where it is fastest",
        samples=interleave(lambda: _time_ours(few, writes_per_ms=WRITES_PER_MS), lambda: _time_rival(few), setup.runs),
        details={
            **cases,
            "slowest_us": slowest,
            "slowest_by_fastest": slowest / min(cases.values()),
            "kept_bytes": _kept_bytes(distinct),
        },
        at_most={"ratio": 0.5, "slowest_us": 1.0, "slowest_by_fastest": FLAT, "kept_bytes": KEPT_LIMIT_BYTES},
        conditions=CPU_CONDITIONS + "; what an empty loop takes is subtracted on both sides",
    )


def _keys(count: int) -> list[str]:
    return [f"conversation-{index}" for index in range(count)]


def _counter() -> LoadSampler:
    return LoadSampler(environment_id="0" * 32, sampling_distance=5.0, random=Random(7).random)


def _time_ours(keys: Sequence[str], *, writes_per_ms: float) -> float:
    record = _counter().record
    times = [START_MS + int(index / writes_per_ms) for index in range(len(keys))]

    def work() -> None:
        for key, now_ms in zip(keys, times, strict=True):
            record(key, 1, now_ms)

    return _mean_us(work, lambda: zip(keys, times, strict=True), len(keys))


def _time_rival(keys: Sequence[str]) -> float:
    detector = HotPartitionDetector(writes_threshold=1 << 30, reads_threshold=1 << 30, window_seconds=60)
    record = detector.record_write

    def work() -> None:
        for key in keys:
            record(TABLE, key)

    return _mean_us(work, lambda: keys, len(keys))


def _mean_us(work: Callable[[], None], walked: Callable[[], Iterable[object]], count: int) -> float:
    """Measure the CPU of one round of a loop, without that of an empty loop over the same."""

    def nothing() -> None:
        for _ in walked():
            pass

    return (cpu_seconds(work) - cpu_seconds(nothing)) / count * MICROSECONDS


def _kept_bytes(keys: Sequence[str]) -> int:
    """Measure what a counter holds at most while all these keys are written in one slot."""
    counter = _counter()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    largest = 0
    for index, key in enumerate(keys):
        # A copy, so that what the counter keeps of the key counts as well.
        counter.record("".join(list(key)), 1, START_MS)
        if index % 1024 == 0:
            largest = max(largest, tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
    return largest


DECISIONS = 100_000
CACHED_ROUTES = 1_000
SHARD_COUNTS = (4, 16)


def measure_route(setup: Setup) -> Measured:
    """Decide by a cached route where a message goes, a thousand conversations raised twice each."""
    random = Random(7)
    count = setup.count(DECISIONS)
    names = [f"conversation-{index}" for index in range(CACHED_ROUTES)]
    ids = [mint_message_id(START_MS + i, random.getrandbits) for i in range(count)]
    writes = [build_key(random.choice(names), message_id) for message_id in ids]
    generations = frozenset(Generation(since_ms=START_MS - 60_000 * n, shard_count=n) for n in SHARD_COUNTS)
    source = RegistryRoutes(
        registry=Unasked(),
        journal=None,
        telemetry=LoggedTelemetry(),
        now_ms=lambda: START_MS,
        random=random.random,
        ttl_seconds=60,
    )
    for name in names:
        source.learn(name, JournalEntry(Route(generations)))
    plain = dict.fromkeys(names, max(SHARD_COUNTS))

    def ours() -> float:
        get_route = source.for_write

        def work() -> None:
            for key in writes:
                choose_placement(get_route(key.collection), key, KEY_FORM)

        return _mean_us(work, lambda: writes, count)

    def rival() -> float:
        def work() -> None:
            for key in writes:
                plain[key.collection]
                hashlib.blake2b((key.hashed or "").encode(), digest_size=8).digest()

        return _mean_us(work, lambda: writes, count)

    return Measured(
        unit="us",
        rival="a dictionary lookup and one BLAKE2b",
        samples=interleave(ours, rival, setup.runs),
        at_most={"value": 5.0, "ratio": 3.0},
        conditions=CPU_CONDITIONS + f"; {count} decisions a run, {CACHED_ROUTES} cached routes of two generations; "
        "what an empty loop takes is subtracted on both sides",
    )


CREATED = 201
REQUESTS = 400
LOAD = "1 KB of text, to a conversation of 16 shards; reports go to a real Redis"


def write_function(folder: Path) -> Work:
    """Load a write function; what is returned writes a message by it, and refuses to time a write that fails."""
    handler = load_function(folder)
    event, context = write_event(HOT_CONVERSATION, BODY), Context()

    def write(_: int) -> None:
        response = handler(event, context)
        if response["statusCode"] != CREATED:
            raise ValueError(f"the write ended with {response}")

    return write


def _compare_writes(setup: Setup, rival: Work, rival_name: str, at_most: float) -> Measured:
    """Measure the CPU of a write by our whole function, against another way to write as many messages."""
    ours, bars = write_function(LAMBDAS / "write_message"), {"ratio": at_most}
    return compare(setup, ours, rival, setup.count(REQUESTS), rival_name=rival_name, at_most=bars, conditions=LOAD)


def measure_write(setup: Setup) -> Measured:
    """Serve the same event by both functions."""
    prepare_hot_conversation(setup)
    name = "the same function with a bare put_item: tools/bench/rivals/write_message"
    return _compare_writes(setup, write_function(RIVALS / "write_message"), name, at_most=0.5)


def measure_floor(setup: Setup) -> Measured:
    """Serve an event by our function; put the item that it makes by boto3."""
    prepare_hot_conversation(setup)
    client = create_client(connections=1)
    item: Any = Message(HOT_CONVERSATION, "01HF7YAT00" + "0" * 16, "ann", BODY).to_item(HOT_CONVERSATION)
    name = "a bare boto3 put_item of the same item"
    return _compare_writes(setup, lambda _: client.put_item(TableName=TABLE, Item=item), name, at_most=0.7)
