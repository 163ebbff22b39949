r"""Is the optimal Gram matrix unique?

Where the risk is strictly convex in the cosine of every pair, it is. Otherwise (linear programs, pairs without a force)
let V span the kernel of the dual Z. Complementarity puts every optimal matrix into the form V S V^T, and all of them
agree on the diagonal and on the pairs that are strictly convex; so if the linear map from symmetric S to these entries
is injective, the optimum is unique. (If it is not and rank A + rank Z = C, another optimum exists.)
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from optgeom._numerics import Square
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram

RANK_TOLERANCE = 1e-7
LARGEST_PROGRAM = 2000  # classes up to which the kernel of the dual is computed
LARGEST_MAP = 1000  # unknowns of the linear map that is still formed


def is_unique(program: ClassMeanProgram, cosines: Square) -> bool:
    """Whether uniqueness is proved for a certified group-form matrix; False where it fails or cannot be decided."""
    forces = program.merged().forces()
    if "strictly-convex" in program.loss.gives and bool(forces.all()):
        return True
    if program.num_classes > LARGEST_PROGRAM:
        return False
    gradient = np.exp(program.log_gradient(cosines))
    nu = (program.rows.count * gradient * cosines).sum(axis=1)
    scale = 1.0 / np.sqrt(-nu)
    index = program.groups.index
    scaled = group_matrix.expand(gradient * scale[:, None] * scale[None, :], np.ones(scale.size), index)
    eigenvalues, vectors = scipy.linalg.eigh(scaled)
    kernel = scale[index][:, None] * vectors[:, eigenvalues <= RANK_TOLERANCE * eigenvalues[-1]]
    kernel /= np.linalg.norm(kernel, axis=1)[:, None]
    fixed = np.eye(program.num_classes, dtype=bool)
    if "strictly-convex" in program.loss.gives:
        fixed |= forces[np.ix_(index, index)]
    left, right = np.nonzero(np.triu(fixed))
    rows, columns = np.triu_indices(kernel.shape[1])
    if rows.size > min(left.size, LARGEST_MAP):
        return False
    images = kernel[left][:, rows] * kernel[right][:, columns] + kernel[left][:, columns] * kernel[right][:, rows]
    singular = scipy.linalg.svdvals(images)
    return bool(singular[-1] > RANK_TOLERANCE * singular[0])
