"""Errors of a deployment that are found before CloudFormation sees it."""

from __future__ import annotations

import sys
import traceback
from itertools import takewhile
from pathlib import Path
from types import TracebackType

_LIBRARIES = (str(Path(__file__).parent), "/jsii/")


class ConfigurationError(Exception):
    """The app cannot be synthesized as asked; each argument is one sentence that says what to change.

    An app that does not catch it ends with the sentence and the app's own line, without a traceback.

    Example:
        >>> try:
        ...     SMALL.changed({"has_dashboard": "no"})
        ... except ConfigurationError as error:
        ...     print(error)
        option has_dashboard should be true or false, not 'no'
    """

    def __str__(self) -> str:
        return "; ".join(self.args)


_others = sys.excepthook


def say_in_a_sentence(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write the error that ends the app: for a `ConfigurationError`, where the app asked for it and what to change."""
    if not isinstance(error, ConfigurationError):
        _others(kind, error, trace)
        return
    frames = traceback.extract_tb(trace)
    own = list(takewhile(lambda frame: not any(part in frame.filename for part in _LIBRARIES), frames))
    where = f"{own[-1].filename}, line {own[-1].lineno}: " if own else ""
    sys.stderr.write(f"hotpartition: {where}{error}\n")


sys.excepthook = say_in_a_sentence
