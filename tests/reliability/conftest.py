"""Figures that the harness measured, reported at the end of the session."""

import pytest

FIGURES: list[str] = []


@pytest.fixture
def measured(request):
    """`measured("200 kills, 0 lost")` puts a line under the name of the test."""
    return lambda words: FIGURES.append(f"{request.node.name}: {words}")


def pytest_terminal_summary(terminalreporter):
    if FIGURES:
        terminalreporter.section("reliability")
        for line in FIGURES:
            terminalreporter.write_line(line)
