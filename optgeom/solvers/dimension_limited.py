r"""Embedding dimension below the rank of the optimum: a bracket, honestly not a certificate.

The rank constraint makes the program non-convex (an open problem in the literature). The low-rank method runs with exactly d columns from
several starts; the best risk found is the upper end of the bracket, the certified risk without the constraint the lower end.
"""

from __future__ import annotations

import numpy as np

from optgeom._numerics import Array
from optgeom.programs.gram_program import GramProgram
from optgeom.solvers.low_rank import local_minimum

# Small problems have many local minima and cost milliseconds a start; large ones cost minutes and their minima are alike.
MOST_STARTS, START_BUDGET = 24, 2000
LARGE = 2000  # coordinates beyond which minimisation stops at the accuracy of a bracket
ACCURATE, ROUGH = (1e-10, 300), (1e-5, 40)  # stationarity and steps


def best_found(program: GramProgram, relaxed: Array, dim: int) -> tuple[Array, float, int]:
    """Best Gram matrix of `dim` columns found, its risk, and the number of trust-region steps.

    `program` keeps every member apart (in so few dimensions equal ones need not be treated equally); `relaxed` is the optimum without the
    constraint, whose leading eigenvectors are the first start. Starts are seeded: the answer is reproducible.
    """
    members = relaxed.shape[0]
    eigenvalues, vectors = np.linalg.eigh(relaxed)
    spectral = vectors[:, -dim:] * np.sqrt(np.maximum(eigenvalues[-dim:], 0.0))
    rng = np.random.default_rng(0)
    starts = [spectral + 1e-3 * rng.standard_normal(spectral.shape)]
    random = int(np.clip(START_BUDGET // (members * dim), 1, MOST_STARTS))
    starts += [rng.standard_normal(spectral.shape) for _ in range(random)]
    tolerance, most = ACCURATE if members * dim <= LARGE else ROUGH
    best: tuple[Array, float] | None = None
    steps = 0
    for start in starts:
        cosines, risk, taken = local_minimum(program, start / np.linalg.norm(start, axis=1)[:, None], tolerance, most)
        steps += taken
        if best is None or risk < best[1]:
            best = (cosines, risk)
    assert best is not None
    return best[0], best[1], steps
