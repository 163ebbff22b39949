"""The optimum to compare with.

A geometry that is there, or one to be solved for the training classes, in the dimension at hand.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optgeom.embeddings.moments.class_moments import ClassMoments
from optgeom.errors import InvalidInputError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import InfoNCE, Loss, SupCon, SupConFullBatch
from optgeom.solvers.api import solve
from optgeom.wording import describe_loss

OWN_COUNTS = "the label counts of the embeddings themselves"


@dataclass(frozen=True, eq=False)
class Reference:
    """What embeddings are compared with.

    Attributes
    ----------
    geometry : Geometry
    loss : Loss or None
        None where the geometry holds too little of it: a loss of one's own, or an explicit negative law.
    origin : str
        Where it comes from, in words.
    own_counts : bool
        The proportions are those of the embeddings.
    notes : tuple of str
    usual_loss : bool
        No loss was given: it is `SupCon()`.
    """

    geometry: Geometry
    loss: Loss | None
    origin: str
    own_counts: bool = False
    notes: tuple[str, ...] = ()
    usual_loss: bool = False


@dataclass(frozen=True, eq=False)
class ReferenceChoice:
    """Where the optimum is to come from, checked before any row is read.

    Attributes
    ----------
    geometry : Geometry or None
    classes : ClassDistribution or None
        Of the training data.
    loss : Loss or None
    sampler_power : float
        For the counts of the embeddings.
    origin : str
    """

    geometry: Geometry | None
    classes: ClassDistribution | None
    loss: Loss | None
    sampler_power: float
    origin: str

    def solved(self, moments: ClassMoments) -> Reference:
        """The optimum for embeddings with these classes, in their dimension."""
        dim = int(moments.sums.shape[1])
        if self.geometry is not None:
            return _in_dimension(self.geometry, self.loss, dim, self.origin)
        loss = SupCon() if self.loss is None else self.loss
        if self.classes is not None:
            return Reference(solve(self.classes, loss, dim), loss, self.origin, usual_loss=self.loss is None)
        if len(moments.names) == 1:
            held = f"all {int(moments.counts[0])} rows of `labels` have the label {moments.names[0]!r}"
            raise InvalidInputError(f"no geometry with one class: {held} (at least 2 classes are needed)")
        classes = ClassDistribution.from_counts(moments.counts, moments.names).resample(self.sampler_power)
        return Reference(solve(classes, loss, dim), loss, self.origin, own_counts=True, usual_loss=self.loss is None)


def choose_reference(geometry: Any, classes: Any, loss: Any, sampler_power: float = 1.0) -> ReferenceChoice:
    """Check where the optimum is to come from.

    Raises
    ------
    InvalidInputError
        Both a geometry and classes, a loss that is not that of the geometry, a sampler without counts to apply it to,
        or a file that is no geometry.
    """
    if loss is not None and not isinstance(loss, Loss):
        raise InvalidInputError(
            f"`loss` must be a loss; got {type(loss).__name__} (for example SupCon(temperature=0.1))"
        )
    if sampler_power != 1 and (geometry is not None or classes is not None):
        raise InvalidInputError(
            f"`sampler_power` applies to the label counts of the embeddings; got {sampler_power:g} beside a geometry or classes "
            "(use classes.resample)"
        )
    if geometry is None:
        if classes is not None and not isinstance(classes, ClassDistribution):
            raise InvalidInputError(
                f"`classes` must be a ClassDistribution; got {type(classes).__name__} (ClassDistribution.from_counts(...))"
            )
        origin = OWN_COUNTS if classes is None else f"{classes.num_classes} classes of the training data"
        return ReferenceChoice(None, classes, loss, sampler_power, origin)
    if classes is not None:
        raise InvalidInputError(
            "`geometry` and `classes` must not both be given: a geometry has its classes (leave one out)"
        )
    origin = "the geometry given"
    if isinstance(geometry, (str, os.PathLike)):
        origin = f"the geometry in {os.fspath(geometry)}"
        geometry = Geometry.load(geometry)
    if not isinstance(geometry, Geometry):
        came = type(geometry).__name__
        raise InvalidInputError(
            f"`geometry` must be a Geometry or the path of a saved one; got {came} (it is the third argument)"
        )
    if loss is not None and loss.to_dict() != geometry.loss:
        held, came = describe_loss(geometry.loss), describe_loss(loss.to_dict())
        raise InvalidInputError(f"`loss` must be that of the geometry: {held}; got {came} (leave it out)")
    return ReferenceChoice(geometry, None, stored_loss(geometry.loss) if loss is None else loss, sampler_power, origin)


def stored_loss(described: Mapping[str, Any]) -> Loss | None:
    """The loss that `Loss.describe` described; None where the description is not enough to make it again."""
    held = {
        key: math.inf if value == "inf" else value for key, value in described.items() if key not in ("name", "note")
    }
    kinds: dict[str, type[Loss]] = {"supcon": SupCon, "supcon-full": SupConFullBatch, "infonce": InfoNCE}
    kind = kinds.get(str(described.get("name")))
    if kind is None or held.get("sampling") == "explicit":
        return None
    try:
        return kind(**held)
    except (TypeError, ValueError):  # written by another version
        return None


def _in_dimension(geometry: Geometry, loss: Loss | None, dim: int, origin: str) -> Reference:
    """The geometry itself where it fits into `dim` dimensions, or else the best one there."""
    if geometry.rank <= dim:
        return Reference(geometry, loss, origin)
    if loss is None:
        raise InvalidInputError(
            f"`geometry` must fit into the {dim} dimensions of the embeddings; got rank {geometry.rank}, and a loss "
            f"({geometry.loss.get('name')}) that a geometry does not hold (give `loss`, or a geometry from solve(..., dim={dim}))"
        )
    note = f"{origin} has rank {geometry.rank}: solved again for {dim} dimension{'' if dim == 1 else 's'}"
    return Reference(solve(geometry.classes, loss, dim), loss, origin, notes=(note,))
