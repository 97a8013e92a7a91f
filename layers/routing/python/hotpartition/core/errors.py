"""Every error this package raises, separated by what the caller does next.

HotPartitionError
├── InvalidRequestError              reject the request; `problems` names every wrong field
│   └── InvalidCollectionError
├── ItemTooLargeError                reject the request: the item would pass DynamoDB's limit
├── TokenReusedError                 reject the request: its token stands for another addition
├── OutcomeUnknownError              it may have been counted, or not: a repetition may count it twice
├── RetryLaterError                  repeat the same request later: safe, whatever became of this one
│   ├── ThrottledError               DynamoDB refused for its limits (`reasons` says which)
│   └── StoreUnavailableError        DynamoDB did not respond, or with a server error
├── StoreRefusedError                fix the deployment, or the code: DynamoDB calls the request wrong (`code` says how)
│   └── ConditionFailedError         something else is stored at the place (`item`); the adapters handle it
├── CredentialsError                 fix the deployment: there is nothing to sign requests with
├── RegistryUnavailableError         Redis did not respond; never reaches a client
│   ├── RegistryRefusedError         Redis does not let us in: an operator has to repair user, password or rights
│   └── RegistryForeignError         a key holds foreign data: an operator has to remove it
├── MalformedGenerationError         a stored route cannot be read: fail closed, notify an operator
├── MalformedReportError             a stream entry cannot be read: count it and go on
├── MalformedPageError               a cached page cannot be read: count it and read from DynamoDB
└── SettingsError                    fix the deployment; names every wrong variable
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


class HotPartitionError(Exception):
    """Root of every error that this package raises on purpose.

    Example:
        >>> readings = ShardedTable(table, shards=fixed(16), hashed=by_attribute("Device"))
        >>> try:
        ...     readings.put_item(Item={"PK": "plant-1", "SK": "2026-11-21T09:30:00Z"})
        ... except HotPartitionError as error:
        ...     print(error)
        Device: is what the shard is chosen by: every item must have it
    """


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a request: the field, and the values allowed there."""

    field: str
    message: str


class InvalidRequestError(HotPartitionError):
    """The request itself cannot be served; repeating it will not help."""

    def __init__(self, problems: Sequence[Problem], *, more: int = 0) -> None:
        """Name the problems; `more` is how many further ones are not listed."""
        listed = "; ".join(f"{p.field}: {p.message}" for p in problems)
        super().__init__(f"{listed}; and {more} more" if more else listed)
        self.problems = tuple(problems)
        self.more = more

    @classmethod
    def of(cls, field: str, message: str) -> Self:
        """Build the error for a single wrong field."""
        return cls((Problem(field, message),))


class InvalidCollectionError(InvalidRequestError):
    """A collection cannot have this name."""


class ItemTooLargeError(HotPartitionError):
    """The stored item would be larger than DynamoDB takes."""

    def __init__(self, item_bytes: int, limit_bytes: int, *, is_least: bool = False) -> None:
        """Say how large it would be; `is_least`: at least this large."""
        self.needs = f"{f'at least {item_bytes}' if is_least else item_bytes} bytes in storage"
        super().__init__(f"the item needs {self.needs}; {limit_bytes} are allowed")
        self.item_bytes = item_bytes
        self.limit_bytes = limit_bytes


class TokenReusedError(HotPartitionError):
    """A token was used before, for another amount; what it stands for is counted once, and this was not."""

    def __init__(self) -> None:
        super().__init__("the token was used with another amount; an addition of its own needs a token of its own")


class OutcomeUnknownError(HotPartitionError):
    """An addition without a token had no response: it may be counted or not. With a token it could be repeated."""


class RetryLaterError(HotPartitionError):
    """The store refused or failed for as long as the request could wait. Repeat the same request.

    `sort_key` is set when a write failed: repeating it for the same item is safe, whatever became of it.
    """

    sort_key: str | None = None


_UNNAMED_LIMITS = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded"})
"""Why a transaction was cancelled: for a limit, whichever it was."""


class ThrottledError(RetryLaterError):
    """DynamoDB refused because of a throughput limit.

    `reasons` holds DynamoDB's own words, for example `TableWriteKeyRangeThroughputExceeded`; it is empty where
    the operation reports none. Only the KeyRange ones are cured by salting.
    """

    def __init__(self, reasons: Sequence[str] = ()) -> None:
        super().__init__(f"DynamoDB throttled the request ({', '.join(reasons) or 'no reason given'})")
        self.reasons = tuple(reasons)

    @property
    def is_key_range(self) -> bool:
        """The limit of one partition was hit, not that of the table or account."""
        return any("KeyRange" in reason for reason in self.reasons)

    @property
    def may_be_key_range(self) -> bool:
        """It was, or a transaction was refused, which does not say for which limit: another place may help."""
        return self.is_key_range or not _UNNAMED_LIMITS.isdisjoint(self.reasons)


class StoreUnavailableError(RetryLaterError):
    """DynamoDB did not respond in time, or responded with a server error."""


class StoreRefusedError(HotPartitionError):
    """DynamoDB refused a request, and would refuse it again: a missing right or table, or a bug in this package.

    `code` is DynamoDB's name for it, for example `AccessDeniedException`; `explanation` its own words.
    """

    def __init__(self, code: str, explanation: str = "") -> None:
        super().__init__(f"DynamoDB refused the request with {code}" + (f": {explanation}" if explanation else ""))
        self.code = code
        self.explanation = explanation


class ConditionFailedError(StoreRefusedError):
    """A write's condition does not hold; `item` is the stored item, None where DynamoDB did not say."""

    def __init__(self, item: Mapping[str, Any] | None, explanation: str = "") -> None:
        super().__init__("ConditionalCheckFailedException", explanation)
        self.item = item


class CredentialsError(HotPartitionError):
    """No credentials were found, or they are not complete."""


class RegistryUnavailableError(HotPartitionError):
    """Redis did not respond in time. Routes then come from the journal, and reports are dropped."""


class RegistryRefusedError(RegistryUnavailableError):
    """Redis refused the user, the password, the token or a right, or its certificate is not one we trust."""


class RegistryForeignError(RegistryUnavailableError):
    """A key of this package holds foreign data: another type, or far more than is ever put there."""


class MalformedGenerationError(HotPartitionError):
    """A stored generation is not of the form `<shard count>@<since, ms>`. `collection` says whose it is."""

    collection: str | None = None


class MalformedReportError(HotPartitionError):
    """A stream entry is not a report of the current format."""


class MalformedPageError(HotPartitionError):
    """The text in Redis is not a cached page."""


class SettingsError(HotPartitionError):
    """One or more settings are missing or out of range."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("wrong settings: " + "; ".join(problems))
        self.problems = tuple(problems)
