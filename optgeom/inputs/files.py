"""Files: written in one step, opened only where they end, numpy's own read with one kind of error for damaged bytes."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import secrets
import stat
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError

# What numpy, zipfile and the parsers under them raise on damaged bytes, apart from OSError; each was seen.
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


def check_target(path: str | os.PathLike[str]) -> Path:
    """The file that `path` names, links followed, if it can be written; for a look before the work instead of after it.

    Raises
    ------
    InvalidInputError
        `path` is a folder, or its folder is missing.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InvalidInputError(f"cannot write {path}: it is a folder (give a file name)")
    for folder in (Path(path).parent, target.parent):
        if not folder.absolute().is_dir():
            raise InvalidInputError(f"cannot write {path}: the folder {folder} does not exist (make it first)")
    return target


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path next to `path`; when the block ends well, it takes the place of `path` in one step.

    Parameters
    ----------
    path : str or path-like
        Where the finished file goes. Its folder must exist. A link is followed, so that it stays a link.

    Yields
    ------
    Path
        A path in the same folder (a rename across file systems is a copy, hence not atomic) with the same suffix
        (writers such as `numpy.save` and matplotlib choose by suffix). Pipes and devices cannot be renamed over: for
        them `path` itself. What a killed process left of an earlier write to `path` is removed.

    Raises
    ------
    InvalidInputError
        The folder is missing, `path` is a folder, or the system refuses to write (message says why). `path` is then as
        it was before.
    """
    target = check_target(path)
    if target.exists() and not target.is_file():
        try:
            yield target
        except OSError as error:
            raise _refused(path, error) from error
        return
    # Not made by `tempfile`: its files are readable by their owner only, and the finished file should have the usual
    # permissions.
    temporary = target.with_name(f".{target.stem}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{target.suffix}")
    try:
        _remove_leftovers(target)
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _machine() -> str:
    """A short name of this machine, since numbers of processes mean nothing on another one that shares the folder."""
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of `target` whose process, on this machine, has ended."""
    if os.name != "posix":  # elsewhere signal 0 does more than ask
        return
    pattern = re.compile(rf"\.{re.escape(target.stem)}\.{_machine()}-(\d+)-[0-9a-f]{{8}}{re.escape(target.suffix)}")
    for name in os.listdir(target.parent):
        match = pattern.fullmatch(name)
        if match and not _runs(int(match[1])):
            target.with_name(name).unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # the process of another user, or not the number of a process
        pass
    return True


def _refused(path: str | os.PathLike[str], error: OSError) -> InvalidInputError:
    return InvalidInputError(f"cannot write {path}: {error.strerror or error}")


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` in one step; see `atomic_path`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | os.PathLike[str], content: str) -> None:
    r"""Write `content` to `path` as UTF-8 with `\n` line ends, in one step; see `atomic_path`."""
    write_bytes(path, content.encode("utf-8"))


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file to read its bytes; OSError where `path` is a pipe or a device, which may never end."""
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
        raise OSError(errno.EINVAL, "it is a pipe or a device; save the data to a file first", os.fspath(path))
    return open(path, "rb")


def reason(error: BaseException) -> str:
    """What `error` says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def _damage_as_value_error() -> Iterator[None]:
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
    with _damage_as_value_error():
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the format is for structured arrays only")
        shape, fortran, dtype = _HEADERS[version](file)
    if any(length < 0 for length in shape):
        raise ValueError(f"its header has the shape {shape}")
    return shape, fortran, dtype


def read_array(file: IO[bytes]) -> npt.NDArray[Any]:
    """The `.npy` array at the position of `file`, never unpickled; ValueError where the bytes are damaged."""
    with _damage_as_value_error():
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
        with _damage_as_value_error(), self._archive.open(f"{name}.npy") as member:
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
    with _damage_as_value_error():
        archive = zipfile.ZipFile(file)
    with archive:
        yield Archive(archive)
