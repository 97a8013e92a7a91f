from __future__ import annotations

import os
import signal

from tools.local.processes import build_death_signal


class Libc:
    """A C library that has `prctl`."""

    def __init__(self):
        self.calls = []

    def prctl(self, *arguments):
        self.calls.append(arguments)


def test_a_child_asks_to_be_killed_with_its_parent():
    """The kernel is told before the child's program starts."""
    libc = Libc()
    build_death_signal(libc, os.getppid())()
    assert libc.calls == [(1, signal.SIGKILL)]


def test_without_prctl_a_child_is_started_all_the_same():
    """Nothing to call before the program starts, as on macOS."""
    assert build_death_signal(object(), os.getppid()) is None
