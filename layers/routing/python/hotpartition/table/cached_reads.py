"""Reads of one table that ask for `cache=True`: items, and pages by all their parameters.

Keys whose heat is known (`adaptive()`) use the fleet's values while they are read-hot, and cost no request to Redis
otherwise. An item's subject is its key, so a change drops all that the process has of it, whatever was projected. A
page's subject is its partition key; a change leaves it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from math import ceil
from typing import Any

from boto3.dynamodb.conditions import AttributeBase, ConditionBase

from hotpartition.core.errors import MalformedPageError
from hotpartition.dynamodb.calls import Response
from hotpartition.engine.read_cache import Key, ReadCache
from hotpartition.runtime.build import Engine
from hotpartition.table.read_cache import ReadCache as GivenCache
from hotpartition.table.read_cache import ValueCodec
from hotpartition.table.schema import text_of

Read = tuple[Response, float]
"""A response, and the RCU that it took."""
_OF_THE_REQUEST = ("ResponseMetadata", "ConsumedCapacity")
"""Parts of a response that are about the request that read it."""
_NOT_IN_A_NAME = frozenset({"Key", "ConsistentRead", "ReturnConsumedCapacity"})
"""Parameters that do not shape a response, or that its subject has."""


class ResponseCodec(ValueCodec):
    """`Codec` of responses, in boto3's form."""

    def decode(self, text: str) -> Response:
        """Implement `Codec.decode`."""
        value: Response = super().decode(text)
        listed = value.get("Items", []) if isinstance(value, dict) else None
        if not isinstance(listed, list) or not all(isinstance(item, dict) for item in (value.get("Item", {}), *listed)):
            raise MalformedPageError("no response of a table")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedReads:
    """Reads through a cache. Safe under threads."""

    table: str
    """Names the table among all of one cache."""
    shared: ReadCache[Response]
    """For all keys, or where heat is known for those that are read-hot."""
    alone: ReadCache[Response] | None = None
    """For all others: the process's memory; None: they are read."""
    engine: Engine | None = None
    """Knows which keys are read-hot, and counts reads; None: heat is not known."""

    def read(
        self, collection: str | None, subject: str, request: Mapping[str, Any], load: Callable[[], Read]
    ) -> Response:
        """Serve a response to a request, or load it; it belongs to the caller, and says its age unless it was loaded.

        `collection` is the partition key, where its heat may be known.

        Raises:
            ThrottledError: DynamoDB refused, and there is no response within the bound.
        """
        cache = self._cache_of(collection)
        if cache is None:
            response, units = load()
            self.count(collection, units)
            return response
        own: Response = {}

        def fill() -> Read:
            response, units = load()
            own.update({name: response.pop(name) for name in _OF_THE_REQUEST if name in response})
            return response, units

        found = cache.get((subject, self._name(request)), fill)
        self.count(collection, found.units)
        if not found.is_loaded:
            age = str(ceil(found.age_ms / 1000))
            own = {"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": {"age": age}}}
        return found.value | own

    def read_items(
        self,
        asked: Sequence[tuple[str | None, str]],
        request: Mapping[str, Any],
        load: Callable[[Sequence[int]], tuple[Sequence[Any], float]],
    ) -> list[Any]:
        """Serve items, or load those that are missing together; None for one that there is not.

        Args:
            asked: of each item its collection, where heat may be known, and its subject.
            request: what shapes the items.
            load: reads those at some places of `asked`; None for one that there is not; and the RCU that all took.
        """
        name = self._name(request)
        places = {(subject, name): place for place, (_, subject) in enumerate(asked)}

        def load_items(keys: Sequence[Key]) -> dict[Key, Read]:
            items, units = load([places[key] for key in keys])
            read = [({} if item is None else {"Item": item}, units / len(keys)) for item in items]
            return dict(zip(keys, read, strict=True))

        by_cache: dict[ReadCache[Response] | None, list[Key]] = {}
        for key, place in places.items():
            by_cache.setdefault(self._cache_of(asked[place][0]), []).append(key)
        found: dict[Key, Read] = {}
        for cache, keys in by_cache.items():
            if cache is None:
                found |= load_items(keys)
            else:
                found |= {key: (got.value, got.units) for key, got in cache.get_many(keys, load_items).items()}
        for key, place in places.items():
            self.count(asked[place][0], found[key][1])
        return [found[subject, name][0].get("Item") for _, subject in asked]

    def count(self, collection: str | None, units: float) -> None:
        """Count what was read of a key as its heat, from the cache or not."""
        if self.engine is not None and collection is not None:
            self.engine.count_read(collection, units)

    @contextmanager
    def changing(self, subjects: Iterable[str]) -> Iterator[None]:
        """Drop this process's values of subjects, before they are changed and once more afterwards."""
        subjects = list(subjects)
        try:
            for subject in subjects:
                self.shared.forget(subject)
            yield
        finally:
            for subject in subjects:
                self.shared.forget(subject)

    def _cache_of(self, collection: str | None) -> ReadCache[Response] | None:
        if self.engine is None or (collection is not None and self.engine.routes.for_read(collection).copies):
            return self.shared
        return self.alone

    def _name(self, request: Mapping[str, Any]) -> str:
        """Name all that shapes a response: other requests of the same subject have other names."""
        shape = {name: value for name, value in request.items() if name not in _NOT_IN_A_NAME}
        return _digest(f"{self.table} {_text_of(shape)}")


@lru_cache
def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


def subject_of(*key: Any) -> str:
    """Name an item by the values of its key: different items have different names.

    Raises:
        TypeError: one of them is no string, number or binary.
    """
    kinds = ["S" if isinstance(value, str) else "N" if isinstance(value, (int, Decimal)) else "B" for value in key]
    texts = [f"{kind}{text_of(value)}" for kind, value in zip(kinds, key, strict=True)]
    return f"{len(texts[0])}{''.join(texts)}"


def open_cached_reads(table: str, given: GivenCache | None, engine: Engine | None) -> CachedReads | None:
    """Open what `cache=True` of one table reads through; None: there is no cache.

    Args:
        table: names the table among all of one cache.
        given: the owner's cache.
        engine: the table's, which brings its own cache; None where it does not know which keys are read-hot.
    """
    codec = ResponseCodec()
    if engine is None:
        return None if given is None else CachedReads(table=table, shared=given.view(codec))
    if given is not None:
        shared = given.view(codec, engine.page_store)
        alone = shared.view(codec, None)
        return CachedReads(table=table, shared=shared, alone=alone, engine=engine)
    if engine.make_cache is None:
        return None
    return CachedReads(table=table, shared=engine.make_cache(codec), engine=engine)


def _text_of(value: Any) -> str:
    """Write a parameter: different ones have different texts."""
    match value:
        case ConditionBase():
            return f"{type(value).__name__}{_text_of(value.get_expression()['values'])}"
        case AttributeBase():
            return f"{type(value).__name__}({value.name!r})"
        case Mapping():
            return f"{{{', '.join(sorted([f'{_text_of(name)}: {_text_of(each)}' for name, each in value.items()]))}}}"
        case list() | tuple():
            return f"[{', '.join([_text_of(each) for each in value])}]"
        case AbstractSet():
            return f"set({', '.join(sorted([_text_of(each) for each in value]))})"
        case _:
            return repr(value)
