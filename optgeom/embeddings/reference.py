"""The reference: the optimum that embeddings are compared with.

A geometry that was given, or one solved for the training classes, in the dimension of the embeddings.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from optgeom import _checks
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.errors import InvalidInputError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss, SupCon
from optgeom.solvers.api import solve

OWN_COUNTS = "the label counts of the embeddings themselves"


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """What embeddings are compared with.

    Attributes
    ----------
    geometry : Geometry
    loss : Loss or None
        None where the geometry keeps too little of it: a loss of the user's own, or an explicit negative law.
    origin : str
        Where it comes from, in words.
    own_counts : bool
        The proportions are those of the embeddings.
    notes : tuple of str
    default_loss : bool
        No loss was given: it is `SupCon()`.
    """

    geometry: Geometry
    loss: Loss | None
    origin: str
    own_counts: bool = False
    notes: tuple[str, ...] = ()
    default_loss: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
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

    geometry: Geometry | None = None
    classes: ClassDistribution | None = None
    loss: Loss | None
    sampler_power: float
    origin: str

    def solved(self, moments: ClassMoments) -> Reference:
        """The optimum for embeddings with these classes, in their dimension."""
        dim = int(moments.sums.shape[1])
        if self.geometry is not None:
            return _in_dimension(self.geometry, self.loss, dim, self.origin)
        loss, classes = SupCon() if self.loss is None else self.loss, self.classes
        if classes is None:
            if len(moments.names) == 1:
                came = f"all {int(moments.counts[0])} rows of `labels` have the label {moments.names[0]!r}"
                raise InvalidInputError(f"no geometry with one class: {came} (at least 2 classes are needed)")
            classes = ClassDistribution.from_counts(moments.counts, moments.names).resample(self.sampler_power)
        return Reference(
            geometry=solve(classes, loss, dim=dim),
            loss=loss,
            origin=self.origin,
            own_counts=self.classes is None,
            default_loss=self.loss is None,
        )


def choose_reference(geometry: Any, classes: Any, loss: Any, sampler_power: float = 1.0) -> ReferenceChoice:
    """Check where the optimum is to come from.

    Raises
    ------
    InvalidInputError
        Both a geometry and classes, a loss that is not that of the geometry, a sampler without counts to apply it to,
        or a file that does not hold a geometry.
    """
    if loss is not None:
        _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    if sampler_power != 1 and (geometry is not None or classes is not None):
        raise InvalidInputError(
            f"`sampler_power` applies to the label counts of the embeddings; got {sampler_power:g} beside a geometry "
            "or classes (use classes.resample)"
        )
    if geometry is None:
        origin = OWN_COUNTS
        if classes is not None:
            _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
            origin = f"{classes.num_classes} classes of the training data"
        return ReferenceChoice(classes=classes, loss=loss, sampler_power=sampler_power, origin=origin)
    if classes is not None:
        raise InvalidInputError(
            "`geometry` and `classes` must not both be given: a geometry has its classes (leave one out)"
        )
    origin = "the geometry given"
    if isinstance(geometry, (str, os.PathLike)):
        origin = f"the geometry in {os.fspath(geometry)}"
        geometry = Geometry.load(geometry)
    what = "a Geometry or the path of a saved one"
    geometry = _checks.instance("geometry", geometry, Geometry, "it is the third argument", what=what)
    if loss is None:
        # A loss that gives nothing is a description in a file: it has no values.
        loss = geometry.loss if geometry.loss.gives else None
    elif loss.to_dict() != geometry.loss.to_dict():
        stored = geometry.loss.words()
        raise InvalidInputError(f"`loss` must be that of the geometry: {stored}; got {loss.words()} (leave it out)")
    return ReferenceChoice(geometry=geometry, loss=loss, sampler_power=sampler_power, origin=origin)


def _in_dimension(geometry: Geometry, loss: Loss | None, dim: int, origin: str) -> Reference:
    """The geometry itself where it fits into `dim` dimensions, or else the best one there."""
    if geometry.rank <= dim:
        return Reference(geometry=geometry, loss=loss, origin=origin)
    if loss is None:
        raise InvalidInputError(
            f"`geometry` must fit into the {dim} dimensions of the embeddings; got rank {geometry.rank}, and a loss "
            f"({geometry.loss.name}) that a geometry does not hold (give `loss`, or a geometry from "
            f"solve(..., dim={dim}))"
        )
    note = f"{origin} has rank {geometry.rank}: solved again for {dim} dimension{'' if dim == 1 else 's'}"
    return Reference(geometry=solve(geometry.classes, loss, dim=dim), loss=loss, origin=origin, notes=(note,))
