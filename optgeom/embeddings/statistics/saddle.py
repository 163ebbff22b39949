r"""Has training stalled at a saddle: class means of lower rank than the optimum, where all forces balance?

Minimising F over Gram matrices A of unit vectors, with gradient G', a point is critical where Z A = 0 with the dual
Z = G' - Diag(nu), nu_i = (G' A)_ii. At a critical point of lower rank Z has a negative eigenvalue: a direction in which
a missing dimension would grow exponentially. Trained long tails sit there for
thousands of steps, with rare look-alike classes at one point. Asked only where the optimum is rejected, on training
images, at the de-noised Gram matrix A^ itself:

1. **Rank.** r = eigenvalues of A^ above a tenth of the least non-zero one of A*; r < min(d, rank A*), and more than 5 %
   of rank A* are missing: one dimension of a hundred is a pair of classes that merged, and is named as that. N spans
   the others.
2. **Escape.** With D_i = sum_j G'_ij, zeta = least eigenvalue of the pencil (N' Z N, N' D N), and sd over draws of the
   means' noise: zeta + 2 sd < -.1/C. Beyond -1 the classes repel each other with about as much force as all others
   together exert (-2: with nothing but it), as merged classes do at low temperatures: no training stalls there, and
   what keeps them together is something else. (The best geometries of a rank have -.01 to -.47.)
3. **Balance.** rel_i^2 = (Z A^ Z)_ii/D_i^2 less its noise: max rel <= .1 and max rel <= |zeta|. (Real saddles .004 to
   .023, random or early networks .15 to .7.)
4. **Not overlap.** The escape pair p, p' is that of the largest entries of the eigenvector. The largest variance along
   any axis within either class is at most .35 (1 - A*_pp')/2: the classes would come apart if the means did.
5. **Not the same images.** At most 10 % of the rows of both are much nearer to a row of the other class than to their
   own (`confusion.close_neighbours`).
6. Both have at least 5 images.

The converse cannot be told: classes that the encoder is unable to separate at all are the same critical point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.statistics.class_noise import ClassNoise
from optgeom.errors import InvalidInputError
from optgeom.formatting import finite

DRAWS = 40
RANK_SHARE = 0.1  # of the least non-zero eigenvalue of the optimum
NO_EIGENVALUE = 1e-9  # times the largest: zero
LEAST_ESCAPE = 0.1  # over C
MOST_ESCAPE = 1.0
FEW_MISSING = 0.05  # of the rank of the optimum
MOST_FORCE = 0.1
MOST_SCATTER = 0.35
MOST_CLOSE = 0.1
FEWEST_IMAGES = 5


@dataclass(frozen=True, kw_only=True)
class Saddle:
    """What the test for a saddle saw.

    Attributes
    ----------
    at_saddle : bool
    reason : str
        "" at a saddle; otherwise the first condition that fails, in words.
    rank, optimal_rank : int
        Dimensions that the class means span, and those that they should.
    escape, escape_sd : float
        zeta, in units of the forces, and its standard deviation; nan where the rank is not lower.
    least_eigenvalue : float
        The same in units of the risk: least eigenvalue of the dual Z over the directions that the means do not span.
    force : float
        max rel, the largest force left, as a share of the forces that balance.
    classes : tuple of int
        Positions of the classes that lack a dimension: the entries of the escape direction above half of the
        largest, the largest first, at least two. Empty where the rank is not lower.
    together : bool
        Whether the first two of them are closer than at the optimum, as merged classes are; in the best geometry of a
        rank they can also be farther apart, on one line of too few.
    """

    at_saddle: bool
    reason: str
    rank: int
    optimal_rank: int
    escape: float = np.nan
    escape_sd: float = np.nan
    least_eigenvalue: float = np.nan
    force: float = np.nan
    classes: tuple[int, ...] = ()
    together: bool = True

    @property
    def growth(self) -> float:
        """Rate 4 |least_eigenvalue| at which the missing eigenvalue of the Gram matrix grows.

        Per unit of kappa x learning rate, as `collapse.saddles.Saddle.growth`.
        """
        return 4 * max(-self.least_eigenvalue, 0.0)

    def as_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Plain values for JSON; `names` are those of the classes."""
        return {
            "at_saddle": self.at_saddle,
            "reason": self.reason,
            "rank": self.rank,
            "predicted_rank": self.optimal_rank,
            "least_eigenvalue": finite(self.least_eigenvalue),
            "growth": finite(self.growth),
            "escape": finite(self.escape),
            "escape_sd": finite(self.escape_sd),
            "force": finite(self.force),
            "classes": [names[c] for c in self.classes],
        }

    def sentence(self, names: tuple[str, ...]) -> str:
        """The finding and the remedies; empty where there is no saddle."""
        if not self.at_saddle:
            return ""
        shown = [names[c] for c in self.classes]
        listed = ", ".join(shown[:-1]) + " and " + shown[-1]
        state = "have not come apart" if self.together else "lack a dimension of their own"
        return (
            f"at a saddle: the class means span {self.rank} of {self.optimal_rank} dimensions; classes {listed} "
            f"{state}; forces balance within {100 * self.force:.2g} %, yet the loss falls along an unopened "
            "direction. Training has stalled, or the encoder cannot tell these classes apart (remedies: a balanced "
            "sampler first, a temperature of 0.2 to 0.3, longer training; still together after that: overlap)"
        )


def saddle_test(
    cosines: Array,
    optimal: Array,
    gradient: Callable[[Array], Array],
    noise: ClassNoise,
    *,
    close: Callable[[int, int], float] | None = None,
    dim: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Saddle:
    """Test whether class means sit at a critical point of lower rank.

    Parameters
    ----------
    cosines : (C, C)
        De-noised Gram matrix A^ of all classes of the program, unit diagonal.
    optimal : (C, C)
        Optimal Gram matrix A*.
    gradient : function (C, C) -> (C, C)
        G', the symmetric gradient of the program: F(B) >= F(A) + <G'(A), B - A>.
    noise : ClassNoise
        Of all C classes.
    close : function (p, p') -> float, optional
        Share of close neighbours between two classes, condition 5, on demand; without it the condition is not asked.
    dim : int, optional
        Dimensions of the embedding; those of `noise` by default.
    draws : int
        Of the noise of the means, at least 10.
    seed : int

    Raises
    ------
    InvalidInputError
        Matrices of different shapes, or noise of other classes.
    """
    size = len(optimal)
    if cosines.shape != optimal.shape or noise.known.size != size:
        raise InvalidInputError(
            f"`cosines`, `optimal` and `noise` must be of the same C classes; got {cosines.shape}, {optimal.shape} and "
            f"{noise.known.size} classes"
        )
    dim = noise.vectors.shape[1] if dim is None else dim
    best = np.linalg.eigvalsh(optimal)
    nonzero = best > NO_EIGENVALUE * best[-1]
    optimal_rank, limit = int(nonzero.sum()), RANK_SHARE * float(best[nonzero][0])
    values, vectors = np.linalg.eigh(cosines)
    rank = int((values > limit).sum())
    if rank >= min(dim, optimal_rank):
        return Saddle(
            at_saddle=False, reason="the class means span all dimensions", rank=rank, optimal_rank=optimal_rank
        )
    escape, least, force, direction = _escape(cosines, gradient, vectors[:, : size - rank])
    escapes, forces = _noisy(cosines, gradient, noise, size - rank, draws, seed)
    # The noise of the means looks like forces: its mean square over the draws, less what is there without, is taken
    # off.
    noisy_square = np.maximum((forces**2).mean(axis=0) - force**2, 0.0)
    left = float(np.sqrt(np.maximum(force**2 - noisy_square, 0.0)).max())
    spread = float(np.std(escapes, ddof=1))
    ordered = np.argsort(-np.abs(direction), kind="stable")
    p, q = int(ordered[0]), int(ordered[1])
    together = np.abs(direction[ordered]) >= 0.5 * np.abs(direction[p])
    classes = tuple(int(c) for c in ordered[: max(int(together.sum()), 2)])
    # tops are those of the noise of the mean, over n rho^2.
    within = float(max(noise.tops[c] * noise.counts[c] * noise.rho[c] ** 2 for c in (p, q)))
    fewest = int(min(noise.counts[p], noise.counts[q]))
    apart = (1 - float(optimal[p, q])) / 2
    checks = (
        (
            optimal_rank - rank > FEW_MISSING * optimal_rank,
            f"the class means span all but {optimal_rank - rank} of {optimal_rank} dimensions",
        ),
        (escape > -MOST_ESCAPE, "the loss pulls the classes apart as strongly as all forces together"),
        (escape + 2 * spread < -LEAST_ESCAPE / size, "no direction in which the loss falls beyond noise"),
        (left <= MOST_FORCE and left <= abs(escape), f"forces do not balance: {100 * left:.0f} % are left"),
        (fewest >= FEWEST_IMAGES, f"too few images in the classes that are together: {fewest}"),
        (within <= MOST_SCATTER * apart, "classes overlap: images scatter as far as the classes should be apart"),
    )
    reason = next((words for held, words in checks if not held), "")
    if not reason and close is not None and close(p, q) > MOST_CLOSE:
        reason = "classes overlap: images of one have near copies in the other"
    return Saddle(
        at_saddle=not reason,
        reason=reason,
        rank=rank,
        optimal_rank=optimal_rank,
        escape=escape,
        escape_sd=spread,
        least_eigenvalue=least,
        force=left,
        classes=classes,
        together=float(cosines[p, q]) > float(optimal[p, q]),
    )


def _escape(cosines: Array, gradient: Callable[[Array], Array], basis: Array) -> tuple[float, float, Array, Array]:
    """zeta, the least eigenvalue, rel (C,), and the direction (C,) of the escape out of the span of the means."""
    import scipy.linalg

    slopes = np.asarray(gradient(cosines), dtype=np.float64).copy()
    np.fill_diagonal(slopes, 0.0)
    sums = slopes.sum(axis=1)
    dual = slopes - np.diag(np.einsum("ij,ij->i", slopes, cosines))
    inner = basis.T @ dual @ basis
    values, vectors = scipy.linalg.eigh(inner, basis.T @ (sums[:, None] * basis))
    least = float(np.linalg.eigvalsh(inner)[0])
    square = np.einsum("ij,jk,ki->i", dual, cosines, dual, optimize=True)
    direction = basis @ vectors[:, 0]
    return float(values[0]), least, np.sqrt(np.maximum(square, 0.0)) / sums, direction / np.linalg.norm(direction)


def _noisy(
    cosines: Array,
    gradient: Callable[[Array], Array],
    noise: ClassNoise,
    missing: int,
    draws: int,
    seed: int,
) -> tuple[Array, Array]:
    """zeta (b,) and rel (b, C) with the noise of the means added once more."""
    pairs: tuple[npt.NDArray[np.intp], ...] = np.triu_indices(len(cosines), 1)
    rng = np.random.default_rng([seed, 24])
    values, vectors = np.linalg.eigh(cosines)
    dim = noise.vectors.shape[1]
    # Points of the de-noised matrix, turned onto the estimated directions.
    kept = np.flatnonzero(values > NO_EIGENVALUE * values[-1])[-dim:]
    points = vectors[:, kept] * np.sqrt(values[kept])
    left, _, right = np.linalg.svd(noise.vectors.T @ points, full_matrices=False)
    points = points @ (left @ right).T
    base = points @ points.T
    escapes, forces = np.empty(draws), np.empty((draws, len(cosines)))
    for b in range(draws):
        moved = points + np.stack([_draw(noise, k, rng) for k in range(len(points))])
        squares = np.maximum(np.einsum("kd,kd->k", moved, moved) - noise.traces, 0.05)
        drawn = cosines.copy()
        change = (moved @ moved.T / np.sqrt(np.outer(squares, squares)) - base)[pairs]
        drawn[pairs] += change
        drawn.T[pairs] += change
        basis = np.linalg.eigh(drawn)[1][:, :missing]
        escapes[b], _, forces[b], _ = _escape(drawn, gradient, basis)
    return escapes, forces


def _draw(noise: ClassNoise, k: int, rng: np.random.Generator) -> Array:
    if noise.roots is None:
        dim = noise.vectors.shape[1]
        return np.asarray(rng.normal(size=dim) * np.sqrt(noise.traces[k] / dim))
    root = noise.roots[k]
    return np.asarray(rng.normal(size=len(root)) @ root)
