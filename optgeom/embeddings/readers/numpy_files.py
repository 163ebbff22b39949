"""numpy's own files: `.npy` by memory map, and `.npz` archives."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.layout import Chosen, Header, OfHeader, Wanted, choose
from optgeom.embeddings.readers.values import check_embeddings, column, label_column, unreadable
from optgeom.errors import InvalidInputError
from optgeom.inputs import files


def read_header(file: IO[bytes]) -> tuple[Header, bool]:
    """The header at the start of `file`, and whether the array is in Fortran order; ValueError for other bytes."""
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
        return Block(table).pieces(rows)


def open_npy(path: str, wanted: Wanted) -> NpyContent:
    """Read and check the header of an `.npy` file of embeddings."""
    if wanted.names:
        given = ", ".join(map(repr, wanted.names))
        raise InvalidInputError(
            f"{path}: an .npy file has no columns to choose from; got {given} (give `labels` and `group_ids`)"
        )
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
    row = int(np.prod(header.shape[1:], dtype=object)) * header.dtype.itemsize
    if stored < row * header.shape[0]:
        raise InvalidInputError(
            f"{path}: the file is cut off: its header promises {header.shape[0]} rows, {stored // row} are there "
            "(copy or save it again)"
        )
    return NpyContent(path, header, fortran, offset)


@dataclass(frozen=True)
class NpzContent(OfHeader):
    """An `.npz` file whose arrays were chosen."""

    path: str
    chosen: Chosen
    header: Header
    fortran: bool

    def blocks(self, rows: int) -> Iterator[Block]:
        with _opened(self.path) as archive:
            labels, groups = (
                self._whole(archive, self.chosen.label, label_column),
                self._whole(archive, self.chosen.group, column),
            )
            start = 0
            for table in self._tables(archive, rows):
                stop = start + len(table)
                labels_here, groups_here = (None if part is None else part[start:stop] for part in (labels, groups))
                yield from Block(table, labels_here, groups_here).pieces(rows)
                start = stop

    def _whole(
        self, archive: zipfile.ZipFile, name: str | None, read: Callable[[str, Any], npt.NDArray[Any]]
    ) -> npt.NDArray[Any] | None:
        if name is None:
            return None
        with archive.open(f"{name}.npy") as member:
            return read(f"{self.path}: the array {name!r}", files.read_array(member))

    def _tables(self, archive: zipfile.ZipFile, rows: int) -> Iterator[npt.NDArray[Any]]:
        """Consecutive rows; all at once where the array is in Fortran order, which has no rows one after the other."""
        with archive.open(f"{self.chosen.vector}.npy") as member:
            if self.fortran:
                yield files.read_array(member)
                return
            read_header(member)
            width = int(np.prod(self.row_shape)) * self.header.dtype.itemsize
            for start in range(0, self.num_rows, rows):
                size = min(rows, self.num_rows - start)
                content = member.read(size * width)
                if len(content) < size * width:
                    there = start + len(content) // width
                    raise InvalidInputError(
                        f"{self.path}: the array {self.chosen.vector!r} is cut off: its header promises "
                        f"{self.num_rows} rows, {there} are there (save it again)"
                    )
                yield np.frombuffer(content, self.header.dtype).reshape(size, *self.row_shape)


def open_npz(path: str, wanted: Wanted) -> NpzContent:
    """Read the headers of all arrays in an `.npz` file and choose among them."""
    members: dict[str, tuple[Header, bool]] = {}
    with _opened(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    members[member.removesuffix(".npy")] = read_header(file)
    chosen = choose(path, {name: header for name, (header, _) in members.items()}, wanted)
    header, fortran = members[chosen.vector]
    return NpzContent(path, chosen, header, fortran)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    try:
        with open(path, "rb") as file:
            yield _archive(path, file)
    except OSError as error:
        raise unreadable(path, error) from error
    except InvalidInputError:
        raise
    except files.DAMAGE as error:
        raise InvalidInputError(
            f"{path}: the archive is damaged: {files.reason(error)} (copy or save it again)"
        ) from error


def _archive(path: str, file: IO[bytes]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except files.DAMAGE as error:
        # The list of the members is at the end of a zip file.
        raise InvalidInputError(
            f"{path}: it must be a file written by numpy.savez; it is none, or cut off (save it again)"
        ) from error
