"""How much of the loss is about the differences between angles.

At low temperatures hardly any, and training hardly follows it.
"""

from __future__ import annotations

import numpy as np

from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.newton import simplex

FLAT = 0.01  # of the way from collapsed to optimal


def flat_share(program: ClassMeanProgram, optimal: float) -> float | None:
    """Share of the way from collapsed to optimal that lies between the balanced simplex and the optimum, where it is
    below 1 %.

    (F(simplex) - F*) / (F(collapsed) - F*); None where it is larger, and where the simplex is the optimum up to
    rounding.

    Parameters
    ----------
    program : ClassMeanProgram
    optimal : float
        F*, the risk at the optimum.
    """
    collapsed = program.risk(np.ones_like(program.rows.count))
    behind = program.risk(simplex(program)) - optimal
    return behind / (collapsed - optimal) if 1e-12 < behind < FLAT * (collapsed - optimal) else None
