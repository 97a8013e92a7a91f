"""A stand-in for DynamoDB that responds fast, after a set delay: the real protocol, on loopback, in its own process.

It takes the requests that the functions and their rivals send (`PutItem`, `UpdateItem`, `GetItem`, `BatchGetItem`,
`Query`), checks no signature, and speaks one private dialect beside it, `Bench.*`, with which a benchmark loads items
and sets delays. It knows just the two key conditions that are in use here, and takes every condition of a put for
`attribute_not_exists(pk)`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from hotpartition.core.capacity import read_units

_KEY_CONDITION = re.compile(r"pk = (:\w+)(?: AND sk BETWEEN (:\w+) AND (:\w+))?")
_NAME = re.compile(r"#\w+")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TARGET = re.compile(rb"\r\nx-amz-target: *(\w+)\.(\w+)\r\n", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"


@dataclass(slots=True)
class Items:
    """Items by partition and sort key, in their encoded form."""

    keeps_puts: bool = True
    _sort_keys: dict[str, list[str]] = field(default_factory=dict)
    _encoded: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def put(self, item: Mapping[str, Any]) -> None:
        """Store an item."""
        key = _key_of(item)
        if key not in self._encoded:
            insort(self._sort_keys.setdefault(key[0], []), key[1])
        self._encoded[key] = _dump(item)

    def respond(self, operation: str, request: dict[str, Any]) -> tuple[int, bytes]:
        """Serve one request: the HTTP status and the body."""
        match operation:
            case "PutItem":
                return self._put_item(request)
            case "UpdateItem":
                return 200, b"{}"
            case "GetItem":
                found = self._encoded.get(_key_of(request["Key"]))
                return 200, b'{"Item":%b}' % found if found else b"{}"
            case "BatchGetItem":
                ((name, asked),) = request["RequestItems"].items()
                items = [found for key in asked["Keys"] if (found := self._encoded.get(_key_of(key)))]
                return 200, b'{"Responses":{"%b":[%b]},"UnprocessedKeys":{}}' % (name.encode(), b",".join(items))
            case "Query":
                return 200, self._query(request)
            case _:
                return 400, b'{"__type":"com.amazon.coral.service#UnknownOperationException"}'

    def _put_item(self, request: dict[str, Any]) -> tuple[int, bytes]:
        item = request["Item"]
        stored = self._encoded.get(_key_of(item))
        if stored is not None and "ConditionExpression" in request:
            kind = b"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"
            message = b"The conditional request failed"
            return 400, b'{"__type":"%b","message":"%b","Item":%b}' % (kind, message, stored)
        if self.keeps_puts:
            self.put(item)
        return 200, b"{}"

    def _query(self, request: dict[str, Any]) -> bytes:
        names = request.get("ExpressionAttributeNames", {})
        match = _KEY_CONDITION.fullmatch(_NAME.sub(lambda name: names[name[0]], request["KeyConditionExpression"]))
        if match is None:
            raise ValueError(f"the stand-in does not know {request['KeyConditionExpression']!r}")
        values = request["ExpressionAttributeValues"]
        partition_key = values[match[1]]["S"]
        keys = self._sort_keys.get(partition_key, [])
        if match[2]:
            keys = keys[bisect_left(keys, values[match[2]]["S"]) : bisect_right(keys, values[match[3]]["S"])]
        if not request.get("ScanIndexForward", True):
            keys = keys[::-1]
        if start := request.get("ExclusiveStartKey"):
            keys = keys[keys.index(start["sk"]["S"]) + 1 :]
        limit = request.get("Limit", len(keys) + 1)
        taken = keys[:limit]
        encoded = b",".join([self._encoded[partition_key, key] for key in taken])
        response = b'{"Count":%d,"Items":[%b],"ScannedCount":%d' % (len(taken), encoded, len(taken))
        if request.get("ReturnConsumedCapacity", "NONE") != "NONE":
            # By the bytes that are sent, which are some more than those that are stored.
            units = read_units(len(encoded), is_strong=request.get("ConsistentRead", False))
            consumed = {"CapacityUnits": units, "TableName": request["TableName"]}
            response += b',"ConsumedCapacity":%b' % _dump(consumed)
        if len(taken) == limit:  # as DynamoDB does, whether anything follows or not
            last = {"pk": {"S": partition_key}, "sk": {"S": taken[-1]}}
            return response + b',"LastEvaluatedKey":%b}' % _dump(last)
        return response + b"}"


class StandIn:
    """The server."""

    def __init__(self) -> None:
        self.items = Items()
        self.delay_seconds = 0.0

    async def serve(self, port: int) -> None:
        """Serve on loopback until killed."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self, loop), "127.0.0.1", port)
        await server.serve_forever()

    def control(self, command: str, request: dict[str, Any]) -> bytes:
        """Obey a benchmark: `Load` stores items, `Configure` sets how long responses take and if puts are kept."""
        if command == "Load":
            for item in request["items"]:
                self.items.put(item)
        elif command == "Configure":
            self.delay_seconds = request.get("delay_ms", 0.0) / 1000
            self.items.keeps_puts = request.get("keeps_puts", True)
        return b"{}"


class _Connection(asyncio.Protocol):
    """One connection: a request at a time, any number of them."""

    def __init__(self, owner: StandIn, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self._loop = loop
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("not a stream")
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._is_busy:
            self._take_request()

    def _take_request(self) -> None:
        head_end = self._received.find(_HEAD_END)
        if head_end < 0:
            return
        head = bytes(self._received[: head_end + 2])
        length = _LENGTH.search(head)
        end = head_end + len(_HEAD_END) + (int(length[1]) if length else 0)
        if len(self._received) < end:
            return
        body = bytes(self._received[head_end + len(_HEAD_END) : end])
        del self._received[:end]
        target = _TARGET.search(head)
        if target is None:
            raise ValueError("a request without X-Amz-Target")
        request = json.loads(body)
        if target[1] == b"Bench":
            self._send(200, self._owner.control(target[2].decode(), request))
            return
        status, response = self._owner.items.respond(target[2].decode(), request)
        if delay := self._owner.delay_seconds:
            self._is_busy = True
            self._loop.call_later(delay, self._send, status, response)
        else:
            self._send(status, response)

    def _send(self, status: int, body: bytes) -> None:
        self._is_busy = False
        if self._transport is None:
            return
        phrase = "OK" if status == 200 else "Bad Request"
        head = (
            f"HTTP/1.1 {status} {phrase}\r\nServer: Server\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"Content-Length: {len(body)}\r\nConnection: keep-alive\r\n"
            "x-amzn-RequestId: BENCHBENCHBENCHBENCHBENCHBENCHBENCHBENCHBENCHBENCHBE\r\n"
            f"x-amz-crc32: {zlib.crc32(body)}\r\nDate: {formatdate(usegmt=True)}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)
        if self._received:
            self._take_request()


def _key_of(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def _dump(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


if __name__ == "__main__":
    asyncio.run(StandIn().serve(int(sys.argv[1])))
