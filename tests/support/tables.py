"""The table of the tests; a test of the infrastructure holds it to the synthesized one."""

from __future__ import annotations

import pytest

from hotpartition.dynamodb.table import JournalPlace
from hotpartition_messages.keys import describe_table
from tools.world.dynamodb import define_table

BESIDE = JournalPlace("readings", "PK", "SK")
"""Routing items in the collections of a table `readings`, which has no index of them."""

TABLE_NAME = "hotpartition-test"
INDEX_NAME = "routing-index"
TABLE = describe_table(TABLE_NAME)


def pretend_account(patch: pytest.MonkeyPatch) -> None:
    """Set credentials and a region that do not exist."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_SESSION_TOKEN"):
        patch.delenv(name, raising=False)
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


TABLE_SCHEMA = define_table("pk", "sk", indexes={INDEX_NAME: ("routing_partition", "updated_at")})
