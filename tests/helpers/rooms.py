"""Time of the tests of each room, beside a budget: `python -m pytest --rooms` prints the table of docs/testing.md.

A budget is for planning, not a test: a machine may be slow or busy, and no test fails for it.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

# Seconds on two cores without the slow tests; each room is a folder of tests/.
BUDGETS: dict[str, int] = {
    "inputs": 25,
    "losses": 20,
    "certificates": 15,
    "solvers": 60,
    "results": 10,
    "collapse": 40,
    "realization": 50,
    "sampling": 45,
    "embeddings": 100,
    "training": 90,
    "plotting": 60,
    "cli": 70,
    "docs": 30,
    "benchmarks": 30,
    "house": 20,
}


class RoomTimes:
    """Collects the time of every phase of every test."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase."""
        room = Path(report.location[0]).parent.name
        self.seconds[room] += report.duration
        self.tests[room].add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        terminalreporter.write_line("\n| room | tests | seconds | budget |\n| --- | ---: | ---: | ---: |")
        for room, budget in BUDGETS.items():
            terminalreporter.write_line(f"| {room} | {len(self.tests[room])} | {self.seconds[room]:.0f} | {budget} |")
        tests = sum(map(len, self.tests.values()))
        seconds = sum(self.seconds.values())
        terminalreporter.write_line(f"| all | {tests} | {seconds:.0f} | {sum(BUDGETS.values())} |")
