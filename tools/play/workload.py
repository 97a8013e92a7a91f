"""The workload of a demonstration, as plain data: who writes what to which conversation, and when.

Many quiet conversations, and one that is as quiet as they are until its onset and then far hotter than one partition.
A workload is built before anything runs; the same arguments always give the same one.
"""

from __future__ import annotations

import gzip
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.keys import parse_conversation_id
from tools.play.scale import Scale, WorkloadError
from tools.world.workload import ConversationFlow, Flow, Step, ZipfFlow, constant
from tools.world.workload import Workload as Flows

DEFAULT_DURATION_SECONDS = 66.0
QUIET_CONVERSATIONS = 64
ZIPF_EXPONENT = 0.4
BODY_BYTES = (20, 160)
ONSET_SHARE = 0.25
HOT_END_SHARE = 0.85
LEAD_IN_SHARE = 0.03
LONGEST_LEAD_IN = 40
"""Before its onset the hot conversation of a file gets this share of its messages, and at most this many."""
HOT = "launch-day"
COMMON_START_SECONDS = 1.0
"""How long the conversations of a file take to begin: all at one instant would be a load test of its own."""
LONGEST_SENDER = 256
"""The API's own limit."""
_TALK = (
    "the build is green again who takes the release notes lunch at noon works for me can you look at the graph "
    "it went up after the deploy yes rolling back now thanks that fixed it see the thread above ship it please "
    "anyone seen the new dashboard latency looks fine on my side wow the queue is empty good morning all"
)
WORD_BYTES = 5


@dataclass(frozen=True, slots=True, order=True)
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
    *, seed: int, scale: Scale, duration_seconds: float = DEFAULT_DURATION_SECONDS, hot: str = HOT, prefix: str = "room"
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


def quiet_flow(writes_per_second: float, *, prefix: str = "room") -> Flow:
    """Build the flow of many conversations, none of which is hot."""
    return ZipfFlow(
        conversations=QUIET_CONVERSATIONS,
        shape=constant(writes_per_second),
        exponent=ZIPF_EXPONENT,
        body_bytes=BODY_BYTES,
        prefix=prefix,
    )


def generate_offers(flows: Sequence[Flow], *, seed: int, seconds: float) -> tuple[Offer, ...]:
    """Let the simulator's flows say who writes when, each message of one write unit, and make up small talk for it."""
    rng, words = random.Random(seed), _TALK.split(" ")

    def talk(size: int) -> str:
        return " ".join(rng.choices(words, k=max(1, size // WORD_BYTES)))

    arrivals = Flows(tuple(flows)).arrivals(seconds, seed)
    return tuple(Offer(a.at, a.conversation_id, a.sender, talk(a.body_bytes)) for a in arrivals)


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


def replay_workload(
    conversations: Conversations, *, name: str, scale: Scale, duration_seconds: float = DEFAULT_DURATION_SECONDS
) -> Workload:
    """Lay the conversations of a file over one another; each keeps its order, and its messages come evenly.

    The largest becomes the hot one: its first messages are a quiet lead-in, and then come as many as the scale's hot
    rate has room for. Of the next largest ones the first messages are taken, as many as the quiet load needs.
    """
    (hot_id, all_hot), *others = conversations
    onset = ONSET_SHARE * duration_seconds
    lead_in_count = max(1, min(LONGEST_LEAD_IN, round(LEAD_IN_SHARE * len(all_hot))))
    room = round(scale.hot_writes_per_second * (duration_seconds - onset))
    lead_in, hot = all_hot[:lead_in_count], all_hot[lead_in_count : lead_in_count + room]
    hot_end = onset + len(hot) / scale.hot_writes_per_second
    offers = [*_spread(lead_in, 0.0, onset), *_spread(hot, onset, hot_end)]
    quiet = others[:QUIET_CONVERSATIONS]
    each = max(1, round(scale.quiet_writes_per_second * duration_seconds / max(1, len(quiet))))
    for position, (_, own) in enumerate(quiet):
        offers += _spread(own[:each], COMMON_START_SECONDS * position / len(quiet), duration_seconds)
    return Workload(
        offers=tuple(sorted(offers)),
        hot_conversation=hot_id,
        onset_seconds=onset,
        hot_end_seconds=hot_end,
        description=f"{name}: {len(lead_in) + len(hot)} messages of {hot_id}, and up to {each} of {len(quiet)} others",
    )


def _spread(messages: Sequence[ReplayedMessage], start: float, end: float) -> Iterable[Offer]:
    """Lay messages evenly between two times, the first at the start."""
    for index, message in enumerate(messages):
        at = start + (end - start) * index / len(messages)
        yield Offer(at, message.conversation_id, message.sender, message.text)
