r"""Lower bounds in d dimensions, fewer than the optimum needs: signs on a line, and equally frequent classes.

In one dimension every row is 1 or -1, and few rows are enumerated, 2^(n-1) patterns up to a common sign. In more, for
equally frequent classes, the first two moments of their cosines give a bound.

A Gram matrix of C unit vectors in d dimensions has A >= 0 and A o A >= 11'/d (Schoenberg): both are positive
semidefinite. Their sums of entries say that the cosines of pairs have a mean of at least -1/(C-1) and a mean square of
at least (C/d - 1)/(C-1). A row whose value is a mean of log-sums is concave in the distribution of its cosines, so it
is at least the mean over its pairs of phi(cosine), phi(x) = F with every pair at x. Hence

    F(A) >= min E phi(X)    over X in [-1, 1] of such moments,

whose dual is a parabola below phi. The best one touches phi at -1 and at b = 1 - (1 - y)/(1 + a), a and y the two
moments. It is checked against phi on a mesh, and lowered by what it is too high: any parabola is a proof.

References
----------
Schoenberg 1942, Duke Math. J. 9, 96-108. Karlin, Studden 1966, Tchebycheff Systems (the two atoms). Derivation:
docs/theory/certificates.md.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from optgeom._numerics import EPS, Array
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.gram_program import GramProgram

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution
    from optgeom.losses.base import Loss

ENUMERATED = 12  # rows up to which all patterns of signs are tried: 2048 evaluations
MESH = 1.25  # ratio of neighbouring distances from the points of contact
CLOSEST = 1e-8  # of them: the parabola is quadratic in the distance there
CONTACTS = 8  # points of contact tried where the best parabola is not below phi


def pair_bound(program: ClassMeanProgram, dim: int) -> float:
    """Bound on F in `dim` dimensions; -inf where it says nothing.

    Parameters
    ----------
    program : ClassMeanProgram
        In groups; the bound needs a single one, and rows that give "pair-mean".
    dim : int
        d >= 1, below C - 1.
    """
    if program.sizes.size > 1 or "pair-mean" not in program.gives:
        return -np.inf
    number = program.num_classes
    mean, square = -1 / (number - 1), (number / dim - 1) / (number - 1)
    contact = 1 - (1 - square) / (1 + mean)
    best = -np.inf
    for where in np.linspace(contact, -1.0, CONTACTS, endpoint=False):
        bound, excess = _parabola(program, float(where), mean, square)
        best = max(best, float(bound))
        if excess <= 0:  # below phi as it is, and the others are worse
            break
    return best


def is_proved(rows: int, dim: int) -> bool:
    """Whether `least_on_line` settles it: one dimension, and patterns few enough to try all."""
    return dim == 1 and rows <= ENUMERATED


def least_on_line(program: GramProgram) -> tuple[Array, float, int]:
    """The best Gram matrix of signs, its risk, and the number of evaluations: every pattern is tried."""
    n = len(program.sizes)
    best = (np.ones((n, n)), np.inf)
    for rest in itertools.product((1.0, -1.0), repeat=n - 1):
        signs = np.array([1.0, *rest])
        cosines = np.outer(signs, signs)
        risk = program.risk(cosines)
        if risk < best[1]:
            best = (cosines, risk)
    return *best, 2 ** (n - 1)


def least_risk(classes: ClassDistribution, loss: Loss, dim: int) -> float:
    """Lower bound on the risk in `dim` dimensions that only so few dimensions have; -inf where none is known.

    In one dimension with few classes it is the least risk itself; equally frequent classes have `pair_bound`.
    """
    program = ClassMeanProgram.build(classes, loss, grouped=False).merged()
    if is_proved(program.sizes.size, dim):
        return least_on_line(program)[1]
    return pair_bound(ClassMeanProgram.build(classes, loss), dim)


def refusal(dim: int, needed: int, width: float) -> str:
    """Why an answer in fewer dimensions than the optimum needs is not certified."""
    answer = "a bracket" if width > 0 else f"the lowest in {dim}, not that optimum"
    return f"{dim} dimensions are fewer than the {needed} of the optimum: the answer is {answer}"


def _parabola(program: ClassMeanProgram, contact: float, mean: float, square: float) -> tuple[float, float]:
    """The bound of the parabola that touches phi at -1 and, from below, at `contact`; how far it had to be lowered."""
    distances = CLOSEST * MESH ** np.arange(int(np.log(2 / CLOSEST) / np.log(MESH)) + 1)
    mesh = np.unique(np.concatenate([[-1.0, contact, 1.0], -1 + distances, contact + distances, contact - distances]))
    mesh = mesh[(mesh >= -1) & (mesh <= 1)]
    height, slope = _phi(program, mesh)
    here = int(np.searchsorted(mesh, contact))
    rise, run = height[here] - height[0], contact + 1
    curvature = (slope[here] - rise / run) / run
    linear = slope[here] - 2 * curvature * contact
    if not (curvature >= 0 and linear >= 0):  # the moments are bounded from below only
        return -np.inf, np.inf

    def parabola(x: Array) -> Array:
        return np.asarray(height[here] + (x - contact) * (slope[here] + curvature * (x - contact)))

    # phi lies above its tangents, and minus the parabola above its chords: between two points of the mesh the
    # difference is least at one of them, or where their tangents meet.
    left, right = mesh[:-1], mesh[1:]
    turn = np.diff(slope)
    bends = turn > EPS * np.abs(slope[1:])
    offset = (height[1:] - slope[1:] * right) - (height[:-1] - slope[:-1] * left)
    meet = np.clip(np.where(bends, -offset / np.where(bends, turn, 1.0), left), left, right)
    tangents = np.minimum(height[:-1] + slope[:-1] * (meet - left), height[1:] + slope[1:] * (meet - right))
    least = min(float(np.min(height - parabola(mesh))), float(np.min(tangents - parabola(meet))))
    rounding = 8 * EPS * (1 + float(np.max(np.abs(height[: here + 1]))))
    bound = float(parabola(np.array(mean))) + curvature * (square - mean**2)
    return bound + min(least, 0.0) - rounding, -least - rounding


def _phi(program: ClassMeanProgram, points: Array) -> tuple[Array, Array]:
    """F with every pair at the same cosine, and its derivative."""
    pairs = float(program.pair_counts()[0, 0])
    grams = points[:, None, None]
    height = np.array([program.risk(gram) for gram in grams])
    slope = np.array([pairs * program.gradient(gram)[0, 0] for gram in grams])
    return height, slope
