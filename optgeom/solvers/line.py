r"""Embeddings in one dimension: every row is 1 or -1.

A = ss' with s in {1, -1}^n. Few rows are enumerated, 2^(n-1) patterns up to a common sign: the best is then proved.
More are improved one sign at a time. A flip of row i turns A_ij into -A_ij; as F is convex, it cannot lower F where the
linear term of the change is not negative, so only the others are tried.
"""

from __future__ import annotations

import numpy as np

from optgeom._numerics import Array, Square
from optgeom.certificates.few_dimensions import all_are_tried, best_signs
from optgeom.programs.gram_program import GramProgram

STARTS = 20  # of the search beyond
BUDGET = 2e8  # entries evaluated by that search, about a second


def best_on_line(program: GramProgram, relaxed: Square) -> tuple[Array, float, int]:
    """Best Gram matrix of one column, its risk, and the number of evaluations.

    The risk is the least there is where `all_are_tried`. `relaxed` is the optimum without the constraint.
    """
    n = len(relaxed)
    if all_are_tried(n, 1):
        return best_signs(program)
    rng = np.random.default_rng(0)
    leading = np.linalg.eigh(relaxed)[1][:, -1]
    starts = [np.ones(n), np.where(leading < 0, -1.0, 1.0), *rng.choice([-1.0, 1.0], (STARTS, n))]
    best, evaluations = (np.ones((n, n)), program.risk(np.ones((n, n)))), 1
    for start in starts:
        cosines, risk, taken = _flip(program, start, max(int(BUDGET / n**2 / len(starts)), n))
        evaluations += taken
        if risk < best[1]:
            best = (cosines, risk)
    return *best, evaluations


def _flip(program: GramProgram, signs: Array, most: int) -> tuple[Array, float, int]:
    """Flip single signs while that lowers the risk, at most `most` evaluations."""
    cosines = np.outer(signs, signs)
    risk, evaluations = program.risk(cosines), 1
    while evaluations < most:
        pulled = np.where(program.count > 0, program.gradient(cosines), 0.0) * cosines
        change = -4 * pulled.sum(axis=1)
        for row in np.argsort(change)[: int((change < 0).sum())]:
            flipped = np.where(np.arange(signs.size) == row, -signs, signs)
            there = np.outer(flipped, flipped)
            lower = program.risk(there)
            evaluations += 1
            if lower < risk or evaluations >= most:
                break
        else:
            break
        if not lower < risk:
            break
        signs, cosines, risk = flipped, there, lower
    return cosines, risk, evaluations
