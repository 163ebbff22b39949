r"""Read a weight matrix: validation, exact groups of samples, and the symmetric representative.

The loss depends on W only through its normalised rows w~. So W may be replaced by any Diag(e^a) W, and a W that is not
symmetric is as good as a symmetric one iff log w_ij - log w_ji = a_j - a_i for some a: then log w_ij + a_i is symmetric
("symmetrisable").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.sparse.csgraph import breadth_first_order, connected_components

from optgeom._numerics import EPS, Array
from optgeom.errors import InvalidInputError
from optgeom.realization.schemes import LARGEST_GROUPS

# Two computations of one kernel value agree to a few units of rounding of the value or, where it is a difference, of
# the largest one.
RELATIVE_ROUNDING = 1e-12
SYMMETRISABLE = 1e-9  # in log w: an error of 1e-9 in a similarity times the temperature costs 1e-18 of loss
LARGEST_AS_DENSE = 4000  # sparse matrices up to this size are simply written down (128 MiB)

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Grouped:
    """A weight matrix in group form.

    Attributes
    ----------
    index : (n,) intp
        Group of each sample, groups in order of first appearance.
    weights : (G, G)
        Between two samples of groups g and h; diagonal 0 where the group has one sample.
    precision : float
        Relative rounding of the entries, from their type.
    notes : tuple of str
    """

    index: npt.NDArray[np.intp]
    weights: Array
    precision: float
    notes: tuple[str, ...]


def read(matrix: Any) -> Grouped:
    """Validate a dense or sparse (n, n) weight matrix and group its samples; the diagonal is ignored."""
    is_sparse: bool = scipy.sparse.issparse(matrix)
    if is_sparse:
        _check_shape(matrix.shape, matrix.dtype)
        _check_indices(matrix)
        if matrix.shape[0] > LARGEST_AS_DENSE:
            return _read_sparse(matrix)
        matrix = matrix.toarray()
    try:
        given = np.asarray(matrix)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"`weights` must be a square matrix of numbers; got {type(matrix).__name__}: {error}"
        ) from error
    _check_shape(given.shape, given.dtype)
    weights = given.astype(np.float64)
    np.fill_diagonal(weights, 0.0)
    rows, columns = np.nonzero(~(weights >= 0) | np.isinf(weights))
    _check_entries(rows, columns, weights[rows, columns])
    weights += 0.0  # -0.0 is a zero weight
    _check_anchors(weights)
    precision = _precision(given.dtype)
    notes: tuple[str, ...] = ()
    if not np.array_equal(weights, weights.T) and _symmetric_up_to_rounding(
        weights, weights.T, float(weights.max()), precision
    ):
        notes = (_rounding_note(np.abs(weights - weights.T).max()),)
        weights = np.where((weights > 0) & (weights.T > 0), (weights + weights.T) / 2, 0.0)
    notes += _underflow_notes(weights, given.dtype)
    index, first, second = _twins(weights)
    grouped = weights[np.ix_(first, first)]
    np.fill_diagonal(grouped, weights[first, second])
    return Grouped(index, grouped, precision, notes)


def symmetrise(log_weights: Array) -> tuple[Array, bool, str | None]:
    """Replace log w by its symmetric representative where one exists.

    Returns the log weights, whether they are symmetric, and a note if they changed.
    """
    if np.array_equal(log_weights, log_weights.T):
        return log_weights, True, None
    positive = np.isfinite(log_weights)
    if not np.array_equal(positive, positive.T):
        return log_weights, False, None
    difference = np.where(positive, log_weights, 0.0)
    difference = difference - difference.T
    graph = scipy.sparse.csr_array(positive.astype(np.int8))
    scale = np.zeros(log_weights.shape[0])
    reached = np.zeros(scale.size, dtype=bool)
    for start in range(scale.size):
        if reached[start]:
            continue
        order, before = breadth_first_order(graph, start, directed=False)
        reached[order] = True
        for node in order[1:]:
            scale[node] = scale[before[node]] + difference[before[node], node]
    misfit = float(np.abs(np.where(positive, difference - (scale[None, :] - scale[:, None]), 0.0)).max())
    if misfit > SYMMETRISABLE:
        return log_weights, False, None
    # A constant within a component changes nothing; 0 for the mean row keeps the weights near their scale.
    shifted = log_weights + (scale - scale.mean())[:, None]
    note = (
        "weights were not symmetric but symmetrisable: rows rescaled, which leaves the normalised weights as they are"
    )
    return np.where(positive, (shifted + shifted.T) / 2, -np.inf), True, note


def _check_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "biuf":
        raise InvalidInputError(f"`weights` must be real numbers; got type {dtype} (convert it to float)")
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidInputError(
            f"`weights` must be a square (n, n) matrix; got shape {shape} (one row and one column per sample)"
        )
    if shape[0] < 3:
        raise InvalidInputError(
            f"`weights` must be of at least 3 samples; got {shape[0]} (with two, every embedding has the same loss)"
        )


def _check_indices(matrix: Any) -> None:
    """Reject indices outside the matrix, as in a damaged file: scipy would read foreign memory."""
    if hasattr(matrix, "check_format"):
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise InvalidInputError(
                f"`weights` must be a valid sparse matrix; scipy reports: {error} (save it again)"
            ) from error


def _check_entries(rows: npt.NDArray[Any], columns: npt.NDArray[Any], values: Array) -> None:
    """Raise for the first invalid entry."""
    if not rows.size:
        return
    i, j, value = int(rows[0]), int(columns[0]), float(values[0])
    need, remedy = ("finite", "drop the sample, or give the pair a weight")
    if np.isfinite(value):
        need, remedy = (
            "not negative",
            "weights are probabilities up to a factor: use exp(similarity) for signed similarities",
        )
    raise InvalidInputError(f"`weights` must be {need}; got w_{i},{j} = {value:g} ({remedy})")


def _check_anchors(weights: Array) -> None:
    """Reject a sample that is a positive of others but has none itself.

    Its row has no term, so the bound would be another one.
    """
    wrong = np.flatnonzero(weights.any(axis=0) & ~weights.any(axis=1))
    if wrong.size:
        j = int(wrong[0])
        i = int(np.flatnonzero(weights[:, j])[0])
        raise InvalidInputError(
            f"`weights` must have a positive weight in every row whose column has one; got row {j} of zeros and "
            f"w_{i},{j} = {weights[i, j]:g} (give sample {j} its weights, or set its column to 0: it then acts as a "
            "negative only)"
        )


def _underflow_notes(weights: Array, dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Notes on zeros beside the smallest numbers of the type, which may have been exp(-1000)."""
    positive = weights > 0
    pairs = weights.shape[0] * (weights.shape[0] - 1)
    if dtype.kind != "f" or np.count_nonzero(positive) >= pairs or not positive.any():
        return ()
    least = float(weights[positive].min())
    if least > float(np.finfo(dtype).tiny) ** 0.9:
        return ()
    return (
        f"zeros may be underflow (the least positive weight is {least:.1e}): weights made from labels by a scheme keep "
        "logarithms",
    )


def _precision(dtype: np.dtype[Any]) -> float:
    return max(EPS, float(np.finfo(dtype).eps)) if dtype.kind == "f" else EPS


def _symmetric_up_to_rounding(one: Array, other: Array, largest: float, precision: float) -> bool:
    allowed = max(RELATIVE_ROUNDING, 64 * precision) * np.maximum(one, other) + 8 * precision * largest
    return bool(np.all(np.abs(one - other) <= allowed))


def _rounding_note(misfit: float) -> str:
    return f"weights were asymmetric by rounding (up to {misfit:.1e}): symmetrised"


def _mix(values: Array) -> Words:
    """One word per value, 0 for 0; different values have different words (every step is invertible)."""
    words = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(words ^ (words >> np.uint64(32)))


def _multipliers(count: int) -> Words:
    return np.random.default_rng(0).integers(0, 2**64, size=count, dtype=np.uint64, endpoint=False) | np.uint64(1)


def _twins(weights: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Group samples whose rows and columns agree except at the pair itself.

    Returns the group of each sample, and a first and a second member of each group.

    Row i is summed up as r_1 h(w_i1) + r_2 h(w_i2) + ... modulo 2^64 with random r, which no order of summation can
    change. Its diagonal is missing; filled with w_ij, the sums of i and j agree iff they are twins, except for one
    chance in 2^64, which is checked.
    """
    n = weights.shape[0]
    multipliers = _multipliers(n)
    same = weights == weights.T
    symmetric = bool(same.all())
    for table in (weights,) if symmetric else (weights, np.ascontiguousarray(weights.T)):
        words = _mix(table)
        total = (words * multipliers[None, :]).sum(axis=1, dtype=np.uint64)
        words *= multipliers[:, None]
        words += total[:, None]
        same &= words == words.T
    np.fill_diagonal(same, True)
    index, first, second = _representatives(same.argmax(axis=1).astype(np.intp))
    if first.size < n:
        lifted = weights[np.ix_(first, first)]
        np.fill_diagonal(lifted, weights[first, second])
        lifted = lifted[np.ix_(index, index)]
        np.fill_diagonal(lifted, 0.0)
        if not np.array_equal(lifted, weights):
            return _representatives(np.arange(n))
    return index, first, second


def _representatives(
    groups: npt.NDArray[np.intp],
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Groups renumbered by first appearance, with first and second members (the first twice for a group of one)."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(order.size, dtype=np.intp)
    rank[order] = np.arange(order.size)
    index = rank[inverse.ravel()]
    first = first[order].astype(np.intp)
    second = first.copy()
    sorted_samples = np.argsort(index, kind="stable")
    start = np.searchsorted(index[sorted_samples], np.arange(first.size))
    several = np.bincount(index) > 1
    second[several] = sorted_samples[start[several] + 1]
    return index, first, second


def _read_sparse(matrix: Any) -> Grouped:
    """Read a large sparse matrix, symmetric up to rounding, without writing down n x n entries."""
    precision = _precision(matrix.dtype)
    entries = scipy.sparse.coo_array(matrix).astype(np.float64)
    apart = entries.coords[0] != entries.coords[1]
    rows, columns, values = entries.coords[0][apart], entries.coords[1][apart], entries.data[apart]
    wrong = ~(values >= 0) | np.isinf(values)
    _check_entries(rows[wrong], columns[wrong], values[wrong])
    weights = scipy.sparse.csr_array((values, (rows, columns)), shape=entries.shape)
    weights.sum_duplicates()
    weights.eliminate_zeros()
    weights.sort_indices()
    turned = weights.T.tocsr()
    turned.sort_indices()
    same_places = np.array_equal(weights.indptr, turned.indptr) and np.array_equal(weights.indices, turned.indices)
    largest = float(weights.data.max(initial=0.0))
    if not same_places or not _symmetric_up_to_rounding(weights.data, turned.data, largest, precision):
        raise InvalidInputError(
            f"`weights` must be symmetric when sparse with more than {LARGEST_AS_DENSE} samples; got w_ij != w_ji "
            "(pass (W + W.T) / 2)"
        )
    notes: tuple[str, ...] = ()
    if not np.array_equal(weights.data, turned.data):
        notes = (_rounding_note(np.abs(weights.data - turned.data).max()),)
        weights.data = (weights.data + turned.data) / 2
    index, first, second = _sparse_twins(weights)
    if first.size > LARGEST_GROUPS:
        raise InvalidInputError(
            f"`weights` must have at most {LARGEST_GROUPS} distinct rows; got {first.size} "
            "(take a subset of the samples)"
        )
    grouped = weights[first][:, first].toarray()
    np.fill_diagonal(grouped, np.where(first == second, 0.0, weights[first, second]))
    return Grouped(index, grouped, precision, notes)


def _sparse_twins(weights: Any) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """As `_twins`, from the stored entries.

    Twins with a positive weight between them are neighbours; other twins have equal sums.
    """
    n = weights.shape[0]
    multipliers = _multipliers(n)
    rows = np.repeat(np.arange(n), np.diff(weights.indptr))
    words = _mix(weights.data)
    summed = np.concatenate(
        [np.zeros(1, dtype=np.uint64), np.cumsum(words * multipliers[weights.indices], dtype=np.uint64)]
    )
    total = summed[weights.indptr[1:]] - summed[weights.indptr[:-1]]
    filled = scipy.sparse.csr_array(
        (words * multipliers[rows] + total[rows], weights.indices, weights.indptr), shape=weights.shape
    )
    turned = filled.T.tocsr()
    turned.sort_indices()
    adjacent = filled.data == turned.data
    _, first, equal = np.unique(total, return_index=True, return_inverse=True)
    link = scipy.sparse.coo_array(
        (
            np.ones(int(adjacent.sum()) + n, dtype=np.int8),
            (
                np.concatenate([rows[adjacent], np.arange(n)]),
                np.concatenate([weights.indices[adjacent], first[equal.ravel()]]),
            ),
        ),
        shape=weights.shape,
    )
    return _representatives(connected_components(link, directed=False)[1].astype(np.intp))
