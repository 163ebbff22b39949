"""Weights that are not symmetric, against two facts.

The best symmetric similarity bounds every loss, and in Euclidean space it is the optimum.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from optgeom.errors import NotCertifiedError
from optgeom.realization import entropy
from optgeom.realization.api import realize
from optgeom.realization.weights import Weights

Matrix = np.ndarray


def matrix(n: int, spread: float, seed: int = 0) -> Matrix:
    w = np.exp(spread * np.random.default_rng(seed).normal(size=(n, n)))
    np.fill_diagonal(w, 0.0)
    return w


def loss(w: Matrix, s: Matrix) -> float:
    """Mean cross-entropy of the rows, sample by sample."""
    total = 0.0
    for i in range(len(w)):
        others = np.arange(len(w)) != i
        row = w[i, others] / w[i, others].sum()
        total -= row @ (s[i, others] - np.logaddexp.reduce(s[i, others]))
    return total / len(w)


def of_points(z: Matrix, tau: float) -> Matrix:
    return -((z[:, None] - z[None]) ** 2).sum(axis=-1) / tau


@pytest.mark.parametrize(("n", "spread"), [(4, 0.5), (6, 1.0), (8, 2.0)])
def test_no_symmetric_similarity_is_better(n: int, spread: float) -> None:
    w, upper = matrix(n, spread), np.triu_indices(n, 1)

    def flat(x: Matrix) -> float:
        s = np.zeros((n, n))
        s[upper] = x
        return loss(w, s + s.T)

    brute = scipy.optimize.minimize(flat, np.zeros(upper[0].size), method="BFGS", options={"gtol": 1e-7}).fun
    realization = realize(w, "euclidean", temperature=0.5)
    assert realization.certified and realization.regime == "inconsistent" and not realization.verdict.attained
    assert realization.optimal_loss == pytest.approx(brute, abs=1e-9)
    assert realization.gap_to_bound > 1e-3 and realization.lower_bound > realization.entropic_bound


@pytest.mark.parametrize("tau", [0.1, 3.0])
def test_the_embedding_has_that_loss_and_no_other_has_less(tau: float) -> None:
    w = matrix(12, 1.0, 3)
    realization = realize(w, "euclidean", temperature=tau)
    z = realization.embedding()
    assert z.shape == (12, 10) and realization.rank == 10 and realization.unique
    assert loss(w, of_points(z, tau)) == pytest.approx(realization.optimal_loss, abs=1e-12)
    rng = np.random.default_rng(1)
    for size in (1e-3, 0.1, 1.0):
        assert loss(w, of_points(z + size * rng.normal(size=z.shape), tau)) > realization.optimal_loss
    wide = realize(w, "euclidean", temperature=tau, dim=12)
    assert (
        wide.certified and not wide.unique and wide.optimal_loss == pytest.approx(realization.optimal_loss, abs=1e-12)
    )


def test_the_softmax_has_the_symmetric_sums_of_the_weights() -> None:
    w = matrix(30, 4.0, 5)
    rows = w / w.sum(axis=1, keepdims=True)
    fitted = entropy.fit_symmetric(Weights.from_matrix(w))
    s = fitted.weights.log_weights[np.ix_(fitted.weights.index, fitted.weights.index)]
    p = np.exp(s - np.logaddexp.reduce(s, axis=1)[:, None])
    assert fitted.exact and np.array_equal(s, s.T)
    assert p + p.T == pytest.approx(rows + rows.T, abs=1e-12)


def test_too_few_dimensions_have_the_better_lower_bound() -> None:
    w = matrix(10, 1.0, 2)
    free, limited = realize(w, "euclidean", temperature=0.5), realize(w, "euclidean", temperature=0.5, dim=2)
    assert limited.bracket is not None and not limited.certified
    assert limited.bracket[0] == pytest.approx(free.optimal_loss, abs=1e-12)
    assert limited.entropic_bound < limited.bracket[0] < limited.bracket[1]
    assert loss(w, of_points(limited.embedding(), 0.5)) == pytest.approx(limited.bracket[1], abs=1e-9)


def test_cosines_are_symmetric_too() -> None:
    w = matrix(9, 1.0, 4)
    assert (
        realize(w, "cosine", temperature=0.05).optimal_loss
        >= realize(w, "euclidean", temperature=0.5).lower_bound - 1e-12
    )


def test_groups_have_the_optimum_of_their_samples() -> None:
    groups = np.repeat(np.arange(4), [3, 1, 2, 4])
    between = np.exp(np.random.default_rng(6).normal(size=(4, 4)))
    w = between[np.ix_(groups, groups)]
    np.fill_diagonal(w, 0.0)
    weights = Weights.from_matrix(w)
    assert weights.sizes.tolist() == [3, 1, 2, 4] and not weights.symmetric
    realization = realize(weights, "euclidean", temperature=0.5)
    z = realization.embedding()
    assert realization.certified and loss(w, of_points(z, 0.5)) == pytest.approx(realization.optimal_loss, abs=1e-12)
    near = scipy.optimize.minimize(lambda x: loss(w, of_points(x.reshape(z.shape), 0.5)), z.ravel(), method="L-BFGS-B")
    assert near.fun >= realization.optimal_loss - 1e-12


def test_symmetric_weights_attain_the_bound_of_the_fit() -> None:
    w = matrix(8, 1.0)
    assert entropy.fit_symmetric(Weights.from_matrix(w + w.T)).gap == pytest.approx(0.0, abs=1e-15)


def test_a_weight_of_zero_leaves_a_bracket() -> None:
    w = matrix(7, 1.0)
    w[0, 1] = 0.0
    realization = realize(w, "euclidean", temperature=0.5)
    assert (
        realization.bracket is not None
        and not realization.certified
        and realization.bracket[0] == realization.entropic_bound
    )


def test_weights_too_far_apart_to_be_fitted_are_not_certified() -> None:
    w = matrix(100, 50.0, 100)
    with pytest.raises(
        NotCertifiedError, match="the optimum found by the best symmetric similarity is not certified"
    ) as raised:
        realize(w / w.max(), "euclidean", temperature=0.5)
    found = raised.value.geometry
    assert found.lower_bound == found.entropic_bound < found.optimal_loss
