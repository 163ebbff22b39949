"""Anderson mixing of a fixed-point iteration on matrices."""

from __future__ import annotations

import numpy as np

from optgeom._numerics import Array


class Anderson:
    """Extrapolates x -> g(x) from the last few pairs (x, g(x)); majorize-minimize steps converge linearly, with ratio
    up to 1/2.

    References
    ----------
    Walker, Ni 2011, Anderson acceleration for fixed-point iterations, SIAM J. Numer. Anal. 49.
    """

    def __init__(self, memory: int = 4) -> None:
        self.memory = memory
        self.images: list[Array] = []
        self.residuals: list[Array] = []

    def next(self, point: Array, image: Array) -> Array:
        """The next point, given g(point) = image."""
        residual = image - point
        if self.residuals and np.linalg.norm(residual) > 2 * np.linalg.norm(self.residuals[-1]):
            # Extrapolation made things worse: forget the past, take the plain step.
            self.images, self.residuals = [], []
        self.images.append(image)
        self.residuals.append(residual)
        self.images, self.residuals = self.images[-self.memory :], self.residuals[-self.memory :]
        if len(self.images) == 1:
            return image
        differences = np.stack([(residual - old).ravel() for old in self.residuals[:-1]], axis=1)
        weights, *_ = np.linalg.lstsq(differences, residual.ravel(), rcond=1e-10)
        mixed = image.copy()
        for weight, old in zip(weights, self.images[:-1], strict=True):
            mixed -= weight * (image - old)
        return mixed
