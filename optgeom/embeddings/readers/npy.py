"""`.npy` files, by memory map; the header of numpy's format."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.names import Header, OfHeader
from optgeom.embeddings.readers.values import as_rows, check_embeddings, unreadable
from optgeom.errors import InvalidInputError
from optgeom.inputs import files


def read_header(file: IO[bytes]) -> tuple[Header, bool]:
    """The header at the start of `file`, and whether the array is in Fortran order; ValueError if it is none."""
    shape, fortran, dtype = files.read_header(file)
    return Header(shape, dtype), fortran and len(shape) > 1


@dataclass(frozen=True)
class NpyContent(OfHeader):
    """An `.npy` file whose header was read."""

    path: str
    header: Header
    fortran: bool
    offset: int

    def blocks(self, rows: int) -> Iterator[Block]:
        order: Any = "F" if self.fortran else "C"
        table = np.memmap(self.path, self.header.dtype, "r", self.offset, self.header.shape, order)
        for start in range(0, self.num_rows, rows):
            yield Block(as_rows(table[start : start + rows]))


def open_npy(path: str) -> NpyContent:
    """Read and check the header of an `.npy` file of embeddings."""
    try:
        with open(path, "rb") as file:
            header, fortran = read_header(file)
            offset = file.tell()
            stored = os.fstat(file.fileno()).st_size - offset
    except OSError as error:
        raise unreadable(path, error) from error
    except ValueError as error:
        why = files.reason(error)
        raise InvalidInputError(f"{path}: it must be a file written by numpy.save; {why} (save it again)") from error
    check_embeddings(f"{path}: the embeddings", header.shape, header.dtype)
    check_size(path, header, stored)
    return NpyContent(path, header, fortran, offset)


def check_size(what: str, header: Header, stored: int) -> None:
    """Refuse an array of which only `stored` bytes are there."""
    row = int(np.prod(header.shape[1:], dtype=object)) * header.dtype.itemsize
    if stored < row * header.shape[0]:
        raise InvalidInputError(
            f"{what}: the file is cut off: its header promises {header.shape[0]} rows, {stored // row} are there (copy or save it again)"
        )
