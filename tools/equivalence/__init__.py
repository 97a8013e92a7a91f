"""Shows that a `ShardedTable` answers as boto3's `Table` does: `make table-equivalence`."""
