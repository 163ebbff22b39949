r"""Is an embedding at the optimum, at the balanced simplex, at neither, or can its images not tell?

Pair by pair the simplex of a long tail is a few degrees from the optimum, and either "some pairs differ" or
"inconclusive". All pairs at once decide. Under each of the two null hypotheses, cosines A are drawn as in `bootstrap`
around the reference, rotated onto the data; with centre mu and scale sd of each cosine, over the pairs,

    sum of squares  sum ((A - mu)/sd)^2,     maximum  max |A - mu|/sd,
    line            |sum w (A - mu)|,        w = (A_opt - A_simplex)/sd^2.

The smallest of their three p-values is calibrated by that of the draws. The line statistic looks only along the segment
between the two references, hence has power where each single pair has none. The position on it,

    t = sum w (A - A_simplex) / sum w (A_opt - A_simplex)     (0 at the simplex, 1 at the optimum),

is given with its standard deviation over the draws, and freed of its bias there, whatever the verdict: no trained
network is exactly at either, and a large sample of one is "neither" with t near 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import Directions
from optgeom.embeddings.statistics.bootstrap import chosen, cosine_draws, moments_of_draws, rotated
from optgeom.embeddings.statistics.class_noise import ClassNoise
from optgeom.embeddings.statistics.pair_intervals import FEWEST_IMAGES, matched, rounding_cosine
from optgeom.errors import InvalidInputError
from optgeom.formatting import finite

ALPHA = 0.02
DRAWS = 1000  # the sum of squares needs centre and scale of each cosine more exactly than a verdict on pairs does
MANY_CLASSES = (
    30  # from here on classes with few images are left out: their noise is not known well enough for all pairs at once
)
ENOUGH_IMAGES = 40
MOST_CLASSES = 100  # 6 seconds; of more, those with the most images
ROUNDING = 1e-12  # of cosines
SAME_COSINES = 1e-9  # references closer than this are one geometry
REFERENCES = ("optimum", "simplex", "neither", "indistinguishable")


@dataclass(frozen=True, kw_only=True)
class ReferenceTest:
    """The optimum beside the balanced simplex.

    Attributes
    ----------
    verdict : {"optimum", "simplex", "neither", "indistinguishable"}
        Which of the two the images are compatible with. "indistinguishable": both.
    p_optimum, p_simplex : float
        Probability of a cosine matrix at least as far off, were this reference the truth. Resolution 2/(draws + 2).
    position, position_sd : float
        t, 0 at the simplex and 1 at the optimum, and its standard deviation; nan where both are the same geometry.
    lack_of_fit : float
        Root mean square of A - A_opt over the pairs, freed of noise: degrees, at the mean optimal angle. 0 where noise
        explains all of it.
    num_classes : int
        Classes that were used.
    alpha : float
        Level at which a reference is rejected.
    """

    verdict: str
    p_optimum: float
    p_simplex: float
    position: float
    position_sd: float
    lack_of_fit: float
    num_classes: int
    alpha: float

    def sentence(self) -> str:
        """The verdict in words, with the position between the two."""
        verdict = {
            "optimum": "the optimum, not the balanced simplex",
            "simplex": "the balanced simplex, not the optimum",
            "neither": "neither at the optimum nor at the balanced simplex",
            "indistinguishable": "optimum and balanced simplex cannot be told apart with these images",
        }[self.verdict]
        if not self.two_geometries:
            return f"{verdict}: they are the same geometry here"
        where = f"{self.position:.2f} +- {self.position_sd:.2f}"
        misfit = f", and {self.lack_of_fit:.1f} degrees off the optimum (root mean square, noise set aside)"
        return (
            f"{verdict}: at {where} of the way from the simplex (0) to the optimum (1)"
            f"{misfit if self.verdict == 'neither' else ''}"
        )

    @property
    def two_geometries(self) -> bool:
        """Whether the optimum is another geometry than the simplex."""
        return not math.isnan(self.position)

    def as_dict(self) -> dict[str, str | float | None]:
        """Plain values for JSON."""
        figures = ("position", "position_sd", "lack_of_fit")
        return {"verdict": self.verdict, **{name: finite(getattr(self, name)) for name in figures}}


def reference_test(
    directions: Directions,
    noise: ClassNoise,
    optimal: Array,
    *,
    num_classes: int | None = None,
    rounding: float = 0.0,
    alpha: float = ALPHA,
    draws: int = DRAWS,
    seed: int = 0,
) -> ReferenceTest | None:
    """Test the optimum against the regular simplex of all classes.

    Parameters
    ----------
    directions : Directions
    noise : ClassNoise
        With roots.
    optimal : (C, C)
        Optimal Gram matrix, in the order of `directions`.
    num_classes : int, optional
        C, classes of the training, of which the simplex is; those of `directions` by default.
    rounding : float
        As in `pair_intervals`: cosines are moved towards the centre of each null hypothesis by what rounding explains.
    alpha : float
        In (0, 1); a true reference is called wrong with this probability.
    draws : int
        Even, at least 100, under each hypothesis.
    seed : int

    Returns
    -------
    ReferenceTest or None
        None where fewer than two classes have images enough (8; 40 from 30 classes on, if at least two have), where the
        noise is known by its size only, or in fewer than C - 1 dimensions, which hold no simplex.
    """
    level = _checks.real("alpha", alpha, above=0.0, hint="0.02 is usual")
    if level >= 1:
        raise InvalidInputError(f"`alpha` must be < 1; got {alpha!r} (0.02 is usual)")
    half = _checks.integer("draws", draws, at_least=100) // 2
    target = matched(optimal, directions)[np.ix_(noise.known, noise.known)]
    classes = directions.num_classes if num_classes is None else num_classes
    least = ENOUGH_IMAGES if classes >= MANY_CLASSES and (noise.counts >= ENOUGH_IMAGES).sum() > 1 else FEWEST_IMAGES
    kept = np.flatnonzero(noise.counts >= least)
    kept = np.sort(kept[np.argsort(-noise.counts[kept], kind="stable")[:MOST_CLASSES]])
    if noise.roots is None or kept.size < 2 or noise.vectors.shape[1] < classes - 1:
        return None
    noise, target = chosen(noise, kept), target[np.ix_(kept, kept)]
    simplex = np.full_like(target, -1 / (classes - 1))
    np.fill_diagonal(simplex, 1.0)
    pairs = np.triu_indices(kept.size, 1)
    observed, ends = noise.cosines[pairs], (target[pairs], simplex[pairs])
    step = ends[0] - ends[1]
    same = float(np.abs(step).max()) < SAME_COSINES
    samples = [_Sample(rotated(gram, noise), noise, pairs, half, seed, step) for gram in (target, simplex)]
    rounded = rounding_cosine(target, rounding)[pairs] + ROUNDING
    values = [sample.p_value(sample.without_rounding(observed, rounded)) for sample in samples]
    inside = [value > level for value in values]
    verdict = REFERENCES[{(True, False): 0, (False, True): 1, (False, False): 2, (True, True): 3}[inside[0], inside[1]]]
    position, deviation = (np.nan, np.nan) if same else _position(observed, ends, samples, verdict)
    excess = float(np.mean((observed - samples[0].centre) ** 2 - samples[0].scale ** 2))
    across = max(float(np.sqrt(1 - np.mean(ends[0]) ** 2)), 1e-3)
    return ReferenceTest(
        verdict=verdict,
        p_optimum=values[0],
        p_simplex=values[1],
        position=position,
        position_sd=deviation,
        lack_of_fit=float(np.degrees(np.sqrt(max(excess, 0.0)) / across)),
        num_classes=kept.size,
        alpha=level,
    )


class _Sample:
    """Draws around one reference, reduced to their three statistics."""

    def __init__(
        self,
        null: Array,
        noise: ClassNoise,
        pairs: tuple[npt.NDArray[np.intp], ...],
        half: int,
        seed: int,
        step: Array,
    ) -> None:
        self.centre, self.scale = moments_of_draws(null, noise, pairs, half, seed)
        self._step = step
        blocks = cosine_draws(null, noise, pairs, half, seed + 1)
        found = [(self._statistics(block), block @ self.weights) for block in blocks]
        self._statistics_of_draws = np.concatenate([statistics for statistics, _ in found])
        self.lines = np.concatenate([line for _, line in found])
        self._least = np.sort(self._p_values(self._statistics_of_draws).min(axis=1))

    @property
    def weights(self) -> Array:
        """w (P,)."""
        return np.asarray(self._step / self.scale**2)

    def without_rounding(self, observed: Array, rounded: Array) -> Array:
        """Cosines (P,) moved towards the centre by at most `rounded`."""
        away = observed - self.centre
        return np.asarray(self.centre + np.sign(away) * np.maximum(np.abs(away) - rounded, 0.0))

    def p_value(self, observed: Array) -> float:
        """Calibrated smallest p-value of cosines (P,)."""
        least = self._p_values(self._statistics(observed[None]))[0].min()
        number = self._least.size
        return float((1 + np.searchsorted(self._least, least, side="right")) / (number + 1))

    def _statistics(self, cosines: Array) -> Array:
        """(b, 3) of cosines (b, P)."""
        away = (cosines - self.centre) / self.scale
        line = np.abs((cosines - self.centre) @ self.weights)
        return np.stack([np.einsum("bp,bp->b", away, away), np.abs(away).max(axis=1), line], axis=1)

    def _p_values(self, statistics: Array) -> Array:
        """(b, 3), each against the draws."""
        ordered = np.sort(self._statistics_of_draws, axis=0)
        number = len(ordered)
        below = [np.searchsorted(ordered[:, k], statistics[:, k], side="left") for k in range(3)]
        return (1 + number - np.stack(below, axis=1)) / (number + 1)


def _position(observed: Array, ends: tuple[Array, Array], samples: list[_Sample], verdict: str) -> tuple[float, float]:
    """t and its standard deviation, by the draws of the reference that is not rejected, or of the nearer one."""

    def read(sample: _Sample) -> tuple[float, float]:
        weights = sample.weights
        length = float(weights @ (ends[0] - ends[1]))
        at = float(weights @ (sample.centre - ends[1])) / length  # where the draws of this reference are on average
        true = 1.0 if sample is samples[0] else 0.0
        return float(weights @ (observed - ends[1])) / length - (at - true), float(sample.lines.std(ddof=1)) / abs(
            length
        )

    by_optimum, by_simplex = read(samples[0]), read(samples[1])
    if verdict == "simplex":
        return by_simplex
    if verdict == "optimum":
        return by_optimum
    return by_optimum if by_optimum[0] >= 0.5 else by_simplex
