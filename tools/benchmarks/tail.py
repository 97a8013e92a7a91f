"""`read-16-tail`: the slowest hundredth of reads when a hundredth of the queries is slow, with and without hedging.

Time is virtual (`tools/simulation/engine.py`): the reader, its hedges and the stand-in's responses are the real ones,
and a pause of the machine lengthens nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from hotpartition.core.hedging import HEDGE_CONNECTIONS, HedgePolicy
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition_messages.settings import ReadSettings
from tools.benchmarks.measuring import MILLISECONDS, Bar, Measured, interleave
from tools.benchmarks.pages import SERVICE_MS, check_reader, our_reader, store_conversations
from tools.benchmarks.setup import Setup
from tools.benchmarks.stand_in import Delays, Items
from tools.simulation.engine import Engine, SimulatedExecutor, wait_for

CONVERSATIONS = 24
SLOW_MS = 100.0
SLOW_SHARE = 0.01
SPREAD = 0.25
"""Of the logarithm of usual delays: one response in forty takes more than 8 ms, so some hedges are for nothing."""
READS = 1_000
QUANTILE = 0.99


def measure_tail(setup: Setup) -> Measured:
    """Read every conversation in turn; both sides draw their delays from the same seeds."""
    items = Items()
    conversations = store_conversations(setup, CONVERSATIONS, 16, load=items.load)
    settings = ReadSettings.from_env(os.environ)
    count = setup.count(READS)

    def slowest_ms(policy: HedgePolicy | None, seed: int) -> float:
        engine = Engine()
        calls = _open_calls(engine, items, Random(seed), policy, settings.queries.fan_out_threads)
        read = our_reader(calls=calls)
        times: list[float] = []

        def read_in_turn() -> None:
            check_reader(read, conversations)  # and hedging gains experience
            for index in range(count):
                started = engine.now
                read(conversations[index % len(conversations)])
                times.append((engine.now - started) * MILLISECONDS)

        engine.spawn(read_in_turn)
        engine.run_until(math.inf)
        engine.close()
        return sorted(times)[int(count * QUANTILE)]

    ours, rival = iter(range(setup.runs)), iter(range(setup.runs))
    return Measured(
        unit="ms, 99th percentile",
        rival="ours without hedging",
        samples=interleave(
            lambda: slowest_ms(HedgePolicy(quantile=settings.queries.hedge_quantile), next(ours)),
            lambda: slowest_ms(None, next(rival)),
            setup.runs,
        ),
        bars=(Bar("ratio", at_most=0.3),),
        conditions=f"virtual time: only responses take any, {SERVICE_MS:g} ms in the median (lognormal, {SPREAD:g}), "
        f"one in a hundred {SLOW_MS:g} ms; 99th percentile of {count} pages a run; "
        "hedging has seen each conversation once before",
    )


def _open_calls(
    engine: Engine, items: Items, random: Random, policy: HedgePolicy | None, parallel: int
) -> ThreadedCalls:
    """Open a client whose threads are tasks of the engine, and whose requests take only the time that is drawn."""
    delays = Delays(SERVICE_MS, SLOW_MS, SLOW_SHARE, random)

    def call(operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        is_usual = (delay := delays.next_seconds()) * MILLISECONDS < SLOW_MS
        engine.sleep(delay * random.lognormvariate(0, SPREAD) if is_usual else delay)
        response: dict[str, Any] = json.loads(items.respond(operation, dict(request))[1])
        return response

    return ThreadedCalls(
        call,
        SimulatedExecutor(engine, None, parallel + HEDGE_CONNECTIONS),
        parallel=parallel,
        policy=policy,
        timer=lambda: engine.now,
        wait=partial(wait_for, engine),
    )
