"""What each judge of the player passes and fails on: its bars at their edges.

It is long because bars are missed one at a time, each by a row of its own, and because what is measured is written out
by hand.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from dataclasses import replace
from math import inf
from random import Random
from types import SimpleNamespace

import pytest

from hotpartition.core.route import Close, Generation
from hotpartition.core.times import format_time
from tools.history import FAULTS, Read, Seen, Verdict
from tools.local.metering import TimelineRow
from tools.play.__main__ import parse_arguments
from tools.play.client import NO_RESPONSE, Client, HttpApi, Recorder, Response
from tools.play.demo import Demonstration
from tools.play.detect import Detection, Heat
from tools.play.example import DEVICES, HOT_SITE, DevicesApi, EveryView
from tools.play.read import READING, Asked, Kill, ReadRush, ReadTrials
from tools.play.soak import GATEWAY_FAILURE, KINDS, Soak
from tools.play.stack import Control, Observations, watch_route
from tools.play.verdict import (
    Hot,
    Machine,
    Throttles,
    count_busiest_second,
    count_taken_by_one_key,
    count_throttles,
    measure_machine,
)
from tools.play.workload import (
    Offer,
    WorkloadError,
    choose_scale,
    generate_workload,
    read_messages_file,
    replay_workload,
)

GOOD = {"partition_limit_wcu": 20.0, "onset_to_raise_seconds": 3.0, "max_n": 4, "keys_after_close": None}
FAULTLESS = {"acknowledged": 5000, "conversations": 50, "reads": 200, "examples": (), **dict.fromkeys(FAULTS, 0)}
SCALE = choose_scale(cores=2)
SMALL = generate_workload(seed=1, scale=SCALE, duration_seconds=1.0)
FALLING = Throttles(before_raise=10, after_raise=3, in_first_second=10, in_last_third=9)
LATE = {"onset_to_raise_seconds": 9.0, "max_n": 3}


def missed(bars):
    """Say which bars were missed, and by which figure."""
    return [(bar.name, bar.measured) for bar in bars if not bar.holds]


def run_of(kind, *, notes=(), kept_up=True, killed=0, known=None, **given):
    """A run of which some is known, as if it had been carried out."""
    recorder = Recorder(notes=list(notes))
    if issubclass(kind, Demonstration):
        given = {"workload": SMALL, "scale": SCALE, **given}
    run = kind(seed=1, out_dir=None, recorder=recorder, now=lambda: 0.0, **given)
    # A consumer that was killed was serving no client.
    killed = {"write_message": killed - 1, "read_messages": 1, "consume_reports": 7}
    run.control = Control(None, "", {"functions": {name: {"killed": count} for name, count in killed.items()}})
    vars(run).update({"machine": Machine(kept_up, ""), **(known or {})})
    return run


def read_to_the_ends(run, **complete):
    """Let all views have been read to their ends, but for what is changed."""
    run.complete.update({kind: 2 * len(views) for kind, views in run.list_views().items()} | complete)
    return run


def judged(summary=None, history=None, throttles=None, *, offered=5_264, conversations=65, busiest_second=0, **more):
    """Judge a run that just reaches every bar, but for what is changed."""
    offers = tuple(Offer(0.0, f"c-{number % conversations}", "", "") for number in range(offered))
    closes, complete, workload = more.pop("closes", {}), more.pop("complete", {}), replace(SMALL, offers=offers)
    known = {
        "figures": {**GOOD, **(summary or {})},
        "history": Verdict(**FAULTLESS | (history or {})),
        "throttles": replace(FALLING, **throttles or {}),
        "timeline": (TimelineRow(0, workload.hot_conversation, busiest_second),),
    }
    run = run_of(more.pop("kind", Demonstration), workload=workload, known=known, **more)
    run.seen.closes.update(closes)
    return read_to_the_ends(run, **complete).judgement


def shown(**complete):
    """Judge the example."""
    return judged(kind=EveryView, application=DevicesApi, complete=complete)


def soaked(*, not_injected="", not_met="", spread=15, failed=2, notes=(), complete=60, **history):
    """Judge a soak that just reaches every bar, but for what is changed."""
    injected, met = (
        Counter({kind.name: times for kind in KINDS if kind.name != left_out})
        for times, left_out in ((1, not_injected), (5, not_met))
    )
    workload = replace(SMALL, offers=tuple(Offer(0.0, f"rush-{number:03d}", "", "") for number in range(30)))
    written = [f"rush-{number:03d}#{shard}" for number in range(spread) for shard in (0, 11)]
    timeline = [TimelineRow(0, key, writes=1) for key in (*written, "rush-020", "room-001")]
    # What was only read is not spread, and neither is a base key.
    timeline.append(TimelineRow(0, "rush-021#1", reads=1))
    known = {"history": Verdict(**FAULTLESS | {"acknowledged": 50_000, **history}), "timeline": tuple(timeline)}
    notes = [*["write to c " + GATEWAY_FAILURE] * failed, *notes]
    more = {"workload": workload, "injected": injected, "met": met, "load_seconds": 600.0, "needed": 50_000}
    return read_to_the_ends(run_of(Soak, notes=notes, killed=2, known=known, **more), conversation=complete).judgement


def heat(after=1.0, shard_counts=(4,), share=0.05):
    return Heat(raised_after_seconds=after, shard_counts=shard_counts, environments=50, largest_share=share)


def heated(*odd):
    """Judge twenty trials of detection, of which some are odd."""
    return run_of(Detection, trials=20, heats=[heat()] * (20 - len(odd)) + list(odd)).judgement


FOUND, LATER = 100.0, 110.0
SHOWN = (Seen("0" * 26, "d"),)
SEEN = Read(conversation_id="c", newest_first=True, started_at=LATER, messages=SHOWN)
STALE = replace(SEEN, is_strong=False, messages=(), bound_seconds=3.0)
DIED = Asked(LATER, LATER + 0.1, 500)
REFUSED = Asked(LATER, LATER + 2.1, 503, None, "DynamoDB did not respond (curl error 28)")
BEFORE = Asked(FOUND - 0.5, FOUND - 0.4, 503)


def page(age=0.3):
    return Asked(LATER, LATER + 0.01, 200, LATER - age)


def rushed(*asked, kills=(True,), found=FOUND, reads=(), notes=()):
    """Judge a rush of readers, in which two pages were served, from when it was found."""
    kills = [Kill(LATER, 0.05, hit_holder=hit) for hit in kills]
    run = run_of(ReadTrials, notes=notes, trials=len(kills), began=FOUND - 1.0, found=found, kills=kills)
    run.recorder.reads += [SEEN, *reads]
    run.recorder.note_acknowledged("c", SHOWN[0].message_id, "d", 1.0)
    run.rush = ReadRush(client=None, conversation_id="c", asked=[page(), page(), *asked])
    return run.judgement


DEMONSTRATION = [
    ({"summary": {"max_n": 3}}, "largest N", 3),
    ({"summary": {"onset_to_raise_seconds": 3.001}}, "onset to raise", 3.001),
    ({"summary": {"onset_to_raise_seconds": None}}, "onset to raise", None),
    ({"summary": {"keys_after_close": 2}, "is_whole": True}, "newest page of what has cooled", 2),
    ({"summary": {"keys_after_close": 0}, "is_whole": True}, "newest page of what has cooled", None),
    ({"history": {"acknowledged": 4999}}, "messages acknowledged", 4999),
    ({"history": {"acknowledged": 94}, "offered": 100}, "messages acknowledged", 94),
    ({"history": {"conversations": 49}}, "conversations", 49),
    ({"history": {"missing": 1}}, "no message missing", 1),
    ({"history": {"duplicated": 1}}, "no message duplicated", 1),
    ({"history": {"out_of_order": 1}}, "no message out of order", 1),
    ({"history": {"altered": 1}}, "no message altered", 1),
    ({"history": {"phantom": 1}, "application": DevicesApi}, "no reading from nowhere", 1),
    ({"history": {"stale": 1}}, "no page beyond the staleness bound", 1),
    ({"history": {"unverified": 1}}, "every message looked for", 4999),
    ({"complete": {"conversation": 129}}, "conversation complete", 129),
    ({"throttles": {"in_last_third": 10}}, "throttles fall", 10),
    ({"throttles": {"in_first_second": 0, "in_last_third": 0}}, "throttles fall", 0),
    ({"notes": ("read of c answered 502",)}, "no unexpected response", 1),
    ({"closes": {Close(1, True): 0.0}, "kept_up": False}, "not closed in the heat", 1),
    ({"summary": LATE, "history": {"acknowledged": 4000}, "kept_up": False, "busiest_second": 61}, "largest N", 3),
    ({"summary": LATE, "history": {"missing": 1}, "kept_up": False}, "no message missing", 1),
]
EXAMPLE = [
    ({"hourly view": 129}, "hourly view complete", 129),
    ({"readings of one device": 39}, "readings of one device complete", 39),
]
SOAK = [
    ({"missing": 1}, "no message missing", 1),
    ({"acknowledged": 49_999}, "messages acknowledged", 49_999),
    ({"notes": ["read of c answered 500: {'type': 'unreadable-route'}"]}, "no unexpected response", 1),
    ({"spread": 14}, "conversations spread", 14),
    ({"not_injected": "redis-paused"}, "every kind of fault injected", len(KINDS) - 1),
    ({"not_met": "dynamodb-slow"}, "every fault of DynamoDB met by requests", 19),
    ({"failed": 3}, "only killed environments failed", 3),
    ({"complete": 59}, "conversation complete", 59),
]


DETECTION = [
    ((heat(after=2.01),) * 2, "raised within 2 s", 18),
    ((heat(after=None),) * 2, "raised within 2 s", 18),
    ((heat(shard_counts=(3, 8)),) * 3, "took one raise", 17),
    ((heat(share=0.11),), "offered by one environment", 0.11),
]
READERS = [
    ((DIED, DIED), {}, "requests that died", 2),
    ((Asked(LATER, LATER, 503, None, "busy"),), {}, "pages refused", 1),
    ((page(age=3.1),), {}, "the oldest page", pytest.approx(3.1)),
    ((), {"kills": (True, False)}, "holders killed", 1),
    ((), {"found": inf}, "found read-hot", None),
    ((), {"reads": (STALE,)}, "no page beyond the staleness bound", 1),
    ((), {"notes": ("write to c answered 500",)}, "no unexpected response", 1),
    ((REFUSED,) * 3, {}, "pages served", 2),
]


@pytest.mark.parametrize(
    ("judge", "given", "changes", "name", "measured"),
    [
        *((by, (), *row) for by, rows in ((judged, DEMONSTRATION), (shown, EXAMPLE), (soaked, SOAK)) for row in rows),
        *((heated, given, {}, *row) for given, *row in DETECTION),
        *((rushed, *row) for row in READERS),
    ],
)
def test_a_run_fails_for_each_bar_alone(judge, given, changes, name, measured):
    """It says which. On a machine that has not kept up, the promises and closes are judged all the same."""
    assert judge().verdict == "pass"
    judgement = judge(*given, **changes)
    assert missed(judgement.bars) == [(name, measured)]
    assert judgement.verdict == "fail"


@pytest.mark.parametrize(
    ("judge", "given"),
    [
        # 19 of 20 in time, 18 of 20 in one raise, and no environment above a tenth of the threshold.
        (heated, (heat(after=2.0), heat(after=2.5), heat(shard_counts=(3, 8), share=0.1), heat(shard_counts=(3, 8)))),
        (rushed, (DIED,)),  # with the process that served it
        (rushed, (REFUSED,)),  # the machine stood still
        (rushed, (BEFORE,)),  # it is what the cache is for
    ],
)
def test_what_trials_may_show_passes(judge, given):
    assert judge(*given).verdict == "pass"


@pytest.mark.parametrize(("odd", "status", "verdict"), [((), 0, "pass"), ((heat(after=None),) * 2, 1, "fail")])
def test_a_bar_that_is_missed_fails_the_run(odd, status, verdict, tmp_path, monkeypatch, capsys):
    async def carry_out(_):
        """It is over."""

    monkeypatch.setattr(Detection, "_carry_out", carry_out)
    run = Detection(out_dir=tmp_path, seed=1, trials=20, heats=[heat()] * (20 - len(odd)) + list(odd))
    run.recorder.note_acknowledged("c", "m", "d", 1.0)
    assert asyncio.run(run.present()) == status
    said = capsys.readouterr().out
    assert "unverified" not in said  # nothing is read
    assert ("MISSED" in said, f"verdict: {verdict} after" in said) == (status == 1, True)
    assert json.loads((tmp_path / "summary.json").read_text())["detected"] == 20 - len(odd)


def test_a_load_that_was_not_offered_in_time_is_not_judged():
    """Nothing that depends on time, and N only by what DynamoDB saw."""
    late = {"summary": LATE, "history": {"acknowledged": 4000}, "throttles": {"in_last_third": 10}}
    judgement = judged(**late, kept_up=False, busiest_second=60)
    assert judgement.verdict == "pass"
    assert judgement.not_judged == ("messages acknowledged", "onset to raise", "throttles fall")
    assert judged(kept_up=False).not_judged == ()


def test_a_small_workload_is_held_to_what_it_has():
    """That of a machine at its usual speed has no excuse."""
    usual = generate_workload(seed=1, scale=SCALE)
    assert len(usual.offers) * 0.95 >= 5_000
    assert len(usual.conversations) >= 50
    assert judged(history={"acknowledged": 95, "conversations": 3}, offered=100, conversations=3).verdict == "pass"


@pytest.mark.parametrize(("queued_long", "late", "kept_up"), [(0, 0, True), (5, 5, True), (6, 0, False), (0, 6, False)])
def test_a_machine_keeps_up_while_few_messages_wait_for_it(queued_long, late, kept_up):
    """At most one in twenty waits more than 50 ms for an environment, or is offered late; 50 ms are not long."""
    waits = [0.05] * (100 - queued_long) + [0.2] * queued_long
    machine = measure_machine(waits, [0.25] * (100 - late) + [0.3] * late)
    assert machine.kept_up is kept_up
    assert f"{queued_long} of 100 write requests" in machine.description


def test_throttles_are_counted_by_when_and_where_they_were():
    """Only the hot conversation's own keys count, the onset's bucket belongs to the first second."""
    rows = (9_500, "hot", 1), (10_000, "hot", 2), (11_000, "hot", 4), (11_250, "hot#3", 8), (11_250, "hotter", 100)
    later = (11_250, "quiet", 100), (18_000, "hot", 16), (19_250, "hot#0", 32), (22_250, "hot", 64)
    timeline = [TimelineRow(at_ms, key, writes=1, throttled_writes=count) for at_ms, key, count in rows + later]
    counted = count_throttles(timeline, conversation_id="hot", raised_at=11.25, hot=Hot(begins=10.2, ends=22.2))
    assert counted == Throttles(before_raise=7, after_raise=120, in_first_second=6, in_last_third=32)
    never = count_throttles(timeline, conversation_id="hot", raised_at=None, hot=Hot(begins=10.2, ends=22.2))
    assert (never.before_raise, never.after_raise) == (127, 0)
    # What was stored counts as well: 5 and 9 of the two keys in the second from 11 s on.
    assert count_busiest_second(timeline[:6], "hot") == 14


def page_of(message_id, cursor):
    message = {"conversation_id": "c", "message_id": message_id, "sender": "s", "body": "b"}
    return Response(200, {"messages": [message], "next_cursor": cursor})


@pytest.mark.parametrize(("last", "ids"), [(page_of("1", None), ["0", "1"]), (Response(400), ["0"])])
def test_a_read_follows_its_cursors_from_its_first_page(last, ids):
    """It began with that page, and one that was broken off is not complete."""
    moments, pages = iter(range(1, 20)), {None: page_of("0", "x"), "x": last}

    async def respond(_, parameters):
        return pages[parameters.get("cursor")]

    api = SimpleNamespace(read=respond, find_part=HttpApi(None, "", 1).find_part)
    client = Client(api=api, recorder=Recorder(), rng=Random(1), now=lambda: next(moments))
    is_all = asyncio.run(client.read("c", order="oldest", consistency="strong", limit=1))
    (read_,) = client.recorder.reads
    assert (is_all, read_.complete) == (len(ids) == 2, len(ids) == 2)
    assert ([seen.message_id for seen in read_.messages], read_.started_at) == (ids, 2)


NAMED = {"message_id": "7"}


@pytest.mark.parametrize(
    ("responses", "sent", "stored", "nameless"),
    [
        ([Response(201, NAMED)], [None], ["7"], 0),
        ([Response(429, NAMED), NO_RESPONSE, Response(201, NAMED)], [None, "7", "7"], ["7"], 0),
        ([NO_RESPONSE], [None], [], 1),
        ([Response(503)], [None], [], 1),
    ],
)
def test_a_write_without_an_id_is_repeated_under_the_one_that_a_refusal_names(responses, sent, stored, nameless):
    """Without one, it could be stored twice: it is not repeated then, and it is unknown whether it is stored."""
    left, ids = iter(responses), []

    async def respond(_, message):
        ids.append(message.get("message_id"))
        return next(left)

    api, recorder = SimpleNamespace(write=respond), Recorder()
    client = Client(api=api, recorder=recorder, rng=Random(1), now=lambda: 1.0, mint=lambda *_: None, replay_share=0.0)
    asyncio.run(client.write(Offer(0.0, "c", "s", "b")))
    assert (ids, recorder.acknowledged_ids("c"), recorder.nameless.total()) == (sent, stored, nameless)


@pytest.mark.parametrize(
    ("clocks", "age", "read_at", "bound"),
    [
        (False, 2.0, 8.5, 2.0),
        (False, None, 10.0, READING.page_staleness_seconds),
        (False, 60.0, -49.5, READING.page_staleness_seconds),
        (True, 2.0, 4.0 + READING.settle_seconds, 2.0),
    ],
)
def test_a_page_of_a_rush_is_judged_by_its_age_and_asked_for_again_when_its_process_died(clocks, age, read_at, bound):
    """It was read when its `Age` says or, where clocks are right, what is settled; no bound is wider than the usual."""
    body = {"messages": [], "next_cursor": None, "settled_until": format_time(4_000)}
    responses, moments = iter([NO_RESPONSE, Response(200, body, age_seconds=age)]), iter([9.0, 9.5, 10.0, 10.5])

    async def respond(*_):
        return next(responses)

    api, recorder = SimpleNamespace(read=respond), Recorder()
    client = Client(api=api, recorder=recorder, rng=None, now=lambda: next(moments))
    rush = ReadRush(client=client, conversation_id="c", are_clocks_right=clocks)
    asyncio.run(rush.ask())
    assert rush.asked == [Asked(9.0, 9.5, 0), Asked(10.0, 10.5, 200, read_at)]
    (read_,) = recorder.reads
    assert (read_.is_strong, read_.newest_first, read_.complete, read_.bound_seconds) == (False, True, True, bound)


def test_the_server_mints_half_of_the_ids():
    rng = Random(1)
    assert 400 < [HttpApi(None, "", 1).mint(None, 1.0, rng) for _ in range(1_000)].count(None) < 600


@pytest.mark.parametrize(
    "arguments", ["demo --duration 0", "example --duration abc", "soak --seconds -1", "detect --trials 0"]
)
def test_a_run_says_what_it_can_be_given(arguments, capsys):
    assert parse_arguments(["demo", "--duration", "0.5"]).duration == 0.5
    with pytest.raises(SystemExit):
        parse_arguments(arguments.split())
    *_, option, value = arguments.split()
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"{option}: '{value}' should be a" in said
    assert "number that is more than 0 and at most" in said


class Stored:
    """The control API of a run whose journal holds a raise and a close."""

    async def routing_item(self, _):
        members = [Generation(1_000, 4).encode(), Close(2_000, True).encode()]
        return {"generations": {"SS": members}, "updated_at": {"S": "1970-01-01T00:00:04+00:00"}}


@pytest.mark.parametrize(("began", "seen_at"), [(3.0, 4.0), (4.5, 5.0)])
def test_raises_and_closes_are_read_from_the_journal(began, seen_at):
    """A raise was when the journal says, if that lies between two looks; a close is when it was first seen."""
    moments, seen = iter([began, began, 5.0, 5.0, 6.0, 6.0, 6.0]), Observations()
    twice = SimpleNamespace(is_set=iter([False, False, True]).__next__)
    asyncio.run(watch_route(Stored(), "c", seen, now=lambda: next(moments), stopped=twice))
    assert seen.raises == {Generation(1_000, 4): seen_at}
    assert list(seen.closes.items()) == [(Close(2_000, True), 5.0)]


@pytest.mark.parametrize(("onset", "raised_at"), [(10.0, 11.0), (13.0, None)])
def test_the_raise_of_an_onset_is_the_first_after_it(onset, raised_at):
    """A raise before the onset was for something else."""
    run = run_of(Demonstration, known={"hot": Hot(begins=onset, ends=20.0)})
    run.seen.raises.update({Generation(1_000, n): at for n, at in ((2, 5.0), (4, 12.0), (3, 11.0))})
    assert run.raised_at == raised_at


@pytest.mark.parametrize(("speed", "hot", "quiet"), [(1.0, 60.0, 45.0), (0.5, 30.0, 22.5), (0.01, 12.0, 9.0)])
def test_a_slow_machine_plays_the_same_story_smaller(speed, hot, quiet):
    """As much slower as the machine, and never so slow that it would not be hot: three times what a partition takes."""
    scale = choose_scale(cores=2, speed=speed)
    assert (scale.hot_writes_per_second, scale.quiet_writes_per_second) == (hot, quiet)
    assert scale.partition_write_limit_wcu == hot / 3


def test_the_messages_of_a_file_take_the_place_of_generated_ones(tmp_path):
    """Its largest conversation becomes hot, each keeps its order by time; a file in which none is large is refused."""
    lines = [
        json.dumps({"conversation_id": name, "time": f"2027-01-15T08:00:00.{at:03}Z", "sender": "s", "text": str(at)})
        for name, count in (("few", 5), ("most", 200))
        for at in reversed(range(count))
    ]
    with gzip.open(tmp_path / "file.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    found = read_messages_file(tmp_path / "file.jsonl.gz")
    scale = choose_scale(cores=2, largest_conversation=len(found[0][1]))
    replayed = replay_workload(generate_workload(seed=1, scale=scale), found, name="file")
    assert (replayed.hot_conversation, scale.hot_writes_per_second) == ("most", 20)
    for name, count in (("few", 5), ("most", 200)):
        own = [offer for offer in replayed.offers if offer.conversation_id == name]
        assert [offer.body for offer in own] == [str(at) for at in range(count)]
    assert replayed.hot_end_seconds == own[-1].at_seconds
    with pytest.raises(WorkloadError, match="119 messages, and needs 120"):
        choose_scale(cores=2, largest_conversation=119)


def test_one_key_takes_what_its_partition_does():
    """Two seconds of thirty writes each, at a limit of 20: what was saved before them, and 20 a second."""
    moments = [1_700_000_000 + at / 30 for at in range(60)]
    for offered, taken in ((moments, 60), (2 * moments, 60), ([], 0)):
        assert count_taken_by_one_key(offered, 20.0) == pytest.approx(taken, abs=1)


@pytest.mark.parametrize(
    ("view", "shown", "fault"),
    [
        ("hourly", (0, 1), None),
        ("hourly", (1,), "missing"),
        (f"devices/{DEVICES[1]}", (1,), None),
        (f"devices/{DEVICES[1]}", (), "missing"),
        (f"devices/{DEVICES[1]}", (0, 1), "phantom"),
    ],
)
def test_a_view_of_the_example_is_judged_as_a_read_of_its_site(view, shown, fault):
    """A reading that a device's view, or the hourly one, does not show is missed; another device's does not belong."""
    recorder = Recorder()
    ids = [f"2027-01-15T08:00:00.250Z#{device}" for device in DEVICES[:2]]
    for id_ in ids:
        recorder.note_acknowledged(HOT_SITE, id_, "d", 1.0)
    site, covers = DevicesApi(None, "", 1).find_part(f"{HOT_SITE}/{view}")
    recorder.note_whole_read(HOT_SITE, [Seen(id_, "d") for id_ in ids], 2.0, 2.0)
    recorder.note_whole_read(site, [Seen(ids[index], "d") for index in shown], 2.0, 2.0, covers=covers)
    assert [finding.fault for finding in recorder.judge().examples] == ([fault] if fault else [])


@pytest.mark.parametrize(("pid", "times"), [(7, 1), (None, 0)])
def test_a_kill_that_met_no_process_was_not_injected(pid, times):
    run = run_of(Soak, load_seconds=600.0, needed=1)

    async def get(_):
        return {"injected": {}}

    async def post(_):
        return {"pid": pid}

    run.control = SimpleNamespace(get=get, post=post)
    (kind,) = (kind for kind in KINDS if kind.name == "writer-killed")
    asyncio.run(run._inject(kind, 0.0, asyncio.Event()))
    assert run.injected[kind.name] == times


@pytest.mark.parametrize("last", [Response(404), Response(200, {"messages": [], "next_cursor": None})])
def test_a_view_counts_as_complete_for_each_end_to_which_it_was_read(last):
    pages = {None: Response(200, {"messages": [], "next_cursor": "2"}), "2": last}
    whole = Response(200, {"messages": [], "next_cursor": None})
    run = run_of(EveryView, application=DevicesApi)
    cut = f"{run.workload.conversations[0]}/hourly"

    async def respond(name, parameters):
        return pages[parameters.get("cursor")] if name == cut else whole

    api = SimpleNamespace(read=respond, find_part=DevicesApi(None, "", 1).find_part)
    run.reader = Client(api=api, recorder=run.recorder, rng=Random(1), now=lambda: 1.0)
    asyncio.run(run.read_views())
    sites = len(run.workload.conversations)
    hourly = sites - (last.status == 404)
    assert run.complete == {"site": 2 * sites, "hourly view": 2 * hourly, "readings of one device": 2 * len(DEVICES)}
