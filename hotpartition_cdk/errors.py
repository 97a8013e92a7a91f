"""What can be wrong with a deployment before CloudFormation sees it."""

from __future__ import annotations


class ConfigurationError(Exception):
    """The app cannot be synthesized as asked; each argument is one sentence that says what to change."""

    def __str__(self) -> str:
        return "; ".join(self.args)
