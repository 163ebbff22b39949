r"""Repair: the nearest matrix that is really feasible, before anything is measured.

A solver's matrix may have small negative eigenvalues; its risk is then below the optimum and its dual residual can be
perfect. So every certificate is evaluated at the repaired matrix, and how far the repair moved the entries is part of
the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from optgeom._numerics import EPS, Array, Square, psd_part
from optgeom.programs import group_matrix
from optgeom.programs.group_matrix import Sizes

# Below this violation the repair mixes in a little of the identity, which needs eigenvalues only (a third of the cost
# of vectors); it moves no entry by more than the violation itself.
MIXING_LIMIT = 1e-11


@dataclass(frozen=True)
class Repaired:
    """A feasible matrix in group form.

    Attributes
    ----------
    cosines : (G, G)
        Positive semidefinite with unit diagonal.
    shift : float
        Largest change of an entry between two different classes.
    eigenvalues : (G,)
        Eigenvalues of the matrix AS GIVEN on the span of the group indicators, ascending.
    rounding : float
        A Cholesky factorisation of the matrix on that span can fail for a negative eigenvalue of this size that only
        rounding made (Rump 2006, BIT 46): (n + 2) u / (1 - (n + 2) u) times the trace, plus 8 u times it for forming
        the matrix.
    """

    cosines: Array
    shift: float
    eigenvalues: Array
    rounding: float


def repair(cosines: Square, sizes: Sizes) -> Repaired:
    """Clip to positive semidefinite and restore the unit diagonal, in group form.

    `cosines` is (G, G), symmetric; its diagonal is the within-group cosine. Where a group has one class, the diagonal
    entry should be 1; how far it is off counts as part of the shift.
    """
    given = np.where(np.eye(sizes.size, dtype=bool) & (sizes == 1)[:, None], 1.0, (cosines + cosines.T) / 2)
    ones = np.ones(sizes.size)
    block = group_matrix.symmetric_block(given, ones, sizes)
    rest = group_matrix.complement(given, ones, sizes)
    eigenvalues = np.asarray(scipy.linalg.eigvalsh(block), dtype=np.float64)
    lowest, largest = min(float(eigenvalues[0]), float(rest.min())), max(1.0, float(eigenvalues[-1]))
    if lowest >= -8 * EPS * largest:
        # Rounding of the eigenvalues, not of the matrix: cosines of exactly 1 and -1 stay what they are.
        repaired = given.copy()
    elif lowest >= -MIXING_LIMIT * largest:
        repaired = given / (1.0 + max(0.0, -lowest))
        repaired[np.diag_indices_from(repaired)] = np.where(sizes == 1, 1.0, np.diag(repaired))
    else:
        clipped, eigenvalues = psd_part(block)
        repaired, diagonal = group_matrix.from_blocks(clipped, np.maximum(rest, 0.0), sizes)
        scale = np.sqrt(np.maximum(diagonal, np.finfo(np.float64).tiny))
        within = np.diag(repaired) / diagonal
        repaired = repaired / (scale[:, None] * scale[None, :])
        repaired[np.diag_indices_from(repaired)] = np.where(sizes == 1, 1.0, within)
        repaired = (repaired + repaired.T) / 2
    moved = np.abs(repaired - given).max()
    shift = float(max(moved, np.abs(cosines.diagonal() - given.diagonal()).max()))
    return Repaired(repaired, shift, np.asarray(eigenvalues, dtype=np.float64), _cholesky_rounding(block))


def _cholesky_rounding(block: Array) -> float:
    unit = EPS / 2
    steps = (block.shape[0] + 2) * unit
    return float(np.trace(block) * (steps / (1 - steps) + 8 * unit))
