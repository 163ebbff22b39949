"""`.pt` and `.pth` files: tensors only, by memory map; nothing is unpickled."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.layout import Chosen, Header, OfHeader, Wanted, choose, label_shaped
from optgeom.embeddings.readers.values import as_rows, column, from_tensor, is_tensor, label_column, unreadable
from optgeom.errors import InvalidInputError, MissingDependencyError


@dataclass(frozen=True)
class TorchContent(OfHeader):
    """A file of tensors that were chosen; it is opened again for each pass."""

    path: str
    chosen: Chosen
    header: Header

    def blocks(self, rows: int) -> Iterator[Block]:
        tensors = _load(self.path)
        table = tensors[self.chosen.vector]
        labels, groups = (
            None if name is None else read(f"{self.path}: the entry {name!r}", tensors[name])
            for read, name in ((label_column, self.chosen.label), (column, self.chosen.group))
        )
        return Block(table, labels, groups).pieces(rows, lambda part: as_rows(from_tensor(part)))


def open_torch(path: str, wanted: Wanted) -> TorchContent:
    """Load the tensors of a `.pt` file by memory map and choose among them."""
    headers = {name: _header(value) for name, value in _load(path).items()}
    chosen = choose(path, headers, wanted)
    return TorchContent(path, chosen, headers[chosen.vector])


def label_tensors(path: str) -> dict[str, npt.NDArray[Any]]:
    """All columns of a file, or else its tables, for labels that are in a file of their own."""
    tensors = _load(path)
    chosen = label_shaped({name: _header(value).shape for name, value in tensors.items()})
    return {name: label_column(f"{path}: the labels", tensors[name]) for name in chosen}


def _load(path: str) -> dict[str, Any]:
    """Dense tensors, and lists of labels, by name."""
    content = _unpacked(path)
    if is_tensor(content):
        content = {"": content}
    elif isinstance(content, (tuple, list)) and len(content) in (1, 2) and all(map(is_tensor, content[:1])):
        content = dict(zip(("X", "y"), content, strict=False))
    elif not isinstance(content, dict):
        raise InvalidInputError(
            f"{path}: it must hold a tensor, a pair (X, y) or a dict of tensors; got {type(content).__name__} "
            "(torch.save({'X': X, 'y': y}, path))"
        )
    dense = {
        str(name): value
        for name, value in content.items()
        if is_tensor(value) or (isinstance(value, (list, tuple)) and value)
    }
    return {name: value for name, value in dense.items() if not is_tensor(value) or "strided" in str(value.layout)}


def _header(value: Any) -> Header:
    if not is_tensor(value):
        return Header((len(value),), np.dtype(str))
    kind = str(value.dtype).removeprefix("torch.")
    try:
        dtype = np.dtype("float32" if kind == "bfloat16" else kind)
    except TypeError:
        # A type that numpy lacks (float8, quantised) is shown as bytes, which are refused if they are chosen.
        dtype = np.dtype("V1")
    return Header(tuple(value.shape), dtype)


def _unpacked(path: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            "reading .pt needs PyTorch: pip install 'optgeom[torch]' (or save the embeddings as .npy or .safetensors)"
        ) from error
    none = InvalidInputError(f"{path}: it must be a file written by torch.save; it is none, or cut off (save it again)")
    try:
        with open(path, "rb") as file:
            # Since torch 1.6 a zip file, which can be mapped; before, a row of pickles.
            zipped, pickled = zipfile.is_zipfile(file), file.seek(0) == 0 and file.read(1) == b"\x80"
    except OSError as error:
        raise unreadable(path, error) from error
    except zipfile.BadZipFile as error:
        raise none from error
    if not (zipped or pickled):
        raise none
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        raise InvalidInputError(
            f"{path}: it must hold tensors only; got other Python objects, which need pickle and are never unpickled "
            "(convert arrays with torch.from_numpy, then torch.save({'X': X, 'y': y}, path))"
        ) from error
    except Exception as error:  # on damaged bytes torch's reader fails in any way, with KeyError or struct.error too
        raise none from error
