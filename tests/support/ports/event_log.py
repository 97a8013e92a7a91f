"""An event log on one DynamoDB table, as one writes it with boto3."""

import boto3
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError


class EventLog:
    """Events by stream and time. An event that is appended twice is stored once."""

    def __init__(self, table_name):
        self._table = boto3.resource("dynamodb").Table(table_name)

    def append(self, stream, at, event_id, payload):
        """Store an event; False when it is there already."""
        try:
            self._table.put_item(
                Item={"PK": stream, "SK": f"{at}#{event_id}", "payload": payload},
                ConditionExpression="attribute_not_exists(SK)",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            return False
        return True

    def append_all(self, stream, events):
        """Store many events."""
        with self._table.batch_writer() as batch:
            for at, event_id, payload in events:
                batch.put_item(Item={"PK": stream, "SK": f"{at}#{event_id}", "payload": payload})

    def read(self, stream, since, until, page_size=100):
        """Yield the events of a time, oldest first."""
        condition = Key("PK").eq(stream) & Key("SK").between(since, until)
        page = self._table.query(KeyConditionExpression=condition, Limit=page_size)
        yield from page["Items"]
        while "LastEvaluatedKey" in page:
            start = page["LastEvaluatedKey"]
            page = self._table.query(KeyConditionExpression=condition, Limit=page_size, ExclusiveStartKey=start)
            yield from page["Items"]

    def latest(self, stream, count):
        """Return the newest events, newest first."""
        condition = Key("PK").eq(stream)
        return self._table.query(KeyConditionExpression=condition, ScanIndexForward=False, Limit=count)["Items"]
