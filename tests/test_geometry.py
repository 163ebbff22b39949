"""Geometry: prototypes, angles, pairs and coincidences against brute force over the full Gram matrix; files; alignment."""

from __future__ import annotations

import copy
import csv
import dataclasses
import json
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import LIMIT, off_diagonal

import optgeom as og
from optgeom import prototypes
from optgeom.prototypes import simplex_vertices

LIMIT_LOSS = og.InfoNCE(0.5, **LIMIT)


def solved(*counts: int, loss: og.Loss = LIMIT_LOSS, **options: Any) -> og.Geometry:
    return og.solve(og.ClassDistribution.from_counts(counts), loss, **options)


def mixed() -> og.Geometry:
    """Groups of several sizes, in no order."""
    return solved(3, 9, 3, 1, 9, 3, 2, 20)


def squeezed() -> og.Geometry:
    """Partial collapse with near-coincident pairs."""
    weights = np.array([(i + 1.0) ** -2 for i in range(20)])
    return og.solve(og.ClassDistribution.from_proportions(weights / weights.sum()), og.InfoNCE(1.0, **LIMIT, sampling="scl"))


def batch() -> og.Geometry:
    """Coincident singletons beside spread classes."""
    return solved(1, 5, 4, 1, 4, 1, 2, loss=og.SupConFullBatch(0.5))


GEOMETRIES: dict[str, Callable[[], og.Geometry]] = {
    "mixed": mixed,
    "squeezed": squeezed,
    "batch": batch,
    "collapsed": lambda: solved(2, 95, 2, 1, loss=og.SupCon(1.0)),
    "grouped collapse": lambda: solved(500, 40, 40, 40, 3, 3, 3, loss=og.InfoNCE(0.8, **LIMIT, sampling="scl")),
    "two": lambda: solved(9, 1),
    "balanced": lambda: solved(*[4] * 11),
    "apart": lambda: solved(3, 9, 3, 1, grouped=False),
    "limited": lambda: solved(5, 4, 4, 2, 1, 1, dim=2),
}


@pytest.fixture(scope="module", params=sorted(GEOMETRIES))
def geometry(request: pytest.FixtureRequest) -> og.Geometry:
    return GEOMETRIES[request.param]()


# --- prototypes ---------------------------------------------------------------------------------------------------------------------


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
    with pytest.raises(og.InvalidInputError, match=r"`second` must be a class index from 0 to .*; got 0.5 \(the first class is 0\)"):
        found.cosine(0, 0.5)
    if found.rank > 1:
        with pytest.raises(og.InvalidInputError, match=f"at least the rank of the geometry, {found.rank}; got {found.rank - 1} "):
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


# --- what is read off the Gram matrix -----------------------------------------------------------------------------------------------


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
    angle = {(i, j): math.degrees(math.acos(max(-1.0, min(1.0, gram[i, j])))) for i in range(count) for j in range(i + 1, count)}
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


# --- frozen, copied, written, read --------------------------------------------------------------------------------------------------


def assert_same(found: og.Geometry, expected: og.Geometry) -> None:
    for part in dataclasses.fields(og.Geometry):
        left, right = getattr(found, part.name), getattr(expected, part.name)
        if isinstance(right, np.ndarray):
            assert left.dtype == right.dtype and left.tobytes() == right.tobytes() and left.shape == right.shape, part.name
            assert not left.flags.writeable, part.name
        elif part.name != "classes":
            assert left == right and type(left) is type(right), part.name
    assert found.names == expected.names
    for name in ("proportions", "counts", "kept", "dropped", "notes", "sampler_power"):
        assert np.array_equal(getattr(found.classes, name), getattr(expected.classes, name)), name
    assert found.gram.tobytes() == expected.gram.tobytes()
    assert (found.regime, found.coincident_classes) == (expected.regime, expected.coincident_classes)


def test_arrays_are_read_only(geometry: og.Geometry) -> None:
    for array in (geometry.gram, geometry.group_cosines, geometry.index, geometry.group_sizes, geometry.proportions):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        geometry.risk = 0.0  # type: ignore[misc]


@pytest.mark.parametrize("twin", [lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy, copy.copy])
def test_copies_are_the_same_and_frozen(geometry: og.Geometry, twin: Callable[[og.Geometry], og.Geometry]) -> None:
    assert_same(twin(geometry), geometry)
    assert not twin(geometry).gram.flags.writeable


def named() -> og.Geometry:
    """Dropped classes, names with commas and quotes, a sampler, and infinities."""
    counts = {'a,"b"': 50, "empty": 0, "β": 20, "c\nd": 20, "e": 5}
    classes = og.ClassDistribution.from_counts(counts, drop_empty=True).resample(0.5)
    found = og.solve(classes, LIMIT_LOSS)
    certificate = dataclasses.replace(found.certificate, gap=math.inf, lower_bound=-math.inf, backward_error=math.inf)
    return dataclasses.replace(found, certificate=certificate, notes=("a note",))


@pytest.mark.parametrize("suffix", [".npz", ".json", ".NPZ"])
def test_files_round_trip_to_the_bit(geometry: og.Geometry, suffix: str, tmp_path: Path) -> None:
    for number, one in enumerate((geometry, named())):
        path = tmp_path / f"{number}{suffix}"
        one.save(path)
        assert_same(og.Geometry.load(path), one)
        again = tmp_path / f"again{suffix}"
        og.Geometry.load(path).save(again)
        assert_same(og.Geometry.load(again), one)
    assert sorted(os.listdir(tmp_path)) == sorted(["0" + suffix, "1" + suffix, "again" + suffix])


def test_bracket_and_groups_survive(tmp_path: Path) -> None:
    limited = GEOMETRIES["limited"]()
    limited.save(tmp_path / "limited.json")
    back = og.Geometry.load(tmp_path / "limited.json")
    assert back.bracket == limited.bracket and isinstance(back.bracket, tuple)
    assert (back.required_rank, back.dim, back.certificate.backward_error) == (5, 2, math.inf)
    named().save(tmp_path / "named.npz")
    assert og.Geometry.load(tmp_path / "named.npz").classes.dropped == ("empty",)
    assert og.Geometry.load(tmp_path / "named.npz").loss["negatives"] == "inf"


def damaged(path: Path) -> dict[str, bytes]:
    """Files that are not a whole geometry, by what is wrong with them."""
    mixed().save(path / "good.npz")
    mixed().save(path / "good.json")
    npz, text = (path / "good.npz").read_bytes(), (path / "good.json").read_text()
    np.savez(path / "other.npz", a=np.ones(3))
    np.savez(path / "object.npz", document=np.array({"format": "optgeom-geometry"}, dtype=object))
    np.save(path / "array.npy", np.ones(3))
    flipped = bytearray(npz)
    flipped[npz.index(b"group_cosines.npy") + 60] ^= 0xFF  # in the compressed numbers
    cut = {f"cut at {n}.npz": npz[:n] for n in (0, 3, 10, 100, len(npz) // 2, len(npz) - 1)}
    cut |= {f"cut at {n}.json": text.encode()[:n] for n in (0, 1, 10, len(text) // 2, len(text) - 1)}
    wrong = ["[1, 2]", "null", '"text"', "3", '{"arrays": []}', '{"arrays": {}}', '{"a": 1}', "{}", '{"counts": [3, 2]}', "\x80"]
    return {
        **cut,
        **{f"wrong {number}.json": one.encode("latin-1") for number, one in enumerate(wrong)},
        "pickle.npz": pickle.dumps({"a": 1}),
        "pickle.json": pickle.dumps({"a": 1}),
        "flipped.npz": bytes(flipped),
        "other.npz": (path / "other.npz").read_bytes(),
        "object.npz": (path / "object.npz").read_bytes(),
        "array.npz": (path / "array.npy").read_bytes(),
        "format.json": text.replace('"optgeom-geometry"', '"another"').encode(),
        "group_cosines.json": json.dumps({**json.loads(text), "arrays": {}}).encode(),
    }


def test_other_files_are_refused(tmp_path: Path) -> None:
    for name, content in damaged(tmp_path).items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(og.InvalidInputError, match="is not a geometry written by optgeom"):
            og.Geometry.load(path)
            pytest.fail(f"{name} was read")


def test_other_versions_names_and_folders_are_refused(tmp_path: Path) -> None:
    mixed().save(tmp_path / "g.json")
    newer = (tmp_path / "g.json").read_text().replace('"version": 1', '"version": 2')
    (tmp_path / "newer.json").write_text(newer)
    with pytest.raises(og.InvalidInputError, match=r"newer.json has format version 2; this optgeom reads version 1 \(upgrade optgeom\)"):
        og.Geometry.load(tmp_path / "newer.json")
    with pytest.raises(og.InvalidInputError, match=r"none.npz does not exist"):
        og.Geometry.load(tmp_path / "none.npz")
    with pytest.raises(og.InvalidInputError, match=r"a geometry is read from .npz or .json; got '.*g.txt'"):
        og.Geometry.load(tmp_path / "g.txt")
    with pytest.raises(og.InvalidInputError, match=r"saved as .npz or .json; got '.*g.txt' \(prototypes alone: save_prototypes\)"):
        mixed().save(tmp_path / "g.txt")
    with pytest.raises(og.InvalidInputError, match=r"prototypes are saved as .npy, .npz, .csv, .pt, .safetensors; got '.*g.json'"):
        mixed().save_prototypes(tmp_path / "g.json")
    with pytest.raises(og.InvalidInputError, match=r"the folder .*missing does not exist"):
        mixed().save(tmp_path / "missing" / "g.npz")


@pytest.mark.parametrize("broken", ["replace", "write"])
@pytest.mark.parametrize("name", ["g.npz", "g.json", "g.npy", "g.csv"])
def test_a_failed_write_leaves_the_old_file(name: str, broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, one = tmp_path / name, mixed()
    write = one.save if name in ("g.npz", "g.json") else one.save_prototypes
    write(path)
    before = path.read_bytes()

    def full(self: Any, content: Any = None) -> None:
        if broken == "write":
            with open(self, "wb") as stream:
                stream.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "replace") if broken == "replace" else (Path, "write_bytes")), full)
    with pytest.raises(og.InvalidInputError, match=f"cannot write .*{name}: No space left on device"):
        write(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("dim", [None, 9])
def test_prototypes_read_back(dim: int | None, tmp_path: Path) -> None:
    one = named()
    table, names = one.prototypes(dim), ['a,"b"', "β", "c\nd", "e"]
    one.save_prototypes(tmp_path / "p.npy", dim)
    assert np.array_equal(np.load(tmp_path / "p.npy", allow_pickle=False), table)
    one.save_prototypes(tmp_path / "p.npz", dim)
    with np.load(tmp_path / "p.npz", allow_pickle=False) as stored:
        assert np.array_equal(stored["prototypes"], table) and stored["names"].tolist() == names
    one.save_prototypes(tmp_path / "p.csv", dim)
    with open(tmp_path / "p.csv", encoding="utf-8", newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["class", *(f"x{i}" for i in range(table.shape[1]))]
    assert [row[0] for row in rows] == names and np.array_equal([[float(x) for x in row[1:]] for row in rows], table)
    safetensors = pytest.importorskip("safetensors")
    one.save_prototypes(tmp_path / "p.safetensors", dim)
    with safetensors.safe_open(tmp_path / "p.safetensors", "numpy") as stored:
        assert np.array_equal(stored.get_tensor("prototypes"), table) and json.loads(stored.metadata()["names"]) == names
    torch = pytest.importorskip("torch")
    one.save_prototypes(tmp_path / "p.pt", dim)
    stored = torch.load(tmp_path / "p.pt", weights_only=True)
    assert np.array_equal(stored["prototypes"].numpy(), table) and stored["names"] == names


# --- alignment ----------------------------------------------------------------------------------------------------------------------


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
