"""The class input of the command line, the `profiles` command, and how commands print and end."""

from __future__ import annotations

import json
import math
import os
import pathlib
import subprocess
import sys
from typing import Annotated

import numpy as np
import pytest
import typer
from optgeom_cli import class_input, output
from optgeom_cli.main import app
from typer.testing import CliRunner

from optgeom import errors
from optgeom.inputs.classes import ClassDistribution


@output.exit_on_error()
def show(
    counts: class_input.CountsOption = None,
    proportions: class_input.ProportionsOption = None,
    counts_file: class_input.CountsFileOption = None,
    labels: class_input.LabelsOption = None,
    profile: class_input.ProfileOption = None,
    sampler: class_input.SamplerOption = "instance",
    drop_empty: class_input.DropEmptyOption = False,
    ignore_label: class_input.IgnoreLabelOption = None,
    shout: Annotated[bool, typer.Option("--shout")] = False,
) -> None:
    """A command that only reads its classes."""
    classes = class_input.read_classes(
        counts=counts,
        proportions=proportions,
        counts_file=counts_file,
        labels=labels,
        profile=profile,
        sampler=sampler,
        drop_empty=drop_empty,
        ignore_label=ignore_label,
    )
    output.emit_json({"names": classes.names, "counts": classes.counts, "proportions": classes.proportions})


reader = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
reader.command()(show)


def run(application, *arguments):
    return CliRunner().invoke(application, [str(argument) for argument in arguments])


def read(*arguments):
    done = run(reader, *arguments)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), done.stderr


def test_each_source(tmp_path):
    assert read("--counts", "900, 50,50")[0]["counts"] == [900, 50, 50]
    assert read("--proportions", ".5,.25,.25")[0] == {
        "names": ["0", "1", "2"],
        "counts": None,
        "proportions": [0.5, 0.25, 0.25],
    }
    (tmp_path / "c.json").write_text('{"cat": 3, "dog": 1}')
    assert read("--counts-file", tmp_path / "c.json")[0] == {
        "names": ["cat", "dog"],
        "counts": [3, 1],
        "proportions": [0.75, 0.25],
    }
    np.save(tmp_path / "y.npy", np.array([0, 1, 1, 255]))
    assert read("--labels", tmp_path / "y.npy")[0]["names"] == ["0", "1", "255"]
    found, said = read("--labels", tmp_path / "y.npy", "--ignore-label", "255", "--ignore-label", "-1")
    assert found["counts"] == [1, 2] and said == "1 rows with label 255 left out\n"
    assert read("--profile", "step:3:2:10")[0]["counts"] == [10, 10, 5]


@pytest.mark.parametrize(
    ("sampler", "proportions"),
    [
        ("instance", [0.8, 0.2]),
        ("balanced", [0.5, 0.5]),
        ("sqrt", [2 / 3, 1 / 3]),
        ("2", [16 / 17, 1 / 17]),
        ("-1", [0.2, 0.8]),
    ],
)
def test_samplers(sampler, proportions):
    assert read("--counts", "8,2", "--sampler", sampler)[0]["proportions"] == pytest.approx(proportions, rel=1e-14)


def test_case_10_dropped_with_notice_on_stderr():
    found, said = read("--counts", "310,2489,114,17,0,725", "--drop-empty")
    assert found["names"] == ["0", "1", "2", "3", "5"] and said == "1 class without samples left out: 4\n"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (
            [],
            2,
            "give exactly one of --counts, --proportions, --counts-file, --labels, --profile; got none (for example",
        ),
        (["--counts", "5,5", "--profile", "x"], 2, "give exactly one of --counts, .*; got --counts and --profile"),
        (["--counts", "5,5", "--ignore-label", "0"], 2, "--ignore-label goes with --labels; got --counts"),
        (
            ["--counts", "5,5", "--sampler", "cube"],
            2,
            "--sampler must be instance, balanced, sqrt or a number; got 'cube'",
        ),
        (
            ["--counts", "5,5", "--sampler", "nan"],
            2,
            "--sampler must be instance, balanced, sqrt or a number; got 'nan'",
        ),
        (
            ["--counts", "310,2489,114,17,0,725"],
            3,
            "`counts` must be positive; got 0 for class 4 (drop it .*--drop-empty)",
        ),
        (["--counts", "10,-3"], 3, "`counts` must be positive; got -3 for class 1"),
        (["--counts", "-3,10"], 3, "`counts` must be positive; got -3 for class 0"),
        (["--counts", "5"], 3, "no geometry with one class: "),
        (["--counts", "1,nan,3"], 3, "`counts` must be finite; got nan for class 1"),
        (["--counts", "a,b"], 3, "`counts` must be numbers with commas between; got 'a' for class 0 (as 900,50,50)"),
        (["--counts", "1,,2"], 3, "`counts` must be numbers with commas between; got '' for class 1"),
        (["--proportions", ".333,.333,.333,.2"], 3, "`proportions` must sum to 1; got a sum of 1.199, off by 0.199"),
        (
            ["--counts-file", "no-such-file.json"],
            3,
            "cannot read the counts file no-such-file.json: No such file or directory",
        ),
        (
            ["--labels", "no-such-file.npy"],
            3,
            "cannot read the labels file no-such-file.npy: No such file or directory",
        ),
        (["--profile", "no-such"], 3, "`profile` must be a known name; got 'no-such'"),
    ],
)
def test_wrong_input_is_one_line_on_stderr(arguments, code, line):
    done = run(reader, *arguments)
    assert done.exit_code == code and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n")
    start, _, end = line.partition(".*")
    assert done.stderr.startswith(start) and end in done.stderr


def test_case_17_all_samples_in_one_class(tmp_path):
    (tmp_path / "y.txt").write_text("0\n" * 10)
    done = run(reader, "--labels", tmp_path / "y.txt")
    assert done.exit_code == 3 and done.stderr.startswith(
        "no geometry with one class: all 10 rows of `labels` have the label '0'"
    )


def test_options_have_help():
    shown = run(reader, "--help").stdout
    for option in (
        "--counts",
        "--proportions",
        "--counts-file",
        "--labels",
        "--profile",
        "--sampler",
        "--drop-empty",
        "--ignore-label",
    ):
        assert option in shown


# ----------------------------------------------------------------------------------------------------------------------
# endings


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (output.UsageError("bad\n options"), 2),
        (errors.IncompatibleError("bad\n options"), 2),
        (errors.InvalidInputError("bad\n options"), 3),
        (errors.NotCertifiedError("bad\n options", None), 4),
        (errors.SolverError("bad\n options"), 5),
        (errors.MissingDependencyError("bad\n options"), 6),
    ],
)
def test_exit_codes(error, code, capsys):
    with pytest.raises(typer.Exit) as caught, output.exit_on_error():
        raise error
    assert caught.value.exit_code == code
    assert capsys.readouterr() == ("", "bad options\n")


def test_other_errors_are_bugs_and_stay_visible():
    with pytest.raises(ZeroDivisionError), output.exit_on_error():
        raise ZeroDivisionError


def test_json_is_one_object_of_plain_values(capsys):
    output.emit_json(
        {
            "array": np.array([[0.1, math.nan], [math.inf, 1.0]]),
            "number": np.float64(1) / 3,
            "count": np.int64(2**62 + 1),
            "flag": np.bool_(True),
            "code": output.ExitCode.USAGE,
            "nested": {1: (None, "é", pathlib.PurePosixPath("a/b"))},
        }
    )
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert json.loads(line) == {
        "array": [[0.1, None], [None, 1.0]],
        "number": 0.3333333333333333,
        "count": 2**62 + 1,
        "flag": True,
        "code": 2,
        "nested": {"1": [None, "é", "a/b"]},
    }
    with pytest.raises(TypeError, match=r"^no JSON for set$"):
        output.emit_json({"wrong": {1}})


# ----------------------------------------------------------------------------------------------------------------------
# profiles


def test_profiles_as_a_table():
    shown = run(app, "profiles").stdout
    for text in (
        "places-lt",
        "365",
        "4980",
        "996",
        "inaturalist2018-supercategories",
        "lvis-v1",
        "1977",
        "1203 LVIS v1 categories",
    ):
        assert text in shown
    for text in ("exp:C:IF[:n_max]", "majority:C:lambda"):
        assert text in shown


def test_profiles_as_json():
    listed = json.loads(run(app, "profiles", "--json").stdout)
    assert [entry["name"] for entry in listed["profiles"]][-2:] == ["lvis-v1", "places-lt"]
    assert listed["profiles"][-1]["num_classes"] == 365 and listed["profiles"][-1]["imbalance_factor"] == 996
    assert listed["formulas"][0] == {"usage": "cifar10-lt:IF", "meaning": "floor(5000 (1/IF)^(i/9)), 10 classes"}


def test_one_profile():
    shown = run(app, "profiles", "cifar10-lt:100").stdout
    for text in ("cifar10-lt:100", "1901.05555", "5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50"):
        assert text in shown
    assert "and 1 more (--json has all)" in " ".join(run(app, "profiles", "zipf:2001:1").stdout.split())
    found = json.loads(run(app, "profiles", "cifar100-lt:200", "--json").stdout)
    assert found["num_classes"] == 100 and found["imbalance_factor"] == 250 and found["counts"][-1] == 2
    assert json.loads(run(app, "profiles", "zipf:2:0", "--json").stdout)["proportions"] == [0.5, 0.5]


def test_unknown_profile():
    done = run(app, "profiles", "place-lt")
    assert done.exit_code == 3
    assert (
        done.stderr
        == "`profile` must be a known name; got 'place-lt'; close: places-lt (`optgeom profiles` lists all)\n"
    )


def test_version_and_usage():
    done = run(app, "--version")
    assert done.exit_code == 0 and done.stdout.startswith("optgeom ")
    assert run(app, "no-such-command").exit_code == 2
    assert run(app, "profiles", "--no-such-option").exit_code == 2


def test_help_imports_nothing_slow():
    code = "import sys; from optgeom_cli.main import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
    code += "print([m for m in ('numpy', 'scipy', 'cvxpy', 'torch', 'matplotlib', 'rich') if m in sys.modules])"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=paths, check=True)
    assert "profiles" in done.stdout and done.stdout.splitlines()[-1] == "[]"


def test_read_classes_from_python():
    classes = class_input.read_classes(counts="3,1")
    assert isinstance(classes, ClassDistribution) and classes.counts.tolist() == [3, 1]
