"""The clients of a `ShardedTable`: they create, change, overwrite, delete and read items, and repeat what was refused.

A change appends a token to an item's log. An item of its own for each client is overwritten with the next number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError, ReadTimeoutError

from hotpartition.core.errors import InvalidRequestError, RetryLaterError
from tools.history import Seen
from tools.world.functions import NoResponseError, TooManyRequestsError
from tools.world.network import LONGEST_LATENESS_SECONDS
from tools.world.product import Calls, SimulatedTable, World
from tools.world.record import Offer, Record

COLLECTIONS = ("hot|1", "cold")
CLIENTS = 6
WAIT_SECONDS = 0.12
"""Mean time between two calls of one client."""
AUDIT_SECONDS = 60.0
EXPECTED_CODES = frozenset(
    {
        "ConditionalCheckFailedException",
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "TransactionCanceledException",
        "TransactionConflictException",
    }
)
"""What the faults are answered with; any other error is a bug."""
PATIENCE_SECONDS = 29.0
"""How long a client waits: longer than any call takes, so that a call without a response was one of a dead process."""
CALM_SECONDS = 0.5
"""How long a client waits after its environment died: by then, what had been sent has happened."""


@dataclass(slots=True)
class _Client:
    """What one client knows."""

    index: int
    random: Random
    registers: dict[tuple[str, str], int] = field(default_factory=dict)
    """Items that it alone overwrites, and their last numbers."""
    made: int = 0


class TableClients:
    """All clients of one table."""

    def __init__(self, world: World, function: Calls, record: Record) -> None:
        self.record = record
        self.operations = 0
        self.function = function
        """May be another one after a while."""
        self.engine = world.engine
        self._world = world
        self._clients = [_Client(index, world.random(f"client {index}")) for index in range(CLIENTS)]

    def start(self) -> None:
        """Work until the world is over."""
        for client in self._clients:
            self.engine.spawn(lambda client=client: self._work(client))  # type: ignore[misc]

    def audit(self) -> None:
        """Read all there is, as a whole and one by one."""

        def read() -> None:
            for collection in COLLECTIONS:
                for newest_first in (False, True):
                    self._read_collection(collection, is_strong=True, newest_first=newest_first, limit=None)
                for sort_key in sorted(self.record.offers.get(collection, {})):
                    self._read_one(collection, sort_key)

        self.engine.run_to_end(read, AUDIT_SECONDS)

    def _work(self, client: _Client) -> None:
        random = client.random
        kinds = self._create, self._create_many, self._change, self._overwrite, self._delete, self._look_up, self._read
        while not self._world.is_over:
            self.engine.sleep(random.expovariate(1 / WAIT_SECONDS))
            if not self._world.is_over:
                (act,) = random.choices(kinds, (0.22, 0.05, 0.23, 0.1, 0.07, 0.13, 0.2))
                act(client)

    def _ask(self, call: Callable[[SimulatedTable], Any]) -> tuple[Any, Exception | None]:
        """Have a call made; return its response, or why there is none. What no fault explains is raised."""
        self.operations += 1
        try:
            return self.function.invoke(call, timeout_seconds=PATIENCE_SECONDS), None
        except ClientError as error:
            if error.response["Error"]["Code"] not in EXPECTED_CODES:
                raise
            return None, error
        except (NoResponseError, TooManyRequestsError) as error:
            self.engine.sleep(CALM_SECONDS)
            return None, error
        except (ReadTimeoutError, RetryLaterError, InvalidRequestError) as error:
            return None, error

    def _new_item(self, client: _Client) -> dict[str, Any]:
        """Make up an item that is offered from now on."""
        random = client.random
        client.made += 1
        moment = self.engine.now_ms() - random.randrange(3_000)
        collection, sort_key = choose_collection(random), f"{moment:015}-{client.index}-{client.made}"
        owner = f"o{random.randrange(3)}"
        self.record.note_offer(collection, sort_key, owner, offered_at=self.engine.now)
        return {"PK": collection, "SK": sort_key, "owner": owner, "log": []}

    def _note_created(self, item: Mapping[str, Any]) -> None:
        self.record.note_acknowledged(item["PK"], item["SK"], item["owner"], self.engine.now)

    def _attempts(self, client: _Client) -> Iterator[int]:
        """Count three attempts, with a pause after each but the one that ends it."""
        for number in range(3):
            yield number
            self.engine.sleep(0.1 + client.random.random())

    def _create(self, client: _Client) -> None:
        """Create an item, again and again while it is unknown whether it is there."""
        item = self._new_item(client)
        if client.random.random() < 0.25:
            client.registers[item["PK"], item["SK"]] = 0
            item |= {"number": 0}
        for number in self._attempts(client):
            _, error = self._ask(lambda table: table.put_item(Item=item))
            if error is None:
                self._note_created(item)
                if number and "number" not in item:
                    # An earlier attempt may still be on its way: what is changed now must outlive it.
                    self._append(client, item["PK"], item["SK"])
                return

    def _create_many(self, client: _Client) -> None:
        items = [self._new_item(client) for _ in range(1 + client.random.randrange(6))]

        def write(table: SimulatedTable) -> None:
            with table.batch_writer() as batch:
                for item in items:
                    batch.put_item(Item=item)

        _, error = self._ask(write)
        if error is None:
            for item in items:
                self._note_created(item)

    def _known(self, client: _Client, wanted: Callable[[Offer], bool] = lambda _: True) -> tuple[str, str] | None:
        """Choose an item that is there, as far as is known, and no register."""
        random = client.random
        collection = choose_collection(random)
        offers = self.record.offers.get(collection, {}).items()
        known = [key for key, offer in offers if offer.is_there and wanted(offer)]
        known = [key for key in known if not any((collection, key) in client.registers for client in self._clients)]
        return (collection, random.choice(known)) if known else None

    def _change(self, client: _Client) -> None:
        """Append a token to an item that was created, on condition that it is there; it is not repeated."""
        found = self._known(client)
        if found is not None:
            self._append(client, *found)

    def _append(self, client: _Client, collection: str, sort_key: str) -> None:
        began, token = self.engine.now, f"t{client.index}.{self.operations}"
        addition = self.record.note_addition(collection, sort_key, token, began=began)
        _, error = self._ask(
            lambda table: table.update_item(
                Key={"PK": collection, "SK": sort_key},
                UpdateExpression="SET #log = list_append(#log, :token)",
                ConditionExpression=Attr("SK").exists(),
                ExpressionAttributeNames={"#log": "log"},
                ExpressionAttributeValues={":token": [token]},
            )
        )
        if error is None:
            addition.ended_at = self.engine.now
        elif _is_absence(error):
            self.record.additions.remove(addition)
            self.record.note_lookup(collection, sort_key, (), began, self.engine.now)

    def _overwrite(self, client: _Client) -> None:
        """Overwrite a register of one's own with the next number."""
        if not client.registers:
            return
        place = collection, sort_key = client.random.choice(list(client.registers))
        offer = self.record.offers[collection][sort_key]
        if not offer.is_there:
            return
        number = client.registers[place] = client.registers[place] + 1
        item: dict[str, Any] = {"PK": collection, "SK": sort_key, "owner": offer.digest, "number": number, "log": []}
        addition = self.record.note_addition(*place, str(number), began=self.engine.now)
        _, error = self._ask(lambda table: table.put_item(Item=item))
        if error is None:
            addition.ended_at = self.engine.now

    def _delete(self, client: _Client) -> None:
        """Delete an item, again and again until it is known to be gone."""
        now = self.engine.now
        found = self._known(client, lambda offer: (offer.acknowledged_at or now) < now - LONGEST_LATENESS_SECONDS)
        if found is None:
            return
        for _ in self._attempts(client):
            deletion = self.record.note_deletion(*found, began=self.engine.now)
            _, error = self._ask(lambda table: table.delete_item(Key=dict(zip(("PK", "SK"), found, strict=True))))
            if error is None:
                deletion.ended_at = self.engine.now
                return

    # What they read.

    def _look_up(self, client: _Client) -> None:
        collection = choose_collection(client.random)
        known = sorted(self.record.offers.get(collection, {}))
        if known:
            self._read_one(collection, client.random.choice(known))

    def _read(self, client: _Client) -> None:
        random = client.random
        self._read_collection(
            choose_collection(random),
            is_strong=random.random() < 0.8,
            newest_first=random.random() < 0.5,
            limit=random.choice((None, 3, 7)),
        )

    def _read_collection(self, collection: str, *, is_strong: bool, newest_first: bool, limit: int | None) -> None:
        began = self.engine.now
        request: dict[str, Any] = {
            "KeyConditionExpression": Key("PK").eq(collection),
            "ConsistentRead": is_strong,
            "ScanIndexForward": not newest_first,
        }
        if limit is not None:
            request["Limit"] = limit
        found, error = self._ask(
            lambda table: [_seen(item) for page in table.query_pages(**request) for item in page["Items"]]
        )
        if error is None:
            self.record.note_whole_read(
                collection, found, began, self.engine.now, is_strong=is_strong, newest_first=newest_first
            )

    def _read_one(self, collection: str, sort_key: str) -> None:
        began = self.engine.now
        response, error = self._ask(
            lambda table: table.get_item(Key={"PK": collection, "SK": sort_key}, ConsistentRead=True)
        )
        if error is None:
            found = [_seen(response["Item"])] if "Item" in response else []
            self.record.note_lookup(collection, sort_key, found, began, self.engine.now)


def choose_collection(random: Random) -> str:
    """Choose one, the hot one most of the time."""
    return COLLECTIONS[random.random() < 0.3]


def _is_absence(error: Exception | None) -> bool:
    """Say whether a change found no item: refused by its condition, or because it is not known where a new one goes."""
    if isinstance(error, ClientError):
        return error.response["Error"]["Code"] == "ConditionalCheckFailedException"
    return isinstance(error, InvalidRequestError)


def position_of(sort_key: Any) -> int | None:
    """Tell the time in a sort key; of a bound that is none, nothing."""
    text = str(sort_key)[:15]
    return int(text) if text.isdecimal() else None


def _seen(item: Mapping[str, Any]) -> Seen:
    if "number" in item:
        return Seen(item["SK"], item["owner"], tuple(str(number) for number in range(1, int(item["number"]) + 1)))
    return Seen(item["SK"], item["owner"], tuple(item["log"]))
