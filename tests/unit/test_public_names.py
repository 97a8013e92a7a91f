"""The package's public face."""

import pytest

import hotpartition


@pytest.mark.parametrize("name", hotpartition.__all__)
def test_every_public_name_is_there(name):
    """Whoever imports the package finds what it lists."""
    assert getattr(hotpartition, name) is not None
    assert name in dir(hotpartition)
