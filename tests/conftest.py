"""What all tests share."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Shared and busy machines are slow at times: no test of ours is about the time that an example takes.
settings.register_profile("hotpartition", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hotpartition")

INFRASTRUCTURE = Path(__file__).parent / "infrastructure"
SMALL_STACKS = {"guarded_stack", "replicated_stack"}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests in one process; those in one that share templates, or stacks that few tests use."""
    for item in items:
        if INFRASTRUCTURE in item.path.parents:
            group = "infrastructure"
        elif SMALL_STACKS.intersection(getattr(item, "fixturenames", ())):
            group = "small stacks"
        else:
            group = str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
