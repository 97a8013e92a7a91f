"""A file of messages as a scenario, for `MESSAGES=`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from tools.simulation.scenarios import COMPARISON, Scenario
from tools.simulation.workloads import ReplayFlow, Workload

REPLAY_SECONDS = 30.0
"""Whatever time the messages took, they are replayed within this one."""
REST_SECONDS = 5.0
"""How long the run goes on after them."""


def replay(path: Path) -> Scenario:
    """Build a scenario of the file's largest conversations; the very largest counts as the one that gets hot."""
    flow = ReplayFlow(path=path, seconds=REPLAY_SECONDS)
    sizes = Counter(arrival.conversation_id for arrival in Workload((flow,)).arrivals(REPLAY_SECONDS + REST_SECONDS, 0))
    if not sizes:
        raise ValueError(f"{path} holds no messages")
    largest = min(sizes, key=lambda conversation: (-sizes[conversation], conversation))
    return replace(
        COMPARISON,
        name="replay",
        description=(
            f"{sizes.total():,} messages of {path.name}, {sizes[largest]:,} of them in the largest conversation, "
            f"replayed within {REPLAY_SECONDS:g} s."
        ),
        workload=Workload((flow,)),
        seconds=REPLAY_SECONDS + REST_SECONDS,
        onset=0.0,
        heat_end=REPLAY_SECONDS,
        hot_conversation=largest,
    )
