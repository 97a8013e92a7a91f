"""Errors of a deployment that are found before CloudFormation sees it."""

from __future__ import annotations

from collections.abc import Iterable


class ConfigurationError(Exception):
    """The app cannot be synthesized as asked; each argument is one sentence that says what to change.

    Example:
        >>> try:
        ...     SMALL.changed({"has_dashboard": "no"})
        ... except ConfigurationError as error:
        ...     print(error)
        option has_dashboard should be a valid boolean, not 'no'
    """

    def __str__(self) -> str:
        return "; ".join(self.args)


def refuse(problems: Iterable[str]) -> None:
    """Raise the problems, if there are any."""
    if sentences := tuple(problems):
        raise ConfigurationError(*sentences)
