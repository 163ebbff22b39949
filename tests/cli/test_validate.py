"""The `validate` command: JSON, terminal output, files of every kind, sources of classes, exit codes, errors."""

from __future__ import annotations

import importlib.resources
import json
import re
from functools import partial
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from helpers import command_line
from helpers.simulated import long_tail, means_of, optimum, sample, shape_root

import optgeom as og

COUNTS = long_tail(300, 30, 5)
RNG = np.random.default_rng(8)
X = np.concatenate(sample(means_of(optimum(COUNTS), 8, RNG), COUNTS, 0.3, shape_root(8, 1, RNG), RNG)).astype(
    np.float32
)
Y = np.repeat(np.arange(5), COUNTS)
LOSS = ("--temperature", "0.5")
DATA = ("--embeddings", "x.npy", "--labels", "y.npy")
NUMBERS = ",".join(map(str, COUNTS))
SCHEMA = json.loads(
    importlib.resources.files("optgeom.embeddings").joinpath("validation.schema.json").read_text(encoding="utf-8")
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("y.npy", Y)
    og.solve(og.ClassDistribution.from_counts(COUNTS), og.SupCon(0.5)).save("g.npz")
    return tmp_path


run = partial(command_line.run, "validate")
words = partial(command_line.words, "validate")
refused = partial(command_line.refused, "validate")


def validated(*arguments):
    found = command_line.answer("validate", *arguments)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


# --- where the optimum comes from
# --------------------------------------------------------------------------------------------------------


def test_with_a_geometry(folder):
    found = validated(*DATA, "--geometry", "g.npz")
    assert found["verdict"] == "consistent"
    assert found["optimum"]["from"] == "the geometry in g.npz"
    assert found["embeddings_from"] == "x.npy"


def test_counts_are_those_of_the_training(folder):
    found = validated(*DATA, "--counts", NUMBERS, *LOSS)
    assert found["verdict"] == "consistent"
    assert found["optimum"]["own_counts"] is False
    assert found["optimum"]["loss"]["temperature"] == 0.5


def test_labels_alone_are_said(folder):
    found = validated(*DATA, *LOSS)
    assert found["optimum"]["own_counts"] is True
    assert "label counts of the embeddings themselves" in found["sentence"]


@pytest.mark.parametrize("source", [(), ("--counts", NUMBERS)])
def test_a_loss_that_nobody_gave_is_said(source, folder):
    found = validated(*DATA, *source)
    assert "the default, SupCon, temperature 0.1, the limit of large batches" in found["sentence"]
    assert (found["optimum"]["loss"]["temperature"], found["optimum"]["loss"]["batch_size"]) == (0.1, "inf")
    given = validated(*DATA, *source, "--temperature", "0.1")
    assert given["optimum"]["loss"] == found["optimum"]["loss"] and "the default" not in given["sentence"]


def test_a_temperature_that_nobody_gave_is_said(folder):
    note = "--temperature was not given: the optimum is that of the default, 0.1"
    assert note in validated(*DATA, "--batch-size", "64")["notes"] and f"Note {note}" in words(
        *DATA, "--batch-size", "64"
    )
    assert note not in validated(*DATA, "--batch-size", "64", *LOSS)["notes"]


def test_labels_in_the_file_of_the_embeddings(folder):
    np.savez("both.npz", features=X, targets=Y)
    assert validated("--embeddings", "both.npz", *LOSS)["verdict"] == "consistent"


def test_a_sampler_applies_to_the_counts_of_either(folder):
    alone = validated(*DATA, *LOSS, "--sampler", "balanced")
    assert alone["optimum"]["loss"]["name"] == "supcon"
    assert alone["class_r2"] is None
    assert validated(*DATA, "--counts", NUMBERS, "--sampler", "balanced", *LOSS)["class_r2"] is None


def test_a_profile_with_more_classes(folder):
    found = validated(*DATA, "--profile", "exp:7:10:300", *LOSS)
    assert found["missing"] == ["5", "6"]
    assert found["excess_risk"]["direction"] is None


# --- output
# ----------------------------------------------------------------------------------------------------------------------


def test_the_verdict_comes_first(folder):
    text = words(*DATA, "--geometry", "g.npz")
    assert text.startswith("Consistent within ")
    assert text.index("Worst pairs") < text.index("Classes in most trouble")
    assert "n/a" not in text.split("Worst pairs")[0]


def test_json_and_file_are_the_same(folder):
    found = validated(*DATA, "--geometry", "g.npz", "--out", "v.json")
    assert json.loads((folder / "v.json").read_text()) == found


def test_table_with_missing_numbers(folder):
    np.save("y1.npy", np.concatenate([Y, [7]]))
    np.save("x1.npy", np.concatenate([X, X[:1]]))
    text = words("--embeddings", "x1.npy", "--labels", "y1.npy", *LOSS)
    assert text.startswith("Inconclusive: too few images to tell in 7 (1 image)")
    assert "7 1 n/a n/a n/a" in text


def test_hungarian_says_so(folder):
    np.save("y.npy", (Y + 2) % 5)
    found = validated(*DATA, "--geometry", "g.npz", "--match", "hungarian")
    assert found["sentence"].startswith("after matching the classes by their shape: consistent")
    assert found["matched"] == {str((c + 2) % 5): str(c) for c in range(5)}
    assert words(*DATA, "--geometry", "g.npz", "--match", "hungarian").startswith("After matching")


def test_ignored_extra_and_coinciding(folder):
    np.save("y1.npy", np.concatenate([Y, [-1, -1, 8, 8, 8]]))
    np.save("x1.npy", np.concatenate([X, X[:5]]))
    data = ("--embeddings", "x1.npy", "--labels", "y1.npy", "--geometry", "g.npz", "--ignore-label", "-1")
    found = validated(*data, "--ignore-extra")
    assert found["ignored"] == {"-1": 2}
    assert found["extra"] == {"8": 3}
    text = words(*data, "--ignore-extra")
    assert "2 rows with label -1" in text
    assert "Not in the geometry 8" in text
    assert "got 1 other: 8" in refused(3, *data)


def test_group_ids(folder):
    np.save("ids.npy", np.arange(len(X)) // 2 + 1000 * Y)
    found = validated(*DATA, "--geometry", "g.npz", "--group-ids", "ids.npy")
    assert found["num_images"] < found["num_rows"] == len(X)
    assert found["metrics"]["saa"]["value"] is not None


# --- files
# ----------------------------------------------------------------------------------------------------------------------


def test_case_35_files_of_the_projector(folder):
    def lines(rows):
        return "".join("\t".join(map(str, row)) + "\n" for row in rows)

    (folder / "vectors.tsv").write_text(lines(X.tolist()))
    (folder / "metadata.tsv").write_text(
        lines([["label", "file"], *([label, f"{row}.png"] for row, label in enumerate(Y))])
    )
    found = validated("--embeddings", "vectors.tsv", "--geometry", "g.npz")
    assert found["num_rows"] == len(X)
    (folder / "metadata.tsv").write_text(lines([[label] for label in Y]))
    assert validated("--embeddings", "vectors.tsv", "--geometry", "g.npz")["verdict"] == "consistent"


def test_columns_by_name(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": X.tolist(), "b": X[::-1].tolist(), "kind": Y}), "x.parquet")
    options = ("--vector-column", "a", "--label-column", "kind")
    found = validated("--embeddings", "x.parquet", "--geometry", "g.npz", *options)
    assert found["verdict"] == "consistent"


def test_case_37_bfloat16(folder):
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    from safetensors.torch import save_file

    save_file({"embeddings": torch.from_numpy(X).bfloat16(), "labels": torch.from_numpy(Y)}, "x.safetensors")
    assert validated("--embeddings", "x.safetensors", "--geometry", "g.npz")["verdict"] == "consistent"


# --- refusals
# ----------------------------------------------------------------------------------------------------------------------


def test_case_36_object_arrays_are_never_unpickled(folder):
    np.save("x.npy", np.array([[1, "a"]], dtype=object), allow_pickle=True)
    assert "never unpickled" in refused(3, *DATA, *LOSS)


def test_ten_percent_of_nan(folder):
    changed = X.copy()
    changed[5::10, 2] = np.nan
    np.save("x.npy", changed)
    message = refused(3, *DATA, *LOSS)
    assert "got nan in row 5, column 2" in message
    assert f"{len(X[5::10])} of {len(X)} rows" in message


def test_zero_rows(folder):
    changed = X.copy()
    changed[[4, 9]] = 0
    np.save("x.npy", changed)
    message = refused(3, *DATA, *LOSS)
    assert "row 4" in message
    assert "2 of" in message


def test_labels_one_short(folder):
    np.save("y.npy", Y[:-1])
    message = refused(3, *DATA, *LOSS)
    assert str(len(Y) - 1) in message
    assert str(len(Y)) in message


def test_a_missing_label(folder):
    np.save("y.npy", np.where(np.arange(len(Y)) == 1, np.nan, Y))
    assert "row 1" in refused(3, *DATA, *LOSS)


def test_one_class(folder):
    np.save("y.npy", 0 * Y)
    assert "no geometry with one class" in refused(3, *DATA, *LOSS)


def test_a_truncated_file(folder):
    content = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(content[: len(content) // 2])
    assert "x.npy" in refused(3, *DATA, *LOSS)


def test_ragged_lists(folder):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = X.tolist()
    rows[2] = rows[2][:-1]
    parquet.write_table(pyarrow.table({"embedding": rows, "label": Y}), "x.parquet")
    assert "row 2" in refused(3, "--embeddings", "x.parquet", *LOSS)


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (
            2,
            ["--geometry", "g.npz", "--counts", NUMBERS],
            "--geometry has its classes and its loss; got --counts beside it",
        ),
        (2, ["--geometry", "g.npz", *LOSS], "got options of the loss beside it"),
        (
            2,
            ["--geometry", "g.npz", "--temperature", "0.1"],
            "got options of the loss beside it",
        ),  # its own default is given as well
        (2, ["--geometry", "g.npz", "--loss", "supcon"], "got options of the loss beside it"),
        (2, ["--geometry", "g.npz", "--sampler", "sqrt"], "got --sampler beside it"),
        (2, ["--geometry", "g.npz", "--sampler", "instance"], "got --sampler beside it"),
        (2, ["--drop-empty"], "--drop-empty goes with a source of classes"),
        (2, ["--counts", NUMBERS, "--profile", "places-lt"], "give exactly one of"),
        (2, ["--report", "r.pdf"], "--report must end in .html or .htm; got 'r.pdf'"),
        (2, ["--out", "v.csv"], "--out must end in .json; got 'v.csv'"),
        (2, ["--match", "random"], "random"),
        (3, ["--out", "none/v.json"], "the folder none does not exist"),
        (3, ["--geometry", "y.npy"], "a geometry is read from .npz or .json"),
        (3, ["--geometry", "h.npz"], "h.npz does not exist"),
        (3, ["--tolerance-deg", "-1"], "`tolerance_deg` must be >= 0"),
        (3, ["--tolerance", "-1"], "`tolerance_deg` must be >= 0"),  # the name of 0.1.0, until 0.3
        (3, ["--counts", "5,4"], "got 3 others: 2, 3, 4"),
        (3, ["--label-column", "y"], "`labels` and `label_column` must not both be given"),
    ],
)
def test_exit_codes(code, arguments, message, folder):
    assert message in refused(code, *DATA, *arguments)


def test_no_embeddings(folder):
    assert "--embeddings" in refused(2, "--labels", "y.npy")
    assert "it does not exist" in refused(3, "--embeddings", "z.npy", "--labels", "y.npy")


def test_a_format_whose_package_is_missing(folder, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (folder / "x.csv").write_text("embedding_0,embedding_1,labels\n1,0,a\n0,1,b\n")
    assert "pip install 'optgeom[io]'" in refused(6, "--embeddings", "x.csv")


def test_a_report_whose_package_is_missing(folder, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "jinja2" else real(name, *rest)
    )
    assert "a report needs jinja2: pip install 'optgeom[plot]'" in refused(6, *DATA, "--report", "r.html")
    assert not (folder / "r.html").exists()


@pytest.mark.parametrize(("option", "name"), [("--out", "v.json"), ("--report", "r.html")])
def test_a_disk_that_is_full(option, name, folder):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    (folder / name).symlink_to("/dev/full")
    assert refused(3, *DATA, option, name) == f"cannot write {name}: No space left on device"


# --- names and terminals
# ----------------------------------------------------------------------------------------------------------------------

ODD = ("cat", 'a, "b"; <b>x</b>', "<script>alert(1)</script>", "naïve 猫", "line\nend " + "x" * 90)


def test_names_of_any_kind(folder):
    names = np.array(ODD)
    np.save("names.npy", names[Y])
    (folder / "c.json").write_text(json.dumps(dict(zip(ODD, COUNTS, strict=True))), encoding="utf-8")
    data = ("--embeddings", "x.npy", "--labels", "names.npy", "--counts-file", "c.json", *LOSS)
    found = validated(*data, "--report", "r.html")
    assert sorted(found["names"]) == sorted(ODD)
    assert "\n" not in found["sentence"]
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert "<script" not in page and "<b>x</b>" not in page and "naïve 猫" in page
    all_but_one = [part for name in ODD[:4] for part in ("--ignore-label", name)]
    assert "must have two classes of the geometry at least; got 1" in refused(3, *data, *all_but_one)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_numbers_are_whole_on_any_terminal(width, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    np.save("names.npy", np.array([f"a class with a name that is long {k}" for k in range(5)])[Y])
    done = run("--embeddings", "x.npy", "--labels", "names.npy", *LOSS)
    lines = done.stdout.split("Worst pairs")[1].splitlines()
    assert all(len(line) <= width for line in lines)
    assert "off by (degrees)" in lines[1] and "a cl" in lines[3]
    rows = [line for line in lines if " to " in line]
    assert len(rows) == 10 and all(re.search(r"[0-9.]+ \([0-9.]+ to [0-9.]+\)", line) for line in rows)
