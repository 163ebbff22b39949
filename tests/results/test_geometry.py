"""Geometry: prototypes, angles, pairs and coincidences against brute force over the full Gram matrix; alignment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.geometries import GEOMETRIES, batch, mixed, solved, squeezed
from helpers.reference import off_diagonal

import optgeom as og
from optgeom import prototypes
from optgeom.prototypes import simplex_vertices


@pytest.fixture(scope="module", params=sorted(GEOMETRIES))
def geometry(request: pytest.FixtureRequest) -> og.Geometry:
    return GEOMETRIES[request.param]()


# --- prototypes


@pytest.mark.parametrize("count", [2, 3, 4, 10, 63, 200])
def test_simplex_vertices(count: int) -> None:
    vertices = simplex_vertices(count)
    assert vertices.shape == (count, count - 1)
    np.testing.assert_allclose(vertices @ vertices.T, off_diagonal(-1 / (count - 1), count), atol=1e-14)


@pytest.mark.parametrize("classes", [2, 3, 5, 10, 37, 100, 200])
@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_prototypes_have_the_gram_matrix(classes: int, repeated: bool, tau: float) -> None:
    drawn = np.random.default_rng(classes).permutation(np.arange(1, classes + 1) * 7)
    counts = np.maximum(1, drawn // (7 * 8) * 8) if repeated else drawn
    found = solved(*counts, loss=og.SupCon(tau))
    table = found.prototypes()
    assert table.shape == (classes, found.rank)
    np.testing.assert_allclose(table @ table.T, found.gram, atol=1e-12)
    np.testing.assert_allclose(found.prototypes(found.rank), table)
    padded = found.prototypes(found.rank + 3)
    assert np.array_equal(padded[:, : found.rank], table) and not padded[:, found.rank :].any()
    with pytest.raises(og.InvalidInputError, match=r"`first` must be a class index from 0 to .*; got -1"):
        found.cosine(-1, 0)
    with pytest.raises(
        og.InvalidInputError, match=r"`second` must be a class index from 0 to .*; got 0.5 \(the first class is 0\)"
    ):
        found.cosine(0, 0.5)
    if found.rank > 1:
        with pytest.raises(
            og.InvalidInputError, match=f"at least the rank of the geometry, {found.rank}; got {found.rank - 1} "
        ):
            found.prototypes(found.rank - 1)


def test_prototypes_of_every_kind_of_geometry(geometry: og.Geometry) -> None:
    table = geometry.prototypes()
    np.testing.assert_allclose(table @ table.T, geometry.gram, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(table, axis=1), 1.0, atol=1e-12)
    assert table.shape[1] == geometry.rank


@pytest.mark.parametrize("dim", [0, -1, 2.5, True, "3", math.nan])
def test_dimension_of_prototypes_is_a_whole_number(dim: Any) -> None:
    with pytest.raises(og.InvalidInputError, match="`dim` must be a whole number >= 1; got "):
        solved(3, 2, 1).prototypes(dim)


@pytest.mark.parametrize("dim", [None, 1, 2, 4])
def test_vectors_of_any_matrix(dim: int | None) -> None:
    """The leading eigenvectors are the nearest matrix of that rank (Eckart and Young)."""
    values = np.array([3.0, 1.0, -0.5, 0.0])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    table = prototypes.from_gram((turn * values) @ turn.T, dim)
    kept = np.maximum(values, 0.0) * (np.arange(4) < (4 if dim is None else dim))
    assert table.shape == (4, 2 if dim is None else dim)
    np.testing.assert_allclose(table @ table.T, (turn * kept) @ turn.T, atol=1e-13)


# --- what is read off the Gram matrix


def test_gram_and_eigenvalues(geometry: og.Geometry) -> None:
    gram = geometry.gram
    assert gram.shape == (geometry.num_classes, geometry.num_classes)
    assert np.array_equal(gram, gram.T) and np.all(np.diag(gram) == 1.0)
    found = geometry.eigenvalues()
    assert np.all(np.diff(found) <= 0)
    np.testing.assert_allclose(found, np.linalg.eigvalsh(gram)[::-1], atol=1e-12)
    assert geometry.rank == int((np.linalg.eigvalsh(gram) > 1e-7).sum())
    for i in range(geometry.num_classes):
        assert [geometry.cosine(i, j) for j in range(geometry.num_classes)] == gram[i].tolist()


def test_angles_in_degrees(geometry: og.Geometry) -> None:
    angles = geometry.angles()
    expected = np.degrees(np.arccos(np.clip(geometry.gram, -1.0, 1.0)))
    np.testing.assert_allclose(angles, expected - np.diag(np.diag(expected)), atol=1e-9)
    assert np.all(np.diag(angles) == 0.0) and angles.min() >= 0.0 and angles.max() <= 180.0


def brute_force_pairs(geometry: og.Geometry) -> list[tuple[int, int, float]]:
    gram, count = geometry.gram, geometry.num_classes
    angle = {
        (i, j): math.degrees(math.acos(max(-1.0, min(1.0, gram[i, j]))))
        for i in range(count)
        for j in range(i + 1, count)
    }
    return [(i, j, 0.0 if gram[i, j] > 1 - 1e-9 else found) for (i, j), found in angle.items()]


@pytest.mark.parametrize("limit", [1, 3, 5, 1000])
def test_closest_and_farthest_pairs(geometry: og.Geometry, limit: int) -> None:
    pairs = {(i, j): angle for i, j, angle in brute_force_pairs(geometry)}
    for found, expected in (
        (geometry.closest_pairs(limit), sorted(pairs.values())),
        (geometry.farthest_pairs(limit), sorted(pairs.values(), reverse=True)),
    ):
        assert len(found) == min(limit, len(pairs)) == len({(pair.first, pair.second) for pair in found})
        np.testing.assert_allclose([pair.angle_deg for pair in found], expected[:limit], atol=1e-9)
        for pair in found:
            assert pair.first < pair.second
            assert pair.angle_deg == pytest.approx(pairs[pair.first, pair.second], abs=1e-9)
    assert geometry.min_angle_deg == pytest.approx(min(pairs.values()), abs=1e-9)


def test_coincident_and_near_coincident_classes(geometry: og.Geometry) -> None:
    near = {(i, j) for i, j, angle in brute_force_pairs(geometry) if angle < 1.0}
    assert set(geometry.near_coincident_pairs) == near
    assert len(geometry.near_coincident_pairs) == len(near) == geometry.num_near_coincident_pairs
    clusters: list[set[int]] = []
    for i in range(geometry.num_classes):
        mine = {j for j in range(geometry.num_classes) if geometry.gram[i, j] > 1 - 1e-9 or i == j}
        clusters = [mine.union(*[c for c in clusters if c & mine]), *[c for c in clusters if not c & mine]]
    assert list(geometry.coincident_classes) == sorted(tuple(sorted(c)) for c in clusters if len(c) > 1)


def test_collapsed_cases_hold_what_they_are_for() -> None:
    assert batch().coincident_classes == ((0, 3, 5),)
    assert squeezed().coincident_classes == () and squeezed().num_near_coincident_pairs > 10
    assert GEOMETRIES["collapsed"]().coincident_classes == ((0, 2, 3),)


@pytest.mark.parametrize(
    ("name", "regime"),
    [
        ("mixed", "spread"),
        ("two", "spread"),
        ("squeezed", "partial-collapse"),
        ("batch", "partial-collapse"),
        ("collapsed", "minority-collapse"),
        ("limited", "dimension-limited"),
    ],
)
def test_regime(name: str, regime: str) -> None:
    assert GEOMETRIES[name]().regime == regime
    assert f"regime={regime!r}" in repr(GEOMETRIES[name]())


# --- alignment


def test_case_28_mirrored_embeddings_have_distance_zero() -> None:
    table = mixed().prototypes()
    mirror = np.diag([-1.0, *[1.0] * (table.shape[1] - 1)])
    assert np.linalg.det(mirror) == -1
    np.testing.assert_allclose(og.align(table @ mirror, table), table, atol=1e-13)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(9, 9)))[0]
    wide = og.align(mixed().prototypes(9) @ turn, table)  # nine columns against seven: zeros fill the rest
    np.testing.assert_allclose(wide, mixed().prototypes(9), atol=1e-13)
    np.testing.assert_allclose(og.align(table, mixed().prototypes(9) @ turn), mixed().prototypes(9) @ turn, atol=1e-13)


def test_alignment_in_the_plane_is_the_best_angle() -> None:
    rng = np.random.default_rng(2)
    source, target = rng.normal(size=(6, 2)), rng.normal(size=(6, 2))
    best = math.inf
    for angle in np.linspace(0, 2 * np.pi, 20001):
        c, s = math.cos(angle), math.sin(angle)
        for turn in (np.array([[c, -s], [s, c]]), np.array([[c, s], [s, -c]])):
            best = min(best, float(np.sum((source @ turn - target) ** 2)))
    found = og.align(source, target)
    assert float(np.sum((found - target) ** 2)) == pytest.approx(best, abs=1e-6)
    np.testing.assert_allclose(found @ found.T, source @ source.T, atol=1e-13)
    np.testing.assert_allclose(og.align(source.tolist(), target.tolist()), found)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (np.ones((3, 2)), np.ones((4, 2)), r"must be \(n, d\) with the same n; got \(3, 2\) and \(4, 2\)"),
        (np.ones(3), np.ones(3), r"must be \(n, d\) with the same n; got \(3,\) and \(3,\)"),
        (np.full((2, 2), math.nan), np.eye(2), "`source` and `target` must be finite; got NaN or infinity"),
    ],
)
def test_alignment_needs_two_tables(source: np.ndarray, target: np.ndarray, message: str) -> None:
    with pytest.raises(og.InvalidInputError, match=message):
        og.align(source, target)
