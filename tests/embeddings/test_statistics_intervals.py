"""Standard errors against the formula written out with explicit matrices, and against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.simulated import long_tail, means_of, moments_of, sample, shape_root, unit, within_of
from scipy.stats import chi2, t

from optgeom.embeddings.moments.second_pass import WithinClass
from optgeom.embeddings.statistics.directions import class_directions
from optgeom.embeddings.statistics.intervals import pair_intervals
from optgeom.errors import InvalidInputError


def simulated(counts, dim, seed=0, sigma=0.5):
    rng = np.random.default_rng(seed)
    means = unit(rng.normal(size=(len(counts), dim)))
    return sample(means, counts, sigma, shape_root(dim, 10.0, rng), rng)


def common_shape(within, directions, full):
    """R with sum_c g_c P_c R P_c = tangential part of the pooled covariance, by one dense linear system."""
    dim = within.pooled.shape[0]
    n, u = directions.counts, directions.vectors
    projectors = [np.eye(dim) - np.outer(v, v) / (v @ v) for v in u]
    weights = (n - 1) * within.traces
    tangential = np.zeros((dim, dim))
    for c, project in enumerate(projectors):
        if full:
            tangential += (n[c] - 1) / (n - 1).sum() * project @ within.full[c] @ project
        else:
            f, trace = (n - 1).sum(), np.trace(within.pooled)
            square = (np.trace(within.pooled @ within.pooled) - trace**2 / f) / (1 + 1 / f)
            spread = square / trace**2 * within.traces[c] ** 2
            along = spread / (2 * directions.rho_squared[c]) * np.outer(u[c], u[c]) / (u[c] @ u[c])
            tangential += (n[c] - 1) / (n - 1).sum() * (-along)
    if not full:
        tangential += within.pooled
    operator = sum(g * np.kron(p, p) for g, p in zip(weights / weights.sum(), projectors, strict=True))
    return np.linalg.solve(operator, tangential.ravel()).reshape(dim, dim)


def written_out(rows, optimal, full):
    """se^2, the parts of both classes, by loops over explicit d x d matrices."""
    directions = class_directions(moments_of(rows))
    within = within_of(rows, directions)
    size, dim = directions.vectors.shape
    n = directions.counts.astype(float)
    u = directions.vectors
    eye = np.eye(dim)
    shape = common_shape(within, directions, full)
    freedom = (n - 1).sum()
    sampled, prior, weights = [], [], []
    for c in range(size):
        project = eye - np.outer(u[c], u[c])
        scale = n[c] * directions.rho[c] ** 2
        pooled = project @ shape @ project
        weight = (n[c] - 1) / (n[c] - 1 + 30) if full else 0.0
        sampled.append(weight * project @ within.full[c] @ project / scale)
        prior.append((1 - weight) * within.traces[c] / np.trace(pooled) * pooled / scale)
        weights.append(weight)

    def product(c, d):
        own = np.trace(sampled[c] @ sampled[d])
        if c == d:
            own = (own - np.trace(sampled[c]) ** 2 / (n[c] - 1)) / (1 + 1 / (n[c] - 1))
        v, w = sampled[c] + prior[c], sampled[d] + prior[d]
        rest = np.trace(v @ w) - np.trace(sampled[c] @ sampled[d])
        if full:
            linear = np.trace(v) * np.trace(w) * (1 - weights[c] * weights[d])
        else:
            left, right = eye - np.outer(u[c], u[c]), eye - np.outer(u[d], u[d])
            sizes = np.trace(v) / np.trace(left @ shape @ left) * np.trace(w) / np.trace(right @ shape @ right)
            linear = sizes * np.trace(left @ right @ shape) ** 2
        return own + (rest - linear / freedom) / (1 + 1 / freedom)

    shares = np.zeros((size, size))
    for c in range(size):
        for d in range(size):
            if c != d:
                first = u[d] @ (sampled[c] + prior[c]) @ u[d]
                first -= product(c, d) + optimal[c, d] ** 2 * product(c, c)
                shares[c, d] = max(first, 0) + product(c, d) / 2 + optimal[c, d] ** 2 / 2 * product(c, c)
    return shares


@pytest.mark.parametrize("counts", [[40, 30, 25, 8], [3, 90, 50, 50, 50]])
def test_full_covariances_give_the_formula(counts):
    rows = simulated(counts, 6)
    optimal = np.where(np.eye(len(counts)) > 0, 1.0, -0.3)
    directions = class_directions(moments_of(rows))
    shares = written_out(rows, optimal, full=True)
    for projected in (True, False):
        found = pair_intervals(directions, within_of(rows, directions, True, projected), optimal)
        assert found.source == ("projected" if projected else "full")
        assert found.shares == pytest.approx(shares, rel=4e-3, abs=1e-12)
        assert found.standard_errors == pytest.approx(np.sqrt(shares + shares.T), rel=2e-3, abs=1e-12)


def test_pooled_shape_gives_the_formula():
    rows = simulated([40, 30, 25, 8], 6)
    optimal = np.where(np.eye(4) > 0, 1.0, -0.3)
    directions = class_directions(moments_of(rows))
    found = pair_intervals(directions, within_of(rows, directions, False, False), optimal)
    assert found.source == "pooled"
    assert found.shares == pytest.approx(written_out(rows, optimal, full=False), rel=4e-3, abs=1e-12)


def test_projections_without_covariances_keep_the_exact_first_order():
    rows = simulated([400, 300], 30)
    optimal = np.array([[1.0, 0.1], [0.1, 1.0]])
    directions = class_directions(moments_of(rows))
    exact = pair_intervals(directions, within_of(rows, directions), optimal).standard_errors[0, 1]
    found = pair_intervals(directions, within_of(rows, directions, False, True), optimal)
    assert found.source == "projected"
    assert found.standard_errors[0, 1] == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize(("cosine", "ratio"), [(0.3, None), (0.3, 10.0), (1.0, 10.0), (-1.0, None)])
def test_standard_errors_are_the_scatter_of_the_cosines(cosine, ratio):
    """Between few images the estimate is on the safe side at +-1: a first-order term below zero is not taken off."""
    rng = np.random.default_rng(5)
    dim, optimal = 32, np.array([[1.0, cosine], [cosine, 1.0]])
    root = np.eye(dim) / np.sqrt(dim) if ratio is None else shape_root(dim, ratio, rng)
    means = means_of(optimal, dim, rng)
    cosines, variances = [], []
    for _ in range(500):
        rows = sample(means, [80, 40], 0.5, root, rng)
        directions = class_directions(moments_of(rows))
        found = pair_intervals(directions, within_of(rows, directions), optimal)
        cosines.append(found.cosines[0, 1])
        variances.append(found.standard_errors[0, 1] ** 2)
    ratio_found = np.sqrt(np.mean(variances)) / np.std(cosines)
    assert abs(np.mean(cosines) - cosine) < 4 * np.std(cosines) / np.sqrt(500)
    low, high = (0.92, 1.1) if abs(cosine) < 1 else (0.97, 1.25)
    assert low < ratio_found < high


@pytest.mark.parametrize("cosine", [1.0, -1.0])
def test_second_order_terms_are_all_there_is_at_coincident_and_opposite_classes(cosine):
    """The formula of the docstring at the true covariances, without any estimate of them."""
    rng = np.random.default_rng(6)
    dim, counts, optimal = 24, (60, 30), np.array([[1.0, cosine], [cosine, 1.0]])
    root = shape_root(dim, 10.0, rng)
    means = means_of(optimal, dim, rng)
    covariances = []
    for rows in sample(means, [100_000, 100_000], 0.3, root, rng):
        m = rows.mean(axis=0)
        project = np.eye(dim) - np.outer(m, m) / (m @ m)
        covariances.append(project @ np.cov(rows.T) @ project / (m @ m))
    v, w = covariances[0] / counts[0], covariances[1] / counts[1]
    predicted = np.trace(v @ w) + (np.trace(v @ v) + np.trace(w @ w)) / 2
    cosines = [
        class_directions(moments_of(sample(means, list(counts), 0.3, root, rng))).gram[0, 1] for _ in range(1500)
    ]
    assert np.std(cosines) == pytest.approx(np.sqrt(predicted), rel=0.06)


def test_intervals_are_student_with_welch_degrees_of_freedom():
    rows = simulated([30, 12, 9], 20)
    optimal = np.where(np.eye(3) > 0, 1.0, 0.0)
    directions = class_directions(moments_of(rows))
    found = pair_intervals(directions, within_of(rows, directions), optimal, alpha=0.1)
    s, r = found.shares[1, 2], found.shares[2, 1]
    freedom = (s + r) ** 2 / (s**2 / 11 + r**2 / 8)
    assert found.degrees_of_freedom[1, 2] == pytest.approx(freedom, rel=1e-12)
    assert found.num_pairs == 3
    reach = t.ppf(1 - 0.1 / 6, freedom) * np.sqrt(s + r)
    assert found.upper[1, 2] == pytest.approx(found.cosines[1, 2] + reach, rel=1e-12)
    assert found.lower[1, 2] == pytest.approx(found.cosines[1, 2] - reach, rel=1e-12)
    assert np.array_equal(found.upper, found.upper.T, equal_nan=True)


def test_long_tail_of_coincident_classes_is_that_of_a_chi_square():
    """In few dimensions A - 1 is -(1/2)|e_c - e_d|^2, a scaled chi-square with d - 1 degrees of freedom, centred."""
    dim, n = 9, 400
    rng = np.random.default_rng(7)
    optimal = np.ones((2, 2))
    directions = None
    near, far = [], []
    for _ in range(100):
        rows = sample(means_of(optimal, dim, rng), [n, n], 0.3, np.eye(dim) / 3, rng)
        directions = class_directions(moments_of(rows))
        found = pair_intervals(directions, within_of(rows, directions), optimal, alpha=0.001)
        if found.shares.max() < 1.02 * found.shares.min():
            continue
        near.append((found.cosines - found.lower)[0, 1] / found.standard_errors[0, 1])
        far.append((found.upper - found.cosines)[0, 1] / found.standard_errors[0, 1])
    k = dim - 1
    exact = (chi2.isf(0.0005, k) - k) / np.sqrt(2 * k)
    assert max(near) < 3.4
    assert max(far) == pytest.approx(exact, rel=0.05)
    assert min(far) > 3.3


def test_exact_embedding_has_no_standard_error():
    rows = [np.tile(row, (4, 1)) for row in np.eye(3)]
    directions = class_directions(moments_of(rows))
    for full, projected in ((True, True), (True, False), (False, False)):
        found = pair_intervals(directions, within_of(rows, directions, full, projected), np.eye(3))
        assert np.array_equal(found.standard_errors, np.zeros((3, 3)))
        assert np.array_equal(found.lower[found.tested], np.zeros(6))
        assert np.all(np.isinf(found.degrees_of_freedom))


def test_classes_without_direction_are_not_tested():
    rows = [*simulated([30, 40], 6), np.eye(6)[:1]]
    directions = class_directions(moments_of(rows))
    alone = class_directions(moments_of(rows[:2]))
    found = pair_intervals(directions, within_of(rows, directions), np.eye(3))
    without = pair_intervals(alone, within_of(rows[:2], alone), np.eye(2))
    assert found.num_pairs == 1
    assert not found.tested[2].any()
    assert np.isnan(found.standard_errors[2]).all()
    assert found.lower[0, 1] == pytest.approx(without.lower[0, 1], rel=1e-12)


@pytest.mark.parametrize("counts", [[1, 1], [1, 5]])
def test_nothing_to_test(counts):
    rows = simulated(counts, 6)
    directions = class_directions(moments_of(rows))
    within = WithinClass(np.zeros((6, 6)), np.full(2, np.nan)) if counts == [1, 1] else within_of(rows, directions)
    found = pair_intervals(directions, within, np.eye(2))
    assert found.num_pairs == 0
    assert not found.tested.any()


def test_class_order_does_not_matter():
    rows = simulated(long_tail(200, 10, 6), 12)
    optimal = np.where(np.eye(6) > 0, 1.0, -0.2)
    order = np.random.default_rng(8).permutation(6)
    both = []
    for held in (rows, [rows[c] for c in order]):
        directions = class_directions(moments_of(held))
        both.append(pair_intervals(directions, within_of(held, directions), optimal))
    assert both[1].lower == pytest.approx(both[0].lower[np.ix_(order, order)], rel=1e-9, nan_ok=True)


def test_arguments_outside_their_domain():
    rows = simulated([5, 6], 4)
    directions = class_directions(moments_of(rows))
    within = within_of(rows, directions)
    with pytest.raises(InvalidInputError, match=r"`alpha` must be < 1; got 1.5 \(0.05 is usual\)"):
        pair_intervals(directions, within, np.eye(2), alpha=1.5)
    with pytest.raises(InvalidInputError, match=r"`alpha` must be > 0; got 0"):
        pair_intervals(directions, within, np.eye(2), alpha=0)
    with pytest.raises(
        InvalidInputError, match=r"`optimal` must have shape \(C, C\) = \(2, 2\), matched to the classes; got \(3, 3\)"
    ):
        pair_intervals(directions, within, np.eye(3))
