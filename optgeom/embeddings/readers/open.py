"""Open embeddings of any kind of file, alone, in shards, or with labels in a file of their own."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.embeddings.readers import projector, safetensors, torch_files
from optgeom.embeddings.readers.arrow_tables import open_parquet
from optgeom.embeddings.readers.csv_table import open_csv
from optgeom.embeddings.readers.file_source import Content, FileSource, ShardedSource, deal_out, natural_key
from optgeom.embeddings.readers.layout import Wanted
from optgeom.embeddings.readers.numpy_files import open_npy, open_npz
from optgeom.embeddings.readers.values import column, label_column, unreadable
from optgeom.errors import InvalidInputError
from optgeom.inputs.files import open_regular
from optgeom.inputs.tables import LABEL_COLUMNS, read_labels

KINDS: dict[str, Callable[[str, Wanted], Content]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".pt": torch_files.open_torch,
    ".pth": torch_files.open_torch,
    ".safetensors": safetensors.open_safetensors,
    ".csv": open_csv,
    ".tsv": open_csv,
    ".parquet": open_parquet,
}
_LABEL_SUFFIXES = (*KINDS, ".txt", ".json")


def suffix(path: str) -> str:
    """The ending of a path, in lower case."""
    return Path(path).suffix.lower()


def matches(path: str) -> list[str]:
    """The file itself, or the files of a pattern with ``*``, ``?`` or ``[...]`` in natural order."""
    if not os.path.lexists(path) and glob.has_magic(path):
        return sorted((match for match in glob.glob(path, recursive=True) if os.path.isfile(match)), key=natural_key)
    return [path]


def embedding_files(path: str, apart: Collection[str]) -> list[str]:
    """Files of one kind, in natural order, without `apart`: files of labels and group ids in the same folder."""
    if os.path.isdir(path):
        names = os.listdir(path)
        vectors = [name for name in projector.NAMES if name in names]
        inside = [
            os.path.join(path, name)
            for name in vectors[:1] or names
            if suffix(name) in KINDS and not name.startswith(".")
        ]
        files = sorted((file for file in inside if os.path.isfile(file)), key=natural_key)
    else:
        files = matches(path)
    if files != [path]:
        real = {os.path.realpath(file) for file in apart}
        files = [file for file in files if os.path.realpath(file) not in real]
    if not files:
        raise InvalidInputError(
            f"{path}: there must be at least one file of embeddings ({', '.join(KINDS)}); got none (check the path)"
        )
    for file in files:
        if suffix(file) not in KINDS:
            raise InvalidInputError(
                f"{file}: embeddings must be in {', '.join(KINDS)}, or a folder or a pattern of them; "
                f"got the suffix {suffix(file)!r} (save the embeddings in one of these)"
            )
        if KINDS[suffix(file)] != KINDS[suffix(files[0])]:
            raise InvalidInputError(
                f"{path}: all shards must be of one kind; got {files[0]} and {file} "
                f"(choose by a pattern such as '*{suffix(files[0])}')"
            )
    return files


def labels_in(folder: str) -> str | None:
    """The one file in a folder that is named as labels are, such as labels.npy; None if there is none or no folder."""
    if not os.path.isdir(folder):
        return None
    named = [
        name
        for name in os.listdir(folder)
        if Path(name).stem.lower() in LABEL_COLUMNS and suffix(name) in _LABEL_SUFFIXES
    ]
    if len(named) > 1:
        raise InvalidInputError(
            f"{folder}: the labels must be one file; got {', '.join(sorted(named))} (choose by `labels`)"
        )
    return os.path.join(folder, named[0]) if named else None


def open_embeddings(
    path: str | os.PathLike[str],
    *,
    labels: Any = None,
    label_column: str | None = None,
    group_ids: Any = None,
    group_column: str | None = None,
    vector_column: str | None = None,
) -> FileSource | ShardedSource:
    """Open a file of embeddings, or several, to be read in batches.

    Headers are read and checked now, rows later; a file larger than memory is read piece by piece, as often as wanted.
    Nothing is ever unpickled or evaluated. NaN, infinite and zero rows are judged by those who compute with them.

    Parameters
    ----------
    path : str or path-like
        By suffix:

        * ``.npy``: an array (n, d), or (n, V, d) with V views of each image; read by memory map. Labels are apart.
        * ``.npz``, ``.safetensors``, ``.pt``, ``.pth``: arrays ``X`` and ``y``, ``embeddings`` and ``labels``,
          ``features`` and ``targets``, or ``data`` and ``targets``; else the only table and, if it is there, the array
          named as labels are. A ``.pt`` may also be a tensor or a pair (X, y); it is loaded with
          ``weights_only=True`` and needs PyTorch. bfloat16 is read as float32.
        * ``.csv``, ``.tsv``: a header line, then numbered columns such as ``embedding_0``, ``embedding_1``, ...
          (taken by number, from 0 or 1), or one column with vectors as text (``[0.1, 0.2]``, ``[0.1 0.2]``,
          ``0.1 0.2``); numbers are read as float64, labels as text. Without a header line, all columns are the
          embedding and `labels` must be given.
          Needs pyarrow.
        * ``.parquet``: a column of lists or of lists of fixed size (float16, float32, float64), or numbered columns.
          Needs pyarrow.
        * ``vectors.tsv`` or ``tensors.tsv`` of the embedding projector, with ``metadata.tsv`` beside it: a single
          column of labels without a header line, or several columns with one.

        A folder, or a pattern such as ``out/shard-*.npz``, is read as shards, in natural order (2 before 10), all of
        one of these kinds and with rows of the same shape. Whole numbers of any type become floats.
    labels : array (n,), path or pattern, optional
        Labels apart from the embeddings, in their order; they go before those in the file. A path is read by
        `inputs.tables.read_labels`, or is a ``.pt`` or ``.safetensors`` with one column. For shards: one column for all
        in order, or a pattern of as many files as there are shards. By default, labels are those in the file, or in a
        folder the file named ``labels``, ``targets``, ``y``, ...; without any, batches have no labels.
    label_column : str, optional
        Column or array of the labels in the file; by default ``label``, ``labels``, ``target``, ``targets``, ``y`` or
        ``class``.
    group_ids, group_column
        The same for the id of the image that a row is a view of; by default there is none.
    vector_column : str, optional
        Column or array of the embeddings, where several could be, or the part before the number of numbered columns.

    Returns
    -------
    FileSource or ShardedSource
        A `Source` that may be read again and pickled: it holds paths, not open files. `ShardedSource.shards` gives a
        source for each file.

    Raises
    ------
    InvalidInputError
        The file is missing, cut off, of no known kind, or does not hold numbers of one shape; labels and rows differ in
        number; it is unclear which array or column is meant. The message names the first row or line at fault.
    MissingDependencyError
        pyarrow or PyTorch is needed and not there.
    """
    name = os.fspath(path)
    if labels is not None and label_column is not None:
        raise InvalidInputError(
            f"{name}: `labels` and `label_column` must not both be given; got {label_column!r} (give one of them)"
        )
    if group_ids is not None and group_column is not None:
        raise InvalidInputError(
            f"{name}: `group_ids` and `group_column` must not both be given; got {group_column!r} (give one of them)"
        )
    if labels is None and label_column is None:
        labels = labels_in(name)
    wanted = Wanted(vector_column, label_column, group_column, labels_apart=labels is not None)
    apart = [
        file
        for given in (labels, group_ids)
        if isinstance(given, (str, os.PathLike))
        for file in matches(os.fspath(given))
    ]
    files = embedding_files(name, apart)
    parts = [_open_file(file, wanted) for file in files]
    label_pieces = _pieces("`labels`", labels, parts)
    group_pieces = _pieces("`group_ids`", group_ids, parts)
    opened = tuple(
        FileSource(part.content, part.labels if given is None else given, part.groups if groups is None else groups)
        for part, given, groups in zip(parts, label_pieces, group_pieces, strict=True)
    )
    return opened[0] if len(opened) == 1 else ShardedSource(name, opened)


def _open_file(path: str, wanted: Wanted) -> FileSource:
    if not os.path.exists(path):
        raise InvalidInputError(f"cannot read the embeddings file {path}: it does not exist (check the path)")
    try:
        open_regular(path).close()
    except OSError as error:
        raise unreadable(path, error) from error
    if os.path.basename(path) in projector.NAMES:
        return projector.open_projector(path, wanted)
    return FileSource(KINDS[suffix(path)](path, wanted))


def _pieces(what: str, given: Any, parts: list[FileSource]) -> list[npt.NDArray[Any] | None]:
    """What was given apart, for each file."""
    if given is None:
        return [None] * len(parts)
    read = label_column if what == "`labels`" else column
    if not isinstance(given, (str, os.PathLike)):
        values = read(what, given)
    else:
        files = matches(os.fspath(given))
        if not files or (len(files) > 1 and len(files) != len(parts)):
            raise InvalidInputError(
                f"{what} must be one file, or as many as the {len(parts)} of the embeddings; "
                f"got {len(files)} files of {given} (check the pattern)"
            )
        if len(files) > 1:
            return [read(f"{file}: {what}", _read_column(file)) for file in files]
        values = read(f"{files[0]}: {what}", _read_column(files[0]))
        what = f"{files[0]}: {what}"
    if len(parts) == 1:
        return [values]
    return list(deal_out(what, values, parts))


def _read_column(path: str) -> npt.NDArray[Any]:
    if suffix(path) not in (".pt", ".pth", ".safetensors"):
        return read_labels(path)
    arrays = safetensors.label_tensors(path) if suffix(path) == ".safetensors" else torch_files.label_tensors(path)
    named = [name for name in arrays if name.lower() in LABEL_COLUMNS] or list(arrays)
    if len(named) != 1:
        raise InvalidInputError(
            f"{path}: the labels must be the one-dimensional tensor `labels`, or the only one; got "
            f"{', '.join(arrays) or 'none'} (rename it)"
        )
    return np.asarray(arrays[named[0]])
