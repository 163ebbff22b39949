"""Metrics of sampled unit rows: uniformity, tolerance, alignment, neighbours, nearest mean, relative penalties.

With z_i the unit rows, y_i their classes, i != j throughout:

    uniformity                 log mean_ij exp(-t |z_i - z_j|^2)
    tolerance                  mean_ij [ z_i.z_j 1{y_i = y_j} ]              the indicator is inside the mean
    conditional tolerance      mean of z_i.z_j over the pairs with y_i = y_j
    alignment                  mean over images of the mean of |z - z'|^2 over pairs of their views
    SAA_c                      share of the rows of class c whose nearest neighbour is another view of the same image
    CAC_c                      mean share of class c among the nearest floor(n/20) neighbours of its rows
    penalty entropy            mean_i of the entropy of r_i(j) = exp(z_i.z_j / tau) / sum_{k != i} exp(z_i.z_k / tau),
                               in nats

Uniformity, SAA, CAC and penalty entropy need all pairs: they are computed on at most 4096 rows, three times, from whole
images where there are views. SAA and penalty entropy depend on the number of rows (`Estimate.rows`); compare them at
equal numbers only. The others cost O(n d) and take every row given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array, blocks
from optgeom.embeddings.metrics.metric import Estimate
from optgeom.embeddings.moments.unit_rows import ENTRIES, Index, UnitRows, sum_by
from optgeom.errors import InvalidInputError

TIE = 1e-12  # rounding of a cosine of unit rows is eps sqrt(d), 1e-14 at d = 2048


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """Quantities of all pairs.

    Attributes
    ----------
    uniformity : float
        log of the mean of exp(-t |z - z'|^2) over pairs of distinct rows; nan for one row.
    same_image : (n,) or None
        Chance that the nearest neighbour is another view of the same image; nan for an image with one view; None
        without views.
    same_class : (n,)
        Share of the row's class among its nearest neighbours.
    entropy : (n,) or None
        Entropy of the relative penalties, in nats; None without a temperature.
    """

    uniformity: float
    same_image: Array | None
    same_class: Array
    entropy: Array | None


def neighbours(n: int, share: float) -> int:
    """floor(share n), at least 1 and at most n - 1: the neighbours that CAC looks at."""
    # 0.05 is not a float: without the slack 0.05 * 60 may fall below 3.
    return max(1, min(n - 1, math.floor(share * n * (1 + 1e-12))))


def pair_statistics(unit: UnitRows, t: float, share: float, temperature: float | None) -> PairStatistics:
    """One pass over all pairs of at least two rows; memory of a few blocks and n d."""
    n, rows = unit.n, unit.take(slice(None))
    if n < 2:
        nothing = np.full(n, math.nan)
        return PairStatistics(
            math.nan, nothing if unit.has_views else None, nothing, None if temperature is None else nothing
        )
    nearest = neighbours(n, share)
    potential = -math.inf
    same_class = np.empty(n)
    images = unit.images if unit.has_views else None
    same_image = None if images is None else np.empty(n)
    entropy = None if temperature is None else np.empty(n)
    for block in blocks(n, n, ENTRIES):
        at = np.arange(n)[block]
        own = (at - block.start, at)
        cosines = np.clip(rows[block] @ rows.T, -1.0, 1.0)
        exponents = (2 * t) * (cosines - 1.0)
        exponents[own] = -math.inf
        top = float(exponents.max())
        potential = float(np.logaddexp(potential, top + math.log(float(np.exp(exponents - top).sum()))))
        if entropy is not None and temperature is not None:
            entropy[block] = _entropies(cosines / temperature, own)
        cosines[own] = -math.inf
        matching = unit.codes[block][:, None] == unit.codes[None, :]
        same_class[block] = _share_of_nearest(cosines, matching, nearest)
        if same_image is not None and images is not None:
            views = images[block][:, None] == images[None, :]
            alone = views.sum(axis=1) == 1
            same_image[block] = np.where(alone, math.nan, _share_of_nearest(cosines, views, 1))
    return PairStatistics(potential - math.log(n * (n - 1.0)), same_image, same_class, entropy)


def _share_of_nearest(cosines: Array, matching: npt.NDArray[np.bool_], nearest: int) -> Array:
    """Expected share of matching rows among the `nearest` largest cosines of each row; a row itself has cosine -inf."""
    last = np.partition(cosines, cosines.shape[1] - nearest, axis=1)[:, cosines.shape[1] - nearest][:, None]
    above = cosines > last + TIE
    tied = (cosines >= last - TIE) & ~above
    room = nearest - above.sum(axis=1)
    hits = (above & matching).sum(axis=1) + room * (tied & matching).sum(axis=1) / tied.sum(axis=1)
    return np.asarray(hits / nearest)


def _entropies(scaled: Array, own: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]) -> Array:
    """-sum_j r_j log r_j of r_j = exp(s_j) / sum_k exp(s_k), the row itself left out."""
    scaled[own] = -math.inf
    scaled -= scaled.max(axis=1, keepdims=True)
    weight = np.exp(scaled)
    total = weight.sum(axis=1)
    scaled[own] = 0.0  # its weight is 0, and 0 * -inf would be nan
    return np.asarray(np.log(total) - np.einsum("ij,ij->i", weight, scaled) / total)


ROWS = 4096
SEEDS = 3


@dataclass(frozen=True, kw_only=True)
class SampleMetrics:
    """Metrics of sampled rows; an `Estimate` whose value is nan is n/a, and so is None.

    Attributes
    ----------
    uniformity : Estimate
    tolerance, conditional_tolerance : Estimate
        The second is n/a where no class has two rows.
    alignment : Estimate or None
        None without views.
    saa : Estimate or None
    saa_per_class : tuple of Estimate, length C, or None
        None without views; n/a for a class without rows.
    cac : Estimate
    cac_per_class : tuple of Estimate, length C
        n/a for a class of one image or none.
    penalty_entropy : Estimate or None
        None without a temperature.
    nearest_mean : Estimate
    nearest_mean_per_class : tuple of Estimate, length C
        Accuracy of the nearest class mean; n/a for a class of one row whose mean is that row.
    """

    uniformity: Estimate
    tolerance: Estimate
    conditional_tolerance: Estimate
    alignment: Estimate | None
    saa: Estimate | None
    saa_per_class: tuple[Estimate, ...] | None
    cac: Estimate
    cac_per_class: tuple[Estimate, ...]
    penalty_entropy: Estimate | None
    nearest_mean: Estimate
    nearest_mean_per_class: tuple[Estimate, ...]


def sample_metrics(
    rows: Any,
    codes: Any,
    *,
    num_classes: int | None = None,
    groups: Any = None,
    temperature: float | None = None,
    means: npt.ArrayLike | None = None,
    seed: int = 0,
    size: int = ROWS,
    seeds: int = SEEDS,
    t: float = 2.0,
    share: float = 0.05,
) -> SampleMetrics:
    """All metrics of this file.

    Parameters
    ----------
    rows : (n, d)
        Unit rows, n >= 2.
    codes : (n,)
        Class of each row, 0 to C - 1.
    num_classes : int, optional
        C; the largest code plus 1 by default.
    groups : (n,), optional
        Id of the image that each row is a view of.
    temperature : float, optional
        tau > 0 of the training loss, for the penalty entropy.
    means : (C, d), optional
        Class means to classify by, such as those of the training rows; the means of the rows themselves by default,
        which flatters small classes. Nan rows are classes without a mean.
    seed : int
    size, seeds : int
        Rows of a sample (one image more or less where there are views), and samples.
    t : float
        t > 0 of the uniformity.
    share : float
        In (0, 1): the neighbours that CAC looks at.

    Returns
    -------
    SampleMetrics
        With a standard error of 0 where all rows fit into one sample.

    Raises
    ------
    InvalidInputError
        A parameter outside its domain; rows that are not unit rows; codes or groups that do not fit them.

    References
    ----------
    Wang, Isola 2020, arXiv 2005.10242 (uniformity, alignment); Wang, Liu 2021, arXiv 2012.09740 (tolerance, relative
    penalties); Mildenberger, Hager, Rueckert, Menten 2025, arXiv 2503.17024 (SAA, CAC); Papyan, Han, Donoho 2020, arXiv
    2008.08186 (nearest class mean, NC4).
    """
    unit = UnitRows.of(rows, codes, num_classes=num_classes, groups=groups)
    if unit.n < 2:
        raise InvalidInputError(f"`rows` must be at least 2; got {unit.n} (pairs of distinct rows are compared)")
    if temperature is not None:
        temperature = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    t = _checks.real("t", t, above=0.0, hint="2 is usual")
    share = _checks.real("share", share, above=0.0, hint="0.05 is five percent of the rows")
    if share >= 1:
        raise InvalidInputError(f"`share` must be below 1; got {share!r} (0.05 is five percent of the rows)")
    size, seeds = _checks.integer("size", size, at_least=2), _checks.integer("seeds", seeds, at_least=1)
    seed = _checks.integer("seed", seed, at_least=0)
    samples = [unit] if unit.n <= size else (unit.subset(index) for index in draws(unit, size, seeds, seed))
    pairs = _Repeats(tuple(_repeat(part, t, share, temperature) for part in samples), unit.num_classes, unit.n <= size)
    every, within = tolerance(unit)
    shares = _nearest_mean(unit, means)
    views = unit.has_views
    by_class = [
        Estimate.exact(_nanmean(shares[unit.codes == c]), int(count)) for c, count in enumerate(unit.counts.tolist())
    ]
    return SampleMetrics(
        uniformity=pairs.uniformity(),
        tolerance=Estimate.exact(every, unit.n),
        conditional_tolerance=Estimate.exact(within, unit.n),
        alignment=Estimate.exact(alignment(unit), unit.n) if views else None,
        saa=pairs.mean("same_image") if views else None,
        saa_per_class=pairs.by_class("same_image") if views else None,
        cac=pairs.mean("same_class"),
        cac_per_class=pairs.by_class("same_class"),
        penalty_entropy=pairs.mean("entropy") if temperature is not None else None,
        nearest_mean=Estimate.exact(_nanmean(shares), unit.n),
        nearest_mean_per_class=tuple(by_class),
    )


def tolerance(unit: UnitRows) -> tuple[float, float]:
    """Tolerance and its conditional version over all pairs of distinct rows, from class sums; nan without a pair."""
    counts = unit.counts.astype(np.float64)
    # sum over pairs of one class = |sum z|^2 - n, which rounding may leave at 1e-16 n
    total = float(np.sum(np.sum(unit.class_sums() ** 2, axis=1) - counts))
    pairs = float(np.sum(counts * (counts - 1)))
    return total / (unit.n * (unit.n - 1.0)), total / pairs if pairs else math.nan


def alignment(unit: UnitRows) -> float:
    """Mean over images with several views of the mean of |z - z'|^2 over pairs of views; nan without one."""
    if unit.images is None:
        return math.nan
    views = np.bincount(unit.images).astype(np.float64)
    several = views > 1
    if not several.any():
        return math.nan
    sums = np.zeros((views.size, unit.rows.shape[1]))
    for block, part in unit.in_blocks():
        sums += sum_by(unit.images[block], part, views.size)
    means = sums / views[:, None]
    scatter = np.zeros(views.size)
    for block, part in unit.in_blocks():
        image = unit.images[block]
        scatter += np.bincount(image, np.sum((part - means[image]) ** 2, axis=1), minlength=views.size)
    # sum over ordered pairs of |z - z'|^2 = 2 V sum |z - mean|^2, over V (V - 1) pairs
    return float(np.mean(2 * scatter[several] / (views[several] - 1)))


def _nearest_mean(unit: UnitRows, means: npt.ArrayLike | None) -> Array:
    """(n,) chance that the row's class is the one with the nearest mean, ties broken at random; nan where n/a."""
    counts = unit.counts.astype(np.float64)
    usable: npt.NDArray[np.bool_]
    if means is None:
        with np.errstate(invalid="ignore"):
            table = unit.class_sums() / counts[:, None]
        usable = np.asarray(counts > 1)
    else:
        table = np.asarray(means, dtype=np.float64)
        shape = (unit.num_classes, unit.rows.shape[1])
        if table.shape != shape or np.any(np.isinf(table)):
            raise InvalidInputError(
                f"`means` must be finite (nan for no mean), (C, d) = {shape}; got shape {table.shape}"
            )
        usable = np.asarray(~np.isnan(table).any(axis=1))
    present = np.asarray(~np.isnan(table).any(axis=1))
    centres = np.where(present[:, None], table, 0.0)
    bias = np.where(present, np.sum(centres**2, axis=1) / 2, math.inf)
    hit = np.empty(unit.n)
    for block in blocks(unit.n, max(unit.num_classes, unit.rows.shape[1]), ENTRIES):
        score = unit.take(block) @ centres.T - bias  # (1 - |z - m|^2) / 2
        codes = unit.codes[block]
        tied = score >= score.max(axis=1, keepdims=True) - TIE
        hit[block] = tied[np.arange(codes.size), codes] / tied.sum(axis=1)
    return np.where(usable[unit.codes], hit, math.nan)


def draws(unit: UnitRows, size: int, seeds: int, seed: int) -> Iterator[Index]:
    """Row numbers of each sample: `size` rows, or whole images until there are as many."""
    for repeat in range(seeds):
        rng = np.random.default_rng([seed, repeat])
        if unit.images is None:
            yield np.sort(rng.choice(unit.n, size, replace=False))
            continue
        views = np.bincount(unit.images)
        order = rng.permutation(views.size)
        taken = order[: max(1, int(np.searchsorted(np.cumsum(views[order]), size, side="right")))]
        yield np.flatnonzero(np.isin(unit.images, taken))


@dataclass(frozen=True, eq=False)
class _Repeat:
    """Pair statistics of one sample, with what is needed to average them."""

    codes: Index
    pairs: PairStatistics
    several: npt.NDArray[np.bool_]  # (n,) whether the class has two images: a singleton has no same-class neighbour


def _repeat(part: UnitRows, t: float, share: float, temperature: float | None) -> _Repeat:
    return _Repeat(
        part.codes, pair_statistics(part, t, share, temperature), np.asarray(part.image_counts[part.codes] > 1)
    )


@dataclass(frozen=True)
class _Repeats:
    """All samples; a single one is all rows, hence exact."""

    repeats: tuple[_Repeat, ...]
    num_classes: int
    exact: bool

    def estimate(self, values: Sequence[float]) -> Estimate:
        rows = min(repeat.codes.size for repeat in self.repeats)
        return Estimate.exact(values[0], rows) if self.exact else Estimate.of_repeats(values, rows)

    def uniformity(self) -> Estimate:
        return self.estimate([repeat.pairs.uniformity for repeat in self.repeats])

    def _terms(self, name: str) -> Iterator[tuple[Index, Array]]:
        for repeat in self.repeats:
            values = getattr(repeat.pairs, name)
            terms = np.full(repeat.codes.size, math.nan) if values is None else np.asarray(values)
            yield repeat.codes, np.where(repeat.several, terms, math.nan) if name == "same_class" else terms

    def mean(self, name: str) -> Estimate:
        return self.estimate([_nanmean(terms) for _, terms in self._terms(name)])

    def by_class(self, name: str) -> tuple[Estimate, ...]:
        means = [_means_by_class(codes, terms, self.num_classes) for codes, terms in self._terms(name)]
        return tuple(self.estimate([float(values[c]) for values in means]) for c in range(self.num_classes))


def _means_by_class(codes: Index, terms: Array, num_classes: int) -> Array:
    known = ~np.isnan(terms)
    count = np.bincount(codes[known], minlength=num_classes)
    total = np.bincount(codes[known], terms[known], minlength=num_classes)
    return np.where(count > 0, total / np.maximum(count, 1), math.nan)


def _nanmean(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan
