"""Several files as one source."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.readers_data import labels, read, same, table

from optgeom.embeddings.readers.file_source import natural_key
from optgeom.embeddings.readers.open import open_embeddings
from optgeom.errors import InvalidInputError

X, Y = table(36), labels(36)
PARTS = np.split(np.arange(36), [5, 6, 20, 31])
NUMBERS = (1, 2, 9, 10, 100)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def write(folder, suffix, with_labels):
    for number, part in zip(NUMBERS, PARTS, strict=True):
        path = folder / f"shard-{number}{suffix}"
        if suffix == ".npy":
            np.save(path, X[part])
        elif suffix == ".npz":
            np.savez(path, X=X[part], **({"y": Y[part]} if with_labels else {}))
        else:
            head = "x0,x1,x2,x3,x4" + ",y" * with_labels
            rows = [",".join(map(repr, map(float, X[k]))) + f",{Y[k]}" * with_labels for k in part]
            path.write_text("\n".join([head, *rows]))


def test_natural_order():
    names = ["a/shard-10.npy", "a/shard-2.npy", "a/shard-02b.npy", "b.npy", "10/x.npy", "9/x.npy"]
    assert sorted(names, key=natural_key) == [
        "9/x.npy",
        "10/x.npy",
        "a/shard-2.npy",
        "a/shard-02b.npy",
        "a/shard-10.npy",
        "b.npy",
    ]


@pytest.mark.parametrize("pattern", ["", "shard-*.npz", "shard-[0-9]*.npz"])
def test_labels_of_each_shard(folder, pattern):
    write(folder, ".npz", True)
    (folder / "README.md").write_text("not a shard")
    source = open_embeddings(str(folder / pattern))
    assert source.num_rows == 36 and source.re_readable and source.row_shape == (5,)
    for rows in (1, 7, 100):
        same(source, X, Y, batch=rows)
    same(pickle.loads(pickle.dumps(source)), X, Y)
    assert [shard.num_rows for shard in source.shards()] == [len(part) for part in PARTS]
    for shard, part in zip(source.shards(), PARTS, strict=True):
        same(pickle.loads(pickle.dumps(shard)), X[part], Y[part])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_one_column_of_labels_for_all(folder, suffix):
    if suffix == ".csv":
        pytest.importorskip("pyarrow", reason="pyarrow reads tables")
    write(folder, suffix, False)
    rows = X.astype(float) if suffix == ".csv" else X
    np.save(folder.parent / "all.npy", Y)
    np.save(folder / "also.npy", Y)
    same(open_embeddings(str(folder / "shard-*"), labels=Y), rows, Y)
    same(open_embeddings(str(folder / "shard-*"), labels=folder.parent / "all.npy", group_ids=Y), rows, Y, Y)
    same(open_embeddings(folder, labels=folder / "also.npy"), rows, Y)
    source = open_embeddings(str(folder / "shard-*"), labels=Y)
    for shard, part in zip(source.shards(), PARTS, strict=True):
        same(shard, rows[part], Y[part])
    with pytest.raises(
        InvalidInputError, match=r"`labels` has 35 rows but the embeddings have 36: row 35 has no label"
    ):
        open_embeddings(str(folder / "shard-*"), labels=Y[1:])


def test_labels_in_the_folder_by_name(folder):
    write(folder, ".npy", False)
    np.save(folder / "labels.npy", Y)
    same(open_embeddings(folder), X, Y)
    np.save(folder / "y.npy", Y)
    with pytest.raises(
        InvalidInputError, match=r"the labels must be one file; got labels.npy, y.npy \(choose by `labels`\)"
    ):
        open_embeddings(folder)


def test_a_folder_of_one_file(folder):
    np.save(folder / "embeddings.npy", X)
    np.save(folder / "targets.npy", Y)
    source = open_embeddings(folder)
    assert source.name.endswith("embeddings.npy")
    same(source, X, Y)


def test_as_many_files_of_labels(folder):
    write(folder, ".npy", False)
    for number, part in zip(NUMBERS, PARTS, strict=True):
        np.save(folder / f"labels-{number}.npy", Y[part])
    same(open_embeddings(folder, labels=str(folder / "labels-*.npy")), X, Y)
    (folder / "labels-9.npy").unlink()
    with pytest.raises(
        InvalidInputError, match=r"`labels` must be one file, or as many as the 5 of the embeddings; got 4 files of"
    ):
        open_embeddings(folder, labels=str(folder / "labels-*.npy"))
    np.save(folder / "labels-9.npy", Y[:3])
    with pytest.raises(
        InvalidInputError, match=r"shard-9.npy: `labels` has 3 rows but the embeddings have 14: row 3 has no label"
    ):
        open_embeddings(folder, labels=str(folder / "labels-*.npy"))


def test_shards_must_agree(folder):
    write(folder, ".npy", False)
    np.save(folder / "shard-11.npy", np.zeros((3, 4)))
    with pytest.raises(
        InvalidInputError, match=r"rows of the same shape; got \(5,\) in .*shard-1.npy and \(4,\) in .*shard-11.npy"
    ):
        open_embeddings(folder)
    np.save(folder / "shard-11.npy", np.zeros((3, 2, 5)))
    with pytest.raises(InvalidInputError, match=r"got \(5,\) in .*shard-1.npy and \(2, 5\) in .*shard-11.npy"):
        open_embeddings(folder)
    np.savez(folder / "shard-11.npz", X=np.zeros((3, 5)))
    with pytest.raises(
        InvalidInputError, match=r"all shards must be of one kind; got .*shard-1.npy and .*shard-11.npz \(choose"
    ):
        open_embeddings(folder)


def test_an_empty_folder(folder):
    with pytest.raises(
        InvalidInputError, match=r"there must be at least one file of embeddings \(.npy, .*\); got none"
    ):
        open_embeddings(folder)


def test_a_fault_in_a_shard_is_met(folder):
    write(folder, ".npz", True)
    content = (folder / "shard-10.npz").read_bytes()
    changed = bytearray(content)
    changed[content.index(X[PARTS[3]].tobytes()[:20])] ^= 255
    (folder / "shard-10.npz").write_bytes(changed)
    with pytest.raises(InvalidInputError, match=r"shard-10.npz: the archive is damaged"):
        read(open_embeddings(folder))
