"""`hotpartition`: options, exit statuses, tables and JSON, over the real function's responses."""

import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError
from botocore.session import get_session
from botocore.stub import Stubber

from hotpartition.core.ports import JournalEntry
from hotpartition.core.shares import Share
from hotpartition_cli import commands
from hotpartition_cli.api import Api
from hotpartition_cli.callers import LambdaCaller, UrlCaller, read_response
from hotpartition_cli.errors import FailedError, FoundError, Status, UsageError
from hotpartition_cli.main import run
from hotpartition_cli.rush import Rush, make_rush
from hotpartition_cli.views import VIEWS
from support.builders import World, route_of
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS, Fleet

URL = {"HOTPARTITION_URL": "http://127.0.0.1:1"}


@pytest.fixture
def world():
    world = World()
    world.clock.now_ms = START_MS + 6_000
    world.reports.announce(world.clock.now_ms)
    return world


@pytest.fixture
def tool(connect, capsys):
    """Runs a command against a world: exit status, standard output, standard error."""

    def tool(*arguments, environ=URL, sleep=None):
        status = run(arguments, environ, connect=connect, sleep=sleep or (lambda _: None))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return tool


def write(world, rate=2_000):
    for arrival in Fleet().offer(lambda _: rate, 6_000, "rush"):
        world.reports.send(arrival.report)


class TestClose:
    """A close, as an operator sees it."""

    def test_it_is_planned_then_done_then_shown(self, tool, world):
        """The time of the close is the same in all places; a second one finds nothing to do."""
        world.raise_to(4, START_MS - 60_000)
        status, out, _ = tool("close", "c", "--dry-run")
        assert (status, "c would be closed" in out, "N is 4 now" in out) == (Status.FINE, True, True)
        status, out, _ = tool("close", "c", "--by", "ann", "--json")
        done = json.loads(out)
        assert (status, done["step"]) == (Status.FINE, "confirmed")
        assert done["at"] in tool("route", "c")[1]
        assert [(c["at"], c["is_confirmed"]) for c in json.loads(tool("route", "c", "--json")[1])["closes"]] == [
            (done["at"], False),
            (done["at"], True),
        ]
        assert "closes in 12 min" in tool("hot")[1]
        world.clock.now_ms += 20 * 60_000
        assert "closed 8 min ago" in tool("hot")[1]
        status, out, _ = tool("close", "c")
        assert (status, "on the base key already" in out) == (Status.FINE, True)

    def test_what_is_refused_for_now_is_a_finding(self, tool, world):
        """An hour lies between two closes."""
        world.raise_to(4, START_MS - 60_000)
        tool("close", "c")
        world.clock.now_ms += 20 * 60_000
        world.raise_to(4, world.clock.now_ms)
        status, out, _ = tool("close", "c")
        assert (status, "too little time" in out) == (Status.FINDING, True)


class TestCommands:
    def test_hot(self, tool, world):
        """A row for each conversation; a program gets the response as it is."""
        write(world)
        world.raise_to(4, START_MS - 60_000, conversation_id="old")
        status, out, _ = tool("hot")
        rush, old = (line.split() for line in out.splitlines() if line.split()[:1] in (["rush"], ["old"]))
        assert status == Status.FINE
        assert rush[0] == "rush"
        assert rush[3:] == ["0%", "-", "-", "0", "-"]
        assert old == ["old", "0", "0%", "-", "4", "1", "min", "old", "0", "-"]
        status, out, _ = tool("hot", "--json")
        assert [row["conversation_id"] for row in json.loads(out)["routes"]] == ["rush", "old"]

    def test_hot_all_follows_the_cursor(self, tool, world, monkeypatch):
        """However many there are; hottest first, then the newest."""
        write(world)
        for i in range(2_500):
            world.raise_to(2, i, conversation_id=f"c{i}")
        status, out, _ = tool("hot", "--all", "--json")
        rows = json.loads(out)["routes"]
        assert status == Status.FINE
        assert [row["conversation_id"] for row in rows] == ["rush", *(f"c{i}" for i in reversed(range(2_500)))]
        assert {row["wcu_per_second"] for row in rows[1:]} == {0.0}

    def test_hot_all_does_not_call_cold_what_it_did_not_ask_for(self, tool, world, monkeypatch):
        """With more active conversations than one response holds, the rest is unknown."""
        monkeypatch.setattr(commands, "MAX_HOT", 1)
        write(world)
        for i, (id_, count) in enumerate((("busy", 2), ("idle", 4))):
            world.raise_to(count, i, conversation_id=id_)
        for arrival in Fleet(seed=2).offer(lambda _: 500, 6_000, "busy"):
            world.reports.send(arrival.report)
        _, out, _ = tool("hot", "--all", "--json")
        heats = {row["conversation_id"]: row["wcu_per_second"] for row in json.loads(out)["routes"]}
        assert heats["rush"] > 1_000
        assert (heats["busy"], heats["idle"]) == (None, None)

    def test_an_incomplete_picture_is_a_finding(self, tool, world):
        """And said below the table."""
        world.raise_to(4, 5)
        world.reports.away = {0}
        status, out, _ = tool("hot")
        assert (status, "1 of 2 report streams cannot be read" in out) == (Status.FINDING, True)
        assert "not started" not in out

    @pytest.mark.parametrize("options", [[], ["--all"]])
    def test_without_redis_no_load_is_shown(self, tool, world, options):
        """Not 0: the table has a question mark, a program gets null, and the command failed."""
        write(world)
        world.reports.is_down = world.registry.is_down = True
        out = tool("hot", *options)[1]
        assert ("Nothing is being written" in out, "No partition key was ever raised." in out) == (False, True)
        world.raise_to(4, 5, in_redis=False)
        status, out, err = tool("hot", *options)
        assert (status, "no load can be shown" in out, err) == (Status.FAILED, True, "")
        (row,) = (line.split() for line in out.splitlines() if line.split()[:1] == ["c"])
        assert row[1:4] == ["?", "?", "?"]
        assert "not started" not in out
        status, out, err = tool("hot", *options, "--json")
        document = json.loads(out)
        assert (status, document["active"], "no load can be shown" in err) == (Status.FAILED, None, True)
        assert [row["wcu_per_second"] for row in document["routes"]] == [None]

    def test_one_of_several_consumers_that_does_not_start_is_said(self, tool, world):
        """The others do not make up for it."""
        world.consumers = 2
        world.reports.announce(world.clock.now_ms, Share(1, 2))
        assert "1 of 2 stream consumers have not started for minutes" in " ".join(tool("hot")[1].split())
        world.reports.announce(world.clock.now_ms, Share(0, 2))
        assert "not started" not in tool("hot")[1]
        world.clock.now_ms += 600_000
        assert "nothing is being detected" in tool("hot")[1]

    def test_route(self, tool, world):
        """Equal is fine; a difference is a finding; one that was never raised is fine as well; without Redis, none."""
        tool("raise", "c", "--n", "8", "--by", "ann")
        status, out, _ = tool("route", "c")
        assert (status, "equal" in out, "by-hand" in out, "ann" in out) == (Status.FINE, True, True, True)
        world.registry.routes.clear()
        status, out, _ = tool("route", "c")
        assert (status, "missing-in-registry" in out) == (Status.FINDING, True)
        status, out, _ = tool("route", "d")
        never = "d was never raised: its items, if there are any, are on the base key.\n"
        assert (status, out) == (Status.FINE, never)
        world.registry.is_down = True
        status, out, _ = tool("route", "d")
        never = "d was never raised, by the journal: its items, if there are any, are on the base key.\n"
        assert (status, out) == (Status.FAILED, never)
        status, out, err = tool("route", "c", "--json")
        assert (status, json.loads(out)["agreement"]) == (Status.FAILED, "registry-unavailable")
        assert "Redis did not respond" in err

    def test_raise(self, tool, world):
        """It says what it did, what it costs and when it works; or that there was nothing to do."""
        status, out, _ = tool("raise", "c", "--n", "8", "--since", "2023-11-14T22:13:20Z")
        assert status == Status.FINE
        assert "spread over 8 shards" in out
        assert "2023-11-14T22:13:20.000Z" in out
        assert "queries 8 shard keys" in out
        assert "within 2 s" in out
        assert world.table.routes["c"].route == route_of((8, START_MS))
        status, out, _ = tool("raise", "c", "--n", "4")
        assert (status, "nothing was changed" in out) == (Status.FINE, True)

    def test_raise_says_who_it_was(self, tool, world, monkeypatch):
        """By the name of the user, unless told otherwise; whatever that name is."""
        monkeypatch.setenv("LOGNAME", "ann müller")
        tool("raise", "c", "--n", "8")
        assert world.table.reasons["c"] == "by-hand by=ann_m_ller"

    def test_a_raise_that_redis_does_not_know_of_is_a_finding(self, tool, world):
        """It is done, and there is something left to do."""
        world.registry.is_down = True
        status, out, _ = tool("raise", "c", "--n", "8")
        assert (status, "verify --mend" in out) == (Status.FINDING, True)

    def test_verify(self, tool, world):
        """Differences are a finding until they are repaired."""
        for i in range(250):
            world.raise_to(2, i, conversation_id=f"c{i}")
        assert tool("verify")[0] == Status.FINE
        for i in range(30):
            del world.registry.routes[f"c{i}"]
        world.table.routes |= {c: JournalEntry(e.route, 1) for c, e in world.table.routes.items()}
        status, out, _ = tool("verify")
        assert (status, "and 10 more" in out) == (Status.FINDING, True)
        status, out, _ = tool("verify", "--json")
        document = json.loads(out)
        assert document["counts"] == {
            "equal": 220, "missing-in-registry": 30, "ahead-of-journal": 0, "malformed": 0,
        }  # fmt: skip
        assert len(document["differences"]) == 30
        assert tool("verify", "--mend")[0] == Status.FINE
        assert tool("verify")[0] == Status.FINE

    def test_watch_ends_with_control_c(self, tool, world):
        """And that is no error; where nobody looks at a terminal, each look is a line for a program."""
        looks = []

        def sleep(seconds):
            looks.append(seconds)
            if len(looks) == 3:
                raise KeyboardInterrupt

        status, out, _ = tool("watch", "--every", "7", "--json", sleep=sleep)
        assert (status, looks) == (Status.FINE, [7, 7, 7])
        assert [json.loads(line)["is_complete"] for line in out.splitlines()] == [True] * 3

    def test_watch_survives_a_failure(self, tool, world):
        """It is told, and the next look is taken all the same."""
        looks = []

        def sleep(_):
            looks.append(1)
            world.table.failures = [KEY_RANGE_THROTTLE] * (500 if len(looks) == 1 else 0)
            if len(looks) == 3:
                raise KeyboardInterrupt

        status, out, err = tool("watch", sleep=sleep)
        assert status == Status.FINE
        assert "throttled" in err
        assert out.count("Nothing is being written") == 2

    def test_plan_asks_nobody(self, tool):
        """No function, no URL, no credentials."""
        status, out, _ = tool("plan", "--rate", "5000", "--item-bytes", "1024", environ={})
        assert (status, "at least 5 are needed" in out, "N = 16" in out) == (Status.FINE, True, True)
        status, out, _ = tool("plan", "--rate", "5", "--item-bytes", "1024", "--json", environ={})
        assert (status, json.loads(out)["shard_count"]) == (Status.FINE, 0)

    def test_a_load_that_no_plan_covers_is_a_finding(self, tool):
        """And it says what else there is to do."""
        status, out, _ = tool("plan", "--rate", "5000", "--item-bytes", "1024", "--max-shard-count", "2", environ={})
        assert (status, "does not take the whole load" in out) == (Status.FINDING, True)

    def test_an_item_can_be_in_a_file(self, tool, tmp_path):
        """Behind an @."""
        file = tmp_path / "item.json"
        file.write_text('{"sender": "ann", "body": "hello"}')
        status, out, _ = tool("plan", "--rate", "5", "--item", f"@{file}", "--json", environ={})
        assert (status, json.loads(out)["item_bytes"]) == (Status.FINE, 146)
        status, _, err = tool("plan", "--rate", "5", "--item", f"@{file}x", environ={})
        assert (status, "cannot be read" in err) == (Status.USAGE, True)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "environ", "sentence"),
        [
            (["hot"], {}, "where is the stack?"),
            (["hot"], {"HOTPARTITION_URL": ""}, "where is the stack?"),
            (["check", "--url", "http://a", "--stack", "b"], {}, "two places"),
            (["hot"], {**URL, "HOTPARTITION_FUNCTION": "f"}, "two places"),
            (["dance"], URL, "invalid choice: 'dance'"),
            ([], URL, "COMMAND"),
            (["raise", "c"], URL, "--n"),
            (["raise", "c", "--n", "many"], URL, "argument --n: should be from 2 to 1024, not many"),
            (["raise", "c", "--n", "1"], URL, "argument --n: should be from 2 to 1024, not 1"),
            (["raise", "a#1", "--n", "4"], URL, "1 to 2043 bytes of UTF-8"),
            (["raise", "c", "--n", "4", "--since", "yesterday"], URL, "a time with its offset"),
            (["raise", "c", "--n", "4", "--since", "2026-01-01T00:00:00"], URL, "a time with its offset"),
            (["raise", "c", "--n", "4", "--by", "two words"], URL, "--by should be"),
            (["route", "a#1"], URL, "1 to 2043 bytes of UTF-8"),
            (["hot", "--limit", "0"], URL, "limit"),
            (["watch", "--every", "0"], URL, "from 0.1 to 3600"),
            (["plan", "--rate", "5"], {}, "--item-bytes"),
            (["plan", "--rate", "0", "--item-bytes", "1"], {}, "--rate should be greater than 0"),
            (["rush", "c", "--wcu", "24"], URL, "from 25 to 20000 WCU/s"),
            (["rush", "c", "--seconds", "601"], URL, "from 1 to 600"),
            (["rush", "c", "--function", "f"], {}, "costs money"),
            (["hott"], URL, "Did you mean hot?"),
            (["hot", "--limt", "3"], URL, "Did you mean --limit?"),
        ],
    )
    def test_are_said_in_a_sentence(self, tool, world, arguments, environ, sentence):
        """On standard error, with exit status 2; nothing else happens."""
        status, out, err = tool(*arguments, environ=environ)
        assert (status, out) == (Status.USAGE, "")
        assert sentence in err
        assert err.startswith("hotpartition: ")
        assert err.count("\n") == 1
        assert world.table.routes == {}

    def test_an_option_beats_the_environment(self, world):
        """As everywhere."""
        chosen = []

        def connect(options):
            chosen.append((options.function, options.url))
            raise FailedError("stop", kind="failed")

        environ = {**URL, "HOTPARTITION_FUNCTION": "f"}
        assert run(["hot", "--function", "g"], environ, connect=connect) == Status.FAILED
        assert run(["hot", "--url", "http://u"], environ, connect=connect) == Status.FAILED
        assert run(["hot", "--url", "http://u", "--function", "of_rooms"], environ, connect=connect) == Status.FAILED
        assert chosen == [("g", None), (None, "http://u"), ("of_rooms", "http://u")]

    @pytest.mark.parametrize("command", [[], *([c] for c in ("hot", "route", "raise", "verify", "watch", "plan"))])
    def test_help_has_examples(self, capsys, command):
        """And the whole's has the exit statuses."""
        with pytest.raises(SystemExit) as ended:
            run([*command, "--help"], {})
        out = capsys.readouterr().out
        assert ended.value.code == 0
        assert "example" in out
        assert command or "exit status:" in out


class TestLambda:
    """Through Lambda's API, as botocore would answer."""

    @pytest.fixture
    def client(self):
        session = get_session()
        session.set_credentials("testing", "testing")
        client = session.create_client("lambda", region_name="eu-central-1")
        yield client
        client.close()

    def test_the_response_is_the_payload(self, client):
        """One request, with the command as its payload."""
        with Stubber(client) as stub:
            body = io.BytesIO(b'{"routes": []}')
            expected = {"FunctionName": "f", "Payload": b'{"command": "hot"}'}
            stub.add_response("invoke", {"StatusCode": 200, "Payload": body}, expected)
            assert LambdaCaller("f", client, "eu-central-1")({"command": "hot"}) == {"routes": []}
            stub.assert_no_pending_responses()

    def test_a_function_that_failed_is_named(self, client):
        """Its log says more."""
        with Stubber(client) as stub:
            body = io.BytesIO(b'{"errorType": "KeyError", "errorMessage": "x"}')
            stub.add_response("invoke", {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": body})
            with pytest.raises(FailedError, match="KeyError: x"):
                LambdaCaller("f", client, "eu-central-1")({"command": "hot"})

    @pytest.mark.parametrize(
        ("code", "kind", "sentence"),
        [
            ("ResourceNotFoundException", "not-found", "no function f in eu-central-1.*OperateFunctionName"),
            ("TooManyRequestsException", "throttled", "throttled"),
            ("AccessDeniedException", "access-denied", "lambda:InvokeFunction"),
            ("ExpiredTokenException", "no-credentials", "sign in again"),
            ("ServiceException", "failed", "ServiceException"),
        ],
    )
    def test_refusals_name_the_way_out(self, client, code, kind, sentence):
        """One sentence, and a word for programs."""
        with Stubber(client) as stub:
            stub.add_client_error("invoke", code, http_status_code=400)
            with pytest.raises(FailedError, match=sentence) as caught:
                LambdaCaller("f", client, "eu-central-1")({"command": "hot"})
        assert caught.value.kind == kind

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (NoCredentialsError(), "no-credentials"),
            (EndpointConnectionError(endpoint_url="https://lambda.example"), "unreachable"),
        ],
    )
    def test_what_never_left_is_said(self, error, kind):
        """No credentials, no way there."""

        class Client:
            def invoke(self, **_):
                raise error

        with pytest.raises(FailedError) as caught:
            LambdaCaller("f", Client(), "eu-central-1")({"command": "hot"})
        assert caught.value.kind == kind

    def test_no_region_and_no_profile_are_usage(self, monkeypatch, tmp_path):
        """They are for the caller to set."""
        for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        with pytest.raises(UsageError, match="--region"):
            LambdaCaller.connect("f", region=None, profile=None)
        with pytest.raises(UsageError, match="nobody"):
            LambdaCaller.connect("f", region="eu-central-1", profile="nobody")


class TestResponses:
    @pytest.mark.parametrize(
        ("payload", "is_error", "error"),
        [
            (b"<html>", False, FailedError),
            (b"[]", False, FailedError),
            (b'{"error": {"kind": "invalid-request", "message": "m"}}', False, UsageError),
            (b'{"error": {"kind": "malformed-route", "message": "m"}}', False, FoundError),
            (b'{"error": {"kind": "retry-later", "message": "m"}}', False, FailedError),
            (b'{"errorMessage": "m"}', True, FailedError),
        ],
    )
    def test_errors_have_their_status(self, payload, is_error, error):
        """Wrong, found, or failed."""
        with pytest.raises(error):
            read_response(payload, is_error=is_error)

    @pytest.mark.parametrize("url", ["127.0.0.1:8001", "ftp://a", "http://"])
    def test_what_is_no_url_is_usage(self, url):
        """With what one looks like."""
        with pytest.raises(UsageError, match="should be like http://"):
            UrlCaller(url)

    def test_a_url_that_does_not_respond_is_said(self):
        """Port 1 is nobody's."""
        with pytest.raises(FailedError, match="nothing responds at"):
            UrlCaller("http://127.0.0.1:1")({"command": "hot"})

    def test_a_local_run_may_operate_several_tables(self):
        """Each has its own function; one that is not there is answered with those that are."""

        class Control(BaseHTTPRequestHandler):
            def do_POST(self):
                is_known = self.path == "/functions/rooms_operate/invoke"
                self.send_response(200 if is_known else 404)
                self.end_headers()
                self.wfile.write(b'{"routes": []}' if is_known else b'{"message": "there are rooms_operate and reads"}')

            def log_message(self, *_):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Control) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}"
            assert UrlCaller(url, "rooms_operate")({"command": "routes"}) == {"routes": []}
            with pytest.raises(FailedError, match="no function operate: there are rooms_operate and reads"):
                UrlCaller(url)({"command": "routes"})
            server.shutdown()


class TestRush:
    def test_an_api_that_is_not_there_is_said(self):
        """Every message failed, and why is plain."""
        with pytest.raises(FailedError, match="nothing responds at http"):
            make_rush(Rush("c", 25, 1), Api("http://127.0.0.1:1"), lambda _: None)

    @pytest.mark.parametrize(("seconds", "says"), [(20.0, False), (40.0, True)])
    def test_a_machine_that_did_not_offer_the_load_is_said(self, seconds, says):
        """Otherwise whoever waits for a raise looks for it in the wrong place."""
        document = {
            "conversation_id": "c",
            "offered_wcu_per_second": 2_000.0,
            "seconds": seconds,
            "shard_count": 0,
            "stored": 1_500,
            "throttled": 100,
            "failed": 0,
        }
        assert ("This machine offered 1,000 WCU/s, not 2,000." in str(VIEWS["rush"](document))) == says
