"""A prescribed loss: its values per class, what it costs and gains, its torch module and its file."""

from __future__ import annotations

import csv
import functools
import io
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optgeom._numerics import Array
from optgeom.certificates import Certificate
from optgeom.collapse.ranges import SlackNeeded, slack_needed
from optgeom.collapse.targets import Target
from optgeom.errors import InvalidInputError
from optgeom.formatting import to_json
from optgeom.geometry import Geometry
from optgeom.inputs import files
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.solvers.api import solve

if TYPE_CHECKING:
    from optgeom.training.losses import ContrastiveLoss

NAMED_IN_CODE = 20  # classes up to which `code` writes their values down


@dataclass(frozen=True, eq=False)
class Before:
    """The loss as it was.

    Attributes
    ----------
    geometry : Geometry
        Its optimum.
    slack_needed : SlackNeeded
        At which its angles are fixed to 2 degrees.
    """

    geometry: Geometry
    slack_needed: SlackNeeded

    @property
    def min_angle_deg(self) -> float:
        """Smallest angle of its optimum, in degrees."""
        return self.geometry.min_angle_deg

    @property
    def max_angle_deg(self) -> float:
        """Largest angle of its optimum, in degrees."""
        return self.geometry.farthest_pairs(1)[0].angle_deg

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "slack_needed": self.slack_needed.as_dict(),
            "min_angle_deg": self.min_angle_deg,
            "max_angle_deg": self.max_angle_deg,
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Prescription:
    """A loss whose optimum is a wanted geometry.

    Attributes
    ----------
    classes : ClassDistribution
    loss : Loss
        With the weights, margins or temperatures that were found.
    certificate : Certificate
        Of the target under `loss`. Not certified where one value per class cannot do it exactly in finite batches:
        `distance_deg` then says how far off the optimum is.
    geometry : Geometry
        The optimum of `loss`: the target itself where it is certified.
    distance_deg : float
        Largest difference between an angle of the target and that of `geometry`, in degrees.
    target : Target
    by : str
    strength : float
    given : Loss
        The loss before.
    notes : tuple of str
    """

    classes: ClassDistribution
    loss: Loss
    certificate: Certificate
    geometry: Geometry
    distance_deg: float
    target: Target
    by: str
    strength: float
    given: Loss
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        state = "certified" if self.certificate.certified else f"{self.distance_deg:.3g} degrees off"
        return f"Prescription(by={self.by!r}, target={self.target.words!r}, {state})"

    @functools.cached_property
    def slack_needed(self) -> SlackNeeded:
        """How closely the loss must be minimised to fix every angle to 2 degrees (computed when asked for)."""
        return slack_needed(self.geometry)

    @functools.cached_property
    def before(self) -> Before:
        """The same of the loss as it was given (computed when asked for)."""
        geometry = solve(self.classes, self.given)
        return Before(geometry, slack_needed(geometry))

    def records(self) -> list[dict[str, Any]]:
        """One dictionary per class: name, anchor_weight, negative_weight, margin, temperature.

        Weights of anchors have the mean 1 over the images; the weight of negatives is None where every pair of classes
        has one of its own.
        """
        values = self.loss.class_values(self.classes)
        number = self.classes.num_classes
        anchor = np.ones(number) if values is None else values.anchor
        temperature = np.full(number, self.loss.temperature) if values is None else values.temperature
        margin = getattr(self.loss, "margin", None) or {}
        negative: list[float | None] = [None] * number
        if self._table is None and not getattr(self.loss, "averages_batches", False):
            plain: list[float] = np.ones(number).tolist()
            negative = list(plain if values is None else self._negative(values.negative, margin, temperature))
        return [
            {
                "name": name,
                "anchor_weight": float(anchor[place]),
                "negative_weight": negative[place],
                "margin": float(margin.get(name, 0.0)),
                "temperature": float(temperature[place]),
            }
            for place, name in enumerate(self.classes.names)
        ]

    def _negative(self, table: Array, margin: Any, temperature: Array) -> list[float]:
        """Weights of negatives per class, without the margins that each anchor adds."""
        last = self.classes.num_classes - 1
        shift = [math.exp(margin.get(name, 0.0) / temperature[place]) for place, name in enumerate(self.classes.names)]
        column = [float(table[0, j] / shift[0]) for j in range(1, last + 1)]
        return [float(table[last, 0] / shift[last]), *column]

    @property
    def _table(self) -> Array | None:
        given = getattr(self.loss, "negative_weights", None)
        return np.array(given) if isinstance(given, tuple) else None

    def torch_module(self, *, seed: int = 0, batch_size: int = 256) -> ContrastiveLoss:
        """The torch module that trains it, for labels 0 to C - 1 in class order.

        Parameters
        ----------
        seed : int
            Of draws.
        batch_size : int
            Images per batch, where the loss is the limit of large batches: the batches' own optimum then differs from
            the target, by little where every class is in most batches.

        Raises
        ------
        IncompatibleError
            A loss that no finite batch has.
        """
        return self.loss.sampled(batch_size).torch_module(seed=seed, classes=self.classes)

    @property
    def needs_file(self) -> bool:
        """Whether the values are too many to be written down in `code`."""
        return self.classes.num_classes > NAMED_IN_CODE or self._table is not None

    def code(self, path: str | None = None) -> str:
        """Lines of Python that make the torch module; from the file `path` if it was saved there."""
        if path is not None or self.needs_file:
            file = "prescription.json" if path is None else path
            made = f'json.loads(Path({file!r}).read_text())["loss"]'
            imports = ["import json", "from pathlib import Path", "import optgeom as og"]
            lines = [*imports, f"loss = og.Loss.from_dict({made})"]
        else:
            described = {key: value for key, value in self.loss.to_dict().items() if key not in ("name", "note")}
            shown = (f"    {key}={_python(value)}," for key, value in described.items())
            math_needed = ["import math"] if "inf" in described.values() else []
            lines = [*math_needed, "import optgeom as og", f"loss = og.{type(self.loss).__name__}(", *shown, ")"]
        shares = f"{self.classes.proportions.tolist()!r}, {list(self.classes.names)!r}"
        classes = f"og.ClassDistribution.from_proportions({shares})"
        if self.classes.counts is not None:
            counts = dict(zip(self.classes.names, self.classes.counts.tolist(), strict=True))
            classes = f"og.ClassDistribution.from_counts({counts!r})"
        if self.classes.num_classes > NAMED_IN_CODE:
            classes = "...  # as they were given here"
        batch = ".sampled(256)" if self.loss.images_per_batch is None and hasattr(self.loss, "batch_size") else ""
        return "\n".join(
            [
                *lines,
                f"classes = {classes}",
                f"criterion = loss{batch}.torch_module(classes=classes)  # criterion(embeddings, labels)",
            ]
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `as_dict` to `.json`, or the values of every class to `.csv`.

        Raises
        ------
        InvalidInputError
            Another ending, or a path that cannot be written.
        """
        suffix = Path(path).suffix.lower()
        if suffix == ".json":
            files.write_text(path, json.dumps(self.as_dict(), allow_nan=False))
            return
        if suffix != ".csv":
            raise InvalidInputError(f"a prescription is saved as .json or .csv; got {str(path)!r}")
        table, records = self._table, self.records()
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if table is None:
            writer.writerow(list(records[0]))
            writer.writerows(list(record.values()) for record in records)
        else:
            kept = [key for key in records[0] if key != "negative_weight"]
            writer.writerow([*kept, *(f"negative_weight of {name}" for name in self.classes.names)])
            for record, weights in zip(records, table.tolist(), strict=True):
                writer.writerow([*(record[key] for key in kept), *weights])
        files.write_text(path, text.getvalue())

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        table = self._table
        described: dict[str, Any] = to_json(
            {
                "by": self.by,
                "target": self.target.words,
                "strength": self.strength,
                "classes": self.records(),
                "weights": None if table is None else table.tolist(),
                "certificate": self.certificate.as_dict(),
                "distance_deg": self.distance_deg,
                "min_angle_deg": self.geometry.min_angle_deg,
                "max_angle_deg": self.geometry.farthest_pairs(1)[0].angle_deg,
                "slack_needed": self.slack_needed.as_dict(),
                "before": self.before.as_dict(),
                "loss": self.loss.to_dict(),
                "loss_words": self.loss.words(),
                "notes": list(self.notes),
            }
        )
        return described


def _python(value: Any) -> str:
    return "math.inf" if value == "inf" else repr(value)
