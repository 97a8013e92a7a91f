"""How a `ShardedTable` reaches DynamoDB beside a boto3 `Table`: through a boto3 client, or past most of boto3."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from boto3.dynamodb.transform import TransformationInjector
from botocore import xform_name

from hotpartition.dynamodb.calls import Response


class ClientTable:
    """A table of a boto3 *client*, with as much of a boto3 `Table` as a `ShardedTable` uses."""

    def __init__(self, client: Any, name: str) -> None:
        """Use the client without changing it: other code may use it, too.

        Raises:
            TypeError: it is not a client.
        """
        if not hasattr(getattr(client, "meta", None), "method_to_api_mapping"):
            raise TypeError(f'of_client({client!r}, …): should be boto3.client("dynamodb"), and a table\'s name')
        self.name = name
        self.meta = SimpleNamespace(client=PythonValues(client))
        self._description: Response | None = None

    def __getattr__(self, name: str) -> Any:
        """Return a method of the client about this table, or a value of DescribeTable (`key_schema`, …)."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self.meta.client.methods:
            return partial(getattr(self.meta.client, name), TableName=self.name)
        if self._description is None:
            self._description = self.meta.client.describe_table(TableName=self.name)["Table"]
        told = {xform_name(member): value for member, value in self._description.items()}
        if name not in told and name not in _OPTIONAL:
            raise AttributeError(name)
        return told.get(name)

    def __repr__(self) -> str:
        return f"ClientTable({self.name!r})"


_OPTIONAL = ("local_secondary_indexes", "global_secondary_indexes")
"""Values that DescribeTable leaves out where the table has no such index."""


class PythonValues:
    """A boto3 client that takes and gives Python values, as the client of a resource does. Safe under threads."""

    def __init__(self, client: Any) -> None:
        self._client = self.sdk_client = client
        self.methods: dict[str, str] = client.meta.method_to_api_mapping
        self._injector = TransformationInjector()

    def __getattr__(self, name: str) -> Any:
        """Return a method, or whatever else the client has."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._client, name)
        return partial(self._call, found, self.methods[name]) if name in self.methods else found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._client)})

    def _call(self, method: Callable[..., Response], operation: str, **request: Any) -> Response:
        model = self._client.meta.service_model.operation_model(operation)
        params = copy.deepcopy(request)
        self._injector.inject_condition_expressions(params, model)
        self._injector.inject_attribute_value_input(params, model)
        response = method(**params)
        self._injector.inject_attribute_value_output(response, model)
        return response


Transport = Callable[[Any], Any]
"""Wraps a boto3 `Table`, or an object that behaves like it."""


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
