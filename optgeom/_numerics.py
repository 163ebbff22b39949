"""Stable kernels shared by every room.

Each keeps relative accuracy at the extremes where the obvious formula loses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
# Group form: one entry per pair of groups, one per group. The tests check these shapes (`tests/helpers/shapes.py`).
Square = Annotated[Array, "G G"]
Vector = Annotated[Array, "G"]
AnyArray = TypeVar("AnyArray", bound=npt.NDArray[Any])

EPS = float(np.finfo(np.float64).eps)


def log_nonnegative(values: npt.ArrayLike) -> Array:
    """Elementwise log with log 0 = -inf and no warning: a weight of exactly zero is a legitimate value here."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.asarray(values, dtype=np.float64)))


def logsumexp_rows(values: Array) -> Array:
    """log sum_j exp values[i, j] for every row i, -inf for a row of -inf."""
    top = values.max(axis=1)
    safe = np.where(np.isfinite(top), top, 0.0)
    return np.asarray(log_nonnegative(np.exp(values - safe[:, None]).sum(axis=1)) + safe)


def arccos_clipped(cosine: npt.ArrayLike) -> Array:
    """Angle in radians; cosines that rounding pushed outside [-1, 1] are clipped, NaN stays NaN."""
    return np.asarray(np.arccos(np.clip(np.asarray(cosine, dtype=np.float64), -1.0, 1.0)))


def psd_part(symmetric: Array) -> tuple[Array, Array]:
    """Nearest positive semidefinite matrix (Frobenius norm) and all eigenvalues, ascending, of a symmetric matrix."""
    import scipy.linalg

    eigenvalues, vectors = scipy.linalg.eigh(symmetric)
    kept = vectors[:, eigenvalues > 0] * np.sqrt(eigenvalues[eigenvalues > 0])
    return kept @ kept.T, eigenvalues


def read_only(array: AnyArray) -> AnyArray:
    """The same array with its write flag cleared."""
    array.flags.writeable = False
    return array


def freeze(record: Any) -> None:
    """Make every array that is an attribute of `record` read-only: the last line of `__post_init__`."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


def blocks(rows: int, entries_per_row: int, budget: int) -> Iterable[slice]:
    """Consecutive row slices that hold at most `budget` entries each (one row at least)."""
    step = max(1, budget // max(1, entries_per_row))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
