"""The two functions on every pattern: what is stored is read again, completely, by every kind of read."""

import ast
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

FUNCTIONS = Path(__file__).resolve().parents[1] / "functions"
START = datetime(2026, 11, 21, 8, 59, 58, tzinfo=UTC)
RANGE = {"from": "2026-11-21T08:00:00Z", "to": "2026-11-21T11:00:00Z"}
ONE, BATCH = "POST /sites/{site}/readings", "POST /sites/{site}/readings/batch"
SITE, DEVICE = "GET /sites/{site}/readings", "GET /sites/{site}/devices/{device}/readings"
HOURLY = "GET /sites/{site}/hourly"


def reading(number):
    at = START + timedelta(seconds=number // 4)
    return {"device": f"dev-{number % 4}", "taken_at": at.isoformat(), "celsius": 20 + number / 10}


def read_all(call, route, **query):
    """All pages of a read: what was taken when, by whom."""
    path, found, cursor = {"site": "plant-1"}, [], {}
    if route == DEVICE:
        path["device"] = "dev-1"
    while True:
        status, page = call(route, **path, query={**RANGE, "limit": "15", **query, **cursor})
        assert status == 200, page
        # Readings of one device may be none of those that a page looks at.
        assert (route != DEVICE) <= len(page["readings"]) <= 15
        found += [(one["taken_at"], one["device"], one["celsius"]) for one in page["readings"]]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


@pytest.fixture
def written(call):
    """Readings of four devices, across the edge of an hour: half of them one by one, some sent twice."""
    for number in [*range(12), 3, 3]:
        assert call(ONE, site="plant-1", body=reading(number))[0] == 201
    for _ in range(2):
        assert call(BATCH, site="plant-1", body={"readings": [reading(n) for n in range(12, 24)]})[0] == 201
    shown = [(f"{r['taken_at'][:19]}.000Z", r["device"], r["celsius"]) for r in map(reading, range(24))]
    return sorted(shown)


@pytest.mark.parametrize("pattern", ["random", "calculated", "buckets", "adaptive"])
def test_every_kind_of_read_is_complete(call, written):
    """Page by page, in either direction, each reading once; and a range has both of its ends."""
    newest_first = written[::-1]
    assert read_all(call, SITE, order="oldest", consistency="strong") == written
    assert read_all(call, HOURLY) == newest_first
    assert read_all(call, DEVICE) == [one for one in newest_first if one[1] == "dev-1"]
    at = "2026-11-21T09:00:00.000Z"
    status, page = call(SITE, site="plant-1", query={"from": at, "to": "2026-11-21T10:00:00+01:00"})
    assert (status, {one["taken_at"] for one in page["readings"]}, len(page["readings"])) == (200, {at}, 4)


@pytest.mark.parametrize(
    ("route", "body", "query", "named"),
    [
        (ONE, {"device": "a b", "celsius": 1}, None, "device should be"),
        (ONE, {"device": "a", "celsius": "warm"}, None, "celsius should be"),
        (ONE, {"device": "a", "celsius": 1, "taken_at": "noon"}, None, "taken_at should be a time"),
        (ONE, {"device": "a", "celsius": 1, "site": "b"}, None, "a reading should be an object of"),
        (BATCH, {"readings": []}, None, "a list of 1 to 100"),
        (BATCH, {"readings": [reading(1), reading(1)]}, None, "another device or time"),
        (SITE, None, {"limit": "0"}, "limit should be"),
        (SITE, None, {"from": "2026-11-21T08:00:00"}, "from should be a time with its offset"),
        (SITE, None, {"cursor": "x"}, "the time of cursor"),
        (HOURLY, None, {"order": "any"}, "order should be newest or oldest"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(call, route, body, query, named):
    """With status 400."""
    status, document = call(route, site="plant-1", body=body, query=query)
    assert status == 400
    assert named in document["message"]


def test_only_what_makes_the_table_knows_of_shards():
    """Outside of `open_table`, and of its imports, no line of the functions says how keys are spread."""
    words = ("shard", "salt", "suffix", "fixed(", "adaptive(", "hashed", "redis", "journal")
    told = []
    for path in FUNCTIONS.glob("*.py"):
        lines = path.read_text().splitlines()
        (made,) = [node for node in ast.parse(path.read_text()).body if getattr(node, "name", "") == "open_table"] or [
            None
        ]
        allowed = range(made.lineno, made.end_lineno + 1) if made else ()
        for number, line in enumerate(lines, 1):
            is_import = line.startswith(("from hotpartition", "import"))
            if number not in allowed and not is_import and any(word in line.lower() for word in words):
                told.append((path.name, line))
    assert told == []


@pytest.mark.parametrize("pattern", ["random"])
def test_a_request_looks_at_a_bounded_part_of_the_site(call, monkeypatch):
    """A device without readings gets empty pages, each with a cursor, until the end of the site's."""
    import reads  # noqa: PLC0415

    monkeypatch.setattr(reads, "LOOKED_AT", 1)
    assert call(BATCH, site="plant-1", body={"readings": [reading(number) for number in range(24)]})[0] == 201
    pages, cursor = 0, {}
    while cursor is not None:
        path = {"site": "plant-1", "device": "dev-9"}
        status, page = call(DEVICE, **path, query={**RANGE, **cursor})
        assert (status, page["readings"]) == (200, [])
        cursor = page["next_cursor"] and {"cursor": page["next_cursor"]}
        pages += 1
    assert pages >= 24 / 17
