"""DynamoDB's `ClientRequestToken`: what a transaction's token lets happen, and for how long. Pure.

Source: DynamoDB Developer Guide, "DynamoDB transactions: how it works", and the API's reference. A transaction that
succeeded is not made again under its token for ten minutes; another one under the same token is refused; while it is
under way, its repetition is refused as well. moto ignores the token. Two things are documented nowhere:

- whether a transaction that was *cancelled* leaves its token free, or bound to its parameters: both are here;
- how alike two requests must be: here, to the last character.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

WINDOW_SECONDS = 600.0
NOT_COMPARED = frozenset({"ClientRequestToken", "ReturnConsumedCapacity"})


class RequestTokenError(Exception):
    """A token does not let a transaction happen; `code` is DynamoDB's name for why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class _Use:
    parameters: str
    is_running: bool = True
    is_done: bool = False
    ends_at: float | None = None
    """When the token is forgotten; None until its first request is completed."""


class RequestTokens:
    """The tokens of the last ten minutes."""

    def __init__(self, now: Callable[[], float], *, binds_cancelled: bool = False) -> None:
        """Start without any; `binds_cancelled`: a cancelled transaction's token takes no other transaction."""
        self._now = now
        self._binds_cancelled = binds_cancelled
        self._uses: dict[str, _Use] = {}

    def begin(self, request: Mapping[str, Any]) -> bool:
        """Say whether a transaction is to be made now; False: it was made before, and succeeds.

        REQUIRES: after True, `end` is called with the same request.

        Raises:
            RequestTokenError: the token is bound to other parameters, or its transaction is under way.
        """
        token = request.get("ClientRequestToken")
        if token is None:
            return True
        parameters = json.dumps({name: value for name, value in request.items() if name not in NOT_COMPARED})
        use = self._uses.get(token)
        if use is None or (use.ends_at is not None and use.ends_at <= self._now()):
            self._forget_oldest()
            self._uses[token] = _Use(parameters)
            return True
        if use.parameters != parameters:
            raise RequestTokenError("IdempotentParameterMismatchException")
        if use.is_running:
            raise RequestTokenError("TransactionInProgressException")
        use.is_running = not use.is_done
        return use.is_running

    def end(self, request: Mapping[str, Any], *, is_done: bool) -> None:
        """Take in what became of a transaction: made, or cancelled."""
        token = request.get("ClientRequestToken")
        if token is None:
            return
        use = self._uses[token]
        if not is_done and not self._binds_cancelled:
            del self._uses[token]
            return
        use.is_running, use.is_done = False, is_done
        use.ends_at = self._now() + WINDOW_SECONDS if use.ends_at is None else use.ends_at

    def _forget_oldest(self) -> None:
        """Forget what has ended, as far as it was used first."""
        while self._uses:
            token, use = next(iter(self._uses.items()))
            if use.ends_at is None or use.ends_at > self._now():
                return
            del self._uses[token]
