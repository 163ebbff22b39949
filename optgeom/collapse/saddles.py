r"""saddles: the lower-dimensional geometries at which training stalls, known before it starts.

For k = 1, ..., rank - 1 let A_k be the best geometry in k dimensions that is found. It is a critical point of the risk
in any dimension, and its dual Z = G' - Diag nu has a negative eigenvalue: along its eigenvector w a dimension opens as

    dw/ds = -2 kappa Z w,        (eigenvalue of the Gram matrix) ~ exp( 4 kappa |zeta| s ),

s the sum of learning rates and kappa the class-mean kernel of the network (see `relaxation`). The classes with the
largest entries of w are those that come apart last. Dimensions open one at a time, and |zeta| shrinks with each: a long
tail can look merged for thousands of steps although the optimum keeps it apart.

Of free features, mean i of a share lam_i moves by -(1/lam_i) dF/dv_i, and zeta is the least eigenvalue of the pencil
(Z, Diag lam): rare classes are not held back, and the dimension opens many times faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.api import solve
from optgeom.solvers.limited import best_class_means, points_of
from optgeom.solvers.low_rank import local_minimum

BALANCED = (1e-10, 300)  # stationarity of a critical point, and steps
ALL_RANKS = 30  # ranks up to which every one is searched; beyond, the last ones
LAST_RANKS = 10
SMALL_ENTRY = 0.5  # of the largest entry of the escape direction: classes above it are named


@dataclass(frozen=True, kw_only=True)
class Saddle:
    """The best geometry of one rank, as a critical point in more dimensions.

    Attributes
    ----------
    rank : int
        k.
    excess : float
        Its risk above the optimum.
    share : float
        The same as a share of the loss range (collapsed minus optimal).
    least_eigenvalue : float
        zeta of Z; negative where a further dimension opens.
    least_eigenvalue_free : float
        The same of the pencil (Z, Diag lam), lam the class proportions.
    classes : tuple of str
        Classes that the escape direction moves most in a network, most first.
    """

    rank: int
    excess: float
    share: float
    least_eigenvalue: float
    least_eigenvalue_free: float
    classes: tuple[str, ...]

    @property
    def growth(self) -> float:
        """Rate 4 |zeta| at which a network opens the new eigenvalue of the Gram matrix.

        Per unit of kappa x the sum of learning rates.
        """
        return 4 * max(0.0, -self.least_eigenvalue)

    @property
    def growth_free(self) -> float:
        """The same of free features, per unit of learning rate x steps / number of samples."""
        return 4 * max(0.0, -self.least_eigenvalue_free)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "rank": self.rank,
            "excess": self.excess,
            "share": self.share,
            "least_eigenvalue": self.least_eigenvalue,
            "growth": self.growth,
            "growth_free": self.growth_free,
            "classes": list(self.classes),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Saddles:
    """Saddles of every rank below that of the optimum.

    Attributes
    ----------
    geometry : Geometry
        The certified optimum.
    saddles : tuple of Saddle
        By increasing rank.
    """

    geometry: Geometry
    saddles: tuple[Saddle, ...]

    def __len__(self) -> int:
        return len(self.saddles)

    @property
    def slowest(self) -> Saddle | None:
        """The saddle that is left most slowly; None where there is no saddle."""
        return min(self.saddles, key=lambda saddle: saddle.growth, default=None)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary per saddle."""
        return [saddle.as_dict() for saddle in self.saddles]


def saddles(classes: ClassDistribution, loss: Loss, *, ranks: tuple[int, ...] | None = None) -> Saddles:
    """Critical points of lower rank, from the best geometry in each number of dimensions.

    Parameters
    ----------
    classes : ClassDistribution
    loss : Loss
    ranks : tuple of int, optional
        Numbers of dimensions, 1 to the rank of the optimum minus 1. All of them by default, where they are at most 30;
        else the last 10.

    Returns
    -------
    Saddles
        Each is the best point that several starts find, not proved to be the best of its rank.

    Raises
    ------
    InvalidInputError
        A rank outside its domain.
    NotCertifiedError
        The optimum itself cannot be certified.

    Examples
    --------
    >>> import optgeom as og
    >>> classes = og.ClassDistribution.from_counts([200, 120, 72, 43, 26, 15, 9, 6, 3, 2])
    >>> last = og.saddles(classes, og.SupConFullBatch(temperature=0.5), ranks=(8,)).saddles[0]
    >>> print(f"least eigenvalue {last.least_eigenvalue:.1e}: classes {', '.join(last.classes)} come apart last")
    least eigenvalue -1.8e-04: classes 9, 8 come apart last
    """
    geometry = solve(classes, loss)
    if ranks is None:
        ranks = tuple(range(1, geometry.rank))
        ranks = ranks if len(ranks) <= ALL_RANKS else ranks[-LAST_RANKS:]
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    program.require_smooth("loss", "saddles")
    # Singletons of a full batch coincide in every number of dimensions; they stand for one class here.
    first = np.unique(program.groups.index, return_index=True)[1]
    merged = program.merged()
    relaxed = np.asarray(geometry.gram)[np.ix_(first, first)]
    shares = np.bincount(program.groups.index, weights=geometry.proportions)
    loss_range = program.risk(np.ones_like(relaxed)) - geometry.risk
    names = [geometry.names[which] for which in first]
    points = []
    for rank in ranks:
        _checks.integer("ranks", rank, at_least=1)
        _checks.index("ranks", rank, geometry.rank)
        # The best point of a large problem is good for a bracket of the risk, and not critical yet.
        near, _, _ = best_class_means(merged, relaxed, rank)
        cosines, risk, _ = local_minimum(merged, points_of(near, rank), *BALANCED)
        dual = _dual(merged, cosines)
        eigenvalues, vectors = np.linalg.eigh(dual)
        direction = vectors[:, 0]
        order = np.argsort(-np.abs(direction), kind="stable")
        moved = [which for which in order if abs(direction[which]) >= SMALL_ENTRY * abs(direction[order[0]])]
        points.append(
            Saddle(
                rank=rank,
                excess=risk - geometry.risk,
                share=(risk - geometry.risk) / loss_range,
                least_eigenvalue=float(eigenvalues[0]),
                least_eigenvalue_free=float(scipy.linalg.eigh(dual, np.diag(shares), eigvals_only=True)[0]),
                classes=tuple(names[which] for which in moved),
            )
        )
    return Saddles(geometry=geometry, saddles=tuple(points))


def _dual(program: ClassMeanProgram, cosines: Array) -> Array:
    """Z = G' - Diag nu."""
    gradient = np.where(program.count > 0, program.gradient(cosines), 0.0)
    return np.asarray(gradient - np.diag((program.count * gradient * cosines).sum(axis=1)))
