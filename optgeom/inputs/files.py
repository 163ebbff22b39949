"""Writing files so that a reader never meets half a file."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path

from optgeom.errors import InvalidInputError


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
    """A short name of this machine.

    Numbers of processes say nothing about those of another one that shares the folder.
    """
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files of `target` whose process, on this machine, is no more."""
    if os.name != "posix":  # elsewhere a signal of number 0 is not a mere question
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
    except (OSError, OverflowError):  # it is somebody else's, or no number of a process
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
