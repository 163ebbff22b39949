"""Reading .npy and .npz files of embeddings."""

from __future__ import annotations

import io
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
from helpers.readers_data import labels, read, same, table

from optgeom.embeddings.readers.open import open_embeddings
from optgeom.errors import InvalidInputError


@pytest.mark.parametrize("rows", [1, 7, 23, 100])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_npy_gives_what_was_saved(tmp_path, rows, dtype):
    x, y = table(dtype=dtype), labels()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    source = open_embeddings(tmp_path / "x.npy", labels=tmp_path / "y.npy")
    assert source.num_rows == 23 and source.re_readable and source.row_shape == (5,)
    for _ in range(2):
        same(source, x, y, batch=rows)
    same(pickle.loads(pickle.dumps(source)), x, y)
    sizes = [len(batch.rows) for batch in source.batches(rows)]
    assert sizes[:-1] == [rows] * (len(sizes) - 1)


def test_npy_batches_are_views_of_the_file(tmp_path):
    np.save(tmp_path / "x.npy", table())
    for batch in open_embeddings(tmp_path / "x.npy").batches(7):
        assert isinstance(batch.rows, np.memmap) and batch.rows.base is not None
        assert batch.labels is None


def test_npy_views_of_images(tmp_path):
    x = table(24).reshape(6, 4, 5)
    np.save(tmp_path / "x.npy", x)
    source = open_embeddings(tmp_path / "x.npy", labels=labels(6), group_ids=np.arange(6))
    assert source.num_rows == 6 and source.row_shape == (4, 5)
    same(source, x, labels(6), np.arange(6), batch=4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.bool_, np.int32, np.int64, np.longdouble, ">f4", ">f8"])
def test_other_numbers_become_floats(tmp_path, dtype):
    x = np.arange(12).reshape(4, 3).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    rows, _, _ = read(open_embeddings(tmp_path / "x.npy"))
    assert rows.dtype in (np.float32, np.float64) and rows.dtype.isnative
    assert rows.tolist() == x.astype(float).tolist()


def test_fortran_order(tmp_path):
    x = np.asfortranarray(table())
    np.save(tmp_path / "x.npy", x)
    same(open_embeddings(tmp_path / "x.npy"), x)
    np.savez(tmp_path / "x.npz", X=x, y=labels())
    same(open_embeddings(tmp_path / "x.npz"), x, labels())


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "names", [("X", "y"), ("embeddings", "labels"), ("features", "targets"), ("data", "targets"), ("other", "label")]
)
def test_npz_by_name(tmp_path, save, names):
    x, y = table(), labels().astype(str)
    save(tmp_path / "x.npz", **{names[0]: x, names[1]: y, "names": np.array(["a", "b"])})
    source = open_embeddings(tmp_path / "x.npz")
    assert source.num_rows == 23
    for rows in (1, 7, 23, 100):
        same(source, x, y, batch=rows)
    same(pickle.loads(pickle.dumps(source)), x, y)


def test_npz_names_given(tmp_path):
    x, y = table(), labels()
    np.savez(tmp_path / "x.npz", X_train=x, y_train=y, X_test=x[:3], y_test=y[:3], image=y + 1)
    with pytest.raises(
        InvalidInputError,
        match=r"got several that could be: X_train \(23, 5\), X_test \(3, 5\) \(choose by `vector_column`",
    ):
        open_embeddings(tmp_path / "x.npz")
    same(open_embeddings(tmp_path / "x.npz", vector_column="X_test", label_column="y_test"), x[:3], y[:3])
    same(
        open_embeddings(tmp_path / "x.npz", vector_column="X_train", label_column="y_train", group_column="image"),
        x,
        y,
        y + 1,
    )
    with pytest.raises(
        InvalidInputError,
        match=r"`label_column` must be an array of the file; got 'z' among X_train \(23, 5\), y_train",
    ):
        open_embeddings(tmp_path / "x.npz", vector_column="X_train", label_column="z")


def test_npz_with_one_array_and_labels_apart(tmp_path):
    np.savez(tmp_path / "x.npz", table())
    (tmp_path / "y.txt").write_text("\n".join(map(str, labels())))
    same(open_embeddings(tmp_path / "x.npz", labels=tmp_path / "y.txt"), table(), labels().astype(str))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_is_not_loaded_whole(tmp_path, save):
    save(tmp_path / "x.npz", X=np.zeros((2**16, 256), np.float32), y=np.zeros(2**16, np.int8))
    source = open_embeddings(tmp_path / "x.npz")
    tracemalloc.start()
    try:
        assert sum(len(batch.rows) for batch in source.batches(512)) == 2**16
        assert tracemalloc.get_traced_memory()[1] < 2**22, "an array of 64 MiB in batches of 512 kiB"
    finally:
        tracemalloc.stop()


BAD = [
    (
        np.zeros(3),
        r"x.npy: the embeddings must have shape \(rows, dimensions\) or \(images, views, dimensions\); got shape "
        r"\(3,\)",
    ),
    (np.zeros((2, 3, 1, 1)), r"got shape \(2, 3, 1, 1\) \(flatten each row: X.reshape\(len\(X\), -1\)\)"),
    (np.zeros((2, 3), complex), r"must be real numbers; got complex128 \(give the real and imaginary parts"),
    (np.array([["a", "b"]]), r"must be numbers; got values of type <U1 \(save X.astype\('float32'\) instead\)"),
    (np.zeros((0, 3)), r"must have at least one row; got shape \(0, 3\) \(check that the right file was saved\)"),
    (np.zeros((3, 0)), r"must have at least one dimension; got shape \(3, 0\)"),
    (np.zeros((3, 0, 2)), r"must have at least one view and dimension; got shape \(3, 0, 2\)"),
    (
        np.array([[1, None]], dtype=object),
        r"must be numbers; got Python objects, which need pickle and are never unpickled",
    ),
]


@pytest.mark.parametrize(("array", "message"), BAD)
def test_arrays_that_are_no_embeddings(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(InvalidInputError, match=message) as error:
        open_embeddings(tmp_path / "x.npy")
    assert "\n" not in str(error.value)
    np.savez(tmp_path / "x.npz", X=array)
    with pytest.raises(InvalidInputError, match=message.replace("x.npy: the embeddings", "x.npz: the array 'X'")):
        open_embeddings(tmp_path / "x.npz")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_nothing_is_unpickled(tmp_path):
    objects = np.array([Bomb(), Bomb()], dtype=object)
    np.save(tmp_path / "x.npy", objects, allow_pickle=True)
    with pytest.raises(InvalidInputError, match="never unpickled"):
        open_embeddings(tmp_path / "x.npy")
    np.savez(tmp_path / "y.npz", X=table(2), y=objects)
    with pytest.raises(
        InvalidInputError, match=r"y.npz: the labels 'y' must be numbers or text; got Python objects.*never unpickled"
    ):
        open_embeddings(tmp_path / "y.npz")
    np.savez(tmp_path / "z.npz", X=table(2), other=objects)
    same(open_embeddings(tmp_path / "z.npz"), table(2))


def test_cut_off_npy(tmp_path):
    np.save(tmp_path / "x.npy", table())
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-70])
    with pytest.raises(
        InvalidInputError, match=r"cut off: its header promises 23 rows, 19 are there \(copy or save it again\)"
    ):
        open_embeddings(tmp_path / "x.npy")
    for short in (b"", content[:4], content[:30], b"junk" * 40):
        (tmp_path / "x.npy").write_bytes(short)
        with pytest.raises(InvalidInputError, match=r"x.npy: it must be a file written by numpy.save"):
            open_embeddings(tmp_path / "x.npy")


def test_damaged_npz(tmp_path):
    np.savez(tmp_path / "x.npz", X=table(), y=labels())
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(content[:-70])
    with pytest.raises(
        InvalidInputError, match=r"must be a file written by numpy.savez; it is none, or cut off \(save it again\)"
    ):
        open_embeddings(tmp_path / "cut.npz")
    flipped = bytearray(content)
    flipped[content.index(table().tobytes()[:40]) + 3] ^= 255
    (tmp_path / "flip.npz").write_bytes(flipped)
    with pytest.raises(InvalidInputError, match=r"flip.npz: the archive is damaged: Bad CRC-32"):
        read(open_embeddings(tmp_path / "flip.npz"))
    member = io.BytesIO()
    np.save(member, table())
    with zipfile.ZipFile(tmp_path / "short.npz", "w") as archive:
        archive.writestr("X.npy", member.getvalue()[:-70])
    with pytest.raises(InvalidInputError, match=r"the array 'X' is cut off: its header promises 23 rows, 19 are there"):
        read(open_embeddings(tmp_path / "short.npz"))
    with zipfile.ZipFile(tmp_path / "none.npz", "w") as archive:
        archive.writestr("X.npy", b"junk")
    with pytest.raises(InvalidInputError, match=r"none.npz: the archive is damaged"):
        open_embeddings(tmp_path / "none.npz")


def test_npz_without_a_table(tmp_path):
    np.savez(tmp_path / "x.npz", mean=np.zeros(3), y=labels(3))
    with pytest.raises(
        InvalidInputError, match=r"must be an array of shape .*; got mean \(3,\), y \(3,\) \(save one as `X`\)"
    ):
        open_embeddings(tmp_path / "x.npz")


def test_npy_has_no_columns(tmp_path):
    np.save(tmp_path / "x.npy", table())
    with pytest.raises(InvalidInputError, match=r"an .npy file has no columns to choose from; got 'y' \(give `labels`"):
        open_embeddings(tmp_path / "x.npy", label_column="y")


def test_pipes_and_devices_are_refused_at_once(tmp_path):
    """A pipe without a writer would be waited for, and a device without an end read, without end."""
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.npy", "zero.csv"):
        with pytest.raises(InvalidInputError, match="it is a pipe or a device; save the data to a file first"):
            open_embeddings(tmp_path / name)
