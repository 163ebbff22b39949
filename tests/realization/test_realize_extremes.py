"""realize at the ends of its domain.

Weights that underflow, temperatures and bandwidths of any size, rows without weights, orders.
"""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from optgeom.errors import InvalidInputError
from optgeom.realization.api import Realization, realize
from optgeom.realization.weights import Weights

CLOUD = np.random.default_rng(0).normal(size=(12, 3))
ANGLE = 2 * np.pi * np.arange(12) / 12
CIRCLE = np.column_stack([np.cos(ANGLE), np.sin(ANGLE)])


def loss(found: Realization) -> float:
    """Weighted InfoNCE of the embedding, in logarithms, from log weights."""
    z, held = found.embedding(), found.weights
    total = 0.0
    for i in range(held.n):
        others = np.flatnonzero(np.arange(held.n) != i)
        log_w = held.log_weights[held.index[i], held.index[others]]
        if np.isneginf(log_w).all():
            continue
        s = (
            z[others] @ z[i] if found.similarity == "cosine" else -((z[others] - z[i]) ** 2).sum(axis=1)
        ) / found.temperature
        w = np.exp(log_w - log_w.max())
        w /= w.sum()
        total -= float(w @ (s - s.max() - math.log(np.exp(s - s.max()).sum())))
    return total / held.n


# --- temperatures


@pytest.mark.parametrize("tau", [1e-6, 1e-4, 0.01, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_the_loss_is_that_of_the_embedding_at_every_temperature(similarity: str, tau: float) -> None:
    for weights in (
        Weights.y_aware(CLOUD),
        Weights.y_aware(CLOUD, 10.0),
        Weights.y_aware(CIRCLE, paper=True),
        Weights.soft_supcon([0, 0, 0, 1, 1, 2], 0.1),
        Weights.x_clr(CLOUD, 0.3),
    ):
        realization = realize(weights, similarity, temperature=tau)
        assert realization.certified
        assert loss(realization) == pytest.approx(realization.optimal_loss, abs=2e-9)


def test_low_temperatures_do_not_lose_the_rank() -> None:
    """With target cosines within 1e-4 of 1 some eigenvalues are below 1e-7 of the mean.

    Similarities are of order 1 all the same.
    """
    realization = realize(Weights.y_aware(CLOUD), temperature=1e-5)
    assert realization.regime == "realizable" and realization.rank == 11


@pytest.mark.parametrize("tau", [1e-300, 1e-7, 1e13, 1e300])
def test_temperatures_that_cosines_cannot_resolve_are_refused(tau: float) -> None:
    with pytest.raises(
        InvalidInputError, match=r"`temperature` must be from 1e-06 to 1e\+12 with cosine similarity; got"
    ):
        realize(Weights.y_aware(CLOUD), temperature=tau)
    assert realize(Weights.y_aware(CLOUD), "euclidean", temperature=tau).rank == 3


# --- bandwidths


@pytest.mark.parametrize("bandwidth", [1e-5, 1e-2, 1e5, 1e200])
def test_weights_beyond_the_range_of_numbers_stay_in_logarithms(bandwidth: float) -> None:
    weights = Weights.y_aware(CLOUD, bandwidth)
    assert not weights.hard and not weights.notes
    with np.errstate(over="ignore", under="ignore"):
        expected = -((CLOUD[:, None] - CLOUD[None]) ** 2).sum(axis=-1) / 2 / bandwidth / bandwidth
    pairs = ~np.eye(12, dtype=bool)
    assert weights.log_weights[pairs] == pytest.approx(expected[pairs], rel=1e-12)
    realization = realize(weights, "euclidean", temperature=0.7)
    assert realization.regime == "realizable" and realization.rank == (3 if bandwidth < 1e10 else 0)
    assert loss(realization) == pytest.approx(realization.optimal_loss, abs=1e-9)


@pytest.mark.parametrize("unit", [1e-200, 1e-160, 1.0, 1e160, 1e200])
def test_the_unit_of_labels_does_not_matter(unit: float) -> None:
    assert Weights.y_aware(CLOUD * unit, 0.7 * unit).log_rows == pytest.approx(
        Weights.y_aware(CLOUD, 0.7).log_rows, rel=1e-10
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Weights.y_aware(CLOUD, 1e-200),
            "`bandwidth` must not be below a millionth of the largest distance of labels; got",
        ),
        (
            lambda: Weights.y_aware(CLOUD, 1e-7),
            r"got distances up to [0-9.]+e\+07 times `bandwidth` \(standardise the labels, or raise",
        ),
        (lambda: Weights.x_clr(CLOUD, 1e-13), "`temperature` must be at least 1e-12 for x-clr; got 1e-13"),
    ],
)
def test_logarithms_without_digits_are_refused(make: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_zeros_by_underflow_are_said_to_be_such(dtype: type) -> None:
    distance = np.abs(np.subtract.outer(np.arange(60.0), np.arange(60.0)))
    with np.errstate(under="ignore"):
        weights = np.exp(-(distance**2) / 2).astype(dtype)
    assert np.any(weights == 0)
    notes = Weights.from_matrix(weights).notes
    assert (
        notes[0].startswith("zeros may be underflow (the least positive weight is ") and "keep logarithms" in notes[0]
    )
    assert notes[1].startswith("hard scheme, the entropic bound is not attained")
    assert not any("underflow" in note for note in Weights.from_matrix((distance < 3).astype(dtype)).notes)
    assert not any("underflow" in note for note in Weights.from_matrix(np.maximum(weights, np.finfo(dtype).tiny)).notes)


# --- rows without weights, hard schemes in few dimensions


def test_a_row_of_zeros_whose_column_is_not_is_refused() -> None:
    weights = np.ones((5, 5))
    weights[3] = 0.0
    line = (
        "`weights` must have a positive weight in every row whose column has one; got row 3 of zeros and w_0,3 = 1 "
        "(give sample 3"
    )
    with pytest.raises(InvalidInputError, match=re.escape(line)):
        realize(weights, temperature=0.5)
    weights[:, 3] = 0.0
    realization = realize(weights, temperature=0.5)
    assert (
        realization.certified
        and "1 samples have no positive: they carry no term of the loss and act as negatives only"
        in realization.weights.notes
    )


def test_too_few_dimensions_for_a_star_of_zeros_are_no_limit() -> None:
    """The centre must be equally near to four leaves that are far from one another, which no line allows."""
    star = np.zeros((5, 5))
    star[0, 1:] = star[1:, 0] = 1.0
    wide = realize(star, "euclidean", temperature=0.5)
    assert wide.certified and wide.regime == "degenerate" and wide.optimal_loss == pytest.approx(wide.entropic_bound)
    narrow = realize(star, "euclidean", temperature=0.5, dim=1)
    assert narrow.bracket is not None and not narrow.certified
    assert narrow.optimal_loss > narrow.entropic_bound + 0.05
    assert loss(narrow) == pytest.approx(narrow.optimal_loss, abs=1e-9)
    assert "whether it does in 1 dimension is not known" in narrow.verdict.reason


# --- orders and types


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_the_order_of_samples_does_not_matter(similarity: str) -> None:
    order = np.random.default_rng(1).permutation(12)
    matrix = np.exp(-((CLOUD[:, None] - CLOUD[None]) ** 2).sum(axis=-1) / 2)
    for dim in (None, 2):
        one, other = (
            realize(matrix, similarity, dim=dim, temperature=0.5),
            realize(matrix[np.ix_(order, order)], similarity, dim=dim, temperature=0.5),
        )
        assert other.optimal_loss == pytest.approx(one.optimal_loss, abs=1e-9)
        assert (other.regime, other.unique, other.rank) == (one.regime, one.unique, one.rank)
        if dim is None:
            z = one.embedding()[order]
            assert other.embedding() @ other.embedding().T == pytest.approx(z @ z.T, abs=1e-6)


def test_identical_labels_are_one_group_and_the_same_answer() -> None:
    labels = CLOUD[np.random.default_rng(2).integers(0, 4, 60)]
    weights = Weights.y_aware(labels)
    assert weights.sizes.size == 4
    matrix = np.exp(-((labels[:, None] - labels[None]) ** 2).sum(axis=-1) / 2)
    for similarity, tau in (("cosine", 0.5), ("cosine", 3.0), ("euclidean", 0.5)):
        one, other = realize(weights, similarity, temperature=tau), realize(matrix, similarity, temperature=tau)
        assert other.optimal_loss == pytest.approx(one.optimal_loss, abs=1e-9) and other.regime == one.regime
        assert loss(one) == pytest.approx(one.optimal_loss, abs=1e-9)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_every_dimension_of_a_small_problem(similarity: str) -> None:
    weights = Weights.y_aware(CLOUD)
    losses = [realize(weights, similarity, dim=dim, temperature=0.5).optimal_loss for dim in range(1, 14)]
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(losses))
    assert losses[-1] == pytest.approx(realize(weights, similarity, temperature=0.5).optimal_loss, abs=1e-9)
