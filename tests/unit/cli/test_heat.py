"""The page of heat: what it says of looks, what it serves, and to whom."""

import json
import re
import urllib.request
from datetime import UTC, datetime
from http import HTTPStatus
from urllib.error import HTTPError

import pytest

from hotpartition.core.times import format_time
from hotpartition_cli.errors import Status
from hotpartition_cli.heat import MOST_KEYS, PAGE, WINDOW_SECONDS, Heat, Server, describe_route, say_state
from hotpartition_cli.main import run
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS, send_load

LOOK = {"active": 1, "is_complete": True, "streams": 1, "streams_unavailable": 0, "gap": None, "seconds": 5.0}
FIVE = [(key, 900, 0.0, 0) for key in "abcde"]
FINE, HOT, UNKNOWN = ["", "", ""], ["hot", "", ""], ["unknown"] * 3
QUIET = "Nothing is hot. Nothing was refused in the last minute, of which 5 s were seen. Every report was seen."
UNSEEN = "What is hot is not known. What was refused in the last minute is not known. Redis is away."
IN_BAND = "No raised key is refused writes; the load of other keys is not known. No write of a raised key was refused"
AWAY = {"active": None, "is_complete": False, "gap": "Redis is away."}


def build_look(*rows, at=0, **more):
    """A look at keys: the name of each, its WCU/s, the share that was refused, and N."""
    names = ("conversation_id", "wcu_per_second", "throttled_share", "shard_count")
    routes = [{**dict(zip(names, row, strict=True)), "capacity_wcu_per_second": 800 * max(1, row[3])} for row in rows]
    return {**LOOK, "routes": routes, "at": format_time(START_MS + 1000 * at), **more}


@pytest.mark.parametrize(
    ("looks", "levels", "words"),
    [
        ([build_look()], FINE, QUIET),
        ([build_look(("a", 40, 0.0, 0))], FINE, "Nothing is hot: a (40 WCU/s) is the busiest key."),
        ([build_look(("a", 799.9, 0.0, 0))], FINE, "Nothing is hot"),
        ([build_look(("a", 800, 0.0, 0))], HOT, "a (800 WCU/s) is hot."),
        ([build_look(("a", 1600, 0.5, 4))], HOT, "a (1,600 WCU/s on 4 shards) is hot. About 4,000 WCU were"),
        ([build_look(*FIVE)], HOT, "c (900 WCU/s) and 2 more are hot."),
        ([build_look(at=at) for at in range(0, 60, 5)], FINE, "refused in the last minute. Every report"),
        ([build_look(("a", 900, 1.0, 0)), build_look(at=61)], FINE, "Nothing was refused in the last minute"),
        ([build_look(**AWAY)], UNKNOWN, UNSEEN),
        ([build_look(is_complete=False, gap="Not all.")], ["", "unknown", "unknown"], "Nothing that was seen is hot"),
        ([build_look(("a", None, None, 2), streams=0)], FINE, IN_BAND),
        ([build_look(("a", 900, 1.0, 2), streams=0)], HOT, "About 4,500 WCU of raised keys were refused"),
        ([], [], ""),
    ],
)
def test_the_line_above_says_what_is_known_and_what_is_not(looks, levels, words):
    said = say_state(looks)
    assert [level for level, _ in said] == levels
    assert words in "".join(text for _, text in said)


def test_a_route_is_described_step_by_step():
    """In the order of its items' times, with the latest decision apart."""

    def made(n, since, *raises):
        names = ("decided_at", "reason", "rate_wcu_per_second", "by")
        return {"shard_count": n, "since": since, "raises": [dict(zip(names, one, strict=True)) for one in raises]}

    generations = [
        made(4, "2026-01-01T12", ("2026-01-05", "new", 5, None), ("2026-01-03", "raised", 1250, None)),
        made(8, "2026-01-02T00:00:00.000Z", ("2026-01-04", "by-hand", None, "ann")),
        made(2, "2026-01-01T"),
    ]
    described = describe_route({"generations": generations, "closes": [{"at": "2026-02-01T", "is_confirmed": True}]})
    assert described["decision"] == "Raised to 4: new (5 WCU/s)."
    assert described["steps"] == [
        ("2026-01-01 ", "2", "not recorded"),
        ("2026-01-01 12", "4", "new (5 WCU/s); it had more load than its keys take (1,250 WCU/s)"),
        ("2026-01-02 00:00:00", "8", "by hand, ann"),
        ("2026-02-01 ", "0", "closed: it had cooled"),
    ]


@pytest.fixture
def heat(connect, world):
    send_load(world, "<b>rush", 2_000)
    return Heat(connect(None), now=lambda: datetime.fromtimestamp(world.clock.now_ms / 1000, UTC))


def test_a_look_is_kept_for_ten_minutes_with_what_it_did_not_see(heat, world):
    heat.look()
    for seconds, is_away, oldest in ((WINDOW_SECONDS, False, 1), (1, True, 2)):
        world.clock.now_ms += 1_000 * seconds
        world.reports.is_down = world.registry.is_down = is_away
        heat.look()
        assert heat.looks[0]["number"] == oldest
    looks = heat.feed(1)["looks"]
    assert [(look["number"], look["seconds"], look["is_all"]) for look in looks] == [(2, 5, True), (3, 1, False)]
    assert [look["gap"][:22] for look in looks] == ["No stream consumer has", "Redis does not respond"]
    assert heat.feed(2)["looks"] == looks[1:]


def test_what_fails_shows_as_not_known(heat, world):
    """A look, and later ones are taken all the same; a route."""
    assert heat.show_route("<b>rush")["steps"] == []
    world.table.failures = [KEY_RANGE_THROTTLE] * 1_000
    heat.look()
    (look,) = heat.feed()["looks"]
    assert (look["active"], look["routes"], look["at"]) == (None, [], format_time(world.clock.now_ms))
    assert "throttled" in look["gap"]
    assert [level for level, _ in heat.feed()["state"]] == UNKNOWN
    assert "throttled" in heat.show_route("<b>rush")["error"]


def test_a_key_that_is_not_listed_is_cold_only_where_all_with_a_load_are(heat):
    heat.limit = 1
    heat.look()
    heat.call = lambda command, call=heat.call: {**call(command), "active": 2}
    heat.look()
    assert [look["is_all"] for look in heat.looks] == [True, False]


@pytest.fixture
def server(heat):
    server = Server(heat)
    server.start()
    yield server
    server.stop()


def get(server, path, **headers):
    request = urllib.request.Request(server.url + path, headers=headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request) as response:  # noqa: S310
            return response.status, response.headers, response.read().decode()
    except HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_the_server_is_on_loopback_and_lets_nothing_else_run(server):
    status, headers, page = get(server, "/")
    policy = headers["Content-Security-Policy"]
    assert (status, page, server.server_address[0]) == (HTTPStatus.OK, PAGE, "127.0.0.1")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert policy.count("'sha256-") == 2


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", ""])
def test_another_name_is_refused(server, host):
    """A site that points its own name at this machine reads nothing."""
    for path in ("/", "/feed?after=0", "/route?key=a"):
        status, headers, body = get(server, path, Host=host)
        assert (status, body) == (HTTPStatus.FORBIDDEN, f"Open {server.url}/")
        assert "Content-Security-Policy" in headers


def test_looks_and_routes_are_json_and_nothing_else_is_served(server):
    """It looks only once the page was asked for: one that is not opened costs nothing."""
    for _ in range(20):
        assert json.loads(get(server, "/feed?after=0")[2])["looks"] == []
    assert not server.asked.is_set()
    get(server, "/")
    while not (feed := json.loads(get(server, "/feed?after=0")[2]))["looks"]:
        pass
    assert feed["looks"][0]["routes"][0]["conversation_id"] == "<b>rush"
    status, headers, body = get(server, "/route?key=%3Cb%3Erush")
    assert (status, headers["Content-Type"]) == (HTTPStatus.OK, "application/json; charset=utf-8")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert json.loads(body)["shards"] is None
    for path in ("/other", "/feed", "/feed?after=x", "/route", "/../heat.py"):
        assert get(server, path)[0] == HTTPStatus.NOT_FOUND


def test_the_command_serves_until_control_c(connect, world, capsys):
    """And says what it cannot do: more keys than a browser holds, a port that is taken."""
    pages = []

    def watch(*options, sleep=None):
        return run(["watch", "--page", *options], {"HOTPARTITION_URL": "x"}, connect=connect, sleep=sleep)

    def look_and_end(_):
        url = re.search("http://[0-9.:]+", capsys.readouterr().err)[0]
        pages.append(urllib.request.urlopen(url).read().decode())  # noqa: S310
        assert watch("--port", url.rpartition(":")[2]) == Status.USAGE
        raise KeyboardInterrupt

    assert watch(sleep=look_and_end) == Status.FINE
    assert pages == [PAGE]
    assert "port" in capsys.readouterr().err
    assert watch("--limit", f"{MOST_KEYS + 1}") == Status.USAGE
    assert f"at most {MOST_KEYS} keys" in capsys.readouterr().err


def test_the_page_is_one_file_that_asks_no_other_host():
    """It stays small, and nothing in it takes text for markup."""
    assert len(PAGE.splitlines()) < 400
    assert re.findall(r"https?:|src=|href=|@import|innerHTML|outerHTML|insertAdjacent|document\.write|eval", PAGE) == []
