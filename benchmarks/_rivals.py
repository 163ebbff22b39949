"""The rivals, written as their users write them; nothing here goes through optgeom."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LIMIT_SECONDS = 1800.0  # a rival that has not finished by then stops with whatever it has
LIMIT_OPTION = {"CLARABEL": "time_limit", "SCS": "time_limit_secs"}


@dataclass(frozen=True)
class ConicAnswer:
    """A Gram matrix with the solver's own opinion of it."""

    gram: npt.NDArray[np.float64]
    status: str
    solver_seconds: float
    iterations: int


def supcon_limit(proportions: npt.NDArray[np.float64], temperature: float, solver: str) -> ConicAnswer:
    """The limit of the SupCon loss as a CVXPY program, with the default tolerances of the solver.

        minimise  sum_i p_i log sum_j p_j exp((A_ij - 1)/tau)     over  A positive semidefinite, diag A = 1.
    """
    import cvxpy as cp

    classes = proportions.size
    gram = cp.Variable((classes, classes), PSD=True)
    rows = cp.log_sum_exp((gram - 1) / temperature + np.log(proportions)[None, :], axis=1)
    problem = cp.Problem(cp.Minimize(proportions @ rows), [cp.diag(gram) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "solution may be inaccurate": the certificate says how inaccurate
        problem.solve(solver=solver, **{LIMIT_OPTION[solver]: LIMIT_SECONDS})
    if gram.value is None or not np.all(np.isfinite(gram.value)):
        raise RuntimeError(f"no finite matrix, status {problem.status}")
    stats = problem.solver_stats
    return ConicAnswer(np.asarray(gram.value), str(problem.status), float(stats.solve_time or np.nan), int(stats.num_iters or 0))
