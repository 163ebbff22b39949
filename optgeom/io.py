"""Files of results (versioned, never pickled, whole or not at all) and tables of prototypes in formats of other tools.

A result file is a JSON document and named arrays, as `.npz` or as `.json`. Its class gives both their meaning: it
computes every figure anew from the arrays, and `check_figure` refuses a file that says otherwise.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.certificates import Certificate
from optgeom.errors import InvalidInputError, MissingDependencyError
from optgeom.inputs import files

SAME_FIGURE = 1e-10  # of the scale: what figures computed on another machine, in other roundings, may differ by
SAME_GAP = 0.5  # of the larger one: gaps are differences down to that rounding

T = TypeVar("T")


class FileMismatchError(ValueError):
    """A figure in a file that is not the figure of its arrays: the file was changed after it was written."""


@dataclass(frozen=True)
class FileKind:
    """One kind of result file.

    Attributes
    ----------
    name : str
        What the file states as its format.
    noun : str
        What it holds, for messages: "a geometry".
    instead : str
        What else can be saved, for messages: "prototypes alone: save_prototypes".
    version : int
        Version that is written, and the only one that is read.
    """

    name: str
    noun: str
    instead: str
    version: int = 1

    def write(
        self, path: str | os.PathLike[str], document: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        """Write a document of plain values and arrays of numbers or text to `.npz` or `.json`."""
        suffix = Path(path).suffix.lower()
        whole = {"format": self.name, "version": self.version, **document}
        if suffix == ".json":
            whole["arrays"] = {name: _listed(array) for name, array in arrays.items()}
            files.write_text(path, json.dumps(whole, allow_nan=False))
        elif suffix == ".npz":
            buffer = io.BytesIO()
            np.savez_compressed(buffer, document=np.array(json.dumps(whole, allow_nan=False)), **dict(arrays))  # type: ignore[arg-type]
            files.write_bytes(path, buffer.getvalue())
        else:
            raise InvalidInputError(f"{self.noun} is saved as .npz or .json; got {str(path)!r} ({self.instead})")

    def read(self, path: str | os.PathLike[str], rebuild: Callable[[dict[str, Any], dict[str, Any]], T]) -> T:
        """Give the document and the arrays of a file to `rebuild`.

        Raises
        ------
        InvalidInputError
            No file, another kind of file, another version, or contents that `rebuild` refuses.
        """
        suffix = Path(path).suffix.lower()
        if suffix not in (".json", ".npz"):
            raise InvalidInputError(f"{self.noun} is read from .npz or .json; got {str(path)!r}")
        with self._one_line(path):
            document, arrays = (_read_json if suffix == ".json" else _read_npz)(Path(path))
            if document.get("format") != self.name:
                raise ValueError(f"its format is {document.get('format')!r}")
            version = document.get("version")
        if version != self.version:
            reads = f"this optgeom reads version {self.version} (upgrade optgeom)"
            raise InvalidInputError(f"{path} has format version {version}; {reads}")
        with self._one_line(path):
            return rebuild(document, arrays)

    @contextlib.contextmanager
    def _one_line(self, path: str | os.PathLike[str]) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise InvalidInputError(f"{path} does not exist") from None
        except FileMismatchError as error:
            raise InvalidInputError(f"{path} was changed after it was written: {error} (compute it again)") from error
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from error
        except (OSError, AttributeError, TypeError, IndexError, *files.DAMAGE) as error:
            why = f"{type(error).__name__}: {files.reason(error)}"
            raise InvalidInputError(f"{path} is not {self.noun} written by optgeom ({why})") from error


def _read_json(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with files.open_regular(path) as stream:
        document = json.loads(stream.read().decode("utf-8"))
    return document, {name: np.array(values) for name, values in document["arrays"].items()}


def _read_npz(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with files.open_regular(path) as stream, files.opened(stream) as stored:
        if isinstance(stored, np.ndarray):
            raise ValueError("it holds a single array")
        document = json.loads(str(stored["document"]))
        return document, {name: stored[name] for name in stored if name != "document"}


def _listed(array: npt.NDArray[Any]) -> Any:
    """Nested lists; the numbers that JSON does not have as text, which `astype` reads."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return array.tolist()
    return np.where(np.isfinite(array), array.astype(object), array.astype(str)).tolist()


def plain_number(value: float | None) -> float | str | None:
    """A number for a document: infinity and NaN, which JSON does not have, as text that `float` reads."""
    return value if value is None or math.isfinite(value) else repr(value)


def plain_certificate(certificate: Certificate) -> dict[str, Any]:
    """A certificate for a document, infinities included."""
    figures = ("gap", "lower_bound", "backward_error", "primal_shift")
    return {**certificate.as_dict(), **{name: plain_number(getattr(certificate, name)) for name in figures}}


def check_figure(name: str, stored: Any, computed: float, scale: float, *, relative: float = 0.0) -> None:
    """Raise `FileMismatchError` unless a stored figure is that of the arrays, up to rounding.

    Parameters
    ----------
    name : str
        Of the figure, for the message.
    stored : float, or its text
    computed : float
    scale : float
        SAME_FIGURE of it is allowed.
    relative : float
        Share of the larger of the two figures that is allowed as well.
    """
    figure = float(stored)
    allowed = SAME_FIGURE * scale + relative * max(abs(figure), abs(computed))
    if figure != computed and not abs(figure - computed) <= allowed:
        raise FileMismatchError(f"its {name} is {figure:.12g}, but that of its arrays is {computed:.12g}")


def check_certificate(stored: Mapping[str, Any], computed: Certificate) -> None:
    """Raise `FileMismatchError` unless a stored certificate claims what that of the arrays does."""
    if bool(stored["certified"]) and not computed.certified:
        raise FileMismatchError(f"it says certified, but {computed.reason}")
    check_figure("gap", stored["gap"], computed.gap, computed.scale, relative=SAME_GAP)
    risk = computed.lower_bound + computed.gap
    gap = float(stored["gap"])
    if math.isfinite(gap):
        check_figure("lower bound", stored["lower_bound"], risk - gap, computed.scale)


def save_table(path: str | os.PathLike[str], make_table: Callable[[], Array], names: tuple[str, ...]) -> None:
    """Write a table with one name per row to `.npy`, `.npz`, `.csv`, `.pt` or `.safetensors`."""
    suffix = Path(path).suffix.lower()
    writers = {".npy": _npy, ".npz": _npz, ".csv": _csv, ".pt": _torch, ".safetensors": _safetensors}
    if suffix not in writers:
        raise InvalidInputError(f"prototypes are saved as {', '.join(writers)}; got {str(path)!r}")
    files.write_bytes(path, writers[suffix](make_table(), names))


def _npy(table: Array, names: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, table, allow_pickle=False)
    return buffer.getvalue()


def _npz(table: Array, names: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, prototypes=table, names=np.array(names))
    return buffer.getvalue()


def _csv(table: Array, names: tuple[str, ...]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["class", *(f"x{column}" for column in range(table.shape[1]))])
    writer.writerows([name, *map(repr, row)] for name, row in zip(names, table.tolist(), strict=True))
    return buffer.getvalue().encode("utf-8")


def _torch(table: Array, names: tuple[str, ...]) -> bytes:
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError("saving .pt needs PyTorch: pip install 'optgeom[torch]'") from error
    buffer = io.BytesIO()
    torch.save({"prototypes": torch.from_numpy(table), "names": list(names)}, buffer)
    return buffer.getvalue()


def _safetensors(table: Array, names: tuple[str, ...]) -> bytes:
    try:
        from safetensors.numpy import save as dump
    except ImportError as error:
        raise MissingDependencyError("saving .safetensors needs safetensors: pip install 'optgeom[io]'") from error
    return bytes(dump({"prototypes": np.ascontiguousarray(table)}, metadata={"names": json.dumps(list(names))}))
