"""The certificate: how wrong an answer can be, from problem data and the matrix alone, whatever produced it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.certificates import dual, uniqueness
from optgeom.certificates.repair import repair
from optgeom.programs.class_mean import ClassMeanProgram

PRIMAL_SHIFT_LIMIT = 1e-9
BACKWARD_ERROR_LIMIT = 1e-8
RANK_EIGENVALUE = 1e-7  # eigenvalues of a Gram matrix (mean 1) above this count as rank


@dataclass(frozen=True)
class Certificate:
    """What has been proved about a geometry.

    Attributes
    ----------
    certified : bool
        primal_shift <= 1e-9, gap <= tolerance (1 + |risk|), and backward_error <= 1e-8 (or the limit asked for).
    gap : float
        The risk exceeds the optimum by at most this much (duality gap, rigorous for any matrix, rounding of eigenvalues
        included).
    lower_bound : float
        risk - gap.
    primal_shift : float
        Largest change of a cosine when the solver's matrix was made exactly feasible.
    backward_error : float
        Largest relative change of a gradient entry that would make the geometry exactly optimal; inf when there is
        none. It keeps its meaning where the objective is so flat that the gap proves nothing about the cosines.
    tolerance : float
        The relative gap asked for.
    unique : bool
        Whether no other Gram matrix attains the optimum; False also where this could not be decided.
    """

    certified: bool
    gap: float
    lower_bound: float
    primal_shift: float
    backward_error: float
    tolerance: float
    unique: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}

    def failure(self, risk: float, backward_limit: float = BACKWARD_ERROR_LIMIT) -> str:
        """One line naming the first criterion that fails, empty when certified."""
        if not self.primal_shift <= PRIMAL_SHIFT_LIMIT:
            return f"the matrix had to be moved by {self.primal_shift:.1e} to become feasible (limit {PRIMAL_SHIFT_LIMIT:.0e})"
        if not self.gap <= self.tolerance * (1 + abs(risk)):
            return f"the duality gap is {self.gap:.1e} (limit {self.tolerance * (1 + abs(risk)):.1e})"
        if not self.backward_error <= backward_limit:
            return f"the backward error is {self.backward_error:.1e} (limit {backward_limit:.0e})"
        return ""


@dataclass(frozen=True)
class Certified:
    """A repaired matrix in group form with everything that was proved about it."""

    cosines: Array
    risk: float
    rank: int
    eigenvalues: Array
    certificate: Certificate


def certify(
    program: ClassMeanProgram, cosines: Array, tolerance: float = 1e-8, backward_tolerance: float = BACKWARD_ERROR_LIMIT
) -> Certified:
    """Repair a (G, G) group-form matrix, then bound its distance from the optimum.

    Raises
    ------
    InvalidInputError
        If `tolerance` is not positive.
    """
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-8")
    repaired = repair(cosines, program.sizes)
    risk = program.risk(repaired.cosines)
    found = dual.check(program, repaired.cosines, risk)
    rest = 1.0 - repaired.cosines.diagonal()
    rank = int((repaired.eigenvalues > RANK_EIGENVALUE).sum() + ((program.sizes - 1) * (rest > RANK_EIGENVALUE)).sum())
    holds = (
        repaired.shift <= PRIMAL_SHIFT_LIMIT
        and math.isfinite(risk)
        and found.gap <= tolerance * (1 + abs(risk))
        and found.backward_error <= backward_tolerance
    )
    unique = holds and uniqueness.is_unique(program, repaired.cosines)
    certificate = Certificate(
        holds, found.gap, risk - found.gap, repaired.shift, found.backward_error, tolerance, unique
    )
    return Certified(repaired.cosines, risk, rank, repaired.eigenvalues, certificate)
