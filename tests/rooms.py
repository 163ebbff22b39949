"""How long each room's tests may take, and what they took: `python -m pytest --rooms` prints the table of docs/testing.md.

A budget is for planning, not a test: a machine may be slow or busy, and no test fails for it.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

# Seconds on two cores without the slow tests; the files of a room by the beginnings of their names, the first that fits.
ROOMS: dict[str, tuple[int, tuple[str, ...]]] = {
    "command line": (60, ("test_cli_", "test_remedies", "test_design")),
    "cases, sweeps, fuzzing": (60, ("test_cases_", "test_sweep_", "test_fuzz", "test_interrupted")),
    "classes, losses": (20, ("test_class", "test_counts", "test_profiles", "test_losses", "test_custom", "test_expectation")),
    "programs, certificates, solvers": (
        60,
        ("test_certificate", "test_conic", "test_dimension", "test_edge", "test_geometry", "test_golden", "test_solve", "test_optimum",
         "test_rank", "test_sensitivity"),
    ),
    "collapse": (25, ("test_thresholds", "test_scan", "test_phase", "test_loss_values")),
    "realization": (
        50,
        ("test_realize", "test_euclidean", "test_spherical", "test_cailliez", "test_weight", "test_verdict", "test_high_rank"),
    ),
    "sampling": (45, ("test_sampling_",)),
    "embeddings": (80, ("test_readers_", "test_moments_", "test_metrics_", "test_statistics_", "test_validate_", "test_report")),
    "training": (90, ("test_training_", "test_shuffled", "test_x_clr", "test_reproduction")),
    "plotting": (50, ("test_plotting",)),
    "docs, benchmarks, house": (60, ("test_",)),
}  # fmt: skip


def room_of(file: str) -> str:
    """The room to which a test file belongs."""
    return next(room for room, (_, beginnings) in ROOMS.items() if file.startswith(beginnings))


class RoomTimes:
    """Collects the time of every phase of every test."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase."""
        room = room_of(Path(report.location[0]).name)
        self.seconds[room] += report.duration
        self.tests[room].add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        terminalreporter.write_line("\n| room | tests | seconds | budget |\n| --- | ---: | ---: | ---: |")
        for room, (budget, _) in ROOMS.items():
            terminalreporter.write_line(f"| {room} | {len(self.tests[room])} | {self.seconds[room]:.0f} | {budget} |")
        whole = sum(budget for budget, _ in ROOMS.values())
        tests = sum(map(len, self.tests.values()))
        terminalreporter.write_line(f"| all | {tests} | {sum(self.seconds.values()):.0f} | {whole} |")
