"""Geometries that are known in closed form, each certified like any other answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optgeom._numerics import Array
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.group_matrix import Sizes
from optgeom.solvers.base import Attempt, Judge
from optgeom.solvers.newton import simplex


@dataclass(frozen=True)
class ClosedForms:
    """The first candidate that is certified, else the last one; None where there is no candidate."""

    name: ClassVar[str] = "closed form"
    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, program: ClassMeanProgram, start: Array, judge: Judge) -> Attempt | None:
        attempt = None
        for name, cosines in candidates(program):
            attempt = Attempt(judge(cosines), name, 0)
            if attempt.certified.certificate.certified:
                break
        return attempt


def candidates(program: ClassMeanProgram) -> Iterator[tuple[str, Array]]:
    """Candidates worth a certificate, cheapest first: name and group-form matrix."""
    if program.num_classes == 2 or program.sizes.size == 1:
        yield "closed form (simplex)", simplex(program)
        return
    if "linear" in program.gives:
        centre = analytic_centre(program.sizes, program.groups.proportions)
        if centre is not None:
            yield "closed form (analytic centre)", centre
    collapsed = total_collapse(program)
    if collapsed is not None:
        yield "closed form (total collapse)", collapsed


def total_collapse(program: ClassMeanProgram) -> Array | None:
    """Majority on one side, all others on the other, where that is not plainly wrong; None otherwise.

    Optimal iff Z = G' - Diag(nu) is positive semidefinite there, which the certificate decides. Needed already for its
    diagonal: each minority class must be pushed away by the majority more than by all other minorities. With negatives
    from all classes the majority then has half of the anchors.
    """
    anchor = program.sizes * program.rows.anchor_weight
    majority = int(np.argmax(program.groups.proportions))
    if program.sizes[majority] != 1:
        return None
    if "uniform-negatives" in program.gives and anchor[majority] < 0.5 * float(anchor.sum()):
        return None
    side = np.where(np.arange(anchor.size) == majority, 1.0, -1.0)
    cosines = side[:, None] * side[None, :]
    gradient = program.log_gradient(cosines)
    top = np.max(gradient)
    if not np.isfinite(top):
        return None
    force = program.rows.count * np.exp(gradient - top)
    nu = (force * cosines).sum(axis=1)
    return cosines if np.all(nu <= 0) else None


def analytic_centre(sizes: Sizes, proportions: Array) -> Array | None:
    r"""Group-form Gram matrix A with A lam = 0 and the largest determinant on the complement of lam.

    It is an optimum of the linear program of one negative without the positive in the denominator (k = 1, alpha = 0),
    sampled from all classes: F = (lam' A lam - 1)/tau is least where A lam = 0, and every way to close a polygon with
    sides lam_i is optimal when no side exceeds the sum of the others. Of this face the analytic centre treats equal
    classes equally and is a closed form up to one scalar y. With M = Diag(1/d) positive definite on the complement,

        A = Diag(d) - y (lam o d)(lam o d)',    y = 1 / sum_i lam_i^2 d_i,    y lam_i^2 d_i^2 - d_i + 1 = 0.

    Every d_i is the smaller root 2 / (1 + sqrt(1 - 4 lam_i^2 y)), or the largest class takes the other root; then y may
    be 0 or negative. None when max lam >= 1/2.
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
        roots = at(y)
        return float(np.sum(others * roots) - roots[largest]) / float(roots[largest])

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
