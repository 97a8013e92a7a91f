"""Tables that the command line works on by itself."""

from hotpartition.dynamodb.table import JournalPlace

BESIDE = JournalPlace("readings", "PK", "SK")
APART = JournalPlace("routes", "collection", sort_key="")


def create(client, name, **keys):
    kinds = dict(zip(keys, ("HASH", "RANGE"), strict=False))
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in kinds.items()],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kind} for key, kind in keys.items()],
        BillingMode="PAY_PER_REQUEST",
    )
