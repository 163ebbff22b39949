r"""Where along a path of problems the optimal geometry first loses rank.

While the optimum has rank C - 1, the Newton solution of the rank-one dual is positive definite on the complement of its
kernel z (A z = 0); the path leaves this regime where the smallest eigenvalue there, the second-smallest of all, crosses
zero. The Newton solution continues beyond that point (as a matrix that is no longer positive semidefinite), so the
crossing is a root of a continuous function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from optgeom import _checks
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.newton import solve_by_homotopy, solve_newton
from optgeom.solvers.separable import solve_separable

Problems = Callable[[float], tuple[ClassDistribution, Loss]]


@dataclass(frozen=True)
class RankLoss:
    """The first point of a path at which the optimum has rank below C - 1.

    Attributes
    ----------
    value : float or None
        Parameter of the path; None when the rank is C - 1 all the way.
    num_classes : int
        C at that point (at the end of the path when there is none).
    """

    value: float | None
    num_classes: int


def second_smallest_eigenvalue(classes: ClassDistribution, loss: Loss) -> float:
    """Smallest eigenvalue of the Newton solution A on the complement of its kernel z; NaN where Newton has none.

    Positive iff the optimum has rank C - 1. Classes that coincide whatever the parameters (singletons of the full
    batch) make it 0.

    Raises
    ------
    IncompatibleError
        A loss that is neither a log-sum loss nor separable.
    """
    whole = ClassMeanProgram.build(classes, loss)
    program = whole.merged()
    if program.num_classes < whole.num_classes:
        return 0.0
    if "majorizer" in program.gives:
        newton = solve_newton(program)
        if not newton.converged:
            newton = solve_by_homotopy(program)
    elif "pair-slopes" in program.gives:
        newton = solve_separable(program)
    else:
        needs = "`loss` must be a log-sum loss or separable to follow its rank"
        raise IncompatibleError(f"{needs}; this one has no Newton solution (compare `rank` of `solve` along the path)")
    if not newton.converged:
        return float("nan")
    ones = np.ones(program.sizes.size)
    block = group_matrix.symmetric_block(newton.cosines, ones, program.sizes)
    kernel = np.sqrt(program.sizes) * np.exp(newton.log_dual - newton.log_dual.max())
    kernel /= np.linalg.norm(kernel)
    # The kernel is moved out of the way: its eigenvalue becomes C, which none exceeds.
    lowest = float(
        scipy.linalg.eigvalsh(block + program.num_classes * np.outer(kernel, kernel), subset_by_index=[0, 0])[0]
    )
    rest = group_matrix.complement(newton.cosines, ones, program.sizes)[program.sizes > 1]
    return float(min([lowest, *rest.tolist()]))


def first_rank_loss(path: Problems, start: float, stop: float, *, steps: int = 24) -> RankLoss:
    """First parameter between `start` and `stop` at which the optimum has rank below C - 1.

    Parameters
    ----------
    path : callable
        Parameter -> (classes, loss), as `lambda q: (classes.resample(q), loss)`.
    start, stop : float
        The walk goes from start, where the rank should be C - 1, to stop; either may be the larger.
    steps : int
        Points looked at before the crossing is refined; two crossings between neighbouring points would go unseen.

    Raises
    ------
    InvalidInputError
        The rank is below C - 1 at `start` already.
    IncompatibleError
        A loss without a Newton solution.
    """
    from scipy.optimize import brentq

    _checks.integer("steps", steps, at_least=1)

    def eigenvalue(value: float) -> float:
        return second_smallest_eigenvalue(*path(value))

    before, value_before = start, eigenvalue(start)
    if not value_before > 0:
        raise InvalidInputError(
            f"`start` must be where the rank is still C - 1; at {start:g} it is lower (walk the other way)"
        )
    for after in np.linspace(start, stop, steps + 1)[1:]:
        here = eigenvalue(float(after))
        if np.isnan(here):
            # Newton does not converge some way behind the boundary: walk back until it does.
            here, after = _last_solved(eigenvalue, before, float(after))
        if here <= 0:
            crossing = brentq(eigenvalue, before, float(after), xtol=1e-13 * max(1.0, abs(stop)), rtol=1e-13)
            return RankLoss(float(crossing), _number_of_classes(path, after))
        before = float(after)
    return RankLoss(None, _number_of_classes(path, stop))


def _number_of_classes(path: Problems, value: float) -> int:
    return path(float(value))[0].num_classes


def _last_solved(eigenvalue: Callable[[float], float], known: float, lost: float) -> tuple[float, float]:
    for _ in range(60):
        middle = (known + lost) / 2
        here = eigenvalue(middle)
        if np.isnan(here):
            lost = middle
        elif here > 0:
            known = middle
        else:
            return here, middle
    raise InvalidInputError(
        f"the Newton solution ends near {known:g} before the rank is lost; follow the path with `solve` instead"
    )
