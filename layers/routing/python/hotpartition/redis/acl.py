"""The rights of each function in Redis, as rules of its access control list, for AWS and the local run. Pure.

A function has a user of its own: the writer cannot touch routes, and none of them can
delete a key, or read or write one outside this table's prefix. None may list the
names of keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Role(StrEnum):
    """The roles of Redis users. The name is part of the user's name."""

    WRITER = "writer"
    READER = "reader"
    CONSUMER = "consumer"
    OPERATOR = "operator"


COMMANDS: dict[Role, tuple[str, ...]] = {
    # Asks for routes, sends reports.
    Role.WRITER: ("sscan", "xadd"),
    # Asks for routes and whether they are read-hot, repairs them, sends reports; reads and writes cached pages.
    Role.READER: ("getrange", "hget", "hpexpiretime", "hpttl", "hsetex", "sadd", "sscan", "xadd"),
    # Reads reports, raises routes and counts raises, marks read-hot keys, announces itself.
    Role.CONSUMER: ("exists", "getrange", "incr", "pexpire", "sadd", "set", "sscan", "xread", "zadd", "zscore"),
    # Compares and repairs the registry, raises routes by hand, reads reports, looks for the consumer.
    Role.OPERATOR: ("exists", "getrange", "sadd", "set", "sscan", "xread", "zscore"),
}
"""The commands of each role's code, as the modules of this folder send them."""

_CLUSTER_COMMANDS = ("asking", "cluster|slots")
"""Commands of a cluster's client when it opens, and when a slot is on its way to another node."""


def build_rights(roles: Iterable[Role], table_name: str) -> str:
    """Build the rules of a user with the rights of these roles, on the keys of one table (`*`: of every table)."""
    commands = {command for role in roles for command in COMMANDS[role]} | {*_CLUSTER_COMMANDS}
    return f"~hp:{table_name}:* resetchannels -@all {' '.join(f'+{command}' for command in sorted(commands))}"
