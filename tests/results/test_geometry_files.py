"""Copies and files of a geometry: the same to the bit, and damaged or foreign files refused."""

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
from helpers.geometries import GEOMETRIES, LIMIT_LOSS, assert_same, mixed

import optgeom as og


@pytest.fixture(scope="module", params=sorted(GEOMETRIES))
def geometry(request: pytest.FixtureRequest) -> og.Geometry:
    return GEOMETRIES[request.param]()


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
    """Dropped classes, names with commas and quotes, a sampler, and an infinite number of negatives."""
    counts = {'a,"b"': 50, "empty": 0, "β": 20, "c\nd": 20, "e": 5}
    classes = og.ClassDistribution.from_counts(counts, drop_empty=True).resample(0.5)
    return dataclasses.replace(og.solve(classes, LIMIT_LOSS), notes=("a note",))


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
    assert og.Geometry.load(tmp_path / "named.npz").loss.negatives == math.inf


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
    wrong = [
        "[1, 2]",
        "null",
        '"text"',
        "3",
        '{"arrays": []}',
        '{"arrays": {}}',
        '{"a": 1}',
        "{}",
        '{"counts": [3, 2]}',
        "\x80",
    ]
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
    with pytest.raises(
        og.InvalidInputError, match=r"newer.json has format version 2; this optgeom reads version 1 \(upgrade optgeom\)"
    ):
        og.Geometry.load(tmp_path / "newer.json")
    with pytest.raises(og.InvalidInputError, match=r"none.npz does not exist"):
        og.Geometry.load(tmp_path / "none.npz")
    with pytest.raises(og.InvalidInputError, match=r"a geometry is read from .npz or .json; got '.*g.txt'"):
        og.Geometry.load(tmp_path / "g.txt")
    with pytest.raises(
        og.InvalidInputError, match=r"saved as .npz or .json; got '.*g.txt' \(prototypes alone: save_prototypes\)"
    ):
        mixed().save(tmp_path / "g.txt")
    with pytest.raises(
        og.InvalidInputError, match=r"prototypes are saved as .npy, .npz, .csv, .pt, .safetensors; got '.*g.json'"
    ):
        mixed().save_prototypes(tmp_path / "g.json")
    with pytest.raises(og.InvalidInputError, match=r"the folder .*missing does not exist"):
        mixed().save(tmp_path / "missing" / "g.npz")


@pytest.mark.parametrize("broken", ["replace", "write"])
@pytest.mark.parametrize("name", ["g.npz", "g.json", "g.npy", "g.csv"])
def test_a_failed_write_leaves_the_old_file(
    name: str, broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert (
            np.array_equal(stored.get_tensor("prototypes"), table) and json.loads(stored.metadata()["names"]) == names
        )
    torch = pytest.importorskip("torch")
    one.save_prototypes(tmp_path / "p.pt", dim)
    stored = torch.load(tmp_path / "p.pt", weights_only=True)
    assert np.array_equal(stored["prototypes"].numpy(), table) and stored["names"] == names
