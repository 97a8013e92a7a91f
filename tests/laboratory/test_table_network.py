"""What is between the library's clients and moto in the simulator: DynamoDB's request tokens."""

import pytest
from botocore.exceptions import ClientError

from hotpartition.dynamodb.table import JournalPlace
from tools.scenarios.table_faults import MotoNetwork, open_aws
from tools.world.clock import Engine
from tools.world.network import Observer

pytestmark = pytest.mark.slow


def test_a_token_lets_a_transaction_happen_once():
    """Moto would make it again; another one under the token is refused."""
    with open_aws() as aws:
        aws.raw.create_table(
            TableName="t",
            AttributeDefinitions=[{"AttributeName": "PK", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        engine = Engine()
        network = MotoNetwork(engine, aws, JournalPlace("t", "PK", ""), seed="1", observer=Observer())
        codes = []

        def add(amount):
            update = {
                "TableName": "t",
                "Key": {"PK": {"S": "a"}},
                "UpdateExpression": "ADD n :n",
                "ExpressionAttributeValues": {":n": {"N": str(amount)}},
            }
            try:
                aws.raiser.transact_write_items(TransactItems=[{"Update": update}], ClientRequestToken="t")
            except ClientError as error:
                codes.append(error.response["Error"]["Code"])

        engine.spawn(lambda: [add(amount) for amount in (5, 5, 6)])
        engine.run_until(5.0)
        item = aws.raw.get_item(TableName="t", Key={"PK": {"S": "a"}})["Item"]
        network.close()
        engine.close()
        aws.raw.delete_table(TableName="t")
    assert (item["n"], codes) == ({"N": "5"}, ["IdempotentParameterMismatchException"])
