"""The verdict on a trained embedding in a word and in sentences, with the pairs and classes that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.deviation import Deviations, PairDeviation
from optgeom.embeddings.statistics.evidence import Evidence, Mask, by_pairs
from optgeom.embeddings.statistics.limited_risk import LimitedRisk
from optgeom.embeddings.statistics.pair_intervals import PairIntervals
from optgeom.embeddings.statistics.saddle import Saddle
from optgeom.embeddings.statistics.verdict_kinds import NAMED_CLASSES, listed, of_kind

DEFAULT_TOLERANCE_DEG = 2.0
DEFAULT_SLACK = 1e-3  # docs/validate.md argues it
CONFUSED = 0.02  # of the images of a pair, from which on overlap is named


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a trained embedding, and what it rests on.

    Attributes
    ----------
    verdict : {"at-a-saddle", "collapsed", "differs", "within-slack", "consistent", "inconclusive"}
    sentence : str
        The verdict in words.
    headline : str
        The same in one plain sentence, for readers who do not know the words of the verdict.
    meaning : str
        What the verdict means, for somebody who meets it for the first time.
    steps : tuple of str
        What to do next.
    within_deg : float or None
        X: no tested pair is off by more, at the confidence of the intervals. None where no pair was tested.
    tolerance_deg : float
        delta.
    pairs : tuple of PairDeviation
        The pairs that decided `at-a-saddle`, `collapsed` or `differs`, the surest first; the first 1000 of `num_pairs`.
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
    saddle : Saddle or None
        What the test for a saddle saw, where pairs are off and the class means span fewer dimensions than the optimum.
    limited_risk : LimitedRisk or None
        Risk beside the best geometry found, where the embedding has too few dimensions for the optimum.
    """

    verdict: str
    sentence: str
    headline: str
    meaning: str
    steps: tuple[str, ...]
    within_deg: float | None
    tolerance_deg: float
    pairs: tuple[PairDeviation, ...]
    num_pairs: int
    classes: tuple[tuple[str, int], ...]
    too_small: tuple[str, ...]
    without_direction: tuple[str, ...]
    as_predicted: tuple[PairDeviation, ...]
    spread: bool
    saddle: Saddle | None
    limited_risk: LimitedRisk | None

    def as_dict(self, names: tuple[str, ...]) -> dict[str, Any]:
        """What the verdict rests on, as plain values for JSON; `names` are those of the classes."""
        return {
            "within_deg": self.within_deg,
            "tolerance_deg": self.tolerance_deg,
            "num_pairs": self.num_pairs,
            "classes": [{"name": name, "pairs": number} for name, number in self.classes],
            "too_small": list(self.too_small),
            "without_direction": list(self.without_direction),
            "as_predicted": [[names[pair.first], names[pair.second]] for pair in self.as_predicted],
            "spread": self.spread,
            "limited_risk": None if self.limited_risk is None else asdict(self.limited_risk),
        }


def judge(
    directions: Directions,
    intervals: PairIntervals,
    deviations: Deviations,
    *,
    beyond: npt.NDArray[np.bool_],
    tolerance_deg: float = DEFAULT_TOLERANCE_DEG,
    bracket: bool = False,
    missing: tuple[str, ...] = (),
    own_excess: Array | None = None,
    slack: float = DEFAULT_SLACK,
    confusion: Array | None = None,
    find_saddle: Callable[[], Saddle] | None = None,
    limited_risk: LimitedRisk | None = None,
) -> Judgement:
    """Judge a trained embedding.

    Parameters
    ----------
    directions : Directions
    intervals : PairIntervals
    deviations : Deviations
        Both of these directions.
    beyond : (C, C) bool
        Pairs that are off by more than the tolerance, as `pair_intervals.beyond` tells from `bootstrap.null_intervals`.
    tolerance_deg : float
        delta >= 0, degrees: a deviation up to which a pair counts as optimal.
    bracket : bool
        The geometry is only the best found in too few dimensions: the risk decides, not single pairs.
    missing : tuple of str
        Classes of the geometry without embeddings, to be named.
    own_excess : (C, C), optional
        For each pair that is off by more than the tolerance, the least risk above the optimum at which it can have the
        angle next to the optimum inside its interval, per image of its two classes, as a share of the loss range; nan
        where it is not known. Without it every such pair counts.
    slack : float
        Share up to which the loss hardly asks for an angle, or up to which a risk is as good as the best found.
    confusion : (C, C), optional
        Share of confused images of each pair, as `confusion.Confusion.of_pairs`.
    find_saddle : callable, optional
        The test for a saddle, called where pairs are off.
    limited_risk : LimitedRisk, optional
        With a bracket, where it is known.

    Raises
    ------
    InvalidInputError
        A tolerance that is not a number >= 0.
    """
    tolerance_deg = _checks.real(
        "tolerance_deg", tolerance_deg, at_least=0.0, hint="degrees; 2 is usual, 0 asks for sampling noise only"
    )
    evidence = Evidence(
        directions=directions,
        intervals=intervals,
        deviations=deviations,
        beyond=beyond,
        tolerance_deg=tolerance_deg,
        bracket=bracket,
        missing=missing,
        own_excess=own_excess,
        slack=slack,
        confusion=confusion,
        find_saddle=find_saddle,
        limited_risk=limited_risk,
    )
    kind = of_kind(evidence)
    chosen = kind.pairs(evidence)
    return Judgement(
        verdict=kind.verdict,
        sentence=kind.sentence(evidence) + _remarks(evidence, chosen),
        headline=kind.headline(evidence),
        meaning=kind.meaning,
        steps=kind.steps,
        within_deg=evidence.within_deg,
        tolerance_deg=tolerance_deg,
        pairs=evidence.worst(chosen),
        num_pairs=int(chosen.sum()),
        classes=by_pairs(directions.names, chosen),
        too_small=evidence.too_small,
        without_direction=directions.without_direction,
        as_predicted=evidence.worst(evidence.as_predicted),
        spread=evidence.spread,
        saddle=None if bracket else evidence.saddle,
        limited_risk=limited_risk,
    )


def _remarks(evidence: Evidence, chosen: Mask) -> str:
    remarks = _overlap(evidence, chosen)
    if evidence.spread:
        measured = f"median length of the class mean {evidence.directions.median_rho:.2f}"
        remarks += f" The images of a class are not tight ({measured}): probably not trained to convergence."
    if evidence.missing:
        named = listed(list(evidence.missing[:NAMED_CLASSES]), len(evidence.missing))
        remarks += f" Left out, without embeddings: {named}."
    return remarks


def _overlap(evidence: Evidence, chosen: Mask) -> str:
    """Of pairs that are off: does the encoder separate their images?"""
    at_saddle = evidence.saddle is not None and evidence.saddle.at_saddle  # which has asked for overlap itself
    if evidence.confusion is None or at_saddle:
        return ""
    # Nearest means cannot tell classes apart whose means coincide, however their images lie.
    shares = np.where(chosen & ~evidence.coincident, evidence.confusion, np.nan)
    if np.isnan(shares).all():
        return ""
    first, second = np.unravel_index(int(np.nanargmax(shares)), shares.shape)
    share = 100 * shares[first, second]
    if share > 100 * CONFUSED:
        names = evidence.directions.names
        return (
            f" Classes {names[first]} and {names[second]} are confused in {share:.0f} % of images (nearer to the mean "
            "of the other class): the encoder does not separate them, as the free features of the theory would."
        )
    return (
        f" The images of these classes are separated (at most {share:.1g} % are nearer to the mean of the other "
        "class): not overlap, but training that has not converged or that had other settings."
    )
