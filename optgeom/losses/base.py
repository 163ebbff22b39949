"""What a loss says of itself: its rows for the solvers, and everything that the rest of the package says of it.

A loss is one file: a frozen dataclass derived from `Loss`, with an entry in `registry`. Only `name` and `rows` are
required; every other method has a default that holds for any loss, and no other room asks which loss it has.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Vector
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.losses import registry
from optgeom.losses.on_rows import DrawnBatches, PairSum
from optgeom.losses.options import Option
from optgeom.losses.rows import RowLoss

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution, ClassGroups
    from optgeom.losses.weights import ClassValues
    from optgeom.training.class_batches import ClassBatchLoss
    from optgeom.training.losses import ContrastiveLoss

# What a loss may give, and how an error says that it is needed.
CAPABILITIES = {
    "groups": "`loss` must treat classes by their proportions alone",
    "proportions": "`loss` must depend on class proportions",
    "uniform-negatives": "`loss` must draw its negatives from the class proportions",
    "strictly-convex": "`loss` must be strictly convex",
    "class-weights": "`loss` must take weights, margins and temperatures per class",
}


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How an encoder is trained with a loss.

    Attributes
    ----------
    size : int
        Samples per batch, before their views.
    views : int
        Rows per sample of the batch.
    positives : {"image", "class"}
        What the views of a sample share: the image, of which they are augmentations, or only the class.
    everything : bool
        Every batch holds all samples.
    """

    size: int
    views: int = 2
    positives: Literal["image", "class"] = "image"
    everything: bool = False


class Loss(ABC):
    """A contrastive loss at unit-norm features whose classes have collapsed to their means.

    Attributes
    ----------
    name : str
        Key of the loss in the registry, on command lines and in files.
    temperature : float
        tau > 0, dimensionless; similarities are cosines divided by tau.
    lacking : mapping of str to str
        Why a capability may be missing, with the remedy: the end of a sentence.
    """

    name: str
    temperature: float
    lacking: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def rows(self, groups: ClassGroups) -> RowLoss:
        """Rows bound to groups of equal classes; raises `InvalidInputError` where the loss is undefined for them."""

    def groups(self, classes: ClassDistribution) -> ClassGroups:
        """Groups of classes that the loss treats alike.

        Raises
        ------
        InvalidInputError
            Values per class that are not of these classes.
        """
        return classes.groups

    def temperatures(self, groups: ClassGroups) -> Vector:
        """(G,) temperature of the anchors of each group."""
        return np.full(groups.sizes.size, float(self.temperature))

    @property
    def shared_temperature(self) -> float | None:
        """The temperature of all anchors; None where classes have temperatures of their own."""
        return self.temperature

    def require_shared_temperature(self, parameter: str) -> float:
        """The temperature of all anchors; raises `InvalidInputError` where `parameter` needs it and there is none."""
        if self.shared_temperature is None:
            raise InvalidInputError(
                f"`{parameter}` needs one temperature for all classes; got `class_temperatures` (leave one out)"
            )
        return self.shared_temperature

    def coincident(self, groups: ClassGroups) -> npt.NDArray[np.bool_]:
        """(G,) groups whose classes carry no anchor weight, hence coincide exactly at the optimum."""
        return np.zeros(groups.sizes.size, dtype=np.bool_)

    # --- capabilities

    @property
    def gives(self) -> frozenset[str]:
        """What holds for this loss, of

        * "groups": classes of equal probability are interchangeable;
        * "proportions": it depends on class proportions, not on counts;
        * "uniform-negatives": the k negatives of every anchor are drawn from the class proportions (UCL);
        * "strictly-convex": the cosines of the optimum are unique wherever two classes exert a force on each other;
        * "class-weights": it takes weights, margins and temperatures per class (`ClassWeighted`);
        * "log-domain": the risk may be tiny, and its certificate is relative to the risk itself.
        """
        return frozenset({"groups", "proportions", "strictly-convex"})

    def require(self, *capabilities: str) -> None:
        """Raise `IncompatibleError` for the first capability that this loss does not give."""
        for capability in capabilities:
            if capability not in self.gives:
                why = self.lacking.get(capability, f"{self.label()} does not")
                raise IncompatibleError(f"{CAPABILITIES[capability]}; {why}")

    # --- parameters and files

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """The parameters that can be given, searched and scanned, from the registry."""
        entry = registry.find(cls.name)
        return () if entry is None else entry.options

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters for which the given ones leave one value only."""
        return {}

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> Self:
        """The loss of the given parameters; the others are implied by them, or have their defaults."""
        return cls(**{**cls.implied(given), **given})

    def with_options(self, given: Mapping[str, Any]) -> Self:
        """The same loss with some parameters changed, and those that the changes imply."""
        return dataclasses.replace(self, **{**self.implied(given), **given})  # type: ignore[type-var]

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, ready for JSON; infinity is the string "inf"."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return {"name": self.name, **{part.name: plain(getattr(self, part.name)) for part in fields}}

    @staticmethod
    def from_dict(described: Mapping[str, Any]) -> Loss:
        """The loss that `to_dict` described; a `DescribedLoss` where a description cannot make it again.

        Raises
        ------
        InvalidInputError
            Parameters that a registered loss does not have, or outside their domain.
        """
        name = str(described.get("name"))
        if registry.find(name) is None or "psi" in described:
            return DescribedLoss(dict(described))
        given = {
            key: math.inf if value == "inf" else value
            for key, value in described.items()
            if key not in ("name", "note")
        }
        return registry.loss_class(name).from_parameters(given) or DescribedLoss(dict(described))

    @classmethod
    def from_parameters(cls, given: dict[str, Any]) -> Self | None:
        """The loss with the parameters of `to_dict`; None where they do not say all.

        Raises
        ------
        InvalidInputError
            A parameter that this loss does not have, or outside its domain.
        """
        foreign = set(given) - {part.name for part in dataclasses.fields(cls)}  # type: ignore[arg-type]
        if foreign:
            raise InvalidInputError(f"the loss {cls.name} has no parameter {min(foreign)!r} (leave it out)")
        return cls(**given)

    # --- in words

    def label(self) -> str:
        """Short name, for titles."""
        entry = registry.find(self.name)
        return self.name if entry is None else entry.label

    def words(self) -> str:
        """The loss in one line, for people."""
        return ", ".join(filter(None, [self.label(), *(one.say(getattr(self, one.name)) for one in self.options())]))

    def notes(self, classes: ClassDistribution) -> tuple[str, ...]:
        """What batches do to the value for these classes, for people who meet it in their logs."""
        return ()

    # --- values

    @property
    def omitted(self) -> str | None:
        """What the risk leaves out, where it is the limit of large batches.

        The loss of a batch of N images is the risk plus the logarithm of this expression in N; None where nothing is
        left out.
        """
        return None

    def collapsed_formula(self, rows: int | None, value: float) -> str:
        """The value with all features at one point as a formula; `rows` is the size of a batch, where it has one."""
        return "the loss of features at one point"

    def collapsed_of_rows(self, rows: int) -> float:
        """The value with all features at one point for a batch of `rows` rows, whatever their classes."""
        raise IncompatibleError(f"`rows` goes with SupCon; got {self.label()} (give `classes`)")

    def in_rows(self, rows: int | None, classes: ClassDistribution | None) -> tuple[Loss, int | None]:
        """The loss in batches of `rows` rows, and how many rows its batches have.

        Parameters
        ----------
        rows : int or None
            None: as many as the loss says.
        classes : ClassDistribution or None

        Returns
        -------
        (Loss, int or None)
            The second is None where the loss has no batches, or does not know their size.

        Raises
        ------
        InvalidInputError
            `rows` for a loss without batches, or rows that contradict it.
        """
        if rows is not None:
            raise InvalidInputError(
                f"`rows` goes with SupCon, whose batches have rows; got {rows} with another loss "
                "(leave it out, and give `classes`)"
            )
        return self, None

    def on_batch(self) -> tuple[Loss, int]:
        """The loss of one batch whose labels are known, and its rows per image.

        Raises
        ------
        IncompatibleError
            A loss that labels do not give.
        """
        raise IncompatibleError(f"`labels` goes with SupCon; got {self.label()} (give `classes` for other losses)")

    @property
    def published_threshold(self) -> float | None:
        """Majority share that the literature shows to suffice for total collapse; None where it has none."""
        return None

    def on_rows(self, share: Array, *, images: Array, values: ClassValues | None = None) -> DrawnBatches | PairSum:
        """What the loss of explicit rows is, in the units of the risk.

        Parameters
        ----------
        share : (C,)
            Class proportions.
        images : (C,)
            Images of each class in a batch that holds them all.
        values : ClassValues, optional
            `class_values` of these classes.

        Raises
        ------
        IncompatibleError
            A loss that explicit rows do not have.
        InvalidInputError
            Classes on which the loss is undefined.
        """
        raise IncompatibleError(f"`loss` {self.label()} has no loss of explicit rows (give another loss)")

    def class_values(self, classes: ClassDistribution) -> ClassValues | None:
        """Weights and temperatures of every class; None where all classes are alike."""
        return None

    def batch_values(self, cosines: Array, images: Array, values: ClassValues | None = None) -> Array | None:
        """Loss of single batches whose features sit at class means; None where the loss has no batches of a known size.

        Parameters
        ----------
        cosines : (C, C)
            Gram matrix of the class means, in class order.
        images : (b, C)
            Images of each class in each batch.
        values : ClassValues, optional
            `class_values` of these classes.

        Returns
        -------
        (b,) or None
        """
        return None

    @property
    def images_per_batch(self) -> int | None:
        """Images of a batch that are drawn independently; None where the loss does not say."""
        return None

    # --- training

    def sampled(self, batch: int) -> Loss:
        """The loss that batches of `batch` images have: itself, but for a limit of large batches."""
        return self

    def torch_module(self, *, seed: int = 0, classes: ClassDistribution | None = None) -> ContrastiveLoss:
        """The torch module whose expectation is the risk.

        Parameters
        ----------
        seed : int
            Of draws.
        classes : ClassDistribution, optional
            Needed by weights per class; labels are then numbers in this order.

        Raises
        ------
        IncompatibleError
            No finite batch has this risk, or weights without classes.
        """
        raise IncompatibleError(
            "`loss` must have finite batches and negatives, ucl or scl, for an encoder; got "
            f"{type(self).__name__} (give their number)"
        )

    def class_batches(self, classes: ClassDistribution, *, anchors: int) -> ClassBatchLoss:
        """The loss of random batches at class means whose expectation is the risk.

        Parameters
        ----------
        classes : ClassDistribution
        anchors : int
            Anchors per batch, where the loss has no batch size of its own.

        Raises
        ------
        IncompatibleError
            A limit of infinite batches, which only the exact objective has, or a loss without a module.
        """
        raise IncompatibleError(
            "`loss` must be SupCon with a finite batch size or InfoNCE with finitely many negatives to be sampled; "
            f"got {type(self).__name__} (train it on the exact objective)"
        )

    def batch_plan(self, *, batch: int | None, num_samples: int) -> BatchPlan:
        """How an encoder is trained on it.

        Parameters
        ----------
        batch : int or None
            Samples per batch that were asked for.
        num_samples : int
            Of the whole data.

        Raises
        ------
        IncompatibleError
            A batch that contradicts the loss, or a loss that no encoder is trained on.
        """
        self.torch_module()
        return BatchPlan(size=64 if batch is None else batch)


@dataclass(frozen=True, eq=False)
class DescribedLoss(Loss):
    """A loss of which a file kept the description only: your own psi, or one of another version.

    Parameters
    ----------
    description : mapping
        As `to_dict` wrote it.
    """

    description: Mapping[str, Any]

    @property
    def name(self) -> str:  # type: ignore[override]
        return str(self.description.get("name", "loss"))

    @property
    def temperature(self) -> float:  # type: ignore[override]
        return float(self.description.get("temperature", math.nan))

    @property
    def gives(self) -> frozenset[str]:
        return frozenset()

    def rows(self, groups: ClassGroups) -> RowLoss:
        raise IncompatibleError(f"`loss` {self.name} is known by its description only (give the loss itself)")

    def to_dict(self) -> dict[str, Any]:
        return dict(self.description)

    def words(self) -> str:
        parts = [self.name]
        if "psi" in self.description:
            parts.append(f"psi = {self.description['psi']}")
        if "temperature" in self.description:
            parts.append(f"temperature {self.temperature:g}")
        if "negatives" in self.description and "sampling" in self.description:
            parts.append(negatives_words(self.description))
        return ", ".join(parts)


def negatives_words(parameters: Mapping[str, Any]) -> str:
    """Number and origin of the negatives of an anchor."""
    number = parameters["negatives"]
    many = {1: "1 negative", "inf": "infinitely many negatives"}.get(number, f"{number} negatives")
    origin = {"ucl": "from all classes", "scl": "from the other classes only"}
    averaged = " (averaged)" if parameters.get("negatives_reduction") == "mean" else ""
    return f"{many} {origin.get(parameters['sampling'], 'from an explicit law')}{averaged}"


def plain(value: Any) -> Any:
    """A parameter as JSON can hold it: infinity becomes the string "inf", an array a list."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    return "inf" if isinstance(value, float) and value == math.inf else value
