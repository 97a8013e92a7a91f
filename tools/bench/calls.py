"""The rows of one call's CPU.

`record`: counting one write, against pydynox's hot-partition detector at its best case. `route`: deciding where a
message goes by a cached route, against a dictionary lookup and one BLAKE2b. `write`, `write-floor`: a whole write
request, against the rival function and a bare `put_item`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
from tools.bench.measure import CPU, Measured, Work, compare, interleave, mean_us
from tools.bench.setup import (
    BODY,
    HOT_CONVERSATION,
    LAMBDAS,
    RIVAL,
    TABLE,
    Unasked,
    load_function,
    prepare_hot_conversation,
    write_event,
)
from tools.local.events import Context

LOOP_CONDITIONS = f"{CPU}; what an empty loop takes is subtracted on both sides"
START_MS = 1_800_000_000_000
WRITES_PER_MS = 2_000
"""What a loop without pause amounts to: so fast the instants pass for the rival, which reads the clock itself."""


def measure_record() -> Measured:
    """Count the same writes at the same instants on both sides, in the case that suits the rival best; then others."""
    logging.getLogger("pydynox.diagnostics").setLevel(logging.ERROR)  # its warnings are not what is timed
    # pydynox keeps each write's time for its window and counts them at each write.
    few = _keys(100) * 100
    one, distinct = _keys(1) * 100_000, _keys(1_000_000)
    others = [
        _time_ours(one, writes_per_ms=0.001),
        *(_time_ours(distinct, writes_per_ms=n) for n in (1, WRITES_PER_MS)),
    ]
    return Measured(
        unit="us",
        rival="pydynox HotPartitionDetector.record_write, where it is fastest",
        samples=interleave(lambda: _time_ours(few, writes_per_ms=WRITES_PER_MS), lambda: _time_rival(few)),
        details={"slowest_us": max(others)},
        at_most={"ratio": 0.5, "slowest_us": 1.0},
        conditions=f"{LOOP_CONDITIONS}; slowest_us: of one key, and of a million, at up to two million a second",
    )


def _keys(count: int) -> list[str]:
    return [f"conversation-{index}" for index in range(count)]


def _time_ours(keys: Sequence[str], *, writes_per_ms: float) -> float:
    record = LoadSampler(environment_id="0" * 32, sampling_distance=5.0, random=Random(7).random).record
    times = [START_MS + int(index / writes_per_ms) for index in range(len(keys))]

    def work(_: int) -> None:
        for key, now_ms in zip(keys, times, strict=True):
            record(key, 1, now_ms)

    return _mean_of_loop(work, lambda: zip(keys, times, strict=True), len(keys))


def _time_rival(keys: Sequence[str]) -> float:
    detector = HotPartitionDetector(writes_threshold=1 << 30, reads_threshold=1 << 30, window_seconds=60)
    record = detector.record_write

    def work(_: int) -> None:
        for key in keys:
            record(TABLE, key)

    return _mean_of_loop(work, lambda: keys, len(keys))


def _mean_of_loop(work: Work, walked: Callable[[], Iterable[object]], count: int) -> float:
    """Measure one round of a loop, without what an empty loop over the same takes."""

    def nothing(_: int) -> None:
        for _each in walked():
            pass

    return (mean_us(work, 1) - mean_us(nothing, 1)) / count


DECISIONS = 100_000
CACHED_ROUTES = 1_000
SHARD_COUNTS = (4, 16)


def measure_route() -> Measured:
    """Decide by a cached route where a message goes, a thousand conversations raised twice each."""
    random, names = Random(7), _keys(CACHED_ROUTES)
    ids = [mint_message_id(START_MS + i, random.getrandbits) for i in range(DECISIONS)]
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
    plain, get_route = dict.fromkeys(names, max(SHARD_COUNTS)), source.for_write

    def ours(_: int) -> None:
        for key in writes:
            choose_placement(get_route(key.collection), key, KEY_FORM)

    def rival(_: int) -> None:
        for key in writes:
            plain[key.collection]
            hashlib.blake2b((key.hashed or "").encode(), digest_size=8).digest()

    return Measured(
        unit="us",
        rival="a dictionary lookup and one BLAKE2b",
        samples=interleave(*(partial(_mean_of_loop, work, lambda: writes, DECISIONS) for work in (ours, rival))),
        at_most={"value": 5.0, "ratio": 3.0},
        conditions=f"{LOOP_CONDITIONS}; {DECISIONS} decisions a run, {CACHED_ROUTES} cached routes of two generations",
    )


REQUESTS = 400
LOAD = "1 KB of text, to a conversation of 16 shards; reports go to a real Redis"


def write_function(folder: Path) -> Work:
    """Load a write function; what is returned writes a message by it, and refuses to time a write that fails."""
    handler, event, context = load_function(folder), write_event(HOT_CONVERSATION), Context()

    def write(_: int) -> None:
        response = handler(event, context)
        if response["statusCode"] != 201:
            raise ValueError(f"the write ended with {response}")

    return write


def measure_write() -> Measured:
    """Serve the same event by both functions."""
    prepare_hot_conversation()
    ours, rival = write_function(LAMBDAS / "write_message"), write_function(RIVAL)
    name = "the same function with a bare put_item: tools/bench/rivals"
    return compare(ours, rival, REQUESTS, rival_name=name, at_most={"ratio": 0.5}, conditions=LOAD)


def measure_floor() -> Measured:
    """Serve an event by our function; put the item that it makes by boto3."""
    prepare_hot_conversation()
    ours, client = write_function(LAMBDAS / "write_message"), create_client(connections=1)
    item: Any = Message(HOT_CONVERSATION, "01HF7YAT00" + "0" * 16, "ann", BODY).to_item(HOT_CONVERSATION)

    def rival(_: int) -> None:
        client.put_item(TableName=TABLE, Item=item)

    name = "a bare boto3 put_item of the same item"
    return compare(ours, rival, REQUESTS, rival_name=name, at_most={"ratio": 0.7}, conditions=LOAD)
