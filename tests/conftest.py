"""What all tests share."""

import gc
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import botocore.loaders
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from support.tables import pretend_account

# Shared and busy machines are slow at times: no test is about the time that an example takes.
settings.register_profile("hotpartition", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hotpartition")
# For `make check`: a property is tried on a quarter of the examples there.
settings.register_profile("quick", settings.get_profile("hotpartition"), max_examples=25)
# Each session of boto3 reads and parses the services' models anew: milliseconds in each test that makes a client.
botocore.loaders.create_loader = cache(botocore.loaders.create_loader)

GUARDED = "tests/e2e/test_guarded.py"
ALONE = ("tests/model/", "tests/e2e/test_programs.py")
"""Their tests share nothing, and some take long."""
LONGEST_UNIT_TEST_SECONDS = 3.0
SLOWEST_MACHINE = 3
"""How many times as long a slow or busy machine may take, so that no verdict depends on it."""


def scope_of(nodeid: str) -> str:
    """Name what shares one process: a file, the infrastructure, a running stack; or a test by itself."""
    path = nodeid.partition("::")[0]
    if path.startswith("tests/infrastructure/"):
        return "infrastructure"
    if path.startswith(ALONE):
        return nodeid
    if path.startswith("tests/e2e/") and path != GUARDED:
        return "stack"
    return path


class SharedFixtures(LoadScopeScheduling):
    """Gives tests that share fixtures to one process.

    Not by pytest-xdist's own marks, which it writes into node ids: pytest 9.2 does not take them there.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what has most slow tests, then most tests, so that no process waits for a long file at the end."""
    sizes = Counter(scope_of(item.nodeid) for item in items)
    slow = Counter(scope_of(item.nodeid) for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-slow[scope_of(item.nodeid)], -sizes[scope_of(item.nodeid)]))


def pytest_collection_finish() -> None:
    """Look for garbage less often, and never among what was imported: a sixth of what the long tests take."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a unit test that computes too long, its programs included.

    By CPU time, since waiting for a busy machine is not the test's. Such a machine lengthens CPU time as well: it fails
    from three times of what a quiet one is allowed.
    """
    began = sum(os.times()[:4])
    yield
    seconds = sum(os.times()[:4]) - began
    is_quick = item.nodeid.startswith("tests/unit/") and item.get_closest_marker("long") is None
    if is_quick and seconds > SLOWEST_MACHINE * LONGEST_UNIT_TEST_SECONDS:
        pytest.fail(f"it took {seconds:.1f} s of CPU; {LONGEST_UNIT_TEST_SECONDS:g} are allowed to a unit test")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedFixtures:
    return SharedFixtures(config, log)


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials and a region that do not exist."""
    pretend_account(monkeypatch)
