"""Scans: time of a phase diagram, and what a second worker and more cells change.

Every run starts workers that already exist (the first scan of a session also waits a second or two for them) and writes
its file.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import _tables
import numpy as np
from _harness import QUIET, Row, wait_for_quiet, watched
from _suite import Effort, Table

from optgeom.collapse.scan import Scan, scan
from optgeom.losses import InfoNCE

ONE, TWO = "one worker", "two workers"
# Majority shares, temperatures, a quarter of them; times 3 numbers of negatives and 2 sampling laws.
GRIDS = {"full": (50, 20, 5), "quick": (5, 20, 5), "tiny": (1, 4, 1)}
TARGETS = {"seconds": 60.0, "workers": 1.7, "cells": 4.4}


def run(shares: int, temperatures: int, workers: int) -> Scan:
    """One scan into a fresh file."""
    with tempfile.TemporaryDirectory() as folder:
        return scan(
            loss=InfoNCE(),
            axes={
                "majority": np.linspace(0.11, 0.99, shares),
                "temperature": np.geomspace(0.1, 2, temperatures),
                "negatives": [1, 8, math.inf],
                "sampling": ["ucl", "scl"],
            },
            workers=workers,
            out=Path(folder) / "scan.csv",
        )


def measure(effort: Effort) -> Iterator[Row]:
    shares, *both = GRIDS[effort.level]
    scan(axes={"majority": [0.3, 0.9], "temperature": [0.5, 1.0]}, workers=2)  # starts the workers
    for repeat in range(effort.times(3 if effort.level == "full" else 1)):
        for temperatures in both:
            for workers, who in ((1, ONE), (2, TWO)):
                if effort.wants(6 * shares * temperatures):
                    if effort.patient:
                        wait_for_quiet()
                    seconds, found, elsewhere = watched(partial(run, shares, temperatures, workers))
                    note = f"{found.collapsed} collapsed, {found.uncertified} uncertified"
                    certified = found.uncertified == 0
                    yield Row(
                        "scan",
                        who,
                        len(found),
                        repeat,
                        seconds,
                        certified=certified,
                        busy_elsewhere=elsewhere,
                        note=note,
                    )


def render(rows: Sequence[Row]) -> str:
    """Medians of the runs beside less than a tenth of a core of other work, where there are any."""
    sizes = sorted({row.size for row in rows})

    def seconds(size: int, who: str) -> tuple[float, str]:
        same = [row for row in rows if (row.size, row.solver) == (size, who)]
        quiet = [row for row in same if not row.busy_elsewhere > QUIET]
        if not same:
            return math.nan, "-"
        found = statistics.median(row.seconds for row in quiet or same)
        return found, f"{_tables.second(found)} (n = {len(quiet or same)}{'' if quiet else ', beside other work'})"

    certified = all(row.certified for row in rows)
    lines = []
    for size in sizes[-1:]:
        (one, told_one), (two, told_two) = seconds(size, ONE), seconds(size, TWO)
        limit, least, ratio = TARGETS["seconds"], TARGETS["workers"], one / two
        lines.append([f"{size} cells, two workers", told_two, f"<= {limit:g} s", _tables.second(two), two <= limit])
        told = f"{told_one}; {told_two}"
        lines.append([f"{size} cells, one worker over two", told, f">= {least:g} x", f"{ratio:.2f} x", ratio >= least])
    for who in (ONE, TWO) if len(sizes) == 2 and sizes[1] == 4 * sizes[0] else ():
        ratio = seconds(sizes[1], who)[0] / seconds(sizes[0], who)[0]
        lines.append(
            [
                f"four times the cells, {who}",
                "-",
                f"<= {TARGETS['cells']:g} x",
                f"{ratio:.2f} x",
                ratio <= TARGETS["cells"],
            ]
        )
    note = sorted({f"{row.size} cells: {row.note}" for row in rows})
    body = [[*map(str, cells), _tables.yes(bool(met) and certified)] for *cells, met in lines]
    return _tables.markdown(["case", "measured", "target", "reached", "met"], body) + f"\n\n{'; '.join(note)}."


TABLES = (
    Table(
        "scan",
        "Phase diagrams, 10 classes",
        "A picture of 6000 cells takes a minute; cells are independent, so a second worker "
        "helps and the time is linear in their number.",
        measure,
        render,
    ),
)
