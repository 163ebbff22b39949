r"""Certificate of the weighted program: a dual bound through a Bradley-Terry fit.

n L(A) = max over row-stochastic P of  sum_i H(P_i) + < (P + P' - w~ - w~')/(2 tau), A >, H the entropy of a row, so
for EVERY
row-stochastic P, and every z that makes (P + P' - w~ - w~')/(2 tau) + Diag z positive semidefinite,

    n L* >= sum_i H(P_i) - sum_i z_i.

At a nearly optimal A the dual matrix Z = PSD part of (gradient - Diag nu) asks for P + P' = w~ + w~' + 2 tau Z off the
diagonal. A row-stochastic P with a given symmetric sum M and the form that the optimum has, P_ij = M_ij / (1 + exp(u_i
- u_j)), is a Bradley-Terry model: its row sums are fitted by Newton's method on a graph Laplacian. What is left is paid
for by a shift of z, larger where the misfit is. Every step only loosens the bound, none can make it wrong. It converges
with the square of the error of A, where the plain duality gap converges with the error itself.

The sampling program includes masses m_ik of the negatives and the anchor itself (A_ii = 1):

    n L(A) = max over row-stochastic P of  sum_i [ H(P_i) + sum_k P_ik log m_ik ] + < (P + P' - w - w')/(2 tau), A >,
the diagonal of A is 1, so for EVERY row-stochastic P that is 0 where the mass is, and every z for which the
off-diagonal part of (P + P' - w - w')/(2 tau) with z on its diagonal is positive semidefinite,

    n L* >= sum_i [ H(P_i) + sum_k P_ik log m_ik + (P_ii - w_ii)/tau - z_i ].

Masses are symmetric, so the optimum has P_ij = M_ij/(1 + exp(u_i - u_j)) with M = P + P', as in the weighted program,
and P is fitted in the same way; the anchor's own probability is a pair of i with itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom._numerics import EPS, Array, Square, Vector, log_nonnegative
from optgeom.certificates.dual import DualCheck
from optgeom.programs import group_matrix
from optgeom.programs.sampling import SamplingProgram
from optgeom.programs.weighted import WeightedProgram

FLOOR = 1e-3  # share of the softmax sum below which the fitted sum is clipped: P must stay positive
FIT_STEPS = 40


def check(program: WeightedProgram, cosines: Square, risk: float) -> DualCheck:
    """Duality gap at a feasible group-form matrix; this dual measures no backward error."""
    return DualCheck(max(0.0, risk - lower_bound(program, cosines)), None)


def check_with_anchors(program: SamplingProgram, cosines: Square, risk: float) -> DualCheck:
    """Duality gap where every anchor is one of its own negatives; this dual measures no backward error."""
    return DualCheck(max(0.0, risk - lower_bound_with_anchors(program, cosines)), None)


def lower_bound(program: WeightedProgram, cosines: Square) -> float:
    """A number that the loss of no Gram matrix falls below, near the loss at a nearly optimal one."""
    n, tau, count, pairs = program.num_samples, program.temperature, program.count, program.count > 0
    wanted = np.where(pairs, program.rows + program.rows.T, 0.0)
    probabilities = program.probabilities(cosines)
    softmax = probabilities + probabilities.T
    gradient = (softmax - wanted) / (2 * tau)
    nu = (count * gradient * cosines).sum(axis=1)
    dual, diagonal = psd_part(gradient, -nu, program.sizes)

    # Sums M = P + P' that the dual asks for; every row of P sums to 1, so all of M sums to twice the number of anchors.
    total = np.where(pairs, np.maximum(wanted + 2 * tau * dual, FLOOR * softmax), 0.0)
    anchored = program.anchored
    total[np.ix_(~anchored, ~anchored)] = 0.0
    total *= 2 * float(program.sizes[anchored].sum()) / float(np.sum(program.sizes[:, None] * count * total))
    _, norm = program.log_softmax(cosines)
    p = bradley_terry(total, count, program.sizes, anchored, norm)
    p[anchored] /= (count * p).sum(axis=1)[anchored, None]

    entropy = -float(np.sum(program.sizes[:, None] * count * p * log_nonnegative(np.where(p > 0, p, 1.0))))
    matrix = np.where(pairs, (p + p.T - wanted) / (2 * tau), 0.0)
    raised = feasible_diagonal(matrix, dual, diagonal, count, program.sizes)
    return (entropy - float(np.sum(program.sizes * raised))) / n


def lower_bound_with_anchors(program: SamplingProgram, cosines: Square) -> float:
    """A number that the loss of no Gram matrix falls below, where every anchor is one of its own negatives."""
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


def feasible_diagonal(matrix: Square, dual: Square, diagonal: Array, count: Array, sizes: group_matrix.Sizes) -> Array:
    """(G,) z, near `diagonal`, for which `matrix` with z on the diagonal is positive semidefinite.

    `dual` is what it should have been.
    """
    n = float(sizes.sum())
    misfit = np.abs(matrix - dual) * count
    weight = misfit.sum(axis=1) + 1e-300
    # Weights far below the mean would blow the scaled matrix up without changing the bound.
    weight = np.maximum(weight, 1e-3 * float(np.sum(sizes * weight)) / n)
    root = np.sqrt(weight)
    block = group_matrix.symmetric_block(matrix / (root[:, None] * root[None, :]), diagonal / weight, sizes)
    rest = group_matrix.complement(matrix / (root[:, None] * root[None, :]), diagonal / weight, sizes)
    eigenvalues = scipy.linalg.eigvalsh(block)
    rounding = 4 * EPS * max(abs(float(eigenvalues[-1])), abs(float(eigenvalues[0])))
    shift = max(0.0, -min(float(eigenvalues[0]), float(rest.min())) + rounding)
    return np.asarray(diagonal + shift * weight)


def psd_part(between: Square, diagonal: Array, sizes: group_matrix.Sizes) -> tuple[Array, Array]:
    """Positive semidefinite part in group form."""
    block = group_matrix.symmetric_block(between, diagonal, sizes)
    rest = group_matrix.complement(between, diagonal, sizes)
    eigenvalues, vectors = scipy.linalg.eigh(block)
    below = eigenvalues < 0
    removed = (vectors[:, below] * -eigenvalues[below]) @ vectors[:, below].T
    change, on_diagonal = group_matrix.from_blocks(removed, np.maximum(-rest, 0.0), sizes)
    # Adding the negative part back keeps the accuracy of the entries that it does not touch.
    return between + change, diagonal + on_diagonal


def bradley_terry(
    total: Array, count: Array, sizes: group_matrix.Sizes, anchored: npt.NDArray[np.bool_], start: Vector
) -> Array:
    """P_gh = M_gh / (1 + exp(u_g - u_h)) with sum_h count P = 1 for all anchors; see `bradley_terry_scores`."""
    return np.asarray(total * bradley_terry_scores(total, count, sizes, anchored, start)[1])


def bradley_terry_scores(
    total: Array, count: Array, sizes: group_matrix.Sizes, anchored: npt.NDArray[np.bool_], start: Vector
) -> tuple[Array, Array]:
    """(G,) u and (G, G) shares 1 / (1 + exp(u_g - u_h)) of the sums `total`, by damped Newton from u = `start`.

    A sample that is no anchor has no row of P: of a pair with it, the anchor takes the whole sum.
    """
    m = sizes.astype(np.float64)
    weighted = count * total
    u = start - start.mean()

    def at(u: Array) -> tuple[Array, Array]:
        share = 1.0 / (1.0 + np.exp(np.clip(u[:, None] - u[None, :], -700, 700)))
        share = np.where(anchored[None, :], share, 1.0) * anchored[:, None]
        return share, np.where(anchored, (weighted * share).sum(axis=1) - 1.0, 0.0)

    share, residual = at(u)
    for _ in range(FIT_STEPS):
        size = float(np.max(np.abs(residual)))
        if size < 1e-15:
            break
        edges = weighted * share * (1 - share)
        laplacian = np.diag(edges.sum(axis=1)) - edges
        # Constant u changes nothing: pin its mean (in the metric of the group sizes, in which the Laplacian is
        # symmetric).
        pinned = laplacian + np.outer(np.ones(m.size), m) * (float(np.mean(np.diag(laplacian))) / m.sum())
        pinned[~anchored, ~anchored] += 1.0  # rows without an unknown
        try:
            step = np.linalg.solve(pinned, residual)
        except np.linalg.LinAlgError:
            break
        damping = 1.0
        while damping > 1e-3:
            trial, trial_residual = at(u + damping * step)
            if float(np.max(np.abs(trial_residual))) < size:
                break
            damping /= 2
        if damping <= 1e-3:
            break
        u, share, residual = u + damping * step, trial, trial_residual
    return u, share
