"""An outbox on one DynamoDB table, as one writes it with boto3: what is to be sent, in order, until it was sent."""

import boto3
from boto3.dynamodb.conditions import Attr, Key

QUEUE = "outbox"


class Outbox:
    """Messages to send, oldest first."""

    def __init__(self, table_name):
        self._table = boto3.resource("dynamodb").Table(table_name)

    def add(self, at, message_id, body):
        """Put a message in."""
        self._table.put_item(Item={"PK": QUEUE, "SK": f"{at}#{message_id}", "body": body, "status": "new", "tries": 0})

    def claim(self, count):
        """Take up to so many messages to send; one that somebody else took meanwhile is left out."""
        claimed = []
        for item in self._pending():
            if len(claimed) == count:
                break
            try:
                changed = self._table.update_item(
                    Key={"PK": QUEUE, "SK": item["SK"]},
                    UpdateExpression="SET #status = :sending ADD tries :one",
                    ConditionExpression=Attr("status").eq("new"),
                    ExpressionAttributeNames={"#status": "status"},
                    ExpressionAttributeValues={":sending": "sending", ":one": 1},
                    ReturnValues="ALL_NEW",
                )
            except self._table.meta.client.exceptions.ConditionalCheckFailedException:
                continue
            claimed.append(changed["Attributes"])
        return claimed

    def sent(self, sort_key):
        """Forget a message; returns it."""
        return self._table.delete_item(Key={"PK": QUEUE, "SK": sort_key}, ReturnValues="ALL_OLD").get("Attributes")

    def give_back(self, sort_key):
        """Let a message be taken again."""
        self._table.update_item(
            Key={"PK": QUEUE, "SK": sort_key},
            UpdateExpression="SET #status = :new",
            ConditionExpression="attribute_exists(SK)",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":new": "new"},
        )

    def count(self):
        """Count what is left."""
        return self._table.query(KeyConditionExpression=Key("PK").eq(QUEUE), Select="COUNT")["Count"]

    def _pending(self):
        request = {"KeyConditionExpression": Key("PK").eq(QUEUE), "FilterExpression": Attr("status").eq("new")}
        while True:
            page = self._table.query(**request, Limit=25)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            request["ExclusiveStartKey"] = page["LastEvaluatedKey"]
