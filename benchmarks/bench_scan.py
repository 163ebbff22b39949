"""How long does a scan take, and what do a second worker and more cells change?

Hypotheses, each with its target:

* a picture takes a minute: 6000 cells (50 majority shares, 20 temperatures, 3 numbers of negatives, 2 sampling laws, 10 classes) in
  at most 60 s with two workers;
* cells are independent: two workers are at least 1.7 times as fast as one;
* the time is linear in the number of cells: four times the cells take at most 4.4 times as long.

Every run starts workers that already exist (the first scan of a session also waits a second or two for them) and writes its file. Repeats
alternate. All runs are in results/scan.csv with the cores that other programs kept busy meanwhile (Linux; empty elsewhere). A ratio of runs
beside other work measures the other work, so a run waits up to a minute for a quiet machine, and the medians printed are of runs with less
than a tenth of a core of it, where there are any.

    python benchmarks/bench_scan.py [repeats]
"""

from __future__ import annotations

import csv
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

# Set before numpy is loaded, so that one worker means one core.
os.environ.update({name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")})

import numpy as np

from optgeom.collapse.scan import scan

RESULTS = Path(__file__).parent / "results" / "scan.csv"
WHOLE, QUARTER = 20, 5  # temperatures: 6000 and 1500 cells
COLUMNS = ("cells", "workers", "repeat", "seconds", "collapsed", "uncertified", "busy_elsewhere")
QUIET = 0.1  # cores


def run(temperatures: int, workers: int, repeat: int) -> dict[str, float]:
    """One scan into a fresh file."""
    _wait_for_quiet()
    busy = _busy_seconds()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        found = scan(
            majority=np.linspace(0.11, 0.99, 50),
            temperature=np.geomspace(0.1, 2, temperatures),
            negatives=[1, 8, math.inf],
            sampling=["ucl", "scl"],
            workers=workers,
            out=Path(folder) / "scan.csv",
        )
        seconds = time.perf_counter() - began
    elsewhere = max(0.0, (_busy_seconds() - busy) / seconds)
    values = (len(found), workers, repeat, seconds, found.collapsed, found.uncertified, elsewhere)
    return dict(zip(COLUMNS, values, strict=True))


def _busy_seconds() -> float:
    """CPU seconds that all other programs have used since the machine started, NaN where the system does not say."""
    tick = os.sysconf("SC_CLK_TCK")
    try:
        cores = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        own = sum(_own_ticks(folder) for folder in Path("/proc").glob("[0-9]*"))
    except OSError:
        return math.nan
    idle = int(cores[3]) + int(cores[4])
    return (sum(map(int, cores[:8])) - idle - own) / tick


def _own_ticks(folder: Path) -> int:
    """User and system time of a process, if it is this one or one of its workers."""
    try:
        fields = (folder / "stat").read_text().rsplit(") ", 1)[1].split()
    except OSError:  # it ended meanwhile
        return 0
    return int(fields[11]) + int(fields[12]) if os.getpid() in (int(folder.name), int(fields[1])) else 0


def _wait_for_quiet() -> None:
    for _ in range(30):
        before = _busy_seconds()
        time.sleep(2)
        if not _busy_seconds() - before > 2 * QUIET:
            return


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    scan(majority=[0.3, 0.9], temperature=[0.5, 1.0], workers=2)  # starts the workers
    rows = [
        run(temperatures, workers, repeat)
        for repeat in range(repeats)
        for temperatures, workers in ((WHOLE, 1), (WHOLE, 2), (QUARTER, 1), (QUARTER, 2))
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **{name: round(row[name], 2) for name in ("seconds", "busy_elsewhere")}} for row in rows)

    def median(cells: int, workers: int) -> float:
        same = [row for row in rows if row["cells"] == cells and row["workers"] == workers]
        quiet = [row for row in same if not row["busy_elsewhere"] > QUIET]
        return statistics.median(row["seconds"] for row in quiet or same)

    whole, quarter = WHOLE * 300, QUARTER * 300
    figures = (
        ("seconds for 6000 cells, two workers", median(whole, 2), "<=", 60.0),
        ("one worker over two", median(whole, 1) / median(whole, 2), ">=", 1.7),
        ("four times the cells, one worker", median(whole, 1) / median(quarter, 1), "<=", 4.4),
        ("four times the cells, two workers", median(whole, 2) / median(quarter, 2), "<=", 4.4),
        ("uncertified cells", max(row["uncertified"] for row in rows), "<=", 0),
    )
    disturbed = sum(row["busy_elsewhere"] > QUIET for row in rows)
    print(f"{len(rows)} runs, {disturbed} of them beside other work")
    print(f"one worker: {median(whole, 1):.1f} s for 6000 cells, {1e3 * median(whole, 1) / whole:.2f} ms a cell")
    for what, figure, relation, target in figures:
        reached = figure <= target if relation == "<=" else figure >= target
        print(f"{what:40} {figure:8.2f}   target {relation} {target:g}: {'reached' if reached else 'MISSED'}")


if __name__ == "__main__":
    main()
