"""The workload of a demonstration, as plain data, and its scale: who writes what to which conversation, and when.

Many quiet conversations, and one that is as quiet as they are until its onset and then far hotter than one partition.
A workload is built before anything runs; the same arguments always give the same one. The scale is how much smaller
than DynamoDB's its partitions and its load are. It follows what this machine gets done while whatever else runs on it,
which is measured for a second.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.keys import parse_conversation_id
from tools.limits import PARTITION_RCU, PARTITION_WCU
from tools.world.scaling import scale_reads, scale_thresholds
from tools.world.workload import ConversationFlow, Flow, Step, ZipfFlow, constant, list_arrivals

# Lambda adds environments while throttled requests hold theirs; here there are a few, and each that waits keeps load
# from being offered. So a refused write goes back to its client sooner than by default (300 ms).
REQUEST_BUDGET_MS = 100
WRITES_PER_SECOND_AND_CORE = 50.0
MOST_CORES = 8
HOT_SHARE = 0.6
QUIET_SHARE = 0.45
HOT_TIMES_LIMIT = 3.0
"""The hot conversation is offered this many times what one partition takes."""
SHORTEST_HOT_SECONDS = 10.0
"""A smaller largest conversation is played more slowly, against a smaller limit, so that it is hot for this long."""
SMALLEST_HOT_WRITES_PER_SECOND = 12.0
USUAL_ROUNDS_PER_SECOND = 6_500
"""What one core of the machine for which the rates above were chosen does of `_ROUNDS`."""
AS_USUAL = 0.75
"""From this share on a machine counts as that one: nothing else is at work on it."""
_ROUNDS = """
import hashlib, json, time
page = {"messages": [{"message_id": str(n), "body": "x" * 200} for n in range(50)]}
ends_at, rounds = time.perf_counter() + 1.0, 0
while time.perf_counter() < ends_at:
    hashlib.sha256(json.dumps(json.loads(json.dumps(page))).encode()).digest()
    rounds += 1
print(rounds)
"""
"""A second of what the local run does most, counted."""
DEFAULT_DURATION_SECONDS = 66.0
QUIET_CONVERSATIONS = 64
ZIPF_EXPONENT = 0.4
BODY_BYTES = (20, 160)
ONSET_SHARE = 0.25
HOT_END_SHARE = 0.85
HOT, PREFIX = "launch-day", "room"
LONGEST_SENDER = 256
"""The API's own limit."""


class WorkloadError(ValueError):
    """A file cannot be played; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Load in writes a second, which are WCU for short messages, and what follows from how much of it is hot.

    `speed` is what this machine's cores get done while others are at work on them, as a share of what they usually do.
    """

    hot_writes_per_second: float
    quiet_writes_per_second: float
    cores: int
    speed: float = 1.0
    max_shard_count: int | None = None

    @property
    def factor(self) -> float:
        """What everything is scaled by."""
        return self.hot_writes_per_second / HOT_TIMES_LIMIT / PARTITION_WCU

    @property
    def partition_write_limit_wcu(self) -> float:
        """What one physical partition takes a second."""
        return round(PARTITION_WCU * self.factor, 3)

    @property
    def partition_read_limit_rcu(self) -> float:
        """What one physical partition serves a second."""
        return round(PARTITION_RCU * self.factor, 3)

    def settings(self) -> dict[str, float]:
        """Build the functions' settings by field name."""
        settings = scale_thresholds(self.factor) | scale_reads(self.factor) | {"request_budget_ms": REQUEST_BUDGET_MS}
        return settings if self.max_shard_count is None else {**settings, "max_shard_count": self.max_shard_count}


def usable_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_scale(largest_conversation: int | None = None) -> Scale:
    """Choose the scale for this machine by what all of its cores together get done in a second now."""
    cores, command = usable_cores(), [sys.executable, "-c", _ROUNDS]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    share = sum(int(process.communicate()[0]) for process in running) / (cores * USUAL_ROUNDS_PER_SECOND)
    speed = 1.0 if share >= AS_USUAL else share
    return choose_scale(cores=cores, speed=speed, largest_conversation=largest_conversation)


def choose_scale(*, cores: int, speed: float = 1.0, largest_conversation: int | None = None) -> Scale:
    """Choose the scale for a machine at its speed, and for a file whose largest conversation has this many messages."""
    carried = speed * WRITES_PER_SECOND_AND_CORE * max(1, min(cores, MOST_CORES))
    carried = max(carried, SMALLEST_HOT_WRITES_PER_SECOND / HOT_SHARE)
    hot = HOT_SHARE * carried
    if largest_conversation is not None:
        hot = min(hot, floor(largest_conversation / SHORTEST_HOT_SECONDS))
        if hot < SMALLEST_HOT_WRITES_PER_SECOND:
            needed = ceil(SMALLEST_HOT_WRITES_PER_SECOND * SHORTEST_HOT_SECONDS)
            raise WorkloadError(f"the largest conversation holds {largest_conversation} messages, and needs {needed}")
    return Scale(hot_writes_per_second=hot, quiet_writes_per_second=QUIET_SHARE * carried, cores=cores, speed=speed)


@dataclass(frozen=True, slots=True)
class Offer:
    """One message that is to be written `at_seconds` after the start."""

    at_seconds: float
    conversation_id: str
    sender: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A schedule, sorted by time, and what is known about it."""

    offers: tuple[Offer, ...]
    hot_conversation: str
    onset_seconds: float
    hot_end_seconds: float
    description: str

    @property
    def conversations(self) -> tuple[str, ...]:
        """List every conversation that is written to, sorted."""
        return tuple(sorted({offer.conversation_id for offer in self.offers}))


def generate_workload(
    *, seed: int, scale: Scale, duration_seconds: float = DEFAULT_DURATION_SECONDS, hot: str = HOT, prefix: str = PREFIX
) -> Workload:
    """Generate the built-in workload: quiet conversations with Zipf-like rates and one that becomes hot."""
    onset, hot_end = ONSET_SHARE * duration_seconds, HOT_END_SHARE * duration_seconds
    quiet = scale.quiet_writes_per_second
    rise = Step(before=quiet / QUIET_CONVERSATIONS, after=scale.hot_writes_per_second, onset=onset, end=hot_end)
    hot_flow = ConversationFlow(conversation_id=hot, shape=rise, body_bytes=BODY_BYTES)
    offers = generate_offers([hot_flow, quiet_flow(quiet, prefix=prefix)], seed=seed, seconds=duration_seconds)
    return Workload(
        offers=offers,
        hot_conversation=hot,
        onset_seconds=onset,
        hot_end_seconds=hot_end,
        description=f"generated with seed {seed}: {len(offers)} messages in {QUIET_CONVERSATIONS + 1} conversations",
    )


def quiet_flow(writes_per_second: float, *, prefix: str = PREFIX) -> Flow:
    """Build the flow of many conversations, none of which is hot."""
    return ZipfFlow(
        conversations=QUIET_CONVERSATIONS,
        shape=constant(writes_per_second),
        exponent=ZIPF_EXPONENT,
        body_bytes=BODY_BYTES,
        prefix=prefix,
    )


def generate_offers(flows: Sequence[Flow], *, seed: int, seconds: float) -> tuple[Offer, ...]:
    """Let the simulator's flows say who writes when; each message is one write unit, and unlike all others."""
    arrivals = enumerate(list_arrivals(flows, seconds, seed))
    return tuple(
        Offer(each.at, each.conversation_id, each.sender, f"message {number} ".ljust(each.body_bytes, "."))
        for number, each in arrivals
    )


def steady_load(
    conversation_id: str, *, rate: float, seconds: float, sender: str = "trial", first: int = 0
) -> Iterator[Offer]:
    """Lay messages of one write unit each over a time, evenly; their numbers begin with `first`."""
    for index in range(int(rate * seconds)):
        yield Offer(index / rate, conversation_id, sender, f"message {first + index}")


class ReplayedMessage(BaseModel):
    """One line of a file of messages, a JSON object."""

    conversation_id: Annotated[str, AfterValidator(parse_conversation_id)]
    time: AwareDatetime
    sender: str = Field(min_length=1, max_length=LONGEST_SENDER)
    text: str


Conversations = Sequence[tuple[str, Sequence[ReplayedMessage]]]
"""The conversations of a file: the largest first, the messages of each by time."""


def read_messages_file(path: Path) -> Conversations:
    """Read a file of messages, gzipped if its name ends in `.gz`.

    Raises:
        WorkloadError: it cannot be read, or a line of it.
    """
    number = 0
    conversations: dict[str, list[ReplayedMessage]] = defaultdict(list)
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007 - said of the line that fails
                if line.strip():
                    message = ReplayedMessage.model_validate_json(line)
                    conversations[message.conversation_id].append(message)
    except (OSError, EOFError, ValueError, InvalidRequestError) as error:
        raise WorkloadError(f"cannot read {path}, line {number}: {error}") from error
    if not conversations:
        raise WorkloadError(f"{path} holds no messages")
    for messages in conversations.values():
        messages.sort(key=attrgetter("time"))
    return sorted(conversations.items(), key=lambda item: (-len(item[1]), item[0]))


def replay_workload(planned: Workload, conversations: Conversations, *, name: str) -> Workload:
    """Put the messages of a file into a schedule: its largest conversation becomes hot, and each keeps its order.

    A conversation ends with its messages, or with the schedule.
    """
    places = [planned.hot_conversation, *(f"{PREFIX}-{rank}" for rank in range(QUIET_CONVERSATIONS))]
    waiting = {place: (own, iter(messages)) for place, (own, messages) in zip(places, conversations, strict=False)}
    offers = []
    for offer in planned.offers:
        own, messages = waiting.get(offer.conversation_id, ("", iter(())))
        if message := next(messages, None):
            offers.append(Offer(offer.at_seconds, own, message.sender, message.text))
    hot = conversations[0][0]
    last = max(offer.at_seconds for offer in offers if offer.conversation_id == hot)
    return Workload(
        offers=tuple(offers),
        hot_conversation=hot,
        onset_seconds=planned.onset_seconds,
        hot_end_seconds=min(planned.hot_end_seconds, last),
        description=f"{name}: {len(offers)} messages of {len(waiting)} conversations, the largest of which is {hot}",
    )
