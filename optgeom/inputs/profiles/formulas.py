"""Class counts that are given by a formula, as the long-tailed benchmarks are."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError

MOST_CLASSES = 10_000_000  # a slip of the keyboard beyond
MOST_DIGITS = 300
_CIFAR_SOURCE = "Cui, Jia, Lin, Song, Belongie 2019, arXiv 1901.05555 (exponential long-tailed CIFAR)"


@dataclass(frozen=True)
class Formula:
    """One kind of formula: how it is written, what it means, and what evaluates it."""

    usage: str
    meaning: str
    source: str
    evaluate: Callable[[str, list[str]], npt.NDArray[np.int64] | npt.NDArray[np.float64]]
    """(name, arguments) -> (C,) counts (int64) or proportions (float64)."""


def exponential(n_max: int, classes: int, imbalance: float, name: str) -> npt.NDArray[np.int64]:
    """``floor(n_max * (1/imbalance)^(i/(C-1)))`` for i = 0..C-1."""
    return _floors([n_max * (1 / imbalance) ** (i / (classes - 1)) for i in range(classes)], name)


def step(n_max: int, classes: int, imbalance: float, name: str) -> npt.NDArray[np.int64]:
    """`n_max` for the first ceil(C/2) classes, ``floor(n_max / imbalance)`` for the rest."""
    head = (classes + 1) // 2
    return np.repeat(_floors([n_max, n_max / imbalance], name, stride=head), [head, classes - head])


def zipf(classes: int, exponent: float, name: str) -> npt.NDArray[np.float64]:
    """Proportions ~ i^-exponent for i = 1..C."""
    logs = -exponent * np.log(np.arange(1, classes + 1))
    weights = np.exp(logs - logs.max())
    if weights.min() < np.finfo(np.float64).tiny:
        raise InvalidInputError(
            f"profile `{name}`: the rarest class is below the range of floats; got s = {exponent:g} (lower s)"
        )
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def majority(classes: int, share: float) -> npt.NDArray[np.float64]:
    """One class with proportion `share`, the C-1 others equal."""
    return np.array([share] + [(1 - share) / (classes - 1)] * (classes - 1))


def _floors(values: list[float], name: str, stride: int = 1) -> npt.NDArray[np.int64]:
    """Floors that rounding cannot push below the whole number that was meant.

    Value k belongs to class ``k * stride``.
    """
    # 5000 * (1/100)^(9/9) is 50 on paper; powers and quotients are right to a few 1e-16, so 1e-9 below is rounding and
    # nothing else.
    floors = [round(value) if abs(value - round(value)) <= 1e-9 * value else math.floor(value) for value in values]
    if 0 in floors:
        index = floors.index(0) * stride
        raise InvalidInputError(
            f"profile `{name}` must leave a sample in every class; got 0 for class {index} (lower IF or raise n_max)"
        )
    return np.array(floors, dtype=np.int64)


def _classes(name: str, text: str) -> int:
    number = _whole(text)
    if number is None or not 2 <= number <= MOST_CLASSES:
        reason = "no geometry with one class: " if number == 1 else ""
        raise InvalidInputError(
            f"profile `{name}`: {reason}C must be a whole number >= 2; got {text!r} (at most {MOST_CLASSES})"
        )
    return number


def _whole(text: str) -> int | None:
    """The whole number in `text`; None for other text and for more digits than any count has."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def _real(name: str, what: str, text: str, low: float, high: float, need: str) -> float:
    """A number in [low, high]; the caller leaves the ends out by giving their neighbours."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise InvalidInputError(f"profile `{name}`: {what} must be {need}; got {text!r}")
    return value


def _imbalance(name: str, text: str) -> float:
    return _real(name, "the imbalance factor IF", text, 1, 1e300, "a number >= 1")


def _n_max(name: str, arguments: list[str]) -> int:
    text = arguments[2] if len(arguments) == 3 else "5000"
    number = _whole(text)
    if number is None or not 1 <= number < 2**53:
        raise InvalidInputError(f"profile `{name}`: n_max must be a whole number >= 1 below 2^53; got {text!r}")
    return number


def _decay(name: str, given: list[str]) -> npt.NDArray[np.int64]:
    return exponential(_n_max(name, given), _classes(name, given[0]), _imbalance(name, given[1]), name)


def _step(name: str, given: list[str]) -> npt.NDArray[np.int64]:
    return step(_n_max(name, given), _classes(name, given[0]), _imbalance(name, given[1]), name)


def _zipf(name: str, given: list[str]) -> npt.NDArray[np.float64]:
    return zipf(_classes(name, given[0]), _real(name, "s", given[1], 0, 1e300, "a number >= 0"), name)


def _majority(name: str, given: list[str]) -> npt.NDArray[np.float64]:
    smallest = float(np.finfo(np.float64).tiny)
    return majority(
        _classes(name, given[0]),
        _real(name, "lambda", given[1], smallest, 1 - 2**-53, "a number strictly between 0 and 1"),
    )


FORMULAS: dict[str, Formula] = {
    "cifar10-lt": Formula(
        "cifar10-lt:IF",
        "floor(5000 (1/IF)^(i/9)), 10 classes",
        _CIFAR_SOURCE,
        lambda name, given: exponential(5000, 10, _imbalance(name, given[0]), name),
    ),
    "cifar100-lt": Formula(
        "cifar100-lt:IF",
        "floor(500 (1/IF)^(i/99)), 100 classes",
        _CIFAR_SOURCE,
        lambda name, given: exponential(500, 100, _imbalance(name, given[0]), name),
    ),
    "exp": Formula("exp:C:IF[:n_max]", "floor(n_max (1/IF)^(i/(C-1))), n_max 5000 by default", _CIFAR_SOURCE, _decay),
    "step": Formula(
        "step:C:IF[:n_max]",
        "n_max for the first ceil(C/2) classes, floor(n_max/IF) for the rest, n_max 5000 by default",
        "Buda, Maki, Mazurowski 2018, arXiv 1710.05381 (step imbalance)",
        _step,
    ),
    "zipf": Formula("zipf:C:s", "proportions ~ i^-s", "Zipf's law", _zipf),
    "majority": Formula(
        "majority:C:lambda", "one class with proportion lambda, the others equal", "formula", _majority
    ),
}


def evaluate(name: str) -> tuple[Formula, npt.NDArray[np.int64] | npt.NDArray[np.float64]]:
    """The formula that `name` uses, such as "exp:10:100", and its counts (int64) or proportions (float64).

    Raises
    ------
    InvalidInputError
        A wrong number of arguments, one outside its domain, or a class that floor leaves empty.
    """
    kind, *arguments = name.split(":")
    formula = FORMULAS[kind]
    parts = formula.usage.split(":")[1:]
    needed = sum(not part.endswith("]") for part in parts)
    if not needed <= len(arguments) <= len(parts):
        raise InvalidInputError(
            f"profile `{name}` must be written {formula.usage}; got {len(arguments)} values after {kind!r}"
        )
    return formula, formula.evaluate(name, arguments)
