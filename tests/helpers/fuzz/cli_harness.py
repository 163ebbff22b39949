"""What every command must do with any options: a known exit code, JSON or a table, one line of error, no traceback.

Shared by the bounded tests (`test_fuzz_cli.py`) and the coverage-guided search (`fuzz_cli.py`). Options come from the
commands themselves, so that a new one is tried too; values are chosen from pools of good and bad ones, small enough to
be solved at once.
"""

from __future__ import annotations

import enum
import json
import os
import typing
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import typer.models
from optgeom_cli.main import app
from typer.testing import CliRunner

import optgeom as og
from optgeom._numerics import Array

Draw = Callable[[int], int]  # draw(n): a whole number from 0 to n - 1

COMMANDS = ("solve", "loss", "threshold", "scan", "design", "realize", "validate", "profiles")
RUNS = ("recover", "train features", "train encoder")  # each runs a search or a training, kept small by how it starts
CODES = (0, 2, 3, 4, 5, 6)
LEFT_OUT = {"--help"}  # explains, and ends

NUMBERS = ("0.1", "1", "0.01", "100", "0.5", "0", "-1", "nan", "inf", "1e-300", "1e300", "x", "")
WHOLE = ("3", "2", "8", "1", "0", "-1", "2.5", "10000000", "99999999999999999999", "x")
ENDLESS = ("3", "256", "inf", "1", "2", "0", "-1", "nan", "1e7", "2.5", "1e400", "x", "")
GRIDS = (
    ".5,.9",
    ".1:.9:3",
    "1:100:3:log",
    "3,4",
    "2",
    "1",
    "1:2:0",
    "1:2:1000000000",
    "0:1:2:log",
    "a:b:c",
    "::",
    "",
    ",",
    "inf",
    "nan",
    "-1",
    "1:inf:3",
)
LISTS = (
    "900,50,50",
    ".5,.3,.2",
    "1,1",
    "5",
    "5,0,3",
    "-1,2",
    "nan,1",
    "inf,1",
    "1e308,1e308",
    "1,1e-320",
    "9223372036854775807,1",
    "a,b",
    "",
    ",",
    "1;2",
)
FILES = (
    "y.npy",
    "x.npz",
    "g.npz",
    "w.npy",
    "n.json",
    "t.csv",
    "s.csv",
    "broken.npz",
    "empty.csv",
    "none.npy",
    ".",
    "x.unknown",
    "no/x.npy",
)
TARGETS = ("o.json", "o.npz", "o.csv", "o.npy", "o.txt", "no/o.json", "o", ".", "o.parquet")
PICTURES = ("o.pdf.exe", "no/o.png", "o", ".", "o.svg")
NAMES = ("label", "X", "y", "a", "")
SMALL = ("3", "2", "1", "0", "-1", "2.5", "99999999999999999999", "x")
EVERY = (*SMALL, "10000000")
SHARES = ("0.5", "0", "1", "1e-9", "2", "-1", "nan", "inf", "x")

POOLS: dict[str, tuple[str, ...]] = {
    "--counts": LISTS,
    "--proportions": LISTS,
    "--split": LISTS,
    "--counts-file": FILES,
    "--labels": FILES,
    "--embeddings": FILES,
    "--geometry": FILES,
    "--weights": FILES,
    "--group-ids": FILES,
    "--profile": (
        "cifar10-lt:100",
        "exp:4:10",
        "step:3:2:100",
        "zipf:5:1",
        "majority:4:.9",
        "exp:1:1",
        "exp:4:0",
        "zipf:x:y",
        "none",
        ":",
        "",
        "zipf:3:1e9",
    ),
    "--sampler": ("instance", "balanced", "sqrt", "0.5", "-1", "50", "nan", "x"),
    "--negatives": ENDLESS,
    "--batch-size": ENDLESS,
    "--out": TARGETS,
    "--prototypes": TARGETS,
    "--plot": PICTURES,
    "--report": ("o.html", "no/o.html", ".", "o.txt"),
    "--dask": ("x", "", "no.json", "tcp://127.0.0.1:x"),  # none that is waited for
    "--sampling": ("ucl", "scl", "ucl,scl", "x", ""),
    "--workers": ("1", "0", "-1", "x"),
    "--seed": ("0", "1", "-1", "x", "99999999999999999999"),
    "--ignore-label": ("0", "-1", "x", ""),
    "--label-column": NAMES,
    "--vector-column": NAMES,
    "--group-column": NAMES,
}
SCAN = {
    "--majority": GRIDS,
    "--majority-odds": GRIDS,
    "--imbalance": GRIDS,
    "--classes": GRIDS,
    "--temperature": GRIDS,
    "--negatives": GRIDS,
    "--batch-size": GRIDS,
}


RECOVER = {
    "--dimension": (*SMALL, "50", "10000000"),
    "--kappa": (*NUMBERS, "1e6", "1e-9", "3.3"),
    "--fixed": SMALL,
    "--max-angle": ("30", "90", "180", "0.001", "1e-9", "0", "-1", "181", "nan", "inf", "x"),
    "--rho": SHARES,
    "--pairs": ("pairs.npz", "same.npz", "flat.npz", "odd.npz", "nan.npz", *FILES),
    "--dim": (*SMALL, "2000", "10000000"),
    "--slices": SMALL,
    "--per-slice": ("6", "10", *SMALL),
    "--resolution": NUMBERS,
    "--tolerance": ("1e-9", "1e-6", "1e-30", *NUMBERS),
}
TRAIN = {
    "--steps": ("3", "2", "1", "0", "-1", "2.5", "x"),
    "--dim": (*SMALL, "10000000"),
    "--anchors": (*SMALL, "64"),
    "--rows": ("4", *SMALL),
    "--batch-size": ("8", *ENDLESS),
    "--learning-rate": (*NUMBERS, "1e10"),
    "--average-from": SHARES,
    "--accumulate": SMALL,
    "--device": ("cpu", "auto", "cuda", "cuda:7", "cuda:", "cuda:x", "cpu:3", "cudax", "mps", ""),
    "--seed": ("0", "1", "-1", "x", "99999999999999999999", "18446744073709551615"),
    "--threads": ("1", "0", "-1", "x", "99999999999999999999"),
    "--log-every": EVERY,
    "--checkpoint-every": EVERY,
    "--out": ("run", "other", "x.npz", "no/run", ".", ""),
    "--data": ("digits", "images.npz", "rows.npz", "x.npz", "cifar10", "x", "", *FILES),
    "--data-root": (".", "no", "x.npz", ""),
    "--holdout": SHARES,
    "--arch": ("mlp", "cnn", "x"),
    "--noise": NUMBERS,
    "--shift": SMALL,
}
OWN = {"scan": SCAN, "recover": RECOVER, "train features": TRAIN, "train encoder": TRAIN}


def furnish(folder: Path) -> None:
    """Write the files that options name."""
    labels = np.repeat([0, 1, 2], [6, 3, 2])
    geometry = og.solve(og.ClassDistribution.from_counts([6, 3, 2]), og.SupCon(0.5))
    np.save(folder / "y.npy", labels)
    np.savez(
        folder / "x.npz",
        X=geometry.prototypes()[labels] + 0.05 * np.random.default_rng(0).normal(size=(11, 2)),
        y=labels,
    )
    np.save(folder / "w.npy", np.exp(-np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))))
    geometry.save(folder / "g.npz")
    og.scan(3, axes={"majority": [0.5]}).save(folder / "s.csv")
    _furnish_runs(folder)
    (folder / "n.json").write_text('{"a": 5, "b": 3}')
    (folder / "t.csv").write_text("e_0,e_1,label\n1,0,a\n0,1,b\n-1,0,a\n")
    (folder / "broken.npz").write_bytes((folder / "x.npz").read_bytes()[:100])
    (folder / "empty.csv").write_text("")
    (folder / "x.unknown").write_text("1\n")


def _furnish_runs(folder: Path) -> None:
    rng = np.random.default_rng(1)
    z = _unit(rng.normal(size=(60, 3)))
    np.savez(folder / "pairs.npz", z=z, z_plus=_unit(z + 0.3 * rng.normal(size=z.shape)))
    np.savez(folder / "same.npz", z=z, z_plus=z)
    np.savez(folder / "flat.npz", z=z, z_plus=z @ np.array([[0.8, 0.6, 0], [-0.6, 0.8, 0], [0, 0, 1]]))
    np.savez(folder / "odd.npz", z=z, z_plus=z[:, :2])
    np.savez(folder / "nan.npz", z=z, z_plus=np.where(z > 2 * z.max(), z, np.nan))
    labels = np.repeat([0, 1, 2], [8, 5, 3])
    np.savez(folder / "images.npz", X=rng.random((16, 1, 8, 8)), y=labels)
    np.savez(folder / "rows.npz", X=rng.normal(size=(16, 4)), y=labels)


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


@dataclass(frozen=True)
class Option:
    """An option of a command: its name, and the type of its value, bool for a flag."""

    name: str
    kind: type


def options_of(command: str) -> list[Option]:
    """Options as the command declares them; a flag with two names is two."""
    *group, name = command.split()
    within = next(held.typer_instance for held in app.registered_groups if held.name == group[0]) if group else app
    function = next(held.callback for held in within.registered_commands if held.name == name)
    found = []
    for hint in typing.get_type_hints(function, include_extras=True).values():
        declared = [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, typer.models.OptionInfo)]
        # In an annotation the first name stands where the default value does elsewhere.
        for names in (declared[0].default, *(declared[0].param_decls or ())) if declared else ():
            kinds = [
                kind
                for kind in (*typing.get_args(hint.__origin__), hint.__origin__)
                if isinstance(kind, type) and kind is not type(None)
            ]
            found += [Option(name, (kinds or [str])[0]) for name in names.split("/")]
    return [option for option in found if option.name not in LEFT_OUT]


OPTIONS = {command: options_of(command) for command in (*COMMANDS, *RUNS)}


def _pool(command: str, option: Option) -> tuple[str, ...]:
    if option.name in OWN.get(command, {}):
        return OWN[command][option.name]
    if option.name in POOLS:
        return POOLS[option.name]
    if issubclass(option.kind, enum.Enum):
        return (*(str(choice.value) for choice in option.kind), "x")
    return WHOLE if option.kind is int else NUMBERS


# What makes a command do something at all, so that not nearly every draw ends at the first check.
STARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "solve": (("--counts", "900,50,50"), ("--profile", "exp:4:10"), ("--labels", "y.npy"), ()),
    "loss": (("--counts", "900,50,50"), ("--rows", "8"), ("--simclr", "8"), ()),
    "threshold": ((), ("--counts", "900,50,50")),
    "scan": (("--majority", ".5,.9"), ("--imbalance", "1:100:3:log"), ()),
    "design": (
        ("--counts", "900,50,50", "--parameter", "temperature"),
        ("--counts", "9,5,1", "--parameter", "sampler"),
        (),
    ),
    "realize": (("--weights", "w.npy"), ("--labels", "y.npy", "--scheme", "soft-supcon", "--epsilon", "0.2"), ()),
    "validate": (("--embeddings", "x.npz"), ("--embeddings", "x.npz", "--geometry", "g.npz"), ()),
    "profiles": ((), ("cifar10-lt:100",), ("none",)),
    "recover": (
        ("--slices", "4", "--per-slice", "5"),
        ("--slices", "4", "--per-slice", "5", "--fixed", "1"),
        ("--slices", "6", "--per-slice", "3", "--max-angle", "60"),
        ("--slices", "4", "--per-slice", "5", "--pairs", "pairs.npz"),
    ),
    "train features": (
        ("--counts", "9,5,1", "--steps", "3", "--batch-size", "8"),
        ("--counts", "9,5,1", "--steps", "3", "--loss", "infonce", "--negatives", "4", "--anchors", "16"),
        ("--counts", "9,5,1", "--exact"),
    ),
    "train encoder": (
        ("--data", "rows.npz", "--steps", "3", "--batch-size", "8", "--dim", "4"),
        ("--data", "images.npz", "--steps", "3", "--loss", "infonce", "--negatives", "4", "--rows", "6", "--dim", "4"),
    ),
}


def compose(draw: Draw, commands: Sequence[str] = (*COMMANDS, *RUNS)) -> list[str]:
    """A command with options, from any source of whole numbers."""
    command = commands[draw(len(commands))]
    starts = STARTS[command]
    arguments = [*command.split(), *starts[draw(len(starts))]]
    for _ in range(draw(5)):
        option = OPTIONS[command][draw(len(OPTIONS[command]))]
        arguments.append(option.name)
        if option.kind is not bool:
            pool = _pool(command, option)
            arguments.append(pool[draw(len(pool))])
    return [*arguments, "--json"] if draw(2) and "--json" not in arguments else arguments


def attack(arguments: list[str], folder: Path) -> int:
    """Run the command in `folder`; its exit code. Anything that it may not do is raised."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            done = CliRunner().invoke(app, arguments)
    finally:
        os.chdir(before)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in CODES, f"exit code {done.exit_code}"
    lines = done.stderr.splitlines()
    assert "Traceback" not in done.stderr and all(map(str.strip, lines))
    assert not [name for name in os.listdir(folder) if name.startswith(".")], "a temporary file was left"
    if done.exit_code == 0 or done.exit_code == 4:
        if "--json" in arguments:
            assert done.stdout.count("\n") == 1
            found = json.loads(done.stdout, parse_constant=lambda name: _raise(f"{name} in JSON"))
            assert isinstance(found, dict)
        else:
            assert done.stdout.strip() and "Traceback" not in done.stdout
    else:
        assert done.stdout == ""
    told = [line for line in lines if "left out" not in line and "converted to column numbers" not in line]
    assert len(told) == (done.exit_code != 0), f"not one line: {lines}"
    return int(done.exit_code)


def _raise(message: str) -> None:
    raise AssertionError(message)
