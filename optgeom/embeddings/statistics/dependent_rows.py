r"""Notice rows that come in groups (frames of a film, crops or copies of an image), and count each group as one image.

Standard errors assume independent images. For a query row let r_1 <= r_2 <= ... be the distances to its nearest rows of
the same class. If rows are independent with a density that is smooth at this scale, in however many dimensions m, then

    s_k = k log(r_{k+1}/r_k)

are independent exponential variables of mean 1/m (Renyi's representation of the order statistics of r^m). A group of g
rows shows as one large spacing at k = g - 1: the query's companions are near, the next row is not. Hence

    T = max over k <= min(24, n_c/4 - 1) of s_k / mean(s_{k+1}, ..., s_{max(3k, k+6)})

does not know the density nor m. A row is flagged where T >= 8; the group size shown by most flagged rows is the modal
one, and rows come in groups where at least half of the queries that could show a group of this size are flagged.
Distances are floored at a thousandth of the scale of the class, so that quantised values (float16) are not taken for
near rows.

Not noticed: groups whose rows are as far apart as different images, groups of more than 25 rows, drifting streams.
Exact copies, and true tight sub-clusters of a few rows each, are noticed as well: a finding says "rows in groups of
about g", and does not prove duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, blocks

MOST_QUERIES = 2000
FEWEST_QUERIES, MOST_QUERIES_PER_CLASS = 8, 64
LARGEST_SPACING = 24
NEIGHBOURS = 3 * LARGEST_SPACING + 1
FLAGGED = 8.0
FLOOR = 1e-3
ENTRIES = 2**22  # of a block of distances, 32 MiB


@dataclass(frozen=True, kw_only=True)
class RowGroups:
    """What the distances between rows say about their independence.

    Attributes
    ----------
    size : int
        Rows per group, about: the modal size among the flagged queries; 1 where rows look independent.
    flagged, able : int
        Queries that are flagged, and queries whose class has rows enough to show groups of this size.
    queries : int
    radius : float
        Distance between the rows of a group and the next rows: groups are the components linked below it; 0 for `size`
        1.
    """

    size: int
    flagged: int
    able: int
    queries: int
    radius: float

    @property
    def dependent(self) -> bool:
        """Rows come in groups."""
        return self.size > 1

    def sentence(self, images: int) -> str:
        """The finding and its remedy in one line, with the number of images that it leaves; empty if independent."""
        if not self.dependent:
            return ""
        return (
            f"rows in groups of about {self.size} ({self.flagged} of {self.able} rows looked at): frames, crops or "
            f"copies of one image are no new images, so each group was counted as one, {images} in all (give the id of "
            "its image for each row: group_ids, --group-ids)"
        )


def query_rows(codes: npt.NDArray[np.intp], num_classes: int, seed: int = 0) -> npt.NDArray[np.intp]:
    """Positions (q,) of the rows to look from: clip(2000/C, 8, 64) of each class, at random, or all that there are."""
    rng = np.random.default_rng([seed, 26])
    number = int(np.clip(MOST_QUERIES // max(num_classes, 1), FEWEST_QUERIES, MOST_QUERIES_PER_CLASS))
    order = rng.permutation(codes.size)
    order = order[np.argsort(codes[order], kind="stable")]
    starts = np.searchsorted(codes[order], np.arange(num_classes + 1))
    return np.concatenate([order[a : min(a + number, b)] for a, b in pairwise(starts.tolist())])


class NearestInClass:
    """Distances from query rows to their nearest rows of the same class, over any number of batches.

    Parameters
    ----------
    queries : (q, d)
        Unit rows, each of which will come once among the rows.
    codes : (q,) intp
        Their classes.
    """

    def __init__(self, queries: Array, codes: npt.NDArray[np.intp]) -> None:
        self.codes = codes
        self._queries = queries
        # One more, for the query itself.
        self._squares = np.full((len(queries), NEIGHBOURS + 1), np.inf)

    def update(self, rows: Array, codes: npt.NDArray[np.intp]) -> None:
        """Look at unit rows (b, d) of classes `codes` (b,)."""
        for c in np.unique(self.codes):
            chosen, own = np.flatnonzero(self.codes == c), np.flatnonzero(codes == c)
            for part in blocks(own.size, max(chosen.size, rows.shape[1]), ENTRIES):
                self._take(chosen, rows[own[part]])

    def merge(self, other: NearestInClass) -> None:
        """Add what `other`, with the same queries, has seen."""
        self._squares = np.sort(np.hstack([self._squares, other._squares]), axis=1)[:, : NEIGHBOURS + 1]

    def distances(self) -> Array:
        """(q, 73) in increasing order, without the query itself; inf beyond the rows of a class."""
        return np.asarray(np.sqrt(np.sort(self._squares, axis=1)[:, 1:]))

    def _take(self, chosen: npt.NDArray[np.intp], rows: Array) -> None:
        queries = self._queries[chosen]
        square = np.einsum("ij,ij->i", rows, rows) + np.einsum("ij,ij->i", queries, queries)[:, None]
        squares = np.hstack([self._squares[chosen], np.maximum(square - 2 * queries @ rows.T, 0.0)])
        self._squares[chosen] = np.partition(squares, NEIGHBOURS, axis=1)[:, : NEIGHBOURS + 1]


def row_groups(
    distances: Array, codes: npt.NDArray[np.intp], counts: npt.NDArray[np.int64], scales: Array, rounding: float = 0.0
) -> RowGroups:
    """Whether rows come in groups.

    Parameters
    ----------
    distances : (q, 73)
        Of `NearestInClass`.
    codes : (q,) intp
        Classes of the queries.
    counts : (C,)
        Rows of each class.
    scales : (C,)
        Root mean square distance between rows of a class, sqrt(2 tr Sigma_c).
    rounding : float
        Relative rounding of the input (`rounding.rounding_angle`): the floor is at least four times this.

    Returns
    -------
    RowGroups
    """
    floor = np.maximum(FLOOR * scales, 4 * rounding)[codes]
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(distances, np.maximum(floor, 1e-300)[:, None]))
    most = np.minimum(LARGEST_SPACING, counts // 4 - 1)[codes]
    order = np.arange(1, distances.shape[1])
    finite = np.isfinite(logs[:, 1:])
    spacings = np.where(finite, order * np.diff(np.where(np.isfinite(logs), logs, 0.0), axis=1), 0.0)
    totals = np.hstack([np.zeros((len(logs), 1)), np.cumsum(spacings, axis=1)])
    numbers = np.hstack([np.zeros((len(logs), 1), dtype=np.int64), np.cumsum(finite, axis=1)])
    best, where = np.zeros(len(logs)), np.zeros(len(logs), dtype=np.int64)
    for k in range(1, LARGEST_SPACING + 1):
        end = min(max(3 * k, k + 6), spacings.shape[1])
        after, number = totals[:, end] - totals[:, k], numbers[:, end] - numbers[:, k]
        # Spacings that all vanish are ties (quantised values), which say nothing.
        usable = (k <= most) & (number > 0) & (after > 0)
        ratio = np.where(usable, spacings[:, k - 1] * number / np.where(after > 0, after, 1.0), 0.0)
        where = np.where(ratio > best, k, where)
        best = np.maximum(best, ratio)
    flagged = best >= FLAGGED
    if not flagged.any():
        return RowGroups(size=1, flagged=0, able=0, queries=len(logs), radius=0.0)
    size = int(np.bincount(where[flagged]).argmax()) + 1
    able = most >= size - 1
    if 2 * int((flagged & able).sum()) < int(able.sum()):
        return RowGroups(
            size=1, flagged=int((flagged & able).sum()), able=int(able.sum()), queries=len(logs), radius=0.0
        )
    rows = np.flatnonzero(flagged)
    radius = float(np.exp(np.median((logs[rows, where[rows] - 1] + logs[rows, where[rows]]) / 2)))
    return RowGroups(
        size=size,
        flagged=int((flagged & able).sum()),
        able=int(able.sum()),
        queries=len(logs),
        radius=radius,
    )


def linked_units(rows: Array, codes: npt.NDArray[np.intp], radius: float) -> npt.NDArray[np.intp]:
    """(n,) number of the unit of each row: rows of one class linked by steps of at most `radius` (single linkage).

    Parameters
    ----------
    rows : (n, d)
        Unit rows.
    codes : (n,) intp
    radius : float

    Notes
    -----
    Compares all pairs of a class: O(sum n_c^2 d) time, blocks of memory. A unit is then treated as an image with its
    rows as views: its mean, and rho^2 = (|s|^2 - sum |z|^2)/(n(n - 1)) over units, as in `directions`.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    left, right = [], []
    square = np.einsum("ij,ij->i", rows, rows)
    for c in np.unique(codes):
        own = np.flatnonzero(codes == c)
        for part in blocks(own.size, own.size, ENTRIES):
            here = own[part]
            near = square[here, None] + square[own] - 2 * rows[here] @ rows[own].T <= radius**2
            i, j = np.nonzero(near)
            left.append(here[i])
            right.append(own[j])
    i, j = np.concatenate(left), np.concatenate(right)
    links = coo_array((np.ones(i.size, dtype=bool), (i, j)), shape=(len(rows), len(rows)))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.intp)
