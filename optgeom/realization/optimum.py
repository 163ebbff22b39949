"""The true optimum of weighted InfoNCE on the sphere, where the entropic bound is out of reach.

Solver chosen, certificate believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from optgeom._numerics import Array
from optgeom.certificates import Certificate, Certified, certify
from optgeom.certificates.certificate import RANK_EIGENVALUE
from optgeom.certificates.repair import repair
from optgeom.programs import group_matrix
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization import spherical
from optgeom.realization.weights import Weights
from optgeom.solvers.augmented_lagrangian import solve_augmented_lagrangian
from optgeom.solvers.barrier import solve_barrier
from optgeom.solvers.low_rank import LOOSE_STEPS, LowRankResult, solve_low_rank
from optgeom.solvers.primal_dual import solve_primal_dual

START_COLUMNS = 16
STAIRCASE, PRIMAL_DUAL, AUGMENTED_LAGRANGIAN = "low-rank staircase", "primal-dual Newton", "augmented Lagrangian"
BARRIER = "barrier method"
SMALL = 150  # samples up to which the primal-dual method is tried as soon as the first columns are all in use
SMALL_STEPS = 20
# Of the primal-dual method there. By then it has converged (8 to 15 steps), or the rank is below .4 n, where it rarely
# does; only nearly realizable weights take more (11 to 24), and their target is known by its positive eigenvalues
# (nearly all, else nearly none).
PROMPT_STEPS = 18
LARGEST_APART = 500  # samples up to which groups are taken apart for the augmented Lagrangian
ANY = 1e9  # gap that ends the staircase after its first round
# Of groups of hundreds of samples, at temperatures where the first try diverges.
CAUTION, CAUTIOUS_STEPS = 5.0, 120
HIGH_RANK = 0.45  # share of n in columns, all in use, beyond which the primal-dual method is faster
SLOW_COLUMNS, SLOW = 12, 1e-3  # so does it where that many columns leave this stationarity: nearly realizable weights
# The rank is often a fifth of n: columns to spare find it in far fewer steps than columns that are always just short of
# it.
GROWTH = 6
GOOD = 0.3  # of the tolerance, the gap at which the search ends
LOOSE = 1e-4
ROUGH = 1e-4  # gap of the staircase above which the clipped target is the better start
TIGHT = (1e-6, 1e-7, 1e-9, 1e-13)  # a certificate in between is cheap, and mostly enough

MatrixSolver = Callable[[WeightedProgram, Array, Callable[[Array], Certified], float], tuple[Certified | None, int]]


@dataclass(frozen=True)
class Optimum:
    """Optimum over all dimensions.

    Attributes
    ----------
    cosines : (G, G)
        Group-form Gram matrix (see `Weights`).
    loss : float
    rank : int
        Dimension that it needs.
    certificate : Certificate
    solver : str
    iterations : int
    """

    cosines: Array
    loss: float
    rank: int
    certificate: Certificate
    solver: str
    iterations: int

    @staticmethod
    def of(found: Certified, solver: str, iterations: int) -> Optimum:
        """What a solver found."""
        return Optimum(found.cosines, found.risk, found.certificate.rank, found.certificate, solver, iterations)

    def or_better(self, found: Certified | None, iterations: int, solver: str) -> Optimum:
        """Choose the better of this and another solver's optimum; the iterations of both count."""
        total = self.iterations + iterations
        if found is None or found.certificate.gap >= self.certificate.gap:
            return replace(self, iterations=total)
        return Optimum.of(found, solver, total)


def program_of(weights: Weights, temperature: float) -> WeightedProgram:
    """The convex program of these weights."""
    return WeightedProgram(weights.sizes, weights.count, np.exp(weights.log_rows), weights.with_positive, temperature)


def start_cosines(weights: Weights, temperature: float) -> Array:
    """Group-form start.

    The target at its best constant, or for hard and asymmetric weights one with bounded logarithms.
    """
    if weights.symmetric and not weights.hard:
        return spherical.target_cosines(
            weights, temperature, spherical.feasible_shifts(weights, temperature).best_shift
        )
    logs = (weights.log_rows + weights.log_rows.T) / 2
    finite = np.isfinite(logs)
    top = logs[finite].max() if finite.any() else 0.0
    apart = -1.0 / max(1, weights.sizes.size - 1)
    bounded = np.where(finite, np.maximum(apart, 1.0 + temperature * (np.where(finite, logs, top) - top)), apart)
    bounded[np.diag_indices_from(bounded)] = np.where(weights.sizes > 1, np.diag(bounded), 1.0)
    return np.asarray(bounded)


def optimal_cosines(weights: Weights, temperature: float, tolerance: float = 1e-9) -> Optimum:
    """Minimise the loss over all Gram matrices.

    A low-rank staircase first (one round of it for groups); where the rank turns out to be a large part of n, the
    primal-dual method (on few samples for some steps only); where that fails, the staircase to its end, then the
    primal-dual method with small steps for groups, the barrier method where groups are few, and the augmented
    Lagrangian.

    Parameters
    ----------
    weights : Weights
    temperature : float
        tau > 0.
    tolerance : float
        Gap of the certificate, relative to 1 + |loss|.
    """
    program = program_of(weights, temperature)

    def judge(cosines: Array) -> Certified:
        return certify(program, cosines, tolerance=tolerance)

    start = start_cosines(weights, temperature)
    single = bool(np.all(weights.sizes == 1))
    best = _staircase(program, start, judge, tolerance) if single else _one_round(program, start, judge)
    if best.certificate.certified:
        return best

    target = repair(start, weights.sizes).cosines

    # Matrices of the other methods are feasible only in the limit: what is judged is the nearest feasible one.
    def judge_repaired(cosines: Array) -> Certified:
        return judge(repair(cosines, weights.sizes).cosines)

    def over_matrices(best: Optimum, name: str, solve: MatrixSolver, starts: int = 2) -> Optimum:
        for cosines in ((target, best.cosines) if best.certificate.gap > ROUGH else (best.cosines, target))[:starts]:
            best = best.or_better(*solve(program, cosines, judge_repaired, GOOD * tolerance), name)
            if best.certificate.certified:
                break
        return best

    def promptly(best: Optimum) -> Optimum:
        return over_matrices(best, PRIMAL_DUAL, partial(solve_primal_dual, most=PROMPT_STEPS), starts=1)

    def primal_dual(best: Optimum) -> Optimum:
        return over_matrices(best, PRIMAL_DUAL, solve_primal_dual)

    def cautious(best: Optimum) -> Optimum:
        return over_matrices(best, PRIMAL_DUAL, partial(solve_primal_dual, most=CAUTIOUS_STEPS, caution=CAUTION))

    def staircase_to_the_end(best: Optimum) -> Optimum:
        low = _to_the_end(program, start, judge, tolerance) if single else solve_low_rank(program, start, judge)
        return best.or_better(low.certified, low.iterations, STAIRCASE)

    def augmented_lagrangian(best: Optimum) -> Optimum:
        return over_matrices(best, AUGMENTED_LAGRANGIAN, partial(_apart, weights))

    def barrier(best: Optimum) -> Optimum:
        return over_matrices(best, BARRIER, solve_barrier, starts=1)

    if not single:
        attempts = [primal_dual, staircase_to_the_end, cautious]
    elif weights.n <= SMALL and np.count_nonzero(np.linalg.eigvalsh(start) > RANK_EIGENVALUE) < weights.n / 2:
        attempts = [promptly, staircase_to_the_end, primal_dual]
    else:
        attempts = [primal_dual, staircase_to_the_end]
    attempts.append(barrier)
    if single or weights.n <= LARGEST_APART:
        attempts.append(augmented_lagrangian)
    for attempt in attempts:
        best = attempt(best)
        if best.certificate.certified:
            break
    return best


def _one_round(program: WeightedProgram, start: Array, judge: Callable[[Array], Certified]) -> Optimum:
    """The staircase until it has as many columns as it wants, converged once; for groups.

    Groups are few, and classes need nearly a dimension each: fewer columns than the start has would only be climbed
    from.
    """
    low = solve_low_rank(program, start, partial(certify, program, tolerance=ANY), good_gap=ANY, tight=TIGHT[-1:])
    return Optimum.of(judge(low.certified.cosines), STAIRCASE, low.iterations)


def _staircase(
    program: WeightedProgram, start: Array, judge: Callable[[Array], Certified], tolerance: float
) -> Optimum:
    """The staircase, given up where another method is faster."""
    n = program.num_samples

    def give_up(columns: int, stationarity: float) -> bool:
        return n <= SMALL or columns > HIGH_RANK * n or (columns >= SLOW_COLUMNS and stationarity > SLOW)

    low = _to_the_end(program, start, judge, tolerance, give_up, SMALL_STEPS if n <= SMALL else LOOSE_STEPS)
    return Optimum.of(low.certified, STAIRCASE, low.iterations)


def _to_the_end(
    program: WeightedProgram,
    start: Array,
    judge: Callable[[Array], Certified],
    tolerance: float,
    give_up: Callable[[int, float], bool] | None = None,
    loose_steps: int = LOOSE_STEPS,
) -> LowRankResult[Certified]:
    return solve_low_rank(
        program, start, judge, START_COLUMNS, GOOD * tolerance, give_up,
        extra=START_COLUMNS, growth=GROWTH, tight=TIGHT, loose=LOOSE, loose_steps=loose_steps,
    )  # fmt: skip


def _apart(
    weights: Weights,
    program: WeightedProgram,
    start: Array,
    judge: Callable[[Array], Certified],
    good_gap: float,
) -> tuple[Certified, int]:
    """The augmented Lagrangian with every sample a group of its own; its matrices are averaged back to group form."""
    index, n = weights.index, weights.n
    if n == weights.sizes.size:
        return solve_augmented_lagrangian(program, start, judge, good_gap)
    rows = program.rows[np.ix_(index, index)]
    np.fill_diagonal(rows, 0.0)
    apart = WeightedProgram(
        np.ones(n, dtype=np.int64), 1.0 - np.eye(n), rows, program.anchored[index], program.temperature
    )
    member = np.zeros((n, weights.sizes.size))
    member[np.arange(n), index] = 1.0
    pairs = weights.sizes[:, None] * program.count

    def together(gram: Array) -> Array:
        off = gram.copy()
        np.fill_diagonal(off, 0.0)
        return np.asarray(np.where(pairs > 0, member.T @ off @ member / np.maximum(pairs, 1.0), 1.0))

    expanded = group_matrix.expand(start, np.ones(weights.sizes.size), index)
    return solve_augmented_lagrangian(apart, expanded, lambda gram: judge(together(gram)), good_gap)
