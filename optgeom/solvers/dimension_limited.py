r"""Embedding dimension below the rank of the optimum: a bracket, honestly not a certificate.

The rank constraint makes the program non-convex (an open problem in the literature). The low-rank method runs with exactly d columns from
several starts; the best risk found is the upper end of the bracket, the certified risk without the constraint the lower end.
"""

from __future__ import annotations

import numpy as np

from optgeom._numerics import Array
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.low_rank import local_minimum

RANDOM_STARTS = 4


def best_found(program: ClassMeanProgram, relaxed: Array, dim: int) -> tuple[Array, float, int]:
    """Best Gram matrix of `dim` columns found, its risk, and the number of trust-region steps.

    `program` keeps every class apart (in fewer than C - 1 dimensions equal classes need not be treated equally); `relaxed` (C, C) is the
    optimum without the constraint, whose leading eigenvectors are the first start. Starts are seeded: the answer is reproducible.
    """
    eigenvalues, vectors = np.linalg.eigh(relaxed)
    starts = [vectors[:, -dim:] * np.sqrt(np.maximum(eigenvalues[-dim:], 0.0))]
    rng = np.random.default_rng(0)
    starts[0] = starts[0] + 1e-3 * rng.standard_normal(starts[0].shape)
    starts += [rng.standard_normal((relaxed.shape[0], dim)) for _ in range(RANDOM_STARTS)]
    best: tuple[Array, float] | None = None
    steps = 0
    for start in starts:
        cosines, risk, taken = local_minimum(program, start / np.linalg.norm(start, axis=1)[:, None])
        steps += taken
        if best is None or risk < best[1]:
            best = (cosines, risk)
    assert best is not None
    return best[0], best[1], steps
