"""`.safetensors` files, by memory map: the format is a JSON header and raw arrays, so that no other package is needed.

The package of the same name does not replace the header that is read here. Its version 0.8 gives names, shapes and
types of all tensors (`safe_open(path, "numpy")`: `keys`, `get_slice(name).get_shape()`, `.get_dtype()`), but not where
they are in the file, and it refuses the rows themselves in bfloat16 (TypeError) unless torch is there. A file that is
cut off it refuses with "incomplete metadata, file not fully covered", where here the rows that are left are counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.layout import Header, Wanted, choose, label_shaped
from optgeom.embeddings.readers.values import as_rows, column, from_bfloat16, label_column, unreadable
from optgeom.errors import InvalidInputError
from optgeom.inputs.tables import load_json

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?"}
_TYPES |= {f"{sign}{8 * size}": f"<{sign.lower()}{size}" for sign in "IU" for size in (1, 2, 4, 8)}
# The library itself refuses longer headers.
_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class _Tensor:
    """Where a tensor is in the file, and how it is coded."""

    code: str
    shape: tuple[int, ...]
    offset: int

    def mapped(self, path: str) -> npt.NDArray[Any]:
        return np.memmap(path, np.dtype(_TYPES[self.code]), "r", self.offset, self.shape)


@dataclass(frozen=True)
class SafetensorsContent:
    """A `.safetensors` file whose tensors were chosen."""

    path: str
    vector: _Tensor
    label: _Tensor | None
    group: _Tensor | None

    @property
    def num_rows(self) -> int:
        return self.vector.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.vector.shape[1:]

    def blocks(self, rows: int) -> Iterator[Block]:
        table = self.vector.mapped(self.path)
        labels, groups = (
            None if tensor is None else read(f"{self.path}: the {what}", tensor.mapped(self.path))
            for read, what, tensor in ((label_column, "labels", self.label), (column, "groups", self.group))
        )
        return Block(table, labels, groups).pieces(rows, from_bfloat16 if self.vector.code == "BF16" else as_rows)


def open_safetensors(path: str, wanted: Wanted) -> SafetensorsContent:
    """Read the header of a `.safetensors` file and choose among its tensors."""
    entries, begin, size = _read_header(path)
    chosen = choose(path, {name: _header(entry) for name, entry in entries.items()}, wanted)

    def tensor(name: str | None) -> _Tensor | None:
        return None if name is None else _placed(path, name, entries[name], begin, size)

    vector, label, group = map(tensor, (chosen.vector, chosen.label, chosen.group))
    assert vector is not None
    return SafetensorsContent(path, vector, label, group)


def label_tensors(path: str) -> dict[str, npt.NDArray[Any]]:
    """All one-dimensional tensors of a file, or else its tables, for labels that are in a file of their own."""
    entries, begin, size = _read_header(path)
    chosen = label_shaped({name: tuple(entry["shape"]) for name, entry in entries.items() if entry["dtype"] in _TYPES})
    return {
        name: label_column(f"{path}: the labels", _placed(path, name, entries[name], begin, size).mapped(path))
        for name in chosen
    }


def _read_header(path: str) -> tuple[dict[str, dict[str, Any]], int, int]:
    """Entries of the header, where the arrays begin, and the size of the file."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _LONGEST_HEADER):
                raise InvalidInputError(
                    f"{path}: it must be a safetensors file; it is none, or cut off (copy or save it again)"
                )
            text = file.read(length).decode("utf-8")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path}: it must be a safetensors file; its header is not UTF-8 text (save it again)"
        ) from error
    entries = load_json(path, text)
    if not isinstance(entries, dict):
        raise InvalidInputError(
            f"{path}: it must be a safetensors file; its header is not a JSON object (save it again)"
        )
    entries.pop("__metadata__", None)
    for name, entry in entries.items():
        if not _is_entry(entry):
            raise InvalidInputError(
                f"{path}: it must be a safetensors file; the header entry {name!r} is malformed (save it again)"
            )
    return entries, 8 + length, size


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    numbers = (entry.get("shape"), entry.get("data_offsets"))
    whole = all(
        isinstance(part, list) and all(type(number) is int and number >= 0 for number in part) for part in numbers
    )
    return whole and len(entry["data_offsets"]) == 2


def _header(entry: dict[str, Any]) -> Header:
    # A type that numpy lacks is shown as bytes, which are refused if they are chosen.
    code = "F32" if entry["dtype"] == "BF16" else entry["dtype"]
    return Header(tuple(entry["shape"]), np.dtype(_TYPES.get(code, "V1")))


def _placed(path: str, name: str, entry: dict[str, Any], begin: int, size: int) -> _Tensor:
    shape, (first, last) = tuple(entry["shape"]), entry["data_offsets"]
    if entry["dtype"] not in _TYPES:
        raise InvalidInputError(
            f"{path}: the tensor {name!r} must be numbers of {', '.join(_TYPES)}; got {entry['dtype']!r} (convert it)"
        )
    row = int(np.prod(shape[1:], dtype=object)) * np.dtype(_TYPES[entry["dtype"]]).itemsize
    if last - first != row * shape[0]:
        raise InvalidInputError(
            f"{path}: the tensor {name!r} of shape {shape} has {last - first} bytes in the header (save it again)"
        )
    if begin + last > size:
        there = max(0, size - begin - first) // row
        raise InvalidInputError(
            f"{path}: the file is cut off: its header promises {shape[0]} rows of {name!r}, {there} are there "
            "(copy or save it again)"
        )
    return _Tensor(entry["dtype"], shape, begin + first)
