"""Who calls: the sender of a message as the gateway's authorizer knows it, whatever the body says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotpartition_messages.errors import NotTheSenderError

MAX_SENDER_LENGTH = 256


def find_sender(event: Mapping[str, Any], claim: str) -> str | None:
    """Find who calls: a claim of the token that API Gateway has verified, or what a Lambda authorizer passed on.

    `claim` names it; empty: the caller's identity does not matter, and None is returned.

    Raises:
        NotTheSenderError: the caller has no such claim, or one that cannot be a sender.
    """
    if not claim:
        return None
    authorizer = event["requestContext"].get("authorizer") or {}
    known = (authorizer.get("jwt") or {}).get("claims") or authorizer.get("lambda") or {}
    sender = known.get(claim)
    if not isinstance(sender, str) or not 1 <= len(sender) <= MAX_SENDER_LENGTH:
        raise NotTheSenderError(f"the caller's {claim} should be a text of 1 to {MAX_SENDER_LENGTH} characters")
    return sender
