r"""Weighting schemes: from one label per sample to log w_ij, on groups of samples with exactly the same label.

    supcon        w_ij = 1{y_i = y_j}
    soft-supcon   w_ij = 1 if y_i = y_j, eps otherwise
    y-aware       w_ij = exp(-|y_i - y_j|^2 / (2 sigma^2))        (the paper's form: no 2)
    x-clr         w_ij = exp(cos(y_i, y_j) / tau')

Everything is kept in logarithms: a weight of exp(-1000) is small, not zero.

References
----------
Khosla et al. 2020, arXiv 2004.11362 (SupCon); Dufumier et al. 2021, arXiv 2106.08808 (y-Aware);
Sobal et al. 2024, arXiv 2407.18134 (X-CLR); Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943 (all four as distance
geometry).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.inputs.labels import encode

LARGEST_LOG = 1e12  # |log w|: what decides are differences of order 1, and beyond it those have few digits left
LARGEST_GROUPS = 20000  # distinct labels up to which the G x G matrix of log weights is written down (3 GiB)


@dataclass(frozen=True)
class Scheme:
    """Log weights on groups of equal labels.

    Attributes
    ----------
    index : (n,) intp
        Group of each sample.
    labels : (G,) text or (G, p) numbers
        The label of each group.
    log_weights : (G, G)
        log w between two samples of groups g and h (the diagonal: between two samples of one group).
    parameters : dict
        Name and parameters, for JSON.
    notes : tuple of str
    """

    index: npt.NDArray[np.intp]
    labels: npt.NDArray[Any]
    log_weights: Array
    parameters: dict[str, Any]
    notes: tuple[str, ...] = ()


def supcon(labels: Any) -> Scheme:
    """w = 1 within a class, 0 across."""
    return _classes(labels, -math.inf, {"name": "supcon"})


def soft_supcon(labels: Any, epsilon: float) -> Scheme:
    """w = 1 within a class, `epsilon` in (0, 1] across."""
    value = _checks.real(
        "epsilon", epsilon, above=0.0, hint="the weight across classes, in (0, 1]; for 0 use the scheme supcon"
    )
    if value > 1:
        raise InvalidInputError(
            f"`epsilon` must be in (0, 1]; got {epsilon!r} (it is the weight across classes, 1 the weight within)"
        )
    return _classes(labels, math.log(value), {"name": "soft-supcon", "epsilon": value})


def y_aware(labels: Any, bandwidth: float, paper: bool) -> Scheme:
    """w = exp(-|y_i - y_j|^2 / (2 bandwidth^2)), without the 2 where `paper`."""
    sigma = _checks.real("bandwidth", bandwidth, above=0.0, hint="in the unit of the labels")
    index, distinct = distinct_rows(continuous(labels))
    # In a unit that is a power of two, which is exact: squares of labels such as 1e200 or 1e-200 overflow or vanish.
    unit = math.ldexp(1.0, math.frexp(float(np.abs(distinct).max()))[1] - 1)
    squared = cdist(distinct / unit, distinct / unit, "sqeuclidean")
    ratio = unit / sigma
    rate = ratio * ratio / (1.0 if paper else 2.0)
    largest = float(squared.max())
    if largest > 0 and not largest * rate <= LARGEST_LOG:
        came = f"{math.sqrt(largest) * ratio:.3g}"
        raise InvalidInputError(
            "`bandwidth` must not be below a millionth of the largest distance of labels; got distances up to "
            f"{came} times `bandwidth` (standardise the labels, or raise the bandwidth)"
        )
    log_weights = squared * -(rate if largest > 0 else 1.0)
    return Scheme(index, distinct, log_weights, {"name": "y-aware", "bandwidth": sigma, "paper": bool(paper)})


def x_clr(labels: Any, temperature: float) -> Scheme:
    """w = exp(cos(y_i, y_j) / temperature)."""
    tau = _checks.real(
        "temperature", temperature, above=0.0, hint="the temperature of the label similarities, usually 0.1 to 1"
    )
    if 1 / tau > LARGEST_LOG:
        raise InvalidInputError(
            f"`temperature` must be at least {1 / LARGEST_LOG:g} for x-clr; got {tau:g} (usual values are 0.1 to 1)"
        )
    index, distinct = distinct_rows(continuous(labels))
    # The largest entry first: squares of entries such as 1e-200 would vanish.
    largest = np.abs(distinct).max(axis=1)
    if np.any(largest == 0):
        row = int(np.flatnonzero(index == int(np.argmin(largest)))[0])
        raise InvalidInputError(
            f"`labels` must not be zero vectors, which have no direction; got one in row {row} (drop the row)"
        )
    unit = distinct / largest[:, None]
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = np.clip(unit @ unit.T, -1.0, 1.0)
    cosines = (cosines + cosines.T) / 2
    np.fill_diagonal(cosines, 1.0)
    return Scheme(index, distinct, cosines / tau, {"name": "x-clr", "temperature": tau})


def _classes(labels: Any, across: float, parameters: dict[str, Any]) -> Scheme:
    classes = encode(labels)
    check_groups(len(classes.names))
    log_weights = np.full((len(classes.names), len(classes.names)), across)
    np.fill_diagonal(log_weights, 0.0)
    return Scheme(classes.codes, np.array(classes.names), log_weights, parameters, classes.notes)


def continuous(labels: Any) -> Array:
    """(n, p) finite numbers; (n,) is a column."""
    try:
        array = np.asarray(labels)
        numbers = array.astype(np.float64) if array.dtype.kind in "biuf" else None
    except (TypeError, ValueError, RuntimeError):
        numbers = None
    if numbers is None or numbers.ndim not in (1, 2) or numbers.size == 0:
        came = (
            f"shape {numbers.shape}" if numbers is not None else f"{type(labels).__name__} that does not hold numbers"
        )
        remedy = "class labels go with supcon or soft-supcon"
        raise InvalidInputError(f"`labels` must be numbers of shape (n,) or (n, p); got {came} ({remedy})")
    table = numbers.reshape(numbers.shape[0], -1)
    wrong = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if wrong.size:
        row = int(wrong[0])
        value = float(table[row][~np.isfinite(table[row])][0])
        raise InvalidInputError(f"`labels` must be finite; got {value} in row {row} (drop the row, or give it a label)")
    return np.asarray(table + 0.0)  # -0.0 and 0.0 are one label


def distinct_rows(table: Array) -> tuple[npt.NDArray[np.intp], Array]:
    """Group of each row and the distinct rows, in order of first appearance."""
    _, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    check_groups(first.size)
    order = np.argsort(first, kind="stable")
    rank = np.empty(order.size, dtype=np.intp)
    rank[order] = np.arange(order.size)
    return rank[inverse.ravel()], table[first[order]]


def check_groups(groups: int) -> None:
    """Refuse what would not fit in memory."""
    if groups > LARGEST_GROUPS:
        raise InvalidInputError(
            f"`labels` must have at most {LARGEST_GROUPS} distinct values; got {groups} (their weights alone would "
            f"take {groups**2 * 8 / 2**30:.0f} GiB: take a subset, or round the labels so that they repeat)"
        )
