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
from math import inf
from typing import Any, TypeVar

ResponseT = TypeVar("ResponseT")

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
    is_running: bool = False
    is_done: bool = False
    ends_at: float = inf
    """When the token is forgotten: known once its first request is completed."""


class RequestTokens:
    """The tokens of the last ten minutes."""

    def __init__(self, now: Callable[[], float], *, binds_cancelled: bool = False) -> None:
        """Start without any; `binds_cancelled`: a cancelled transaction's token takes no other transaction."""
        self._now = now
        self._binds_cancelled = binds_cancelled
        self._uses: dict[str, _Use] = {}

    def once(self, request: Mapping[str, Any], act: Callable[[], ResponseT]) -> ResponseT | None:
        """Make a transaction, which is cancelled by what it raises; None: it was made before, and succeeds.

        Raises:
            RequestTokenError: the token is bound to other parameters, or its transaction is under way.
        """
        token = request.get("ClientRequestToken")
        if token is None:
            return act()
        use = self._use(token, request)
        if use.is_done:
            return None
        use.is_running = True
        try:
            response = act()
            use.is_done = True
        finally:
            use.is_running = False
            use.ends_at = min(use.ends_at, self._now() + WINDOW_SECONDS)
            if not (use.is_done or self._binds_cancelled):
                del self._uses[token]
        return response

    def _use(self, token: str, request: Mapping[str, Any]) -> _Use:
        """Find what a token was used for, or note that it is used for a request."""
        self._forget_oldest()
        parameters = json.dumps({name: value for name, value in request.items() if name not in NOT_COMPARED})
        use = self._uses.setdefault(token, _Use(parameters))
        if use.parameters != parameters:
            raise RequestTokenError("IdempotentParameterMismatchException")
        if use.is_running:
            raise RequestTokenError("TransactionInProgressException")
        return use

    def _forget_oldest(self) -> None:
        """Forget what has ended, as far as it was used first."""
        while self._uses:
            token, use = next(iter(self._uses.items()))
            if use.ends_at > self._now():
                return
            del self._uses[token]
