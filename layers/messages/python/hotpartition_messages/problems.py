"""The kinds of errors that the API responds with, as RFC 9457 problem documents (`docs/openapi.json` describes them).

Every error has one shape, `application/problem+json` with `type`, `title`, `status` and `detail`; `errors` names the
wrong fields, and `message_id` the id that a refused write should be repeated with.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, NamedTuple

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1


class ProblemKind(NamedTuple):
    """One kind of error; its title is the status' phrase, unless that depends on the version of Python."""

    name: str
    status: HTTPStatus
    title: str = ""

    def members(self) -> dict[str, Any]:
        """Build the members that say which kind it is."""
        title = self.title or self.status.phrase
        return {"type": f"urn:hotpartition:{self.name}", "title": title, "status": int(self.status)}


INVALID_REQUEST = ProblemKind("invalid-request", HTTPStatus.BAD_REQUEST)
NOT_THE_SENDER = ProblemKind("not-the-sender", HTTPStatus.FORBIDDEN)
NO_SUCH_RESOURCE = ProblemKind("no-such-resource", HTTPStatus.NOT_FOUND)
MESSAGE_NOT_FOUND = ProblemKind("message-not-found", HTTPStatus.NOT_FOUND)
MESSAGE_CONFLICT = ProblemKind("message-conflict", HTTPStatus.CONFLICT)
MESSAGE_GONE = ProblemKind("message-gone", HTTPStatus.GONE)
MESSAGE_CHANGED = ProblemKind("message-changed", HTTPStatus.PRECONDITION_FAILED)
MESSAGE_TOO_LARGE = ProblemKind("message-too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Content Too Large")
UNSUPPORTED_ENCODING = ProblemKind("unsupported-encoding", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
UNREADABLE_ROUTE = ProblemKind("unreadable-route", HTTPStatus.INTERNAL_SERVER_ERROR)
RETRY_LATER = ProblemKind("retry-later", HTTPStatus.SERVICE_UNAVAILABLE)
