"""DynamoDB for the library: moto's items and conditions, on the virtual clock, with what a network and partitions do.

boto3's own client is used as anybody uses it; what it would send is taken from it before it leaves (`before-call`). It
happens at moto at one instant of the virtual clock, whatever becomes of the sender in the meantime.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from hotpartition.dynamodb.calls import READ_TIMEOUT_SECONDS
from tools.partition_model import READ_PROFILE, WRITE_PROFILE, Latency
from tools.request_tokens import RequestTokenError, RequestTokens
from tools.simulation.engine import Engine, Process
from tools.simulation.store import LAG_MEAN_SECONDS, StoreFaults

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"})
HOT_SECONDS = 0.5
"""How long a key that refuses goes on refusing."""
HOT_SHARE = 0.08
"""Of all keys at any time: their partitions have no more to give."""

SUCCESS = 200
LATE_SHARE = 0.1
"""Of creations: they happen up to so long after their client gave up. (A late overwriting put takes back what was
written since with boto3 alone as well; a late creation finds on its place that the item is there.)"""
LATE_SECONDS = 3.0

Response = tuple[Any, dict[str, Any]]


class Network:
    """What is between a table's clients and the table. REQUIRES: a task of the engine calls the clients."""

    def __init__(self, engine: Engine, raw: Any, *, journal_table: str, seed: str) -> None:
        """Start without faults.

        Args:
            engine: the virtual clock.
            raw: a low-level boto3 client of moto, which nothing is between.
            journal_table: where the routing items lie: eventually consistent reads of it lag.
            seed: decides everything that is left to chance.
        """
        self.faults = StoreFaults()
        self.struck: Counter[str] = Counter()
        self.requests = 0
        self.after_update: Callable[[Process], None] = lambda _: None
        self.after_late: Callable[[str], None] = lambda _: None
        """Told of the place of a creation that will happen late."""
        self._engine = engine
        self._raw = raw
        self._journal_table = journal_table
        self._seed = seed
        self._random = Random(f"{seed}/network")
        self._latencies = {True: Latency(WRITE_PROFILE, self._random), False: Latency(READ_PROFILE, self._random)}
        self._routes: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
        self._watched: list[tuple[Any, Any]] = []
        self._tokens = RequestTokens(lambda: engine.now)

    def watch(self, client: Any, owner: Callable[[], Process | None] = lambda: None) -> None:
        """Stand between a client and the table; `owner` is the raiser, whose updates `after_update` is told of."""

        def on_call(model: Any, params: Mapping[str, Any], **_: Any) -> Response | None:
            if model.name == "DescribeTable":
                return None
            return self._send(model.name, json.loads(params["body"]), owner())

        client.meta.events.register("before-call.dynamodb", on_call)
        self._watched.append((client, on_call))

    def close(self) -> None:
        """Let the clients speak to moto itself again."""
        for client, on_call in self._watched:
            client.meta.events.unregister("before-call.dynamodb", on_call)

    def _send(self, operation: str, request: dict[str, Any], owner: Process | None) -> Response:
        self.requests += 1
        engine, faults = self._engine, self.faults
        is_write = operation in WRITES
        seconds = self._latencies[is_write].draw()
        if self._strikes("slow"):
            seconds += self._random.random() * faults.slow_seconds
        if self._strikes("lost_request"):
            engine.sleep(READ_TIMEOUT_SECONDS)
            raise ReadTimeoutError(endpoint_url="simulated")
        if _creates(operation, request) and faults.lost_request and self._random.random() < LATE_SHARE:
            # The client gives up, and tries again elsewhere; and then it happens after all.
            self.struck["late creation"] += 1
            self.after_late(request["Item"]["PK"]["S"])
            late_seconds = READ_TIMEOUT_SECONDS + self._random.random() * LATE_SECONDS
            engine.after(late_seconds, lambda: self._happen_late(operation, request))
            engine.sleep(READ_TIMEOUT_SECONDS)
            raise ReadTimeoutError(endpoint_url="simulated")
        if is_write and (key := self._hot_key(request)) is not None:
            self.struck["refused key"] += 1
            engine.sleep(seconds)
            return _refusal("TableWriteKeyRangeThroughputExceeded", key)
        if self._strikes("throttled"):
            engine.sleep(seconds)
            return _refusal("TableWriteMaxOnDemandThroughputExceeded", "")
        fails, failure = self._strikes("server_error"), _error("InternalServerError", status=500)
        if fails and self._random.random() < 0.5:
            engine.sleep(seconds)
            return failure
        response = engine.call(seconds / 2, lambda: self._happen(operation, request, owner), seconds / 2)
        if self._strikes("lost_answer"):
            engine.sleep(READ_TIMEOUT_SECONDS)
            raise ReadTimeoutError(endpoint_url="simulated")
        return failure if fails else response

    def _happen(self, operation: str, request: dict[str, Any], owner: Process | None) -> Response:
        """Let it happen at moto, now."""
        if operation == "GetItem" and not request.get("ConsistentRead") and self._is_journal(request):
            return _good({"Item": item} if (item := self._lagging(request)) else {})
        left = self._leave_out(request.get("RequestItems", {}))
        if operation == "Query" and self._strikes("short_page"):
            request["Limit"] = min(request.get("Limit", 5), 1 + self._random.randrange(5))
        try:
            # Its token lets a transaction happen once; moto does not know that.
            if not self._tokens.begin(request):
                return _good({})
        except RequestTokenError as error:
            return _error(error.code)
        is_done = False
        try:
            response = self._raw._make_api_call(operation, request)  # noqa: SLF001 - as every method of a client does
            is_done = True
        except ClientError as error:
            return SimpleNamespace(status_code=400), dict(error.response)
        finally:
            self._tokens.end(request, is_done=is_done)
        if left:
            response["UnprocessedKeys" if operation == "BatchGetItem" else "UnprocessedItems"] = left
        if operation == "UpdateItem" and owner is not None:
            self._routes.setdefault(_collection(request), []).append((self._engine.now, dict(response["Attributes"])))
            self.after_update(owner)
        return _good(response)

    def _happen_late(self, operation: str, request: dict[str, Any]) -> None:
        status, _ = self._happen(operation, request, None)
        if status.status_code == SUCCESS:
            self.struck["late creation stored a second copy, or the first"] += 1

    def _hot_key(self, request: Mapping[str, Any]) -> str | None:
        """Return the key of a write of one item whose partition has no more to give, for half a second."""
        attributes = request.get("Item") or request.get("Key")
        if attributes is None or "PK" not in attributes:
            return None
        key: str = attributes["PK"]["S"]
        part = int(self._engine.now / HOT_SECONDS)
        share = HOT_SHARE * (4 if self.faults.throttled > 0.05 else 1) if self.faults.throttled else 0.0
        return key if Random(f"{self._seed}/{key}/{part}").random() < share else None

    def _leave_out(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Take some keys or items out of a batch, at least one stays; return what is left unprocessed."""
        left: dict[str, Any] = {}
        for table_name, of_table in list(asked.items()):
            is_read = isinstance(of_table, dict)
            entries = of_table["Keys"] if is_read else of_table
            out = [entry for entry in entries if self._strikes("unprocessed")]
            stay = [entry for entry in entries if entry not in out]
            if not out or not stay:
                continue
            left[table_name] = {**of_table, "Keys": out} if is_read else out
            asked[table_name] = {**of_table, "Keys": stay} if is_read else stay
        return left

    def _is_journal(self, request: Mapping[str, Any]) -> bool:
        sort_key = request["Key"].get("SK", {}).get("S")
        return request["TableName"] == self._journal_table and sort_key in {None, "~route"}

    def _lagging(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        lag = self._random.expovariate(1 / LAG_MEAN_SECONDS)
        if self._strikes("long_lag"):
            lag += self._random.random() * self.faults.long_lag_seconds
        versions = self._routes.get(_collection(request), ())
        return next((dict(item) for at, item in reversed(versions) if at <= self._engine.now - lag), None)

    def _strikes(self, fault: str) -> bool:
        odds: float = getattr(self.faults, fault)
        if odds and self._random.random() < odds:
            self.struck[fault.replace("_", " ")] += 1
            return True
        return False


def _creates(operation: str, request: Mapping[str, Any]) -> bool:
    return operation == "PutItem" and "attribute_not_exists" in request.get("ConditionExpression", "")


def _collection(request: Mapping[str, Any]) -> str:
    key = request["Key"]
    text: str = (key.get("PK") or key["collection"])["S"]
    return text


def _good(response: Mapping[str, Any]) -> Response:
    return SimpleNamespace(status_code=SUCCESS), dict(response)


def _refusal(reason: str, key: str) -> Response:
    code = "ProvisionedThroughputExceededException"
    throttling = [{"reason": reason, "resource": "arn"}]
    return _error(code, message=f"too much for the partition of {key}", ThrottlingReasons=throttling)


def _error(code: str, *, status: int = 400, message: str = "simulated", **facts: Any) -> Response:
    error = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return SimpleNamespace(status_code=status), {**error, **facts}
