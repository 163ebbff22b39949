"""Your own psi: any convex increasing function of the k scaled cosines of the negatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, log_nonnegative
from optgeom.errors import IncompatibleError
from optgeom.losses import law
from optgeom.losses.base import Loss, negatives_words, plain
from optgeom.losses.on_rows import DrawnBatches, PairSum, sampled_mass
from optgeom.losses.options import SAMPLING
from optgeom.losses.rows import Cuts, RowLoss

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassGroups
    from optgeom.losses.weights import ClassValues

SEGMENTS, HALVINGS = 64, 48  # into which a range is cut where jumps of a slope are looked for, and each again
JUMP = 1e-6  # of the slope within rounding, relative to the largest slope: what counts as a kink
NEAR = 1e-7  # how far from a point the tangents on both sides of it are taken, relative to the range of t
FIRST = 9  # tangents over the range of t with which the search at kinks begins
SIDES = 8  # tangents around a point, times the number of groups, for a psi whose kinks are not known one by one
CHECKED, CONVEX = 257, 1e-9  # points of a line at which psi is checked, and what rounding may take from its slope
LINES = 8  # on which kinks of a psi of several negatives are looked for
LARGEST_ENUMERATION = 200_000  # count vectors of the negatives
DIFFERENCE = 1e-5  # step of central differences, near the cube root of rounding


class Psi(Protocol):
    r"""What a user's loss must offer.

    psi(t_1, ..., t_k) must be convex, increasing in each argument and symmetric under exchange of the
    negatives, for t_l in [-2/tau, 0]; solvers may try points a little outside.

    Attributes
    ----------
    is_additive : bool
        psi(t_1, ..., t_k) = h(t_1) + ... + h(t_k). Then only h is called: arrays come with a last axis of length 1.
    """

    is_additive: bool

    def value(self, t: Array) -> Array:
        """psi for t of shape (..., k); returns shape (...)."""
        ...

    def derivative(self, t: Array) -> Array:
        """d psi / d t_l for t of shape (..., k); returns shape (..., k)."""
        ...


@dataclass(frozen=True, eq=False)
class GeneralizedContrastive(Loss):
    r"""Generalized contrastive loss with a user's psi and k i.i.d. negatives:

        F = sum_i lam_i E psi( (A[i, c_1] - 1)/tau, ..., (A[i, c_k] - 1)/tau ).

    Parameters
    ----------
    psi : Psi
        Convex, increasing, symmetric; kinks are welcome. That it is convex and increasing is checked on some lines.
    temperature : float
        tau > 0, dimensionless.
    negatives : int
        k >= 1. With k >= 2 and a psi that is not additive the expectation is enumerated: few classes only.
    sampling : {"ucl", "scl"}
        As in `InfoNCE`.
    strictly_convex : bool
        Set False for a psi with straight pieces: the optimum may then not be unique.

    References
    ----------
    Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291.
    """

    psi: Psi
    temperature: float = 0.1
    negatives: int = 1
    sampling: str = "ucl"
    strictly_convex: bool = True
    name: str = field(default="generalized")

    def __post_init__(self) -> None:
        _checks.real("temperature", self.temperature, above=0.0, hint="usual values are 0.05 to 1")
        _checks.integer("negatives", self.negatives, at_least=1)
        _checks.choice("sampling", self.sampling, SAMPLING.choices)
        missing = [part for part in ("value", "derivative", "is_additive") if not hasattr(self.psi, part)]
        if missing:
            lacks = ", ".join(missing)
            raise IncompatibleError(
                f"`psi` must have value, derivative and is_additive; {type(self.psi).__name__} lacks {lacks}"
            )

    @property
    def gives(self) -> frozenset[str]:
        given = {"groups", "proportions"}
        if self.sampling == "ucl":
            given.add("uniform-negatives")
        if self.strictly_convex:
            given.add("strictly-convex")
        return frozenset(given)

    @cached_property
    def kinks(self) -> tuple[float, ...]:
        """Where the slope of psi jumps: t for an additive psi, else positions on lines through the range of t.

        Raises
        ------
        IncompatibleError
            A psi that is not convex, or falls somewhere, on the lines that are looked at.
        """
        return tuple(position for line in _lines(self) for position in line.checked_jumps())

    def rows(self, groups: ClassGroups) -> RowLoss:
        of_negatives = (law.ucl if self.sampling == "ucl" else law.scl)(groups.sizes, groups.proportions)
        if self.psi.is_additive or self.negatives == 1:
            return SeparableRows(
                of_negatives.count, groups.proportions, of_negatives, self.psi, self.negatives, self.kinks
            )
        number = math.comb(self.negatives + groups.sizes.size, self.negatives)
        if number > LARGEST_ENUMERATION:
            raise IncompatibleError(
                f"`psi` is not additive: {self.negatives} negatives in {groups.sizes.size} groups have {number} count "
                f"vectors, above the {LARGEST_ENUMERATION} that are enumerated (use fewer negatives or classes, or an "
                "additive psi)"
            )
        return EnumeratedRows(
            of_negatives.count,
            groups.proportions,
            of_negatives,
            self.psi,
            self.negatives,
            kinked=bool(self.kinks),
            reach=2.0 / self.temperature,
        )

    def to_dict(self) -> dict[str, Any]:
        """Name, class and plain attributes of psi, and the other parameters; psi itself is code."""
        described = {
            "name": self.name,
            "psi": type(self.psi).__name__,
            "temperature": self.temperature,
            "negatives": self.negatives,
            "sampling": self.sampling,
        }
        # The attributes distinguish two psi of one class, as a margin does.
        attributes = {key: _plain_or_type(value) for key, value in getattr(self.psi, "__dict__", {}).items()}
        if attributes:
            described["psi_attributes"] = attributes
        if not self.strictly_convex:
            described["strictly_convex"] = False
        return described

    def label(self) -> str:
        return self.name

    def words(self) -> str:
        psi = f"psi = {type(self.psi).__name__}"
        return f"{self.name}, {psi}, temperature {self.temperature:g}, {negatives_words(self.to_dict())}"

    def on_rows(self, share: Array, *, images: Array, values: ClassValues | None = None) -> DrawnBatches | PairSum:
        value = self.psi.value

        def of_each(t: Array) -> Array:
            return np.asarray(value(t[..., None]).sum(axis=-1))

        return PairSum(
            anchor_weight=share,
            mass=sampled_mass(self.sampling, share),
            draws=self.negatives,
            psi=of_each if self.psi.is_additive else value,
        )

    def collapsed_formula(self, rows: int | None, value: float) -> str:
        return "psi(0, ..., 0)"


def _plain_or_type(value: Any) -> Any:
    value = plain(value)
    return value if isinstance(value, (bool, int, float, str, list, type(None))) else type(value).__name__


@dataclass(frozen=True)
class _Line:
    """A straight line through the range of t, on which psi is a function of one number."""

    psi: Psi
    start: Array  # (k,)
    along: Array  # (k,), with entries >= 0
    low: float
    high: float

    def slope(self, position: Array) -> Array:
        return np.asarray(self.psi.derivative(self.start + position[:, None] * self.along) @ self.along)

    def checked_jumps(self) -> list[float]:
        """Jumps of the slope; raises `IncompatibleError` where it falls, or is negative."""
        grid = np.linspace(self.low, self.high, CHECKED)
        slope = self.slope(grid)
        rounding = CONVEX * max(float(np.max(np.abs(slope))), 1e-300)
        rise = np.diff(slope)
        worst = int(np.argmin(rise))
        step = grid[1] - grid[0]
        if rise[worst] < -rounding:
            at = self.start + (grid[worst] + step / 2) * self.along
            where = ", ".join(f"{value:.3g}" for value in np.atleast_1d(at))
            raise IncompatibleError(
                f"`psi` must be convex; got {type(self.psi).__name__}, whose second derivative is "
                f"{rise[worst] / step:.3g} at t = ({where}), {_along(self.along)} (its optimum has no certificate)"
            )
        if slope.min() < -rounding:
            at = self.start + grid[int(np.argmin(slope))] * self.along
            where = ", ".join(f"{value:.3g}" for value in np.atleast_1d(at))
            raise IncompatibleError(
                f"`psi` must not fall; got {type(self.psi).__name__}, whose slope is {slope.min():.3g} at "
                f"t = ({where}), {_along(self.along)} (negatives must repel)"
            )
        return [float(position) for position in jumps(self.slope, self.low, self.high)]


def _along(direction: Array) -> str:
    """The direction of a line in words."""
    if direction.size == 1:
        return "in t"
    if np.count_nonzero(direction) == 1:
        return "in one of the negatives"
    return "in all negatives together" if np.all(direction == direction[0]) else "along a line"


def _lines(loss: GeneralizedContrastive) -> Iterator[_Line]:
    """The whole range for an additive psi; else the diagonal, lines along one axis, and lines upwards in all."""
    psi, reach = loss.psi, 2.0 / loss.temperature
    number = 1 if psi.is_additive else loss.negatives
    yield _Line(psi, np.zeros(number), np.ones(number), -reach, 0.0)
    if number == 1:
        return
    rng = np.random.default_rng(0)
    for which in range(LINES):
        start = -reach * rng.random(number)
        along = rng.random(number) if which % 2 else np.eye(number)[0]
        if which % 2 == 0:
            start[0] = 0.0
            yield _Line(psi, start, along, -reach, 0.0)
        else:
            # Upwards from the point to where the first negative reaches 0.
            yield _Line(psi, start, along, 0.0, float(np.min(-start / along)))


def jumps(slope: Callable[[Array], Array], low: float, high: float) -> Array:
    """Points of [low, high] at which a non-decreasing slope jumps, ascending.

    Parameters
    ----------
    slope : callable
        From (n,) points to (n,) slopes.
    low, high : float

    Returns
    -------
    (m,)
        To rounding; jumps below `JUMP` of the largest slope, and several within one of 64 segments, may be missed.
    """
    edges = np.linspace(low, high, SEGMENTS + 1)
    at = np.asarray(slope(edges), dtype=np.float64)
    least = JUMP * max(float(np.max(np.abs(at))), 1e-300)
    left, right = edges[:-1].copy(), edges[1:].copy()
    from_left, from_right = at[:-1].copy(), at[1:].copy()
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        between = np.asarray(slope(middle), dtype=np.float64)
        # The half with the larger rise; of a smooth slope the rise halves too, and is gone in the end.
        upper = from_right - between > between - from_left
        left, from_left = np.where(upper, middle, left), np.where(upper, between, from_left)
        right, from_right = np.where(upper, right, middle), np.where(upper, from_right, between)
    return np.asarray(((left + right) / 2)[from_right - from_left > least])


@dataclass(frozen=True)
class SeparableRows(RowLoss):
    """value_g = k [ own_g h(0) + sum_h count_gh p_gh h(t_gh) ]: one negative, or an additive psi.

    `kinks` are the t at which the slope of h jumps.
    """

    count: Array
    anchor_weight: Array
    law: law.NegativeLaw
    psi: Psi
    k: int
    kinks: tuple[float, ...] = ()

    @property
    def gives(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"pair-slopes", "pair-mean"} | ({"cuts"} if self.kinks else set()))

    def cuts(self, t: Array) -> Cuts:
        left, right = np.nonzero(self.count * self.law.other > 0)
        at = t[left, right]
        near = np.array(self.kinks)
        beside = np.array([at, at]) if near.size == 0 else np.empty((2, at.size))
        if near.size:
            closest = near[np.argmin(np.abs(at[:, None] - near), axis=1)]
            # Where a kink is near the tangents are those of its two sides, else one at the point itself, twice.
            step = NEAR * max(1.0, float(np.max(np.abs(near))))
            kinked = np.abs(at - closest) < 10 * step
            beside = np.where(kinked, closest + step * np.array([[-1.0], [1.0]]), at)
        return self._tangents(left, right, beside)

    def first_cuts(self, t: Array) -> Cuts:
        left, right = np.nonzero(self.count * self.law.other > 0)
        reach = max(2.0 * float(np.max(np.abs(t))), max(map(abs, self.kinks), default=0.0))
        grid = np.concatenate([np.linspace(-reach, 0.0, FIRST), *(np.array(self.kinks) + s for s in (-1e-6, 1e-6))])
        return self._tangents(left, right, np.tile(grid[:, None], (1, left.size)))

    def _tangents(self, left: npt.NDArray[np.intp], right: npt.NDArray[np.intp], points: Array) -> Cuts:
        """Tangents of the pairs at (n, T) points."""
        value = np.asarray(self.psi.value(points[..., None]))
        slope = np.asarray(self.psi.derivative(points[..., None])[..., 0])
        number, terms = points.shape
        chance = self.law.other[left, right]
        slopes = np.zeros((number, terms, self.count.shape[1]))
        # One term is all classes of a group: its weight has their number, its slope is that of one of them.
        slopes[:, np.arange(terms), right] = slope / self.count[left, right]
        level = value - slope * points
        sizes = np.diag(self.count) + 1
        weight = sizes[left] * self.anchor_weight[left] * self.k * chance * self.count[left, right]
        term = np.tile(np.arange(terms), number)
        return Cuts(left, weight, term, level.ravel(), slopes.reshape(number * terms, -1))

    def value(self, t: Array) -> Array:
        chance = self.count * self.law.other
        terms = np.where(chance > 0, chance * self.psi.value(np.where(chance > 0, t, 0.0)[..., None]), 0.0)
        own = self.psi.value(np.zeros((1, 1)))[0]
        return np.asarray(self.k * (self.law.own * own + terms.sum(axis=1)))

    def _slope(self, t: Array) -> Array:
        return np.asarray(self.psi.derivative(t[..., None])[..., 0])

    def log_pull(self, t: Array) -> Array:
        return np.asarray(log_nonnegative(self.k * self.law.other) + log_nonnegative(np.maximum(self._slope(t), 0.0)))

    def reaches(self) -> npt.NDArray[np.bool_]:
        return self.law.other > 0

    def pair_slopes(self, t: Array) -> Array:
        second = getattr(self.psi, "second_derivative", None)
        if second is not None:
            curvature = np.asarray(second(t[..., None])[..., 0])
        else:
            step = DIFFERENCE * np.maximum(1.0, np.abs(t))
            curvature = (self._slope(t + step) - self._slope(t - step)) / (2 * step)
        return np.asarray(self.k * self.law.other * curvature)

    def curvature(self, t: Array) -> Callable[[Array], Array]:
        slopes = self.pair_slopes(t)
        return lambda direction: np.asarray(slopes * direction)


@dataclass(frozen=True)
class EnumeratedRows(RowLoss):
    """Expectation of a psi that is neither additive nor of one negative, over all count vectors of the k negatives.

    `kinked` says that the slope of psi jumps somewhere, `reach` is the largest -t of a Gram matrix.
    """

    count: Array
    anchor_weight: Array
    law: law.NegativeLaw
    psi: Psi
    k: int
    kinked: bool = False
    reach: float = 1.0

    @property
    def gives(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"cuts"} if self.kinked else set())

    def cuts(self, t: Array) -> Cuts:
        rng, step = np.random.default_rng(0), NEAR * self.reach
        points = [t, *(t + step * rng.uniform(-1, 1, t.shape) for _ in range(SIDES * t.shape[0]))]
        return self._tangents(points)

    def first_cuts(self, t: Array) -> Cuts:
        rng = np.random.default_rng(1)
        points = [t, *(-self.reach * rng.random(t.shape) for _ in range(FIRST)), np.zeros_like(t)]
        return self._tangents(points)

    def _tangents(self, points: list[Array]) -> Cuts:
        levels, slopes = [], []
        for t in points:
            pull = self._pull(t)
            levels.append(self.value(t) - (self.count * pull * np.where(self.count > 0, t, 0.0)).sum(axis=1))
            slopes.append(pull)
        groups = self.count.shape[0]
        row = np.arange(groups)
        weight = (np.diag(self.count) + 1) * self.anchor_weight
        return Cuts(row, weight, np.tile(row, len(points)), np.concatenate(levels), np.concatenate(slopes))

    def _outcomes(self) -> Iterator[tuple[npt.NDArray[np.intp], Array]]:
        """Multisets of k categories as (n, k) indices, with (n, G) probabilities by anchor.

        A category is a group h, or G for the anchor's own class.
        """
        from scipy.special import gammaln

        groups = self.law.own.size
        log_share = np.column_stack([log_nonnegative(self.count * self.law.other), log_nonnegative(self.law.own)])
        drawn = _multisets(groups + 1, self.k)
        for start in range(0, drawn.shape[0], 4096):
            part = drawn[start : start + 4096]
            counts = np.apply_along_axis(np.bincount, 1, part, minlength=groups + 1)
            ways = gammaln(self.k + 1) - gammaln(counts + 1.0).sum(axis=1)
            with np.errstate(invalid="ignore"):
                exponent = np.where(counts[:, None, :] > 0, counts[:, None, :] * log_share[None], 0.0).sum(axis=2)
            yield part, np.exp(ways[:, None] + exponent)

    def value(self, t: Array) -> Array:
        extended = np.column_stack([t, np.zeros(t.shape[0])])
        total = np.zeros(t.shape[0])
        for drawn, chance in self._outcomes():
            total += (chance * self.psi.value(extended.T[drawn].transpose(0, 2, 1))).sum(axis=0)
        return total

    def reaches(self) -> npt.NDArray[np.bool_]:
        return self.law.other > 0

    def _pull(self, t: Array) -> Array:
        extended = np.column_stack([t, np.zeros(t.shape[0])])
        pull = np.zeros_like(extended)
        for drawn, chance in self._outcomes():
            slope = chance[:, :, None] * self.psi.derivative(extended.T[drawn].transpose(0, 2, 1))
            for position in range(self.k):
                np.add.at(pull.T, drawn[:, position], slope[:, :, position])
        return np.asarray(pull[:, :-1] / np.maximum(self.count, 1.0))

    def log_pull(self, t: Array) -> Array:
        return log_nonnegative(np.maximum(self._pull(t), 0.0))

    def curvature(self, t: Array) -> Callable[[Array], Array]:
        def product(direction: Array) -> Array:
            size = float(np.max(np.abs(direction)))
            if size == 0:
                return np.zeros_like(direction)
            step = DIFFERENCE / size
            return np.asarray((self._pull(t + step * direction) - self._pull(t - step * direction)) / (2 * step))

        return product


def _multisets(categories: int, size: int) -> npt.NDArray[np.intp]:
    """(n, size) non-decreasing index tuples."""
    from itertools import combinations_with_replacement

    return np.array(list(combinations_with_replacement(range(categories), size)), dtype=np.intp)
