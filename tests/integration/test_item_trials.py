"""A rush of readers of one item, in which the process that reads for all is killed again and again: `make read-trials`.

Real processes, whose wall clocks differ by twenty seconds, on a real Redis. Monotonic times are those of the machine.
"""

import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from queue import SimpleQueue

import boto3
import pytest
from redis import Redis

from hotpartition.redis.cluster import lease_key
from support.servers import DynamoDBServer, running
from support.tables import define_table
from tools.local.redis import running_redis

READER = """
import sys, time
import boto3
endpoint, redis, skew = sys.argv[1], sys.argv[2], float(sys.argv[3])
right = time.time
time.time = lambda: right() + skew
from hotpartition import ReadCache, ShardedTable, fixed
plain = boto3.resource("dynamodb", endpoint_url=endpoint).Table("items")
def read(**_):
    print("reads", flush=True)
    time.sleep(0.12)  # in which this process may be killed
plain.meta.client.meta.events.register("before-send.dynamodb.BatchGetItem", read)
table = ShardedTable(plain, shards=fixed(2), cache=ReadCache(seconds=1, redis=redis))
while True:
    asked = time.monotonic()
    try:
        found = table.get_item(Key={"PK": "product", "SK": "42"}, cache=True)
        age = found["ResponseMetadata"]["HTTPHeaders"].get("age", 0)
        print(asked, age, found["Item"]["at"], flush=True)
    except Exception as error:
        print("refused", repr(error), flush=True)
    time.sleep(0.01)
"""
SKEWS = (0, 20, -20, 7)
SUBJECT = "8SproductS42"
"""The item's name in the cache."""
BOUND_SECONDS = 3.0
SERVED_BETWEEN = 60
"""As often an item is served between two kills, at least."""


class Rush:
    """Readers, each replaced when it dies; and one that writes the time into the item."""

    def __init__(self, endpoint, port):
        self.command = [sys.executable, "-c", READER, endpoint, f"redis://127.0.0.1:{port}"]
        self.lines, self.written, self.readers, self.threads = [], [], [], []
        self.reading, self.is_over = SimpleQueue(), threading.Event()
        self.plain = boto3.resource("dynamodb", endpoint_url=endpoint).Table("items")
        self.write()
        for skew in SKEWS:
            self.start(skew)
        self.follow(self.keep_writing)

    def start(self, skew):
        reader = subprocess.Popen([*self.command, str(skew)], stdout=subprocess.PIPE, text=True)
        self.readers.append(reader)
        self.follow(lambda: self.listen(reader))

    def follow(self, work):
        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def listen(self, reader):
        with reader.stdout as lines:
            for line in lines:
                if line == "reads\n":
                    self.reading.put(reader)
                else:
                    self.lines.append(line)

    def write(self):
        at = f"{time.monotonic():.6f}"
        self.plain.put_item(Item={"PK": "product", "SK": "42", "at": at})
        self.written.append((time.monotonic(), float(at)))

    def keep_writing(self):
        while not self.is_over.wait(0.05):
            self.write()

    def end(self):
        self.is_over.set()
        for reader in self.readers:
            reader.kill()
            reader.wait()
        for thread in self.threads:
            thread.join()

    def newest_before(self, instant):
        """Return what was written last, and surely, before an instant."""
        return max((at for acknowledged, at in self.written if acknowledged < instant), default=0.0)


def wait_for_lease(port):
    """Wait until a reader has the lease, by which one reads for all."""
    with Redis(port=port, decode_responses=True) as redis:
        while not (keys := list(redis.scan_iter("hp:cache:lease:*"))):
            time.sleep(0.01)
    assert keys[0].startswith(lease_key("cache", SUBJECT, ""))


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.long)])
def test_whoever_reads_for_all_is_killed(tmp_path, aws_environment, kills):
    """No other process is refused; nothing is older than the bound, or than it says."""
    chance = random.Random(7)
    with running_redis(tmp_path) as redis, running(DynamoDBServer()) as endpoint:
        port = redis.port
        boto3.client("dynamodb", endpoint_url=endpoint).create_table(TableName="items", **define_table("PK", "SK"))
        rush = Rush(endpoint, port)
        try:
            wait_for_lease(port)
            for number in range(kills):
                while len(rush.lines) <= SERVED_BETWEEN * number:
                    time.sleep(0.01)
                rush.reading = SimpleQueue()  # of those from now on
                reader = rush.reading.get()
                time.sleep(chance.uniform(0.0, 0.05))
                reader.kill()
                rush.start(SKEWS[number % len(SKEWS)])
        finally:
            rush.end()
    assert [line for line in rush.lines if line.startswith("refused")] == []
    served = []
    for line in rush.lines:
        with suppress(ValueError):  # a process may die while it prints
            asked, age, at = map(float, line.split())
            served.append((asked, age, at))
    assert len(served) > SERVED_BETWEEN * (kills - 1) - kills
    late = [each for each in served if each[2] < rush.newest_before(each[0] - BOUND_SECONDS)]
    young = [each for each in served if each[2] < rush.newest_before(each[0] - each[1])]
    assert (late, young) == ([], [])
