r"""Several training seeds in one verdict, with the spread between them.

Each of the S embeddings is judged by itself, at the level alpha/S: that any of them is called off although all are at
the optimum has probability alpha at most. The verdict on all is the gravest of them, in the order of `GRAVITY`, and
what is shown in detail is that seed. Beside it stands how much a seed says: over the seeds, the mean angle of each pair
and its standard deviation s,

    spread = root mean square of s over the pairs,      noise = the same of the standard error of one embedding,

so that spread much above noise is the training, not the number of images.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optgeom._numerics import Array, freeze
from optgeom.embeddings.statistics.pair_intervals import ALPHA
from optgeom.errors import InvalidInputError
from optgeom.formatting import finite

if TYPE_CHECKING:
    from optgeom.embeddings.result import Validation

GRAVITY = ("collapsed", "at-a-saddle", "differs", "inconclusive", "within-slack", "consistent")
LISTED_PAIRS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class Seeds:
    """Verdicts on several embeddings of one training, and the spread between them. All arrays are read-only.

    Attributes
    ----------
    sources : tuple of str
        What each was read from.
    verdicts : tuple of str
    worst : int
        Position of the gravest one.
    names : tuple of str, length C
        Classes that all of them have.
    mean_deg, sd_deg : (C, C)
        Mean and standard deviation over the seeds of each angle, degrees; nan where a class has no direction.
    optimal_deg : (C, C)
    spread_deg, noise_deg : float
        Root mean square over the pairs of `sd_deg`, and of the standard error of the angles of one embedding.
    """

    sources: tuple[str, ...]
    verdicts: tuple[str, ...]
    worst: int
    names: tuple[str, ...]
    mean_deg: Array
    sd_deg: Array
    optimal_deg: Array
    spread_deg: float
    noise_deg: float

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def widest(self) -> tuple[int, int] | None:
        """The pair that differs most between seeds."""
        upper = np.where(np.triu(np.ones_like(self.sd_deg, dtype=bool), 1), self.sd_deg, np.nan)
        if np.isnan(upper).all():
            return None
        first, second = np.unravel_index(int(np.nanargmax(upper)), upper.shape)
        return int(first), int(second)

    def sentence(self) -> str:
        """The verdicts by number, and the spread."""
        counts = Counter(self.verdicts)
        said = ", ".join(f"{verdict} in {counts[verdict]}" for verdict in GRAVITY if counts[verdict])
        parts = [f"{len(self.verdicts)} seeds: {said}."]
        if self.widest is not None:
            first, second = self.widest
            parts.append(
                f"Between seeds an angle varies by {self.spread_deg:.2g} degrees (standard deviation, root mean square "
                f"over pairs; sampling noise of one seed {self.noise_deg:.2g}), most between {self.names[first]} and "
                f"{self.names[second]} ({self.sd_deg[first, second]:.2g})."
            )
        return " ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        upper = [(i, j) for i in range(len(self.names)) for j in range(i + 1, len(self.names))]
        order = sorted(upper, key=lambda pair: -np.nan_to_num(self.sd_deg[pair], nan=-1.0))
        return {
            "verdicts": [
                {"embeddings_from": source, "verdict_kind": verdict}
                for source, verdict in zip(self.sources, self.verdicts, strict=True)
            ],
            "worst": self.worst,
            "spread_deg": finite(self.spread_deg),
            "noise_deg": finite(self.noise_deg),
            "pairs": [
                {
                    "first": self.names[i],
                    "second": self.names[j],
                    "mean_deg": finite(self.mean_deg[i, j]),
                    "sd_deg": finite(self.sd_deg[i, j]),
                    "optimal_deg": float(self.optimal_deg[i, j]),
                }
                for i, j in order[:LISTED_PAIRS]
            ],
        }


def several_seeds(embeddings: Any) -> bool:
    """Whether this is a list of embeddings: of paths, or of tables of rows."""
    return (
        isinstance(embeddings, (list, tuple))
        and len(embeddings) > 0
        and all(isinstance(one, (str, os.PathLike)) or getattr(one, "ndim", 0) >= 2 for one in embeddings)
    )


def validate_seeds(
    embeddings: Sequence[Any],
    labels: Any,
    validate: Callable[..., Validation],
    arguments: Mapping[str, Any],
) -> Validation:
    """The verdict on several embeddings.

    Parameters
    ----------
    embeddings : sequence
        One per seed, at least one.
    labels : array-like, path, or a list of one per seed
    validate : callable
        `validate` of one embedding.
    arguments : mapping
        Its other arguments.

    Raises
    ------
    InvalidInputError
        Labels of another number of seeds, or fewer than two classes that all have; and as `validate`.
    """
    of_each = _labels_of_each(labels, len(embeddings))
    level = ALPHA / len(embeddings)
    found = [validate(one, own, **arguments, alpha=level) for one, own in zip(embeddings, of_each, strict=True)]
    if len(found) == 1:
        return found[0]
    sources = tuple(
        f"seed {number}" if one.embeddings_from.startswith("`") else one.embeddings_from
        for number, one in enumerate(found)
    )
    seeds = _compare(found, sources)
    worst = found[seeds.worst]
    sentence = f"{worst.verdict}: {seeds.sentence()} Gravest seed ({sources[seeds.worst]}): {worst.sentence}"
    return replace(worst, seeds=seeds, sentence=sentence, seconds=sum(one.seconds for one in found))


def _labels_of_each(labels: Any, number: int) -> list[Any]:
    if not isinstance(labels, (list, tuple)) or not labels:
        return [labels] * number
    whole = all(isinstance(one, (str, os.PathLike)) or getattr(one, "ndim", 0) == 1 for one in labels)
    if not whole or (isinstance(labels[0], str) and not os.path.exists(labels[0])):
        return [labels] * number
    if len(labels) != number:
        raise InvalidInputError(
            f"`labels` must be those of all seeds, or one per seed; got {len(labels)} for {number} embeddings "
            "(give each embedding its labels, or one array for all)"
        )
    return list(labels)


def _compare(found: list[Validation], sources: tuple[str, ...]) -> Seeds:
    names = tuple(name for name in found[0].names if all(name in one.names for one in found[1:]))
    if len(names) < 2:
        raise InvalidInputError(
            f"`embeddings` of several seeds must have two classes in common at least; got {len(names)} "
            "(are these the same classes?)"
        )
    places = [np.array([one.names.index(name) for name in names]) for one in found]
    angles = np.stack([one.deviations.angles[np.ix_(place, place)] for one, place in zip(found, places, strict=True)])
    errors = np.stack([_standard_errors(one)[np.ix_(place, place)] for one, place in zip(found, places, strict=True)])
    upper = np.triu_indices(len(names), 1)
    sd = angles.std(axis=0, ddof=1)
    gravest = min(
        range(len(found)),
        key=lambda seed: (
            GRAVITY.index(found[seed].verdict),
            -found[seed].judgement.num_pairs,
            -(found[seed].max_angle_error_deg or 0.0),
        ),
    )
    return Seeds(
        sources=sources,
        verdicts=tuple(one.verdict for one in found),
        worst=gravest,
        names=names,
        mean_deg=angles.mean(axis=0),
        sd_deg=sd,
        optimal_deg=found[0].deviations.optimal[np.ix_(places[0], places[0])],
        spread_deg=_root_mean_square(sd[upper]),
        noise_deg=_root_mean_square(errors[:, upper[0], upper[1]].ravel()),
    )


def _standard_errors(found: Validation) -> Array:
    """(C, C) of the angles, degrees; next to 0 and 180 degrees, where a cosine is quadratic in the angle, its root."""
    cosines, errors = found.intervals.cosines, found.intervals.standard_errors
    sine = np.sqrt(np.maximum(1 - cosines**2, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.degrees(np.where(errors > 0, errors / np.maximum(sine, np.sqrt(errors)), 0.0))


def _root_mean_square(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(known**2))) if known.size else float("nan")
