"""The workload of a demonstration, as plain data: who writes what to which conversation, and when.

Many quiet conversations, and one that is as quiet as they are until its onset and then far hotter than one partition.
A workload is built before anything runs; the same arguments always give the same one.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
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
TARGET_MESSAGES = 5400
LONG_BODY_SHARE = 0.02
COMMON_START_SECONDS = 1.0
SECONDS_PER_MINUTE = 60.0

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


def largest_conversation(messages: Sequence[ReplayedMessage]) -> int:
    """Count the messages of the largest conversation."""
    return max(len(own) for own in _by_conversation(messages).values())


def replay_workload(
    messages: Sequence[ReplayedMessage],
    *,
    name: str,
    scale: Scale,
    duration_seconds: float = DEFAULT_DURATION_SECONDS,
) -> Workload:
    """Lay the conversations of a file over one another from a common start, each compressed in time.

    The largest becomes the hot one: its first messages are a quiet lead-in, the rest is compressed into the hot period,
    as much as the scale's hot rate has room for. Of the others the calmest are taken, so that one is hot and not many,
    and of each its first messages, as many as the target needs.
    """
    conversations = sorted(_by_conversation(messages).items(), key=lambda item: (-len(item[1]), item[0]))
    hot_id, hot_messages = conversations[0]
    onset = ONSET_SHARE * duration_seconds
    share = min(1.0, duration_seconds / DEFAULT_DURATION_SECONDS)
    lead_in_count = max(1, min(LONGEST_LEAD_IN, round(LEAD_IN_SHARE * len(hot_messages))))
    room = round(scale.hot_writes_per_second * (duration_seconds - onset))
    hot = hot_messages[: lead_in_count + room]
    lead_in, hot = hot[:lead_in_count], hot[lead_in_count:]
    hot_end = onset + len(hot) / scale.hot_writes_per_second
    wanted = min(
        max(0, round(TARGET_MESSAGES * share) - len(hot) - len(lead_in)),
        round(scale.quiet_writes_per_second * duration_seconds * 1.2),
    )
    quiet = _calmest(conversations[1:], wanted=wanted, duration_seconds=duration_seconds)
    taken = _take_evenly([len(own) for own in quiet], wanted)
    offers = [*_compress(lead_in, 0.0, onset), *_compress(hot, onset, hot_end)]
    for position, (own, count) in enumerate(zip(quiet, taken, strict=True)):
        # The common start is one second long: all first messages in one instant would be a load test of their own.
        late = COMMON_START_SECONDS * position / len(quiet)
        offers += _compress(own[:count], late, duration_seconds - COMMON_START_SECONDS + late)
    onset = find_onset(
        [offer.at_seconds for offer in offers if offer.conversation_id == hot_id and offer.at_seconds >= onset],
        limit_per_second=scale.partition_write_limit_wcu,
    )
    sizes = sorted({count for count in taken if count})
    others = sum(1 for count in taken if count)
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}" if sizes else "0"
    return Workload(
        offers=tuple(sorted(offers)),
        hot_conversation=hot_id,
        onset_seconds=onset,
        hot_end_seconds=hot_end,
        duration_seconds=duration_seconds,
        description=(
            f"{name}: of {len(messages)} messages in {len(conversations)} conversations, the first "
            f"{len(hot) + len(lead_in)} of {hot_id}, the largest ({len(hot_messages)}), and the first {each} of "
            f"each of {others} others"
        ),
    )


def find_onset(times: Sequence[float], *, limit_per_second: float) -> float:
    """Find when a load becomes more than one partition takes: the first write whose next second exceeds the limit.

    A load that never does begins with its first write.
    """
    ordered = sorted(times)
    end = 0
    for start, at in enumerate(ordered):
        while end < len(ordered) and ordered[end] < at + 1.0:
            end += 1
        if end - start > limit_per_second:
            return at
    return ordered[0]


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


def _by_conversation(messages: Iterable[ReplayedMessage]) -> dict[str, list[ReplayedMessage]]:
    conversations: dict[str, list[ReplayedMessage]] = defaultdict(list)
    for message in messages:
        conversations[message.conversation_id].append(message)
    # The sort is stable: messages of one minute keep their order in the file.
    return {name: sorted(own, key=attrgetter("minute")) for name, own in conversations.items()}


def _calmest(
    conversations: Sequence[tuple[str, list[ReplayedMessage]]], *, wanted: int, duration_seconds: float
) -> list[list[ReplayedMessage]]:
    """Choose the conversations whose busiest second is the least busy, once they are compressed."""
    each = max(1, wanted // max(1, min(len(conversations), QUIET_CONVERSATIONS)))

    def busiest_second(conversation: tuple[str, list[ReplayedMessage]]) -> tuple[int, str]:
        name, own = conversation
        seconds = Counter(int(offer.at_seconds) for offer in _compress(own[:each], 0.0, duration_seconds))
        return max(seconds.values()), name

    return [own for _, own in sorted(conversations, key=busiest_second)[:QUIET_CONVERSATIONS]]


def _take_evenly(sizes: Sequence[int], wanted: int) -> list[int]:
    """Share `wanted` over conversations of these sizes, as evenly as their sizes allow."""
    taken = [0] * len(sizes)
    left = wanted
    for position, index in enumerate(sorted(range(len(sizes)), key=lambda index: sizes[index])):
        taken[index] = min(sizes[index], left // (len(sizes) - position))
        left -= taken[index]
    return taken


def _compress(messages: Sequence[ReplayedMessage], start: float, end: float) -> Iterator[Offer]:
    """Lay messages between `start` and `end` in proportion to their times, those of one minute spread over it."""
    spread: list[tuple[float, ReplayedMessage]] = []
    for minute, group in groupby(messages, key=attrgetter("minute")):
        own = list(group)
        spread += [
            (minute + SECONDS_PER_MINUTE * (index + 0.5) / len(own), message) for index, message in enumerate(own)
        ]
    if not spread:
        return
    first, last = spread[0][0], spread[-1][0]
    stretch = (end - start) / (last - first) if last > first else 0.0
    for at, message in spread:
        yield Offer(start + (at - first) * stretch, message.conversation_id, message.sender, message.text)
