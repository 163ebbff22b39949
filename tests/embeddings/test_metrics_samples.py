"""Metrics of sampled rows and of samples against an optimum: written-out loops, closed forms, scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.clouds import unit
from scipy.spatial import procrustes

from optgeom.embeddings.metrics.sample_metrics import draws, neighbours, sample_metrics
from optgeom.embeddings.metrics.similarity import procrustes_r2, sample_similarity_r2
from optgeom.embeddings.moments.unit_rows import UnitRows
from optgeom.errors import InvalidInputError
from optgeom.prototypes import simplex_vertices


def with_views(images, views, dim=4, sigma=0.3, seed=0, classes=3):
    """Unit rows: classes, images around them, views around images; (rows, codes, groups)."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(classes, size=images)
    centre = rng.normal(size=(classes, dim))[codes] + rng.normal(size=(images, dim))
    rows = unit(np.repeat(centre, views, axis=0) + sigma * rng.normal(size=(images * views, dim)))
    order = rng.permutation(images * views)
    return rows[order], np.repeat(codes, views)[order], np.repeat(np.arange(images) * 7 - 3, views)[order]


def by_hand(rows, codes, groups, tau, t=2.0, share=0.05):
    """All quantities by loops over pairs, without ties."""
    n = len(rows)
    potential, tolerance, same, entropies, saa, cac = 0.0, 0.0, 0, [], [], []
    nearest = max(1, math.floor(round(share * n, 9)))
    for i in range(n):
        others = [j for j in range(n) if j != i]
        potential += sum(math.exp(-t * np.sum((rows[i] - rows[j]) ** 2)) for j in others)
        for j in others:
            if codes[i] == codes[j]:
                tolerance += rows[i] @ rows[j]
                same += 1
        weights = np.array([math.exp(rows[i] @ rows[j] / tau) for j in others])
        weights /= weights.sum()
        entropies.append(-np.sum(weights * np.log(weights)))
        ranked = sorted(others, key=lambda j: np.sum((rows[i] - rows[j]) ** 2))
        saa.append(groups[ranked[0]] == groups[i])
        cac.append(np.mean([codes[j] == codes[i] for j in ranked[:nearest]]))
    return {
        "uniformity": math.log(potential / (n * (n - 1))),
        "tolerance": tolerance / (n * (n - 1)),
        "conditional": tolerance / same,
        "entropy": np.mean(entropies),
        "saa": np.array(saa, dtype=float),
        "cac": np.array(cac),
    }


def test_everything_is_the_loop():
    rows, codes, groups = with_views(30, 2)
    expected = by_hand(rows, codes, groups, 0.2, t=1.5, share=0.1)
    found = sample_metrics(rows, codes, groups=groups, temperature=0.2, t=1.5, share=0.1)
    assert found.uniformity.value == pytest.approx(expected["uniformity"], rel=1e-12)
    assert found.tolerance.value == pytest.approx(expected["tolerance"], rel=1e-12)
    assert found.conditional_tolerance.value == pytest.approx(expected["conditional"], rel=1e-12)
    assert found.penalty_entropy.value == pytest.approx(expected["entropy"], rel=1e-12)
    assert found.saa.value == pytest.approx(expected["saa"].mean()) and 0.2 < found.saa.value < 0.95
    assert found.cac.value == pytest.approx(expected["cac"].mean())
    for c in range(3):
        assert found.saa_per_class[c].value == pytest.approx(expected["saa"][codes == c].mean())
        assert found.cac_per_class[c].value == pytest.approx(expected["cac"][codes == c].mean())
    pairs = [np.sum((rows[i] - rows[j]) ** 2) for i in range(60) for j in range(i) if groups[i] == groups[j]]
    assert found.alignment.value == pytest.approx(np.mean(pairs), rel=1e-12)
    assert found.uniformity.standard_error == found.saa.standard_error == found.tolerance.standard_error == 0
    assert found.uniformity.rows == 60


def test_alignment_weighs_images_alike():
    rows, _, _ = with_views(3, 2)
    groups = np.array(["a", "a", "a", "b", "b", "c"])
    one = np.mean([np.sum((rows[i] - rows[j]) ** 2) for i in range(3) for j in range(i)])
    found = sample_metrics(rows, np.zeros(6, int), groups=groups)
    assert found.alignment.value == pytest.approx((one + np.sum((rows[3] - rows[4]) ** 2)) / 2)
    # the image with one view has no other view to be near to
    assert found.saa.value == pytest.approx(np.mean(by_hand(rows, np.zeros(6, int), groups, 1.0)["saa"][:5]))


def test_nearest_mean_is_the_loop():
    rows, codes, _ = with_views(80, 1, sigma=0.8)
    means = np.array([rows[codes == c].mean(axis=0) for c in range(3)])
    hits = np.array([np.argmin([np.sum((z - m) ** 2) for m in means]) for z in rows]) == codes
    found = sample_metrics(rows, codes)
    assert found.nearest_mean.value == pytest.approx(hits.mean()) and hits.mean() < 1
    assert [part.value for part in found.nearest_mean_per_class] == pytest.approx(
        [hits[codes == c].mean() for c in range(3)]
    )
    given = sample_metrics(rows, codes, means=means[[1, 2, 0]])
    moved = np.array([np.argmin([np.sum((z - m) ** 2) for m in means[[1, 2, 0]]]) for z in rows]) == codes
    assert given.nearest_mean.value == pytest.approx(moved.mean())
    means[2] = np.nan
    without = sample_metrics(rows, codes, means=means)
    two = np.array([np.argmin([np.sum((z - m) ** 2) for m in means[:2]]) for z in rows]) == codes
    assert without.nearest_mean.value == pytest.approx(two[codes < 2].mean()) and math.isnan(
        without.nearest_mean_per_class[2].value
    )


# --- closed forms


def test_everything_at_one_point():
    """Ties are broken at random on average, whatever the order of the rows."""
    codes, groups = np.repeat([0, 1], [6, 4]), np.repeat(np.arange(5), 2)
    order = np.random.default_rng(0).permutation(10)
    for index in (np.arange(10), order):
        rows = unit(np.random.default_rng(1).normal(size=50) + 1e-14 * np.random.default_rng(2).normal(size=(10, 50)))
        found = sample_metrics(rows, codes[index], groups=groups[index], temperature=0.1, share=0.3)
        assert found.uniformity.value == pytest.approx(0, abs=1e-12)
        assert found.saa.value == pytest.approx(1 / 9)
        assert [part.value for part in found.cac_per_class] == pytest.approx([5 / 9, 3 / 9])
        assert found.penalty_entropy.value == pytest.approx(math.log(9))
        assert found.nearest_mean.value == pytest.approx(1 / 2)
        assert found.tolerance.value == pytest.approx((6 * 5 + 4 * 3) / 90)
        assert found.conditional_tolerance.value == pytest.approx(1)
        assert found.alignment.value == pytest.approx(0, abs=1e-15)


def test_rounding_does_not_break_ties():
    """Of four points, two classes at each, the nine rows of other points are equally far but for rounding."""
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(50, 50)))[0][:3]
    rows = unit(
        np.repeat(simplex_vertices(4) @ turn, 3, axis=0) + 1e-15 * np.random.default_rng(2).normal(size=(12, 50))
    )
    found = sample_metrics(rows, np.tile([0, 0, 1], 4), share=0.45)  # 5 neighbours: 2 at the point and 3 of the 9
    assert [part.value for part in found.cac_per_class] == pytest.approx([(1 + 3 * 6 / 9) / 5, (0 + 3 * 3 / 9) / 5])


def test_collapsed_classes_on_a_simplex():
    rows, codes = np.repeat(simplex_vertices(4), 5, axis=0), np.repeat(np.arange(4), 5)
    found = sample_metrics(rows, codes, temperature=0.5, share=0.3)  # 6 neighbours: 4 of the class and 2 of 15 others
    far = math.exp(-2 * 2 * (1 + 1 / 3))
    assert found.uniformity.value == pytest.approx(math.log((4 + 15 * far) / 19))
    assert found.tolerance.value == pytest.approx(4 / 19) and found.conditional_tolerance.value == pytest.approx(1)
    assert found.cac.value == pytest.approx(4 / 6) and found.nearest_mean.value == 1
    weight = np.repeat([1.0, math.exp(-(4 / 3) / 0.5)], [4, 15])
    weight /= weight.sum()
    assert found.penalty_entropy.value == pytest.approx(-np.sum(weight * np.log(weight)))
    assert (found.alignment, found.saa, found.saa_per_class) == (None, None, None)
    assert sample_metrics(rows, codes).penalty_entropy is None


@pytest.mark.parametrize("tau", [1e-3, 1e3])
def test_penalties_at_extreme_temperatures(tau):
    rows, codes, _ = with_views(40, 1)
    found = sample_metrics(rows.astype(np.float32), codes, temperature=tau).penalty_entropy.value
    # towards 0 the hardest negative only, towards infinity all alike
    assert found == pytest.approx(math.log(39), abs=1e-5) if tau > 1 else 0 <= found < 0.2


def test_five_percent_of_the_rows():
    assert [neighbours(n, 0.05) for n in (2, 19, 20, 39, 40, 60, 140, 4096)] == [1, 1, 1, 1, 2, 3, 7, 204]
    assert all(neighbours(n, 0.05) == max(1, n * 5 // 100) for n in range(2, 5000))
    assert neighbours(3, 0.99) == 2


def test_classes_without_company_are_not_available():
    """Cases 15 and 23."""
    rows, codes, _ = with_views(20, 1, classes=2)
    codes = np.append(codes[:-1], 3)
    found = sample_metrics(rows, codes, num_classes=5)
    for c in (2, 3, 4):
        assert math.isnan(found.cac_per_class[c].value) and math.isnan(found.nearest_mean_per_class[c].value)
        assert math.isnan(found.cac_per_class[c].standard_error)
    assert 0 < found.cac.value <= 1 and found.nearest_mean_per_class[3].rows == 1


# --- sampling


def test_samples_hold_whole_images():
    rows, codes, groups = with_views(50, 3)
    taken = [list(draw) for draw in draws(UnitRows.of(rows, codes, groups=groups), 31, 3, 0)]
    for draw in taken:
        assert len(draw) == 30 and len(set(draw)) == 30
        assert all(np.sum(groups[draw] == group) == 3 for group in set(groups[draw]))
    assert taken[0] != taken[1]
    plain = [list(draw) for draw in draws(UnitRows.of(rows, codes), 31, 2, 0)]
    assert [len(set(draw)) for draw in plain] == [31, 31] and plain[0] != plain[1]


def test_sampled_values_are_near_the_exact_ones():
    rows, codes, groups = with_views(300, 2)
    whole = sample_metrics(rows, codes, groups=groups, size=600)
    found = sample_metrics(rows, codes, groups=groups, size=200, seeds=8, seed=3)
    assert found.uniformity.rows == 200 and whole.uniformity.rows == 600
    for name in ("uniformity", "cac"):
        part, exact = getattr(found, name), getattr(whole, name)
        assert 0 < part.standard_error < 0.1 and abs(part.value - exact.value) < 5 * part.standard_error
    assert found.tolerance == whole.tolerance and found.alignment == whole.alignment
    assert found.uniformity == sample_metrics(rows, codes, groups=groups, size=200, seeds=8, seed=3).uniformity
    values = [
        sample_metrics(rows[draw], codes[draw], groups=groups[draw]).saa.value
        for draw in draws(UnitRows.of(rows, codes, groups=groups), 200, 8, 3)
    ]
    assert found.saa.value == pytest.approx(np.mean(values))
    assert found.saa.standard_error == pytest.approx(np.std(values, ddof=1) / math.sqrt(8))


def test_blocks_do_not_matter(monkeypatch):
    rows, codes, groups = with_views(40, 2)
    whole = sample_metrics(rows, codes, groups=groups, temperature=0.1)
    monkeypatch.setattr("optgeom.embeddings.metrics.sample_metrics.ENTRIES", 240)
    monkeypatch.setattr("optgeom.embeddings.metrics.sample_metrics.ENTRIES", 9)
    monkeypatch.setattr("optgeom.embeddings.moments.unit_rows.ENTRIES", 9)
    found = sample_metrics(rows, codes, groups=groups, temperature=0.1)
    for name in ("uniformity", "tolerance", "alignment", "saa", "cac", "penalty_entropy", "nearest_mean"):
        assert getattr(found, name).value == pytest.approx(getattr(whole, name).value, rel=1e-12), name


# --- samples against an optimum


def test_sample_similarity_r2_is_the_loop():
    rng = np.random.default_rng(1)
    rows, optimum = rng.normal(size=(15, 4)), rng.normal(size=(15, 3))
    for latent in ("cosine", "euclidean"):
        given, wanted = [], []
        for i in range(15):
            for j in range(i):
                for values, table in ((given, rows), (wanted, optimum)):
                    a, b = table[i], table[j]
                    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
                    values.append(cosine if latent == "cosine" else -np.sum((a - b) ** 2))
        expected = 1 - np.sum(np.subtract(given, wanted) ** 2) / np.sum((wanted - np.mean(wanted)) ** 2)
        assert sample_similarity_r2(rows, optimum, latent=latent) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("latent", ["cosine", "euclidean"])
def test_a_mirrored_embedding_is_the_optimum(latent):
    """Case 28: O(d), not SO(d); and the optimum may have fewer columns."""
    optimum = unit(np.random.default_rng(2).normal(size=(20, 3)))
    mirrored = np.pad(optimum * np.array([-1.0, 1, 1]), ((0, 0), (0, 2)))
    assert sample_similarity_r2(mirrored, optimum, latent=latent) == pytest.approx(1, abs=1e-12)
    assert procrustes_r2(mirrored, optimum, latent=latent) == pytest.approx(1, abs=1e-12)
    assert procrustes_r2(optimum, mirrored, latent=latent) == pytest.approx(1, abs=1e-12)


def test_procrustes_r2_is_scipy_s_with_translation_and_scale():
    rng = np.random.default_rng(3)
    optimum = rng.normal(size=(25, 4)) + 2
    rows = 3 * optimum @ np.linalg.qr(rng.normal(size=(4, 4)))[0] + rng.normal(size=(25, 4)) - 5
    _, _, disparity = procrustes(optimum, rows)
    assert 0.01 < disparity < 0.5
    assert procrustes_r2(rows, optimum, latent="euclidean", scale=True) == pytest.approx(1 - disparity, rel=1e-12)


def test_translation_and_scale_only_where_allowed():
    rng = np.random.default_rng(4)
    optimum = rng.normal(size=(12, 2))
    spread = np.sum((optimum - optimum.mean(axis=0)) ** 2)
    assert procrustes_r2(2 * optimum + 5, optimum, latent="euclidean", scale=True) == pytest.approx(1, abs=1e-12)
    assert procrustes_r2(optimum + 5, optimum, latent="euclidean") == pytest.approx(1, abs=1e-12)
    assert procrustes_r2(2 * optimum, optimum, latent="euclidean") == pytest.approx(0, abs=1e-12)  # |2y - y|^2 = |y|^2
    left = 1 - 0.25 * np.sum(optimum**2) / spread
    assert procrustes_r2(1.5 * optimum, optimum, latent="cosine") == pytest.approx(left)
    assert procrustes_r2(1.5 * optimum, optimum, latent="cosine", scale=True) == pytest.approx(1, abs=1e-12)
    # in the plane every turn and mirror can be tried
    rows = unit(rng.normal(size=(12, 2)))
    best = np.inf
    for angle in np.linspace(0, 2 * np.pi, 20001):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        best = min(best, np.sum((optimum - rows @ turn) ** 2), np.sum((optimum - rows * [1, -1] @ turn) ** 2))
    assert procrustes_r2(rows, optimum) == pytest.approx(1 - best / spread, abs=1e-6)


def test_nothing_to_explain_is_not_available():
    assert math.isnan(sample_similarity_r2(np.eye(4), simplex_vertices(4)))
    assert math.isnan(procrustes_r2(np.eye(4), np.ones((4, 2))))
    assert math.isnan(procrustes_r2(np.eye(4), np.zeros((4, 2)), latent="euclidean"))


# --- errors

GOOD = np.eye(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample_metrics([[0.0, 0], [1, 0]], [0, 0]), r"got norm 0 in row 0 \(a zero row has no direction"),
        (
            lambda: sample_metrics([[1.0, 0], [7, 0]], [0, 0]),
            r"`rows` must have unit norm; got norm 7 in row 1 \(divide each row",
        ),
        (lambda: sample_metrics([[1.0, 0], [0, np.nan]], [0, 0]), "`rows` must be finite; got nan in row 1, column 1"),
        (lambda: sample_metrics(np.ones(3), [0, 0, 0]), r"`rows` must be a table of numbers \(n, d\)"),
        (lambda: sample_metrics(GOOD, [0, 1]), r"`codes` must be one class index per row, \(3,\) whole numbers"),
        (lambda: sample_metrics(GOOD, [0, 1, -1]), "`codes` must be 0 or more; got -1 in row 2"),
        (lambda: sample_metrics(GOOD, [0, 1, 2], num_classes=2), "`codes` must be 0 to 1; got 2 in row 2"),
        (lambda: sample_metrics(GOOD, [0, 1, 2], groups=[1]), "`groups` must hold one image id per row"),
        (lambda: sample_metrics(GOOD[:1], [0]), "`rows` must be at least 2; got 1"),
        (lambda: sample_metrics(GOOD, [0, 1, 2], temperature=0), "`temperature` must be > 0"),
        (lambda: sample_metrics(GOOD, [0, 1, 2], share=1.0), "`share` must be below 1"),
        (
            lambda: sample_metrics(GOOD, [0, 1, 2], means=np.eye(2)),
            r"`means` must be finite \(nan for no mean\), \(C, d\) = \(3, 3\)",
        ),
        (lambda: sample_similarity_r2(np.eye(3), np.eye(4)), "with the same n >= 3"),
        (
            lambda: sample_similarity_r2(np.eye(3), np.full((3, 1), np.inf)),
            "`optimum` must be finite; got inf in row 0, column 0",
        ),
        (
            lambda: sample_similarity_r2(np.diag([1.0, 0, 1]), np.eye(3)),
            "`rows` must have no zero row.*got one in row 1",
        ),
        (lambda: procrustes_r2(np.eye(3), np.eye(3), latent="hyperbolic"), "`latent` must be one of cosine, euclidean"),
    ],
)
def test_errors(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_half_precision_rows_are_unit_rows():
    rows, codes, _ = with_views(50, 1)
    half = sample_metrics(rows.astype(np.float16), codes).uniformity.value
    assert half == pytest.approx(sample_metrics(rows, codes).uniformity.value, abs=1e-3)
