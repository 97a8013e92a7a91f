"""What all tests share."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Shared and busy machines are slow at times: no test of ours is about the time that an example takes.
settings.register_profile("hotpartition", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hotpartition")

INFRASTRUCTURE = Path(__file__).parent / "infrastructure"


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests in one process; those of the infrastructure all in one, since they share the templates."""
    for item in items:
        is_infrastructure = INFRASTRUCTURE in item.path.parents
        item.add_marker(pytest.mark.xdist_group("infrastructure" if is_infrastructure else str(item.path)))
