"""What every benchmark needs: one row a run, fair timing, peak memory, the machine in words, tables between markers."""

from __future__ import annotations

import argparse
import csv
import gc
import importlib.metadata
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

PACKAGES = ("optgeom", "numpy", "scipy", "cvxpy", "clarabel", "scs")
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
LOAD = "load average before the run"


@dataclass(frozen=True)
class Row:
    """One run of one solver; a run that failed is a row too, with the reason in `note`.

    `gap`, `backward_error` and `certified` are recomputed from the returned matrix by `optgeom.certificates.certify`, whoever returned
    it; NaN where a run has no matrix to certify (a bare eigendecomposition, a failure). `solver_seconds` is the part of `seconds` that
    a modelling layer attributes to its solver. `excess_risk` and `cosine_error` (largest difference of a cosine) are against the certified
    answer of optgeom. Memory in MiB: peak of a fresh process, and its peak before the measured call.
    """

    hypothesis: str
    case: str
    solver: str
    C: int
    k: str
    repeat: int
    seconds: float
    solver_seconds: float = math.nan
    gap: float = math.nan
    backward_error: float = math.nan
    excess_risk: float = math.nan
    cosine_error: float = math.nan
    certified: bool = False
    peak_mb: float = math.nan
    baseline_mb: float = math.nan
    note: str = ""


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


def alternate(calls: Mapping[str, Callable[[], Any]], repeats: Mapping[str, int]) -> Iterator[tuple[str, int, float, Any]]:
    """Run rivals in turns, in one process: (name, repeat, seconds, result), the result being the exception where one was raised.

    Every second round goes backwards, so that nobody always runs on the caches that the same rival left behind.
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


def peak_mb() -> float:
    """Largest resident memory of this process so far, in MiB."""
    try:
        # Not ru_maxrss where this exists: a child process starts with the maximum of its parent there.
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def in_fresh_process(script: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object that `script --child ARGUMENTS` prints, or {"note": reason} when it fails."""
    command = [sys.executable, str(script), "--child", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"note": f"exit status {done.returncode}: {last}"}
    return dict(json.loads(done.stdout))


def environment() -> dict[str, str]:
    """The machine and the versions, in words: no host name, no path."""
    found = {"cpu": f"{_cpu_model()}, {_cores()} cores", "memory": f"{_memory_gib():.0f} GiB", "system": platform.system()}
    found["python"] = platform.python_version()
    found.update(versions(*PACKAGES))
    found["BLAS threads"] = _blas_threads()
    found[LOAD] = f"{os.getloadavg()[0]:.1f}"
    return found


def versions(*packages: str) -> dict[str, str]:
    """Installed version of each package."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _blas_threads() -> str:
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        held = [f"{name}={os.environ[name]}" for name in THREAD_VARIABLES if name in os.environ]
        return ", ".join(held) or f"library default ({_cores()} cores)"
    pools = threadpool_info()
    return ", ".join(sorted({f"{pool['internal_api']} {pool['num_threads']}" for pool in pools})) or "unknown"


def write_rows(path: Path, rows: Iterable[Any], kind: type = Row) -> None:
    """All rows, of the dataclass `kind`, to a CSV file, NaN as an empty cell."""
    names = [field.name for field in fields(kind)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            values = [getattr(row, name) for name in names]
            writer.writerow(["" if value != value else f"{value:.6g}" if isinstance(value, float) else value for value in values])


def read_rows(path: Path, kind: type = Row) -> list[Any]:
    """Rows of a file written by `write_rows`."""
    convert: dict[str, Callable[[str], Any]] = {
        "str": str,
        "int": int,
        "float": lambda text: float(text) if text else math.nan,
        "bool": lambda text: text == "True",
    }
    with path.open(newline="", encoding="utf-8") as file:
        return [kind(**{field.name: convert[str(field.type)](line[field.name]) for field in fields(kind)}) for line in csv.DictReader(file)]


def read_options(description: str, names: Iterable[str], quick: str, into: Path, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options that the benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help=f"{quick}; prints the tables and writes nothing")
    parser.add_argument("--only", action="append", choices=tuple(names), help="one hypothesis (may be repeated)")
    parser.add_argument("--into", type=Path, default=into, help="folder with README.md and results/ to write to")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def write_environment(path: Path, found: Mapping[str, str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("what", "value"), *found.items()])


def read_environment(path: Path) -> dict[str, str]:
    with path.open(newline="", encoding="utf-8") as file:
        return {line["what"]: line["value"] for line in csv.DictReader(file)}


def markdown(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    header = list(header)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *lines])


def replace_between(text: str, name: str, body: str) -> str:
    """`text` with what stands between the two markers of `name` replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ValueError(f"the text must hold the lines {begin!r} and {end!r} once each, in this order (restore them)")
    return f"{text[: text.index(begin)]}{begin}\n{body}\n{text[text.index(end) :]}"
