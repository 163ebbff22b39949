"""`.npz` files, each array read as a stream, so that no array but a Fortran-ordered one is ever whole in memory."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from optgeom.embeddings.readers.file_source import Block
from optgeom.embeddings.readers.names import Chosen, Header, OfHeader, Wanted, choose
from optgeom.embeddings.readers.npy import read_header
from optgeom.embeddings.readers.values import as_rows, column, label_column, unreadable
from optgeom.errors import InvalidInputError
from optgeom.inputs import files


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
            for start, table in self._tables(archive, rows):
                stop = start + len(table)
                yield Block(
                    as_rows(table),
                    None if labels is None else labels[start:stop],
                    None if groups is None else groups[start:stop],
                )

    def _whole(
        self, archive: zipfile.ZipFile, name: str | None, read: Callable[[str, Any], npt.NDArray[Any]]
    ) -> npt.NDArray[Any] | None:
        if name is None:
            return None
        with archive.open(f"{name}.npy") as member:
            return read(f"{self.path}: the array {name!r}", files.read_array(member))

    def _tables(self, archive: zipfile.ZipFile, rows: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        with archive.open(f"{self.chosen.vector}.npy") as member:
            if self.fortran:
                table = files.read_array(member)
                yield from ((start, table[start : start + rows]) for start in range(0, self.num_rows, rows))
                return
            read_header(member)
            width = int(np.prod(self.row_shape)) * self.header.dtype.itemsize
            for start in range(0, self.num_rows, rows):
                size = min(rows, self.num_rows - start)
                content = member.read(size * width)
                if len(content) < size * width:
                    there = start + len(content) // width
                    raise InvalidInputError(
                        f"{self.path}: the array {self.chosen.vector!r} is cut off: its header promises {self.num_rows} rows, "
                        f"{there} are there (save it again)"
                    )
                yield start, np.frombuffer(content, self.header.dtype).reshape(size, *self.row_shape)


def open_npz(path: str, wanted: Wanted) -> NpzContent:
    """Read the headers of all arrays in an `.npz` file and choose among them."""
    found: dict[str, tuple[Header, bool]] = {}
    with _opened(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    found[member.removesuffix(".npy")] = read_header(file)
    chosen = choose(path, {name: header for name, (header, _) in found.items()}, wanted)
    header, fortran = found[chosen.vector]
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
