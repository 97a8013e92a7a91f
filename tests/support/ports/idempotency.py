"""A Lambda handler made idempotent by Powertools, on a table with a partition and a sort key."""

import boto3
from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent_function


def build(table_name, charge, context):
    """Build a function that charges an order once, however often it is called."""
    persistence = DynamoDBPersistenceLayer(
        table_name=table_name,
        key_attr="PK",
        sort_key_attr="SK",
        static_pk_value="idempotency#charge",
        boto3_client=boto3.client("dynamodb"),
    )
    config = IdempotencyConfig(event_key_jmespath="id", lambda_context=context)

    @idempotent_function(data_keyword_argument="order", persistence_store=persistence, config=config)
    def charge_once(*, order):
        return charge(order)

    return charge_once
