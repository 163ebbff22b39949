"""Fair timing: one row a run, rivals in turns, peak memory of a fresh process, what other programs did meanwhile."""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENTRY = Path(__file__).resolve().parent / "run.py"
OURS = "optgeom"
QUIET = 0.1  # cores kept busy by other programs


@dataclass(frozen=True)
class Row:
    """One run of one solver; a run that failed is a row too, with the reason in `note`.

    `size` is the number of classes or samples. `gap`, `backward_error` and `certified` are recomputed from the returned
    matrix by optgeom's certificate, whoever returned it; NaN where a run has no matrix to certify. `solver_seconds` is
    the part of `seconds` that a modelling layer attributes to its solver. `excess` (of the loss) and `cosine_error`
    (largest difference of a cosine) are against the certified answer of optgeom; `difference` is the error that the
    table names. Memory in MiB: peak of a fresh process, its peak before the measured call, and what the call added
    where that is measured at once. `busy_elsewhere`: cores that other programs used. `run` points into machines.csv.
    """

    case: str
    solver: str
    size: int
    repeat: int
    seconds: float = math.nan
    k: str = ""
    solver_seconds: float = math.nan
    gap: float = math.nan
    backward_error: float = math.nan
    excess: float = math.nan
    cosine_error: float = math.nan
    difference: float = math.nan
    certified: bool = False
    peak_mb: float = math.nan
    baseline_mb: float = math.nan
    extra_mb: float = math.nan
    busy_elsewhere: float = math.nan
    note: str = ""
    run: int = 0

    @property
    def failed(self) -> bool:
        """No time was measured, or no matrix came where the note says why."""
        return math.isnan(self.seconds) or self.note.startswith("failed: ")


def failure(error: Exception) -> str:
    """First line of an error, as the note of a failed run."""
    return f"failed: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:160]}"


def attempt(call: Callable[[], Any]) -> Any:
    """What one untimed call returns, or the exception that it raises: a failure shows again where it is timed."""
    try:
        return call()
    except Exception as error:
        return error


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of one call, without garbage collection inside it."""
    gc.collect()
    gc.disable()
    try:
        began = time.perf_counter()
        result = call()
        return time.perf_counter() - began, result
    finally:
        gc.enable()


def alternate(
    calls: Mapping[str, Callable[[], Any]], repeats: Mapping[str, int]
) -> Iterator[tuple[str, int, float, Any]]:
    """Run rivals in turns, in one process: (name, repeat, seconds, result or the exception raised).

    Every second round goes backwards, so that a rival does not always run on the caches that the same one left.
    """
    for turn in range(max(repeats.values())):
        names = [name for name in calls if turn < repeats[name]]
        for name in names[:: -1 if turn % 2 else 1]:
            began = time.perf_counter()
            try:
                seconds, result = timed(calls[name])
            except Exception as error:
                seconds, result = time.perf_counter() - began, error
            yield name, turn, seconds, result


def watched(call: Callable[[], Any]) -> tuple[float, Any, float]:
    """Seconds, result, and the cores that other programs kept busy meanwhile."""
    busy = busy_seconds()
    seconds, result = timed(call)
    return seconds, result, max(0.0, (busy_seconds() - busy) / seconds)


def busy_seconds() -> float:
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


def wait_for_quiet() -> None:
    """Return when other programs use less than `QUIET` cores, or after a minute."""
    for _ in range(30):
        before = busy_seconds()
        time.sleep(2)
        if not busy_seconds() - before > 2 * QUIET:
            return


def memory_mb(what: str) -> float:
    """Memory of this process from /proc, in MiB: VmRSS, VmHWM (the largest so far) or RssAnon.

    NaN where the system has no such figure.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.split(f"{what}:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return math.nan


def peak_mb() -> float:
    """Largest resident memory of this process so far, in MiB."""
    # Not ru_maxrss where VmHWM exists: a child process starts with the maximum of its parent there.
    held = memory_mb("VmHWM")
    return (
        held
        if held == held
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    )


def in_fresh_process(module: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Result of `child(arguments)` of a benchmark module, run in a new process.

    {"note": reason} if it fails.
    """
    command = [sys.executable, str(ENTRY), "--child", module, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"note": f"failed: exit status {done.returncode}: {last}"}
    return dict(json.loads(done.stdout))
