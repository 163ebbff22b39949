r"""Second-order low-rank method: the optimum where more than one dimension collapses.

A staircase over the number of columns: minimise over Gram matrices of r columns (`trust_region`), certify as a convex
program, and while the certificate fails add the directions in which the dual is most negative. With enough columns
every second-order critical point is the global optimum.

References
----------
Boumal, Voroninski, Bandeira 2016, arXiv 1606.04970 (no spurious second-order points when r is large enough).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg

from optgeom._numerics import Array, Square
from optgeom.certificates import Certified
from optgeom.programs import group_matrix
from optgeom.programs.gram_program import CertifiableProgram, GramProgram
from optgeom.solvers.base import Attempt, Judge
from optgeom.solvers.trust_region import TRUST_REGION_STEPS, Spheres, trust_region

ROUNDS = 12  # minimise, certify, add columns
LOOSE, LOOSE_STEPS = 1e-5, 60
TIGHT = (1e-9, 1e-13)
# eigenvalues of the Gram matrix that are taken for dying columns; certified afterwards, and 1000 times less in the next
# round
SLACK = 1e-6
GOOD_GAP = 1e-12  # at which tightening ends
ACCEPTED = 100.0  # times that gap, when nothing tighter is left to try at this rank


def start_factor(program: GramProgram, cosines: Square, most: int | None = None, extra: int = 3) -> Array:
    """(G, r + 1) unit rows from a group-form matrix that is clipped to positive semidefinite.

    There are `extra` columns to spare, and `most` in all.
    """
    m = program.sizes.astype(np.float64)
    means = cosines.copy()
    means[np.diag_indices_from(means)] = np.where(m > 1, (1 + (m - 1) * np.diag(cosines)) / m, 1.0)
    eigenvalues, vectors = scipy.linalg.eigh((means + means.T) / 2)
    positive = eigenvalues > 1e-10 * eigenvalues[-1]
    kept = vectors[:, positive] * np.sqrt(eigenvalues[positive])
    rank = min(kept.shape[1] + extra, program.sizes.size, most or program.sizes.size)
    kept = kept[:, ::-1][:, :rank]
    factor = np.zeros((m.size, rank))
    factor[:, : kept.shape[1]] = kept
    # A small deterministic disturbance lets the spare columns move: a zero column is a critical point.
    factor += 1e-3 * np.random.default_rng(0).standard_normal(factor.shape)
    length = np.linalg.norm(factor, axis=1)
    shrink = np.where(m > 1, np.minimum(1.0, 0.995 / length), 1.0 / length)
    factor *= shrink[:, None]
    private = np.where(m > 1, np.sqrt(np.maximum(0.0, 1 - (factor**2).sum(axis=1))), 0.0)
    return np.column_stack([factor, private])


@dataclass(frozen=True, kw_only=True)
class LowRank:
    """The staircase over the number of columns, until the certificate holds.

    Attributes
    ----------
    title : str
        Name of the method in results.
    most_columns : int, optional
        Columns to start with at most; the staircase multiplies them as needed.
    good_gap : float
        Gap, relative to 1 + |risk|, at which the search ends; 100 times as much is accepted where tightening stops
        short of it.
    give_up : callable, optional
        (columns, stationarity reached loosely) -> whether to return the point, judged, instead of going on with more
        columns; for programs on which another method is better at high rank.
    once : bool
        End after the first minimisation with columns to spare, whatever its certificate.
    extra : int
        Columns to start with beyond the rank of the start.
    growth : int
        Factor by which columns in full use grow.
    tight : tuple of float
        Stationarities in turn, once there are columns to spare.
    loose, loose_steps : float, int
        Stationarity, and steps at most, while all columns may be in use.
    """

    name: ClassVar[str] = "low-rank"
    needs: ClassVar[frozenset[str]] = frozenset()
    title: str = "low-rank"
    most_columns: int | None = None
    good_gap: float = GOOD_GAP
    give_up: Callable[[int, float], bool] | None = None
    once: bool = False
    extra: int = 3
    growth: int = 2
    tight: tuple[float, ...] = TIGHT
    loose: float = LOOSE
    loose_steps: int = LOOSE_STEPS

    def solve(self, program: CertifiableProgram, start: Square, judge: Judge) -> Attempt:
        """From a group-form matrix, which is clipped to positive semidefinite."""
        point = start_factor(program, start, self.most_columns, self.extra)
        steps, slack = 0, SLACK
        best: Certified | None = None
        for _ in range(ROUNDS):
            # First loosely, with columns to spare: they let the method leave saddle points. While all columns are in
            # use, tight minimisation would be wasted on too small a rank.
            here, taken = _minimise(program, point, self.loose, self.loose_steps)
            steps += taken
            thin = _without_slack(here, slack)
            if thin.shape[1] == point.shape[1] and point.shape[1] - 1 < program.sizes.size:
                wider = _with_descent_columns(here, here.force_sum.sum(), self.growth)
                if (
                    wider is not None
                    and self.give_up is not None
                    and self.give_up(point.shape[1] - 1, here.stationarity)
                ):
                    return Attempt(judge(here.cosines), self.title, steps)
                if wider is not None:
                    point = wider
                    continue
            # Then exactly, without the columns that died out: near a change of rank they see almost no curvature and
            # would only slow the last digits.
            gap = np.inf
            for tolerance in self.tight:
                here, taken = _minimise(program, thin, tolerance, TRUST_REGION_STEPS)
                steps += taken
                thin = here.point
                there = judge(here.cosines)
                if best is None or _better(there, best):
                    best = there
                if _within(there, self.good_gap) or there.certificate.gap > 0.5 * gap:
                    break
                gap = there.certificate.gap
            if self.once or _within(there, ACCEPTED * self.good_gap):
                break
            wider = _with_descent_columns(here, 0.0)
            if wider is None:
                break
            point, slack = wider, slack * 1e-3
        if best is None:
            here, taken = _minimise(program, point, TIGHT[-1], TRUST_REGION_STEPS)
            steps += taken
            best = judge(here.cosines)
        return Attempt(best, self.title, steps)


def _minimise(program: GramProgram, point: Array, tolerance: float, most: int) -> tuple[Spheres, int]:
    here = Spheres(program, point)
    here.prepare()
    here, steps, _ = trust_region(here, tolerance, most)
    return here, steps


def _within(there: Certified, gap: float) -> bool:
    return there.certificate.certified and there.certificate.gap <= gap * (1 + abs(there.risk))


def _better(there: Certified, than: Certified) -> bool:
    """Certified beats not certified; then the smaller gap."""
    new, old = there.certificate, than.certificate
    return (not new.certified, new.gap) < (not old.certified, old.gap)


def _without_slack(here: Spheres, slack: float) -> Array:
    """Rotate to principal axes and drop the columns whose share of the Gram matrix is below `slack`.

    Its eigenvalues have mean 1.
    """
    root = np.sqrt(here.program.sizes.astype(np.float64))[:, None]
    _, singular, axes = np.linalg.svd(root * here.mean, full_matrices=False)
    kept = singular**2 > slack * max(1.0, float(singular[0] ** 2) / 10)
    kept[0] = True  # balanced classes in one group have mean zero: no column would be left
    point = np.column_stack([here.mean @ axes[kept].T, here.point[:, -1]])
    return np.asarray(point / np.linalg.norm(point, axis=1)[:, None])


def local_minimum(
    program: GramProgram, mean: Array, tolerance: float = 1e-10, most: int = TRUST_REGION_STEPS
) -> tuple[Array, float, int]:
    """Minimise with exactly the columns of `mean` (C, d), unit rows, every class apart: Gram matrix, risk, steps.

    No certificate.
    """
    here = Spheres(program, np.column_stack([mean, np.zeros(mean.shape[0])]))
    here.prepare()
    here, steps, _ = trust_region(here, tolerance, most)
    return here.cosines, here.risk, steps


def _with_descent_columns(here: Spheres, scale: float, growth: int = 2) -> Array | None:
    """Append the most negative directions of the dual as new columns; None where there is none.

    There are then at most `growth` times as many columns.
    A direction counts when its eigenvalue is below -1e-4 of the mean force; with `scale` 0 any negative one does.
    """
    m = here.program.sizes.astype(np.float64)
    gradient = here.program.gradient(here.cosines)
    nu = (here.program.count * gradient * here.cosines).sum(axis=1)
    block = group_matrix.symmetric_block(gradient, -nu, here.program.sizes)
    columns = here.point.shape[1] - 1
    most = min((growth - 1) * columns, m.size - columns)
    if most < 1:
        return None
    eigenvalues, vectors = scipy.linalg.eigh(block, subset_by_index=[0, most - 1])
    negative = eigenvalues < -1e-4 * scale / (2 * m.sum())
    if not negative.any():
        return None
    fresh = vectors[:, negative] / np.sqrt(m)[:, None]
    fresh = 0.1 * fresh / np.max(np.abs(fresh))
    point = np.column_stack([here.mean, fresh, here.point[:, -1]])
    return np.asarray(point / np.linalg.norm(point, axis=1)[:, None])
