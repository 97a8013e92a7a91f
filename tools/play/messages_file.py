"""A file of messages that the demonstration replays: one JSON object a line."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.keys import parse_conversation_id

LONGEST_SENDER = 256
"""The API's own limit."""


class WorkloadError(ValueError):
    """A workload file cannot be used; the text says which line and why."""


def _check_conversation_id(conversation_id: str) -> str:
    try:
        return parse_conversation_id(conversation_id)
    except InvalidRequestError as error:
        raise ValueError("; ".join(problem.message for problem in error.problems)) from error


class ReplayedMessage(BaseModel):
    """One line of a workload file."""

    model_config = ConfigDict(frozen=True)

    conversation_id: Annotated[str, AfterValidator(_check_conversation_id)]
    time: AwareDatetime
    sender: str = Field(min_length=1, max_length=LONGEST_SENDER)
    text: str


def read_messages_file(path: Path) -> tuple[ReplayedMessage, ...]:
    """Read a file of messages, gzipped if its name ends in `.gz`."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise WorkloadError(f"cannot read {path}: {error}") from error
    if not numbered:
        raise WorkloadError(f"{path} holds no messages")
    return tuple(_parse(line, f"{path}, line {number}") for number, line in numbered)


def _parse(line: str, place: str) -> ReplayedMessage:
    try:
        return ReplayedMessage.model_validate_json(line)
    except ValidationError as error:
        mistakes = (": ".join((*map(str, each["loc"]), each["msg"])) for each in error.errors())
        raise WorkloadError(f"{place}: {'; '.join(mistakes)}") from error
