"""Writers that are interrupted.

The old file stays whole, no half file appears, and what a killed process left is removed by the next write.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import run

import optgeom as og
from optgeom.inputs import files

ROOT = Path(__file__).parents[2]
GEOMETRIES = [og.solve(og.ClassDistribution.from_counts(counts), og.SupCon(0.5)) for counts in ([5, 3, 1], [9, 3, 1])]
SCANS = [og.scan(3, axes={"majority": share, "temperature": 0.5}) for share in ([0.4], [0.4, 0.9])]


def _figure(path: Path, version: int) -> None:
    from optgeom.plotting import plot_geometry, save_figure

    save_figure(plot_geometry(GEOMETRIES[version]), path)


def _validated(*options: str) -> Callable[[Path, int], Any]:
    def write(path: Path, version: int) -> None:
        np.savez(
            path.parent.parent / "x.npz",
            X=GEOMETRIES[version].prototypes().repeat(4, axis=0),
            y=np.repeat([0, 1, 2], 4),
        )
        _ended(run("validate", "--embeddings", path.parent.parent / "x.npz", "--counts", "5,3,1", *options, path))

    return write


def _realized(path: Path, version: int) -> None:
    np.save(path.parent.parent / "y.npy", np.arange(5.0) + version)
    given = ("--labels", path.parent.parent / "y.npy", "--scheme", "y-aware", "--bandwidth", 1 + version)
    _ended(run("realize", *given, "--similarity", "euclidean", "--out", path))


def _checkpoint(path: Path, version: int) -> None:
    pytest.importorskip("torch")
    from optgeom.training import checkpoint

    checkpoint.save(path, {"step": version})


def _ended(done: Any) -> None:
    if done.exit_code or done.exception is not None:
        raise done.exception or AssertionError(done.output)


# File -> how version 0 or 1 of it is written.
WRITERS: dict[str, Callable[[Path, int], Any]] = {
    **{name: lambda path, version: GEOMETRIES[version].save(path) for name in ("geometry.npz", "geometry.json")},
    **{
        f"prototypes{suffix}": lambda path, version: GEOMETRIES[version].save_prototypes(path)
        for suffix in (".npy", ".npz", ".csv", ".pt", ".safetensors")
    },
    **{name: lambda path, version: SCANS[version].save(path) for name in ("scan.csv", "scan.parquet")},
    "resumed.csv": lambda path, version: og.scan(
        3, axes={"majority": [0.4, 0.9][: 1 + version], "temperature": 0.5}, out=path
    ),
    **{f"figure{suffix}": _figure for suffix in (".png", ".svg", ".pdf")},
    "validation.json": _validated("--out"),
    "report.html": _validated("--report"),
    "embedding.npy": _realized,
    "embedding.csv": _realized,
    "checkpoint.pt": _checkpoint,
}


class Stopped(BaseException):
    """As a signal that ends a program: no Exception."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.mark.parametrize("name", WRITERS)
def test_stopped_half_way(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the last moment: all is under another name, of which only half has reached the disk."""
    path = place / name
    WRITERS[name](path, 0)
    before = path.read_bytes()
    stopped = []

    def half(source: Path, target: Path) -> None:
        assert Path(target) == path and Path(source).parent == place and path.read_bytes() == before
        os.truncate(source, os.path.getsize(source) // 2)
        stopped.append(source)
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", half)
        with pytest.raises(Stopped):
            WRITERS[name](path, 1)
    assert len(stopped) == 1
    assert os.listdir(place) == [name] and path.read_bytes() == before
    WRITERS[name](path, 1)
    assert os.listdir(place) == [name] and path.read_bytes() != before


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_one_line(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place / name

    def full(source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises((og.InvalidInputError, SystemExit)) as caught:
        WRITERS[name](path, 0)
    assert os.listdir(place) == []
    if isinstance(caught.value, og.InvalidInputError):
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    else:
        assert caught.value.code == 3


KILLED = """
import os, signal, sys
sys.path[:0] = {tests!r}
from pathlib import Path
import test_interrupted
path = Path(sys.argv[1])

def half(source, target):
    os.truncate(source, os.path.getsize(source) // 2)
    os.kill(os.getpid(), signal.SIGKILL)

os.replace = half
test_interrupted.WRITERS[path.name](path, 1)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("name", ["geometry.npz", "resumed.csv"])
def test_killed_half_way(name: str, place: Path) -> None:
    path = place / name
    WRITERS[name](path, 0)
    before = path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(tests=[str(ROOT / "tests"), str(Path(__file__).parent)]), str(path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.read_bytes() == before
    left = [entry for entry in os.listdir(place) if entry != name]
    assert len(left) == 1 and left[0].startswith(".")
    WRITERS[name](path, 1)
    assert os.listdir(place) == [name], "the next write removes what was left"


def test_only_leftovers_are_removed(place: Path) -> None:
    files.write_text(place / "a.csv", "1")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    mark = f"{files._machine()}-{gone.pid}-0123abcd"
    kept = {
        f".a.{files._machine()}-{os.getpid()}-0123abcd.csv",  # of a process that runs
        f".a.0000000-{gone.pid}-0123abcd.csv",  # of another machine
        f".b.{mark}.csv",  # of another file
        f".a.{mark}.json",
        "a.csv",
    }
    for name in kept | {f".a.{mark}.csv"}:
        (place / name).write_text("x")
    files.write_text(place / "a.csv", "2")
    assert set(os.listdir(place)) == kept


# Functions that write, with the number of the argument that they write to.
WRITES = {
    "np.save": 0,
    "np.savez": 0,
    "np.savez_compressed": 0,
    "np.savetxt": 0,
    "torch.save": 1,
    "json.dump": 1,
    "pq.write_table": 1,
}
ELSEWHERE = {
    "temporary",
    "buffer",
    "content",
    "written",
    "files",
    "",  # a function of optgeom.inputs.files, imported by its name
}  # what is not yet the file: memory, or the name that is renamed


def written_to(call: ast.Call) -> str | None:
    """The target of a call that writes; None for any other call."""
    name = ast.unparse(call.func)
    owner, _, method = name.rpartition(".")
    if method in ("write_text", "write_bytes"):
        return owner
    if method == "open":
        values = [
            part.value
            for part in (*call.args, *(word.value for word in call.keywords))
            if isinstance(part, ast.Constant)
        ]
        return name if {"w", "x", "wb", "xb"} & set(map(str, values)) else None
    if method == "savefig":
        return ast.unparse(call.args[0])
    return ast.unparse(call.args[WRITES[name]]) if name in WRITES else None


@pytest.mark.parametrize("room", ["optgeom", "cli", "docs"])
def test_nobody_writes_in_another_way(room: str) -> None:
    seen = 0
    for path in sorted((ROOT / room).rglob("*.py")):
        if path.name == "files.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            target = written_to(node) if isinstance(node, ast.Call) else None
            if target is not None:
                seen += 1
                assert target in ELSEWHERE, (
                    f"{path.name}, line {node.lineno}: writes to {target} (write through optgeom.inputs.files)"
                )
    assert seen > 0
