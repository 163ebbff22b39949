"""realize.

Optimum, bound and bracket of weighted InfoNCE against references, closed forms, and the class-level program.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.sparse
from helpers.reference import GOLDEN, circle

import optgeom as og
from optgeom.errors import InvalidInputError
from optgeom.realization.api import Realization, realize
from optgeom.realization.verdict import soft_supcon_temperature
from optgeom.realization.weights import Weights

CLOUD = np.random.default_rng(0).normal(size=(15, 3))


def samples_loss(found: Realization, embedding: np.ndarray) -> float:
    """Weighted InfoNCE of an embedding, sample by sample, from the weights alone."""
    held, tau = found.weights, found.temperature
    products = embedding @ embedding.T
    square = np.diag(products)
    s = (products if found.similarity == "cosine" else 2 * products - square[:, None] - square[None]) / tau
    pairs = ~np.eye(held.n, dtype=bool)
    w = np.where(pairs, np.exp(held.log_weights[np.ix_(held.index, held.index)]), 0.0)
    sums = w.sum(axis=1, keepdims=True)
    w /= np.where(sums > 0, sums, 1.0)
    e = np.where(pairs, np.exp(s), 0.0)
    log_p = np.log(np.where(pairs, e, 1.0)) - np.log(e.sum(axis=1, keepdims=True))
    return float(-np.sum(np.where(pairs, w * log_p, 0.0)) / held.n)


def certified(found: Realization, gap: float = 1e-9) -> None:
    assert found.certified
    assert -1e-13 <= found.optimal_loss - found.lower_bound <= gap * (1 + abs(found.optimal_loss))
    assert found.lower_bound >= found.entropic_bound - 1e-15
    assert found.gap_to_bound == pytest.approx(found.optimal_loss - found.entropic_bound, abs=1e-13)


# --- references


@pytest.mark.parametrize("case", GOLDEN["realize"], ids=lambda case: case["name"])
def test_reference_cases(case: dict) -> None:
    width = float(case["weights"].split("/")[1].rstrip(")"))
    y = np.array(case["labels"])
    squared = ((y[:, None] - y[None]) ** 2).sum(axis=-1)
    for weights in (Weights.y_aware(y, math.sqrt(width), paper=True), np.exp(-squared / width)):
        found = realize(weights, case["similarity"], temperature=case["temperature"])
        certified(found)
        assert found.optimal_loss == pytest.approx(case["optimal_loss"], abs=1e-6)
        assert found.entropic_bound == pytest.approx(case["entropic_bound"], abs=1e-12)
        assert found.verdict.attained == case["realizable"]
        assert samples_loss(found, found.embedding()) == pytest.approx(found.optimal_loss, abs=1e-9)


@pytest.mark.parametrize(
    ("dim", "tau", "loss"),
    [
        (1, 0.5, 3.5437936865),
        (3, 0.2, 3.0764791644),
        (3, 0.3, 3.0873604878),
        (3, 0.5, 3.1425744352),
        (2, 0.3, 3.2604286455),
    ],
)
def test_printed_values_of_forty_samples(dim: int, tau: float, loss: float) -> None:
    y = np.random.default_rng(0).normal(size=(40, dim))
    found = realize(Weights.y_aware(y), temperature=tau)
    certified(found)
    assert found.regime == "inconsistent" and found.unique
    assert found.optimal_loss == pytest.approx(loss, abs=1e-9)
    embedding = found.embedding()
    assert embedding.shape == (40, found.rank)
    assert samples_loss(found, embedding) == pytest.approx(found.optimal_loss, abs=1e-9)


def test_nearly_realizable() -> None:
    found = realize(Weights.y_aware(np.random.default_rng(0).normal(size=(110, 3))), temperature=0.1)
    certified(found)
    assert found.solver.name == "primal-dual Newton"
    assert found.rank is not None and found.rank > 0.8 * 110
    assert samples_loss(found, found.embedding()) == pytest.approx(found.optimal_loss, abs=1e-9)


# --- SupCon as weights is the class-level program


@pytest.mark.parametrize("tau", [1.0, 0.3, 0.1])
@pytest.mark.parametrize(
    "counts", [[5, 5, 5], [10, 3, 1], [300, 2, 2], [3, 1, 1, 1], [7, 4, 2, 2, 1, 1], [40, 1, 1, 1, 1], [2, 1]], ids=str
)
def test_supcon_of_samples_is_the_full_batch_loss_of_classes(counts: list[int], tau: float) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    found = realize(Weights.supcon(labels), temperature=tau)
    certified(found)
    assert found.regime == "degenerate" and not found.verdict.attained
    geometry = og.solve(og.ClassDistribution.from_counts(counts), og.SupConFullBatch(tau))
    assert found.optimal_loss == pytest.approx(geometry.risk, abs=1e-9)
    embedding = found.embedding()
    assert embedding @ embedding.T == pytest.approx(geometry.gram[np.ix_(labels, labels)], abs=1e-9)
    assert found.rank == geometry.rank


def test_supcon_collapses_at_sample_level_too() -> None:
    labels = np.repeat([0, 1, 2], [300, 2, 2])
    embedding = realize(Weights.supcon(labels), temperature=1.0).embedding()
    expected = np.where(labels == 0, 1.0, -1.0)
    assert embedding @ embedding.T == pytest.approx(np.outer(expected, expected), abs=1e-12)


def test_sparse_dense_and_named_hard_weights_agree() -> None:
    labels = np.array([0, 1, 0, 2, 1, 0, 3])
    dense = (labels[:, None] == labels[None]).astype(float)
    losses = [
        realize(w, temperature=0.5).optimal_loss for w in (Weights.supcon(labels), dense, scipy.sparse.csr_array(dense))
    ]
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-12)


# --- Soft SupCon


@pytest.mark.parametrize("sizes", [[5, 5, 5], [10, 3, 1], [40, 2, 2, 1], [1, 1, 1, 2], [20] * 10], ids=str)
@pytest.mark.parametrize("epsilon", [0.5, 0.1, 1e-4])
def test_soft_supcon_on_both_sides(sizes: list[int], epsilon: float) -> None:
    classes = len(sizes)
    border = classes / ((classes - 1) * math.log(1 / epsilon))
    weights = Weights.soft_supcon(np.repeat(np.arange(classes), sizes), epsilon)
    just = 1 + (1e-4 if epsilon > 1e-3 else 1e-2)
    below, at, above, far = (realize(weights, temperature=border * factor) for factor in (1 - 1e-6, 1.0, just, 1.5))
    for found, dimension in ((below, classes), (at, classes - 1)):
        certified(found)
        assert (found.regime, found.rank) == ("realizable", dimension)
        assert found.gap_to_bound < 1e-20
    for found in (above, far):
        certified(found)
        assert found.regime == "inconsistent" and found.gap_to_bound > 1e-12
    assert far.gap_to_bound > 1e-4
    first = [int(np.flatnonzero(at.weights.index == group)[0]) for group in range(classes)]
    gram = at.embedding() @ at.embedding().T
    simplex = np.where(np.eye(classes) > 0, 1.0, -1 / (classes - 1))
    assert gram[np.ix_(first, first)] == pytest.approx(simplex, abs=1e-8)
    assert gram == pytest.approx(gram[np.ix_(first, first)][np.ix_(at.weights.index, at.weights.index)], abs=1e-8)


def test_just_past_the_border_with_small_weights() -> None:
    weights = Weights.soft_supcon(np.repeat([0, 1, 2], [10, 3, 1]), 1e-4)
    certified(realize(weights, temperature=soft_supcon_temperature(3, 1e-4) * (1 + 1e-4)))


def test_balanced_soft_supcon_beyond_the_border_is_the_simplex() -> None:
    """By symmetry and convexity: classes coincide, cosines -1/(C-1) are as far as they can go."""
    classes, size, tau, epsilon = 4, 6, 1.0, 0.05
    found = realize(Weights.soft_supcon(np.repeat(np.arange(classes), size), epsilon), temperature=tau)
    own, other = size - 1, (classes - 1) * size
    share = own / (own + epsilon * other)
    norm = math.log(own * math.exp(1 / tau) + other * math.exp(-1 / (classes - 1) / tau))
    expected = norm - share / tau + (1 - share) / (classes - 1) / tau
    assert found.optimal_loss == pytest.approx(expected, abs=1e-12)
    assert found.rank == classes - 1


def test_many_samples_of_few_classes() -> None:
    labels = np.random.default_rng(0).permutation(np.arange(50_000) % 100)
    border = soft_supcon_temperature(100, 0.1)
    found = realize(Weights.soft_supcon(labels, 0.1), temperature=border)
    certified(found)
    assert (found.regime, found.rank, found.n) == ("realizable", 99, 50_000)
    assert found.embedding().shape == (50_000, 99)
    beyond = realize(Weights.soft_supcon(labels, 0.1), temperature=1.2 * border)
    certified(beyond)
    assert beyond.regime == "inconsistent" and beyond.rank == 99
    assert beyond.solver.iterations <= 20  # all columns from the start: climbing to them took 150


@pytest.mark.parametrize("factor", [1.001, 3.0])
def test_many_samples_of_few_unequal_classes(factor: float) -> None:
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, 101)
    labels = rng.permutation(np.concatenate([np.arange(100), rng.choice(100, 49_900, p=share / share.sum())]))
    found = realize(Weights.soft_supcon(labels, 0.001), temperature=factor * soft_supcon_temperature(100, 0.001))
    certified(found)
    assert (found.regime, found.rank, found.unique) == ("inconsistent", 99, True)
    assert found.solver.iterations <= 30


# --- labels recovered


def test_circle_labels_are_the_embedding_up_to_rotation() -> None:
    found = realize(Weights.y_aware(circle(), paper=True), temperature=0.5)
    certified(found)
    assert (found.regime, found.unique, found.verdict.min_dimension, found.rank) == ("realizable", True, 2, 2)
    rotation, _ = scipy.linalg.orthogonal_procrustes(found.embedding(), circle())
    assert found.embedding() @ rotation == pytest.approx(circle(), abs=1e-8)


@pytest.mark.parametrize("tau", [0.05, 1.0, 20.0])
def test_euclidean_similarity_recovers_labels_up_to_a_rigid_motion(tau: float) -> None:
    y = np.random.default_rng(1).normal(size=(200, 3))
    found = realize(Weights.y_aware(y), "euclidean", temperature=tau, dim=3)
    certified(found)
    assert (found.regime, found.unique, found.rank) == ("realizable", True, 3)
    centred = (y - y.mean(axis=0)) * math.sqrt(tau / 2)
    rotation, _ = scipy.linalg.orthogonal_procrustes(found.embedding(), centred)
    assert found.embedding() @ rotation == pytest.approx(centred, abs=1e-8)


def test_x_clr_at_the_matched_temperature_recovers_directions() -> None:
    found = realize(Weights.x_clr(CLOUD, 0.3), temperature=0.3, dim=3)
    certified(found)
    unit = CLOUD / np.linalg.norm(CLOUD, axis=1, keepdims=True)
    rotation, _ = scipy.linalg.orthogonal_procrustes(found.embedding(), unit)
    assert (found.regime, found.unique) == ("realizable", True)
    assert found.embedding() @ rotation == pytest.approx(unit, abs=1e-8)
    hot = realize(Weights.x_clr(CLOUD, 0.3), temperature=0.6)
    certified(hot)
    assert hot.regime == "inconsistent" and hot.gap_to_bound > 1e-4


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_embedding_reproduces_the_geometry(similarity: str) -> None:
    labels = np.repeat([0, 1, 2], [4, 2, 1])
    found = realize(Weights.soft_supcon(labels, 0.1), similarity, temperature=0.5)
    embedding = found.embedding()
    wide = found.embedding(embedding.shape[1] + 3)
    assert wide[:, : embedding.shape[1]] == pytest.approx(embedding) and not wide[:, embedding.shape[1] :].any()
    assert samples_loss(found, embedding) == pytest.approx(found.optimal_loss, abs=1e-12)
    hot = realize(Weights.soft_supcon(labels, 0.1), "cosine", temperature=2.0)
    assert hot.group_cosines is not None
    gram = hot.group_cosines[np.ix_(hot.weights.index, hot.weights.index)].copy()
    np.fill_diagonal(gram, 1.0)
    assert hot.embedding() @ hot.embedding().T == pytest.approx(gram, abs=1e-8)
    with pytest.raises(InvalidInputError, match="`dim` must be"):
        hot.embedding(1)


# --- dimensions that are too small


def test_y_aware_off_the_sphere_in_its_own_dimension_is_inconsistent() -> None:
    weights = Weights.y_aware(CLOUD)
    free = realize(weights, temperature=0.5)
    certified(free)
    assert (
        free.regime == "inconsistent" and free.gap_to_bound > 1e-3 and "do not lie on a sphere" in free.verdict.reason
    )
    limited = realize(weights, temperature=0.5, dim=3)
    assert limited.regime == "inconsistent" and limited.bracket is not None and not limited.certified
    low, high = limited.bracket
    assert low == pytest.approx(free.optimal_loss, abs=1e-8)
    assert low <= high == limited.optimal_loss
    assert limited.gap_to_bound == pytest.approx(high - limited.entropic_bound)
    assert limited.embedding().shape == (15, 3)
    assert samples_loss(limited, limited.embedding()) == pytest.approx(high, abs=1e-9)
    wide = realize(weights, temperature=0.5, dim=15)
    assert wide.bracket is None
    assert wide.optimal_loss == pytest.approx(free.optimal_loss, abs=1e-9)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("dim", [1, 2])
def test_brackets_hold_the_best_of_a_local_search(similarity: str, dim: int) -> None:
    weights = Weights.y_aware(CLOUD)
    found = realize(weights, similarity, temperature=0.5, dim=dim)
    assert found.bracket is not None and not found.certified and found.solver.name.endswith("dimension limited")
    low, high = found.bracket
    assert found.entropic_bound <= low <= high
    assert samples_loss(found, found.embedding()) == pytest.approx(high, abs=1e-9)

    def loss(flat: np.ndarray) -> float:
        z = flat.reshape(15, dim)
        return samples_loss(found, z / np.linalg.norm(z, axis=1, keepdims=True) if similarity == "cosine" else z)

    near = scipy.optimize.minimize(loss, found.embedding().ravel(), method="L-BFGS-B")
    assert near.fun >= high - 1e-7  # a local minimum
    if dim > 1:
        start = np.random.default_rng(5).normal(size=15 * dim)
        assert scipy.optimize.minimize(loss, start, method="L-BFGS-B").fun >= low - 1e-9


def test_balanced_classes_in_the_plane_are_better_on_a_polygon_than_the_bracket_says_below() -> None:
    """Four classes in two dimensions: the square is one embedding, the simplex of three dimensions the bound."""
    classes, size, tau, epsilon = 4, 3, 1.0, 0.05
    weights = Weights.soft_supcon(np.repeat(np.arange(classes), size), epsilon)
    found = realize(weights, temperature=tau, dim=2)
    assert found.bracket is not None
    square = samples_loss(found, circle(4)[np.repeat(np.arange(4), size)])
    assert found.bracket[0] == pytest.approx(realize(weights, temperature=tau).optimal_loss, abs=1e-9)
    assert found.bracket[0] < found.bracket[1] <= square + 1e-9


# --- results as values


def test_as_dict_has_the_keys_of_the_design() -> None:
    for similarity, dim in (("cosine", None), ("euclidean", None), ("cosine", 2), ("euclidean", 2)):
        found = realize(Weights.y_aware(CLOUD), similarity, temperature=0.5, dim=dim)
        values = found.as_dict()
        assert {
            "n",
            "entropic_bound",
            "optimal_loss",
            "gap_to_bound",
            "regime",
            "unique",
            "shift_interval",
            "min_dimension",
            "certificate",
        } <= set(values)
        assert values["n"] == 15 and values["regime"] in ("realizable", "degenerate", "inconsistent")
        assert values["certificate"]["certified"] is found.certified
        assert (values["bracket"] is None) == (dim is None)
        assert repr(found).startswith("Realization(n=15")


def test_hard_scheme_in_euclidean_space_is_a_limit() -> None:
    found = realize(Weights.supcon([0, 0, 1, 1, 2]), "euclidean", temperature=0.5)
    certified(found)
    assert found.regime == "degenerate" and not found.verdict.attained and found.rank is None
    assert found.optimal_loss == pytest.approx(found.entropic_bound)
    with pytest.raises(InvalidInputError, match="must be of an attained bound"):
        found.embedding()


# --- bad input


def test_case_33_asymmetry_of_rounding_is_averaged_away() -> None:
    w = np.exp(-((CLOUD[:, None] - CLOUD[None]) ** 2).sum(axis=-1) / 2)
    noisy = w * (1 + 1e-16 * np.random.default_rng(0).choice([-3, 0, 3], size=w.shape))
    assert not np.array_equal(noisy, noisy.T)
    found = realize(noisy, temperature=0.5)
    assert found.optimal_loss == pytest.approx(realize(w, temperature=0.5).optimal_loss, abs=1e-12)
    assert any("asymmetric by rounding" in note for note in found.weights.notes)


def test_case_34_zero_weight_is_a_hard_scheme() -> None:
    w = np.ones((5, 5))
    w[0, 1] = w[1, 0] = 0.0
    found = realize(w, temperature=0.5)
    certified(found)
    assert found.regime == "degenerate"
    assert any(
        note.startswith("hard scheme, the entropic bound is not attained (w_0,1 = 0)") for note in found.weights.notes
    )


def changed(value: float, shape: int = 5) -> np.ndarray:
    w = np.ones((shape, shape))
    w[0, 1] = w[1, 0] = value
    return w


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: realize(changed(-0.1), temperature=0.5),
            r"`weights` must be not negative; got w_0,1 = -0.1 \(weights are probabilities up to a factor",
        ),
        (
            lambda: realize(changed(math.nan), temperature=0.5),
            "`weights` must be finite; got w_0,1 = nan (drop the sample",
        ),
        (
            lambda: realize(changed(math.inf), temperature=0.5),
            "`weights` must be finite; got w_0,1 = inf (drop the sample",
        ),
        (lambda: realize(changed(1.0, 2), temperature=0.5), "`weights` must be of at least 3 samples; got 2 (with two"),
        (
            lambda: realize(np.ones((3, 4)), temperature=0.5),
            "`weights` must be a square (n, n) matrix; got shape (3, 4)",
        ),
        (lambda: realize(np.eye(4), temperature=0.5), "`weights` must have a positive weight"),
        (
            lambda: realize(Weights.y_aware([0.0, math.nan, 1.0]), temperature=0.5),
            "`labels` must be finite; got nan in row 1 (drop the row",
        ),
        (
            lambda: realize(Weights.y_aware([0.0, 1.0]), temperature=0.5),
            "`labels` must be of at least 3 samples; got 2",
        ),
        (lambda: realize(changed(1.0), dim=0, temperature=0.5), "`dim` must be a whole number >= 1; got 0"),
        (lambda: realize(changed(1.0), dim=1.5, temperature=0.5), "`dim` must be a whole number >= 1; got 1.5"),  # type: ignore[arg-type]
        (
            lambda: realize(changed(1.0), tolerance=0, temperature=0.5),
            "`tolerance` must be > 0; got 0 (the default is 1e-9)",
        ),
        (lambda: realize(changed(1.0), temperature=0.0), "`temperature` must be > 0; got 0.0"),
        (
            lambda: realize(changed(1.0), "dot", temperature=0.5),
            "`similarity` must be one of cosine, euclidean; got 'dot'",
        ),
    ],
)
def test_bad_input_is_an_error_with_a_remedy(call: object, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message if "\\" in message else re.escape(message)):
        call()  # type: ignore[operator]
