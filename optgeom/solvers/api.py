"""solve: from class proportions and a loss to the certified geometry; certify_gram: the certificate of any matrix."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optgeom import _checks, choices
from optgeom._numerics import Array
from optgeom.certificates import Certificate, Certified, certify, decide
from optgeom.certificates.certificate import BACKWARD_ERROR_LIMIT
from optgeom.certificates.few_dimensions import least_risk, refusal
from optgeom.errors import IncompatibleError, InvalidInputError, NotCertifiedError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.result import SolverRun
from optgeom.solvers.drive import drive
from optgeom.solvers.limited import best_class_means
from optgeom.solvers.newton import simplex

LIMITED = "low-rank, dimension limited"
UNCLEAR = 1e-3  # a backward error above this is no matter of rounding
PROBES = 6


def solve(
    classes: ClassDistribution,
    loss: Loss,
    *,
    dim: int | None = None,
    solver: str = "auto",
    tolerance: float = 1e-8,
    backward_tolerance: float = BACKWARD_ERROR_LIMIT,
    grouped: bool = True,
) -> Geometry:
    r"""Optimal class-mean geometry, with a certificate.

        minimise  F(A) = sum_i lam_i E[ psi( (A_ij - 1)/tau, ... ) ]     over the Gram matrices A of unit class means.

    Parameters
    ----------
    classes : ClassDistribution
        Proportions lam of C >= 2 classes.
    loss : Loss
        `InfoNCE`, `SupCon`, `SupConFullBatch`, or your own `GeneralizedContrastive`.
    dim : int, optional
        Embedding dimension. Below the rank of the optimum the answer is a `bracket`, marked as not certified.
    solver : {"auto", "newton", "low-rank", "cutting-planes", "conic"}
        "auto" tries closed forms, Newton on the rank-one dual, its homotopy, then the low-rank method; for a psi with
        kinks cutting planes, whose master programs CVXPY and Clarabel solve. "conic" (CVXPY
        and Clarabel) is the reference for small problems and rarely accurate enough to be certified.
    tolerance : float
        Relative duality gap: gap <= tolerance (1 + |risk|).
    backward_tolerance : float
        Limit of the backward error (dimensionless), 1e-8 by default; 1e-6 for very rare classes.
    grouped : bool
        Treat exactly equal classes as one group (the same answer, much cheaper).

    Returns
    -------
    Geometry

    Raises
    ------
    InvalidInputError
        A parameter outside its domain, or a loss that is undefined for these classes.
    IncompatibleError
        A solver that needs what the loss does not offer.
    NotCertifiedError
        The best geometry found fails its certificate; it is carried by the error.

    References
    ----------
    Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291 (the program, theorem 3 on equal classes).
    """
    began = time.perf_counter()
    classes = _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    loss = _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    _checks.choice("solver", solver, choices.Solver)
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-8")
    _checks.real("backward_tolerance", backward_tolerance, above=0.0, hint="the default is 1e-8")
    if dim is not None:
        dim = _checks.integer("dim", dim, at_least=1)
    program = ClassMeanProgram.build(classes, loss, grouped)
    free = program.free_classes()
    if free.size:
        raise InvalidInputError(
            f"`loss` must let every class meet another one; class {classes.names[free[0]]} never does, so every "
            f"direction is optimal for it ({free.size} such classes: drop them, or give them negatives)"
        )

    def judge(cosines: Array) -> Certified:
        lifted = _lifted(program, cosines)
        return certify(program, lifted, tolerance=tolerance, backward_tolerance=backward_tolerance)

    reduced = program.merged()
    attempt = drive(reduced, simplex(reduced), judge, solver, tolerance=tolerance)
    best = attempt.certified
    run = SolverRun(attempt.solver, attempt.iterations, time.perf_counter() - began)
    geometry = Geometry(
        classes=classes,
        index=program.groups.index,
        group_sizes=program.sizes,
        group_cosines=best.cosines,
        risk=best.risk,
        certificate=best.certificate,
        loss=loss,
        solver=run,
        dim=dim,
    )
    if not best.certificate.certified:
        why = best.certificate.reason + _limit_of_rounding(judge, best, backward_tolerance)
        raise NotCertifiedError(f"the geometry found by {attempt.solver} is not certified: {why}", geometry)
    if dim is not None and dim < best.certificate.rank:
        return _limited(geometry, classes, loss, dim, began)
    return geometry


def _limit_of_rounding(judge: Callable[[Array], Certified], best: Certified, limit: float) -> str:
    """Words for the case that no cosines of double precision are exact enough: the last digit decides.

    Where forces differ by dozens of orders of magnitude the weakest are those of directions that the strongest fix to
    rounding only.
    """
    certificate = best.certificate
    error = certificate.backward_error
    if error is None or not limit < error < UNCLEAR or certificate.gap > certificate.tolerance * certificate.scale:
        return ""
    errors = []
    for seed in range(PROBES):
        signs = np.triu(np.random.default_rng(seed).choice([-1.0, 1.0], size=best.cosines.shape), 1)
        moved = best.cosines + (signs + signs.T) * np.spacing(np.abs(best.cosines))
        probed = judge(moved).certificate.backward_error
        errors.append(math.inf if probed is None else probed)
    if min(errors) <= limit:
        return ""
    return (
        f"; changing its cosines in the last digit makes it {min(errors):.1e} to {max(errors):.1e}, so that double "
        "precision cannot do better (accept it with backward_tolerance=1e-6, knowingly)"
    )


def _lifted(program: ClassMeanProgram, cosines: Array) -> Array:
    """From the program with merged groups back to the original: merged classes coincide."""
    full = cosines.copy()
    full[program.coincident, program.coincident] = 1.0
    return full


def _limited(relaxed: Geometry, classes: ClassDistribution, loss: Loss, dim: int, began: float) -> Geometry:
    """Bracket for a dimension below the rank of the certified optimum."""
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    # Singletons of a full batch coincide here too: the risk is concave in how they are spread over the sphere.
    first = np.unique(program.groups.index, return_index=True)[1]
    limited, risk, steps = best_class_means(program.merged(), relaxed.gram[np.ix_(first, first)], dim)
    cosines = _lifted(program, limited)
    if risk - relaxed.certificate.lower_bound <= relaxed.certificate.tolerance * (1 + abs(risk)):
        # The ends meet: this is an optimum that needs no more dimensions (the optimum was not unique).
        met = certify(program, cosines, tolerance=relaxed.certificate.tolerance)
        if met.certificate.certified:
            run = SolverRun(LIMITED, steps, time.perf_counter() - began)
            return replace(
                relaxed,
                index=program.groups.index,
                group_sizes=program.sizes,
                group_cosines=met.cosines,
                risk=met.risk,
                certificate=met.certificate,
                solver=run,
            )
    lower = float(min(risk, max(relaxed.certificate.lower_bound, least_risk(classes, loss, dim))))
    rank = min(dim, int(np.linalg.matrix_rank(cosines, tol=1e-7, hermitian=True)))
    certificate = decide(
        risk=risk,
        gap=risk - lower,
        lower_bound=lower,
        primal_shift=0.0,
        backward_error=math.inf,
        tolerance=relaxed.certificate.tolerance,
        rank=rank,
        refusal=refusal(dim, relaxed.rank, risk - lower),
    )
    return replace(
        relaxed,
        index=program.groups.index,
        group_sizes=program.sizes,
        group_cosines=cosines,
        risk=risk,
        certificate=certificate,
        solver=SolverRun(LIMITED, steps, time.perf_counter() - began),
        dim=dim,
        bracket=(lower, risk),
        relaxed=relaxed,
    )


def certify_gram(
    gram: Array,
    classes: ClassDistribution,
    loss: Loss,
    *,
    tolerance: float = 1e-8,
    backward_tolerance: float = BACKWARD_ERROR_LIMIT,
) -> Certificate:
    """Certificate of any (C, C) Gram matrix, in class order: is it the optimum for these classes and this loss?

    The diagonal is brought to 1 and the matrix made symmetric first; how far that and the clipping to positive
    semidefinite moved an entry is `primal_shift`.

    Parameters
    ----------
    gram : (C, C)
        Inner products of class means.
    classes : ClassDistribution
        C classes, in the order of the rows.
    loss : Loss
    tolerance : float
        > 0: largest duality gap relative to 1 + |risk|.
    backward_tolerance : float
        > 0: largest relative change of a gradient entry that makes the dual exactly feasible.

    Returns
    -------
    Certificate

    Raises
    ------
    InvalidInputError
        A matrix that is not (C, C), not finite, or has a diagonal entry that is not positive; a tolerance that is not
        positive.
    IncompatibleError
        The full batch with several classes of a single row, which cannot be judged entry by entry.
    """
    given = np.array(gram, dtype=np.float64)
    if given.shape != (classes.num_classes, classes.num_classes):
        shape = (classes.num_classes, classes.num_classes)
        raise InvalidInputError(
            f"`gram` must have shape (C, C) = {shape} in class order; got {given.shape} (one row a class)"
        )
    if not np.all(np.isfinite(given)):
        row, column = np.argwhere(~np.isfinite(given))[0]
        came = f"{given[row, column]} in row {row}, column {column}"
        raise InvalidInputError(f"`gram` must be finite; got {came} (leave out classes without a mean)")
    diagonal = np.diag(given)
    if diagonal.min() <= 0:
        came = f"{diagonal.min()} in row {int(diagonal.argmin())}"
        raise InvalidInputError(f"`gram` must have a positive diagonal; got {came} (it holds squared lengths)")
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    if program.sizes.max() > 1:
        raise IncompatibleError(
            "`gram` of a full batch with several singleton classes cannot be certified entry by entry; use solve"
        )
    unit = (given + given.T) / (2 * np.sqrt(diagonal[:, None] * diagonal[None, :]))
    moved = float(np.max(np.abs(unit - given)))
    certified = certify(program, unit, tolerance=tolerance, backward_tolerance=backward_tolerance, moved=moved)
    return certified.certificate
