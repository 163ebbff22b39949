"""The one cascade: which solver is tried on which program, in which order, from which start. Certificates judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.linalg

from optgeom._numerics import Array
from optgeom.certificates import Certified
from optgeom.certificates.certificate import PRIMAL_SHIFT_LIMIT, RANK_EIGENVALUE
from optgeom.certificates.repair import repair
from optgeom.errors import SolverError
from optgeom.programs.gram_program import CertifiableProgram
from optgeom.solvers.augmented_lagrangian import AugmentedLagrangian
from optgeom.solvers.barrier import Barrier
from optgeom.solvers.base import Attempt, Judge, Solver, incompatible
from optgeom.solvers.closed_forms import ClosedForms
from optgeom.solvers.conic import Conic
from optgeom.solvers.cutting_planes import CuttingPlanes
from optgeom.solvers.interior_point import LinearLowRank
from optgeom.solvers.low_rank import LOOSE_STEPS, LowRank
from optgeom.solvers.newton import Newton
from optgeom.solvers.primal_dual import PrimalDual
from optgeom.solvers.row_scaled import RowScaled
from optgeom.solvers.separable import SeparableNewton

ROUNDING_GAP = 1e-12  # of 1 + |risk|, where only the backward error is left to improve
RARE = 1e-5  # backward error of very rare classes at such a gap, which no solver gets below

STAIRCASE = "low-rank staircase"
START_COLUMNS = 16
# The rank is often a fifth of n: columns to spare find it in far fewer steps than columns that are always just short of
# it.
GROWTH = 6
GOOD = 0.3  # of the tolerance, the gap at which the search ends
LOOSE = 1e-4
TIGHT = (1e-6, 1e-7, 1e-9, 1e-13)  # a certificate in between is cheap, and mostly enough
SMALL = 150  # samples up to which the primal-dual method is tried as soon as the first columns are all in use
SMALL_STEPS = 20
# Of the primal-dual method there. By then it has converged (8 to 15 steps), or the rank is below .4 n, where it rarely
# does; only nearly realizable weights take more (11 to 24), and their target is known by its positive eigenvalues
# (nearly all, else nearly none).
PROMPT_STEPS = 18
# Of groups of hundreds of samples, at temperatures where the first try diverges.
CAUTION, CAUTIOUS_STEPS = 5.0, 120
HIGH_RANK = 0.45  # share of n in columns, all in use, beyond which the primal-dual method is faster
SLOW_COLUMNS, SLOW = 12, 1e-3  # so it is where that many columns leave this stationarity: nearly realizable weights
ROUGH = 1e-4  # gap of the staircase above which the clipped target is the better start
LARGEST_APART = 500  # samples up to which groups are taken apart for the augmented Lagrangian

# Of sampling programs: their optimum is judged against the entropic bound, so a small gap costs little.
SAMPLING_GOOD, SAMPLING_TIGHT = 1e-3, (1e-7, 1e-9, 1e-13)


@dataclass(frozen=True)
class Progress:
    """Where the cascade stands: the program, the start that was given, and what has been tried."""

    program: CertifiableProgram
    start: Array
    attempts: tuple[Attempt, ...] = field(default=())

    @property
    def best(self) -> Attempt:
        """The certified attempt, else the best one, with the iterations of all attempts."""
        if not self.attempts:
            raise SolverError(
                "the solver diverged: no finite matrix was reached (check that the temperature and proportions are not "
                "extreme)"
            )
        best = min(self.attempts, key=lambda attempt: _order(attempt.certified))
        return replace(best, iterations=sum(attempt.iterations for attempt in self.attempts))


def _order(answer: Certified) -> tuple[bool, bool, float, float]:
    """Infeasible matrices last: far from the optimum their gap can still be small. Then by gap and backward error."""
    certificate = answer.certificate
    infeasible = not certificate.primal_shift <= PRIMAL_SHIFT_LIMIT
    gap = certificate.gap if math.isfinite(certificate.gap) else math.inf
    return not certificate.certified, infeasible, gap, certificate.backward_error or 0.0


def _given(progress: Progress) -> Sequence[Array]:
    return (progress.start,)


def _newton_answer(progress: Progress) -> Sequence[Array]:
    """The last answer of Newton's method, which may be far from feasible and still is near; else the given start."""
    answers = [attempt for attempt in progress.attempts if attempt.solver.startswith("newton")]
    return (answers[-1].certified.cosines if answers else progress.start,)


def _target_and_best(progress: Progress) -> Sequence[Array]:
    """The given start made feasible, and the best answer so far: the better of the two first."""
    best, target = progress.best.certified, repair(progress.start, progress.program.sizes).cosines
    return (target, best.cosines) if best.certificate.gap > ROUGH else (best.cosines, target)


def _better_of_both(progress: Progress) -> Sequence[Array]:
    return _target_and_best(progress)[:1]


def _always(progress: Progress) -> bool:
    return True


def _never(progress: Progress) -> bool:
    return False


def _all_forces(progress: Progress) -> bool:
    """Whether the rank-one dual can hold: a force between every two classes."""
    return bool(progress.program.forces().all())  # type: ignore[attr-defined]


def _sparse(progress: Progress) -> bool:
    return not _all_forces(progress)


def _unsettled(progress: Progress) -> bool:
    """Whether the last answer is more than the floor of rare classes away from the optimum."""
    if not progress.attempts or not progress.attempts[-1].solver.startswith("newton"):
        return True
    certificate = progress.attempts[-1].certified.certificate
    optimal = certificate.primal_shift <= PRIMAL_SHIFT_LIMIT and certificate.gap <= ROUNDING_GAP * certificate.scale
    return not (optimal and (certificate.backward_error or 0.0) < RARE)


def _few_positive_eigenvalues(progress: Progress) -> bool:
    count = np.count_nonzero(scipy.linalg.eigvalsh(progress.start) > RANK_EIGENVALUE)
    return bool(count < progress.start.shape[0] / 2)


@dataclass(frozen=True)
class Step:
    """One solver of the cascade: from which matrices it starts, and on which condition it is tried at all."""

    solver: Solver
    starts: Callable[[Progress], Sequence[Array]] = _given
    when: Callable[[Progress], bool] = _always


def class_mean_steps() -> tuple[Step, ...]:
    """Closed forms, Newton's method on the rank-one dual, then the low-rank method; the conic one by name only.

    Where some pairs of classes exert no force on each other, the last try is in units of each class's own force.
    """
    return (
        Step(ClosedForms()),
        Step(Newton(), when=_all_forces),
        Step(SeparableNewton(), when=_all_forces),
        Step(LinearLowRank(), when=_unsettled),
        Step(LowRank(), _newton_answer, when=_unsettled),
        Step(RowScaled(), when=_sparse),
        Step(Conic(), when=_never),
    )


def kinked_steps() -> tuple[Step, ...]:
    """Losses with kinks: closed forms, then cutting planes; methods for smooth losses where these end short of it."""
    return (Step(ClosedForms()), Step(CuttingPlanes()), Step(LowRank()), Step(Conic(), when=_never))


def weighted_steps(program: CertifiableProgram, tolerance: float) -> tuple[Step, ...]:
    """Weighted programs: a low-rank staircase, and where the rank is a large part of n the primal-dual method.

    The staircase makes one round for groups, which are few while classes need nearly a dimension each; for samples
    apart it is given up where the primal-dual method is faster, and on few samples that gets some steps only. Where
    both fail: the staircase to its end, the primal-dual method again (for groups with small steps), the barrier method
    where groups are few, and the augmented Lagrangian.
    """
    n, good = int(program.sizes.sum()), GOOD * tolerance
    primal_dual = Step(PrimalDual(good_gap=good), _target_and_best)
    last = (
        Step(Barrier(good_gap=good), _better_of_both),
        Step(AugmentedLagrangian(good_gap=good), _target_and_best),
    )
    if np.any(program.sizes > 1):
        return (
            Step(LowRank(title=STAIRCASE, once=True, tight=TIGHT[-1:])),
            primal_dual,
            Step(LowRank(title=STAIRCASE)),
            Step(PrimalDual(good_gap=good, most=CAUTIOUS_STEPS, caution=CAUTION), _target_and_best),
            *(last if n <= LARGEST_APART else last[:1]),
        )

    def give_up(columns: int, stationarity: float) -> bool:
        return n <= SMALL or columns > HIGH_RANK * n or (columns >= SLOW_COLUMNS and stationarity > SLOW)

    staircase = LowRank(
        title=STAIRCASE,
        most_columns=START_COLUMNS,
        good_gap=good,
        extra=START_COLUMNS,
        growth=GROWTH,
        tight=TIGHT,
        loose=LOOSE,
    )
    first = Step(replace(staircase, give_up=give_up, loose_steps=SMALL_STEPS if n <= SMALL else LOOSE_STEPS))
    if n > SMALL:
        return (first, primal_dual, Step(staircase), *last)
    prompt = Step(PrimalDual(good_gap=good, most=PROMPT_STEPS), _better_of_both, _few_positive_eigenvalues)
    eager = replace(primal_dual, when=lambda progress: not _few_positive_eigenvalues(progress))
    patient = replace(primal_dual, when=_few_positive_eigenvalues)
    return (first, prompt, eager, Step(staircase), patient, *last)


def sampling_steps(tolerance: float) -> tuple[Step, ...]:
    """Sampling programs without a symmetry that their own room uses: the staircase."""
    return (
        Step(
            LowRank(
                title=STAIRCASE,
                good_gap=SAMPLING_GOOD * tolerance,
                extra=START_COLUMNS,
                growth=GROWTH,
                tight=SAMPLING_TIGHT,
            )
        ),
    )


def steps_of(program: CertifiableProgram, tolerance: float) -> tuple[Step, ...]:
    """The cascade of a program, by what it says of itself."""
    if program.dual == "gradient":
        return class_mean_steps()
    if program.dual == "cuts":
        return kinked_steps()
    return weighted_steps(program, tolerance) if "row-softmax" in program.gives else sampling_steps(tolerance)


def drive(
    program: CertifiableProgram, start: Array, judge: Judge, solver: str = "auto", *, tolerance: float = 1e-8
) -> Attempt:
    """Try solvers in turn until the judge certifies an answer; else the best that was reached.

    Parameters
    ----------
    program : CertifiableProgram
        For class means with coincident groups the merged program.
    start : (G, G)
        Group-form matrix, feasible or not: the simplex, or the clipped target.
    judge : callable
        Group-form matrix -> `Certified`, by the certificate of the program that the answer is for.
    solver : str
        "auto", or the name of a solver, which is then tried whether it seems to fit or not.
    tolerance : float
        Relative gap that the judge asks for.

    Returns
    -------
    Attempt
        Certified or not, with the iterations of all solvers that were tried.

    Raises
    ------
    IncompatibleError
        The chosen solver needs what the program does not give.
    SolverError
        Nothing finite was reached.
    """
    chosen = steps_of(program, tolerance)
    if solver != "auto":
        chosen = tuple(replace(step, when=_always) for step in chosen if step.solver.name == solver)
    fitting = [step for step in chosen if step.solver.needs <= program.gives]
    if not fitting:
        raise incompatible([step.solver for step in chosen], program, LowRank.name)
    progress = Progress(program, start)
    for step in fitting:
        if not step.when(progress):
            continue
        for matrix in step.starts(progress):
            attempt = step.solver.solve(program, matrix, judge)
            if attempt is None:
                continue
            progress = replace(progress, attempts=(*progress.attempts, attempt))
            if attempt.certified.certificate.certified:
                return progress.best
    return progress.best
