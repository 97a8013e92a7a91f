"""The requests to the read function: pages and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.cursor import Cursor, parse_cursor
from hotpartition_messages.reading import DEFAULT_LIMIT, MAX_LIMIT, PageRequest
from hotpartition_messages.requests import (
    ConversationPath,
    MessagePath,
    Query,
    Request,
    find_header,
    parse_time_ms,
    path_and_query,
    validate,
)

_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)")


def _whole_number(text: object) -> object:
    """Refuse numbers that only Python accepts, like `1_0` and ` 5`, or others read as octal, like `05`."""
    if isinstance(text, str) and not _WHOLE_NUMBER.fullmatch(text):
        raise ValueError("should be a whole number")
    return text


def _cursor(text: str, info: ValidationInfo) -> Cursor:
    """Parse a cursor; where the order is wrong, whatever order it is of: beside the other mistakes."""
    newest_first = info.data["order"] == "newest" if "order" in info.data else None
    try:
        return parse_cursor(text, str(info.context), newest_first=newest_first)
    except InvalidRequestError as error:
        raise ValueError(error.problems[0].message) from error


_Cursor = Annotated[Cursor, PlainValidator(_cursor)]
_TimeMs = Annotated[int, BeforeValidator(parse_time_ms)]
_Consistency = Literal["strong", "eventual"]


class PageQuery(Query):
    """The query string of a page."""

    limit: Annotated[int, BeforeValidator(_whole_number)] = Field(DEFAULT_LIMIT, ge=1, le=MAX_LIMIT)
    after: _TimeMs | None = None
    before: _TimeMs | None = None
    order: Literal["newest", "oldest"] = "newest"
    cursor: _Cursor | None = None
    consistency: _Consistency = "eventual"


class MessageQuery(Query):
    """The query string of one message."""

    consistency: _Consistency = "eventual"


class PageHeader(Request):
    """The headers that reading a page looks at."""

    if_none_match: str = Field("", alias="If-None-Match")


class PageReadRequest(Request):
    """Read a page."""

    path: ConversationPath
    query: PageQuery
    header: PageHeader


class MessageReadRequest(Request):
    """Read one message."""

    path: MessagePath
    query: MessageQuery


def parse_page_read(event: Mapping[str, Any]) -> tuple[PageRequest, str]:
    """Read from an event which page is wanted, and the entity tags of what the client has (`If-None-Match`).

    Raises:
        InvalidRequestError: naming every wrong parameter.
    """
    content = {**path_and_query(event), "header": find_header(event, "If-None-Match")}
    request = validate(PageReadRequest, content)
    query = request.query
    page = PageRequest(
        conversation_id=request.path.conversation_id,
        newest_first=query.order == "newest",
        limit=query.limit,
        after_ms=query.after,
        before_ms=query.before,
        cursor=query.cursor,
        is_strong=query.consistency == "strong",
    )
    return page, request.header.if_none_match


def parse_message_read(event: Mapping[str, Any]) -> MessageReadRequest:
    """Read from an event which message is wanted.

    Raises:
        InvalidRequestError: naming every wrong parameter.
    """
    return validate(MessageReadRequest, path_and_query(event))
