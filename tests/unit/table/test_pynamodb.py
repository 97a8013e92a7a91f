"""Another library's models on a guarded client."""

import pytest

from hotpartition.table import guard

pytest.importorskip("pynamodb", reason="install requirements/development.txt")

from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.exceptions import PutError
from pynamodb.models import Model
from pynamodb.transactions import TransactWrite


class Reading(Model):
    """A model of PynamoDB's."""

    class Meta:
        """Of that model."""

        table_name = "readings"
        region = "eu-central-1"

    plant = UnicodeAttribute(hash_key=True, attr_name="PK")
    at = UnicodeAttribute(range_key=True, attr_name="SK")
    celsius = NumberAttribute(default=20)


def test_pynamodb_works_by_one_line(table, plain):
    """Puts, pages, counts, conditions, batches and transactions of it go through the shards."""
    connection = Reading._get_connection().connection
    connection._client = guard(connection.client, table)
    for hour in range(12):
        Reading("plant-1", f"{hour:02}").save(Reading.plant.does_not_exist())
    with pytest.raises(PutError, match="conditional"):
        Reading("plant-1", "00").save(Reading.plant.does_not_exist())
    Reading.get("plant-1", "03").update(actions=[Reading.celsius.set(25)])
    assert [each.at for each in Reading.query("plant-1", filter_condition=Reading.celsius > 20)] == ["03"]
    newest = Reading.query("plant-1", scan_index_forward=False, limit=5, page_size=2)
    assert [each.at for each in newest] == ["11", "10", "09", "08", "07"]
    assert Reading.count("plant-1") == 12
    with Reading.batch_write() as batch:
        batch.delete(Reading("plant-1", "00"))
        batch.save(Reading("plant-1", "12"))
    with TransactWrite(connection=connection) as transaction:
        transaction.save(Reading("plant-1", "13"))
        transaction.delete(Reading("plant-1", "01"))
    assert [each.at for each in Reading.query("plant-1")] == [f"{hour:02}" for hour in range(2, 14)]
    assert len([*Reading.batch_get([("plant-1", "03"), ("plant-1", "04")])]) == 2
    assert len([item for item in plain.scan()["Items"] if item["PK"].startswith("plant-1#_")]) > 6
