"""Reading the files of the embedding projector."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.readers_data import labels, same, table

from optgeom.embeddings.readers.open import open_embeddings
from optgeom.errors import InvalidInputError

pytest.importorskip("pyarrow", reason="pyarrow reads tables")
X, Y = table(20, dtype=np.float64), labels(20).astype(str)


@pytest.fixture
def folder(tmp_path):
    np.savetxt(tmp_path / "vectors.tsv", X, fmt="%.17g", delimiter="\t")
    return tmp_path


def metadata(folder, lines):
    (folder / "metadata.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_a_single_column_has_no_header_line(folder):
    metadata(folder, Y)
    for path in (folder / "vectors.tsv", folder):
        source = open_embeddings(path)
        assert source.num_rows == 20 and source.row_shape == (5,)
        same(source, X, Y)
        same(pickle.loads(pickle.dumps(source)), X, Y)


def test_several_columns_have_a_header_line(folder):
    metadata(folder, ["file\tlabel\timage", *(f"{k}.jpg\t{label}\t{k // 2}" for k, label in enumerate(Y))])
    same(open_embeddings(folder), X, Y)
    same(
        open_embeddings(folder, label_column="file", group_column="image"),
        X,
        [f"{k}.jpg" for k in range(20)],
        [str(k // 2) for k in range(20)],
    )
    with pytest.raises(
        InvalidInputError, match=r"metadata.tsv: `label_column` must be a column of the file; got 'k' among file, label"
    ):
        open_embeddings(folder, label_column="k")


def test_names_of_tensorboard_and_line_ends_of_windows(folder):
    (folder / "vectors.tsv").rename(folder / "tensors.tsv")
    (folder / "metadata.tsv").write_bytes("\r\n".join(Y).encode() + b"\r\n")
    same(open_embeddings(folder), X, Y)


def test_labels_apart_and_no_metadata(folder):
    same(open_embeddings(folder), X)
    same(open_embeddings(folder, labels=labels(20)), X, labels(20))
    metadata(folder, ["a"])
    same(open_embeddings(folder, labels=labels(20)), X, labels(20))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["label", *Y],
            r"one line per vector and no header line; got 21 lines for the 20 vectors of .*vectors.tsv \(.*remove it",
        ),
        (
            Y[:-1],
            r"one line per vector and no header line; got 19 lines for the 20 vectors of .* \(export both files again",
        ),
        (
            [f"{y}\t1" for y in Y],
            r"must have a header line and one line per vector, since it has several columns; got 20 lines for the",
        ),
        (
            ["file\tlabel", *(f"{y}\t1" for y in Y[:-1]), "a"],
            r"metadata.tsv: line 21 must have 2 cells; got 1 \(no tabs within a cell\)",
        ),
        (
            ["file\tkind", *(f"{y}\t1" for y in Y)],
            r"must be a column named label, .*; got file, kind \(choose by `label_column`\)",
        ),
    ],
)
def test_metadata_that_does_not_fit(folder, lines, message):
    with pytest.raises(InvalidInputError, match=message):
        open_embeddings(metadata(folder, lines))


def test_a_bad_vector(folder):
    text = (folder / "vectors.tsv").read_text().splitlines()
    (folder / "vectors.tsv").write_text("\n".join([*text[:3], "1\t2\tx\t4\t5", *text[4:]]))
    with pytest.raises(InvalidInputError, match=r"vectors.tsv: line 4 must have a number in column '2'; got 'x'"):
        list(open_embeddings(folder).batches(5))
