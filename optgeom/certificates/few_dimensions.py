r"""What is proved of the lowest risk in fewer dimensions than the optimum needs: the lower end of a bracket.

Few classes on a line are enumerated. Equally frequent classes have a bound from two moments of their cosines.

A Gram matrix of C unit vectors in d dimensions has A >= 0 and A o A >= 11'/d (Schoenberg): both are positive
semidefinite. Their sums of entries say that the cosines of pairs have a mean of at least -1/(C-1) and a mean square of
at least (C/d - 1)/(C-1). A row whose value is a mean of log-sums is concave in the distribution of its cosines, so it
is at least the mean over its pairs of phi(cosine), phi(x) = F with every pair at x. Hence

    F(A) >= min E phi(X)    over X in [-1, 1] of such moments,

whose dual is a parabola below phi. The best one touches phi, from below, in the atoms of the extreme law: -1 and one
inside where the third derivative of phi is positive, one inside and 1 where it is negative, else both ends and one
inside. It is checked against phi on a mesh, and lowered by what it is too high: any parabola is a proof.

References
----------
Schoenberg 1942, Duke Math. J. 9, 96-108. Karlin, Studden 1966, Tchebycheff Systems (the two atoms). Derivation:
docs/theory/certificates.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from scipy.optimize import brentq

from optgeom._numerics import EPS, Array
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.gram_program import GramProgram

ENUMERATED = 12  # rows up to which all signs are tried: 2048 evaluations
MESH = 1.25  # ratio of neighbouring distances from the points of contact
CLOSEST = 1e-8  # of them: the parabola is quadratic in the distance there
NEAREST = 1e-6  # distance of the point of contact from both ends


def least_risk(classes: ClassDistribution, loss: Loss, dim: int) -> float:
    """Lower bound on the risk in `dim` dimensions that only so few dimensions have; -inf where none is known.

    In one dimension with few classes it is the least risk itself; equally frequent classes have `pair_bound`.
    """
    program = ClassMeanProgram.build(classes, loss, grouped=False).merged()
    if all_are_tried(program.sizes.size, dim):
        return best_signs(program)[1]
    return pair_bound(ClassMeanProgram.build(classes, loss), dim)


def all_are_tried(rows: int, dim: int) -> bool:
    """Whether there are so few geometries that `best_signs` is the optimum."""
    return dim == 1 and rows <= ENUMERATED


def best_signs(program: GramProgram) -> tuple[Array, float, int]:
    """Best Gram matrix of one column among all 2^(n-1), its risk, and the number of evaluations."""
    n = len(program.sizes)
    best = (np.ones((n, n)), np.inf)
    for rest in itertools.product((1.0, -1.0), repeat=n - 1):
        signs = np.array([1.0, *rest])
        cosines = np.outer(signs, signs)
        risk = program.risk(cosines)
        if risk < best[1]:
            best = (cosines, risk)
    return *best, 2 ** (n - 1)


def refusal(dim: int, needed: int, width: float) -> str:
    """Why an answer in fewer dimensions than the optimum needs is not certified."""
    few = "one dimension is" if dim == 1 else f"{dim} dimensions are"
    answer = "a bracket" if width > 0 else "the lowest there, not that optimum"
    return f"{few} fewer than the {needed} of the optimum: the answer is {answer}"


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
    best = -np.inf
    for end, contact in _contacts(program, mean, square):
        bound, excess = _lowered(program, end, contact, mean, square)
        best = max(best, bound)
        if excess <= 0:  # below phi as it is: this is the best
            break
    return best


def _contacts(program: ClassMeanProgram, mean: float, square: float) -> Iterator[tuple[float, float]]:
    """End, and point inside, where the parabola touches phi."""
    for end in (-1.0, 1.0):
        # The other atom of the law with these moments that has one at this end.
        yield end, float(np.clip((end * mean - square) / (end - mean), -1 + NEAREST, 1 - NEAREST))

    def above(contact: float) -> float:
        """How far the parabola that touches at -1 and at `contact` is above phi at 1."""
        height, slope = _phi(program, np.array([-1.0, contact, 1.0]))
        return float(_parabola(-1.0, contact, height[0], height[1], slope[1])[0](np.array(1.0)) - height[2])

    low, high = -1 + NEAREST, 1 - NEAREST
    if above(low) < 0 < above(high):
        yield -1.0, float(brentq(above, low, high, xtol=1e-14))


def _parabola(
    end: float, contact: float, at_end: float, at_contact: float, slope: float
) -> tuple[Callable[[Array], Array], float, float]:
    """The parabola through phi at one end that touches it at `contact`, and its coefficients of x and x^2."""
    run = end - contact
    curvature = (at_end - at_contact - slope * run) / run**2

    def parabola(x: Array) -> Array:
        return np.asarray(at_contact + (x - contact) * (slope + curvature * (x - contact)))

    return parabola, slope - 2 * curvature * contact, curvature


def _lowered(program: ClassMeanProgram, end: float, contact: float, mean: float, square: float) -> tuple[float, float]:
    """The bound of the parabola that touches phi at `end` and `contact`, and how far it had to be lowered."""
    distances = CLOSEST * MESH ** np.arange(int(np.log(2 / CLOSEST) / np.log(MESH)) + 1)
    near = [-1 + distances, 1 - distances, contact + distances, contact - distances]
    mesh = np.unique(np.concatenate([[-1.0, contact, 1.0], *near]))
    mesh = mesh[(mesh >= -1) & (mesh <= 1)]
    height, slope = _phi(program, mesh)
    here = int(np.searchsorted(mesh, contact))
    parabola, linear, curvature = _parabola(end, contact, height[0 if end < 0 else -1], height[here], slope[here])
    if not (curvature >= 0 and linear >= 0):  # the moments are bounded from below only
        return -np.inf, np.inf
    # phi lies above its tangents, and minus the parabola above its chords: between two points of the mesh the
    # difference is least at one of them, or where their tangents meet.
    left, right = mesh[:-1], mesh[1:]
    turn = np.diff(slope)
    bends = turn > EPS * np.abs(slope[1:])
    offset = (height[1:] - slope[1:] * right) - (height[:-1] - slope[:-1] * left)
    meet = np.clip(np.where(bends, -offset / np.where(bends, turn, 1.0), left), left, right)
    tangents = np.minimum(height[:-1] + slope[:-1] * (meet - left), height[1:] + slope[1:] * (meet - right))
    least = min(float(np.min(height - parabola(mesh))), float(np.min(tangents - parabola(meet))))
    rounding = 8 * EPS * (1 + float(np.max(np.abs(height))))
    bound = float(parabola(np.array(mean))) + curvature * (square - mean**2)
    return bound + min(least, 0.0) - rounding, -least - rounding


def _phi(program: ClassMeanProgram, points: Array) -> tuple[Array, Array]:
    """F with every pair at the same cosine, and its derivative."""
    pairs = float(program.pair_counts()[0, 0])
    grams = points[:, None, None]
    height = np.array([program.risk(gram) for gram in grams])
    slope = np.array([pairs * program.gradient(gram)[0, 0] for gram in grams])
    return height, slope
