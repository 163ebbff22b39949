"""Metrics of class means and spectra against written-out loops and closed forms."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from helpers.clouds import unit

from optgeom.embeddings.metrics.class_metrics import (
    cdnv,
    class_metrics,
    effective_rank,
    nc1,
    simplex_distance,
    singular_values_of_scatter,
)
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.embeddings.moments.second_pass import WithinClass
from optgeom.errors import InvalidInputError
from optgeom.prototypes import simplex_vertices


def cloud(counts, dim=5, sigma=0.4, seed=0):
    """Unit rows around random directions, and their classes."""
    rng = np.random.default_rng(seed)
    centres = unit(rng.normal(size=(len(counts), dim)))
    codes = np.repeat(np.arange(len(counts)), counts)
    return unit(centres[codes] + sigma * rng.normal(size=(codes.size, dim))), codes


def moments_of(rows, codes, num_classes, total=True):
    counts = np.array([np.sum(codes == c) for c in range(num_classes)], dtype=np.int64)
    sums = np.array([rows[codes == c].sum(axis=0) for c in range(num_classes)])
    squares = np.array([np.sum(rows[codes == c] ** 2) for c in range(num_classes)])
    names = tuple(f"class {c}" for c in range(num_classes))
    return ClassMoments(names, counts, sums, squares, rows.T @ rows if total else None)


def within_of(rows, codes, num_classes):
    """Unbiased covariances by numpy."""
    count = [int(np.sum(codes == c)) for c in range(num_classes)]
    full = [
        np.cov(rows[codes == c].T) if count[c] > 1 else np.full((rows.shape[1],) * 2, np.nan)
        for c in range(num_classes)
    ]
    scatter = sum((count[c] - 1) * full[c] for c in range(num_classes) if count[c] > 1)
    return WithinClass(scatter / sum(n - 1 for n in count), np.array([np.trace(s) for s in full]))


# --- NC1


@pytest.mark.parametrize("counts", [(20, 20, 20, 20), (40, 9, 5, 2)], ids=["balanced", "long tail"])
@pytest.mark.parametrize("weighting", ["classes", "samples"])
def test_nc1_is_the_paper_s(counts, weighting):
    rows, codes = cloud(counts)
    means = [rows[codes == c].mean(axis=0) for c in range(4)]
    weights = np.full(4, 0.25) if weighting == "classes" else np.array(counts) / sum(counts)
    centre = sum(w * m for w, m in zip(weights, means, strict=True))
    between = sum(w * np.outer(m - centre, m - centre) for w, m in zip(weights, means, strict=True))
    inside = sum(np.outer(z - means[c], z - means[c]) for z, c in zip(rows, codes, strict=True)) / len(rows)
    expected = np.trace(inside @ np.linalg.pinv(between, rcond=1e-10)) / 4
    assert nc1(np.array(means), inside, None if weighting == "classes" else counts) == pytest.approx(
        expected, rel=1e-10
    )
    moments = moments_of(rows, codes, 4)
    assert class_metrics(moments, None, weighting).nc1 == pytest.approx(expected, rel=1e-10)
    assert class_metrics(moments, within_of(rows, codes, 4), weighting).nc1 == pytest.approx(expected, rel=1e-10)


def test_nc1_of_a_simplex_in_isotropic_noise():
    # S_b = 1/(C - 1) times the projector on the span, so tr(S_w S_b^+)/C = s (C - 1)^2 / C
    vertices = np.pad(simplex_vertices(5), ((0, 0), (0, 3)))
    assert nc1(vertices, 0.3 * np.eye(7)) == pytest.approx(0.3 * 16 / 5, rel=1e-12)
    assert nc1(vertices, np.zeros((7, 7))) == 0.0


def test_nc1_of_coincident_means():
    rows = np.array([[1.0, 0, 0], [-1, 0, 0], [-1, 0, 0]])
    # S_b = (8/9) e1 e1': the pseudo-inverse sees one direction
    assert nc1(rows, np.diag([0.1, 0.5, 0.5])) == pytest.approx(0.1 / (8 / 9) / 3, rel=1e-12)
    assert math.isnan(nc1(rows[[1, 1, 1]] + 1e-12, np.eye(3)))


def test_nc1_is_not_available_without_within_scatter():
    rows, codes = cloud((1, 1, 1))
    found = class_metrics(moments_of(rows, codes, 3), WithinClass(np.full((5, 5), np.nan), np.full(3, np.nan)))
    assert math.isnan(found.nc1) and found.singletons == ("class 0", "class 1", "class 2")
    assert math.isnan(class_metrics(moments_of(rows, codes, 3, total=False)).nc1)
    assert found.worst_class is None and math.isnan(found.separation.mean) and found.separation.worst_pair is None


# --- CDNV


def test_cdnv_is_the_loop():
    rows, codes = cloud((12, 7, 30, 3))
    found = class_metrics(moments_of(rows, codes, 4))
    best, total = (-1.0, None), []
    for c in range(4):
        for d in range(c + 1, 4):
            one, two = rows[codes == c], rows[codes == d]
            spread = one.var(axis=0, ddof=1).sum() + two.var(axis=0, ddof=1).sum()
            value = spread / (2 * np.sum((one.mean(axis=0) - two.mean(axis=0)) ** 2))
            assert found.separation.matrix[c, d] == pytest.approx(value, rel=1e-10)
            assert found.separation.matrix[d, c] == found.separation.matrix[c, d]
            total.append(value)
            best = max(best, (value, (c, d)))
    assert (found.separation.max, found.separation.worst_pair) == (pytest.approx(best[0]), best[1])
    assert found.separation.mean == pytest.approx(np.mean(total))
    assert np.all(np.isnan(np.diag(found.separation.matrix)))


def test_coincident_means_have_a_finite_summary():
    """Case 24."""
    found = cdnv([[1.0, 0], [-1, 0], [-1, 0]], [0.2, 0.1, 0.3])
    assert found.collapsed_pairs == ((1, 2),) and found.num_collapsed_pairs == 1
    assert found.matrix[1, 2] == found.matrix[2, 1] == math.inf
    assert found.mean == pytest.approx((0.3 / 8 + 0.5 / 8) / 2) and found.max == pytest.approx(0.5 / 8)
    assert found.worst_pair == (0, 2)
    everything = cdnv(np.zeros((200, 3)), np.zeros(200))
    assert everything.num_collapsed_pairs == 19900 and len(everything.collapsed_pairs) == 10000
    assert math.isnan(everything.mean) and everything.worst_pair is None


def test_means_a_hair_apart_are_not_coincident():
    found = cdnv([[1.0, 0], [1, 1e-4]], [1e-8, 1e-8])
    assert found.collapsed_pairs == () and found.max == pytest.approx(1.0, rel=1e-6)


def test_a_singleton_has_no_within_class_statistics():
    """Case 15."""
    rows, codes = cloud((50, 1, 20))
    found = class_metrics(moments_of(rows, codes, 3), within_of(rows, codes, 3))
    assert found.singletons == ("class 1",) and found.separation.not_available == (1,)
    assert np.isnan(found.variances[1]) and np.all(np.isnan(found.separation.matrix[1]))
    assert found.separation.worst_pair == (0, 2) and np.isfinite(found.nc1)


def test_the_spread_class_is_named():
    """Case 22: one class spread, the others at a point."""
    rows, codes = cloud((200, 10, 10), sigma=0.5)
    rows[codes == 1], rows[codes == 2] = rows[codes == 1][0], rows[codes == 2][0]
    found = class_metrics(moments_of(rows, codes, 3))
    assert found.worst_class == "class 0"
    assert found.variances[0] == pytest.approx(rows[codes == 0].var(axis=0, ddof=1).sum())
    assert found.variances[1:] == pytest.approx([0, 0], abs=1e-14) and found.variances.min() >= 0


# --- simplex, empty class


def test_an_empty_class_is_named_and_left_out():
    """Case 23: a perfect simplex of three classes, declared with four."""
    vertices = simplex_vertices(3)
    rows, codes = np.repeat(vertices, 4, axis=0), np.repeat([0, 1, 3], 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = class_metrics(moments_of(rows, codes, 4))
    assert found.empty == ("class 2",) and found.names == ("class 0", "class 1", "class 3")
    assert found.simplex.relative_frobenius == pytest.approx(0, abs=1e-14)
    assert found.simplex.max_angle_deg == pytest.approx(0, abs=1e-6)
    assert found.separation.max == pytest.approx(0, abs=1e-14) and found.nc1 == pytest.approx(0, abs=1e-14)
    gram = np.full((4, 4), np.nan)
    gram[np.ix_([0, 1, 3], [0, 1, 3])] = vertices @ vertices.T
    direct = simplex_distance(gram)
    assert direct.left_out == (2,) and direct.relative_frobenius == pytest.approx(0, abs=1e-14)


def test_distance_from_the_simplex():
    gram = np.eye(4) + 0.1 * (1 - np.eye(4))
    found = simplex_distance(4 * gram)
    assert found.relative_frobenius == pytest.approx((0.1 + 1 / 3) * 3)
    assert found.max_angle_deg == pytest.approx(np.degrees(np.arccos(-1 / 3) - np.arccos(0.1)))
    gram[1, 3] = gram[3, 1] = 1.02  # a de-attenuated cosine may exceed 1
    found = simplex_distance(gram)
    assert found.worst_pair == (1, 3) and found.max_angle_deg == pytest.approx(np.degrees(np.arccos(-1 / 3)))
    expected = math.sqrt((10 * (0.1 + 1 / 3) ** 2 + 2 * (1.02 + 1 / 3) ** 2) / 12) * 3
    assert found.relative_frobenius == pytest.approx(expected)
    assert math.isnan(simplex_distance([[1.0]]).relative_frobenius)
    gram[1, 3] = gram[3, 1] = np.nan
    assert simplex_distance(gram).relative_frobenius == pytest.approx((0.1 + 1 / 3) * 3)


# --- spectrum


def test_effective_rank():
    assert effective_rank(np.ones(6)) == pytest.approx(6)
    assert effective_rank([3.0, 0, 0]) == 1.0
    values = np.array([4.0, 2, 1, 1])
    share = values / values.sum()
    assert effective_rank(values) == pytest.approx(math.exp(-sum(p * math.log(p) for p in share)))
    assert math.isnan(effective_rank([0.0, 0]))
    # a balanced simplex: C - 1 equal singular values
    vertices = np.pad(simplex_vertices(8), ((0, 0), (0, 5)))
    assert effective_rank(np.linalg.svd(vertices, compute_uv=False)) == pytest.approx(7)
    assert effective_rank(singular_values_of_scatter(vertices.T @ vertices)) == pytest.approx(7, rel=1e-12)


def test_spectrum_of_rows_and_of_their_scatter_agree():
    rows, _ = cloud((30, 5, 5), dim=6)
    expected = np.linalg.svd(rows, compute_uv=False)
    assert singular_values_of_scatter(rows.T @ rows) == pytest.approx(expected)
    assert singular_values_of_scatter(rows @ rows.T)[:6] == pytest.approx(expected)
    assert np.all(singular_values_of_scatter(rows @ rows.T)[6:] == 0)


# --- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nc1([[1.0, 0], [0, 1]], np.eye(3)), r"`within` must be \(d, d\) = \(2, 2\)"),
        (lambda: nc1([[1.0, 0], [0, 1]], np.eye(2), [1, 0]), "`weights` must be 2 positive numbers"),
        (lambda: nc1([[1.0, np.nan], [0, 1]], np.eye(2)), "`means` must be finite"),
        (lambda: cdnv([[1.0, 0], [0, 1]], [0.1, -0.1]), "`variances` must be 2 numbers >= 0"),
        (lambda: simplex_distance(np.ones((2, 3))), "`gram` must be square"),
        (
            lambda: class_metrics(moments_of(*cloud((3, 3)), 2), None, "rows"),
            "`weighting` must be classes or samples; got 'rows'",
        ),
        (
            lambda: class_metrics(ClassMoments(("a",), np.zeros(1, np.int64), np.zeros((1, 2)), np.zeros(1))),
            "only empty classes",
        ),
        (lambda: effective_rank([1.0, -1]), "`values` must be singular values"),
        (lambda: singular_values_of_scatter([[1.0, np.inf]]), "`matrix` must be finite.*; got NaN or infinity"),
        (lambda: singular_values_of_scatter([[1.0, 2], [0, 1]]), "`matrix` must be symmetric"),
    ],
)
def test_errors(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
