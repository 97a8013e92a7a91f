"""DynamoDB for the library: moto's items and conditions behind the simulator's network and its faults.

boto3's own client is used as anybody uses it; what it would send is taken from it before it leaves (`before-call`). It
happens at moto at one instant of the virtual clock, whatever becomes of the sender in the meantime.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ReadTimeoutError
from moto import mock_aws

from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.table import JournalPlace
from tools.request_tokens import RequestTokenError
from tools.simulation.engine import Engine, Process
from tools.simulation.store import Network, Observer

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"})

Response = tuple[Any, dict[str, Any]]


class Aws(NamedTuple):
    """boto3 on moto: the resource of the library, the raiser's client, and one that nothing is between."""

    resource: Any
    raiser: Any
    raw: Any


@contextmanager
def open_aws() -> Iterator[Aws]:
    """Start moto, and stop it afterwards."""
    options: dict[str, Any] = {
        "region_name": "eu-central-1",
        "aws_access_key_id": "simulated",
        "aws_secret_access_key": "simulated",
        "config": Config(retries={"total_max_attempts": 1}),
    }
    with mock_aws():
        raiser, raw = (boto3.client("dynamodb", **options) for _ in range(2))
        yield Aws(boto3.resource("dynamodb", **options), raiser, raw)


class MotoNetwork(Network):
    """The network in front of moto. REQUIRES: a task of the engine calls the clients."""

    def __init__(self, engine: Engine, aws: Aws, place: JournalPlace, *, seed: str, observer: Observer) -> None:
        """Stand between moto and its clients; eventually consistent reads of the journal, at `place`, lag."""
        super().__init__(engine, random=Random(f"{seed}/network"), observer=observer, seed=seed)
        self._aws = aws
        self._place = place
        self._routes: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
        self._owner: Process | None = None
        self._watched: list[tuple[Any, Any]] = []
        self._watch(aws.resource.meta.client, "table", lambda: None)
        self._watch(aws.raiser, "operator", lambda: self._owner)

    def client(self, role: str, owner: Process | None = None) -> Any:
        """Open the one client of another process than the table's: `owner`, whose updates `after_update` is told of."""
        del role
        self._owner = owner
        return SimpleNamespace(call=Boto3Call(self._aws.raiser))

    def close(self) -> None:
        """Let the clients speak to moto itself again."""
        for client, on_call in self._watched:
            client.meta.events.unregister("before-call.dynamodb", on_call)

    def error(self, code: str, status: int = 400, **facts: Any) -> Exception:
        """Implement `Network.error`."""
        error = {"Error": {"Code": code, "Message": "simulated"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        response: Any = {**error, **facts}
        return ClientError(response, "simulated")

    def no_response(self) -> Exception:
        """Implement `Network.no_response`."""
        return ReadTimeoutError(endpoint_url="simulated")

    def throttle(self, reason: str) -> Exception:
        """Implement `Network.throttle`."""
        code = "ProvisionedThroughputExceededException"
        return self.error(code, ThrottlingReasons=[{"reason": reason, "resource": "arn"}])

    def _watch(self, client: Any, role: str, owner: Callable[[], Process | None]) -> None:
        def on_call(model: Any, params: Mapping[str, Any], **_: Any) -> Response | None:
            if model.name == "DescribeTable":
                return None
            return self._send(model.name, json.loads(params["body"]), role, owner())

        client.meta.events.register("before-call.dynamodb", on_call)
        self._watched.append((client, on_call))

    def _send(self, operation: str, request: dict[str, Any], role: str, owner: Process | None) -> Response:
        is_write = operation in WRITES
        # A late overwriting put takes back what was written since with boto3 alone as well; a late creation finds on
        # its place that the item is there.
        creates = operation == "PutItem" and "attribute_not_exists" in request.get("ConditionExpression", "")
        written = _key_of(request) if is_write else ""
        try:
            response = self.perform(
                self.write_latency if is_write else self.read_latency,
                lambda: self._happen(operation, request, owner),
                self.counts_of(role),
                written=written,
                may_be_late=creates,
            )
        except ClientError as error:
            return SimpleNamespace(status_code=400), dict(error.response)
        return SimpleNamespace(status_code=200), response

    def _happen(self, operation: str, request: dict[str, Any], owner: Process | None) -> dict[str, Any]:
        """Let it happen at moto, now."""
        if operation == "GetItem" and not request.get("ConsistentRead") and self._is_journal(request):
            horizon = self.horizon(is_strong=False)
            versions = self._routes.get(_key_of(request), ())
            return next(({"Item": dict(item)} for at, item in reversed(versions) if at <= horizon), {})
        left = self._leave_out(request.get("RequestItems", {}))
        if operation == "Query" and self.strikes("short_page"):
            request["Limit"] = min(request.get("Limit", 5), 1 + self.random.randrange(5))
        try:
            # Its token lets a transaction happen once; moto does not know that.
            if not self.tokens.begin(request):
                return {}
        except RequestTokenError as error:
            raise self.error(error.code) from error
        is_done = False
        try:
            response: dict[str, Any] = self._aws.raw._make_api_call(operation, request)  # noqa: SLF001 - as every method of a client does
            is_done = True
        finally:
            self.tokens.end(request, is_done=is_done)
        if left:
            response["UnprocessedKeys" if operation == "BatchGetItem" else "UnprocessedItems"] = left
        if operation == "UpdateItem" and owner is not None:
            self._routes.setdefault(_key_of(request), []).append((self.engine.now, dict(response["Attributes"])))
            self.after_update(owner)
        return response

    def _leave_out(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Take some keys or items out of a batch, at least one stays; return what is left unprocessed."""
        left: dict[str, Any] = {}
        for table_name, of_table in list(asked.items()):
            is_read = isinstance(of_table, dict)
            entries = of_table["Keys"] if is_read else of_table
            out = [entry for entry in entries if self.strikes("unprocessed")]
            stay = [entry for entry in entries if entry not in out]
            if not out or not stay:
                continue
            left[table_name] = {**of_table, "Keys": out} if is_read else out
            asked[table_name] = {**of_table, "Keys": stay} if is_read else stay
        return left

    def _is_journal(self, request: Mapping[str, Any]) -> bool:
        place = self._place
        is_at_place = not place.sort_key or request["Key"][place.sort_key]["S"] == place.routing_sort_key
        return request["TableName"] == place.table_name and is_at_place


def _key_of(request: Mapping[str, Any]) -> str:
    """Return the partition key of what is written or read; a request for several has none."""
    attributes = request.get("Item") or request.get("Key") or {}
    key: dict[str, str] = attributes.get("PK") or attributes.get("collection") or {}
    return key.get("S", "")
