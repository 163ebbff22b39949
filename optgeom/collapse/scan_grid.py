r"""The cells of a scan: which classes and which losses, in an order that depends on nothing but the values.

Every family of proportions is one formula. With the imbalance factor IF (most over least frequent class) and positions
x_i in [0, 1],

    lam_i ~ IF^(-x_i),      majority: x = (0, 1, .., 1)     step: 0 for the first ceil(C/2) classes, 1 for the rest
                            exp: x_i = i / (C - 1)          zipf: x_i = log(i + 1) / log C, hence lam_i ~ (i + 1)^(-s),
                                                            s = log IF / log C.

These are the proportions that the profiles of the same names round to whole counts.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.choices import Shape
from optgeom.collapse.thresholds import LARGEST_LOG_ODDS, collapse_margin, collapse_threshold
from optgeom.errors import InvalidInputError, OptGeomError
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss
from optgeom.losses.base import plain

CLASS_AXES = ("majority", "majority_odds", "imbalance")
MOST_CELLS = 10_000_000  # a row is some 2 kB in memory
# Columns that tell the settings of a scan apart, besides the JSON of the loss; None or "" where a loss lacks one.
SETTING = (
    *("loss", "sampling", "negatives", "batch_size", "views", "alpha", "negatives_reduction", "temperature"),
    *("profile", "num_classes", "tolerance"),
)
Values = float | str | Iterable[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """All cells that differ in how imbalanced the classes are, and in nothing else.

    Attributes
    ----------
    loss : Loss
        The loss of the scan, before its axes.
    changes : dict
        Parameters of the loss that the axes set here.
    shape : str
        How class sizes fall; "given:" and a digest for classes that were given.
    num_classes : int
    tolerance : float
    classes : ClassDistribution or None
        The classes that were given.
    """

    loss: Loss
    changes: dict[str, Any]
    shape: str
    num_classes: int
    tolerance: float
    classes: ClassDistribution | None = None

    def build_loss(self) -> Loss:
        """The loss of this setting; raises `InvalidInputError` for a combination that does not exist."""
        return self.loss.with_options(self.changes) if self.changes else self.loss  # type: ignore[return-value]

    @functools.cached_property
    def columns(self) -> dict[str, Any]:
        """The columns of `SETTING`, and `parameters`: name and all parameters of the loss as JSON."""
        try:
            described = self.build_loss().to_dict()
        except OptGeomError:
            implied = self.loss.implied(self.changes)
            described = {
                **self.loss.to_dict(),
                **{key: plain(value) for key, value in {**implied, **self.changes}.items()},
            }
        described.pop("note", None)
        return {
            **setting_columns(described),
            "profile": self.shape,
            "num_classes": self.num_classes,
            "tolerance": self.tolerance,
            "parameters": json.dumps(described),
        }

    def positions(self) -> Array:
        """(C,) exponents x_i of 1/IF."""
        i = np.arange(self.num_classes)
        if self.shape == "exp":
            return np.asarray(i / (self.num_classes - 1))
        if self.shape == "zipf":
            return np.asarray(np.log1p(i) / math.log(self.num_classes))
        head = 1 if self.shape == "majority" else (self.num_classes + 1) // 2
        return np.where(i < head, 0.0, 1.0)

    def log_odds(self, log_imbalance: float) -> float:
        """Log of the odds of the first class against all others together."""
        exponents = -log_imbalance * self.positions()[1:]
        top = float(exponents.max())
        return -(top + math.log(float(np.exp(exponents - top).sum())))

    @property
    def groups(self) -> int:
        """Number of groups of equal classes, which the cost of a cell grows with."""
        if self.classes is not None:
            return int(self.classes.groups.sizes.size)
        return 2 if self.shape in ("majority", "step") else self.num_classes

    @functools.cached_property
    def threshold(self) -> tuple[float | None, float | None]:
        """Log odds and imbalance at which total collapse begins; None where there is no such point in floating point.

        With negatives from all classes the odds depend neither on the number of minority classes nor on their split.
        Where they do, and the split changes along with the imbalance, there is no one threshold.
        """
        # Two classes have no minority to collapse, and steps have several majorities.
        if self.num_classes < 3 or self.shape == "step":
            return None, None
        try:
            loss = self.build_loss()
            if self.classes is not None:
                margin = collapse_margin(self.classes, loss)
                return (None if margin is None else margin.threshold_log_odds), None
            if self.shape != "majority" and "uniform-negatives" not in loss.gives:
                return None, None
            log_odds = collapse_threshold(loss, minorities=self.num_classes - 1).log_odds
        except OptGeomError:
            return None, None
        log_imbalance = self._imbalance_at(log_odds)
        return log_odds, math.exp(log_imbalance) if log_imbalance < LARGEST_LOG_ODDS else None

    def _imbalance_at(self, log_odds: float) -> float:
        """Log imbalance at which the first class has these odds; inf beyond floating point."""
        if self.shape == "majority":
            return log_odds + math.log(self.num_classes - 1)

        def beyond(log_imbalance: float) -> float:
            return self.log_odds(log_imbalance) - log_odds

        if beyond(LARGEST_LOG_ODDS) < 0:
            return math.inf
        from scipy.optimize import brentq

        return float(brentq(beyond, 0.0, LARGEST_LOG_ODDS, xtol=1e-13, rtol=1e-14))


def setting_columns(described: Mapping[str, Any]) -> dict[str, Any]:
    """The flat columns of a loss, from its `to_dict`."""
    values = {name: math.inf if value == "inf" else value for name, value in described.items()}
    return {
        "loss": str(described["name"]),
        "sampling": str(values.get("sampling", "ucl")),  # files of 0.1.0 have it for SupCon too
        "negatives": values.get("negatives"),
        "batch_size": values.get("batch_size"),
        "views": values.get("views"),
        "alpha": _float(values.get("alpha")),
        "negatives_reduction": str(values.get("negatives_reduction", "")),
        "temperature": _float(values.get("temperature")),
    }


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One point of the grid."""

    setting: Setting
    imbalance: float
    majority: float
    majority_odds: float

    def build_classes(self) -> ClassDistribution:
        """Proportions of this cell; equal classes are exactly equal."""
        setting = self.setting
        if setting.classes is not None:
            return setting.classes
        if setting.shape == "majority":
            return ClassDistribution.from_groups([self.imbalance, 1.0], [1, setting.num_classes - 1])
        return ClassDistribution.from_counts(np.exp(-math.log(self.imbalance) * setting.positions()))

    @property
    def log_odds(self) -> float:
        """Log of the odds of the first class against all others together."""
        if self.setting.classes is not None or self.setting.shape == "majority":
            return math.log(self.majority_odds)
        return self.setting.log_odds(math.log(self.imbalance))

    def coordinates(self) -> dict[str, Any]:
        """The coordinates as plain values."""
        imbalance = {"imbalance": self.imbalance, "majority": self.majority, "majority_odds": self.majority_odds}
        return {**self.setting.columns, **imbalance}

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes this cell itself; also its place in the order."""
        return key_of(self.coordinates())


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Key of a row: its setting, all parameters of its loss, then the number that its proportions were computed from.

    Odds and imbalance are computed from what was given by single divisions and products, which every machine rounds
    alike. Shares of the other shapes are sums of exponentials, which are not, and would make a file from another
    machine unknown.
    """
    position = row["majority_odds"] if row["profile"] == "majority" else row["imbalance"]
    columns = tuple(_orderly(row[name]) for name in SETTING)
    return (columns, _parameter_items(row["parameters"]), _orderly(position))


def _orderly(value: Any) -> tuple[int, Any]:
    """A value that can be compared with those of other kinds: nothing, then numbers, then text."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, (int, float)) else (2, value)


def _parameter_items(parameters: str) -> tuple[tuple[str, tuple[int, Any]], ...]:
    return tuple((name, _orderly(value)) for name, value in sorted(_described(parameters).items()))


def expand(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with every parameter of their losses as a column; None where a loss lacks it."""
    described = [_described(row["parameters"]) for row in rows]
    further = dict.fromkeys(name for parameters in described for name in parameters if name not in rows[0])
    return [
        {**row, **{name: parameters.get(name) for name in further}}
        for row, parameters in zip(rows, described, strict=True)
    ]


@functools.lru_cache(maxsize=65536)
def _described(parameters: str) -> dict[str, Any]:
    """The parameters of a loss, without its name; lists as text, so that they can be compared."""
    values = {name: value for name, value in json.loads(parameters).items() if name != "name"}
    return {
        name: math.inf if value == "inf" else json.dumps(value) if isinstance(value, (list, dict)) else value
        for name, value in values.items()
    }


def _values_of(name: str, given: Values) -> list[Any]:
    """A single value, or a sequence of them, as a list without repetitions."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [given]
    values = list(dict.fromkeys(value.item() if isinstance(value, np.generic) else value for value in given))
    if not values:
        raise InvalidInputError(f"`{name}` must hold at least one value; got none (give a number or a list)")
    return values


def build_grid(
    classes: ClassDistribution | int | None, loss: Loss, axes: Mapping[str, Values], shape: str, tolerance: float
) -> list[Cell]:
    """All cells of the grid, sorted; see `scan` for the parameters.

    Raises
    ------
    InvalidInputError
        A value outside its domain, axes that do not go together, or a grid on which the loss exists nowhere.
    IncompatibleError
        A loss of counts without classes that have counts.
    """
    _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    _checks.instance("axes", axes, Mapping, "for example {'majority': [0.5, 0.9]}", what="a mapping")  # type: ignore[type-abstract]
    _checks.choice("shape", shape, Shape)
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-8")
    values = {name: _values_of(name, given) for name, given in axes.items()}
    of_classes = {name: values.pop(name) for name in (*CLASS_AXES, "num_classes") if name in values}
    _check_parameters(loss, values)
    given = classes if isinstance(classes, ClassDistribution) else None
    if given is None:
        loss.require("proportions")
        axis, positions = _class_axis(shape, {name: of_classes[name] for name in CLASS_AXES if name in of_classes})
        sizes = _numbers_of_classes(classes, of_classes.get("num_classes"))
    else:
        if of_classes:
            raise InvalidInputError(
                f"`{min(of_classes)}` varies classes, but they were given (leave one of the two out)"
            )
        axis, positions, sizes, shape = "", [given.imbalance_factor], [given.num_classes], f"given:{_digest(given)}"
    changes = [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]
    number = len(positions) * len(sizes) * len(changes)
    if number > MOST_CELLS:
        raise InvalidInputError(
            f"the grid must have at most {MOST_CELLS} cells; got {number} (give shorter axes, or scan it in parts)"
        )
    settings = [
        Setting(loss=loss, changes=changed, shape=shape, num_classes=size, tolerance=tolerance, classes=given)
        for changed, size in itertools.product(changes, sizes)
    ]
    _check_losses(settings)
    cells = {cell.key: cell for setting in settings for cell in (_cell(setting, axis, value) for value in positions)}
    return [cells[key] for key in sorted(cells)]


def _check_parameters(loss: Loss, values: dict[str, list[Any]]) -> None:
    """Refuse axes that the loss lacks, and values that it takes with no other parameters."""
    parts = sorted(dataclasses.fields(loss), key=lambda part: bool(part.kw_only))  # type: ignore[arg-type]
    fields = [part.name for part in parts]
    foreign = [name for name in values if name not in fields]
    if foreign:
        known = ", ".join((*CLASS_AXES, "num_classes"))
        raise InvalidInputError(
            f"`axes` must name parameters of {loss.label()} ({', '.join(fields)}) or of the classes "
            f"({known}); got {foreign[0]!r}"
        )
    try:
        usual: Loss = type(loss)()
    except TypeError:  # a loss that cannot do without some parameter, as your own psi
        usual = loss
    for name, given in values.items():
        for value in given:
            usual.with_options({name: value})


def _numbers_of_classes(classes: Any, axis: list[Any] | None) -> list[int]:
    if axis is not None and classes is not None:
        raise InvalidInputError("`classes` and the axis `num_classes` must not both be given (leave one out)")
    if axis is None:
        if classes is not None and (isinstance(classes, bool) or not isinstance(classes, (int, np.integer))):
            _checks.instance("classes", classes, ClassDistribution, "or the number of classes of a shape")
        axis = [10 if classes is None else classes]
    name = "classes" if classes is not None else "num_classes"
    return [_checks.integer(name, number, at_least=2, hint="no geometry with one class") for number in axis]


def _digest(classes: ClassDistribution) -> str:
    """Sixteen digits that tell given classes apart."""
    content = classes.proportions.tobytes() + (b"" if classes.counts is None else classes.counts.tobytes())
    return hashlib.sha256(content).hexdigest()[:16]


def _class_axis(shape: str, given: dict[str, list[Any]]) -> tuple[str, list[float]]:
    """Which of majority share, odds and imbalance was given, with its values."""
    if len(given) != 1:
        names = ", ".join(f"`{name}`" for name in CLASS_AXES)
        raise InvalidInputError(f"`axes` must hold exactly one of {names}; got {' and '.join(given) or 'none'}")
    ((axis, values),) = given.items()
    if shape != "majority" and axis != "imbalance":
        raise InvalidInputError(
            f"`{axis}` goes with shape 'majority'; got {shape!r} (give `imbalance`, largest over smallest class)"
        )
    if axis == "imbalance":
        hint = "most over least frequent class; 1 is balanced"
        return axis, [_checks.real(axis, value, at_least=1.0, hint=hint) for value in values]
    hint = "a share is between 0 and 1" if axis == "majority" else "1 and above, as a rule"
    numbers = [_checks.real(axis, value, above=0.0, hint=hint) for value in values]
    wrong = [number for number in numbers if axis == "majority" and number >= 1]
    if wrong:
        raise InvalidInputError(
            f"`majority` must be below 1; got {wrong[0]!r} (shares that round to 1 are given as `majority_odds`)"
        )
    return axis, numbers


def _check_losses(settings: list[Setting]) -> None:
    """Raise the first error of a loss that exists nowhere on the grid.

    Where it exists on a part of the grid, the other cells are rows with their error.
    """
    first: OptGeomError | None = None
    for setting in settings:
        try:
            setting.build_loss()
        except OptGeomError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _cell(setting: Setting, axis: str, value: float) -> Cell:
    others = setting.num_classes - 1
    if setting.classes is not None:
        shares = np.sort(setting.classes.proportions)
        odds, majority = float(shares[-1] / shares[:-1].sum()), float(shares[-1])
        return Cell(setting=setting, imbalance=value, majority=majority, majority_odds=odds)
    if axis == "majority":
        odds = value / (1 - value)
        return Cell(setting=setting, imbalance=odds * others, majority=value, majority_odds=odds)
    if axis == "majority_odds":
        return Cell(setting=setting, imbalance=value * others, majority=1 / (1 + 1 / value), majority_odds=value)
    odds = value / others if setting.shape == "majority" else math.exp(setting.log_odds(math.log(value)))
    return Cell(setting=setting, imbalance=value, majority=1 / (1 + 1 / odds), majority_odds=odds)
