"""Labels and group ids given apart from the embeddings; what `open_embeddings` refuses before any format is met."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.readers_data import labels, read, same, table

from optgeom.embeddings.readers.open import open_embeddings
from optgeom.errors import InvalidInputError


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "x.npy", table())
    return tmp_path / "x.npy"


@pytest.mark.parametrize(
    "given", [labels(), labels().astype(float), labels().tolist(), labels()[:, None], list("abcdefghijklmnopqrstuvw")]
)
def test_labels_as_arrays(path, given):
    same(open_embeddings(path, labels=given), table(), np.ravel(given))


def test_labels_of_mixed_kinds_stay_as_they_are(path):
    column = read(open_embeddings(path, labels=["a", float("nan")] + ["b"] * 21))[1]
    assert column.dtype == object and column[0] == "a" and column[1] != column[1]
    assert read(open_embeddings(path, labels=np.array(["a"] * 23, dtype=object)))[1].dtype.kind == "U"


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".txt", ".json"])
def test_labels_from_files(path, tmp_path, suffix):
    y = labels()
    file = tmp_path / f"y{suffix}"
    if suffix == ".npy":
        np.save(file, y)
    elif suffix == ".npz":
        np.savez(file, labels=y)
    else:
        file.write_text(
            {".csv": "label\n" + "\n".join(map(str, y)), ".txt": "\n".join(map(str, y)), ".json": str(y.tolist())}[
                suffix
            ]
        )
    columns = read(open_embeddings(path, labels=file, group_ids=str(file)))
    assert list(map(str, columns[1])) == list(map(str, columns[2])) == list(map(str, y))


def test_labels_of_another_length(path, tmp_path):
    with pytest.raises(
        InvalidInputError,
        match=r"x.npy: `labels` has 22 rows but the embeddings have 23: row 22 has no label \(write one",
    ):
        open_embeddings(path, labels=labels()[:-1])
    (tmp_path / "y.txt").write_text("label\n" + "\n".join(map(str, labels())))
    with pytest.raises(
        InvalidInputError,
        match=r"`labels` has 24 rows but the embeddings have 23: label 23 has no row \(is a header line",
    ):
        open_embeddings(path, labels=tmp_path / "y.txt")
    with pytest.raises(
        InvalidInputError, match=r"`group_ids` has 3 rows but the embeddings have 23: row 3 has no group"
    ):
        open_embeddings(path, group_ids=[1, 2, 3])
    np.savez(tmp_path / "x.npz", X=table(), y=labels()[1:])
    with pytest.raises(
        InvalidInputError, match=r"the labels 'y' has 22 rows but the embeddings have 23: row 22 has no label"
    ):
        open_embeddings(tmp_path / "x.npz")


def test_labels_apart_go_first(tmp_path):
    np.savez(tmp_path / "x.npz", X=table(), y=labels())
    same(open_embeddings(tmp_path / "x.npz", labels=labels() + 1), table(), labels() + 1)
    same(open_embeddings(tmp_path / "x.npz", group_ids=tmp_path / "x.npz"), table(), labels(), labels())


def test_one_hot_labels_are_kept_for_those_who_count_classes(path):
    """Case 9: `ClassNames` converts exact one-hot rows and says so."""
    column = read(open_embeddings(path, labels=np.eye(4)[labels()]))[1]
    np.testing.assert_array_equal(column, np.eye(4)[labels()])
    with pytest.raises(
        InvalidInputError, match=r"`labels` must be one value per row; got shape \(23, 1, 1\) \(pass a one-dimensional"
    ):
        open_embeddings(path, labels=labels()[:, None, None])
    with pytest.raises(InvalidInputError, match=r"`group_ids` must be one value per row; got shape \(23, 4\)"):
        open_embeddings(path, group_ids=np.eye(4)[labels()])


def test_both_are_too_many(path):
    with pytest.raises(InvalidInputError, match=r"`labels` and `label_column` must not both be given; got 'y'"):
        open_embeddings(path, labels=labels(), label_column="y")
    with pytest.raises(InvalidInputError, match=r"`group_ids` and `group_column` must not both be given; got 'g'"):
        open_embeddings(path, group_ids=labels(), group_column="g")


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(
        InvalidInputError, match=r"cannot read the embeddings file .*no.npy: it does not exist \(check the path\)"
    ):
        open_embeddings(tmp_path / "no.npy")
    with pytest.raises(
        InvalidInputError, match=r"there must be at least one file of embeddings \(.npy, .npz, .*\); got none"
    ):
        open_embeddings(str(tmp_path / "no-*.npy"))
    with pytest.raises(
        InvalidInputError, match=r"x.h5: embeddings must be in .npy, .npz, .pt, .pth, .safetensors, .*or a folder"
    ):
        open_embeddings(tmp_path / "x.h5")


@pytest.mark.parametrize("rows", [0, -1, 2.5, "7"])
def test_rows_of_a_batch(path, rows):
    with pytest.raises(InvalidInputError, match=r"`rows` must be a whole number >= 1"):
        next(open_embeddings(path).batches(rows))
