r"""Class means under forces of very different size: every class in units of its own force, from warm to cold.

At low temperatures the forces of different pairs differ by factors of e^50 and more. Where some pairs exert none (an
explicit law of negatives with zeros) no rank-one dual brings them to one scale, and a method that minimises F sees the
strongest only. The conditions of an optimum need no F:

    v_i is parallel to - sum_j g_ij v_j,      g_ij = G'_ij / sum_l G'_il,

with rows scaled in logarithms, so that the weakest class counts as much as the strongest. Small steps along them lead
down; least squares polish. The temperature falls in small steps from 1, each time from the last class means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.optimize

from optgeom._numerics import Array, Square
from optgeom.certificates import Certified
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.base import Attempt, Judge

WARM, RATIO = 1.0, 0.85  # first temperature, and how much the next is colder
MOST_CLASSES = 40
DISTURBANCE = 1e-4  # of the class means before each temperature: out of geometries of too few dimensions
STEPS, LAST_STEPS, SETTLED = 400, 4000, 1e-6  # of the descent, at the last temperature, and where it ends
THIN = 1e-3  # singular value up to which a dimension is dropped before polishing
POLISHING = 60


@dataclass(frozen=True)
class RowScaled:
    """Descent and least squares on the conditions of the optimum, rows scaled, in a falling temperature."""

    name: ClassVar[str] = "row-scaled"
    needs: ClassVar[frozenset[str]] = frozenset()

    def solve(self, program: ClassMeanProgram, start: Square, judge: Judge) -> Attempt | None:
        """For single classes, at most 40; the start is not used."""
        if np.any(program.sizes > 1) or program.sizes.size > MOST_CLASSES or program.loss.shared_temperature is None:
            return None
        rng, size = np.random.default_rng(0), program.sizes.size
        means, steps = _unit(rng.normal(size=(size, size))), 0
        best: Certified | None = None
        for temperature in _falling(program.temperature):
            at_last = temperature == program.temperature
            loss = program.loss.with_options({"temperature": temperature})
            conditions = _Conditions(
                program if at_last else replace(program, loss=loss, rows=loss.rows(program.groups))
            )
            means = _unit(means + DISTURBANCE * rng.normal(size=means.shape))
            for most in (STEPS, LAST_STEPS) if at_last else (STEPS,):
                means, taken = conditions.descend(means, most)
                polished = conditions.polish(means)
                steps += taken
                means = np.column_stack([polished, np.zeros((size, size - polished.shape[1]))])
                if not at_last:
                    continue
                there = judge(_cosines(polished))
                if best is None or there.certificate.gap <= best.certificate.gap or there.certificate.certified:
                    best = there
                if best.certificate.certified:
                    break
        return None if best is None else Attempt(best, self.name, steps)


def _falling(last: float) -> list[float]:
    """Temperatures from warm to the last."""
    path = [last]
    while path[-1] < WARM:
        path.append(min(WARM, path[-1] / RATIO))
    return path[::-1]


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _cosines(means: Array) -> Array:
    cosines = np.clip(means @ means.T, -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return cosines


@dataclass(frozen=True)
class _Conditions:
    """The part of each row's mean force that is not along its class mean."""

    program: ClassMeanProgram

    def off(self, means: Array) -> Array:
        """(C, d), zero at an optimum."""
        log_force = self.program.log_gradient(_cosines(means))
        np.fill_diagonal(log_force, -np.inf)
        top = log_force.max(axis=1)
        force = np.exp(log_force - np.where(np.isfinite(top), top, 0.0)[:, None])
        total = force.sum(axis=1)
        pushed = force / np.where(total > 0, total, 1.0)[:, None] @ means
        return np.asarray(pushed - (pushed * means).sum(axis=1)[:, None] * means)

    def descend(self, means: Array, most: int) -> tuple[Array, int]:
        """Steps of the size of the temperature, over which forces hardly change."""
        for taken in range(most):
            off = self.off(means)
            if np.max(np.abs(off)) < SETTLED:
                return means, taken
            means = _unit(means - self.program.temperature * off)
        return means, most

    def polish(self, means: Array) -> Array:
        """Least squares in as many dimensions as are in use."""
        left, singular, _ = np.linalg.svd(means, full_matrices=False)
        used = singular > THIN
        start = _unit(left[:, used] * singular[used])

        def conditions(flat: Array) -> Array:
            rows = flat.reshape(start.shape)
            length = np.linalg.norm(rows, axis=1)
            return np.concatenate([self.off(rows / length[:, None]).ravel(), length - 1.0])

        solved = scipy.optimize.least_squares(
            conditions, start.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=POLISHING
        )
        return _unit(solved.x.reshape(start.shape))
