r"""The reference solver: the class-mean program handed to CVXPY as a careful user would write it.

    minimise  sum_r weight_r log sum_s exp( logs_rs + (A_{i(r,s) j(r,s)} - 1)/tau )

over A positive semidefinite with diag A = 1.

Every loss of this package is such a sum: infinitely many negatives and the full batch have one row for each anchor, k
i.i.d. negatives one row for each anchor and each vector of class counts (C(k + C - 1, C - 1) of them), weighted by its
multinomial probability. Written for all C classes, without groups, so that it shares nothing with the other solvers;
hence for small C only.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse
from scipy.special import gammaln

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import IncompatibleError, MissingDependencyError, SolverError
from optgeom.losses.rows import LinearRows, LogSumRows, MultinomialRows
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.base import Attempt, Judge

TOLERANCES = {
    "CLARABEL": ("tol_gap_abs", "tol_gap_rel", "tol_feas"),
    "SCS": ("eps_abs", "eps_rel"),
}


@dataclass(frozen=True)
class ConicResult:
    """What the conic solver returned, unrepaired and unchecked.

    Attributes
    ----------
    cosines : (G, G)
        Group form of its matrix: the average over the pairs of classes of two groups.
    value : float
        The objective as the solver reports it.
    status : str
        The solver's own opinion ("optimal", "optimal_inaccurate"); it is "optimal" for wrong geometries too where the
        risk is flat.
    iterations : int
        Interior-point (or splitting) iterations.
    """

    cosines: Array
    value: float
    status: str
    iterations: int


@dataclass(frozen=True)
class Conic:
    """CVXPY and Clarabel."""

    name: ClassVar[str] = "conic"
    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, program: ClassMeanProgram, start: Array, judge: Judge) -> Attempt:
        """The start is not used."""
        answer = solve_conic(program)
        return Attempt(judge(answer.cosines), self.name, answer.iterations)


@dataclass(frozen=True)
class _LogSums:
    """weight_r log sum_s exp(logs_rs + t at columns_rs), rows of equal length; a column of -1 stands for t = 0."""

    weight: Array  # (R,)
    logs: Array  # (R, S)
    columns: npt.NDArray[np.intp]  # (R, S) class of each term
    anchor: npt.NDArray[np.intp]  # (R,)


def solve_conic(
    program: ClassMeanProgram, solver: str = "CLARABEL", enumeration_limit: int = 5000, tolerance: float | None = None
) -> ConicResult:
    """Solve a class-mean program in the full C x C space with a conic solver.

    Parameters
    ----------
    program : ClassMeanProgram
        At most about 100 classes; rows of the losses of this package.
    solver : {"CLARABEL", "SCS"}
    enumeration_limit : int
        With k i.i.d. negatives: the largest number of class-count vectors, over all anchors, that is still enumerated.
    tolerance : float, optional
        Every stopping tolerance of the solver; its own defaults where None.

    Raises
    ------
    IncompatibleError
        Too many count vectors, or rows that are no log-sums.
    MissingDependencyError
        cvxpy or the solver is not installed.
    SolverError
        The solver returned no matrix.
    InvalidInputError
        A parameter outside its domain.
    """
    _checks.choice("solver", solver, tuple(TOLERANCES))
    _checks.integer("enumeration_limit", enumeration_limit, at_least=1)
    options: dict[str, Any] = {}
    if tolerance is not None:
        options = dict.fromkeys(
            TOLERANCES[solver], _checks.real("tolerance", tolerance, above=0.0, hint="usual values are 1e-9 to 1e-6")
        )
    # Not `groups.index`: a merged program has fewer classes than its groups index.
    index = np.repeat(np.arange(program.sizes.size), program.sizes)
    sums = _log_sums(program, index, enumeration_limit)

    try:
        import cvxpy
    except ImportError as error:
        raise MissingDependencyError(
            "`cvxpy` is needed by the conic solver; it is not installed (pip install cvxpy)"
        ) from error
    if solver not in cvxpy.installed_solvers():
        raise MissingDependencyError(
            f"`{solver.lower()}` is not installed; the conic solver needs it (pip install {solver.lower()})"
        )

    classes = index.size
    gram = cvxpy.Variable((classes, classes), PSD=True)
    flat = cvxpy.vec(gram, order="C")
    objective: Any = 0.0
    for rows in sums:
        cells, entries = (
            np.nonzero(rows.columns.ravel() >= 0)[0],
            (rows.anchor[:, None] * classes + rows.columns).ravel(),
        )
        # Constant terms are empty rows of the selection: they stay exact whatever the solver does with the unit
        # diagonal.
        selection = scipy.sparse.csr_array(
            (np.ones(cells.size), (cells, entries[cells])), shape=(rows.columns.size, classes**2)
        )
        slope = np.repeat(1 / program.temperatures[index[rows.anchor]], rows.columns.shape[1])
        distances = selection @ flat - np.where(rows.columns.ravel() >= 0, 1.0, 0.0)
        exponents = cvxpy.multiply(slope, distances) + rows.logs.ravel()
        if rows.columns.shape[1] == 1:
            objective += rows.weight @ exponents
        else:
            objective += rows.weight @ cvxpy.log_sum_exp(
                cvxpy.reshape(exponents, rows.columns.shape, order="C"), axis=1
            )
    problem = cvxpy.Problem(cvxpy.Minimize(objective), [cvxpy.diag(gram) == 1])
    try:
        with warnings.catch_warnings():
            # CVXPY warns of inaccurate solutions and of its own deprecations: the status says the first, the
            # certificate decides.
            warnings.simplefilter("ignore")
            problem.solve(solver=solver, **options)
    except cvxpy.error.SolverError as error:
        raise SolverError(f"{solver} failed on {classes} classes: {error}") from error
    if gram.value is None or not np.all(np.isfinite(gram.value)):
        raise SolverError(
            f"{solver} returned no matrix; its status is {problem.status!r} (use the solver 'newton' or 'low-rank')"
        )
    cosines = _group_average(np.asarray(gram.value), index, program.sizes)
    constant = _constant(program)
    return ConicResult(
        cosines, float(problem.value) + constant, str(problem.status), int(problem.solver_stats.num_iters)
    )


def _log_sums(program: ClassMeanProgram, index: npt.NDArray[np.intp], limit: int) -> list[_LogSums]:
    """The program of all classes as log-sums, one entry for each number of terms."""
    rows = program.rows
    if isinstance(rows, LogSumRows):
        terms = _direct_terms(rows, index)
    elif isinstance(rows, LinearRows):
        terms = _linear_terms(rows, index)
    elif isinstance(rows, MultinomialRows):
        needed = sum(math.comb(rows.counts.k + support - 1, support - 1) for support in _supports(rows, index))
        if needed > limit:
            raise IncompatibleError(
                f"the conic solver enumerates all class counts of {rows.counts.k} negatives, at most {limit}; "
                f"got {_short(needed)} for {index.size} classes (use solver 'newton' or 'low-rank', or raise "
                "`enumeration_limit`)"
            )
        terms = _enumerated_terms(rows, index)
    else:
        raise IncompatibleError(
            f"the conic solver needs log-sum rows; got {type(rows).__name__} (use solver 'newton' or 'low-rank')"
        )
    by_length: dict[int, list[tuple[float, int, Array, npt.NDArray[np.intp]]]] = {}
    for term in terms:
        by_length.setdefault(term[2].size, []).append(term)
    return [
        _LogSums(
            np.array([term[0] for term in members]),
            np.array([term[2] for term in members]),
            np.array([term[3] for term in members], dtype=np.intp),
            np.array([term[1] for term in members], dtype=np.intp),
        )
        for _, members in sorted(by_length.items())
    ]


def _direct_terms(
    rows: LogSumRows, index: npt.NDArray[np.intp]
) -> Iterator[tuple[float, int, Array, npt.NDArray[np.intp]]]:
    for anchor, group in enumerate(index):
        logs = rows.log_weight[group, index].copy()
        logs[anchor] = math.log(rows.offset[group]) if rows.offset[group] > 0 else -np.inf
        columns = np.arange(index.size)
        columns[anchor] = -1
        kept = np.isfinite(logs)
        if rows.anchor_weight[group] > 0:
            yield float(rows.anchor_weight[group]), anchor, logs[kept], columns[kept]


def _linear_terms(
    rows: LinearRows, index: npt.NDArray[np.intp]
) -> Iterator[tuple[float, int, Array, npt.NDArray[np.intp]]]:
    """Log-sums of one term each."""
    for anchor, group in enumerate(index):
        for other in np.flatnonzero(np.arange(index.size) != anchor):
            yield (
                float(rows.anchor_weight[group] * rows.law.other[group, index[other]]),
                anchor,
                np.zeros(1),
                np.array([other]),
            )


def _short(number: int) -> str:
    return str(number) if number < 10**9 else f"about 1e{round(math.log10(number))}"


def _law(rows: MultinomialRows, anchor: int, index: npt.NDArray[np.intp]) -> Array:
    """(C,) probabilities of the class of one negative of one anchor class."""
    probabilities = np.array(rows.counts.law.other[index[anchor], index])
    probabilities[anchor] = rows.counts.law.own[index[anchor]]
    return probabilities


def _supports(rows: MultinomialRows, index: npt.NDArray[np.intp]) -> list[int]:
    return [int(np.count_nonzero(_law(rows, anchor, index))) for anchor in range(index.size)]


def _enumerated_terms(
    rows: MultinomialRows, index: npt.NDArray[np.intp]
) -> Iterator[tuple[float, int, Array, npt.NDArray[np.intp]]]:
    k, log_weight = rows.counts.k, np.broadcast_to(rows.log_weight, rows.count.shape)
    for anchor, group in enumerate(index):
        law = _law(rows, anchor, index)
        support = np.flatnonzero(law)
        counts = _compositions(k, support.size)
        log_probability = gammaln(k + 1) - gammaln(counts + 1).sum(axis=1) + counts @ np.log(law[support])
        for n, probability in zip(counts, np.exp(log_probability), strict=True):
            own = float(n[support == anchor].sum())
            weight = float(rows.anchor_weight[group] * probability)
            if weight == 0 or (rows.counts.positive_required and own == 0):
                continue
            others = (n > 0) & (support != anchor) & np.isfinite(log_weight[group, index[support]])
            logs, columns = np.log(n[others]) + log_weight[group, index[support[others]]], support[others]
            offset = float(rows.counts.constants[group] + own * rows.counts.own_terms[group])
            if offset > 0:
                logs, columns = np.append(logs, math.log(offset)), np.append(columns, -1)
            yield weight, anchor, logs, columns


def _compositions(total: int, parts: int) -> Array:
    """All vectors of `parts` whole numbers >= 0 with the given sum, one a row."""
    bars = np.array(list(itertools.combinations(range(total + parts - 1), parts - 1)), dtype=np.int64)
    bars = bars.reshape(math.comb(total + parts - 1, parts - 1), parts - 1)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, total + parts - 1)))
    return np.asarray(np.diff(edges, axis=1) - 1, dtype=np.float64)


def _constant(program: ClassMeanProgram) -> float:
    """The part of the risk that does not depend on the geometry (the factor q of the loss)."""
    rows, weight = program.rows, program.sizes * program.rows.anchor_weight
    if isinstance(rows, LinearRows):
        return float(np.sum(weight * rows.constant))
    if not isinstance(rows, MultinomialRows):
        return 0.0
    return float(np.sum(weight * rows.counts.mass() * rows.log_factor))


def _group_average(gram: Array, index: npt.NDArray[np.intp], sizes: group_matrix.Sizes) -> Array:
    member = np.eye(sizes.size)[index]
    off = (gram + gram.T) / 2
    np.fill_diagonal(off, 0.0)
    pairs = sizes[:, None] * (sizes[None, :] - np.eye(sizes.size))
    return np.asarray(np.where(pairs > 0, member.T @ off @ member / np.where(pairs > 0, pairs, 1.0), 1.0))
