"""The machine and the versions, in words: no host name, no path."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

PACKAGES = (
    "optgeom",
    "numpy",
    "scipy",
    "cvxpy",
    "clarabel",
    "scs",
    "pymanopt",
    "scikit-learn",
    "torch",
    "pytorch-metric-learning",
)
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
LOAD, DATE = "load before", "date"


def environment() -> dict[str, str]:
    """What a run was measured on."""
    found = {
        DATE: datetime.date.today().isoformat(),
        "cpu": f"{_cpu_model()}, {_cores()} cores",
        "memory": f"{_memory_gib():.0f} GiB",
    }
    found.update({"system": platform.system(), "python": platform.python_version()})
    found.update({package: _version(package) for package in PACKAGES})
    found["BLAS threads"] = _blas_threads()
    found[LOAD] = f"{os.getloadavg()[0]:.1f}"
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


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
        held = sorted({os.environ[name] for name in THREAD_VARIABLES if name in os.environ})
        return ", ".join(held) or f"{_cores()}"
    return ", ".join(sorted({str(pool["num_threads"]) for pool in threadpool_info()})) or "unknown"
