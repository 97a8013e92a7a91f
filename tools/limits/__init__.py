"""A model of DynamoDB's throughput: who is throttled, when, and why, for tables on demand.

It holds no items: it is asked whether a request of so many units for a partition key is admitted now. It is
deterministic, does no I/O, imports the standard library alone, and knows no time but what it is given. `README.md` says
what is modelled, on what evidence, and what is not.

    >>> from tools.limits import Resource
    >>> table = Resource()                                    # a fresh table on demand
    >>> responses = [table.write("room-1", 1, now=0.0) for _ in range(1001)]
    >>> responses.count(None)                                 # one partition takes 1,000 units a second
    1000
    >>> responses[-1].reason, responses[-1].resource
    ('TableWriteKeyRangeThroughputExceeded', 'arn:aws:dynamodb:eu-central-1:123456789012:table/table')
"""

from tools.limits.latency import READ_PROFILE, WRITE_PROFILE, Latency
from tools.limits.model import PARTITION_RCU, PARTITION_WCU, Demand, Partitions, Refusal, Resource, admit
from tools.limits.reasons import REASONS, Kind, Throttle

__all__ = [
    "PARTITION_RCU",
    "PARTITION_WCU",
    "READ_PROFILE",
    "REASONS",
    "WRITE_PROFILE",
    "Demand",
    "Kind",
    "Latency",
    "Partitions",
    "Refusal",
    "Resource",
    "Throttle",
    "admit",
]
