"""The verdict on a trained embedding in one word and one or two sentences, with the pairs and classes that it rests on.

In this order, with all intervals simultaneous and delta the tolerance:

    collapsed      a pair whose optimal angle is at least 20 degrees is certainly closer than 10
    differs        a pair deviates from its optimal angle by more than delta, sampling noise set aside (low > delta)
    consistent     errors above X = max high <= 15 degrees are ruled out: "consistent within X degrees". Errors between delta and X are
                   not: X says how much these images could have seen, not how far the embedding is from the optimum
    inconclusive   otherwise: some classes have too few images, or there is no certified optimum to be consistent with

The tolerance is there because no trained network attains the optimum: "sampling noise only" (delta = 0) is rejected by
any large sample.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom.embeddings.statistics.deviation import Deviations, PairDeviation
from optgeom.embeddings.statistics.directions import Directions
from optgeom.embeddings.statistics.intervals import PairIntervals

DEFAULT_TOLERANCE_DEG = 2.0
APART_DEG = 20.0  # optimal angle from which on coinciding is a collapse
TOGETHER_DEG = 10.0
CONSISTENT_DEG = 15.0
TIGHT_RHO = 0.7
# arccos turns one unit of rounding next to a cosine of 1 into a microdegree: an exact embedding must not differ at
# tolerance 0.
ROUNDING_DEG = 1e-5
SHOWN_DEG = 0.05  # half of the last digit that sentences show
NAMED_PAIRS = 3
NAMED_CLASSES = 5
KEPT_PAIRS = 1000


@dataclass(frozen=True)
class EmbeddingVerdict:
    """The verdict on a trained embedding.

    Attributes
    ----------
    verdict : {"collapsed", "differs", "consistent", "inconclusive"}
    sentence : str
        The verdict in words.
    within_deg : float or None
        X: no tested pair is off by more, at the confidence of the intervals. None where no pair was tested.
    tolerance_deg : float
        delta.
    pairs : tuple of PairDeviation
        The pairs that decided `collapsed` or `differs`, the surest first; the first 1000 of `num_pairs`.
    num_pairs : int
    classes : tuple of (str, int)
        Classes by the number of those pairs that they are in.
    too_small : tuple of str
        Classes with too few images to tell, the worst first: one image, or the larger part of the uncertainty of a pair
        that could be off by more than 15 degrees.
    without_direction : tuple of str
        Classes of several images without a common direction.
    as_predicted : tuple of PairDeviation
        Pairs that coincide, and coincide at the optimum too; the first 1000.
    spread : bool
        The median of rho is below .7. It never changes the verdict.
    """

    verdict: str
    sentence: str
    within_deg: float | None
    tolerance_deg: float
    pairs: tuple[PairDeviation, ...] = ()
    num_pairs: int = 0
    classes: tuple[tuple[str, int], ...] = ()
    too_small: tuple[str, ...] = ()
    without_direction: tuple[str, ...] = ()
    as_predicted: tuple[PairDeviation, ...] = ()
    spread: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the pairs are in the deviations."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "within_deg": self.within_deg,
            "tolerance_deg": self.tolerance_deg,
            "num_pairs": self.num_pairs,
            "classes": [{"name": name, "pairs": number} for name, number in self.classes],
            "too_small": list(self.too_small),
            "without_direction": list(self.without_direction),
            "as_predicted": [[pair.first, pair.second] for pair in self.as_predicted],
            "spread": self.spread,
        }


def embedding_verdict(
    directions: Directions,
    intervals: PairIntervals,
    deviations: Deviations,
    tolerance_deg: float = DEFAULT_TOLERANCE_DEG,
    bracket: bool = False,
    missing: tuple[str, ...] = (),
) -> EmbeddingVerdict:
    """Judge a trained embedding.

    Parameters
    ----------
    directions : Directions
    intervals : PairIntervals
    deviations : Deviations
        Both of these directions.
    tolerance_deg : float
        delta >= 0, degrees: a deviation up to which a pair counts as optimal.
    bracket : bool
        The geometry is only the best found in too few dimensions, not a certified optimum: nothing is then consistent
        with "the optimum".
    missing : tuple of str
        Classes of the geometry without embeddings, to be named.

    Raises
    ------
    InvalidInputError
        A tolerance that is no number >= 0.
    """
    delta = _checks.real(
        "tolerance_deg", tolerance_deg, at_least=0.0, hint="degrees; 2 is usual, 0 asks for sampling noise only"
    )
    upper = np.triu(intervals.tested)
    with np.errstate(invalid="ignore"):
        together = upper & (deviations.angles_high <= TOGETHER_DEG)
        collapsed = together & (deviations.optimal >= APART_DEG)
        differs = upper & (deviations.low > delta + ROUNDING_DEG)
        wide = upper & (deviations.high > CONSISTENT_DEG)
    # A pair that coincides, and whose optimal angle its interval does not rule out by more than the tolerance.
    predicted = _pairs(deviations, together & (deviations.optimal <= TOGETHER_DEG) & ~differs)
    interval = deviations.max_angle_error_ci_deg
    small = directions.singletons + _blamed(directions, intervals, wide, deviations)
    median = directions.median_rho
    held: dict[str, Any] = {
        "within_deg": None if interval is None else interval[1],
        "tolerance_deg": delta,
        "too_small": small,
        "without_direction": directions.without_direction,
        "as_predicted": predicted,
        "spread": median is not None and median < TIGHT_RHO,
    }
    if collapsed.any():
        name, deciding = "collapsed", collapsed
        sentence = _collapsed(deviations, deciding)
    elif differs.any():
        name, deciding = "differs", differs
        sentence = _differs(deviations, deciding, delta, intervals, bracket)
    else:
        deciding = np.zeros_like(upper)
        settled = interval is not None and not wide.any() and not small and not directions.without_direction
        name = "consistent" if settled and not bracket else "inconclusive"
        if settled:
            sentence = _consistent(deviations, intervals, held["within_deg"], delta, bracket)
        else:
            sentence = _inconclusive(directions, held, bool(wide.any()), delta)
    sentence += _remarks(held["spread"], median, missing)
    pairs = _pairs(deviations, deciding)
    return EmbeddingVerdict(
        name,
        sentence,
        pairs=pairs,
        num_pairs=int(deciding.sum()),
        classes=_by_pairs(directions.names, deciding),
        **held,
    )


def _pairs(deviations: Deviations, chosen: npt.NDArray[np.bool_]) -> tuple[PairDeviation, ...]:
    i, j = np.nonzero(chosen)
    order = np.lexsort((-deviations.deviation[i, j], -deviations.low[i, j]))[:KEPT_PAIRS]
    return tuple(deviations.pair(int(i[k]), int(j[k])) for k in order)


def _by_pairs(names: tuple[str, ...], chosen: npt.NDArray[np.bool_]) -> tuple[tuple[str, int], ...]:
    number = chosen.sum(axis=0) + chosen.sum(axis=1)
    order = np.argsort(-number, kind="stable")
    return tuple((names[c], int(number[c])) for c in order if number[c])


def _blamed(
    directions: Directions, intervals: PairIntervals, wide: npt.NDArray[np.bool_], deviations: Deviations
) -> tuple[str, ...]:
    """Classes to which most of the uncertainty of a wide pair is due, by the number of such pairs.

    A pair whose interval is wide because its angle is really off, not because of noise, blames nobody.
    """
    i, j = np.nonzero(wide & (deviations.high - deviations.deviation > deviations.deviation))
    blamed = np.where(intervals.shares[i, j] >= intervals.shares[j, i], i, j)
    return tuple(directions.names[c] for c, _ in Counter(blamed.tolist()).most_common())


def _named(deviations: Deviations, pair: PairDeviation) -> str:
    return f"{deviations.names[pair.first]} and {deviations.names[pair.second]}"


def _list(parts: list[str], number: int) -> str:
    more = number - len(parts)
    if more > 0:
        return ", ".join(parts) + f" and {more} more"
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _busiest(names: tuple[str, ...], chosen: npt.NDArray[np.bool_]) -> str:
    """The class that most of several pairs have in common."""
    number = int(chosen.sum())
    name, times = _by_pairs(names, chosen)[0]
    if number < 3 or times < 2:
        return ""
    return f"; class {name} is in {'all' if times == number else times} of them"


def _collapsed(deviations: Deviations, chosen: npt.NDArray[np.bool_]) -> str:
    number = int(chosen.sum())
    parts = [
        f"{_named(deviations, pair)} (angle {pair.angle_deg:.1f}, optimal {pair.optimal_deg:.1f} degrees)"
        for pair in _pairs(deviations, chosen)[:NAMED_PAIRS]
    ]
    what = _count(number, "pair") + " of classes"
    verb = "points" if number == 1 else "point"
    return f"collapsed: {what} that should be apart {verb} the same way: {_list(parts, number)}{_busiest(deviations.names, chosen)}."


def _differs(
    deviations: Deviations, chosen: npt.NDArray[np.bool_], delta: float, intervals: PairIntervals, bracket: bool
) -> str:
    number = int(chosen.sum())
    parts = []
    for pair in _pairs(deviations, chosen)[:NAMED_PAIRS]:
        low, high = pair.ci_deg or (0.0, 0.0)
        measured = f"angle {pair.angle_deg:.1f}, between {low:.1f} and {high:.1f}; optimal {pair.optimal_deg:.1f}"
        parts.append(f"{_named(deviations, pair)} ({measured})")
    what = "the best geometry found in so few dimensions, which is not certified" if bracket else "the optimum"
    beyond = f"more than {delta:g} degrees beyond sampling noise" if delta else "more than sampling noise explains"
    some = (
        f"{number} of {_count(intervals.num_pairs, 'pair')} of classes {'is' if number == 1 else 'are'} off by {beyond}"
    )
    return f"differs from {what}: {some}: {_list(parts, number)}{_busiest(deviations.names, chosen)}."


def _consistent(deviations: Deviations, intervals: PairIntervals, within: float, delta: float, bracket: bool) -> str:
    if bracket:
        return (
            f"inconclusive: every angle is within {within:.1f} degrees of the best geometry found in so few dimensions, but that "
            "geometry is not certified to be the optimum, so there is nothing to be consistent with."
        )
    surely = f"surely off by more than {delta:g} degrees" if delta else "off by more than sampling noise explains"
    said = (
        f"consistent within {within:.1f} degrees of the optimum: no pair of classes is {surely}, and errors above {within:.1f} degrees are "
        f"ruled out for all of them together ({100 * (1 - intervals.alpha):g} % confidence)."
    )
    if within <= delta + SHOWN_DEG:
        return said
    first, second = np.unravel_index(
        int(np.nanargmax(np.where(intervals.tested, deviations.high, np.nan))), deviations.high.shape
    )
    below = f"between {delta:g} and {within:.1f} degrees" if delta else f"up to {within:.1f} degrees"
    widest = f"{deviations.names[min(first, second)]} and {deviations.names[max(first, second)]}"
    return f"{said} Errors {below} are not ruled out with these numbers of images, least of all for classes {widest}."


def _inconclusive(directions: Directions, held: dict[str, Any], wide: bool, delta: float) -> str:
    counts = dict(zip(directions.names, directions.counts.tolist(), strict=True))
    reasons = []
    small: tuple[str, ...] = held["too_small"]
    if small:
        parts = [f"{name} ({_count(counts[name], 'image')})" for name in small[:NAMED_CLASSES]]
        reasons.append(f"too few images to tell in {_list(parts, len(small))}")
    without: tuple[str, ...] = held["without_direction"]
    if without:
        reasons.append(f"the images of {_list(list(without[:NAMED_CLASSES]), len(without))} have no common direction")
    within = held["within_deg"]
    if within is None:
        reasons.append("no pair of classes could be tested")
    elif wide and not small:
        reasons.append(
            f"an angle may be off by {within:.0f} degrees, which the tolerance of {delta:g} degrees does not rule out"
        )
    tail = ""
    if within is not None and small:
        tail = (
            f" An angle could be off by up to {within:.0f} degrees there."
            if wide
            else f" The others are within {within:.1f} degrees."
        )
    return f"inconclusive: {'; '.join(reasons)}.{tail}"


def _remarks(spread: bool, median: float | None, missing: tuple[str, ...]) -> str:
    found = ""
    if spread:
        measured = f"median length of the class mean {median:.2f}"
        found += f" The images of a class are not tight ({measured}): probably not trained to convergence."
    if missing:
        named = _list(list(missing[:NAMED_CLASSES]), len(missing))
        found += f" Left out, without embeddings: {named}."
    return found
