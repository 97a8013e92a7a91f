"""Tables on moto, in this process: no network."""

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from moto import mock_aws

from support.tables import define_table, pretend_account


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[Any]:
    """boto3's resource on moto, with one attempt a request. Making one takes longer than a test."""
    with pytest.MonkeyPatch.context() as patch:
        pretend_account(patch)
        with mock_aws():
            yield boto3.resource("dynamodb", config=Config(retries={"total_max_attempts": 1}))


@pytest.fixture
def create(dynamodb: Any) -> Iterator[Callable[..., Any]]:
    """Creates tables as `define_table` defines them; they are deleted after the test."""
    made = []

    def create(name: str, *keys: str, **more: Any) -> Any:
        made.append(dynamodb.create_table(TableName=name, **define_table(*keys, **more)))
        return made[-1]

    yield create
    for table in made:
        table.delete()
