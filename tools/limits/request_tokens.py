"""DynamoDB's `ClientRequestToken`: what a transaction's token lets happen, and for how long. Pure.

Source: DynamoDB Developer Guide, "DynamoDB transactions: how it works", and the API's reference. A transaction that
succeeded is not made again under its token for ten minutes; another one under the same token is refused. moto ignores
the token. A transaction takes no time here, so none meets its own repetition. Two things are documented nowhere:

- whether a transaction that was *cancelled* leaves its token free, or bound to its parameters: both are here;
- how alike two requests must be: here, to the last character.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

ResponseT = TypeVar("ResponseT")

WINDOW_SECONDS = 600.0
NOT_COMPARED = frozenset({"ClientRequestToken", "ReturnConsumedCapacity"})


class RequestTokenError(Exception):
    """A token does not let a transaction happen; `code` is DynamoDB's name for why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _Use(NamedTuple):
    """What a token was first used for, and when it is forgotten."""

    parameters: str
    ends_at: float
    is_done: bool = False


class RequestTokens:
    """The tokens of the last ten minutes."""

    def __init__(self, *, binds_cancelled: bool = False) -> None:
        """Start without any; `binds_cancelled`: a cancelled transaction's token takes no other transaction."""
        self._binds_cancelled = binds_cancelled
        self._uses: dict[str, _Use] = {}

    def once(self, request: Mapping[str, Any], now: float, act: Callable[[], ResponseT]) -> ResponseT | None:
        """Make a transaction, which is cancelled by what it raises; None: it was made before, and succeeds.

        Raises:
            RequestTokenError: the token is bound to other parameters.
        """
        token = request.get("ClientRequestToken")
        if token is None:
            return act()
        self._forget_oldest(now)
        parameters = json.dumps({name: value for name, value in request.items() if name not in NOT_COMPARED})
        use = self._uses.get(token, _Use(parameters, now + WINDOW_SECONDS))
        if use.parameters != parameters:
            raise RequestTokenError("IdempotentParameterMismatchException")
        if use.is_done:
            return None
        if self._binds_cancelled:
            self._uses[token] = use
        response = act()
        self._uses[token] = use._replace(is_done=True)
        return response

    def _forget_oldest(self, now: float) -> None:
        """Forget what has ended. What was used first ends first."""
        while self._uses and next(iter(self._uses.values())).ends_at <= now:
            del self._uses[next(iter(self._uses))]
