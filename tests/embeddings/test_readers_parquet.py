"""Reading .parquet files of embeddings."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from helpers.readers_data import labels, same, table

from optgeom.embeddings.readers.open import open_embeddings
from optgeom.errors import InvalidInputError

pa = pytest.importorskip("pyarrow", reason="pyarrow reads and writes Parquet")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow reads and writes Parquet")
KINDS = {np.float16: pa.float16(), np.float32: pa.float32(), np.float64: pa.float64()}


def lists(x, form="list"):
    flat = pa.array(np.ascontiguousarray(x).ravel())
    if form == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, x.shape[1])
    offsets = np.arange(len(x) + 1) * x.shape[1]
    if form == "large":
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), flat)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def write(path, row_group_size=10, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


@pytest.mark.parametrize("form", ["list", "fixed", "large"])
@pytest.mark.parametrize("dtype", list(KINDS))
def test_a_column_of_lists(tmp_path, form, dtype):
    x = table(dtype=dtype)
    source = open_embeddings(
        write(tmp_path / "x.parquet", name=pa.array(["n"] * 23), z=lists(x, form), label=pa.array(labels()))
    )
    assert source.num_rows == 23 and source.row_shape == (5,) and source.re_readable
    for rows in (1, 7, 23, 100):
        same(source, x, labels(), batch=rows)
        assert [len(batch.rows) for batch in source.batches(rows)][:-1] == [rows] * ((23 - 1) // rows)
    same(pickle.loads(pickle.dumps(source)), x, labels())


@pytest.mark.parametrize("dtype", list(KINDS))
def test_numbered_columns(tmp_path, dtype):
    x = table(d=12, dtype=dtype)
    columns = {f"embedding_{number}": pa.array(x[:, number]) for number in reversed(range(12))}
    source = open_embeddings(
        write(tmp_path / "x.parquet", **columns, id=pa.array(labels()), y=pa.array(labels() + 1)), group_column="id"
    )
    same(source, x, labels() + 1, labels())


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array(labels().astype(str)), labels().astype(str)),
        (pa.array(labels().astype(str), pa.large_string()), labels().astype(str)),
        (pa.array(labels().astype(str)).dictionary_encode(), labels().astype(str)),
        (pa.array(labels()).dictionary_encode(), labels()),
        (pa.array(labels() > 1), labels() > 1),
        (pa.array(labels().astype(float)), labels().astype(float)),
        (pa.array(labels().astype(np.int8)), labels()),
    ],
)
def test_labels_of_all_kinds(tmp_path, column, wanted):
    same(open_embeddings(write(tmp_path / "x.parquet", z=lists(table()), target=column)), table(), wanted)


def test_null_numbers_are_nan(tmp_path):
    path = write(tmp_path / "x.parquet", x0=pa.array([1.0, None]), x1=pa.array([3.0, 4.0]))
    same(open_embeddings(path), np.array([[1, 3], [np.nan, 4]]))
    same(
        open_embeddings(write(tmp_path / "x.parquet", x=pa.array([[1.0, 3.0], [None, 4.0]]))),
        np.array([[1, 3], [np.nan, 4]]),
    )


def test_integers_and_mixed_widths(tmp_path):
    same(
        open_embeddings(write(tmp_path / "x.parquet", x=pa.array([[1, 2], [3, 4]], pa.list_(pa.uint8())))),
        np.float32([[1, 2], [3, 4]]),
    )
    path = write(tmp_path / "x.parquet", x0=pa.array([1.5], pa.float32()), x1=pa.array([2.5], pa.float64()))
    same(open_embeddings(path), np.array([[1.5, 2.5]]))


def test_vectors_of_different_lengths(tmp_path):
    vectors = [[1.0, 2.0]] * 12 + [[1.0]] + [[3.0, 4.0]] * 4 + [None, [1.0, 2.0, 3.0]]
    source = open_embeddings(write(tmp_path / "x.parquet", z=pa.array(vectors)))
    message = (
        r"all vectors of 'z' must have the same length; got 2 numbers in row 0 and 1 numbers in row 12 "
        r"\(this and 2 other rows differ from row 0: drop or recompute them\)"
    )
    with pytest.raises(InvalidInputError, match=message):
        list(source.batches(5))
    source = open_embeddings(write(tmp_path / "x.parquet", z=pa.array([[1.0, 2.0], None])))
    with pytest.raises(InvalidInputError, match=r"and no vector in row 1 \(this and 0 other rows"):
        list(source.batches(5))
    with pytest.raises(InvalidInputError, match=r"each row must have a vector in 'z'; row 0 has none"):
        open_embeddings(write(tmp_path / "x.parquet", z=pa.array([None, [1.0, 2.0]])))


def test_missing_labels(tmp_path):
    y = [*map(str, labels()[:17]), None, *map(str, labels()[18:])]
    for column in (pa.array(y), pa.array(y).dictionary_encode()):
        source = open_embeddings(write(tmp_path / "x.parquet", z=lists(table()), y=column))
        with pytest.raises(
            InvalidInputError, match=r"each row must have a label; row 17 has none \(drop the row, or give it one\)"
        ):
            list(source.batches(5))
    ragged = pa.array([[1], *([[1, 0]] * 22)])
    for column in (ragged, pa.array([{"a": 1}] * 23)):
        source = open_embeddings(write(tmp_path / "x.parquet", z=lists(table()), y=column), vector_column="z")
        with pytest.raises(InvalidInputError, match=r"each label must be a number or text; got the type (list|struct)"):
            list(source.batches(5))


def test_columns_that_cannot_be_told(tmp_path):
    path = write(tmp_path / "x.parquet", image=lists(table()), text=lists(table() + 1), y=pa.array(labels()))
    with pytest.raises(
        InvalidInputError,
        match=r"got several that could be: image, text \(choose by `vector_column`: 'image' or 'text'\)",
    ):
        open_embeddings(path)
    same(open_embeddings(path, vector_column="text"), table() + 1, labels())
    with pytest.raises(
        InvalidInputError, match=r"must be a column of vectors, or numbered columns .*; got the columns a0, b0 \(rename"
    ):
        open_embeddings(write(tmp_path / "y.parquet", a0=pa.array(["u"]), b0=pa.array([1])))
    with pytest.raises(
        InvalidInputError, match=r"`label_column` must be a column of the file; got 'k' among image, text, y"
    ):
        open_embeddings(path, vector_column="text", label_column="k")
    empty = write(tmp_path / "y.parquet", z=pa.array([], pa.list_(pa.float32())))
    with pytest.raises(InvalidInputError, match=r"must have at least one row; got none"):
        open_embeddings(empty)


def test_damaged_parquet(tmp_path):
    content = write(tmp_path / "x.parquet", z=lists(table()), y=pa.array(labels())).read_bytes()
    for wrong in (b"", b"junk" * 10, content[:-70]):
        (tmp_path / "x.parquet").write_bytes(wrong)
        with pytest.raises(
            InvalidInputError,
            match=r"it must be a Parquet file; it is another kind of file, or cut off \(copy or save it again\)",
        ):
            open_embeddings(tmp_path / "x.parquet")
    (tmp_path / "x.parquet").write_bytes(content[:40] + bytes(400) + content[440:])
    with pytest.raises(InvalidInputError, match=r"x.parquet"):
        list(open_embeddings(tmp_path / "x.parquet").batches(5))


def test_a_large_row_group_is_read_by_pages(tmp_path):
    x = np.random.default_rng(0).normal(size=(2**14, 128)).astype(np.float32)
    path = write(tmp_path / "x.parquet", row_group_size=2**14, z=lists(x, "fixed"))
    source = open_embeddings(path)
    pool = pa.default_memory_pool()
    tracemalloc.start()
    try:
        peak = max(pool.bytes_allocated() for batch in source.batches(256) if len(batch.rows))
        peak += tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes / 2, "8 MiB in one row group, batches of 128 kiB"
