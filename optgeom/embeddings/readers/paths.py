"""Which files a path, a folder or a pattern stands for."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection
from pathlib import Path

from optgeom.embeddings.readers import projector
from optgeom.embeddings.readers.shards import natural_key
from optgeom.errors import InvalidInputError
from optgeom.inputs.tables import LABEL_COLUMNS

KINDS = {
    ".npy": "npy",
    ".npz": "npz",
    ".pt": "torch",
    ".pth": "torch",
    ".safetensors": "safetensors",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
_LABEL_SUFFIXES = (*KINDS, ".txt", ".json")


def suffix(path: str) -> str:
    """The ending of a path, in lower case."""
    return Path(path).suffix.lower()


def matches(path: str) -> list[str]:
    """The file itself, or the files of a pattern with ``*``, ``?`` or ``[...]`` in natural order."""
    if not os.path.lexists(path) and glob.has_magic(path):
        return sorted((found for found in glob.glob(path, recursive=True) if os.path.isfile(found)), key=natural_key)
    return [path]


def embedding_files(path: str, apart: Collection[str]) -> list[str]:
    """Files of one kind, in natural order.

    Those of a folder or a pattern without `apart`, the files of labels and group ids.
    """
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
                f"{file}: embeddings must be in {', '.join(KINDS)}, or a folder or a pattern of them; got the suffix {suffix(file)!r} "
                "(save the embeddings in one of these)"
            )
        if KINDS[suffix(file)] != KINDS[suffix(files[0])]:
            raise InvalidInputError(
                f"{path}: all shards must be of one kind; got {files[0]} and {file} (choose by a pattern such as '*{suffix(files[0])}')"
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
