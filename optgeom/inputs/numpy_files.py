"""numpy's own files, whose bytes may be damaged in any way.

Out comes an array, or one kind of error with the reason.
"""

from __future__ import annotations

import contextlib
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

# What numpy, zipfile and the parsers under them raise on damaged bytes, apart from OSError; each was met.
DAMAGE = (
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    OverflowError,
    MemoryError,
    SyntaxError,
    tokenize.TokenError,
    zlib.error,
    struct.error,
    zipfile.BadZipFile,
)
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_LAST_CHARACTER, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


def reason(error: BaseException) -> str:
    """What `error` says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def _damage_told() -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            # Headers written by Python 2 are read after a second look, of which the user need not hear.
            warnings.filterwarnings(
                "ignore", "Reading `.npy` or `.npz` file required additional header parsing", UserWarning
            )
            yield
    except ValueError:
        raise
    except DAMAGE as error:
        raise ValueError(reason(error)) from error


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and type of the `.npy` array at the start of `file`.

    ValueError if there is none.
    """
    with _damage_told():
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the format is for structured arrays only")
        shape, fortran, dtype = _HEADERS[version](file)
    if any(length < 0 for length in shape):
        raise ValueError(f"its header has the shape {shape}")
    return shape, fortran, dtype


def read_array(file: IO[bytes]) -> npt.NDArray[Any]:
    """The `.npy` array at the position of `file`, never unpickled; ValueError where the bytes are damaged."""
    with _damage_told():
        array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "U" and array.dtype.itemsize and array.size:
        codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        # Python cannot make text of the former and cannot print the latter.
        if codes.max() > _LAST_CHARACTER or ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1])).any():
            raise ValueError("its text has characters that do not exist")
    return np.asarray(array)


class Archive(Mapping[str, npt.NDArray[Any]]):
    """The arrays of an `.npz` file by name, each read when it is asked for; ValueError where the bytes are damaged."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._names:
            raise KeyError(name)
        with _damage_told(), self._archive.open(f"{name}.npy") as member:
            return read_array(member)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@contextlib.contextmanager
def opened(file: IO[bytes]) -> Iterator[npt.NDArray[Any] | Archive]:
    """The array of an `.npy` file, or the arrays of an `.npz` file while they are open.

    ValueError where the bytes are damaged.
    """
    start = file.read(2)
    file.seek(0)
    if start != b"PK":
        yield read_array(file)
        return
    with _damage_told():
        archive = zipfile.ZipFile(file)
    with archive:
        yield Archive(archive)
