"""`ReadCache`: values that many read and few change, loaded once for a process or for a fleet."""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from importlib.util import find_spec
from sys import getsizeof
from types import NoneType
from typing import Any, TypeVar

from boto3.dynamodb.types import Binary

from hotpartition.core.errors import MalformedPageError
from hotpartition.core.freshness import CacheLimits
from hotpartition.core.ports import PageStore, Telemetry
from hotpartition.engine.read_cache import Codec, OtherT
from hotpartition.engine.read_cache import ReadCache as EngineCache
from hotpartition.runtime.clocks import ElapsedTime, system_clock
from hotpartition.runtime.connect import open_page_store
from hotpartition.table.routes import LoggedTelemetry

ValueT = TypeVar("ValueT")

STALE_TIMES = 3.0
"""The staleness bound, in TTLs, where none is given."""


class ReadCache:
    """Serves values that were loaded a moment ago: a product, a page, a configuration.

    Within a process one thread loads a value and the others wait for it. With `redis`, one process loads for the fleet.
    Each caller gets a value of its own, which it may change. Errors are not kept; None is. While loading fails, the
    last value is served up to `stale_seconds`. Redis that is down, full or filled with garbage costs loads, never an
    error. Safe under threads.

    Example:
        >>> cache = ReadCache(seconds=1)
        >>> cache.get("product:42", load=lambda: {"name": "a lamp", "price": 19})
        {'name': 'a lamp', 'price': 19}
    """

    def __init__(
        self,
        *,
        seconds: float = 1.0,
        stale_seconds: float | None = None,
        redis: str | None = None,
        name: str = "cache",
        codec: Codec[Any] | None = None,
        max_entries: int = 10_000,
        max_bytes: int = 64_000_000,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Start empty. Nothing is opened yet.

        Args:
            seconds: how long a value is fresh. It is shortened at random by up to a fifth. 0 reuses nothing.
            stale_seconds: how old a value may be when it is served, at most; at least twice `seconds`, by default three
                times. It counts from before the load began.
            redis: address of a Redis cluster (Redis 8, Valkey 9) that the fleet shares:
                `rediss://user:password@host:6379`. Without it each process loads for itself.
            name: what keys in Redis begin with: caches of one name share values, so their keys must mean the same.
            codec: writes, copies and measures values. The default takes those of JSON and of DynamoDB.
            max_entries: how many values this process keeps; the least recently used ones go first.
            max_bytes: how large they are together, by estimate.
            telemetry: gets metrics and events; by default events are logged.

        Raises:
            ValueError: a number is out of range, or `redis` is not an address.
            ImportError: `redis` is given, and redis-py is not installed.
        """
        stale = STALE_TIMES * seconds if stale_seconds is None else stale_seconds
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds is {seconds}, and must be at least 0")
        if not 2 * seconds <= stale < float("inf"):
            raise ValueError(f"stale_seconds is {stale}, and must be at least twice seconds, {2 * seconds}")
        if max_entries < 1 or max_bytes < 1:
            raise ValueError("max_entries and max_bytes must be at least 1")
        if redis is not None and find_spec("redis") is None:
            raise ImportError("ReadCache(redis=...) needs redis-py: pip install 'hotpartition[adaptive]'")
        telemetry, timer = telemetry or LoggedTelemetry(), ElapsedTime()
        self._store = None if redis is None else open_page_store(redis, name, telemetry, timer)
        self._cache: EngineCache[Any] = EngineCache(
            codec=codec or ValueCodec(),
            limits=CacheLimits(ttl_ms=seconds * 1000, bound_ms=stale * 1000),
            telemetry=telemetry,
            clock=system_clock(),
            timer=timer,
            store=self._store,
            environment_id=uuid.uuid4().hex,
            excused=(Exception,),
            max_entries=max_entries,
            max_bytes=max_bytes,
        )

    def get(self, key: str, load: Callable[[], ValueT], *, wait_seconds: float = float("inf")) -> ValueT:
        """Return the value of a key, at most `stale_seconds` old, or load it.

        Args:
            key: names the value; at most 1,024 characters.
            load: returns it; called by one thread at a time in this process.
            wait_seconds: how long to wait for another thread's or process's load, before loading it here.

        Raises:
            TypeError: the codec cannot write the value for other processes.
            Exception: `load` raised it, and no value is within the bound. All threads that wait get it.
        """
        found: ValueT = self._cache.get((key, "value"), lambda: (load(), 0.0), remaining_ms=wait_seconds * 1000).value
        return found

    def forget(self, key: str) -> None:
        """Serve this process nothing of a key that was loaded before now: call it when the value was changed.

        Other processes serve the old value up to `stale_seconds`.
        """
        self._cache.forget(key)

    def view(self, codec: Codec[OtherT], store: PageStore | None = None) -> EngineCache[OtherT]:
        """Return the cache for a table's values; `store` is the fleet's where this cache has no Redis of its own."""
        return self._cache.view(codec, self._store or store)


_TAG = "$"
"""What a value that JSON does not have is called by: an object with this name and one kind."""
_UNCHANGEABLE = (str, int, float, bytes, Decimal, NoneType)
"""Types of values that their callers may share."""


class ValueCodec:
    """`Codec` of Python values. Each comes back as the same type: a whole number is not made a `Decimal`."""

    def encode(self, value: Any) -> str:
        """Implement `Codec.encode`.

        Raises:
            TypeError: naming a value that cannot be written, and what to do.
        """
        return json.dumps(_tag(value), separators=(",", ":"))

    def decode(self, text: str) -> Any:
        """Implement `Codec.decode`."""
        try:
            return json.loads(text, object_hook=_untag)
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise MalformedPageError(f"not a cached value: {error!r}") from error

    def copy(self, value: Any) -> Any:
        """Implement `Codec.copy`."""
        if isinstance(value, _UNCHANGEABLE):
            return value
        if type(value) is dict:
            return {name: self.copy(each) for name, each in value.items()}
        if type(value) is list:
            return [self.copy(each) for each in value]
        return deepcopy(value)

    def size_bytes(self, value: Any) -> int:
        """Implement `Codec.size_bytes`."""
        size = getsizeof(value)
        if isinstance(value, dict):
            return size + sum(self.size_bytes(name) + self.size_bytes(each) for name, each in value.items())
        if isinstance(value, list | tuple | set | frozenset):
            return size + sum(self.size_bytes(each) for each in value)
        return size


def _tag(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_tag(each) for each in value]
        case dict() if all(isinstance(name, str) for name in value):
            tagged = {name: _tag(each) for name, each in value.items()}
            return {_TAG: "dict", "of": list(tagged.items())} if _TAG in tagged else tagged
        case Decimal():
            return {_TAG: "decimal", "of": str(value)}
        case Binary():
            return {_TAG: "binary", "of": b64encode(value.value).decode()}  # type: ignore[attr-defined]  # stubs lack it
        case bytes() | bytearray():
            return {_TAG: type(value).__name__, "of": b64encode(value).decode()}
        case set():
            return {_TAG: "set", "of": [_tag(each) for each in value]}
    raise TypeError(
        f"ReadCache cannot write {value!r:.80}, a {type(value).__name__}, for other processes: load what JSON and"
        " DynamoDB have (text, numbers, bytes, True, False, None; lists, sets, and dicts with texts as keys), or give"
        " ReadCache a codec= with encode, decode, copy and size_bytes"
    )


_UNTAGGED: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "decimal": Decimal,
    "binary": lambda text: Binary(b64decode(text)),
    "bytes": b64decode,
    "bytearray": lambda text: bytearray(b64decode(text)),
    "set": set,
}


def _untag(value: dict[str, Any]) -> Any:
    return _UNTAGGED[value[_TAG]](value["of"]) if _TAG in value else value
