"""Kinds of verdict on a trained embedding, and the evidence that each is given on.

The first of `KINDS` that applies is given. With all intervals simultaneous and delta the
tolerance:

    collapsed      a pair whose optimal angle is at least 20 degrees is certainly closer than 10
    differs        a pair deviates from its optimal angle by more than delta, sampling noise set aside (low > delta),
                   and the loss asks for that angle: the least risk at which the pair can have the angle next to the
                   optimum inside its interval is more than the slack above the optimum, per image of its two classes
    within-slack   pairs deviate by more than delta, but the loss hardly asks for their angles: each costs at most the
                   slack
    consistent     errors above X = max high <= 15 degrees are ruled out: "consistent within X degrees". Errors between
                   delta and X are not: X says how much these images could have seen, not how far the embedding is from
                   the optimum
    inconclusive   otherwise: some classes have too few images, or there is no certified optimum to be consistent with

The tolerance is there because no trained network attains the optimum: "sampling noise only" (delta = 0) is rejected by
any large sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.deviation import Deviations, PairDeviation
from optgeom.embeddings.statistics.pair_intervals import PairIntervals
from optgeom.formatting import short

Mask = npt.NDArray[np.bool_]  # (C, C), above the diagonal: some pairs of classes

APART_DEG = 20.0  # optimal angle from which on coinciding is a collapse
TOGETHER_DEG = 10.0
CONSISTENT_DEG = 15.0
TIGHT_RHO = 0.7
SHOWN_DEG = 0.05  # half of the last digit that sentences show
NAMED_PAIRS = 3
NAMED_CLASSES = 5
KEPT_PAIRS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """What is known when a verdict is given; each kind of verdict looks at some of it."""

    directions: Directions
    intervals: PairIntervals
    deviations: Deviations
    beyond: Mask
    tolerance_deg: float
    bracket: bool
    missing: tuple[str, ...]
    own_excess: Array | None = None  # (C, C) least cost of each different pair; nan where it is not known
    slack: float = 0.0

    @property
    def within_deg(self) -> float | None:
        """X, the largest deviation that is not ruled out."""
        interval = self.deviations.max_angle_error_ci_deg
        return None if interval is None else interval[1]

    @cached_property
    def tested(self) -> Mask:
        """Pairs with an interval."""
        return np.triu(self.intervals.tested)

    @cached_property
    def coincident(self) -> Mask:
        """Pairs that are certainly closer than 10 degrees."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.tested & (self.deviations.angles_high <= TOGETHER_DEG))

    @cached_property
    def collapsed(self) -> Mask:
        """Coincident pairs that should be apart."""
        return self.coincident & self.different & (self.deviations.optimal >= APART_DEG)

    @cached_property
    def different(self) -> Mask:
        """Pairs that are off by more than the tolerance, noise and kinds of images not shown set aside."""
        return self.tested & self.beyond

    @cached_property
    def costly(self) -> Mask:
        """Different pairs for whose angle the loss asks: those that cost more than the slack, or an unknown amount."""
        if self.own_excess is None:
            return self.different
        with np.errstate(invalid="ignore"):
            return np.asarray(self.different & ~(self.own_excess <= self.slack))

    @cached_property
    def as_predicted(self) -> Mask:
        """Pairs that coincide at the optimum, that are certainly closer than 15 degrees and not surely off."""
        with np.errstate(invalid="ignore"):
            near = self.tested & (self.deviations.angles_high <= CONSISTENT_DEG)
        return np.asarray(near & (self.deviations.optimal <= TOGETHER_DEG) & ~self.different)

    @cached_property
    def wide(self) -> Mask:
        """Pairs that could be off by more than 15 degrees."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.tested & (self.deviations.high > CONSISTENT_DEG))

    @cached_property
    def too_small(self) -> tuple[str, ...]:
        """Classes of one image, then those that cause most of the uncertainty of a wide pair, by number of such pairs.

        A pair whose interval is wide because its angle is really off, not because of noise, counts for neither class.
        """
        i, j = np.nonzero(self.wide & (self.deviations.high - self.deviations.deviation > self.deviations.deviation))
        shares = self.intervals.shares
        larger = np.where(shares[i, j] >= shares[j, i], i, j)
        ordered = Counter(larger.tolist()).most_common()
        return self.directions.singletons + tuple(self.directions.names[c] for c, _ in ordered)

    @property
    def lacking(self) -> bool:
        """Some class has too few images or no direction, or no pair was tested."""
        return self.within_deg is None or bool(self.too_small) or bool(self.directions.without_direction)

    @property
    def spread(self) -> bool:
        """Whether the median of rho is small."""
        median = self.directions.median_rho
        return median is not None and median < TIGHT_RHO

    def worst(self, chosen: Mask) -> tuple[PairDeviation, ...]:
        """Some pairs, the most surely deviating first."""
        return self.deviations.worst_pairs(KEPT_PAIRS, chosen)

    def named(self, pair: PairDeviation) -> str:
        """Both classes of a pair."""
        return f"{self.directions.names[pair.first]} and {self.directions.names[pair.second]}"

    def busiest(self, chosen: Mask) -> str:
        """The class that most of several pairs have in common, as the end of a sentence."""
        number = int(chosen.sum())
        name, times = by_pairs(self.directions.names, chosen)[0]
        if number < 3 or times < 2:
            return ""
        return f"; class {name} is in {'all' if times == number else times} of them"

    def share_of_pairs(self, chosen: Mask) -> tuple[str, bool]:
        """Subject of a headline about some pairs, and whether it is singular."""
        number, tested = int(chosen.sum()), self.intervals.num_pairs
        return f"{number} of {tested} pairs of classes" if tested > 1 else "The pair of classes", number == 1


def _no_pairs(evidence: Evidence) -> Mask:
    return np.zeros_like(evidence.tested)


@dataclass(frozen=True, kw_only=True)
class VerdictKind:
    """A kind of verdict.

    Attributes
    ----------
    verdict : str
        The word.
    applies : callable
        Whether the evidence is of this kind; kinds before it in `KINDS` did not apply.
    sentence, headline : callable
        The verdict in words, from the evidence.
    meaning : str
    steps : tuple of str
    pairs : callable
        The pairs that decide the verdict.
    """

    verdict: str
    applies: Callable[[Evidence], bool]
    sentence: Callable[[Evidence], str]
    headline: Callable[[Evidence], str]
    meaning: str
    steps: tuple[str, ...]
    pairs: Callable[[Evidence], Mask] = _no_pairs


def _collapsed(evidence: Evidence) -> str:
    number = int(evidence.collapsed.sum())
    parts = [
        f"{evidence.named(pair)} (angle {pair.angle_deg:.1f}, optimal {pair.optimal_deg:.1f} degrees)"
        for pair in evidence.worst(evidence.collapsed)[:NAMED_PAIRS]
    ]
    pairs, verb = _count(number, "pair") + " of classes", "points" if number == 1 else "point"
    end = evidence.busiest(evidence.collapsed)
    return f"collapsed: {pairs} that should be apart {verb} the same way: {listed(parts, number)}{end}."


def _collapsed_headline(evidence: Evidence) -> str:
    pairs, single = evidence.share_of_pairs(evidence.collapsed)
    return f"{pairs} {'has' if single else 'have'} merged, though the loss would keep them apart"


def _differs(evidence: Evidence) -> str:
    number = int(evidence.costly.sum())
    parts = []
    for pair in evidence.worst(evidence.costly)[:NAMED_PAIRS]:
        low, high = pair.ci_deg or (0.0, 0.0)
        measured = f"angle {pair.angle_deg:.1f}, between {low:.1f} and {high:.1f}; optimal {pair.optimal_deg:.1f}"
        parts.append(f"{evidence.named(pair)} ({measured})")
    compared = "the optimum"
    if evidence.bracket:
        compared = "the best geometry found in so few dimensions, which is not certified"
    delta = evidence.tolerance_deg
    beyond = f"more than {delta:g} degrees beyond sampling noise" if delta else "more than sampling noise explains"
    tested = _count(evidence.intervals.num_pairs, "pair")
    subject = f"{number} of {tested} of classes {'is' if number == 1 else 'are'} off by {beyond}"
    return f"differs from {compared}: {subject}: {listed(parts, number)}{evidence.busiest(evidence.costly)}."


def _differs_headline(evidence: Evidence) -> str:
    pairs, single = evidence.share_of_pairs(evidence.costly)
    best = "the angle of the best geometry known in so few dimensions" if evidence.bracket else "the optimal angle"
    return f"{pairs} {'is' if single else 'are'} not at {best}"


def _within_slack(evidence: Evidence) -> str:
    assert evidence.own_excess is not None
    number = int(evidence.different.sum())
    costs = np.where(evidence.different, evidence.own_excess, -1.0)
    first, second = (int(k) for k in np.unravel_index(int(np.argmax(costs)), costs.shape))
    pair = evidence.deviations.pair(first, second)
    tested = _count(evidence.intervals.num_pairs, "pair")
    return (
        f"within slack of the optimum: {number} of {tested} of classes {'is' if number == 1 else 'are'} off by more "
        f"than {evidence.tolerance_deg:g} degrees beyond sampling noise, but the loss hardly asks for their angles: "
        f"each costs at most {100 * costs.max():.2g} % of the way from optimal to collapsed per image of its two "
        f"classes (slack {100 * evidence.slack:.2g} %), most for {evidence.named(pair)} (angle {pair.angle_deg:.1f}, "
        "optimal "
        f"{pair.optimal_deg:.1f} degrees)."
    )


def _within_slack_headline(evidence: Evidence) -> str:
    pairs, single = evidence.share_of_pairs(evidence.different)
    return f"{pairs} {'is' if single else 'are'} not at the optimal angle, and the loss hardly minds"


def _is_consistent(evidence: Evidence) -> bool:
    return not (evidence.bracket or evidence.lacking or evidence.wide.any())


def _consistent(evidence: Evidence) -> str:
    within, delta = evidence.within_deg or 0.0, evidence.tolerance_deg
    surely = f"surely off by more than {delta:g} degrees" if delta else "off by more than sampling noise explains"
    confidence = 100 * (1 - evidence.intervals.alpha)
    sentence = (
        f"consistent within {within:.1f} degrees of the optimum: no pair of classes is {surely}, and errors above "
        f"{within:.1f} degrees are ruled out for all of them together ({confidence:g} % confidence)."
    )
    if within <= delta + SHOWN_DEG:
        return sentence
    high = np.where(evidence.intervals.tested, evidence.deviations.high, np.nan)
    first, second = sorted(np.unravel_index(int(np.nanargmax(high)), high.shape))
    names = evidence.directions.names
    below = f"between {delta:g} and {within:.1f} degrees" if delta else f"up to {within:.1f} degrees"
    return (
        f"{sentence} Errors {below} are not ruled out with these numbers of images, least of all for classes "
        f"{names[first]} and {names[second]}."
    )


def _consistent_headline(evidence: Evidence) -> str:
    within = evidence.within_deg or 0.0
    seen = f"to within {within:.1f} degrees" if within <= evidence.tolerance_deg else "as far as these images can tell"
    return f"The class means are where the loss wants them, {seen}"


def _uncertified(evidence: Evidence) -> str:
    if evidence.wide.any():
        return _inconclusive(evidence)
    return (
        f"inconclusive: every angle is within {evidence.within_deg:.1f} degrees of the best geometry found in so few "
        "dimensions, but that geometry is not certified to be the optimum, so there is nothing to be consistent with."
    )


def _inconclusive(evidence: Evidence) -> str:
    counts = dict(zip(evidence.directions.names, evidence.directions.counts.tolist(), strict=True))
    small, without, within = evidence.too_small, evidence.directions.without_direction, evidence.within_deg
    wide = bool(evidence.wide.any())
    reasons = []
    if small:
        parts = [f"{name} ({_count(counts[name], 'image')})" for name in small[:NAMED_CLASSES]]
        reasons.append(f"too few images to tell in {listed(parts, len(small))}")
    if without:
        reasons.append(f"the images of {listed(list(without[:NAMED_CLASSES]), len(without))} have no common direction")
    if within is None:
        reasons.append("no pair of classes could be tested")
    elif wide and not small:
        tolerance = f"the tolerance of {evidence.tolerance_deg:g} degrees"
        reasons.append(f"an angle may be off by {within:.0f} degrees, which {tolerance} does not rule out")
    tail = ""
    if within is not None and small and wide:
        tail = f" An angle could be off by up to {within:.0f} degrees there."
    elif within is not None and small:
        tail = f" The others are within {within:.1f} degrees."
    return f"inconclusive: {'; '.join(reasons)}.{tail}"


def _inconclusive_headline(evidence: Evidence) -> str:
    small, without = evidence.too_small, evidence.directions.without_direction
    if evidence.within_deg is None:
        reason = "no pair of classes can be tested"
    elif small:
        reason = f"too few of {_classes(small)}"
    elif without:
        reason = f"the images of {_classes(without)} have no common direction"
    elif evidence.bracket:
        reason = "in so few dimensions no optimum is certified"
    else:
        reason = f"an angle may be off by up to {evidence.within_deg:.0f} degrees"
    return f"These images cannot tell: {reason}"


KINDS = (
    VerdictKind(
        verdict="collapsed",
        applies=lambda evidence: bool(evidence.collapsed.any()),
        pairs=lambda evidence: evidence.collapsed,
        sentence=_collapsed,
        headline=_collapsed_headline,
        meaning="Classes that the loss keeps apart have merged: their means point the same way. No classifier can tell "
        "them apart by direction.",
        steps=(
            "Check the labels of the merged classes, then temperature, learning rate and whether gradients reach the "
            "encoder.",
            "Compare the loss of training with what the command optgeom loss says: a collapsed network has a value of "
            "its own.",
        ),
    ),
    VerdictKind(
        verdict="differs",
        applies=lambda evidence: bool(evidence.costly.any()),
        pairs=lambda evidence: evidence.costly,
        sentence=_differs,
        headline=_differs_headline,
        meaning="Some class means are not where the loss would put them for these class sizes, and sampling noise does "
        "not explain it.",
        steps=(
            "Make sure that class counts, sampler, loss and temperature are those of training: another setting has "
            "another optimum.",
            "Look at the classes at the top of the table. Few large classes: often an early stop or a learning rate; "
            "many small classes: too few images in training for their means to get there.",
            "Embed training images as well. If those agree with the optimum and these do not, it is generalisation, "
            "not optimisation.",
        ),
    ),
    VerdictKind(
        verdict="within-slack",
        applies=lambda evidence: bool(evidence.different.any()),
        sentence=_within_slack,
        headline=_within_slack_headline,
        meaning="Some class means are not where the optimum has them, but at this temperature the loss hardly "
        "determines them: moving them there would lower it by less than the slack. No class is in trouble.",
        steps=(
            "If these angles matter, choose a loss that determines them: a higher temperature, or other weights "
            "(`optgeom solve --slack` shows what a loss determines).",
            "Do not read a difference between two runs in these angles as an effect: the loss allows it.",
        ),
    ),
    VerdictKind(
        verdict="consistent",
        applies=_is_consistent,
        sentence=_consistent,
        headline=_consistent_headline,
        meaning="The class means stand where the loss wants them for these class sizes, as far as this number of "
        "images can tell. Whatever still separates the embedding from the lowest loss lies within the classes, not in "
        "how they stand to each other.",
        steps=(
            "Read the excess risk: what is left is the scatter of images around their class mean.",
            "Classes that stand close together do so because the loss asks for it. To move them apart, change the loss "
            "or the sampler.",
        ),
    ),
    VerdictKind(
        verdict="inconclusive",
        applies=lambda evidence: evidence.bracket and not evidence.lacking,
        sentence=_uncertified,
        headline=_inconclusive_headline,
        meaning="The embedding has fewer dimensions than the optimum needs. The best geometry in so few dimensions is "
        "not certified, so nothing can be called consistent with it.",
        steps=(
            "Use an embedding dimension of at least the rank that the optimum needs, or read the angles below as a "
            "comparison, not as a test.",
        ),
    ),
    VerdictKind(
        verdict="inconclusive",
        applies=lambda evidence: True,
        sentence=_inconclusive,
        headline=_inconclusive_headline,
        meaning="These images cannot tell whether the embedding is at the optimum. This says nothing against the "
        "training.",
        steps=(
            "Embed more images of the classes named; several views of one image count as one image.",
            "Or leave those classes out, and judge the rest.",
        ),
    ),
)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _classes(names: tuple[str, ...]) -> str:
    return f"class {short(names[0], 30)}" if len(names) == 1 else f"{len(names)} classes"


def by_pairs(names: tuple[str, ...], chosen: Mask) -> tuple[tuple[str, int], ...]:
    """Classes by the number of the chosen pairs that they are in."""
    number = chosen.sum(axis=0) + chosen.sum(axis=1)
    order = np.argsort(-number, kind="stable")
    return tuple((names[c], int(number[c])) for c in order if number[c])


def listed(parts: list[str], number: int) -> str:
    """The first parts of `number` things in words."""
    more = number - len(parts)
    if more > 0:
        return ", ".join(parts) + f" and {more} more"
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
