r"""Certificate of the sampling program: the dual bound of the weighted program, with masses and the anchor included.

n L(A) = max over row-stochastic P of  sum_i [ H(P_i) + sum_k P_ik log m_ik ] + < (P + P' - w - w')/(2 tau), A >, and
the diagonal of A is 1, so for EVERY row-stochastic P that is 0 where the mass is, and every z for which the
off-diagonal part of (P + P' - w - w')/(2 tau) with z on its diagonal is positive semidefinite,

    n L* >= sum_i [ H(P_i) + sum_k P_ik log m_ik + (P_ii - w_ii)/tau - z_i ].

Masses are symmetric, so the optimum has P_ij = M_ij/(1 + exp(u_i - u_j)) with M = P + P', as in the weighted program,
and P is fitted in the same way; the anchor's own probability is a pair of i with itself.
"""

from __future__ import annotations

import math

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array, log_nonnegative
from optgeom.certificates.certificate import PRIMAL_SHIFT_LIMIT, RANK_EIGENVALUE
from optgeom.certificates.repair import repair
from optgeom.certificates.weighted import (
    FLOOR,
    WeightedCertificate,
    WeightedCertified,
    bradley_terry,
    feasible_diagonal,
    psd_part,
)
from optgeom.programs.sampling import SamplingProgram


def certify_sampling(program: SamplingProgram, cosines: Array, tolerance: float = 1e-9) -> WeightedCertified:
    """Repair a matrix, then bound its loss from below: by the dual, or by the entropy where that is higher."""
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-9")
    repaired = repair(cosines, program.sizes)
    risk = program.risk(repaired.cosines)
    gap = max(0.0, risk - max(lower_bound(program, repaired.cosines), program.bound))
    rank = int((repaired.eigenvalues > RANK_EIGENVALUE).sum())
    holds = repaired.shift <= PRIMAL_SHIFT_LIMIT and math.isfinite(risk) and gap <= tolerance * (1 + abs(risk))
    return WeightedCertified(
        repaired.cosines, risk, rank, WeightedCertificate(holds, gap, risk - gap, repaired.shift, tolerance)
    )


def lower_bound(program: SamplingProgram, cosines: Array) -> float:
    """A number that the loss of no Gram matrix falls below, near the loss at a nearly optimal one."""
    n, tau = program.num_samples, program.temperature
    wanted = program.rows + program.rows.T
    p = program.probabilities(cosines)
    softmax = p + p.T
    gradient = (softmax - wanted) / (2 * tau)
    np.fill_diagonal(gradient, 0.0)
    nu = (gradient * cosines).sum(axis=1)
    dual, diagonal = psd_part(gradient, -nu, program.sizes)

    total = np.where(program.masses > 0, np.maximum(wanted + 2 * tau * dual, FLOOR * softmax), 0.0)
    # The dual says nothing of the anchor's own probability.
    np.fill_diagonal(total, softmax.diagonal())
    total *= 2 * n / float(total.sum())
    everyone = np.ones(n, dtype=np.bool_)
    p = bradley_terry(total, np.ones((n, n)), program.sizes, everyone, program.log_norm(cosines))
    p /= p.sum(axis=1)[:, None]

    kept = p > 0
    safe = np.where(kept, p, 1.0)
    entropy = float(np.sum(p * (np.where(kept, program.log_masses, 0.0) - log_nonnegative(safe))))
    matrix = (p + p.T - wanted) / (2 * tau)
    own = float(np.trace(matrix))
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(dual, 0.0)
    raised = feasible_diagonal(matrix, dual, diagonal, program.count, program.sizes)
    return (entropy + own - float(raised.sum())) / n
