"""A file of messages that demonstration and simulator replay: one JSON object a line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.keys import parse_conversation_id

# The API's own limit, which stands in the write function and not in the layer.
LONGEST_SENDER = 256
FIELDS = ("conversation_id", "time", "sender", "text")


class WorkloadError(ValueError):
    """A workload file cannot be used; the text says which line and why."""


@dataclass(frozen=True, slots=True)
class ReplayedMessage:
    """One line of a workload file."""

    conversation_id: str
    minute: float
    sender: str
    text: str


def read_messages_file(path: Path) -> tuple[ReplayedMessage, ...]:
    """Read a file of messages, one JSON object a line, gzipped if its name ends in `.gz`."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            messages = tuple(_parse_lines(lines, path))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise WorkloadError(f"cannot read {path}: {error}") from error
    if not messages:
        raise WorkloadError(f"{path} holds no messages")
    return messages


def _parse_lines(lines: Iterable[str], path: Path) -> Iterator[ReplayedMessage]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _parse_line(json.loads(line))
        except ValueError as error:
            problem = f"not JSON ({error})" if isinstance(error, json.JSONDecodeError) else str(error)
            raise WorkloadError(f"{path}, line {number}: {problem}") from error


def _parse_line(fields: Any) -> ReplayedMessage:
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - the caller names the line for every kind of mistake
    wrong = [name for name in FIELDS if not isinstance(fields.get(name), str)]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} should be given as text")
    if not 1 <= len(fields["sender"]) <= LONGEST_SENDER:
        raise ValueError(f"sender should be 1 to {LONGEST_SENDER} characters")
    _check_conversation_id(fields["conversation_id"])
    return ReplayedMessage(fields["conversation_id"], _parse_time(fields), fields["sender"], fields["text"])


def _check_conversation_id(conversation_id: str) -> None:
    try:
        parse_conversation_id(conversation_id)
    except InvalidRequestError as error:
        rule = "; ".join(problem.message for problem in error.problems)
        raise ValueError(f"conversation_id {conversation_id[:40]!r} {rule}") from error


def _parse_time(fields: Mapping[str, str]) -> float:
    try:
        moment = datetime.fromisoformat(fields["time"])
    except ValueError:
        raise ValueError(f"time {fields['time'][:40]!r} should be like 2004-12-25T09:14Z") from None
    if moment.tzinfo is None:
        raise ValueError(f"time {fields['time'][:40]!r} should say its time zone, like 2004-12-25T09:14Z")
    return moment.timestamp()
