"""Newest pages of a table from the page cache: for queries that ask for it, of partition keys that are read-hot."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hashlib import blake2b
from math import ceil
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from hotpartition.core.errors import MalformedPageError
from hotpartition.dynamodb.calls import Response
from hotpartition.engine.load_counting import ReportedPages
from hotpartition.engine.read_cache import Origin, ReadCache
from hotpartition.engine.route_cache import Routes

Document = Mapping[str, Any]
"""A query's cached response: its items and last key in DynamoDB's own form, never changed."""

_BYTES = "base64"
_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


class CachedQueries:
    """Reads newest pages of an adaptive table, and counts them: that is how a partition key is found read-hot."""

    def __init__(
        self,
        routes: Routes,
        cache: ReadCache[Document],
        counting: ReportedPages,
    ) -> None:
        """Start with nothing read."""
        self._routes = routes
        self._cache = cache
        self._counting = counting

    def read(
        self, collection: str, request: Mapping[str, Any], gather: Callable[[], tuple[Response, float]]
    ) -> Response:
        """Read one page, one for each projection and limit; `gather` reads it, and says how many RCU that took.

        Raises:
            ThrottledError: DynamoDB refused, and there is no page within the staleness bound.
        """

        def count(response: Response, units: float) -> Response:
            self._counting.count(collection, units)
            return response

        if not self._routes.for_read(collection).copies:
            return count(*gather())
        metadata: Response = {}

        def fill() -> tuple[Document, float]:
            response, units = gather()
            metadata.update(response.pop("ResponseMetadata", {}))
            return _store(response), units

        page = self._cache.get((collection, _variant_of(request)), fill)
        if page.origin is not Origin.LOADED:
            metadata = {"HTTPStatusCode": 200, "HTTPHeaders": {"age": str(ceil(page.age_ms / 1000))}}
        return count({**_show(page.value), "ResponseMetadata": metadata}, page.units)


class QueryCodec:
    """`Codec` of responses."""

    def encode(self, page: Document) -> str:
        """Implement `Codec.encode`."""
        return json.dumps(page, default=_of_bytes, separators=(",", ":"))

    def decode(self, text: str) -> Document:
        """Implement `Codec.decode`."""
        try:
            page: Document = json.loads(text, object_hook=_to_bytes)
            _show(page)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedPageError(f"no response to a query: {error!r}") from error
        return page

    def copy(self, page: Document) -> Document:
        """Implement `Codec.copy`: what is shown is built anew from it each time."""
        return page

    def size_bytes(self, page: Document) -> int:
        """Implement `Codec.size_bytes`."""
        return len(self.encode(page))


def _store(response: Response) -> Document:
    last = response.get("LastEvaluatedKey")
    return {
        **response,
        "Items": [_serialize(item) for item in response["Items"]],
        "LastEvaluatedKey": None if last is None else _serialize(last),
    }


def _show(page: Document) -> Response:
    """Build a new response, which its caller may change."""
    shown = {**page, "Items": [_deserialize(item) for item in page["Items"]], "Count": page["Count"]}
    last = shown.pop("LastEvaluatedKey")
    return shown if last is None else {**shown, "LastEvaluatedKey": _deserialize(last)}


def _variant_of(request: Mapping[str, Any]) -> str:
    shape = [request.get(name) for name in ("Limit", "ProjectionExpression", "ExpressionAttributeNames")]
    return blake2b(json.dumps(shape, sort_keys=True).encode(), digest_size=8).hexdigest()


def _of_bytes(value: bytes) -> dict[str, str]:
    return {_BYTES: b64encode(value).decode()}


def _to_bytes(value: dict[str, Any]) -> Any:
    """Read bytes back. An attribute of that name is not taken for bytes: DynamoDB's form of a value is not a text."""
    return b64decode(value[_BYTES]) if value.keys() == {_BYTES} and isinstance(value[_BYTES], str) else value
