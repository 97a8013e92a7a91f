"""Where the items of any table lie, and its routing items: for functions and libraries that know it by its settings."""

from __future__ import annotations

from hotpartition.core.keys import KeyForm
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.table_settings import JournalSettings, TableSettings


def build_key_form(settings: TableSettings) -> KeyForm:
    """Build the form of a table's partition keys; in commands a collection is called `conversation_id`."""
    return KeyForm(settings.key_separator, label="conversation_id")


def build_journal_place(
    settings: JournalSettings, partition_key: str, sort_key: str, *, index_name: str = ""
) -> JournalPlace:
    """Build the place of a table's routing items; `index_name` is for who lists them.

    Args:
        settings: whether they have a table of their own.
        partition_key: the name of the table's own partition key.
        sort_key: the name of the table's own sort key.
        index_name: what lists them where they lie in their collections.
    """
    if settings.journal_table_name:
        return JournalPlace(settings.journal_table_name, settings.journal_partition_key_name, sort_key="")
    return JournalPlace(settings.table_name, partition_key, sort_key, settings.journal_sort_key, index_name)


def find_journal(settings: TableSettings) -> JournalPlace:
    """Build the place of the routing items of the table that the settings describe."""
    names = settings.partition_key_name, settings.sort_key_name
    return build_journal_place(settings, *names, index_name=settings.routing_index_name)
