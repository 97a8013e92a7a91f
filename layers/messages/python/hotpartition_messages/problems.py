"""The kinds of errors that the API responds with, as RFC 9457 problem documents.

Every error has one shape, `application/problem+json` with `type`, `title`, `status` and `detail`; `errors` names the
wrong fields, and `message_id` the id that a refused write should be repeated with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from hotpartition_messages.requests import EXAMPLE_MESSAGE

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemKind:
    """One kind of error: its response, and its text in the API's description.

    `example` holds the members that every document of this kind has beside `type`, `title` and `status`.
    """

    name: str
    status: HTTPStatus
    meaning: str
    example: Mapping[str, Any]
    title: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of such a response."""
        is_worth_repeating = self.status is HTTPStatus.SERVICE_UNAVAILABLE
        return {"Retry-After": str(RETRY_AFTER_SECONDS)} if is_worth_repeating else {}

    def members(self) -> dict[str, Any]:
        """Build the members that say which kind it is."""
        title = self.title or self.status.phrase
        return {"type": f"urn:hotpartition:{self.name}", "title": title, "status": int(self.status)}


_THROTTLED = "DynamoDB throttled the request (Table{}KeyRangeThroughputExceeded); repeat the request"

INVALID_REQUEST = ProblemKind(
    name="invalid-request",
    status=HTTPStatus.BAD_REQUEST,
    meaning="The request is wrong; every wrong field is named",
    example={
        "detail": "limit: Input should be less than or equal to 200",
        "errors": [{"field": "limit", "message": "Input should be less than or equal to 200"}],
    },
)
NOT_THE_SENDER = ProblemKind(
    name="not-the-sender",
    status=HTTPStatus.FORBIDDEN,
    meaning="With `api.sender_claim`: the caller is not the message's sender, or has no such claim",
    example={"detail": "the message's sender should be the caller's sub, or be left out"},
)
MESSAGE_NOT_FOUND = ProblemKind(
    name="message-not-found",
    status=HTTPStatus.NOT_FOUND,
    meaning="No such message is stored; with `consistency=strong`, it was stored nowhere when the read began",
    example={"detail": "no message with this id is stored in this conversation"},
)
MESSAGE_GONE = ProblemKind(
    name="message-gone",
    status=HTTPStatus.GONE,
    meaning="The message was deleted, and stays so; a write also gets it for what would have expired already",
    example={"detail": "the message was deleted or has expired; nothing brings it back"},
)
MESSAGE_CHANGED = ProblemKind(
    name="message-changed",
    status=HTTPStatus.PRECONDITION_FAILED,
    meaning="The message has none of the entity tags of `If-Match`: somebody changed it since",
    example={"detail": "the message was changed since; read it again"},
)
CHANGE_LATER = ProblemKind(
    name="retry-later",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    meaning="The message could not be changed within the budget, or its outcome is unknown; repeat the request",
    example={"detail": _THROTTLED.format("Write")},
)
NO_SUCH_RESOURCE = ProblemKind(
    name="no-such-resource",
    status=HTTPStatus.NOT_FOUND,
    meaning="There is no such path",
    example={"detail": "there is no such resource"},
)
MESSAGE_CONFLICT = ProblemKind(
    name="message-conflict",
    status=HTTPStatus.CONFLICT,
    meaning="The id is taken by other content, which stays as it is; nothing was stored now",
    example={
        "detail": "a message with this id and other content is already stored",
        "message_id": EXAMPLE_MESSAGE["message_id"],
    },
)
UNSUPPORTED_ENCODING = ProblemKind(
    name="unsupported-encoding",
    status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    meaning="The body is compressed, or encoded in another way: `Content-Encoding` is not taken",
    example={"detail": "the request's body should be sent as it is, without a Content-Encoding"},
)
MESSAGE_TOO_LARGE = ProblemKind(
    name="message-too-large",
    status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    title="Content Too Large",  # its phrase depends on the version of Python
    meaning="The message would need more than DynamoDB's 400 KiB, or the body is longer than any message's",
    example={"detail": "the message needs 410215 bytes in storage; 409600 are allowed"},
)
WRITE_LATER = ProblemKind(
    name="retry-later",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    meaning="DynamoDB refused for the whole budget; repeat the request with this `message_id`",
    example={
        "detail": f"{_THROTTLED.format('Write')} with this message_id: that is safe, whatever became of this attempt",
        "message_id": EXAMPLE_MESSAGE["message_id"],
    },
)
TOKEN_REUSED = ProblemKind(
    name="token-reused",
    status=HTTPStatus.CONFLICT,
    meaning="The token was used with another amount, which counts once; nothing was counted now",
    example={"detail": "the token was used with another amount; an addition of its own needs a token of its own"},
)
ADD_LATER = ProblemKind(
    name="retry-later",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    meaning="DynamoDB refused for the whole budget; repeat the request, with the same token if it has one: it counts "
    "once",
    example={"detail": _THROTTLED.format("Write")},
)
OUTCOME_UNKNOWN = ProblemKind(
    name="outcome-unknown",
    status=HTTPStatus.GATEWAY_TIMEOUT,
    meaning="An addition without a token had no response: it may be counted, and a repetition may count it twice",
    example={"detail": "DynamoDB did not respond (curl error 28): the amount may have been added or not"},
)
READ_LATER = ProblemKind(
    name="retry-later",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    meaning="A part of the response could not be read within the budget; repeat the request",
    example={"detail": _THROTTLED.format("Read")},
)
UNREADABLE_ROUTE = ProblemKind(
    name="unreadable-route",
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    meaning="The conversation's routing item was damaged from outside; an operator must repair it",
    example={
        "detail": "the conversation's routing item cannot be read, so a page could be incomplete; an operator must "
        "repair it"
    },
)
