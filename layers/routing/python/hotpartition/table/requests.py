"""How a `ShardedTable` reaches DynamoDB: through a boto3 `Table`, or past most of boto3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from botocore import xform_name
from botocore.exceptions import ClientError

from hotpartition.core.backoff import Clock, try_for
from hotpartition.core.errors import StoreUnavailableError, ThrottledError
from hotpartition.dynamodb.boto3_client import NO_RESPONSE
from hotpartition.dynamodb.calls import Call, Response, build_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Boto3Table:
    """A boto3 `Table`, or an object that behaves like it."""

    table: Any
    is_counted: bool
    """Whether the units of all writes are needed."""
    clock: Clock
    budget_ms: float
    """How long one call may try again what DynamoDB refused."""

    @property
    def name(self) -> str:
        """The table's name."""
        name: str = self.table.name
        return name

    def requests(self, request: Mapping[str, Any]) -> Requests:
        """Begin one call: its requests report what they consume as the call's own parameters say."""
        return Requests(self, request.get("ReturnConsumedCapacity"))

    def pass_on(self, method: str, request: Mapping[str, Any]) -> Response:
        """Call the table itself."""
        response: Response = getattr(self.table, method)(**request)
        return response

    def let_refuse(self, method: str, request: Mapping[str, Any], reason: object = "it names no key") -> Response:
        """Let DynamoDB refuse a wrong call, in its own words.

        Raises:
            NotImplementedError: DynamoDB finds nothing wrong with it.
        """
        self.pass_on(method, without(request, "Hashed"))
        raise NotImplementedError(f"{method}(): this call is not understood: {reason}")


@runtime_checkable
class AtOnce(Protocol):
    """A client that sends several requests on one thread."""

    def send_at_once(self, calls: Sequence[Call]) -> list[Callable[[], Response]]:
        """Send requests; each returned function gives a response, or raises."""
        ...


class Requests:
    """The requests of one call. `send_many` may run on several threads."""

    def __init__(self, table: Boto3Table, report: str | None) -> None:
        """Send nothing yet; `report` is the call's `ReturnConsumedCapacity`."""
        self._table = table
        self.client = table.table.meta.client
        self.table_name = table.name
        self._is_reported = report not in {None, "NONE"}
        asked = "INDEXES" if table.is_counted and not self._is_reported else report
        self._report = {"ReturnConsumedCapacity": asked} if asked else {}
        self._consumed: list[Mapping[str, Any]] = []
        self._units: list[float] = []
        self.metadata: Response = {}
        """The `ResponseMetadata` of the last response."""
        self.last_units = 1.0
        """Units that the last request consumed of the table itself, if its response says."""
        self.was_retried = False
        """Whether the client itself tried the last request again."""

    def send_many(self, operation: str, *, is_counted: bool = True, **request: Any) -> Response:
        """Send one request that names the tables itself; `is_counted`: its units are needed, where any are.

        Raises:
            ThrottledError: DynamoDB refused for a limit; its cause is boto3's error.
            ClientError: any other error, as boto3 raises it.
        """
        report = self._report if is_counted or self._is_reported else {}
        return self._take(partial(getattr(self.client, xform_name(operation)), **request, **report))

    def run(self, calls: Sequence[Call], executor: Executor | None) -> list[Response | ThrottledError]:
        """Send requests at the same time: on one thread where the client can, else on those of the executor.

        What DynamoDB refused for a limit is returned in its place; other errors are raised, as by `send_many`.
        """
        if len(calls) > 1 and isinstance(self.client, AtOnce):
            sent = self.client.send_at_once([call._replace(request={**call.request, **self._report}) for call in calls])
            return [_attempt(partial(self._take, each)) for each in sent]
        sends = [
            partial(
                self._take, partial(getattr(self.client, xform_name(call.operation)), **call.request, **self._report)
            )
            for call in calls
        ]
        if executor is None or len(sends) == 1:
            return [_attempt(send) for send in sends]
        return [future.result() for future in [executor.submit(_attempt, send) for send in sends]]

    def _take(self, send: Callable[[], Response]) -> Response:
        """Take in a response, or the error raised in its place."""
        try:
            response = send()
        except ClientError as error:
            facts = error.response
            status = facts.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
            named = build_error(facts["Error"]["Code"], status=status, facts=facts)
            if isinstance(named, ThrottledError):
                raise named from error
            raise
        self.metadata = response.get("ResponseMetadata", {})
        self.was_retried = self.metadata.get("RetryAttempts", 0) > 0
        reported = response.pop("ConsumedCapacity", ())
        consumed = [reported] if isinstance(reported, Mapping) else reported
        if self._is_reported:
            self._consumed.extend(consumed)
        units = sum(part.get("Table", part).get("CapacityUnits", 0.0) for part in consumed)
        self._units.append(units)
        self.last_units = units or 1.0
        return response

    def send_patiently(
        self, operation: str, note_refused: Callable[[ThrottledError], None] = lambda _: None, **request: Any
    ) -> Response:
        """Send one request as `send_many`, and send it again within the budget while DynamoDB throttles."""

        def send() -> Response:
            try:
                return self.send_many(operation, **request)
            except ThrottledError as error:
                note_refused(error)
                raise

        return try_for(self._table.clock, self._table.budget_ms, send)

    def unprocessed(self) -> ClientError:
        """Build boto3's error for keys that a BatchGetItem left unprocessed."""
        code = "ProvisionedThroughputExceededException"
        facts = {"Error": {"Code": code, "Message": "DynamoDB left keys unprocessed"}}
        error: ClientError = self.client.exceptions.ProvisionedThroughputExceededException(facts, "BatchGetItem")
        return error

    @property
    def units(self) -> float:
        """Units that all requests together consumed of the tables themselves, if their responses say."""
        return sum(self._units)

    @property
    def consumed(self) -> list[Response]:
        """The consumed capacity that the call's owner asked for, one sum for each table."""
        by_table: dict[str, list[Mapping[str, Any]]] = {}
        for part in self._consumed:
            by_table.setdefault(part.get("TableName", ""), []).append(part)
        return [sum_up(parts) for parts in by_table.values()]

    def finish(self, response: Response) -> Response:
        """Put the sum into the call's response."""
        if self._consumed:
            response["ConsumedCapacity"] = sum_up(self._consumed)
        return response


def _attempt(send: Callable[[], Response]) -> Response | ThrottledError:
    try:
        return send()
    except ThrottledError as error:
        return error


def sum_up(consumed: Iterable[Mapping[str, Any]]) -> Response:
    """Add up the capacity that several requests consumed, with the parts for table and indexes."""
    total: Response = {}
    for part in consumed:
        for name, value in part.items():
            if isinstance(value, Mapping):
                total[name] = sum_up([total.get(name, {}), value])
            elif isinstance(value, str):
                total[name] = value
            else:
                total[name] = total.get(name, 0) + value
    return total


@contextmanager
def as_engine_raises() -> Iterator[None]:
    """Raise `StoreUnavailableError` where boto3 says that a request got no response, or one of 5xx."""
    try:
        yield
    except NO_RESPONSE as error:
        raise StoreUnavailableError(f"DynamoDB did not respond ({type(error).__name__})") from error
    except ClientError as error:
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) < 500:
            raise
        raise StoreUnavailableError(str(error)) from error


@contextmanager
def as_boto3_raises() -> Iterator[None]:
    """Raise boto3's own error again where an error of the engine named it."""
    try:
        yield
    except (StoreUnavailableError, ThrottledError) as error:
        cause: BaseException | None = error
        while isinstance(cause, (StoreUnavailableError, ThrottledError)):
            cause = cause.__cause__
        raise cause or error from None


def without(request: Mapping[str, Any], *names: str) -> Response:
    """Copy a request without some of its parameters."""
    return {name: value for name, value in request.items() if name not in names}


class PassingOn:
    """What stands in for one of boto3's objects, and passes on to it whatever it does not do itself."""

    def __init__(self, subject: Any) -> None:
        self._subject = subject

    def __getattr__(self, name: str) -> Any:
        """Return what the subject has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._subject, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._subject)})


Transport = Callable[[Any, Clock, float], Any]
"""Wraps a boto3 `Table`; the clock, and how long in ms a request may be tried again."""


def curl() -> Transport:
    """Send requests about items through libcurl: less CPU, and all queries of a page on one thread.

    Results, errors, credentials, endpoint and region are those of the table that the `ShardedTable` is given. It is the
    `ShardedTable` that tries again, for `budget_ms`. botocore's event hooks do not run, and wrong parameters are
    DynamoDB's to refuse.

    Raises:
        ImportError: pycurl is not installed.

    Example:
        >>> ShardedTable(table, shards=fixed(16), transport=curl())
    """
    try:
        from hotpartition.dynamodb.curl_table import CurlTable  # noqa: PLC0415 - pycurl is an extra of the package
    except ModuleNotFoundError as error:
        raise ImportError(f"curl() needs {error.name}: pip install 'hotpartition[curl]'", name=error.name) from error
    from hotpartition.runtime.environment import find_certificates  # noqa: PLC0415 - only libcurl takes them

    return lambda table, clock, budget_ms: CurlTable(table, clock, budget_ms, find_certificates({}))


def check_sending(transport: Any, budget_ms: Any) -> None:
    """Refuse arguments about how requests are sent.

    Raises:
        TypeError: saying what to write.
    """
    if transport is curl or not (transport is None or callable(transport)):
        raise TypeError(f"transport={transport!r}: should be curl()")
    if not isinstance(budget_ms, int | float) or not budget_ms >= 0:
        raise TypeError(f"budget_ms={budget_ms!r}: should be milliseconds, at least 0")
