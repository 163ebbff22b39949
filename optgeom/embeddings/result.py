"""Validation: everything that is known about a trained embedding beside the optimum, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from optgeom._numerics import Array, freeze
from optgeom.embeddings.metrics.metric import Metric
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.moments.unit_rows import NormSpread
from optgeom.embeddings.seeds import Seeds
from optgeom.embeddings.statistics.deviation import Deviations, PairDeviation
from optgeom.embeddings.statistics.excess_risk import ExcessRisk
from optgeom.embeddings.statistics.judgement import DEFAULT_SLACK, Judgement
from optgeom.embeddings.statistics.pair_intervals import PairIntervals
from optgeom.embeddings.statistics.pair_ranges import PairRanges
from optgeom.embeddings.statistics.reference_test import ReferenceTest
from optgeom.embeddings.statistics.saddle import Saddle
from optgeom.formatting import finite, to_json
from optgeom.geometry import Geometry

FORMAT = "optgeom-validation"
VERSION = 1
LISTED_PAIRS = 1000


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """One class in the table of classes; None is n/a.

    Attributes
    ----------
    name : str
    count : int
        Images.
    rho : float or None
        Length of the class mean.
    pairs : int
        How many of the pairs that decided the verdict it is in.
    worst_pair : str or None
        The class to which its angle deviates most surely.
    deviation, low, high : float or None
        Of that angle from the optimum, degrees, with its interval.
    cdnv : float or None
        Largest class-distance normalised variance with any other class; inf where the two means coincide.
    nearest_mean, cac, saa : float or None
        Nearest-class-mean accuracy, CAC and SAA of its sampled rows.
    """

    name: str
    count: int
    rho: float | None
    pairs: int
    worst_pair: str | None
    deviation: float | None
    low: float | None
    high: float | None
    cdnv: float | None
    nearest_mean: float | None
    cac: float | None
    saa: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        entry = {**asdict(self), "deviation_ci": None if self.low is None else [self.low, self.high]}
        del entry["low"], entry["high"]
        return entry | {"cdnv": finite(self.cdnv)}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Validation:
    """A trained embedding beside the optimum; made by `optgeom.validate`.

    Classes are in the order of the geometry, those without embeddings left out. All arrays are read-only.

    Attributes
    ----------
    geometry : Geometry
        The optimum (or, with `geometry.bracket`, the best found in too few dimensions) that it is compared with.
    names : tuple of str, length C
        Classes compared, by their names in the geometry.
    optimal : (C, C)
        Cosines of the optimum between these classes.
    directions : Directions
    intervals : PairIntervals
    deviations : Deviations
    judgement : Judgement
    excess_risk : ExcessRisk
    sentence : str
        The verdict in words, with what it rests on: matching by shape, proportions taken from the embeddings
        themselves.
    metrics : dict of str to Metric
        By name; formulas and sources are in `optgeom.embeddings.metrics`.
    classes : tuple of ClassRow
        The classes in most trouble first.
    learned_spectrum, optimal_spectrum : (C',)
        Eigenvalues of the two Gram matrices of the classes that have a direction, descending.
    num_rows, num_images, dim : int
        Rows read; images compared (rows, where every image is one); length of a row.
    norms : NormSpread
        Norms of the rows as stored.
    embeddings_from, optimum_from : str
        What they were read from, in words.
    slack : float
        Share of the loss range, per image of the two classes, up to which the loss hardly asks for an angle.
    own_excess : (C, C) or None
        What each pair that is off by more than the tolerance costs at least, in the same units; nan elsewhere.
    confusion : (C, C) or None
        Share of the images of each pair that are nearer to the mean of the other class, both classes weighted alike;
        nan where a class has one image.
    ranges : PairRanges or None
        Angles that the loss allows each pair at the excess of all angles together, and what it takes to fix them; None
        without an excess or a certified optimum.
    reference : ReferenceTest or None
        The optimum beside the balanced simplex, all angles at once; None without a certified optimum, without two
        classes of images enough, or in fewer dimensions than a simplex needs.
    seeds : Seeds or None
        Where several embeddings were given: the verdict on each, and the spread between them. Everything else is then
        that of the seed with the gravest verdict.
    own_counts : bool
        The proportions are those of the embeddings themselves, since the training counts were not given.
    matching : {"names", "hungarian"}
    matched : dict of str to str
        After Hungarian matching: class of the embeddings -> class of the geometry.
    ignored : dict of str to int
        Rows of each ignored label.
    extra : dict of str to int
        Images of each class that the geometry does not have, where they were left out.
    missing : tuple of str
        Classes of the geometry without embeddings.
    notes : tuple of str
        What was done to rows and labels, and what could not be done.
    seconds : float
    """

    geometry: Geometry
    names: tuple[str, ...]
    optimal: Array
    directions: Directions
    intervals: PairIntervals
    deviations: Deviations
    judgement: Judgement
    excess_risk: ExcessRisk
    sentence: str
    metrics: Mapping[str, Metric]
    classes: tuple[ClassRow, ...]
    learned_spectrum: Array
    optimal_spectrum: Array
    num_rows: int
    num_images: int
    dim: int
    norms: NormSpread
    embeddings_from: str
    optimum_from: str
    slack: float = DEFAULT_SLACK
    own_excess: Array | None = None
    confusion: Array | None = None
    ranges: PairRanges | None = None
    reference: ReferenceTest | None = None
    seeds: Seeds | None = None
    own_counts: bool = False
    matching: str = "names"
    matched: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    extra: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def __post_init__(self) -> None:
        freeze(self)

    def __repr__(self) -> str:
        return f"Validation(num_classes={self.num_classes}, num_images={self.num_images}, verdict={self.verdict!r})"

    @property
    def num_classes(self) -> int:
        """C, the classes compared."""
        return len(self.names)

    @property
    def verdict(self) -> str:
        """One of "at-a-saddle", "collapsed", "differs", "within-slack", "consistent" or "inconclusive"."""
        return self.judgement.verdict

    @property
    def saddle(self) -> Saddle | None:
        """What the test for a saddle saw, where pairs are off and the class means span fewer dimensions."""
        return self.judgement.saddle

    @property
    def tolerance_deg(self) -> float:
        """Deviation in degrees up to which a pair counts as optimal."""
        return self.judgement.tolerance_deg

    @property
    def max_angle_error_deg(self) -> float | None:
        """Largest deviation of an angle from its optimum, degrees; None where no pair could be tested."""
        return self.deviations.max_angle_error_deg

    @property
    def max_angle_error_ci_deg(self) -> tuple[float, float] | None:
        """Its interval, simultaneous over all pairs."""
        return self.deviations.max_angle_error_ci_deg

    @property
    def class_r2(self) -> float | None:
        """Share of the differences between the optimal cosines that the embedding has; None where there are none."""
        return self.deviations.class_r2

    def worst_pairs(self, limit: int = 10) -> tuple[PairDeviation, ...]:
        """Tested pairs, the most surely deviating first; class numbers as in `names`."""
        return self.deviations.worst_pairs(limit)

    def as_dict(self, pairs: int = LISTED_PAIRS) -> dict[str, Any]:
        """Plain values for JSON (see `validation.schema.json`), with the `pairs` most surely deviating pairs."""
        interval = self.max_angle_error_ci_deg
        return {
            "format": FORMAT,
            "version": VERSION,
            "verdict": self.verdict,
            "verdict_kind": self.verdict,
            "sentence": self.sentence,
            "max_angle_error_deg": self.max_angle_error_deg,
            "max_angle_error_ci_deg": None if interval is None else list(interval),
            "class_r2": self.class_r2,
            "class_r2_weak": self.deviations.class_r2_weak,
            "relative_frobenius": self.deviations.relative_frobenius,
            "excess_risk": self.excess_risk.as_dict(),
            "judgement": self.judgement.as_dict(self.names),
            "slack": self.slack,
            "reference_verdict": None if self.reference is None else self.reference.verdict,
            "reference": None if self.reference is None else self.reference.as_dict(),
            "saddle": None if self.saddle is None else self.saddle.as_dict(self.names),
            "pairs": [{**pair.as_dict(self.names), **self.pair_evidence(pair)} for pair in self.worst_pairs(pairs)],
            "num_pairs": self.intervals.num_pairs,
            "seeds": None if self.seeds is None else self.seeds.as_dict(),
            "per_class": [row.as_dict() for row in self.classes],
            "metrics": {name: metric.as_dict() for name, metric in self.metrics.items()},
            "ignored": dict(self.ignored),
            "extra": dict(self.extra),
            "missing": list(self.missing),
            "names": list(self.names),
            "num_classes": self.num_classes,
            "num_rows": self.num_rows,
            "num_images": self.num_images,
            "dim": self.dim,
            "embeddings_from": self.embeddings_from,
            "optimum": self._optimum(),
            "matching": self.matching,
            "matched": dict(self.matched),
            "norms": {name: finite(getattr(self.norms, name)) for name in ("smallest", "largest", "mean")},
            "median_rho": self.directions.median_rho,
            "intervals": {
                "alpha": self.intervals.alpha,
                "pairs": self.intervals.num_pairs,
                "unseen_share": self.intervals.unseen,
                "source": self.intervals.source,
            },
            "spectrum": {"learned": self.learned_spectrum.tolist(), "optimal": self.optimal_spectrum.tolist()},
            "notes": list(self.notes),
            "seconds": self.seconds,
        }

    def pair_evidence(self, pair: PairDeviation) -> dict[str, float | bool | None]:
        """What is known of one pair beside its angle; None where it is not.

        Returns
        -------
        dict
            own_excess, slack_needed (shares of the loss range, per image of the two classes), closest_deg, farthest_deg
            (allowed at the excess of all angles together), exact (these three are bounds, not second order), and
            confusion (share of images).
        """
        near = self.ranges
        return {
            "own_excess": _entry(self.own_excess, pair),
            "slack_needed": None if near is None else _entry(near.slack_needed, pair),
            "closest_deg": None if near is None else _entry(near.closest, pair),
            "farthest_deg": None if near is None else _entry(near.farthest, pair),
            "exact": None if near is None else bool(near.exact[pair.first, pair.second]),
            "confusion": _entry(self.confusion, pair),
        }

    def _optimum(self) -> dict[str, Any]:
        geometry = self.geometry
        return {
            "from": self.optimum_from,
            "own_counts": self.own_counts,
            "num_classes": geometry.num_classes,
            "loss": geometry.loss.to_dict(),
            "risk": geometry.risk,
            "rank": geometry.rank,
            "regime": geometry.regime,
            "certified": geometry.certificate.certified,
            "bracket": None if geometry.bracket is None else to_json(geometry.bracket),
            "required_rank": geometry.required_rank,
        }


def _entry(values: Array | None, pair: PairDeviation) -> float | None:
    return None if values is None else finite(values[pair.first, pair.second])
