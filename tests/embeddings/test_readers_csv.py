"""Reading .csv and .tsv files of embeddings."""

from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import pytest
from helpers.readers_data import labels, read, same, table

from optgeom.embeddings.readers.open import open_embeddings
from optgeom.errors import InvalidInputError, MissingDependencyError

pytest.importorskip("pyarrow", reason="pyarrow reads tables")
X, Y = table(dtype=np.float64), labels().astype(str)
WIDE = [f"embedding_{column}" for column in range(5)]


def write(path, header, rows, delimiter=","):
    lines = [delimiter.join(map(str, cells)) for cells in ([header] if header else []) + rows]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_numbered_columns(tmp_path, suffix):
    path = write(
        tmp_path / f"x{suffix}",
        [*WIDE, "labels"],
        [[*row, label] for row, label in zip(X.tolist(), Y, strict=True)],
        ",\t"[suffix == ".tsv"],
    )
    source = open_embeddings(path)
    assert source.num_rows is None and source.row_shape == (5,) and source.re_readable
    for rows in (1, 7, 23, 100):
        same(source, X, Y, batch=rows)
        assert [len(batch.rows) for batch in source.batches(rows)][:-1] == [rows] * ((23 - 1) // rows)
    same(pickle.loads(pickle.dumps(source)), X, Y)


def test_columns_are_taken_by_number(tmp_path):
    order = [10, 2, 0, 7, 1, 11, 9, 3, 8, 4, 6, 5]
    x = table(d=12, dtype=np.float64)
    header = ["path", *(f"x{number}" for number in order), "fine", "image"]
    rows = [["a.jpg", *row[order].tolist(), label, k // 2] for k, (row, label) in enumerate(zip(x, Y, strict=True))]
    source = open_embeddings(write(tmp_path / "x.csv", header, rows), label_column="fine", group_column="image")
    same(source, x, Y, [str(k // 2) for k in range(23)])


@pytest.mark.parametrize(
    "names", [["d1", "d2", "d3", "d4", "d5"], ["f_000", "f_001", "f_002", "f_003", "f_004"], list("01234")]
)
def test_other_numbered_columns(tmp_path, names):
    same(open_embeddings(write(tmp_path / "x.csv", names, X.tolist())), X)
    rows = [[number, *row] for number, row in enumerate(X.tolist())]
    same(open_embeddings(write(tmp_path / "x.csv", ["", *names], rows)), X)


@pytest.mark.parametrize(
    "written",
    [
        lambda row: json.dumps(row.tolist()),
        lambda row: str(tuple(row.tolist())),
        lambda row: np.array2string(row, floatmode="unique"),
        lambda row: np.array2string(row, floatmode="unique", max_line_width=30),
        lambda row: "  [ " + " ,  ".join(map(repr, row.tolist())) + " ] ",
        lambda row: " ".join(map(repr, row.tolist())),
    ],
)
def test_vectors_as_text(tmp_path, written):
    path = write(
        tmp_path / "x.csv",
        ["name", "vector", "label"],
        [["n", f'"{written(row)}"', label] for row, label in zip(X, Y, strict=True)],
    )
    source = open_embeddings(path)
    assert source.row_shape == (5,)
    for rows in (1, 7, 100):
        same(source, X, Y, batch=rows)


def test_numbers_as_numpy_writes_them(tmp_path):
    path = write(tmp_path / "x.csv", ["vector"], [['"[ 1. -2. +3.5 1e-3 nan]"'], ['"[0, .5, inf, -1E3, 2]"']])
    same(open_embeddings(path), np.array([[1, -2, 3.5, 1e-3, np.nan], [0, 0.5, np.inf, -1e3, 2]]))


def test_values_that_are_not_finite_are_for_others_to_judge(tmp_path):
    path = write(tmp_path / "x.csv", ["x0", "x1"], [["nan", 1], ["inf", " -inf "]])
    same(open_embeddings(path), np.array([[np.nan, 1], [np.inf, -np.inf]]))


def test_no_header_line(tmp_path):
    path = write(tmp_path / "x.csv", None, X.tolist())
    same(open_embeddings(path, labels=Y), X, Y)
    with pytest.raises(
        InvalidInputError,
        match=r"line 1 must be a header with the names of the columns; got 5 numbers \(name them embed",
    ):
        open_embeddings(path)


def test_mark_and_empty_lines_at_the_start(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xef\xbb\xbfx0,x1,y\r\n1,2,a\r\n\r\n3,4,b\r\n")
    same(open_embeddings(tmp_path / "x.csv"), np.array([[1.0, 2], [3, 4]]), ["a", "b"])
    (tmp_path / "x.csv").write_bytes(b"\n\nx0,x1,y\n1,2,a\n3,4,b")
    same(open_embeddings(tmp_path / "x.csv"), np.array([[1.0, 2], [3, 4]]), ["a", "b"])


def test_labels_may_have_commas_and_line_ends(tmp_path):
    (tmp_path / "x.csv").write_text('x0,x1,y\n1,2,"a,\nb"\n3,4,c\n')
    same(open_embeddings(tmp_path / "x.csv"), np.array([[1.0, 2], [3, 4]]), ["a,\nb", "c"])


def test_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("optgeom.embeddings.readers.csv_table._BLOCK", 2**12)
    x, y = table(997, dtype=np.float64), labels(997)
    same(
        open_embeddings(write(tmp_path / "x.csv", [*WIDE, "y"], [[*r, k] for r, k in zip(x.tolist(), y, strict=True)])),
        x,
        y.astype(str),
    )
    path = write(
        tmp_path / "x.csv",
        [*WIDE, "y"],
        [[*row, 0] for row in x.tolist()] + [[1, 2, "?", 4, 5, 0], [1, 2, 3], [1, 2, 3, 4, "", 0]],
    )
    with pytest.raises(
        InvalidInputError, match=r"line 999 must have a number in column 'embedding_2'; got '\?' \(so are 2 other lines"
    ):
        read(open_embeddings(path), 10)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,,a", r"line 4 must have a number in column 'x1'; got an empty cell \(correct or drop the line\)"),
        ("1,1_0,a", r"line 4 must have a number in column 'x1'; got '1_0'"),
        ("0x1,1,a", r"line 4 must have a number in column 'x0'; got '0x1'"),
        ("1,2", r"line 4 must have 3 cells; got 2"),
        ("1,2,a,b", r"line 4 must have 3 cells; got 4"),
        ("1,__import__('os'),a", r"line 4 must have a number in column 'x1'; got \"__import__"),
    ],
)
def test_bad_lines(tmp_path, line, message):
    (tmp_path / "x.csv").write_text(f"x0,x1,y\n1,2,a\n3,4,b\n{line}\n5,6,c\n")
    with pytest.raises(InvalidInputError, match=message) as error:
        read(open_embeddings(tmp_path / "x.csv"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "[1 2]",
            r"line 3 must have a vector of 3 numbers in column 'v', as the first row; got 2 numbers \(so are 1 "
            r"other lines",
        ),
        ("", r"line 3 must have a vector in column 'v'; got an empty cell"),
        ("[1,,3]", r"line 3 must have a vector in column 'v'; got '\[1,,3\]'"),
        ("[1 2 3", r"line 3 must have a vector"),
        (
            "[1 ... 3]",
            r"line 3 must have a vector in column 'v'; got '\[1 ... 3\]' \(numpy shortened it, so that its numbers "
            r"are lost\)",
        ),
        ("[1, 2, exit()]", r"line 3 must have a vector"),
        ("array([1, 2, 3])", r"line 3 must have a vector"),
    ],
)
def test_bad_vectors(tmp_path, cell, message):
    (tmp_path / "x.csv").write_text(f'v,y\n"[1, 2, 3]",a\n"{cell}",b\n"[4, 5]",c\n')
    with pytest.raises(InvalidInputError, match=message):
        read(open_embeddings(tmp_path / "x.csv"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"must have at least one row; got none"),
        ("x0,x1,y\n", r"must have at least one row; got none"),
        (
            "a,b\n1,2\n",
            r"must be a column of vectors, or numbered columns such as embedding_0, embedding_1; got the columns a, b",
        ),
        (
            "x0,x1,z0,z1\n1,2,3,4\n",
            r"got several that could be: x0.. \(2 columns\), z0.. \(2 columns\).*: 'x' or 'z'\)",
        ),
        ("u,v\n[1 2],[3 4]\n", r"got several that could be: u, v \(choose by `vector_column`: 'u' or 'v'\)"),
        ("x0,x1,x3\n1,2,3\n", r"columns x0 to x3 must begin with 0 or 1 and have no gap; got no x2 \(add it\)"),
        ("x5,x6\n1,2\n", r"must begin with 0 or 1 and have no gap; got no x1"),
        ("x0,x1,x01\n1,2,3\n", r"each dimension must be one column; got x1 and x01 \(drop one\)"),
        ("x0,x0\n1,2\n", r"column names must be all different; got 'x0' twice"),
    ],
)
def test_columns_that_cannot_be_told(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InvalidInputError, match=message):
        open_embeddings(tmp_path / "x.csv")


def test_columns_chosen(tmp_path):
    (tmp_path / "x.csv").write_text("x0,x1,z0,z1,v,k\n1,2,3,4,[5 6 7],a\n")
    path = tmp_path / "x.csv"
    same(open_embeddings(path, vector_column="x"), np.array([[1.0, 2]]))
    same(open_embeddings(path, vector_column="z", label_column="k"), np.array([[3.0, 4]]), ["a"])
    same(open_embeddings(path, vector_column="v"), np.array([[5.0, 6, 7]]))
    with pytest.raises(
        InvalidInputError, match=r"`vector_column` must be a column of vectors, or the part before .*; got 'w' among x0"
    ):
        open_embeddings(path, vector_column="w")
    with pytest.raises(
        InvalidInputError, match=r"`group_column` must be a column of the file; got 'w' among x0, x1, z0, z1, v, k"
    ):
        open_embeddings(path, vector_column="v", group_column="w")


def test_text_that_is_none(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match=r"it is not UTF-8 text \(save it as text\)"):
        open_embeddings(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_bytes(b"x0,x1,y\n" + b"1,2,a\n" * 9999 + b"1,2,\xff\n")
    with pytest.raises(
        InvalidInputError, match=r"x.csv: the file cannot be read as a table: it is not UTF-8 text \(save it again\)"
    ):
        read(open_embeddings(tmp_path / "x.csv"))


def test_labels_of_another_length_are_met_while_reading(tmp_path):
    path = write(tmp_path / "x.csv", WIDE, X.tolist())
    with pytest.raises(
        InvalidInputError, match=r"`labels` has 20 rows but the embeddings have 23: row 20 has no label"
    ):
        read(open_embeddings(path, labels=Y[:20]), 3)
    with pytest.raises(
        InvalidInputError, match=r"`labels` has 24 rows but the embeddings have 23: label 23 has no row"
    ):
        read(open_embeddings(path, labels=[*Y, "a"]), 3)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_without_pyarrow(tmp_path, monkeypatch, suffix):
    (tmp_path / f"x{suffix}").write_text("x0,x1\n1,2\n")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"needs pyarrow: pip install 'optgeom\[io\]' \(or save"):
        open_embeddings(tmp_path / f"x{suffix}")
