"""A stand-in for DynamoDB that responds fast, after a set delay: the real protocol, on loopback, in its own process.

It takes the requests that the functions and their rivals send, checks no signature, and keeps nothing that is written:
every write succeeds. `Bench.*`, a private dialect, loads the items that are read, and sets the delay. It knows just the
two key conditions that are in use here.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import zlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping
from contextlib import suppress
from email.utils import formatdate
from typing import Any

from hotpartition.core.capacity import read_units

_KEY_CONDITION = re.compile(r"pk = (:\w+)(?: AND sk BETWEEN (:\w+) AND (:\w+))?")
_NAME = re.compile(r"#\w+")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TARGET = re.compile(rb"\r\nx-amz-target: *(\w+)\.(\w+)\r\n", re.IGNORECASE)


class StandIn:
    """The server, and its items by partition and sort key, in their encoded form."""

    def __init__(self) -> None:
        self._delay_seconds = 0.0
        self._sort_keys: dict[str, list[str]] = {}
        self._encoded: dict[tuple[str, str], bytes] = {}

    async def serve(self, port: int) -> None:
        """Serve on loopback until killed."""
        server = await asyncio.start_server(self._talk, "127.0.0.1", port)
        await server.serve_forever()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: a request at a time, any number of them."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length, target = _LENGTH.search(head), _TARGET.search(head)
                if length is None or target is None:
                    raise ValueError(f"not a request of DynamoDB's: {head!r}")
                request = json.loads(await reader.readexactly(int(length[1])))
                if target[1] == b"Bench":
                    body = self.control(target[2].decode(), request)
                else:
                    body = self.respond(target[2].decode(), request)
                    if self._delay_seconds:
                        await asyncio.sleep(self._delay_seconds)
                writer.write(_head_of(body) + body)
        writer.close()

    def control(self, command: str, request: dict[str, Any]) -> bytes:
        """Obey a benchmark: `Load` stores items, `Configure` sets how long responses take."""
        if command == "Load":
            for item in request["items"]:
                pk, sk = key = _key_of(item)
                insort(self._sort_keys.setdefault(pk, []), sk)
                self._encoded[key] = _dump(item)
        elif command == "Configure":
            self._delay_seconds = request["delay_ms"] / 1000
        return b"{}"

    def respond(self, operation: str, request: dict[str, Any]) -> bytes:
        """Serve one request; for one that it does not know, the connection ends."""
        match operation:
            case "PutItem" | "UpdateItem":
                return b"{}"
            case "GetItem":
                found = self._encoded.get(_key_of(request["Key"]))
                return b'{"Item":%b}' % found if found else b"{}"
            case "BatchGetItem":
                ((name, asked),) = request["RequestItems"].items()
                items = [found for key in asked["Keys"] if (found := self._encoded.get(_key_of(key)))]
                return b'{"Responses":{"%b":[%b]},"UnprocessedKeys":{}}' % (name.encode(), b",".join(items))
            case "Query":
                return self._query(request)
        raise ValueError(f"the stand-in does not know {operation}")

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


def _head_of(body: bytes) -> bytes:
    head = (
        "HTTP/1.1 200 OK\r\nServer: Server\r\nContent-Type: application/x-amz-json-1.0\r\n"
        f"Content-Length: {len(body)}\r\nConnection: keep-alive\r\n"
        "x-amzn-RequestId: BENCHBENCHBENCHBENCHBENCHBENCHBENCHBENCHBENCHBENCHBE\r\n"
        f"x-amz-crc32: {zlib.crc32(body)}\r\nDate: {formatdate(usegmt=True)}\r\n\r\n"
    )
    return head.encode()


def _key_of(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def _dump(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


if __name__ == "__main__":
    asyncio.run(StandIn().serve(int(sys.argv[1])))
