"""Both HTTP functions on one world in memory."""

import json
from dataclasses import dataclass
from typing import Any

from hotpartition_messages.api import respond
from support.builders import World, walk
from support.documents import check_described
from support.events import FakeContext, load_handler, page_event, post_event


@dataclass
class Response:
    """A function's response, as API Gateway takes it."""

    status: int
    headers: dict[str, str]
    body: Any
    text: str


class Api:
    """Both functions, in one process each."""

    def __init__(self) -> None:
        self.world = World()
        self.open()

    def open(self, *, sender_claim: str = "", environment: str | None = None, **settings: float) -> None:
        """Start both functions anew, with these settings."""
        world = self.world
        write, read = load_handler("write_message"), load_handler("read_messages")
        self.routes = {
            **write.build_routes(world.writer(**settings), world.telemetry, sender_claim=sender_claim),
            **read.build_routes(world.reader(environment=environment), world.telemetry),
        }

    def call(self, event: dict[str, Any], context: FakeContext | None = None) -> Response:
        """Respond to an event, and hold every response to what is promised of all of them."""
        # Through JSON, as the runtime gets and gives it.
        raw = json.loads(json.dumps(respond(self.routes, json.loads(json.dumps(event)), context or FakeContext())))
        status, headers, text = raw["statusCode"], raw["headers"], raw["body"]
        text.encode()
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert ("Content-Type" in headers) is bool(text)
        if event["routeKey"] in self.routes:
            check_described(event["routeKey"], status, headers, text)
        body = json.loads(text) if text else None
        if status >= 400:
            assert headers["Content-Type"] == "application/problem+json"
            assert (body["status"], bool(body["title"]), bool(body["detail"])) == (status, True, True)
            assert headers.get("Retry-After") == ("1" if status == 503 else None)
        return Response(status, headers, body, text)

    def post(self, conversation_id: str = "c", **fields: Any) -> Response:
        """Write a good message with some fields changed."""
        return self.call(post_event(conversation_id, {"sender": "ann", "body": "hi"} | fields))

    def write(self, count: int, **fields: Any) -> list[str]:
        """Write messages a millisecond apart; returns their ids."""
        ids = []
        for _ in range(count):
            self.world.clock.now_ms += 1
            ids.append(self.post(**fields).body["message_id"])
        return ids

    def walk(self, **query: Any) -> list[str]:
        """Read page after page; returns the messages' ids."""

        def read(cursor: str | None) -> tuple[list[dict[str, Any]], str | None]:
            page = self.call(page_event("c", **query, **({"cursor": cursor} if cursor else {})))
            assert page.status == 200
            return page.body["messages"], page.body["next_cursor"]

        return [message["message_id"] for messages in walk(read) for message in messages]
