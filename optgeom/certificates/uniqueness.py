r"""Is the optimal Gram matrix unique?

Where the risk is strictly convex in the cosine of every pair, it is. Otherwise (linear programs, pairs without a force) let V hold a
basis of the range of A and let rank A + rank Z = C (strict complementarity). Every optimal matrix is then V S V^T, agrees with A on the
diagonal and on the pairs that are strictly convex, and A lies inside the optimal face; so A is unique iff the linear map from
symmetric S to these entries is injective.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from optgeom._numerics import Array
from optgeom.programs.class_mean import ClassMeanProgram, lift

RANK_TOLERANCE = 1e-7
LARGEST_MAP = 4000  # unknowns of the linear map that is still formed


def is_unique(program: ClassMeanProgram, cosines: Array, dual_rank: int, rank: int) -> bool:
    """False also where uniqueness cannot be decided."""
    merged = program.merged()
    forces = np.isfinite(merged.log_gradient(cosines)) | (merged.rows.count == 0)
    if program.loss.strictly_convex and bool(forces.all()):
        return True
    if rank + dual_rank != program.num_classes:
        return False
    unknowns = rank * (rank + 1) // 2
    classes = program.num_classes
    if unknowns > classes and not program.loss.strictly_convex:
        return False
    if unknowns > LARGEST_MAP:
        return False
    gram = lift(program, cosines)
    eigenvalues, vectors = scipy.linalg.eigh(gram)
    factor = vectors[:, -rank:]
    fixed = np.eye(classes, dtype=bool)
    if program.loss.strictly_convex:
        index = program.groups.index
        fixed |= forces[np.ix_(index, index)]
    left, right = np.nonzero(np.triu(fixed))
    rows, columns = np.triu_indices(rank)
    images = factor[left][:, rows] * factor[right][:, columns] + factor[left][:, columns] * factor[right][:, rows]
    singular = scipy.linalg.svdvals(images)
    return bool(singular.size == unknowns and singular[-1] > RANK_TOLERANCE * singular[0])
