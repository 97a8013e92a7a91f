"""The sizes of what was explored, told at the end of a test run; with `-v`, the counterexamples as well."""

import pytest

PROPERTY = "explored"


@pytest.fixture
def tell_explored(record_property):
    """Return a function that takes a line for the summary of the run."""

    def tell(line: str) -> None:
        record_property(PROPERTY, line)

    return tell


def pytest_terminal_summary(terminalreporter):
    lines = [
        line
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        for name, line in report.user_properties
        if name == PROPERTY
    ]
    if lines:
        terminalreporter.section("protocol model")
        for line in sorted(lines):
            if "\n" not in line or terminalreporter.verbosity > 0:
                terminalreporter.write_line(line)
