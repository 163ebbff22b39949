r"""Trust-region Newton method on group means: the second-order core of the low-rank solver.

The group means are the rows v_g of a (G, r) factor, so that A_gh = v_g . v_h. A group of one class has |v_g| = 1; a
group of m >= 2 classes has |v_g| <= 1 and within-group cosine b_g = (m |v_g|^2 - 1)/(m - 1): it gets one private
coordinate s_g that enters no product, and (v_g, s_g) is a unit vector. The risk is minimised over this product of
spheres (Steihaug's truncated conjugate gradients):

    dF/dv_g = 2 sum_h W_gh v_h,      W_gh = m_g m_h G'_gh,      W_gg = m_g^2 G'_gg  (0 for a single class).

References
----------
Absil, Baker, Gallivan 2007, Found. Comput. Math. 7 (trust regions on manifolds).
"""

from __future__ import annotations

import numpy as np

from optgeom._numerics import EPS, Array
from optgeom.programs.gram_program import GramProgram

TRUST_REGION_STEPS = 300
PRODUCTS_PER_STEP = 200
# A curvature this small beside the preconditioner's is rounding; following it as if it were negative would throw away
# the Newton step.
FLAT = 1e-9


class Spheres:
    """The risk on unit rows x_g = (v_g, s_g), its gradient, Hessian products and preconditioner at one point."""

    def __init__(self, program: GramProgram, point: Array) -> None:
        self.program = program
        self.point = point
        self.mean = point[:, :-1]
        m = program.sizes.astype(np.float64)
        self.pairs = m[:, None] * m[None, :]
        self.within = np.where(m > 1, m / np.maximum(m - 1, 1), 0.0)
        # W_gg multiplies m_g^2, every other pair m_g m_h; a single class has no pair with itself.
        self.diagonal = np.arange(m.size)
        self.pairs[self.diagonal, self.diagonal] = np.where(m > 1, m * m, 0.0)
        self.cosines = cosines_of(self.mean, program)
        self.risk = program.risk(self.cosines)

    def prepare(self) -> None:
        """Everything of first and second order that does not depend on a direction."""
        gradient = self.program.gradient(self.cosines)
        self.force = self.pairs * gradient
        self.gradient_derivative = self.program.gradient_derivative(self.cosines)
        ambient = np.zeros_like(self.point)
        ambient[:, :-1] = 2 * self.force @ self.mean
        self.multiplier = (ambient * self.point).sum(axis=1)  # 2 nu_g, negative near the optimum
        self.gradient = ambient - self.multiplier[:, None] * self.point
        # Total force on a row: the natural unit of its gradient. (The multiplier can vanish at the edge of a collapse.)
        self.force_sum = np.maximum(2 * np.abs(self.force).sum(axis=1), 1e-300)
        # Row-block preconditioner: the Hessian of a row whose other rows stand still.
        g, r = self.point.shape
        size = np.maximum(np.maximum(np.abs(self.multiplier), 1e-3 * self.force_sum), 1e-100)
        blocks = np.zeros((g, r, r))
        weighted = self.pairs * self.program.pair_curvature(self.cosines, gradient)
        outer = (self.mean[:, :, None] * self.mean[:, None, :]).reshape(g, -1)
        blocks[:, :-1, :-1] = 2 * (weighted @ outer).reshape(g, r - 1, r - 1)
        # A row may be at rest while its curvature is large: rounding would make its block singular.
        size = np.maximum(size, 1e-12 * np.einsum("gii->g", blocks))
        blocks[:, np.arange(r), np.arange(r)] += size[:, None]
        self.weighted_mean = size[:, None] * self.mean
        self.rotation_weight = 0.5 / max(float(np.linalg.norm(self.mean.T @ self.weighted_mean, 2)), 1e-300)
        self.inverse = np.linalg.inv(blocks)
        self.normal = np.einsum("gij,gj->gi", self.inverse, self.point)
        self.normal_size = (self.normal * self.point).sum(axis=1)

    @property
    def stationarity(self) -> float:
        """Largest row gradient relative to the total force on the row.

        The risk itself does not see the rows of rare classes.
        """
        return self.relative(self.gradient)

    def relative(self, ambient: Array) -> float:
        scaled = ambient / self.force_sum[:, None]
        return float(np.sqrt(np.max(np.einsum("gi,gi->g", scaled, scaled))))

    def project(self, direction: Array) -> Array:
        return np.asarray(direction - np.einsum("gi,gi->g", direction, self.point)[:, None] * self.point)

    def hessian(self, direction: Array) -> Array:
        moved = direction[:, :-1]
        change = moved @ self.mean.T
        change = change + change.T
        change[self.diagonal, self.diagonal] *= self.within
        force = self.pairs * self.gradient_derivative(change)
        ambient = np.zeros_like(direction)
        ambient[:, :-1] = 2 * (self.force @ moved + force @ self.mean)
        # Rotating all means changes nothing. Away from the optimum the Hessian has curvature of either sign along these
        # directions, as small as the gradient; conjugate gradients would stop at it. A penalty on the rotation part (V'
        # D U - U' D V) makes it positive and, the gradient having no such part, leaves the Newton step alone.
        turn = self.weighted_mean.T @ moved
        ambient[:, :-1] += self.rotation_weight * (self.weighted_mean @ (turn - turn.T))
        return self.project(ambient - self.multiplier[:, None] * direction)

    def precondition(self, direction: Array) -> Array:
        solved = np.einsum("gij,gj->gi", self.inverse, direction)
        excess = np.einsum("gi,gi->g", solved, self.point) / self.normal_size
        return np.asarray(solved - excess[:, None] * self.normal)

    def moved(self, step: Array) -> Spheres:
        point = self.point + step
        return Spheres(self.program, point / np.linalg.norm(point, axis=1)[:, None])


def cosines_of(mean: Array, program: GramProgram) -> Array:
    """Group-form Gram matrix of group means."""
    m = program.sizes.astype(np.float64)
    cosines = mean @ mean.T
    square = np.diag(cosines).copy()
    cosines[np.diag_indices_from(cosines)] = np.where(m > 1, (m * square - 1) / np.maximum(m - 1, 1), 1.0)
    return cosines


def _truncated_cg(here: Spheres, radius: float) -> tuple[Array, float, int, bool]:
    """Steihaug's method in the preconditioned norm.

    Step, predicted decrease, products, whether the boundary was hit.
    """
    step = np.zeros_like(here.point)
    hessian_step = np.zeros_like(step)
    residual = here.gradient
    solved = here.precondition(residual)
    direction = -solved
    inner = float(np.sum(residual * solved))
    target = here.stationarity * min(0.1, here.stationarity)
    step_square, step_direction, direction_square = 0.0, 0.0, inner
    for products in range(1, PRODUCTS_PER_STEP + 1):
        if not direction_square > 0:  # a gradient so small that its square is 0
            break
        image = here.hessian(direction)
        curvature = float(np.sum(direction * image))
        if products > 1 and abs(curvature) <= FLAT * direction_square:
            break
        length = inner / curvature if curvature > 0 else np.inf
        square = (
            step_square + 2 * length * step_direction + length**2 * direction_square if np.isfinite(length) else np.inf
        )
        if curvature <= 0 or square >= radius**2:
            root = np.sqrt(step_direction**2 + direction_square * (radius**2 - step_square))
            length = (root - step_direction) / direction_square
            step, hessian_step = step + length * direction, hessian_step + length * image
            return step, _decrease(here, step, hessian_step), products, True
        step, hessian_step = step + length * direction, hessian_step + length * image
        residual = residual + length * image
        solved = here.precondition(residual)
        following = float(np.sum(residual * solved))
        if following <= 0 or here.relative(residual) <= target:
            break
        ratio = following / inner
        step_square = square
        step_direction = ratio * (step_direction + length * direction_square)
        direction_square = following + ratio**2 * direction_square
        direction = -solved + ratio * direction
        inner = following
    return step, _decrease(here, step, hessian_step), products, False


def _decrease(here: Spheres, step: Array, hessian_step: Array) -> float:
    return -float(np.sum(step * here.gradient) + 0.5 * np.sum(step * hessian_step))


def trust_region(here: Spheres, tolerance: float, most: int = TRUST_REGION_STEPS) -> tuple[Spheres, int, int]:
    """Minimise from a prepared point until the stationarity falls below the tolerance, or rounding stops it."""
    # The preconditioned norm of a turn of every row by one radian.
    limit = float(np.sqrt(np.sum(here.force_sum)))
    radius = 0.25 * limit
    total, stalled, iteration = 0, 0, 0
    for iteration in range(1, most + 1):
        if here.stationarity <= tolerance:
            return here, iteration - 1, total
        step, predicted, products, at_boundary = _truncated_cg(here, radius)
        total += products
        there = here.moved(step)
        actual = here.risk - there.risk
        # Near the optimum both decreases are rounding; their noise must not shrink the region (Conn, Gould, Toint 2000,
        # section 17.4).
        noise = 10 * EPS * max(abs(here.risk), float(here.force_sum.sum()))
        ratio = (actual + noise) / (predicted + noise)
        if ratio < 0.25:
            radius *= 0.25
        elif ratio > 0.75 and at_boundary:
            radius = min(2 * radius, limit)
        if ratio > 0.05 and np.isfinite(there.risk):
            there.prepare()
            stalled = stalled + 1 if predicted < noise and there.stationarity > 0.5 * here.stationarity else 0
            if there.stationarity <= here.stationarity or predicted > noise:
                here = there
            if stalled >= 3:
                break
        if radius < 1e-14 * limit:
            break
    return here, iteration, total
