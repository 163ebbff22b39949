"""Reading .safetensors and .pt files of embeddings, bfloat16 among them."""

from __future__ import annotations

import pickle
import struct
import sys

import numpy as np
import pytest
from helpers.readers_data import labels, read, same, table

from optgeom.embeddings.readers.open import open_embeddings
from optgeom.errors import InvalidInputError, MissingDependencyError

PAIRS = [("X", "y"), ("embeddings", "labels"), ("features", "targets"), ("data", "targets"), ("other", "label")]


# ----------------------------------------------------------------------------------------------------------------------
# safetensors


@pytest.fixture
def save_file():
    return pytest.importorskip("safetensors.numpy", reason="the library writes the files").save_file


@pytest.mark.parametrize("names", PAIRS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_safetensors_by_name(tmp_path, save_file, names, dtype):
    x, y = table(dtype=dtype), labels()
    save_file(
        {names[0]: x, names[1]: y, "bias": np.zeros(3, np.float32)},
        tmp_path / "x.safetensors",
        metadata={"made": "by hand"},
    )
    source = open_embeddings(tmp_path / "x.safetensors")
    assert source.num_rows == 23 and source.row_shape == (5,)
    for rows in (1, 7, 23, 100):
        same(source, x, y, batch=rows)
    same(pickle.loads(pickle.dumps(source)), x, y)


def test_safetensors_is_mapped_and_may_hold_views(tmp_path, save_file):
    x = table(24).reshape(6, 4, 5)
    save_file({"X": x, "image": labels(6)}, tmp_path / "x.safetensors")
    source = open_embeddings(tmp_path / "x.safetensors", group_column="image")
    same(source, x, None, labels(6))
    assert all(isinstance(batch.rows, np.memmap) for batch in source.batches(2))


def test_safetensors_labels_apart(tmp_path, save_file):
    save_file({"X": table()}, tmp_path / "x.safetensors")
    save_file({"ids": labels(), "X": table()}, tmp_path / "y.safetensors")
    same(open_embeddings(tmp_path / "x.safetensors", labels=tmp_path / "y.safetensors"), table(), labels())
    save_file({"a": labels(), "b": labels()}, tmp_path / "y.safetensors")
    with pytest.raises(
        InvalidInputError, match=r"the labels must be the one-dimensional tensor `labels`, or the only one; got a, b"
    ):
        open_embeddings(tmp_path / "x.safetensors", labels=tmp_path / "y.safetensors")


def test_damaged_safetensors(tmp_path, save_file):
    path = tmp_path / "x.safetensors"
    save_file({"X": table()}, path)
    content = path.read_bytes()
    path.write_bytes(content[:-70])
    with pytest.raises(
        InvalidInputError, match=r"cut off: its header promises 23 rows of 'X', 19 are there \(copy or save it again\)"
    ):
        open_embeddings(path)
    for wrong, message in [
        (b"", "it is none, or cut off"),
        (content[:20], "it is none, or cut off"),
        (struct.pack("<Q", 4) + b"\xff\xff\xff\xff", "its header is not UTF-8 text"),
        (struct.pack("<Q", 4) + b"[ ] ", "its header is not a JSON object"),
        (struct.pack("<Q", 4) + b"{{{{", "line 1 is not valid JSON"),
        (struct.pack("<Q", 8) + b'{"X": 3}', "the header entry 'X' is malformed"),
        (content.replace(b"[23,5]", b"[23,6]"), r"the tensor 'X' of shape \(23, 6\) has 460 bytes in the header"),
        (content.replace(b"[23,5]", b"[-3,5]"), "the header entry 'X' is malformed"),
    ]:
        path.write_bytes(wrong)
        with pytest.raises(InvalidInputError, match=message):
            open_embeddings(path)


def test_safetensors_of_a_type_that_numpy_lacks(tmp_path):
    header = b'{"X":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]}}'
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"abcd")
    with pytest.raises(
        InvalidInputError, match=r"the array 'X' must be numbers; got values of type \|V1 \(save X.astype"
    ):
        open_embeddings(tmp_path / "x.safetensors")


# ----------------------------------------------------------------------------------------------------------------------
# torch


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch reads and writes .pt files")


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "bfloat16"])
def test_rounded_tensors_equal_the_rounded_values(tmp_path, torch, kind):
    """A file of bfloat16 equals the float32 file of the same values, as torch itself converts them."""
    rounded = torch.from_numpy(table(dtype=np.float64)).to(getattr(torch, kind))
    torch.save({"X": rounded, "y": torch.from_numpy(labels())}, tmp_path / "x.pt")
    pytest.importorskip("safetensors.torch").save_file(
        {"X": rounded, "y": torch.from_numpy(labels())}, tmp_path / "x.safetensors"
    )
    wanted = (rounded.float() if kind == "bfloat16" else rounded).numpy()
    for name in ("x.pt", "x.safetensors"):
        for rows in (1, 7, 23, 100):
            same(open_embeddings(tmp_path / name), wanted, labels(), batch=rows)


def test_bfloat16_at_the_ends_of_its_range(tmp_path, torch):
    bits = torch.tensor([0, 1, -1, 3.3895314e38, -3.3895314e38, 1e-40, float("inf"), float("nan")]).to(torch.bfloat16)[
        :, None
    ]
    pytest.importorskip("safetensors.torch").save_file({"X": bits}, tmp_path / "x.safetensors")
    same(open_embeddings(tmp_path / "x.safetensors"), bits.float().numpy())


@pytest.mark.parametrize("names", PAIRS)
def test_pt_by_name(tmp_path, torch, names):
    x, y = torch.from_numpy(table()), torch.from_numpy(labels())
    torch.save({names[0]: x, names[1]: y, "epoch": 3, "bias": torch.zeros(3)}, tmp_path / "x.pth")
    source = open_embeddings(tmp_path / "x.pth")
    assert source.num_rows == 23
    same(source, table(), labels())
    same(pickle.loads(pickle.dumps(source)), table(), labels())


def test_pt_of_other_shapes(tmp_path, torch):
    x, y = torch.from_numpy(table()).requires_grad_(), torch.from_numpy(labels())
    torch.save(x, tmp_path / "x.pt")
    same(open_embeddings(tmp_path / "x.pt"), table())
    torch.save(y, tmp_path / "y.pt")
    same(open_embeddings(tmp_path / "x.pt", labels=tmp_path / "y.pt"), table(), labels())
    torch.save((x, y), tmp_path / "pair.pt")
    same(open_embeddings(tmp_path / "pair.pt"), table(), labels())
    torch.save({"X": x, "y": list(map(str, labels()))}, tmp_path / "text.pt")
    same(open_embeddings(tmp_path / "text.pt"), table(), labels().astype(str))
    torch.save({"X": x, "y": y}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    same(open_embeddings(tmp_path / "old.pt"), table(), labels())


def test_pt_with_objects_is_not_unpickled(tmp_path, torch):
    torch.save({"X": table()}, tmp_path / "x.pt")
    message = (
        r"x.pt: it must hold tensors only; got other Python objects, which need pickle and are never unpickled "
        r"\(convert arrays"
    )
    with pytest.raises(InvalidInputError, match=message) as error:
        open_embeddings(tmp_path / "x.pt")
    assert "\n" not in str(error.value)
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"X": table()}))
    with pytest.raises(InvalidInputError, match=r"must be a file written by torch.save; it is none"):
        open_embeddings(tmp_path / "x.pt")


def test_pt_that_is_none(tmp_path, torch):
    torch.save({"X": torch.zeros(300, 3)}, tmp_path / "x.pt")
    content = (tmp_path / "x.pt").read_bytes()
    for wrong in (b"", b"junk" * 10, content[:-70], content[:1000]):
        (tmp_path / "x.pt").write_bytes(wrong)
        with pytest.raises(
            InvalidInputError, match=r"x.pt: it must be a file written by torch.save; it is none, or cut off"
        ):
            open_embeddings(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (3, r"it must hold a tensor, a pair \(X, y\) or a dict of tensors; got int"),
        ({"epoch": 3}, r"the embeddings must be an array of shape .*; got nothing"),
        ("complex64", r"the array 'X' must be real numbers; got complex64"),
        ("float8_e4m3fn", r"the array 'X' must be numbers; got values of type \|V1"),
        ("sparse", r"the embeddings must be an array of shape .*; got nothing"),
    ],
)
def test_pt_without_embeddings(tmp_path, torch, content, message):
    if content == "sparse":
        content = {"X": torch.eye(3).to_sparse()}
    elif isinstance(content, str):
        content = {"X": torch.zeros(3, 2).to(getattr(torch, content))}
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(InvalidInputError, match=message):
        open_embeddings(tmp_path / "x.pt")


def test_pt_without_torch(tmp_path, monkeypatch):
    (tmp_path / "x.pt").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r"reading .pt needs PyTorch: pip install 'optgeom\[torch\]'"):
        open_embeddings(tmp_path / "x.pt")


def test_pt_gives_the_same_as_npy(tmp_path, torch):
    torch.save(torch.from_numpy(table()), tmp_path / "x.pt")
    np.save(tmp_path / "x.npy", table())
    for one, other in zip(
        open_embeddings(tmp_path / "x.pt").batches(7), open_embeddings(tmp_path / "x.npy").batches(7), strict=True
    ):
        assert one.start == other.start
        np.testing.assert_array_equal(one.rows, other.rows)
    assert read(open_embeddings(tmp_path / "x.pt"))[0].dtype == np.float32
