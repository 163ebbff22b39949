r"""The cells of a scan: which class proportions and which losses, in an order that depends on nothing but the values.

Every family of proportions is one formula. With the imbalance factor IF (most over least frequent class) and positions
x_i in [0, 1],

    lam_i ~ IF^(-x_i),      majority: x = (0, 1, .., 1)     step: 0 for the first ceil(C/2) classes, 1 for the rest
                            exp: x_i = i / (C - 1)          zipf: x_i = log(i + 1) / log C, hence lam_i ~ (i + 1)^(-s), s = log IF / log C.

These are the proportions that the profiles of the same names round to whole counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError, OptGeomError
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import InfoNCE, Loss, SupCon

PROFILES = ("majority", "exp", "step", "zipf")
LOSSES = ("infonce", "supcon")
SAMPLINGS = ("ucl", "scl")
MOST_CELLS = 10_000_000  # a row is some 2 kB in memory
Values = float | str | Iterable[Any]


@dataclass(frozen=True)
class Path:
    """All cells that differ in how imbalanced the classes are, and in nothing else.

    None where a parameter is not of this loss.
    """

    loss: str
    sampling: str
    negatives: float | None
    batch_size: float | None
    views: int | None
    alpha: float | None
    negatives_reduction: str
    temperature: float
    profile: str
    num_classes: int
    tolerance: float

    def build_loss(self) -> Loss:
        """The loss of this path; raises `InvalidInputError` for a combination that does not exist."""
        if self.loss == "supcon":
            assert self.batch_size is not None and self.views is not None
            return SupCon(self.temperature, self.batch_size, self.views)
        assert self.negatives is not None and self.alpha is not None
        return InfoNCE(self.temperature, self.negatives, self.alpha, self.negatives_reduction, self.sampling)

    def positions(self) -> Array:
        """(C,) exponents x_i of 1/IF."""
        i = np.arange(self.num_classes)
        if self.profile == "exp":
            return np.asarray(i / (self.num_classes - 1))
        if self.profile == "zipf":
            return np.asarray(np.log1p(i) / math.log(self.num_classes))
        head = 1 if self.profile == "majority" else (self.num_classes + 1) // 2
        return np.where(i < head, 0.0, 1.0)

    def log_odds(self, log_imbalance: float) -> float:
        """Log of the odds of the first class against all others together."""
        exponents = -log_imbalance * self.positions()[1:]
        top = float(exponents.max())
        return -(top + math.log(float(np.exp(exponents - top).sum())))

    @property
    def groups(self) -> int:
        """Number of groups of equal classes, which the cost of a cell grows with."""
        return 2 if self.profile in ("majority", "step") else self.num_classes


@dataclass(frozen=True)
class Cell:
    """One point of the grid."""

    path: Path
    imbalance: float
    majority: float
    majority_odds: float

    def build_classes(self) -> ClassDistribution:
        """Proportions of this cell; equal classes are exactly equal."""
        if self.path.profile == "majority":
            return ClassDistribution.from_groups([self.imbalance, 1.0], [1, self.path.num_classes - 1])
        return ClassDistribution.from_counts(np.exp(-math.log(self.imbalance) * self.path.positions()))

    def coordinates(self) -> dict[str, Any]:
        """The coordinates as plain values, in the order of the columns."""
        path = {name: getattr(self.path, name) for name in Path.__dataclass_fields__}
        return {**path, "imbalance": self.imbalance, "majority": self.majority, "majority_odds": self.majority_odds}

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes this cell itself; also its place in the order."""
        return key_of(self.coordinates())


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Key of a row: the parameters of its path, then the one number that its proportions were computed from.

    Odds and imbalance are computed from what was given by single divisions and products, which every machine rounds
    alike. Shares of the other profiles are sums of exponentials, which are not, and would make a file from another
    machine unknown.
    """
    position = row["majority_odds"] if row["profile"] == "majority" else row["imbalance"]
    values = [row[name] for name in Path.__dataclass_fields__] + [position]
    return tuple((value is not None, 0 if value is None else value) for value in values)


def values_of(name: str, given: Values) -> list[Any]:
    """A single value, or a sequence of them, as a list without repetitions."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [given]
    values = list(dict.fromkeys(value.item() if isinstance(value, np.generic) else value for value in given))
    if not values:
        raise InvalidInputError(f"`{name}` must hold at least one value; got none (give a number or a list)")
    return values


def _reals(
    name: str, given: Values, above: float | None = None, at_least: float | None = None, hint: str = ""
) -> list[float]:
    return [_checks.real(name, value, above=above, at_least=at_least, hint=hint) for value in values_of(name, given)]


def _integers(name: str, given: Values, at_least: int, infinite: bool = False, hint: str = "") -> list[float]:
    check = _checks.integer_or_inf if infinite else _checks.integer
    return [check(name, value, at_least=at_least, hint=hint) for value in values_of(name, given)]


def _choices(name: str, given: Values, allowed: tuple[str, ...]) -> list[str]:
    return [_checks.choice(name, value, allowed) for value in values_of(name, given)]


def build_grid(
    *,
    majority: Values | None,
    majority_odds: Values | None,
    imbalance: Values | None,
    classes: Values,
    temperature: Values,
    negatives: Values | None,
    batch_size: Values | None,
    sampling: Values | None,
    alpha: float | None,
    negatives_reduction: str | None,
    loss: str | None,
    views: int | None,
    profile: str,
    tolerance: float,
) -> list[Cell]:
    """All cells of the grid, sorted; see `scan` for the parameters.

    Raises
    ------
    InvalidInputError
        A value outside its domain, parameters that do not go together, or a grid on which the loss exists nowhere.
    """
    _checks.choice("profile", profile, PROFILES)
    _checks.real("tolerance", tolerance, above=0.0, hint="the default is 1e-8")
    axis, positions = _class_axis(profile, majority=majority, majority_odds=majority_odds, imbalance=imbalance)
    sizes = [int(number) for number in _integers("classes", classes, at_least=2, hint="no geometry with one class")]
    temperatures = _reals("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    losses = _losses(loss, negatives, batch_size, sampling, alpha, negatives_reduction, views)
    number = len(positions) * len(sizes) * len(temperatures) * len(losses)
    if number > MOST_CELLS:
        raise InvalidInputError(
            f"the grid must have at most {MOST_CELLS} cells; got {number} (give shorter axes, or scan it in parts)"
        )
    paths = [
        Path(**parameters, temperature=tau, profile=profile, num_classes=size, tolerance=tolerance)
        for parameters, tau, size in itertools.product(losses, temperatures, sizes)
    ]
    _check_losses(paths)
    cells = {cell.key: cell for path in paths for cell in (_cell(path, axis, value) for value in positions)}
    return [cells[key] for key in sorted(cells)]


def _class_axis(profile: str, **given: Values | None) -> tuple[str, list[float]]:
    """Which of majority share, odds and imbalance was given, with its values."""
    named = [name for name, values in given.items() if values is not None]
    if len(named) != 1:
        raise InvalidInputError(
            f"give exactly one of {', '.join(f'`{name}`' for name in given)}; got {' and '.join(named) or 'none'}"
        )
    axis = named[0]
    if profile != "majority" and axis != "imbalance":
        raise InvalidInputError(
            f"`{axis}` goes with profile 'majority'; got {profile!r} (give `imbalance`, largest over smallest class)"
        )
    values = given[axis]
    assert values is not None
    if axis == "imbalance":
        return axis, _reals(axis, values, at_least=1.0, hint="most over least frequent class; 1 is balanced")
    numbers = _reals(
        axis, values, above=0.0, hint="a share is between 0 and 1" if axis == "majority" else "1 and above, as a rule"
    )
    wrong = [number for number in numbers if axis == "majority" and number >= 1]
    if wrong:
        raise InvalidInputError(
            f"`majority` must be below 1; got {wrong[0]!r} (shares that round to 1 are given as `majority_odds`)"
        )
    return axis, numbers


def _losses(
    loss: str | None,
    negatives: Values | None,
    batch_size: Values | None,
    sampling: Values | None,
    alpha: float | None,
    negatives_reduction: str | None,
    views: int | None,
) -> list[dict[str, Any]]:
    """Parameters of every loss of the grid, in the order of the fields of `Path`, without the temperature."""
    of_infonce = {
        "negatives": negatives,
        "sampling": sampling,
        "alpha": alpha,
        "negatives_reduction": negatives_reduction,
    }
    of_supcon = {"batch_size": batch_size, "views": views}
    if loss is None:
        loss = "infonce" if any(value is not None for value in of_infonce.values()) else "supcon"
    _checks.choice("loss", loss, LOSSES)
    foreign = of_supcon if loss == "infonce" else of_infonce
    for name, value in foreign.items():
        if value is not None:
            other = "supcon" if loss == "infonce" else "infonce"
            raise InvalidInputError(
                f"`{name}` goes with loss {other!r}; got it for {loss!r} (leave it out, or give the other loss)"
            )
    if loss == "supcon":
        sizes = _integers(
            "batch_size", math.inf if batch_size is None else batch_size, 2, True, "inf is the limit of large batches"
        )
        seen = _checks.integer("views", 2 if views is None else views, at_least=1)
        return [_parameters("supcon", "ucl", batch_size=size, views=seen) for size in sizes]
    numbers = _integers(
        "negatives", 256 if negatives is None else negatives, 1, True, "inf is the limit of many negatives"
    )
    laws = _choices("sampling", "ucl" if sampling is None else sampling, SAMPLINGS)
    kept = _checks.real(
        "alpha", 1.0 if alpha is None else alpha, at_least=0.0, hint="1 keeps the positive in the denominator"
    )
    if negatives_reduction is not None:
        _checks.choice("negatives_reduction", negatives_reduction, ("sum", "mean"))

    def reduction(number: float) -> str:
        # Infinitely many negatives can only be averaged.
        return negatives_reduction or ("mean" if number == math.inf else "sum")

    return [
        _parameters("infonce", law, negatives=number, alpha=kept, negatives_reduction=reduction(number))
        for law, number in itertools.product(laws, numbers)
    ]


def _parameters(loss: str, sampling: str, **given: Any) -> dict[str, Any]:
    of_another_loss = {"negatives": None, "batch_size": None, "views": None, "alpha": None, "negatives_reduction": ""}
    return {"loss": loss, "sampling": sampling, **of_another_loss, **given}


def _check_losses(paths: list[Path]) -> None:
    """A loss that exists on part of the grid leaves failed cells behind.

    One that exists nowhere is a mistake to be told at once.
    """
    first: OptGeomError | None = None
    for path in paths:
        try:
            path.build_loss()
        except OptGeomError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _cell(path: Path, axis: str, value: float) -> Cell:
    others = path.num_classes - 1
    if axis == "majority":
        odds = value / (1 - value)
        return Cell(path, odds * others, value, odds)
    if axis == "majority_odds":
        return Cell(path, value * others, 1 / (1 + 1 / value), value)
    if path.profile == "majority":
        odds = value / others
        return Cell(path, value, 1 / (1 + 1 / odds), odds)
    odds = math.exp(path.log_odds(math.log(value)))
    return Cell(path, value, 1 / (1 + 1 / odds), odds)
