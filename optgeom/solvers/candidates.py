"""Geometries that are known in closed form, each to be certified like any other answer before it is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from optgeom._numerics import Array
from optgeom.certificates import Certified
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.linear import analytic_centre
from optgeom.solvers.newton import simplex

Judge = Callable[[Array], Certified]


def closed_forms(program: ClassMeanProgram) -> Iterator[tuple[str, Array]]:
    """Candidates worth a certificate, cheapest first: name and group-form matrix."""
    if program.num_classes == 2 or program.sizes.size == 1:
        yield "closed form (simplex)", simplex(program)
        return
    if program.rows.is_linear:
        centre = analytic_centre(program.sizes, program.groups.proportions)
        if centre is not None:
            yield "closed form (analytic centre)", centre
    collapsed = total_collapse(program)
    if collapsed is not None:
        yield "closed form (total collapse)", collapsed


def total_collapse(program: ClassMeanProgram) -> Array | None:
    """Majority on one side, all others on the other, where that is not plainly wrong; None otherwise.

    Optimal iff Z = G' - Diag(nu) is positive semidefinite there, which the certificate decides. Needed already for its
    diagonal: each minority class must be pushed away by the majority more than by all other minorities.
    """
    anchor = program.sizes * program.rows.anchor_weight
    majority = int(np.argmax(anchor))
    if program.sizes[majority] != 1 or anchor[majority] < 0.5 * float(anchor.sum()):
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


def newton_applies(program: ClassMeanProgram) -> bool:
    """Whether the rank-one dual can hold: strictly convex rows, and a force between every two classes."""
    if not (program.rows.has_majorizer or program.rows.is_separable):
        return False
    return bool(program.forces().all())
