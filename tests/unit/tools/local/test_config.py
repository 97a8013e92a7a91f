"""The command line of the local run, as far as it is about partitions."""

from __future__ import annotations

import pytest

from tools.local.config import parse_arguments


def test_each_key_has_a_partition_to_itself_unless_a_number_is_given():
    """`--partitions 4` is a fresh table on demand."""
    assert parse_arguments(["up"], {}).partitions is None
    assert parse_arguments(["up", "--partitions", "4"], {}).partitions == 4


@pytest.mark.parametrize("text", ["0", "-1", "four", "1.5"])
def test_a_wrong_number_of_partitions_is_named(text, capsys):
    """In one line after the usage."""
    with pytest.raises(SystemExit):
        parse_arguments(["up", f"--partitions={text}"], {})
    assert f"should be a whole number greater than 0, not '{text}'" in capsys.readouterr().err
