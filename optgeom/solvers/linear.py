r"""The linear program of one negative without the positive in the denominator (k = 1, alpha = 0), sampled from all
classes.

F = (lam' A lam - 1)/tau is least where A lam = 0: every way to close a polygon with sides lam_i is optimal when no side
exceeds the sum of the others. Of this face we return the analytic centre, the matrix of largest determinant on the
complement of lam: it treats equal classes equally and is a closed form up to one scalar y. With M = Diag(1/d) positive
definite on the complement of lam,

    A = Diag(d) - y (lam o d)(lam o d)',      y = 1 / sum_i lam_i^2 d_i,      y lam_i^2 d_i^2 - d_i + 1 = 0  (unit diagonal).

Every d_i is the smaller root 2 / (1 + sqrt(1 - 4 lam_i^2 y)), or the largest class takes the other root; then y may be
0 or negative.
"""

from __future__ import annotations

import numpy as np

from optgeom._numerics import Array
from optgeom.programs.group_matrix import Sizes


def analytic_centre(sizes: Sizes, proportions: Array) -> Array | None:
    """Group-form Gram matrix A with A lam = 0 and the largest determinant on the complement of lam.

    None when max lam >= 1/2.
    """
    from scipy.optimize import brentq

    lam = proportions / proportions.max()
    m = sizes.astype(np.float64)
    if float(np.sum(m * lam)) <= 2.0:
        return None
    largest = int(np.argmax(lam))
    others = m.copy()
    others[largest] -= 1

    def at(y: float) -> Array:
        """lam_i^2 d_i of the smaller root: its sum over the classes is 1/y."""
        return np.asarray(2 * lam**2 / (1 + np.sqrt(np.maximum(0.0, 1 - 4 * lam**2 * y))))

    def excess_small(y: float) -> float:
        return y * float(np.sum(m * at(y))) - 1

    def excess_large(y: float) -> float:
        # The other root of the largest class contributes 1 - y at(y), so the sum to compare with 1 loses its y.
        found = at(y)
        return float(np.sum(others * found) - found[largest]) / float(found[largest])

    all_small = excess_small(0.25) >= 0
    if all_small:
        y = brentq(excess_small, 0.0, 0.25, xtol=1e-16, rtol=1e-15)
    else:
        y = 0.25 - np.exp(brentq(lambda w: excess_large(0.25 - np.exp(w)), -40.0, 100.0, xtol=1e-15, rtol=1e-15))
    d = 2 / (1 + np.sqrt(np.maximum(0.0, 1 - 4 * lam**2 * y)))
    cosines = -y * (lam * d)[:, None] * (lam * d)[None, :]
    if not all_small:
        # A single class here: two of them would have made the first sum reach 1.
        cosines[largest, :] = cosines[:, largest] = -(1 + np.sqrt(1 - 4 * y)) / 2 * (lam * d)
    cosines[np.diag_indices_from(cosines)] = np.where(sizes > 1, np.diag(cosines), 1.0)
    return np.asarray(cosines)
