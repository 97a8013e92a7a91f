"""The connection to Redis, and every key in it. Only this folder knows redis-py.

All keys begin with `hp:<table>:`: a table restored from a backup is a new table and starts with a fresh registry. Only
hints about reads have a TTL, and the server's eviction policy is `noeviction`. Braces hold the cluster's hash tag.

`hp:<table>:route:{<collection>}`, set of `<shard count>@<since, Unix ms>`
    Written by the consumer and by readers that repair it, read by writers and readers. If it vanishes, readers ask the
    journal and repair it, and writers use the base key: slower, never wrong.
`hp:<table>:reads:{<collection>}`, string: `3`, in how many copies its newest page is kept; TTL 60 s
    Written by the consumer while the collection is read-hot, read by readers together with the route. If it vanishes,
    each read goes to DynamoDB until the consumer writes it again, some seconds later.
`hp:<table>:page:{<collection>/<copy>}:<variant>`, hash with the field `page`: format, when the lease to read it was
    taken (Unix ms, by Redis's clock), how long after that it expires (ms: the staleness bound), how long the read took
    (ms), its read units, the page
    Written by the reader that has the lease, all copies; read by readers, each its own. If it vanishes, it is read
    from DynamoDB again.
`hp:<table>:lease:{<collection>}:<variant>`, hash with the field `holder`; TTL a quarter of a second
    Written by the reader that reads the page for all. If it vanishes, two readers do.
`hp:<table>:raises`, number: how many raises the consumers made; TTL an hour, from the first of them
    Written and read by the consumer. If it vanishes, the hour's limit of raises begins anew.
`hp:<table>:warm:{<collection>}`, string `1`: its load was half of what makes hot, or more; TTL `close_after_seconds`
    Written and read by the consumer, also without a collection, after Redis was emptied. If it vanishes, the collection
    may be closed too early, which costs the next rush another raise.
`hp:<table>:closing`, string: up to where routing items were looked through for what has cooled
    Written and read by the consumer. If it vanishes, that begins with the first.
`hp:<table>:reports:{<partition>}`, stream of what `reports.py` describes, trimmed to the last 60 s
    Written by writers and readers, read by the consumer. If it vanishes, a raise comes a little later.
`hp:<table>:consumer`, sorted set: member `latest`, score the start of the latest consumer (Unix ms)
    Written and read by the consumer. If it vanishes, two consumers overlap until the older one's time is up.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from threading import Lock
from typing import Any

from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import Connection, SSLConnection
from redis.credentials import CredentialProvider
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    ConnectionError,  # noqa: A004
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004
    TryAgainError,
)
from redis.retry import Retry

from hotpartition.core.access import Certificates
from hotpartition.core.errors import RegistryForeignError, RegistryRefusedError, RegistryUnavailableError
from hotpartition.core.ports import Telemetry
from hotpartition.redis.acl import COMMANDS, Role, build_rights

Command = Sequence[str | int]
"""Its name, and its arguments."""

_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError, ssl.SSLCertVerificationError)
"""Errors that another try with the same user, password and rights would meet again."""

_REDIRECTIONS = (AskError, TryAgainError)
"""Errors about where a slot is; a `MovedError` is an `AskError`."""

_KEY_PLACES = dict.fromkeys(COMMANDS[Role.WRITER] + COMMANDS[Role.READER] + COMMANDS[Role.CONSUMER], 1) | {"xread": 4}
"""The commands in use on keys, and where in each the key stands."""

ACCESS = build_rights(Role, "*")
"""The rights of one user for all functions, as ACL SETUSER and ElastiCache's access strings write them."""


route_key = "hp:{}:route:{{{}}}".format
read_hot_key = "hp:{}:reads:{{{}}}".format  # in the slot of its route
page_key = "hp:{0}:page:{{{1}/{3}}}:{2}".format  # copies are in different slots
lease_key = "hp:{}:lease:{{{}}}:{}".format
reports_key = "hp:{}:reports:{{{}}}".format
consumer_key = "hp:{}:consumer".format
raises_key = "hp:{}:raises".format
warm_key = "hp:{}:warm:{{{}}}".format
closing_key = "hp:{}:closing".format
"""Each builds a key, as described above: of the table's name, then the collection or partition, the variant, the copy.
"""


@cache
def _trust(certificates: Certificates, is_strict: bool) -> ssl.SSLContext:
    """Build what TLS connections share: reading the system's certificates takes some 20 ms."""
    context = ssl.create_default_context(cafile=certificates.file or None, capath=certificates.folder or None)
    if not is_strict:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _tls(
    now_ms: Callable[[], float], limit_ms: float, certificates: Certificates, is_strict: bool
) -> type[SSLConnection]:
    """Build redis-py's TLS connection: it shares one context, and its limit is for TCP, TLS and AUTH together."""

    class Tls(SSLConnection):
        def connect(self) -> None:  # each command calls it first
            if self._sock is None:
                self._deadline_ms = now_ms() + limit_ms
                super().connect()  # type: ignore[no-untyped-call]

        def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
            self._hurry(sock)
            return _trust(certificates, is_strict).wrap_socket(sock, server_hostname=self.host)

        def on_connect(self) -> None:
            connected: Any = self._sock
            self._hurry(connected)
            super().on_connect()  # type: ignore[no-untyped-call]
            connected.settimeout(self.socket_timeout)

        def _hurry(self, sock: socket.socket) -> None:
            # No timeout at all would be 0, which means a socket that never waits.
            sock.settimeout(max(1.0, self._deadline_ms - now_ms()) / 1000)

    return Tls


class ClusterClient(RedisCluster):
    """redis-py's cluster client, quicker to open and quicker to give up."""

    ERRORS_ALLOW_RETRY = (ConnectionError, TimeoutError)  # type: ignore[assignment]  # typed as its first value is
    """Not for a cluster that says it is down: redis-py waits for 250 ms before each of these retries."""

    def command(self, **_: Any) -> dict[str, dict[str, Any]]:
        """Name the commands in use here, and where their key stands.

        redis-py asks the server for its whole command table each time a client is opened, which takes ten times as
        long as the rest (some 40 ms of parsing), and asks it where the key stands at every XREAD.
        """
        return {
            name: {"name": name, "flags": [], "first_key_pos": place, "last_key_pos": place, "step_count": 1}
            for name, place in _KEY_PLACES.items()
        }

    def run_together(self, key: str, *commands: Command) -> list[Any]:
        """Run commands on keys of one slot in one round trip.

        redis-py's pipeline for clusters takes as long as the commands one after the other; its pipeline for a single
        server, as long as one command, and for a single one less CPU than the cluster's way. It is tried as often as
        a single command is. Where slots move, the commands are sent one by one: redis-py then does with each what it
        always does.
        """
        responses: list[Any] = []
        for is_last in (False, True):
            node: ClusterNode = self.get_node_from_key(key)  # type: ignore[no-untyped-call]
            server = self.get_redis_connection(node)
            try:
                with server.pipeline(transaction=False) as pipeline:
                    for command in commands:
                        pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
                    responses = pipeline.execute(raise_on_error=False)
                break
            except AuthenticationError:
                raise  # a kind of ConnectionError; the node is well
            except self.ERRORS_ALLOW_RETRY as error:
                # As redis-py does: idle connections may be as dead as this one, and another node may have the slot.
                server.connection_pool.disconnect(inuse_connections=False)
                self.nodes_manager.initialize(last_failed_node_name=node.name)
                # A node that is loading its data, say, refuses a second try: kinds of these errors are others.
                if is_last or type(error) not in self.ERRORS_ALLOW_RETRY:
                    raise
        errors = [response for response in responses if isinstance(response, ResponseError)]
        if any(isinstance(error, _REDIRECTIONS) for error in errors):
            return [self.execute_command(*command) for command in commands]  # type: ignore[no-untyped-call]
        if errors:
            if isinstance(errors[0], ClusterDownError):
                # As redis-py does, which waits for 250 ms first: after the cooldown another node may have the slot.
                self.nodes_manager.initialize()
            raise errors[0]
        return responses


class RedisConnection:
    """A lazily opened cluster client; a node of it that failed is left alone for a while.

    So a dead node costs one timeout in each cooldown, not one in each request, and the others serve on. Not opened
    before the first call, so that a function starts while Redis is away. Several threads may share it: they open it
    once, and each uses a connection of its own only while another is in use.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        is_tls: bool,
        connect_timeout_ms: int,
        command_timeout_ms: int,
        cooldown_ms: int,
        now_ms: Callable[[], float],
        certificates: Certificates | None = None,
        is_strict: bool = True,
        credentials: CredentialProvider | None = None,
        on_refusal: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Remember how to connect to the cluster whose configuration endpoint is `host`.

        A connection's limit includes TLS and authentication; `now_ms` is a monotonic clock. Without `certificates` the
        system's are trusted. `on_refusal` gets, once a cooldown, why Redis refuses this user.
        """
        trusted = certificates or Certificates()
        self._options: dict[str, Any] = {
            # As an URL, because a class of connections is taken only then.
            "url": f"redis://{host}:{port}",
            "credential_provider": credentials,
            "socket_connect_timeout": connect_timeout_ms / 1000,
            "socket_timeout": command_timeout_ms / 1000,
            # One retry, so that a redirected or re-established connection is used at once.
            "retry": Retry(NoBackoff(), 1),
            # Always by the configuration endpoint's name: the nodes found through it may all have been replaced.
            "dynamic_startup_nodes": False,
            # RESP3 costs two more round trips a connection, and lets a server in maintenance lift the timeouts.
            "protocol": 2,
            "driver_info": None,
            "decode_responses": True,
            # Redis may hold any bytes: invalid UTF-8 becomes a text that no parser accepts.
            "encoding_errors": "backslashreplace",
            "connection_class": _tls(now_ms, connect_timeout_ms, trusted, is_strict) if is_tls else Connection,
        }
        self._cooldown_ms = cooldown_ms
        self._on_refusal = on_refusal
        self._now_ms = now_ms
        self._opening = Lock()
        self._client: ClusterClient | None = None
        # node name -> until when it is left alone; the whole cluster, while it cannot be opened, has the name ""
        self._cooling: dict[str, float] = {}

    def run(self, key: str, *commands: Command) -> list[Any]:
        """Run commands on a key, or on keys of its slot, in one round trip.

        Raises:
            RegistryForeignError: a key is of another type.
            RegistryRefusedError: the key's node does not let us in.
            RegistryUnavailableError: the key's node failed, or failed so recently that it is left alone.
        """
        node = ""
        try:
            client = self._open()
            node = _node_of(client, key)
            self._check_cooldown(node)
            return client.run_together(key, *commands)
        # RedisClusterException, which says that no node could be reached, is not a RedisError.
        except (RedisError, RedisClusterException, OSError) as error:
            refusal = _refusal_in(error)
            if _is_wrong_type(error):
                named = dict.fromkeys(str(command[_KEY_PLACES[str(command[0]).lower()]]) for command in commands)
                raise RegistryForeignError(f"{' or '.join(named)} is of another type: {error}") from error
            if refusal is not None or not _is_about_this_command(error):
                self._cool(node)
            if refusal is not None:
                reason = f"Redis refused: {refusal}"
                self._on_refusal(reason)
                raise RegistryRefusedError(reason) from error
            raise RegistryUnavailableError(f"Redis failed: {error}") from error

    def _open(self) -> ClusterClient:
        with self._opening:
            if self._client is None:
                self._check_cooldown("")
                start: list[ClusterNode] = []
                try:
                    self._client = ClusterClient(startup_nodes=start, **self._options)
                except BaseException:
                    # Before another thread tries as well, which waits for this one.
                    self._cool("")
                    # A client that failed to open may hold a connection: it is closed here.
                    for node in start:
                        if node.redis_connection is not None:
                            node.redis_connection.connection_pool.disconnect()
                    raise
            return self._client

    def _cool(self, node: str) -> None:
        self._cooling[node] = self._now_ms() + self._cooldown_ms

    def _check_cooldown(self, node: str) -> None:
        if self._now_ms() < self._cooling.get(node, float("-inf")):
            raise RegistryUnavailableError("Redis failed a moment ago and is left alone")

    def close(self) -> None:
        """Close the client, if one is open; a later call opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.disconnect_connection_pools()  # type: ignore[no-untyped-call]
            client.close()


class RedisAdapter:
    """What the adapters have: a connection, the table that their keys name, and where foreign data is reported."""

    def __init__(self, connection: RedisConnection, table_name: str, telemetry: Telemetry | None = None) -> None:
        """Use a connection; `telemetry` gets foreign data."""
        self._connection = connection
        self._table_name = table_name
        self._telemetry = telemetry

    def _run(self, key: str, *commands: Command, **facts: str) -> list[Any]:
        """Run commands as the connection does; a key of another type is reported with these facts."""
        try:
            return self._connection.run(key, *commands)
        except RegistryForeignError as error:
            self._report(str(error), **facts)
            raise

    def _report(self, reason: str, **facts: str) -> None:
        if self._telemetry is not None:
            self._telemetry.event("foreign data in redis skipped", reason=reason, **facts)


def _node_of(client: ClusterClient, key: str) -> str:
    node: ClusterNode | None = client.get_node_from_key(key)  # type: ignore[no-untyped-call]
    return node.name if node else ""


def _refusal_in(error: BaseException) -> BaseException | None:
    """Find the refusal that redis-py may have wrapped up as a failure to reach any node."""
    return next((cause for cause in _causes(error) if isinstance(cause, _REFUSALS)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_wrong_type(error: Exception) -> bool:
    return isinstance(error, ResponseError) and str(error).startswith("WRONGTYPE")


def _is_about_this_command(error: Exception) -> bool:
    """Say whether Redis is well and refused this one command, for instance on a key of another type."""
    return isinstance(error, ResponseError) and not isinstance(error, ClusterDownError)
