"""The certificate: how wrong an answer can be, from problem data and the matrix alone, whatever produced it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from optgeom import _checks
from optgeom._numerics import Array, Square
from optgeom.certificates import cuts, dual, entropy_dual, uniqueness
from optgeom.certificates.dual import DualCheck
from optgeom.certificates.repair import repair
from optgeom.formatting import to_json
from optgeom.programs.gram_program import CertifiableProgram

PRIMAL_SHIFT_LIMIT = 1e-9  # or four times the rounding of a feasibility test, where that is more (`Repaired.rounding`)
BACKWARD_ERROR_LIMIT = 1e-8
GAP_TOLERANCE = 1e-8
RANK_EIGENVALUE = 1e-7  # eigenvalues of a Gram matrix (mean 1) above this count as rank

DUALS: dict[str, Callable[[Any, Array, float], DualCheck]] = {
    "gradient": dual.check,
    "cuts": cuts.check,
    "linear": dual.check_linear,
    "entropy": entropy_dual.check,
    "entropy-with-anchors": entropy_dual.check_with_anchors,
}
# Proofs of uniqueness from the dual, where there is one.
UNIQUENESS: dict[str, Callable[[Any, Array], bool]] = {"gradient": uniqueness.is_unique}


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What has been proved about an answer. `decide` makes it; nothing else compares figures with limits.

    Attributes
    ----------
    certified : bool
        primal_shift, gap and backward_error are within their limits.
    gap : float
        The risk exceeds the optimum by at most this much (duality gap, for any matrix, rounding of eigenvalues
        included).
    lower_bound : float
        risk - gap.
    primal_shift : float
        Largest change of a cosine when the solver's matrix was made exactly feasible; limit 1e-9, for thousands of
        points four times the rounding of the feasibility test.
    backward_error : float or None
        Largest relative change of a gradient entry that would make the answer exactly optimal, limit 1e-8 unless asked
        for otherwise; inf when no change does. It keeps its meaning where the objective is so flat that the gap proves
        nothing about the cosines. None for programs whose dual does not measure it.
    tolerance : float
        The relative gap asked for: gap <= tolerance * scale.
    scale : float
        1 + |risk|; |risk| for losses so small that only their logarithm means something.
    unique : bool
        Whether no other Gram matrix attains the optimum; False also where this could not be decided.
    rank : int
        Dimension of the Gram matrix: its eigenvalues above 1e-7, where their mean is 1.
    rigorous : bool
        Whether the figures hold to the last rounding, by interval arithmetic.
    enclosure : (float, float) or None
        Interval proved to hold the optimum, where `rigorous`.
    reason : str
        Empty when certified; otherwise the first criterion that fails, with its figure and its limit.
    """

    certified: bool
    gap: float
    lower_bound: float
    primal_shift: float
    backward_error: float | None
    tolerance: float
    scale: float
    unique: bool
    rank: int
    rigorous: bool = False
    enclosure: tuple[float, float] | None = None
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: the same keys for every program, null where a number is not finite."""
        return {field.name: to_json(getattr(self, field.name)) for field in fields(self)}


def decide(
    *,
    risk: float,
    gap: float,
    primal_shift: float,
    rank: int,
    lower_bound: float | None = None,
    backward_error: float | None = None,
    tolerance: float = GAP_TOLERANCE,
    backward_tolerance: float = BACKWARD_ERROR_LIMIT,
    shift_limit: float = PRIMAL_SHIFT_LIMIT,
    scale: float | None = None,
    unique: bool = False,
    rigorous: bool = False,
    enclosure: tuple[float, float] | None = None,
    refusal: str = "",
) -> Certificate:
    """Certificate from its figures: the one place where figures meet limits.

    Parameters
    ----------
    risk, gap, primal_shift, rank, backward_error, tolerance, unique, rigorous, enclosure
        See `Certificate`; `unique` counts only where the answer is certified.
    lower_bound : float, optional
        risk - gap unless it is known without the rounding of this difference.
    backward_tolerance, shift_limit : float
        Limits of `backward_error` and `primal_shift`.
    scale : float, optional
        1 + |risk| by default.
    refusal : str
        Why this answer is not certified whatever its figures, for example "unverified: ...".
    """
    scale = 1 + abs(risk) if scale is None else scale
    criteria = (
        (
            primal_shift <= shift_limit,
            f"the matrix had to be moved by {primal_shift:.1e} to become feasible (limit {shift_limit:.0e})",
        ),
        (math.isfinite(risk), f"the risk is {risk}"),
        (gap <= tolerance * scale, f"the duality gap is {gap:.1e} (limit {tolerance * scale:.1e})"),
        (
            backward_error is None or backward_error <= backward_tolerance,
            f"the backward error is {backward_error or 0.0:.1e} (limit {backward_tolerance:.0e})",
        ),
    )
    reason = refusal or next((failure for holds, failure in criteria if not holds), "")
    return Certificate(
        certified=not reason,
        gap=gap,
        lower_bound=risk - gap if lower_bound is None else lower_bound,
        primal_shift=primal_shift,
        backward_error=backward_error,
        tolerance=tolerance,
        scale=scale,
        unique=unique and not reason,
        rank=rank,
        rigorous=rigorous,
        enclosure=enclosure,
        reason=reason,
    )


@dataclass(frozen=True)
class Certified:
    """A repaired matrix in group form with everything that was proved about it.

    Attributes
    ----------
    cosines : (G, G)
        Feasible Gram matrix.
    risk : float
    eigenvalues : (G,)
        Of the matrix as given, on the span of the group indicators, ascending.
    certificate : Certificate
    """

    cosines: Array
    risk: float
    eigenvalues: Array
    certificate: Certificate


def certify(
    program: CertifiableProgram,
    cosines: Square,
    *,
    tolerance: float = GAP_TOLERANCE,
    backward_tolerance: float = BACKWARD_ERROR_LIMIT,
    moved: float = 0.0,
) -> Certified:
    """Repair a (G, G) group-form matrix, then bound its distance from the optimum.

    The bound comes from the dual that the program names, or from a lower bound that the program knows where that is the
    better one.

    Parameters
    ----------
    program : CertifiableProgram
        A class-mean, weighted or sampling program.
    cosines : (G, G)
        Symmetric matrix in group form, feasible or not.
    tolerance : float
        > 0: largest gap relative to the scale of the risk.
    backward_tolerance : float
        > 0: largest backward error, where the dual measures one.
    moved : float
        By how much an entry of the matrix was already changed before it came here; it counts as primal shift.

    Raises
    ------
    InvalidInputError
        If a tolerance is not positive.
    """
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-8")
    _checks.real("backward_tolerance", backward_tolerance, above=0.0, hint="the default is 1e-8")
    repaired = repair(cosines, program.sizes)
    risk = program.risk(repaired.cosines)
    bound = DUALS[program.dual](program, repaired.cosines, risk)
    # Where a bound is nearly attained, the distance from it is computed without the difference of two large numbers.
    known = program.known_gap(repaired.cosines)
    gap = bound.gap if known is None else min(bound.gap, known)
    rest = 1.0 - repaired.cosines.diagonal()
    rank = int((repaired.eigenvalues > RANK_EIGENVALUE).sum() + ((program.sizes - 1) * (rest > RANK_EIGENVALUE)).sum())
    certificate = decide(
        risk=risk,
        gap=gap,
        primal_shift=repaired.shift + moved,
        rank=rank,
        backward_error=bound.backward_error,
        tolerance=tolerance,
        backward_tolerance=backward_tolerance,
        shift_limit=max(PRIMAL_SHIFT_LIMIT, 4 * repaired.rounding),
        scale=abs(risk) if "log-domain" in program.gives else 1 + abs(risk),
    )
    if certificate.certified and program.dual in UNIQUENESS:
        certificate = replace(certificate, unique=UNIQUENESS[program.dual](program, repaired.cosines))
    return Certified(repaired.cosines, risk, repaired.eigenvalues, certificate)
