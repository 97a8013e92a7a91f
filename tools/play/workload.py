"""The workload of a demonstration, as plain data: who writes what to which conversation, and when.

Many quiet conversations, and one that is as quiet as they are until its onset and then far hotter than one partition.
A workload is built before anything runs; the same arguments always give the same one.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from tools.play.messages_file import ReplayedMessage
from tools.play.scale import Scale

DEFAULT_DURATION_SECONDS = 66.0
QUIET_CONVERSATIONS = 64
ZIPF_EXPONENT = 0.8
ZIPF_OFFSET = 8
ONSET_SHARE = 0.25
HOT_END_SHARE = 0.85
FEWEST_PER_CONVERSATION = 5
# Before its onset the hot conversation gets this share of its messages, and at most so many.
LEAD_IN_SHARE = 0.03
LONGEST_LEAD_IN = 40
HOT_CONVERSATION = "launch-day"
LONG_BODY_SHARE = 0.02
COMMON_START_SECONDS = 1.0
"""How long the conversations of a file take to begin: all at one instant would be a load test of its own."""

_TALK = (
    "the build is green again who takes the release notes lunch at noon works for me can you look at the graph "
    "it went up after the deploy yes rolling back now thanks that fixed it see the thread above ship it please "
    "anyone seen the new dashboard latency looks fine on my side wow the queue is empty good morning all"
)
_SENDERS = ("ada", "grace", "linus", "barbara", "edsger", "margaret", "ken", "radia", "tim", "frances")


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
    duration_seconds: float
    description: str

    @property
    def conversations(self) -> tuple[str, ...]:
        """List every conversation that is written to, sorted."""
        return tuple(sorted({offer.conversation_id for offer in self.offers}))


def generate_workload(*, seed: int, scale: Scale, duration_seconds: float = DEFAULT_DURATION_SECONDS) -> Workload:
    """Generate the built-in workload: quiet conversations with Zipf-like rates and one that becomes hot."""
    rng = random.Random(seed)
    onset, hot_end = ONSET_SHARE * duration_seconds, HOT_END_SHARE * duration_seconds
    weights = [1 / (rank + ZIPF_OFFSET) ** ZIPF_EXPONENT for rank in range(QUIET_CONVERSATIONS)]
    total = scale.quiet_writes_per_second * duration_seconds
    offers: list[Offer] = []
    for rank, weight in enumerate(weights):
        count = max(FEWEST_PER_CONVERSATION, round(total * weight / sum(weights)))
        times = [rng.uniform(0, duration_seconds) for _ in range(count)]
        offers += [generate_offer(f"room-{rank + 1:03d}", at, rng) for at in times]
    quiet_rate = total / duration_seconds / QUIET_CONVERSATIONS
    lead_in = [rng.uniform(0, onset) for _ in range(max(3, round(quiet_rate * onset)))]
    hot_count = round(scale.hot_writes_per_second * (hot_end - onset))
    hot = [onset, *(rng.uniform(onset, hot_end) for _ in range(hot_count - 1))]
    offers += [generate_offer(HOT_CONVERSATION, at, rng) for at in (*lead_in, *hot)]
    return Workload(
        offers=tuple(sorted(offers)),
        hot_conversation=HOT_CONVERSATION,
        onset_seconds=onset,
        hot_end_seconds=hot_end,
        duration_seconds=duration_seconds,
        description=f"generated with seed {seed}: {len(offers)} messages in {QUIET_CONVERSATIONS + 1} conversations",
    )


def replay_workload(
    messages: Sequence[ReplayedMessage],
    *,
    name: str,
    scale: Scale,
    duration_seconds: float = DEFAULT_DURATION_SECONDS,
) -> Workload:
    """Lay the conversations of a file over one another; each keeps its order, and its messages come evenly.

    The largest becomes the hot one: its first messages are a quiet lead-in, and then come as many as the scale's hot
    rate has room for. Of the next largest ones the first messages are taken, as many as the quiet load needs.
    """
    (hot_id, all_hot), *others = by_conversation(messages)
    onset = ONSET_SHARE * duration_seconds
    lead_in_count = max(1, min(LONGEST_LEAD_IN, round(LEAD_IN_SHARE * len(all_hot))))
    room = round(scale.hot_writes_per_second * (duration_seconds - onset))
    lead_in, hot = all_hot[:lead_in_count], all_hot[lead_in_count : lead_in_count + room]
    hot_end = onset + len(hot) / scale.hot_writes_per_second
    offers = [*_spread(lead_in, 0.0, onset), *_spread(hot, onset, hot_end)]
    quiet = others[:QUIET_CONVERSATIONS]
    each = max(1, round(scale.quiet_writes_per_second * duration_seconds / max(1, len(quiet))))
    for position, (_, own) in enumerate(quiet):
        late = COMMON_START_SECONDS * position / len(quiet)
        offers += _spread(own[:each], late, duration_seconds)
    return Workload(
        offers=tuple(sorted(offers)),
        hot_conversation=hot_id,
        onset_seconds=onset,
        hot_end_seconds=hot_end,
        duration_seconds=duration_seconds,
        description=(
            f"{name}: of {len(messages)} messages in {1 + len(others)} conversations, the first "
            f"{len(hot) + len(lead_in)} of {hot_id}, the largest ({len(all_hot)}), and at most the first {each} of "
            f"each of {len(quiet)} others"
        ),
    )


def by_conversation(messages: Iterable[ReplayedMessage]) -> list[tuple[str, list[ReplayedMessage]]]:
    """Sort the messages of a file: the largest conversation first, each by time."""
    conversations: dict[str, list[ReplayedMessage]] = defaultdict(list)
    for message in sorted(messages, key=attrgetter("time")):
        conversations[message.conversation_id].append(message)
    return sorted(conversations.items(), key=lambda item: (-len(item[1]), item[0]))


def _spread(messages: Sequence[ReplayedMessage], start: float, end: float) -> Iterator[Offer]:
    """Lay messages evenly between two times, the first at the start."""
    for index, message in enumerate(messages):
        at = start + (end - start) * index / len(messages)
        yield Offer(at, message.conversation_id, message.sender, message.text)


def steady_load(
    conversation_id: str, *, rate: float, seconds: float, sender: str = "trial", first: int = 0
) -> Iterator[Offer]:
    """Lay messages of one write unit each over a time, evenly; their numbers begin with `first`."""
    for index in range(int(rate * seconds)):
        yield Offer(index / rate, conversation_id, sender, f"message {first + index}")


def generate_offer(conversation_id: str, at_seconds: float, rng: random.Random) -> Offer:
    """Generate one message of small talk."""
    # A few long messages cost two write units, so that units and messages are not the same number.
    words = rng.randint(200, 320) if rng.random() < LONG_BODY_SHARE else rng.randint(3, 30)
    return Offer(at_seconds, conversation_id, rng.choice(_SENDERS), " ".join(rng.choices(_TALK.split(), k=words)))
