"""How a `ShardedTable` reaches DynamoDB: through the boto3 `Table` that it is given, or past most of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Transport = Callable[[Any], Any]
"""Wraps a boto3 `Table`, or what behaves like one."""


def curl() -> Transport:
    """Send requests about items through libcurl: less CPU, and all queries of a page on one thread.

    Results, errors, credentials, endpoint, region and retries are those of the table that the `ShardedTable` is given.
    botocore's event hooks do not run for what succeeds at once.

    Raises:
        ImportError: pycurl is not installed.

    Example:
        >>> ShardedTable(table, shards=fixed(16), transport=curl())
    """
    try:
        from hotpartition.dynamodb.curl_client import CurlTable  # noqa: PLC0415 - pycurl is an extra of the package
    except ModuleNotFoundError as error:
        raise ImportError(f"curl() needs {error.name}: pip install 'hotpartition[curl]'", name=error.name) from error
    return CurlTable
