r"""Is the optimal Gram matrix unique where the entropic bound is not attained?

Let D be the difference of two optima. The loss is constant between them and a sum of convex terms, so each is affine
there: a logsumexp is affine only along constants, and D_ik = d_i for all k != i of every anchor i (a sample with a
positive). D is symmetric and its diagonal is zero, so D = d (11' - I) plus a part between samples that are no anchors,
whose pairs occur in no normaliser. And Z D = 0 for the dual matrix Z of either optimum, by complementarity. Z has the
gradient g off the diagonal.

All samples anchors. If d is not 0, then Z (11' - I) = 0, so Z = 0 and g = 0: P + P' = w~ + w~'. For weights that are
symmetric but for factors of the rows, P and w~ are both Bradley-Terry models with these sums, P_ij = M_ij / (1 +
exp(u_i - u_j)), and such a model is unique: P = w~, the bound would be attained. So the optimum is unique. Other
weights may have g = 0, and then d is free unless the constraint stops it.

Some sample u is no anchor. Its column of weights is zero (`Weights` sees to that), so g_iu = P_iu/(2 tau) > 0 for every
anchor i, while g = 0 between two such samples. A positive semidefinite Z then has Z_uu > 0. If d is not 0, the column
of an anchor k in Z D = 0 says Z e_k = Z 1, so row u of Z holds the same y > 0 at each of N >= 2 anchors and N y + Z_uu
= y: Z_uu < 0, impossible. With d = 0, row u of Z D = 0 is Z_uu D_uv = 0: D = 0. The optimum is unique, whatever the
weights.
"""

from __future__ import annotations

import math

import numpy as np

from optgeom._numerics import Array
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization.weights import Weights

NO_FORCE = 1e-6  # share of the forces that is left, below which they may be zero


def is_unique(weights: Weights, program: WeightedProgram, cosines: Array, gap: float) -> bool:
    """Whether a certified optimum that does not attain the bound is proved to be the only one.

    `gap` is that of its certificate: by Pinsker's inequality probabilities are off by about its root, and so are the
    forces.
    """
    if weights.symmetric or not weights.with_positive.all():
        return True
    # All forces together, P + P' + w~ + w~' over (2 tau n), sum to 2 / tau.
    forces = float(np.sum(program.sizes[:, None] * program.count * np.abs(program.gradient(cosines))))
    return forces * program.temperature / 2 > NO_FORCE + 10 * math.sqrt(max(gap, 0.0))
