"""Counts files and labels files of every kind, and files written in one step."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
from optgeom_cli.main import app
from typer.testing import CliRunner

import optgeom as og
from optgeom.errors import InvalidInputError
from optgeom.inputs import files
from optgeom.inputs.classes import ClassDistribution
from optgeom.inputs.tables import read_counts, read_label_table, read_labels
from optgeom.sampling.pairs import Pairs
from optgeom.training.data import load_data


@pytest.fixture
def put(tmp_path):
    """Write a file and give its path; the name says nothing about the kind unless it is given."""

    def write(content, name="file"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("content", "counts", "names"),
    [
        ("[5000, 500, 50]", [5000, 500, 50], None),
        ("[1.0, 0.31622776601683794, 0.1]", [1.0, 0.31622776601683794, 0.1], None),
        ('{"cat": 3, "dog": 4}', [3, 4], ("cat", "dog")),
        ('{"counts": [3, 4]}', [3, 4], None),
        ('{"counts": [3, 4], "names": ["cat", "dog"], "source": "x"}', [3, 4], ("cat", "dog")),
        ('{"counts": {"cat": 3, "dog": 4}}', [3, 4], ("cat", "dog")),
        ('{"counts": 3, "dog": 4}', [3, 4], ("counts", "dog")),
        ("cat,3\ndog,4\n", [3, 4], ("cat", "dog")),
        ("class,count\ncat,3\ndog,4\n", [3, 4], ("cat", "dog")),
        ("species,animals\ncat,3\ndog,4\n", [3, 4], ("cat", "dog")),
        ("count,class\n3,cat\n4,dog\n", [3, 4], ("cat", "dog")),
        ("id,count,colour\n7,3,red\n5,4,blue\n", [3, 4], ("7", "5")),
        ("cat\t3\ndog\t4\n", [3, 4], ("cat", "dog")),
        ("class\tcount\nsmall, furry\t3\ndog\t4\n", [3, 4], ("small, furry", "dog")),
        ('"small, furry",3\r\ndog , 4\r\n', [3, 4], ("small, furry", "dog")),
        ("0,310\n1,2489\n", [310, 2489], ("0", "1")),
        ("\ufeff# made by hand\n\ncat,3\n\ndog,4", [3, 4], ("cat", "dog")),
        ("5000\n500\n50\n", [5000, 500, 50], None),
        ("count\n5\n\n3\n", [5, 3], None),
        ("# pixels\n2760885855\n1e3\n.5", [2760885855, 1000.0, 0.5], None),
        ("a/1.jpg 10\na/2.jpg 9\nb/my photo.jpg 10\n", [1, 2], ("9", "10")),
        ("a/b 10\na/c d 9\n", [1, 1], ("9", "10")),
        ("1.jpg cat\n2.png dog\n3.jpg cat\n", [2, 1], ("cat", "dog")),
        ("1.jpg,4\n2.png,3\n3.jpg,4\n", [1, 2], ("3", "4")),
    ],
)
@pytest.mark.parametrize("name", ["file", "file.csv", "file.json", "file.txt"])
def test_every_kind_is_told_by_its_content(put, content, counts, names, name):
    table = read_counts(put(content, name))
    assert table.counts == counts and table.names == names
    assert [type(count) for count in table.counts] == [type(count) for count in counts]
    classes = ClassDistribution.from_file(put(content, name))
    assert classes.proportions.tolist() == pytest.approx([count / math.fsum(counts) for count in counts], rel=1e-15)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"a counts file must not be empty"),
        ("# nothing\n\n", r"a counts file must not be empty"),
        ("[5, 3", r"line 1 is not valid JSON: .* \(column \d+\)"),
        ('{"a": 1,\n"b" 2}', r"line 2 is not valid JSON: Expecting ':' delimiter"),
        ("[" * 100000, r"the JSON is nested too deeply"),
        ('[5, "3"]', r"counts must be numbers; got '\"3\"' for entry 1"),
        ("[5, [3]]", r"counts must be numbers; got '\[3\]' for entry 1"),
        ("[5, true]", r"counts must be numbers; got 'true' for entry 1"),
        ('{"a": 5, "b": null}', r"counts must be numbers; got 'null' for class 'b'"),
        ('{"a": 5, "b": 3, "a": 4}', r"names must be all different; got 'a' twice"),
        (
            '{"counts": [1, 2], "names": ["a"]}',
            r"`names` must be a list with one name for each of the 2 counts; got 1 of them",
        ),
        (
            '{"counts": [1, 2], "names": "ab"}',
            r"`names` must be a list with one name for each of the 2 counts; got str",
        ),
        ("5\n3\nx\n2\n", r"line 3 must be one number; got 'x' \(the other lines hold one number each\)"),
        ("5O0\n20\n10\n", r"line 1 must be one number; got '5O0'"),
        ("5\n1_000\n2\n", r"line 2 must be one number; got '1_000'"),
        ("cat,3\n\ndog,four\ncow,5", r"line 3 must be `class,count` with a number as the count; got 'dog,four'"),
        ("cat,1O0\ndog,4\n", r"line 1 must be `class,count` with a number as the count; got 'cat,1O0'"),
        ("cat,3\ndog,4,5\n", r"line 2 must be 2 cells, `class,count`; got 'dog,4,5'"),
        ("cat,3\ndog\ncow,1\n", r"line 2 must be 2 cells, `class,count`; got 'dog'"),
        ("cat,3\ndog,4\ncat,5\n", r"line 3 must be a class not met before \(line 1 has it too\); got 'cat'"),
        ("a,b,c\ncat,3,1\n", r"line 1 must be a header `class,count`; got 'a,b,c' \(name the two columns so"),
        (
            "file,label\nx,n01\ny,n02\n",
            r"line 1 must be a header `class,count`; got 'file,label' \(a list of labels goes in as labels",
        ),
        ('"cat,3\ndog,4\n', r"line \d cannot be read: .* \(check its quotation marks\)"),
        (
            "cat 3\ndog 4\n",
            r"a counts file must hold .*; got 'cat 3' in line 1 \(put a comma or a tab between class and count\)",
        ),
        ("a/1.jpg 0\na/2.jpg\na/3.jpg 1\n", r"line 2 must be a path and one label; got 'a/2.jpg'"),
        ("a/1.jpg 0\na/2.jpg 1 2\na/3.jpg 1\n", r"line 2 must be a path and one label; got 'a/2.jpg 1 2'"),
        (b"\xff\xfe5\x00", r"it is not UTF-8 text \(byte 0"),
        (b"5\n\x003\n", r"it is a binary file"),
        ("x" * 100, r"got '" + "x" * 57 + r"\.\.\.' in line 1"),
    ],
)
def test_wrong_counts_files_are_named_by_line(put, content, message):
    path = put(content)
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_counts(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(
        InvalidInputError, match=r"^cannot read the counts file .*none.json: No such file or directory$"
    ):
        read_counts(tmp_path / "none.json")
    with pytest.raises(InvalidInputError, match=r"^cannot read the counts file .*: Is a directory$"):
        read_counts(tmp_path)


def test_case_10_in_a_file(put):
    path = put("cat,310\ndog,0\ncow,725\n")
    with pytest.raises(
        InvalidInputError, match=r"file: `counts` must be positive; got 0 for class dog \(drop it .*--drop-empty\)$"
    ):
        ClassDistribution.from_file(path)
    classes = ClassDistribution.from_file(path, drop_empty=True)
    assert classes.names == ("cat", "cow") and classes.dropped == ("dog",) and classes.kept.tolist() == [0, 2]


@pytest.mark.parametrize("content", ["1\nnan\n3", "[1, NaN, 3]"])
def test_nan_in_a_file(put, content):
    with pytest.raises(InvalidInputError, match=r"`counts` must be finite; got nan for class 1 "):
        ClassDistribution.from_file(put(content))


def test_case_11_whole_numbers_in_files_are_exact(put):
    large = 2**62 + 1
    for content in (f"[{large}, 3]", f"{large}\n3\n", f"a,{large}\nb,3\n"):
        assert ClassDistribution.from_file(put(content)).counts.tolist() == [large, 3]


# ----------------------------------------------------------------------------------------------------------------------
# labels files


@pytest.mark.parametrize(
    ("name", "content", "labels"),
    [
        ("y.csv", "label\ncat\ndog\n", ["cat", "dog"]),
        ("y.csv", "path,Target\na,1\nb,0\n", ["1", "0"]),
        ("y.csv", "1\n0\n1\n", ["1", "0", "1"]),
        ("y.csv", "digit\n1\n0\n", ["1", "0"]),
        ("y.csv", "cat\ndog\n", ["cat", "dog"]),
        ("y.tsv", "x\ty\na, b\tcat\nc\tdog\n", ["cat", "dog"]),
        ("y.txt", "cat\nred dog\n", ["cat", "red dog"]),
        ("y.TXT", "1\n0\n\n", ["1", "0"]),
        ("y.json", "[1, 0, 1]", [1, 0, 1]),
        ("y.json", '["a", "b"]', ["a", "b"]),
    ],
)
def test_labels_in_text(put, name, content, labels):
    assert read_labels(put(content, name)).tolist() == labels


def test_labels_in_binary(tmp_path):
    np.save(tmp_path / "y.npy", np.array([2, 0, 2]))
    assert read_labels(tmp_path / "y.npy").tolist() == [2, 0, 2]
    np.savez(tmp_path / "named.npz", x=np.zeros(3), targets=np.array([2, 0, 2]))
    assert read_labels(tmp_path / "named.npz").tolist() == [2, 0, 2]
    np.savez(tmp_path / "single.npz", x=np.zeros((3, 2)), anything=np.array([2, 0, 2]))
    assert read_labels(tmp_path / "single.npz").tolist() == [2, 0, 2]
    np.savez(tmp_path / "many.npz", a=np.zeros(3), b=np.zeros(3))
    with pytest.raises(
        InvalidInputError, match=r"the labels must be the array `labels` or the only one-dimensional array; got a, b "
    ):
        read_labels(tmp_path / "many.npz")


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_case_36_object_arrays_are_never_unpickled(tmp_path, suffix):
    path = tmp_path / f"y.{suffix}"
    objects = np.array(["a", None], dtype=object)
    if suffix == "npy":
        np.save(path, objects)
    else:
        np.savez(path, labels=objects)
    with pytest.raises(
        InvalidInputError, match=r"labels must be numbers or text; got Python objects, which need pickle and are never"
    ):
        read_labels(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("y.pt", "", r"a labels file must be .npy, .npz, .csv, .tsv, .txt or .json; got the suffix '.pt'"),
        ("y.json", '{"labels": 1}', r"a JSON labels file must be a list with one label per row; got dict"),
        ("y.json", "[1,", r"line 1 is not valid JSON"),
        ("y.csv", "", r"a labels file must have at least one row; got an empty file"),
        ("y.csv", "a,b\n1,2\n", r"the labels must be a column named label, .*, or the only column; got a, b"),
        ("y.csv", "a,label\n1,2\n1\n", r"line 3 must have 2 cells, as the first; got 1"),
        ("y.txt", "1\n\n0\n", r"line 2 must be a label; got an empty line"),
        ("y.npy", b"\x93NUMPY", r"cannot read the labels file"),
        ("y.npy", b"", r"cannot read the labels file"),
        ("y.npz", b"PK\x03\x04nonsense", r"cannot read the labels file"),
    ],
)
def test_wrong_labels_files(put, name, content, message):
    with pytest.raises(InvalidInputError, match=message):
        read_labels(put(content, name))


@pytest.mark.parametrize("name", ["none.npy", "none.csv"])
def test_missing_labels_file(tmp_path, name):
    with pytest.raises(InvalidInputError, match=r"^cannot read the labels file .*: No such file or directory$"):
        read_labels(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("y.json", "[0, null, 1]"),
        ("y.json", "[0, NaN, 1]"),
        ("y.csv", "label\n0\nnan\n1\n"),
        ("y.csv", "a,y\n1,0\n1,\n1,1\n"),
    ],
)
def test_case_16_missing_label_in_a_file(put, name, content):
    with pytest.raises(InvalidInputError, match=r"^`labels` must not be missing; got .* in row 1 "):
        ClassDistribution.from_labels(read_labels(put(content, name)))


def test_case_9_ragged_labels_in_a_file(put):
    with pytest.raises(
        InvalidInputError, match=r"^`labels` must be one integer or string per row; got \[0\] in row 0 "
    ):
        ClassDistribution.from_labels(read_labels(put("[[0], [1, 2]]", "y.json")))


# ----------------------------------------------------------------------------------------------------------------------
# written files


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.json"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError, match="half way"), files.atomic_path(path) as temporary:
        assert temporary.parent == tmp_path and temporary.suffix == ".json" and temporary != path
        temporary.write_text("half")
        raise RuntimeError("half way")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out.json"]
    files.write_text(path, json.dumps([1]) + "\n")
    assert path.read_bytes() == b"[1]\n" and os.listdir(tmp_path) == ["out.json"]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    files.write_bytes(tmp_path / "link.txt", b"new")
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "real.txt").read_text() == "new"


def test_a_device_is_written_and_not_replaced():
    files.write_text(os.devnull, "gone")
    assert not os.path.isfile(os.devnull)


def test_where_nothing_can_be_written(tmp_path, monkeypatch):
    with pytest.raises(InvalidInputError, match=r"^cannot write .*: it is a folder \(give a file name\)$"):
        files.write_text(tmp_path, "x")
    with pytest.raises(
        InvalidInputError, match=r"^cannot write .*: the folder .*none does not exist \(make it first\)$"
    ):
        files.write_text(tmp_path / "none" / "x.txt", "x")

    def refuse(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InvalidInputError, match=r"^cannot write .*x.txt: No space left on device$"):
        files.write_text(tmp_path / "x.txt", "x")
    assert os.listdir(tmp_path) == []


def from_command(*options):
    """What the command line says of the file that follows `options`, raised as the error of Python."""

    def read(path):
        result = CliRunner().invoke(app, [*options, str(path)])
        assert result.exit_code == 3 and result.stderr.count("\n") == 1
        raise InvalidInputError(result.stderr)

    return read


@pytest.mark.parametrize(
    ("read", "suffix"),
    [
        (read_counts, ".csv"),
        (read_labels, ".csv"),
        (read_labels, ".npy"),
        (read_label_table, ".csv"),
        (read_label_table, ".npy"),
        (og.Geometry.load, ".npz"),
        (og.Geometry.load, ".json"),
        (og.Realization.load, ".npz"),
        (Pairs.read, ".npz"),
        (lambda path: load_data(str(path)), ".npz"),
        (from_command("realize", "--weights"), ".npy"),
        (from_command("realize", "--weights"), ".npz"),
        (from_command("recover", "--pairs"), ".npz"),
    ],
)
def test_pipes_and_devices_are_refused_at_once(read, suffix, tmp_path):
    """A pipe without a writer, or a device without an end, would be waited for without end."""
    pipe, device = tmp_path / f"pipe{suffix}", tmp_path / f"zero{suffix}"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    for path in (pipe, device):
        with pytest.raises(InvalidInputError, match="it is a pipe or a device; save the data to a file first"):
            read(path)
