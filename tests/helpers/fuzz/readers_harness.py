"""What every reader must do with any bytes: an answer of the right shape or an error of optgeom, and nothing unpickled.

Shared by the bounded tests (`test_fuzz_readers.py`) and the coverage-guided search (`fuzz_readers.py`).
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import optgeom as og
from optgeom.embeddings.readers.open import open_embeddings
from optgeom.errors import OptGeomError
from optgeom.inputs.tables import read_counts, read_labels

RNG = np.random.default_rng(3)
X = RNG.normal(size=(7, 3)).astype(np.float32)
Y = np.arange(7) * 5 % 3
WEIGHTS = np.exp(-np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0))))


@dataclass(frozen=True)
class Target:
    """A reader with files that it reads well.

    Attributes
    ----------
    file : str
        Name of the file that is changed; its ending chooses the reader.
    seeds : tuple of bytes
        Valid contents.
    read : callable
        Reads the file in a folder to its end, and checks that what came out hangs together.
    beside : dict of str to bytes
        Other files in the folder.
    """

    file: str
    seeds: tuple[bytes, ...]
    read: Callable[[Path], Any]
    beside: tuple[tuple[str, bytes], ...] = ()


def _rows(path: Path, labels: Any = None) -> None:
    source = open_embeddings(path, labels=labels)
    start, width = 0, None
    for batch in source.batches(4):
        assert batch.rows.dtype.kind == "f" and batch.rows.ndim in (2, 3) and batch.start == start
        assert width in (None, batch.rows.shape[1:])
        width = batch.rows.shape[1:]
        assert batch.labels is None or len(batch.labels) == len(batch.rows)
        start += len(batch.rows)
    assert start > 0 and source.num_rows in (None, start)


def _apart(path: Path) -> None:
    _rows(path, [str(number) for number in range(7)])


def _projector(path: Path) -> None:
    _rows(path.with_name("vectors.tsv"))


def _labels_of_rows(path: Path) -> None:
    _rows(path.with_name("x.npy"), path)


def _counts(path: Path) -> None:
    table = read_counts(path)
    assert table.names is None or len(table.names) == len(table.counts)
    classes = og.ClassDistribution.from_counts(table.counts, table.names, drop_empty=True)
    assert abs(classes.proportions.sum() - 1) < 1e-12 and (classes.proportions > 0).all()


def _labels(path: Path) -> None:
    found = read_labels(path)
    assert isinstance(found, np.ndarray)
    classes = og.ClassDistribution.from_labels(found)
    assert classes.counts is not None and classes.num_classes >= 2 and classes.counts.sum() <= len(found)


def _geometry(path: Path) -> None:
    found = og.Geometry.load(path)
    assert found.gram.shape == (found.num_classes, found.num_classes)


def _scan(path: Path) -> None:
    found = og.Scan.load(path)
    assert all(len(found.column(name)) == len(found) for name in ("temperature", "risk", "regime", "certified"))
    found.paths()


def _weights(path: Path) -> None:
    from optgeom_cli.realize import _matrix

    found = og.Weights.from_matrix(_matrix(path))
    assert found.index.shape == (found.n,)


def _soft_labels(path: Path) -> None:
    from optgeom.inputs.tables import read_label_table

    og.Weights.y_aware(read_label_table(path).values)


def _saved(save: Callable[..., None], *arguments: Any, **named: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *arguments, **named)
    return buffer.getvalue()


def _written(write: Callable[[Path], Any], name: str) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()


def _lines(rows: list[list[Any]], mark: str) -> bytes:
    return "".join(mark.join(map(str, row)) + "\n" for row in rows).encode()


def _safetensors() -> bytes:
    body = X.tobytes() + Y.astype("<i8").tobytes()
    header = {
        "embeddings": {"dtype": "F32", "shape": [7, 3], "data_offsets": [0, 84]},
        "labels": {"dtype": "I64", "shape": [7], "data_offsets": [84, 140]},
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _parquet() -> tuple[bytes, ...]:
    import pyarrow
    from pyarrow import parquet

    tables = (
        pyarrow.table({"embedding": X.tolist(), "label": Y}),
        pyarrow.table({"e_0": X[:, 0], "e_1": X[:, 1], "label": pyarrow.array(list("abcabca")).dictionary_encode()}),
    )
    return tuple(_saved(lambda file, table=table: parquet.write_table(table, file)) for table in tables)


def _torch() -> tuple[bytes, ...]:
    import torch

    held = {"X": torch.from_numpy(X), "y": torch.from_numpy(Y)}
    return tuple(
        _saved(lambda file, how=how: torch.save(held, file, _use_new_zipfile_serialization=how))
        for how in (True, False)
    )


def targets() -> dict[str, Target]:
    """Every reader, by name; those whose packages are missing are left out."""
    geometry = og.solve(og.ClassDistribution.from_counts([9, 3, 1]), og.SupCon(0.5))
    scan = og.scan(3, axes={"majority": [0.4, 0.9], "temperature": 0.5})
    wide = _lines(
        [["e_0", "e_1", "e_2", "label"], *[[*row, label] for row, label in zip(X.tolist(), "abcabca", strict=True)]],
        ",",
    )
    text = _lines([["vector", "label"], *[[f'"{row}"', label] for row, label in zip(X.tolist(), Y, strict=True)]], ",")
    bare = _lines(X.tolist(), ",")
    vectors, metadata = _lines(X.tolist(), "\t"), _lines([["label", "file"], *[[label, "a.png"] for label in Y]], "\t")

    def sparse(file: Any) -> None:
        from scipy.sparse import csr_matrix, save_npz

        save_npz(file, csr_matrix(WEIGHTS))

    found = {
        "npy": Target(
            "x.npy",
            (_saved(np.save, X), _saved(np.save, np.asfortranarray(X.astype(">f8"))), _saved(np.save, X[None])),
            _rows,
        ),
        "npz": Target(
            "x.npz", (_saved(np.savez, X=X, y=Y), _saved(np.savez_compressed, X=X.T.copy().T, y=Y.astype(str))), _rows
        ),
        "safetensors": Target("x.safetensors", (_safetensors(),), _rows),
        "csv": Target("x.csv", (wide, text, wide.replace(b",", b";")), _rows),
        "csv without a header": Target("x.csv", (bare,), _apart),
        "projector": Target("vectors.tsv", (vectors,), _rows, (("metadata.tsv", metadata),)),
        "metadata": Target(
            "metadata.tsv", (metadata, _lines([[label] for label in Y], "")), _projector, (("vectors.tsv", vectors),)
        ),
        "counts": Target(
            "n.txt",
            (
                b"[900, 50, 0]",
                b'{"a": 900, "b": 5e1}',
                b'{"counts": [5, 4], "names": ["x", "y"]}',
                b"class,count\ncat,900\ndog,50\n",
                b"900\n50\n2760885855\n",
                b"a/1.jpg 0\na/2.jpg 1\na/3.jpg 1\n",
            ),
            _counts,
        ),
        "labels npy": Target(
            "y.npy", (_saved(np.save, Y), _saved(np.save, Y.astype(str)), _saved(np.save, np.eye(3)[Y])), _labels
        ),
        "labels npz": Target("y.npz", (_saved(np.savez, labels=Y), _saved(np.savez_compressed, a=Y, b=X)), _labels),
        "labels csv": Target("y.csv", (b"id,label\n0,cat\n1,dog\n2,cat\n", b"label\n0\n1\n1\n"), _labels),
        "labels txt": Target("y.txt", (b"0\n1\n1\n", "ä\nb\nb\n".encode()), _labels),
        "labels json": Target("y.json", (b"[0, 1, 1]", b'["a", "b", "b"]'), _labels),
        "geometry npz": Target("g.npz", (_written(geometry.save, "g.npz"),), _geometry),
        "geometry json": Target("g.json", (_written(geometry.save, "g.json"),), _geometry),
        "scan csv": Target("s.csv", (_written(scan.save, "s.csv"),), _scan),
        "weights npy": Target("w.npy", (_saved(np.save, WEIGHTS),), _weights),
        "weights npz": Target("w.npz", (_saved(sparse),), _weights),
        "soft labels": Target("t.csv", (_lines(X.tolist(), ","), b"age\n1\n2\n4\n"), _soft_labels),
    }
    with contextlib.suppress(ImportError):
        found["parquet"] = Target("x.parquet", _parquet(), _rows)
        found["scan parquet"] = Target("s.parquet", (_written(scan.save, "s.parquet"),), _scan)
    with contextlib.suppress(ImportError):
        found["torch"] = Target("x.pt", _torch(), _rows)
        found["labels torch"] = Target("y.pt", _torch(), _labels_of_rows, (("x.npy", _saved(np.save, X)),))
    return found


_watching = [False]


def _no_pickles(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching[0] and event == "pickle.find_class":
        raise AssertionError(f"unpickled {arguments}")


sys.addaudithook(_no_pickles)


@contextlib.contextmanager
def never_unpickling() -> Iterator[None]:
    """Nothing may look up a class for a pickle in this block."""
    _watching[0] = True
    try:
        yield
    finally:
        _watching[0] = False


def attack(target: Target, content: bytes, folder: Path) -> str | None:
    """Read `content`; None when it was read, the message when it was refused.

    Anything else, warnings too, is raised.
    """
    for name, beside in target.beside:
        (folder / name).write_bytes(beside)
    path = folder / target.file
    path.write_bytes(content)
    with warnings.catch_warnings(), never_unpickling():
        warnings.simplefilter("error")
        try:
            target.read(path)
        except OptGeomError as error:
            message = str(error)
            assert message and "\n" not in message, f"not one line: {message!r}"
            return message
    return None
