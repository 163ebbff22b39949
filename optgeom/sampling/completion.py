"""When the cosines of some pairs of points determine all others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.certificates.certificate import RANK_EIGENVALUE

SPANS = 1e-3  # smallest singular value, relative to the largest, of vectors that span the space


def is_determined(cosines: Array, seen: npt.NDArray[np.bool_]) -> bool:
    """Whether points can be placed one after the other.

    That proves that this is the only matrix with its cosines at the pairs seen.

    Points that all see each other have a known Gram matrix. If they span the r dimensions of `cosines`, any further
    point that sees points placed already that span them, too, is where they say: its part in their span is known, and
    of length 1, so that nothing is left for further dimensions. No order found proves nothing.

    Parameters
    ----------
    cosines : (n, n)
        Positive semidefinite, unit diagonal.
    seen : (n, n)
        Symmetric; the diagonal is true.
    """
    values, axes = np.linalg.eigh(cosines)
    kept = values > RANK_EIGENVALUE
    rows = axes[:, kept] * np.sqrt(values[kept])
    placed = _clique(cosines, seen, rows.shape[1])
    if not _span(rows[placed]):
        return False
    done = np.zeros(cosines.shape[0], dtype=np.bool_)
    done[placed] = True
    waiting = np.flatnonzero(~done)
    while waiting.size:
        fits = np.array([_span(rows[seen[point] & done]) for point in waiting])
        if not fits.any():
            return False
        done[waiting[fits]] = True
        waiting = waiting[~fits]
    return True


def _clique(cosines: Array, seen: npt.NDArray[np.bool_], rank: int) -> npt.NDArray[np.intp]:
    """Points that all see each other, from the one that sees most, nearest first."""
    first = int(np.argmax(seen.sum(axis=1)))
    chosen: list[int] = []
    for point in np.argsort(-cosines[first], kind="stable"):
        if len(chosen) < 10 * rank and seen[point, chosen].all():
            chosen.append(int(point))
    return np.array(chosen, dtype=np.intp)


def _span(rows: Array) -> bool:
    if rows.shape[0] < rows.shape[1]:
        return False
    singular = np.linalg.svd(rows, compute_uv=False)
    return bool(singular[-1] > SPANS * singular[0])
