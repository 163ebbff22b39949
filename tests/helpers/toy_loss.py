"""A loss from outside the package, in one file: a boost of all negatives, in the limit of large batches.

F = sum_i lam_i log( lam_i + e^boost sum_{j != i} lam_j exp((A_ij - 1)/tau) )
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from optgeom import _checks
from optgeom._numerics import log_nonnegative
from optgeom.losses import Loss, law, registry
from optgeom.losses.on_rows import PairSum
from optgeom.losses.options import TEMPERATURE, Option, Search
from optgeom.losses.rows import LogSumRows

BOOST = Option(
    name="boost",
    help="added to the logits of negatives",
    default=0.5,
    kind="real",
    search=Search(end="smallest", noun="boost"),
)


@dataclass(frozen=True)
class ToyLoss(Loss):
    """SupCon in the limit of large batches, with a boost."""

    name = "toy"

    temperature: float = 0.1
    boost: float = 0.5

    def __post_init__(self):
        _checks.real("temperature", self.temperature, above=0.0)
        _checks.real("boost", self.boost, at_least=0.0)

    @property
    def gives(self):
        return super().gives | {"uniform-negatives"}

    def rows(self, groups):
        drawn = law.ucl(groups.sizes, groups.proportions)
        log_weight = log_nonnegative(drawn.other) + self.boost
        return LogSumRows(drawn.count, groups.proportions, drawn.own, log_weight)

    def on_rows(self, share, *, images, values=None):
        def mass(classes):
            table = np.broadcast_to(share * math.exp(self.boost), (classes.size, share.size)).copy()
            table[np.arange(classes.size), classes] = share[classes]
            return table

        return PairSum(anchor_weight=share, mass=mass)


def register():
    """Make it known, as a plug-in would when it is imported."""
    registry.register(ToyLoss, summary="a boost of all negatives", label="Toy", options=(TEMPERATURE, BOOST))
