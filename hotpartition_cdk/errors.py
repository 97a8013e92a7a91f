"""What can be wrong with a deployment before CloudFormation sees it."""

from __future__ import annotations


class ConfigurationError(Exception):
    """The app cannot be synthesized as asked; each argument is one sentence that says what to change.

    Example:
        >>> try:
        ...     SMALL.changed({"consumers": 0})
        ... except ConfigurationError as error:
        ...     print(error)
        option consumers should be a whole number, between 1 and 64, not 0
    """

    def __str__(self) -> str:
        return "; ".join(self.args)
