"""Kinds of verdict on a trained embedding, and the evidence that each is given on.

The first of `KINDS` that applies is given. With all intervals simultaneous and delta the
tolerance:

    at-a-saddle    some pair is off, and the class means are a critical point of lower rank (`saddle`): forces balance,
                   yet the loss falls along a direction that the means do not span
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

In fewer dimensions than the optimum needs no pair is judged by itself, since other arrangements of the classes are as
good: the risk is compared with that of the best geometry found (`limited_risk`). It differs where the interval of its
excess lies above the slack, and is consistent where it lies below.

The tolerance is there because no trained network attains the optimum: "sampling noise only" (delta = 0) is rejected by
any large sample.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optgeom.embeddings.statistics.evidence import Evidence, Mask
from optgeom.embeddings.statistics.limited_risk import LimitedRisk
from optgeom.formatting import short

NAMED_PAIRS = 3
SHOWN_DEG = 0.05  # half of the last digit that sentences show
NAMED_CLASSES = 5


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


def _at_a_saddle(evidence: Evidence) -> str:
    assert evidence.saddle is not None
    return evidence.saddle.sentence(evidence.directions.names) + "."


def _at_a_saddle_headline(evidence: Evidence) -> str:
    assert evidence.saddle is not None
    rank, best = evidence.saddle.rank, evidence.saddle.optimal_rank
    return f"Training has stalled: the class means span {rank} of {best} dimensions"


def _differs(evidence: Evidence) -> str:
    number = int(evidence.costly.sum())
    parts = []
    for pair in evidence.worst(evidence.costly)[:NAMED_PAIRS]:
        low, high = pair.ci_deg or (0.0, 0.0)
        measured = f"angle {pair.angle_deg:.1f}, between {low:.1f} and {high:.1f}; optimal {pair.optimal_deg:.1f}"
        parts.append(f"{evidence.named(pair)} ({measured})")
    delta = evidence.tolerance_deg
    beyond = f"more than {delta:g} degrees beyond sampling noise" if delta else "more than sampling noise explains"
    tested = _count(evidence.intervals.num_pairs, "pair")
    subject = f"{number} of {tested} of classes {'is' if number == 1 else 'are'} off by {beyond}"
    return f"differs from the optimum: {subject}: {listed(parts, number)}{evidence.busiest(evidence.costly)}."


def _differs_headline(evidence: Evidence) -> str:
    pairs, single = evidence.share_of_pairs(evidence.costly)
    return f"{pairs} {'is' if single else 'are'} not at the optimal angle"


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
    return not (evidence.lacking or evidence.wide.any())


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


def _limited_differs(evidence: Evidence) -> str:
    assert evidence.limited_risk is not None
    allowed = 100 * evidence.limited_risk.allowed(evidence.slack)
    return (
        f"differs from the best geometry found in so few dimensions: the loss is {_percentages(evidence.limited_risk)} "
        f"of the way from its value there to total collapse (slack {allowed:.2g} %). Other arrangements of the classes "
        "are as good there, so that no single pair is to blame."
    )


def _limited_consistent(evidence: Evidence) -> str:
    assert evidence.limited_risk is not None
    allowed = 100 * evidence.limited_risk.allowed(evidence.slack)
    better = "better than" if evidence.limited_risk.high < -evidence.limited_risk.accuracy else "as good as"
    return (
        f"consistent: {better} the best geometry found in so few dimensions: the loss is "
        f"{_percentages(evidence.limited_risk)} of the way from its value there to total collapse (slack "
        f"{allowed:.2g} %). The arrangement of the classes may be another one."
    )


def _limited_unsure(evidence: Evidence) -> str:
    risk = evidence.limited_risk
    if risk is None:
        return (
            "inconclusive: in so few dimensions an embedding is judged by its risk, which needs images of every class, "
            "and a loss that separates them."
        )
    return (
        f"inconclusive: the loss is {_percentages(risk)} of the way from its value at the best geometry found in so "
        f"few dimensions to total collapse, which may be more or less than the slack of "
        f"{100 * risk.allowed(evidence.slack):.2g} %."
    )


def _percentages(risk: LimitedRisk) -> str:
    return f"{100 * risk.excess:.2g} % ({100 * risk.low:.2g} to {100 * risk.high:.2g})"


def _limited_headline(evidence: Evidence) -> str:
    risk = evidence.limited_risk
    if risk is None:
        return "These images cannot tell: in so few dimensions the risk of all classes is needed"
    if risk.low > risk.allowed(evidence.slack):
        return "The class means are not as good as the best geometry known in so few dimensions"
    if risk.high <= risk.allowed(evidence.slack):
        return "The class means are as good as the best geometry known in so few dimensions"
    return "These images cannot tell: the risk may be above the slack or below"


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
    else:
        reason = f"an angle may be off by up to {evidence.within_deg:.0f} degrees"
    return f"These images cannot tell: {reason}"


KINDS = (
    VerdictKind(
        verdict="at-a-saddle",
        applies=lambda evidence: evidence.saddle is not None and evidence.saddle.at_saddle,
        pairs=lambda evidence: evidence.stalled,
        sentence=_at_a_saddle,
        headline=_at_a_saddle_headline,
        meaning="The class means are a critical point of the loss, but not its minimum: they span fewer dimensions "
        "than the optimum, and the loss falls along one that they do not span. Training leaves such a point very "
        "slowly, or not at all where the encoder cannot tell these classes apart.",
        steps=(
            "Train with a balanced sampler for the first fifth of the steps, or at a temperature of 0.2 to 0.3, or "
            "longer.",
            "Look at images of the classes named: if they stay together after that, they overlap.",
            "`optgeom solve --saddles` says which classes come apart last, and how slowly.",
        ),
    ),
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

# In fewer dimensions than the optimum needs.
LIMITED_KINDS = (
    VerdictKind(
        verdict="differs",
        applies=lambda evidence: (
            evidence.limited_risk is not None
            and evidence.limited_risk.low > evidence.limited_risk.allowed(evidence.slack)
        ),
        sentence=_limited_differs,
        headline=_limited_headline,
        meaning="The embedding has fewer dimensions than the optimum needs, and its class means are worse, by the loss "
        "itself, than the best geometry that was found in as many.",
        steps=(
            "Train longer, or from another start: in few dimensions training can end in arrangements that are not the "
            "best.",
            "Or use an embedding dimension of at least the rank that the optimum needs.",
        ),
    ),
    VerdictKind(
        verdict="consistent",
        applies=lambda evidence: (
            evidence.limited_risk is not None
            and evidence.limited_risk.high <= evidence.limited_risk.allowed(evidence.slack)
        ),
        sentence=_limited_consistent,
        headline=_limited_headline,
        meaning="The embedding has fewer dimensions than the optimum needs. By the loss itself its class means are as "
        "good as the best geometry that was found in as many, though perhaps in another arrangement.",
        steps=(
            "Angles of single pairs mean little here: another run may arrange the classes in another way.",
            "An embedding dimension of at least the rank that the optimum needs has a unique answer.",
        ),
    ),
    VerdictKind(
        verdict="inconclusive",
        applies=lambda evidence: (
            evidence.limited_risk is not None
            or (evidence.within_deg is not None and not evidence.directions.without_direction)
        ),
        sentence=_limited_unsure,
        headline=_limited_headline,
        meaning="The embedding has fewer dimensions than the optimum needs, and these images do not tell whether its "
        "loss is that of the best geometry found in as many.",
        steps=(
            "Embed more images, of every class.",
            "Or use an embedding dimension of at least the rank that the optimum needs.",
        ),
    ),
    KINDS[-1],
)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _classes(names: tuple[str, ...]) -> str:
    return f"class {short(names[0], 30)}" if len(names) == 1 else f"{len(names)} classes"


def of_kind(evidence: Evidence) -> VerdictKind:
    """The first kind that applies."""
    kinds = LIMITED_KINDS if evidence.bracket else KINDS
    return next(kind for kind in kinds if kind.applies(evidence))


def listed(parts: list[str], number: int) -> str:
    """The first parts of `number` things in words."""
    more = number - len(parts)
    if more > 0:
        return ", ".join(parts) + f" and {more} more"
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
