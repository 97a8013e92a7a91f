"""A TCP front: listens on one port, with or without TLS, and leads each connection to the server that serves now."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine

_CHUNK_BYTES = 65536


class Front:
    """One port in front of servers that come and go.

    What ElastiCache's configuration endpoint is: a name that leads to a living node, and the place where TLS ends.
    """

    def __init__(self, target_port: Callable[[], int], tls: ssl.SSLContext | None = None) -> None:
        self._target_port = target_port
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        """It listens."""
        return self._server is not None

    async def start(self, port: int) -> None:
        """Listen; a port that is taken is an `OSError`."""
        self._server = await asyncio.start_server(self._lead, "127.0.0.1", port, ssl=self._tls)

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is None:
            return
        self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        await asyncio.sleep(0)  # what was broken off is closed in the loop's next round

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this in a task of its own
        self._connections.add(task)
        try:
            onward, onward_writer = await asyncio.open_connection("127.0.0.1", self._target_port())
            try:
                await _first_end(_pump(reader, onward_writer), _pump(onward, writer))
            finally:
                onward_writer.transport.abort()
        except OSError:
            pass  # nobody serves: the client finds its connection closed
        finally:
            # Without TLS's farewell, which would wait for the client's.
            writer.transport.abort()
            self._connections.discard(task)


async def _first_end(*pumps: Coroutine[None, None, None]) -> None:
    """Run both directions until one of them ends."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
