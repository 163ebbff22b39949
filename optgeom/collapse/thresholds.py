r"""Total collapse by duality, without solving; exact thresholds of the imbalance.

Let class 1 be the majority and v = (+1, -1, ..., -1). A = v v^T (all minority classes share the direction opposite to
the majority) is optimal iff Z = G' - Diag(diag(G' A)) is positive semidefinite there. Z v = 0, so this is a question
about the minority block alone:

    M = Diag(g) - L,     g_j = G'_1j (pull of the majority),
                         L = Laplacian of the forces G'_jl between minority classes,

and M is positive semidefinite iff rho = lambda_max( Diag(g)^-1/2 L Diag(g)^-1/2 ) <= 1. For m equal minorities rho = m
G'_23 / G'_12, which is the closed form of the theory: UCL (1 - lam) D0 <= (lam/2) (D2maj + D2min). Necessary and
sufficient, for every psi.

Everything is computed from log G', and the unknown is the log of the odds lam / (1 - lam): at small temperature the
threshold itself rounds to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.inputs.classes import ClassDistribution, ClassGroups
from optgeom.losses import Loss
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram

MOST_NAMED = 10_000  # minorities that a threshold tells apart by name
MOST_MINORITIES = 2**53  # whole numbers that a float holds exactly
SMALLEST_SHARE = 1e-150  # of a minority beside the largest one; its square is still a float
LARGEST_LOG_ODDS = 690.0  # exp of it is still a float


@dataclass(frozen=True, kw_only=True)
class CollapseThreshold:
    """Majority share above which all minority classes coincide.

    Attributes
    ----------
    threshold : float
        lam*, the share; 1.0 when it rounds to 1 (see `one_minus_threshold`).
    one_minus_threshold : float
    odds, log_odds : float
        lam* / (1 - lam*): the majority needs this many times the samples of all minorities together.
    minorities : int
    published_sufficient : float or None
        The sufficient threshold in the literature, where one applies; never below ours.
    loss : Loss
    """

    threshold: float
    one_minus_threshold: float
    odds: float
    log_odds: float
    minorities: int
    published_sufficient: float | None
    loss: Loss

    @classmethod
    def from_log_odds(cls, log_odds: float, minorities: int, loss: Loss) -> CollapseThreshold:
        share, rest = shares(log_odds)
        return cls(
            threshold=share,
            one_minus_threshold=rest,
            odds=math.exp(log_odds),
            log_odds=log_odds,
            minorities=minorities,
            published_sufficient=loss.published_threshold,
            loss=loss,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**{key: getattr(self, key) for key in self.__dataclass_fields__}, "loss": self.loss.to_dict()}


@dataclass(frozen=True)
class CollapseMargin:
    """How far given classes are from total collapse, with the split among the minorities as it is.

    Attributes
    ----------
    collapsed : bool
        Whether total collapse is optimal for these classes.
    log_odds : float
        Log of the majority's odds against all other classes together.
    threshold_log_odds : float
        Log odds at which total collapse begins.
    """

    collapsed: bool
    log_odds: float
    threshold_log_odds: float

    @property
    def factor(self) -> float:
        """Number by which the majority's odds would have to be multiplied to reach the threshold.

        It is below 1 where the classes have collapsed.
        """
        return math.exp(min(LARGEST_LOG_ODDS, self.threshold_log_odds - self.log_odds))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "collapsed": self.collapsed,
            "majority_odds": math.exp(self.log_odds),
            "threshold_odds": math.exp(self.threshold_log_odds),
            "factor": self.factor,
        }


def shares(log_odds: float) -> tuple[float, float]:
    """Majority share and minority share, both to full relative accuracy."""
    return 1 / (1 + math.exp(-log_odds)), math.exp(-log_odds) / (1 + math.exp(-log_odds))


def collapse_ratio(program: ClassMeanProgram) -> float:
    """Log rho of the most frequent class as majority.

    Total collapse onto its antipode is optimal iff it is <= 0.

    Raises
    ------
    InvalidInputError
        When no single class is the most frequent, or there is only one minority class.
    """
    majority = int(np.argmax(program.groups.proportions))
    if program.sizes[majority] != 1 or program.num_classes < 3:
        needs = "total collapse needs one majority class and two minority classes or more"
        raise InvalidInputError(f"{needs}; got a tie or two classes (`solve` gives their geometry)")
    side = np.where(np.arange(program.sizes.size) == majority, 1.0, -1.0)
    log_force = program.log_gradient(side[:, None] * side[None, :])
    others = np.arange(program.sizes.size) != majority
    pull = log_force[majority, others]
    sizes = program.sizes[others]
    between = log_force[np.ix_(others, others)]
    count = program.rows.count[np.ix_(others, others)]
    scaled = between - (pull[:, None] + pull[None, :]) / 2
    top = float(np.max(scaled, where=count > 0, initial=-np.inf))
    if not np.isfinite(top):
        return -math.inf
    entry = np.where(count > 0, np.exp(scaled - top), 0.0)
    # Diagonal of D^-1/2 L D^-1/2: the forces on one class by all others, relative to the majority's.
    degree = (count * np.exp(np.where(count > 0, between, -np.inf) - pull[:, None] - top)).sum(axis=1)
    block = group_matrix.symmetric_block(-entry, degree, sizes)
    rest = group_matrix.complement(-entry, degree, sizes)
    largest = max(float(scipy.linalg.eigvalsh(block)[-1]), float(rest.max()))
    return top + math.log(largest) if largest > 0 else -math.inf


def _of_split(loss: Loss, split: Array) -> ClassGroups:
    """Groups of a majority and of minorities in these proportions; classes "1" to "m" are the minorities."""
    smallest, largest = float(split.min()), float(split.max())
    # Huge numbers must not overflow in their sum, and tiny shares would leave no digits for their logarithms.
    if smallest / largest < SMALLEST_SHARE:
        extremes = f"{smallest:g} beside {largest:g}"
        raise InvalidInputError(
            f"`split` must have no share below {SMALLEST_SHARE:g} of the largest; got {extremes} "
            "(leave such classes out)"
        )
    return loss.groups(ClassDistribution.from_counts(np.concatenate([[2.0], split / largest])))


def _of_equal(loss: Loss, minorities: int) -> ClassGroups:
    """Groups of a majority and of equal minorities, whose classes are written down where they are not too many."""
    if minorities <= MOST_NAMED:
        return loss.groups(ClassDistribution.from_groups([2.0, 1.0], [1, minorities]))
    index = np.array([0, 1, 1])  # membership is not needed here, only sizes
    return ClassGroups(index, np.array([1, minorities], dtype=np.int64), np.array([0.5, 0.5 / minorities]), None)


def threshold_log_odds(loss: Loss, groups: ClassGroups) -> float:
    """Log odds at which log rho crosses zero, for a majority (the first group) and minorities in these proportions."""
    from scipy.optimize import brentq

    minorities = groups.proportions[1:] / groups.proportions[1]
    weights = minorities / np.sum(minorities * groups.sizes[1:])

    def ratio(log_odds: float) -> float:
        share, rest = shares(log_odds)
        at = replace(groups, proportions=np.concatenate([[share], rest * weights]), counts=None)
        return collapse_ratio(ClassMeanProgram(at, loss, loss.rows(at), loss.coincident(at)))

    # With a majority no larger than the largest minority, both would collapse onto the other: impossible, so rho > 1
    # there.
    low = math.log(float(weights.max())) + 1e-9
    if ratio(low) <= 0:  # the threshold is this border, to the digits of `low`
        return low
    high, step = low + 1.0, 1.0
    while ratio(high) > 0:
        low, high, step = high, high + step, 1.5 * step
        if high > LARGEST_LOG_ODDS:
            if not ratio(LARGEST_LOG_ODDS) < ratio(LARGEST_LOG_ODDS / 2) - 1.0:
                raise IncompatibleError(
                    f"`loss` has no threshold: {loss.words()} keeps minorities apart however large the majority is "
                    "(`solve` gives their geometry)"
                )
            raise InvalidInputError(
                "`temperature` must be larger for a threshold in floating point; "
                f"got {loss.temperature} (odds above 1e299 are needed)"
            )
    return float(brentq(ratio, low, high, xtol=1e-13, rtol=1e-14))


def collapse_threshold(loss: Loss, *, minorities: int = 2, split: Sequence[float] | None = None) -> CollapseThreshold:
    """Exact majority share above which all minority classes collapse onto one direction.

    Parameters
    ----------
    loss : Loss
        Any loss that depends on class proportions: InfoNCE, SupCon, or your own psi. Weights by class are those of the
        majority "0" and of the minorities "1" to "m", at most 10 000.
    minorities : int
        m >= 2 equal minority classes.
    split : sequence of m positive numbers, optional
        Relative sizes of unequal minorities; replaces `minorities`.

    Returns
    -------
    CollapseThreshold

    Raises
    ------
    InvalidInputError
        Fewer than two minorities, a split that is not positive, or a temperature at which the odds overflow.
    IncompatibleError
        A loss that does not depend on proportions alone, or under which no imbalance collapses the minorities.

    References
    ----------
    Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291 (sufficient thresholds; ours are necessary and sufficient).
    """
    _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    loss.require("proportions", "groups")
    if split is None:
        count = _checks.integer("minorities", minorities, at_least=2, hint="two classes are always opposite")
        if count > MOST_MINORITIES:
            raise InvalidInputError(
                f"`minorities` must be at most 2^53; got {count:.3e} (no data set has so many classes)"
            )
        groups = _of_equal(loss, count)
    else:
        given = np.asarray(split, dtype=np.float64)
        if given.ndim != 1 or given.size < 2 or not np.all(np.isfinite(given)) or given.min() <= 0:
            needs = "two or more positive numbers, one for each minority class"
            raise InvalidInputError(f"`split` must be {needs}; got {split!r} (only their ratios matter)")
        count, groups = given.size, _of_split(loss, given)
    return CollapseThreshold.from_log_odds(threshold_log_odds(loss, groups), count, loss)


def collapse_margin(classes: ClassDistribution, loss: Loss) -> CollapseMargin | None:
    """Majority odds of given classes against the odds at which total collapse begins.

    The split among the minorities stays as it is.

    Parameters
    ----------
    classes : ClassDistribution
    loss : Loss

    Returns
    -------
    CollapseMargin or None
        None where the question has no answer: two classes, a tie for the largest class, or a loss that depends on more
        than proportions.
    """
    _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    groups = loss.groups(classes)
    if classes.num_classes < 3 or groups.sizes[0] != 1 or not {"groups", "proportions"} <= loss.gives:
        return None
    rest = float(np.sum((groups.sizes * groups.proportions)[1:]))
    log_odds = math.log(float(groups.proportions[0]) / rest)
    if "uniform-negatives" in loss.gives:
        # Every minority anchor then sees the same law of t, so neither the number of minorities nor their split
        # matters.
        needed = threshold_log_odds(loss, _of_equal(loss, 2))
    else:
        needed = threshold_log_odds(loss, groups)
    return CollapseMargin(log_odds >= needed, log_odds, needed)
