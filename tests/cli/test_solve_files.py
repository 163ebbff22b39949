"""optgeom solve: the files that it writes, the real process, and its progress."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from helpers import command_line
from optgeom_cli.main import app
from typer.testing import CliRunner

import optgeom as og
from optgeom import progress

KEYS = command_line.SOLVE_KEYS

run = partial(command_line.run, "solve")
solved = partial(command_line.answer, "solve")
words = command_line.plain


# ----------------------------------------------------------------------------------------------------------------------
# files


def test_files(tmp_path):
    counts = ("--counts", "900,300,50")
    out, vectors, picture = tmp_path / "g.npz", tmp_path / "v.npy", tmp_path / "p.png"
    done = run(*counts, "--out", out, "--prototypes", vectors, "--plot", picture)
    assert done.exit_code == 0, done.output
    for path in (out, vectors, picture):
        assert path.name in done.stdout.replace("\n", "")
    gram = np.array(solved(*counts)["gram"])
    assert og.Geometry.load(out).gram == pytest.approx(gram, abs=1e-14)
    table = np.load(vectors)
    assert table @ table.T == pytest.approx(gram, abs=1e-12)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g.npz", "p.png", "v.npy"]


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--out", "g.json"),
        ("--prototypes", "v.csv"),
        ("--prototypes", "v.npz"),
        ("--plot", "p.svg"),
        ("--plot", "p.pdf"),
    ],
)
def test_other_formats(option, name, tmp_path):
    assert run("--counts", "9,3", option, tmp_path / name).exit_code == 0
    assert (tmp_path / name).stat().st_size > 20


@pytest.mark.parametrize(("name", "module"), [("v.pt", "torch"), ("v.safetensors", "safetensors")])
def test_formats_of_extras(name, module, tmp_path):
    library = pytest.importorskip(module if module == "torch" else "safetensors.numpy")
    assert run("--counts", "9,3,1", "--prototypes", tmp_path / name, "--dim", 5).exit_code == 0
    if module == "torch":
        table = library.load(tmp_path / name, weights_only=True)["prototypes"].numpy()
    else:
        table = library.load_file(tmp_path / name)["prototypes"]
    assert table.shape == (3, 5) and table @ table.T == pytest.approx(
        np.array(solved("--counts", "9,3,1")["gram"]), abs=1e-12
    )


def test_prototypes_of_a_bracket_have_the_dimension(tmp_path):
    assert run("--profile", "exp:6:5", "--dim", 2, "--prototypes", tmp_path / "v.npy").exit_code == 0
    assert np.load(tmp_path / "v.npy").shape == (6, 2)


def test_prototypes_in_several_formats(tmp_path):
    first, second = tmp_path / "v.npy", tmp_path / "v.csv"
    done = run("--counts", "9,3,1", "--prototypes", first, "--prototypes", second)
    assert done.exit_code == 0 and words(done.stdout).count("the class means as unit vectors") == 2
    table = np.loadtxt(second, delimiter=",", skiprows=1, usecols=range(1, 1 + np.load(first).shape[1]))
    np.testing.assert_allclose(table, np.load(first), atol=1e-15)


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (
            ["--prototypes", "v.npy", "--prototypes", "./v.npy"],
            2,
            "--prototypes and --prototypes must be different files; got 'v.npy' for",
        ),
        (
            ["--prototypes", "v.npy", "--prototypes", "v.jpg"],
            2,
            "--prototypes must end in .npy, .npz, .csv, .pt, .safetensors; got 'v.jpg'",
        ),
        (["--out", "g.txt"], 2, "--out must end in .npz, .json; got 'g.txt'"),
        (["--prototypes", "v"], 2, "--prototypes must end in .npy, .npz, .csv, .pt, .safetensors; got 'v'"),
        (["--plot", "p.jpg"], 2, "--plot must end in .png, .svg, .pdf; got 'p.jpg'"),
        (
            ["--out", "g.npz", "--prototypes", "./g.npz"],
            2,
            "--out and --prototypes must be different files; got 'g.npz' for both",
        ),
        (["--temperature", "warm"], 2, "Invalid value for '--temperature': "),
        (["--temprature", "1"], 2, "No such option: --temprature "),
        (["--dim"], 2, "Option '--dim' requires an argument"),
        (
            ["--out", "no/such/g.npz"],
            3,
            "cannot write no/such/g.npz: the folder no/such does not exist (make it first)",
        ),
        (["--out", "f.npz"], 3, "cannot write f.npz: it is a folder (give a file name)"),
        (["--temperature", "0"], 3, "`temperature` must be > 0; got 0.0 (usual values are 0.05 to 1)"),
        (["--loss", "infonce", "--negatives", "0"], 3, "`negatives` must be a whole number >= 1 or inf; got 0"),
        (["--dim", "0"], 3, "`dim` must be a whole number >= 1; got 0"),
        (["--tolerance", "-1"], 3, "`tolerance` must be > 0; got -1.0"),
        (
            ["--loss", "supcon-full", "--sampler", "sqrt"],
            3,
            "`classes` must hold whole counts for the full-batch SupCon loss",
        ),
        (
            ["--loss", "supcon", "--batch-size", "2", "--views", "1"],
            3,
            "`batch_size` must be a whole number >= 3 or inf; got 2",
        ),
    ],
)
def test_wrong_use_is_one_line_before_any_work(options, code, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.npz").mkdir()
    done = run("--counts", "5,3", *options)
    assert done.exit_code == code and done.stdout == ""
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["f.npz"]


def test_not_certified_is_shown_but_not_written(tmp_path):
    arguments = ("--counts", "9,3,1", "--tolerance", "1e-40", "--out", tmp_path / "g.npz")
    done = run(*arguments, "--json")
    assert done.exit_code == 4 and json.loads(done.stdout)["certificate"]["certified"] is False
    assert (
        done.stderr.count("\n") == 1
        and "is not certified: the duality gap is" in done.stderr
        and "(no file was written)" in done.stderr
    )
    assert not list(tmp_path.iterdir())
    done = run(*arguments)
    assert done.exit_code == 4 and "NOT certified: the duality gap is" in words(done.stdout)


def test_solver_that_does_not_suit(monkeypatch):
    from optgeom.solvers import api

    def fails(*arguments, **options):
        raise og.SolverError("the solver diverged")

    monkeypatch.setattr(api, "drive", fails)
    done = run("--counts", "5,3")
    assert done.exit_code == 5 and done.stderr == "the solver diverged\n"


def test_unknown_command_is_one_line():
    done = CliRunner().invoke(app, ["sovle"])
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.startswith("No such command 'sovle'") and done.stderr.count("\n") == 1


def test_too_many_different_classes_are_one_line(monkeypatch):
    from optgeom.solvers import api

    def fails(*arguments, **options):
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setattr(api, "drive", fails)
    done = run("--counts", "5,3")
    assert done.exit_code == 5 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith("not enough memory for this problem: Unable to allocate 7.28 TiB")


# ----------------------------------------------------------------------------------------------------------------------
# as a subprocess


def command(*arguments, before=""):
    code = f"import sys\n{before}\nfrom optgeom_cli.main import app\napp({[str(argument) for argument in arguments]!r})"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONWARNINGS": "error"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=paths)


def test_as_other_programs_run_it(tmp_path):
    done = command("solve", "--counts", "900,50,50", "--json", "--plot", tmp_path / "p.png")
    assert done.returncode == 0 and done.stderr == ""
    assert set(json.loads(done.stdout)) >= KEYS


@pytest.mark.parametrize(
    ("module", "options", "line"),
    [
        ("matplotlib", ("--plot", "p.png"), "drawing needs matplotlib: pip install 'optgeom[plot]'\n"),
        ("torch", ("--prototypes", "v.pt"), "saving .pt needs torch: pip install 'optgeom[torch]'\n"),
        (
            "safetensors",
            ("--prototypes", "v.safetensors"),
            "saving .safetensors needs safetensors: pip install 'optgeom[io]'\n",
        ),
    ],
)
def test_missing_extra(module, options, line):
    done = command("solve", "--counts", "5,3", *options, before=f"sys.modules[{module!r}] = None")
    assert (done.returncode, done.stdout, done.stderr) == (6, "", line)


def test_solve_loads_neither_cvxpy_nor_torch_nor_matplotlib():
    loaded = "[m for m in ('cvxpy', 'torch', 'matplotlib') if m in sys.modules]"
    after = f"import atexit\natexit.register(lambda: print({loaded}, file=sys.stderr))"
    done = command("solve", "--counts", "5,3", before=after)
    assert done.stderr.strip() == "[]"


@pytest.mark.skipif(importlib.util.find_spec("cvxpy") is None, reason="cvxpy is not installed")
def test_flat_objective_by_the_conic_solver_is_refused():
    # The interior-point answer of this case has a gap of 1e-9 and a cosine that is wrong in the second digit.
    done = run("--proportions", ".9,.1", "--solver", "conic", "--json")
    found = json.loads(done.stdout)
    wrong = abs(found["gram"][0][1] + 1) > 1e-6
    assert done.exit_code == (4 if wrong else 0) and found["certificate"]["certified"] is not wrong


# ----------------------------------------------------------------------------------------------------------------------
# progress


class Terminal:
    """A stderr that claims to be a terminal."""

    encoding = "utf-8"

    def __init__(self):
        self.written = ""

    def isatty(self):
        return True

    def write(self, text):
        self.written += text
        return len(text)

    def flush(self):
        pass


def test_progress_is_silent_off_a_terminal_and_for_short_work(monkeypatch, capsys):
    with progress.working("solving"):
        pass
    assert capsys.readouterr() == ("", "")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.working("solving"):
        pass
    assert terminal.written == ""


def test_progress_shows_long_work(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.working("solving 5 classes"):
        for _ in range(10_000_000):
            if "solving 5 classes" in terminal.written:
                break
    assert "solving 5 classes" in terminal.written
