"""The page of heat in a real browser without a window."""

import json
import time
from datetime import UTC, datetime

import boto3
import pytest
from moto import mock_aws

from hotpartition_cli.heat import Heat, Server
from hotpartition_cli.tables import TableCaller
from support.loop import opened
from support.tables import define_table
from tools.play.browser import open_browser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PHONE_PX = 390
MARKUP = "<img src=x onerror='window.ran = 1'>" + 20 * "long"


@pytest.fixture
def browse():
    """Gives orders to a browser's page: `browse("run", "document.title")`. Where there is no browser, it fails."""
    with opened(open_browser()) as (loop, page):
        yield lambda order, *arguments, **more: loop.run(getattr(page, order)(*arguments, **more))


def find_row(key):
    """The row of a key, in JavaScript."""
    return f"[...document.querySelectorAll('#map tr')].find((row) => row.key === {json.dumps(key)})"


def test_a_rush_is_seen_is_raised_and_cools(stack, browse, conversation):
    """On a phone: the row gets hot and is marked; Enter shows why, and the shards' loads; then it is hot no longer."""
    row = find_row(conversation)
    browse("open", stack.status()["page_url"], width=PHONE_PX)
    stack.offer_until(lambda: browse("run", f"{row}?.className === 'hot'"), conversation)
    stack.offer_until(lambda: browse("run", f"{row}.querySelector('.strip .mark')?.textContent") == "▲", conversation)
    drawn = f"getComputedStyle({row}.querySelector('.load')).backgroundImage"
    assert browse("run", drawn).startswith("linear-gradient")

    browse("run", f"{row}.querySelector('button').focus({{focusVisible: true}})")
    browse("wait", "document.querySelector('#tip').textContent.includes('Raised to')")
    browse("press", "Enter")
    for shown in (f"{conversation}#0", "it had more load than its keys take"):
        browse("wait", f"{row}.nextElementSibling.textContent.includes({json.dumps(shown)})")
    assert browse("run", "document.documentElement.scrollWidth") == PHONE_PX
    browse("wait", f"{row}.className === ''")


@pytest.fixture
def page_of_a_table(monkeypatch):
    """The page of a table without Redis, in which a key was raised that would run a script if it were markup."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        boto3.client("dynamodb", "eu-central-1").create_table(TableName="readings", **define_table("PK", "SK"))
        caller = TableCaller.connect("readings", None, {}, time.sleep, region="eu-central-1", profile=None)
        caller({"command": "raise", "conversation_id": MARKUP, "shard_count": 4, "by": "ann"})
        server = Server(Heat(caller, now=lambda: datetime.now(UTC)))
        server.start()
        yield server.url
        server.stop()


def test_a_key_stays_text_and_an_unknown_load_is_no_zero(browse, page_of_a_table):
    """Also where a key is long: nothing scrolls sideways."""
    row = find_row(MARKUP)
    browse("open", page_of_a_table, width=PHONE_PX)
    browse("wait", row + " !== undefined")
    browse("run", f"{row}.querySelector('button').click()")
    browse("wait", f"{row}.nextElementSibling.textContent.includes('by hand, ann')")
    assert browse("run", f"{row}.querySelector('button').textContent") == MARKUP
    cells = f"[...{row}.querySelectorAll('td')].slice(1).map((cell) => cell.textContent)"
    assert browse("run", cells) == ["?", "?", "", "4"]
    assert "the load of other keys is not known" in browse("run", "document.querySelector('#state').textContent")
    assert browse("run", "[document.images.length, window.ran ?? 0]") == [0, 0]
    assert browse("run", "document.documentElement.scrollWidth") == PHONE_PX
