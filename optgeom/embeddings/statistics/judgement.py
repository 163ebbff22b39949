"""The verdict on a trained embedding in a word and in sentences, with the pairs and classes that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.deviation import Deviations, PairDeviation
from optgeom.embeddings.statistics.pair_intervals import PairIntervals
from optgeom.embeddings.statistics.verdict_kinds import KINDS, NAMED_CLASSES, Evidence, by_pairs, listed

DEFAULT_TOLERANCE_DEG = 2.0
DEFAULT_SLACK = 1e-3  # docs/validate.md argues it


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The verdict on a trained embedding, and what it rests on.

    Attributes
    ----------
    verdict : {"collapsed", "differs", "within-slack", "consistent", "inconclusive"}
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
        The geometry is only the best found in too few dimensions, not a certified optimum: nothing is then consistent
        with "the optimum".
    missing : tuple of str
        Classes of the geometry without embeddings, to be named.
    own_excess : (C, C), optional
        For each pair that is off by more than the tolerance, the least risk above the optimum at which it can have the
        angle next to the optimum inside its interval, per image of its two classes, as a share of the loss range; nan
        where it is not known. Without it every such pair counts.
    slack : float
        Share up to which the loss hardly asks for an angle.

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
    )
    kind = next(kind for kind in KINDS if kind.applies(evidence))
    return Judgement(
        verdict=kind.verdict,
        sentence=kind.sentence(evidence) + _remarks(evidence),
        headline=kind.headline(evidence),
        meaning=kind.meaning,
        steps=kind.steps,
        within_deg=evidence.within_deg,
        tolerance_deg=tolerance_deg,
        pairs=evidence.worst(kind.pairs(evidence)),
        num_pairs=int(kind.pairs(evidence).sum()),
        classes=by_pairs(directions.names, kind.pairs(evidence)),
        too_small=evidence.too_small,
        without_direction=directions.without_direction,
        as_predicted=evidence.worst(evidence.as_predicted),
        spread=evidence.spread,
    )


def _remarks(evidence: Evidence) -> str:
    remarks = ""
    if evidence.spread:
        measured = f"median length of the class mean {evidence.directions.median_rho:.2f}"
        remarks += f" The images of a class are not tight ({measured}): probably not trained to convergence."
    if evidence.missing:
        named = listed(list(evidence.missing[:NAMED_CLASSES]), len(evidence.missing))
        remarks += f" Left out, without embeddings: {named}."
    return remarks
