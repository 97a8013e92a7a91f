"""A small function for the local run; what an event's `do` says, it does."""

import importlib.util
import os
import threading
import time
from collections import Counter
from pathlib import Path

COUNTED = Counter()


def tick():
    while True:
        COUNTED["ticks"] += 1
        time.sleep(0.001)


threading.Thread(target=tick, daemon=True).start()


def handler(event, context):
    return DOES[event["do"]](event, context)


def look_around(event, context):
    """List what Lambda's world has, and this program's own packages must not be in."""
    import boto3  # noqa: PLC0415 - it takes long
    from from_layer import WORD  # noqa: PLC0415 - some have no layer

    names = ("GIVEN", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "AWS_ENDPOINT_URL_DYNAMODB", "_HANDLER")
    return [
        *(event, WORD, *map(os.environ.get, names), context.invoked_function_arn),
        boto3.resource("dynamodb").Table("readings").name,
        importlib.util.find_spec("moto") is None,
        os.getcwd() == os.environ["LAMBDA_TASK_ROOT"],  # noqa: PTH109 - as Lambda says it
        0 < context.get_remaining_time_in_millis() <= 600_000,
    ]


def await_tick(_, __):
    before = COUNTED["ticks"]
    while COUNTED["ticks"] == before:
        time.sleep(0.001)
    return COUNTED["ticks"]


def meet(event, _):
    """Wait until `count` files are in a folder, one for each process."""
    assert not COUNTED["requests"]
    COUNTED["requests"] += 1
    folder = Path(event["folder"])
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < event["count"]:
        time.sleep(0.01)
    COUNTED["requests"] -= 1
    return os.getpid()


DOES = {
    "look": look_around,
    "await tick": await_tick,
    "meet": meet,
    "say": lambda _, __: os.getpid(),
    "fail": lambda _, __: int("no"),
    "exit": lambda _, __: os._exit(3),
    "hang": lambda _, __: time.sleep(600),
}
