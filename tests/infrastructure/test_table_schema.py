"""The adapters are tested on the table that is deployed."""

from support.tables import TABLE_SCHEMA


def test_the_table_of_the_tests_is_the_table_of_the_stack(template):
    """Keys, index and billing of the table that the adapter tests create are those of the template."""
    table = template.only("AWS::DynamoDB::Table")
    # What is watched has no part in how a table behaves.
    indexes = [
        {name: value for name, value in index.items() if name != "ContributorInsightsSpecification"}
        for index in table["GlobalSecondaryIndexes"]
    ]
    assert {name: table[name] for name in TABLE_SCHEMA} | {"GlobalSecondaryIndexes": indexes} == TABLE_SCHEMA
