"""The workload: the same seed gives the same messages, files are laid over one another, mistakes are named."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from tools.demo.scale import ScaleError, choose_scale
from tools.demo.workload import (
    HOT_CONVERSATION,
    WorkloadError,
    find_onset,
    generate_workload,
    largest_conversation,
    read_messages_file,
    replay_workload,
)

SCALE = choose_scale(cores=2)


def line(conversation="c", time="2020-01-01T00:00Z", sender="s", text="t") -> str:
    return json.dumps({"conversation_id": conversation, "time": time, "sender": sender, "text": text})


def file_of(tmp_path, lines, name="messages.jsonl"):
    path = tmp_path / name
    text = "\n".join(lines) + "\n"
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def chat(conversation: str, minutes: int, per_minute: int) -> list[str]:
    return [
        line(conversation, f"2020-01-01T{minute // 60:02}:{minute % 60:02}Z", "s", f"{conversation} {minute} {number}")
        for minute in range(minutes)
        for number in range(per_minute)
    ]


def busiest_second(workload, conversation: str) -> int:
    seconds = Counter(int(one.at_seconds) for one in workload.offers if one.conversation_id == conversation)
    return max(seconds.values())


def test_a_generated_workload_depends_on_its_seed_only():
    """Same arguments, same messages; another seed, others."""
    one = generate_workload(seed=1, scale=SCALE)
    assert one == generate_workload(seed=1, scale=SCALE)
    assert one != generate_workload(seed=2, scale=SCALE)


@pytest.mark.parametrize("seed", range(5))
def test_a_generated_workload_has_one_hot_conversation_among_many_quiet_ones(seed):
    """It has what the bars ask for: enough messages and conversations, and one that exceeds a partition's limit."""
    workload = generate_workload(seed=seed, scale=SCALE)
    limit = SCALE.partition_write_limit_wcu
    assert len(workload.offers) >= 5200
    assert len(workload.conversations) >= 60
    assert list(workload.offers) == sorted(workload.offers)
    hot = [offer.at_seconds for offer in workload.offers if offer.conversation_id == HOT_CONVERSATION]
    before = [at for at in hot if at < workload.onset_seconds]
    assert 1 <= len(before) <= workload.onset_seconds * 2
    assert workload.onset_seconds in hot
    assert sum(1 for at in hot if workload.onset_seconds <= at < workload.onset_seconds + 1) > 2 * limit
    assert max(hot) <= workload.hot_end_seconds
    quiet = [name for name in workload.conversations if name != HOT_CONVERSATION]
    assert max(busiest_second(workload, name) for name in quiet) < limit / 2
    sizes = Counter(offer.conversation_id for offer in workload.offers)
    assert sizes["room-001"] > 2 * sizes["room-064"] > 20


def test_a_file_is_laid_over_a_common_start(tmp_path):
    """Conversations of different days begin together, the largest is the hot one, order within each is kept."""
    lines = [
        *chat("small", 30, 2),
        *chat("large", 100, 20),
        line("other", "2021-05-05T10:00+02:00", "x", "first"),
        line("other", "2021-05-05T10:10+02:00", "y", "last"),
    ]
    workload = replay_workload(
        read_messages_file(file_of(tmp_path, lines)), name="f", scale=SCALE, duration_seconds=60.0
    )
    assert workload.hot_conversation == "large"
    assert workload.conversations == ("large", "other", "small")
    by_name = {
        name: [offer for offer in workload.offers if offer.conversation_id == name] for name in workload.conversations
    }
    assert [(offer.at_seconds, offer.body) for offer in by_name["other"]] == [(0.0, "first"), (59.0, "last")]
    assert [offer.body for offer in by_name["small"]] == [f"small {minute} {n}" for minute in range(30) for n in (0, 1)]
    assert [by_name["small"][end].at_seconds for end in (0, -1)] == [0.5, pytest.approx(59.5)]
    hot = [offer.at_seconds for offer in by_name["large"]]
    assert 15.0 <= workload.onset_seconds < 16.0
    assert sum(1 for at in hot if at < workload.onset_seconds) <= 41
    in_heat = [at for at in hot if workload.onset_seconds <= at <= workload.hot_end_seconds]
    rate = len(in_heat) / (workload.hot_end_seconds - workload.onset_seconds)
    assert rate == pytest.approx(SCALE.hot_writes_per_second, rel=0.05)
    assert (workload.available_messages, workload.available_conversations) == (2062, 3)


def test_a_large_file_is_cut_to_what_the_demonstration_has_time_for(tmp_path):
    """Of many long conversations the first messages are taken, and the description says so."""
    lines = [text for number in range(80) for text in chat(f"c{number:02}", 100, 12 if number else 20)]
    workload = replay_workload(read_messages_file(file_of(tmp_path, lines, "m.jsonl.gz")), name="m", scale=SCALE)
    assert 5200 <= len(workload.offers) <= 6000
    assert len(workload.conversations) == 65
    assert "of 96800 messages in 80 conversations, the first 2000 of c00" in workload.description
    assert "of each of 64 others" in workload.description


def test_the_calmest_conversations_are_the_quiet_ones(tmp_path):
    """A conversation that would burst when compressed is passed over while there are calmer ones."""
    calm = [text for number in range(64) for text in chat(f"calm{number:02}", 60, 1)]
    burst = [line("burst", "2020-01-01T00:00Z"), *[line("burst", "2020-01-01T23:00Z", "s", str(n)) for n in range(100)]]
    messages = read_messages_file(file_of(tmp_path, [*chat("large", 100, 20), *calm, *burst]))
    workload = replay_workload(messages, name="f", scale=SCALE)
    assert "burst" not in workload.conversations
    assert len(workload.conversations) == 65


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: not a JSON object"),
        (line(time="yesterday"), "line 2: time 'yesterday' should be like"),
        (line(time="2020-01-01T00:00"), "line 2: time .* should say its time zone"),
        (line(conversation="a#1"), "line 2: conversation_id 'a#1' should be"),
        (line(conversation=""), "line 2: conversation_id '' should be"),
        (line(sender=""), "line 2: sender should be 1 to 256 characters"),
        (json.dumps({"conversation_id": "c", "time": 3}), "line 2: time, sender, text should be given as text"),
    ],
)
def test_a_malformed_line_is_one_clear_error(tmp_path, bad, words):
    """The error names the file, the line and what is wrong."""
    with pytest.raises(WorkloadError, match=words) as caught:
        read_messages_file(file_of(tmp_path, [line(), bad]))
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path):
    """A missing, damaged or empty file is named."""
    damaged = tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(b"no gzip at all")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress((line() + "\n").encode() * 1000)[:60])
    for path in (tmp_path / "absent.jsonl", damaged, cut, file_of(tmp_path, [""])):
        with pytest.raises(WorkloadError, match=path.name):
            read_messages_file(path)


def test_every_line_is_a_message(tmp_path):
    """A message without text is one too; an empty line of the file is none."""
    assert len(read_messages_file(file_of(tmp_path, [line(), line(text=""), "", line()]))) == 3


def test_the_onset_is_where_the_load_exceeds_one_partition():
    """A slow beginning of the hot period is not the onset."""
    times = [0.0, 1.0, *[2.0 + number / 50 for number in range(100)]]
    assert find_onset(times, limit_per_second=20.0) == 2.0
    assert find_onset([5.0, 4.0], limit_per_second=20.0) == 4.0


def test_the_scale_is_one_set():
    """All numbers keep their proportions, but sampling goes on sampling."""
    scale = choose_scale(cores=2)
    factor = scale.factor
    assert scale.settings() == {
        "hot_at_once_wcu": pytest.approx(1000 * factor),
        "hot_sustained_wcu": pytest.approx(800 * factor),
        "target_shard_wcu": pytest.approx(330 * factor),
        "sampling_distance_wcu": 1.25,
        "hot_at_once_rcu": pytest.approx(1500 * factor),
        "hot_sustained_rcu": pytest.approx(1000 * factor),
        "cooled_rcu": pytest.approx(500 * factor),
        "pages_per_copy": pytest.approx(20_000 * factor),
        "read_sampling_distance_rcu": pytest.approx(100 * factor),
        "request_budget_ms": 100,
    }
    assert scale.partition_write_limit_wcu == pytest.approx(1000 * factor)
    assert scale.hot_writes_per_second > 2 * scale.partition_write_limit_wcu
    assert choose_scale(cores=8).factor == pytest.approx(4 * factor)
    assert choose_scale(cores=64) == choose_scale(cores=8)
    assert f"a partition takes {scale.partition_write_limit_wcu:g} WCU/s" in scale.describe()


def test_a_small_file_gets_a_small_scale():
    """The hot conversation stays hot for ten seconds, and one that is too small is a clear error."""
    assert choose_scale(cores=2, largest_conversation=200).hot_writes_per_second == 20
    assert choose_scale(cores=2, largest_conversation=100_000) == choose_scale(cores=2)
    with pytest.raises(ScaleError, match="holds 119 messages; at least 120 are needed"):
        choose_scale(cores=2, largest_conversation=119)


def test_the_largest_conversation_is_counted(tmp_path):
    """The scale of a file follows from it."""
    lines = [*chat("a", 2, 2), *chat("b", 3, 3)]
    assert largest_conversation(read_messages_file(file_of(tmp_path, lines))) == 9
