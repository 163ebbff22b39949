"""Arrays, tensors and iterators as sources."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from helpers.readers_data import labels, read, same, table

from optgeom.embeddings.readers.in_memory import ArraySource, IteratorSource, as_source
from optgeom.errors import InvalidInputError

X, Y = table(), labels()


def pairs(size=5):
    return [(X[start : start + size], Y[start : start + size]) for start in range(0, 23, size)]


def test_arrays():
    source = as_source(X, Y, Y + 1)
    assert isinstance(source, ArraySource) and source.num_rows == 23 and source.re_readable and source.row_shape == (5,)
    for rows in (1, 7, 23, 100):
        same(source, X, Y, Y + 1, batch=rows)
    assert all(np.shares_memory(batch.rows, X) for batch in source.batches(7))
    same(pickle.loads(pickle.dumps(source)), X, Y, Y + 1)
    same(as_source(X), X)
    same(as_source(X[:20].reshape(5, 4, 5), Y[:5]), X[:20].reshape(5, 4, 5), Y[:5])
    same(as_source(X.astype(np.float64).tolist(), Y.tolist()), X.astype(np.float64), Y)
    assert as_source(source) is source


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_maps_are_mapped_again(tmp_path, order):
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    source = as_source(mapped, Y)
    assert all(np.shares_memory(batch.rows, mapped) for batch in source.batches(7))
    state = pickle.dumps(source)
    assert X[3].tobytes() not in state and X.T[0].tobytes() not in state
    same(pickle.loads(state), X, Y)
    part = as_source(mapped[3:9])
    same(pickle.loads(pickle.dumps(part)), X[3:9])


def test_tensors():
    torch = pytest.importorskip("torch", reason="tensors of PyTorch")
    same(as_source(torch.from_numpy(X).requires_grad_(), torch.from_numpy(Y)), X, Y)
    half = torch.from_numpy(X).to(torch.bfloat16)
    same(as_source(half), half.float().numpy())
    same(as_source([torch.from_numpy(row) for row in X]), X)
    with pytest.raises(
        InvalidInputError,
        match=r"`embeddings` must be a dense array of shape .*; got a Tensor: .* \(pass a numpy array\)",
    ):
        as_source(torch.eye(3).to_sparse())
    data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    source = as_source(torch.utils.data.DataLoader(data, batch_size=5))
    assert source.re_readable
    for rows in (2, 100):
        same(source, X, Y, batch=rows)


def test_paths(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    same(as_source(tmp_path / "x.npy", tmp_path / "y.npy"), X, Y)
    same(as_source(str(tmp_path / "x.npy"), Y, Y), X, Y, Y)


def test_a_generator_is_read_once():
    source = as_source(batch for batch in pairs())
    assert isinstance(source, IteratorSource) and not source.re_readable and source.num_rows is None
    same(source, X, Y, batch=3)
    with pytest.raises(
        InvalidInputError, match=r"`embeddings` must be read only once when it is an iterator; it was read before"
    ):
        read(source)


def test_a_list_of_batches_is_read_again():
    source = as_source(pairs())
    assert source.re_readable
    for rows in (1, 5, 100):
        same(source, X, Y, batch=rows)
    same(as_source([(x, y, y + 1) for x, y in pairs()]), X, Y, Y + 1)
    same(as_source([[x, None] for x, _ in pairs()]), X)
    same(as_source([(x.tolist(), y.tolist()) for x, y in pairs()]), X.astype(np.float64), Y)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], r"must have at least one batch; got none \(was the iterator read before\?\)"),
        ([X, X], r"must come in batches \(X, y\) or \(X, y, groups\); got ndarray in batch 0 \(use \(X, None\) where"),
        ([(X, Y), (X,)], r"must come in batches .*; got 1 parts in batch 1"),
        (
            [(X, Y), (X[:, :3], Y)],
            r"must have rows of the same shape in all batches; got \(5,\) in batch 0 and \(3,\) in batch 1",
        ),
        ([(X, Y), (X, Y[1:])], r"batch 1: `labels` has 22 rows but the embeddings have 23: row 22 has no label"),
        ([(X, Y), (X[0], Y)], r"batch 1: `embeddings` must have shape .*; got shape \(5,\)"),
    ],
)
def test_batches_that_are_none(batches, message):
    with pytest.raises(InvalidInputError, match=message):
        read(as_source(batches), 100)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            X[0],
            r"`embeddings` must have shape \(rows, dimensions\) or \(images, views, dimensions\); got shape \(5,\) "
            r"\(one row per sample",
        ),
        (X[:0], r"`embeddings` must have at least one row; got shape \(0, 5\)"),
        (X * 1j, r"`embeddings` must be real numbers; got complex"),
        (np.array([["a"]]), r"`embeddings` must be numbers; got values of type <U1"),
        (np.array([[None]]), r"`embeddings` must be numbers; got Python objects"),
        ([[1.0, 2.0], [1.0]], r"`embeddings` must be a dense array of shape .*; got a list: .* \(pass a numpy array\)"),
        (
            3,
            r"`embeddings` must be an array, a tensor, a path or batches \(X, y\); got int \(a torch Dataset needs "
            r"a DataLoader",
        ),
    ],
)
def test_what_is_no_source(given, message):
    with pytest.raises(InvalidInputError, match=message) as error:
        as_source(given)
    assert "\n" not in str(error.value)


def test_labels_apart():
    with pytest.raises(
        InvalidInputError, match=r"`labels` has 22 rows but the embeddings have 23: row 22 has no label"
    ):
        as_source(X, Y[1:])
    with pytest.raises(
        InvalidInputError, match=r"`labels` and `group_ids` must be in the batches .*; got them apart, with a list"
    ):
        as_source(pairs(), Y)
    with pytest.raises(InvalidInputError, match=r"`rows` must be a whole number >= 1; got 0"):
        read(as_source(X), 0)
