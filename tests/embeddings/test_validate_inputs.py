"""og.validate on labels of every kind, tables from spreadsheets, damaged and odd arrays, extremes of geometry."""

from __future__ import annotations

import numpy as np
import pytest

import optgeom as og

COUNTS = [300, 100, 40]
GEOMETRY = og.solve(og.ClassDistribution.from_counts(COUNTS), og.SupCon(0.5))
MEANS = np.pad(GEOMETRY.prototypes(), ((0, 0), (0, 6)))
Y = np.repeat(np.arange(3), COUNTS)
RNG = np.random.default_rng(0)
ORDER = RNG.permutation(Y.size)
Y = Y[ORDER]
X = (MEANS[Y] + 0.1 * RNG.normal(size=(Y.size, 8))).astype(np.float32)
ONE_HOT = np.eye(3)[Y]
PLAIN = og.validate(X, Y, GEOMETRY)


def agrees(found, wanted=PLAIN, tolerance=1e-6):
    assert found.verdict == wanted.verdict
    np.testing.assert_allclose(found.directions.gram, wanted.directions.gram, atol=tolerance)
    np.testing.assert_allclose(found.intervals.standard_errors, wanted.intervals.standard_errors, atol=tolerance)
    assert found.metrics["uniformity"].value == pytest.approx(wanted.metrics["uniformity"].value, abs=10 * tolerance)


# --- labels


def one_hot_in(kind, folder):
    if kind == "array":
        return X, ONE_HOT
    if kind == "list":
        return X, ONE_HOT.astype(int).tolist()
    if kind == "npz":
        np.savez(folder / "x.npz", X=X, y=ONE_HOT)
        return folder / "x.npz", None
    if kind == "shards":
        np.savez(folder / "s1.npz", X=X[:400], y=ONE_HOT[:400])
        np.savez(folder / "s2.npz", X=X[400:], y=ONE_HOT[400:])
        return folder, None
    if kind == "npy apart":
        np.save(folder / "x.npy", X)
        np.save(folder / "y.npy", ONE_HOT.astype(np.uint8))
        return folder / "x.npy", folder / "y.npy"
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(
            pa.table({"embedding": pa.array(X.tolist()), "label": pa.array(ONE_HOT.astype(int).tolist())}),
            folder / "x.parquet",
        )
        return folder / "x.parquet", None
    torch = pytest.importorskip("torch")
    tensors = {"X": torch.from_numpy(X), "y": torch.from_numpy(ONE_HOT)}
    if kind == "tensor":
        return tensors["X"].requires_grad_(), tensors["y"]
    if kind == "pt":
        torch.save(tensors, folder / "x.pt")
        return folder / "x.pt", None
    if kind == "pt apart":
        torch.save(tensors["y"], folder / "y.pt")
        return X, str(folder / "y.pt")
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(tensors, folder / "x.safetensors")
    return folder / "x.safetensors", None


@pytest.mark.parametrize(
    "kind", ["array", "list", "npz", "shards", "npy apart", "parquet", "tensor", "pt", "pt apart", "safetensors"]
)
def test_case_9_one_hot_labels_are_converted_with_a_note(kind, tmp_path):
    data, labels = one_hot_in(kind, tmp_path)
    if kind == "pt apart":
        np.save(tmp_path / "x.npy", X)
        data = tmp_path / "x.npy"
    found = og.validate(data, labels, GEOMETRY)
    agrees(found)
    assert "labels were one-hot rows of 3 columns: converted to column numbers" in found.notes


def test_case_9_several_labels_a_row_are_refused():
    wrong = ONE_HOT.copy()
    wrong[5] = [1, 0, 1]
    with pytest.raises(
        og.InvalidInputError, match=r"row 5 is \[1.0, 0.0, 1.0\] \(multi-label targets have no single class"
    ):
        og.validate(X, wrong, GEOMETRY)
    with pytest.raises(og.InvalidInputError, match=r"only exact one-hot rows are converted"):
        og.validate(X, 0.9 * ONE_HOT + 0.05, GEOMETRY)


@pytest.mark.parametrize(
    "labels",
    [
        Y[:, None],
        Y.astype(str).tolist(),
        np.array(list(map(np.str_, Y)), dtype=object),
        Y.astype(">i8"),
        Y.astype(float),
    ],
    ids=["column", "text", "objects", "big-endian", "float"],
)
def test_labels_of_any_kind(labels):
    agrees(og.validate(X, labels, GEOMETRY))


def test_labels_of_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    agrees(og.validate(list(torch.from_numpy(X)), list(torch.from_numpy(Y)), GEOMETRY))
    torch.save(torch.from_numpy(Y[:, None]), tmp_path / "y.pt")
    np.save(tmp_path / "x.npy", X)
    agrees(og.validate(tmp_path / "x.npy", tmp_path / "y.pt", GEOMETRY))


def test_case_16_a_missing_label_is_named():
    with pytest.raises(og.InvalidInputError, match=r"`labels` must not be missing; got nan in row 1"):
        og.validate(X, np.where(np.arange(Y.size) == 1, np.nan, Y), GEOMETRY)


@pytest.mark.parametrize("ignored", [-1, "-1", -1.0, np.int64(-1), [-1], ("-1",), np.array([-1.0])], ids=repr)
def test_case_16_one_ignored_label_in_any_form(ignored):
    labels = np.concatenate([Y, [-1, -1]])
    found = og.validate(np.concatenate([X, X[:2]]), labels, GEOMETRY, ignore_labels=ignored)
    agrees(found)
    assert found.ignored == {"-1": 2}
    assert "2 rows with label -1 left out" in found.notes


def test_ignored_labels_that_nobody_has_are_told():
    assert "no row has the ignored label 255, dog" in og.validate(X, Y, GEOMETRY, ignore_labels=[255, "dog"]).notes
    for wrong in ([0.5], [None], [np.nan]):
        with pytest.raises(
            og.InvalidInputError, match=r"`ignore_labels` must be whole numbers or text; got .* \(for example"
        ):
            og.validate(X, Y, GEOMETRY, ignore_labels=wrong)


def test_case_17_one_class():
    with pytest.raises(
        og.InvalidInputError, match=r"no geometry with one class: all 440 rows of `labels` have the label '0'"
    ):
        og.validate(X, np.zeros_like(Y))


def test_case_18_and_19_rows_without_a_direction():
    for value, message in (
        (0.0, r"zero vector in row 3, and 2 of 440 rows are zero"),
        (np.inf, r"inf in row 3, column 0, and 2 of 440"),
    ):
        broken = X.copy()
        broken[[3, 9]] = value
        with pytest.raises(og.InvalidInputError, match=message):
            og.validate(broken, Y, GEOMETRY)


# --- arrays


@pytest.mark.parametrize(
    "rows",
    [
        X.astype(np.float64) * 1e300,
        X * np.float32(1e30),
        X * np.float32(1e-30),
        np.asfortranarray(X),
        X[:, ::-1],
        X.astype(">f4"),
    ],
    ids=["1e300", "1e30", "1e-30", "Fortran", "reversed", "big-endian"],
)
def test_rows_of_any_size_and_layout(rows):
    agrees(og.validate(rows, Y, GEOMETRY))


def test_half_precision_whose_squares_overflow():
    torch = pytest.importorskip("torch")
    large = (X * (3e4 / np.abs(X).max())).astype(np.float16)
    wanted = og.validate(large.astype(np.float64), Y, GEOMETRY)
    agrees(og.validate(large, Y, GEOMETRY), wanted)
    agrees(og.validate(torch.from_numpy(large), torch.from_numpy(Y), GEOMETRY), wanted)


def test_arrays_that_hide_something():
    agrees(og.validate(np.ma.masked_array(X), Y, GEOMETRY))
    masked = np.ma.masked_array(X, mask=np.zeros_like(X, dtype=bool))
    masked[7, 2] = np.ma.masked
    with pytest.raises(
        og.InvalidInputError, match=r"`embeddings` must have no masked entries; got 1, the first in row 7"
    ):
        og.validate(masked, Y, GEOMETRY)
    scipy_sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(og.InvalidInputError, match=r"`embeddings` must be dense; got a csr_array .*\.toarray\(\)"):
        og.validate(scipy_sparse.csr_array(X), Y, GEOMETRY)


def test_images_that_were_read_twice_are_told():
    again = RNG.integers(0, Y.size, Y.size)  # as a sampler with replacement does
    found = og.validate(X[again], Y[again], GEOMETRY)
    repeated = Y.size - np.unique(again).size
    assert any(note.startswith(f"{repeated} of 440 rows looked at repeat another one exactly") for note in found.notes)
    ids = og.validate(X[again], Y[again], GEOMETRY, group_ids=again)
    assert ids.num_images == np.unique(again).size and not any("repeat" in note for note in ids.notes)
    assert not any("repeat" in note for note in PLAIN.notes)


# --- tables


def table(separator=",", end="\n", number=repr, bom=""):
    lines = [separator.join([*(f"f{k}" for k in range(8)), "label"])]
    lines += [separator.join([*map(number, row), str(label)]) for row, label in zip(X.tolist(), Y, strict=True)]
    return bom + end.join(lines) + end


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("crlf.csv", table(end="\r\n")),
        ("bom.csv", table(bom="\ufeff")),
        ("excel.tsv", table("\t", "\r\n", bom="\ufeff")),
        ("scientific.csv", table(number="{:.9e}".format)),
        ("spaces.csv", table(", ")),
        ("semicolons.csv", table(";")),
        ("tabs.csv", table("\t")),
        ("commas.tsv", table()),
        ("blank.csv", table() + "\n\n"),
        (
            "vectors.csv",
            "embedding,label\n"
            + "".join(f'"[{" ".join(map(repr, x))}]",{y}\n' for x, y in zip(X.tolist(), Y, strict=True)),
        ),
        (
            "lines.csv",
            "embedding,label\n"
            + "".join(f'"{np.array2string(x, max_line_width=40)}",{y}\n' for x, y in zip(X, Y, strict=True)),
        ),
    ],
)
def test_tables_of_any_writer(name, text, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(text.encode())
    agrees(og.validate(tmp_path / name, geometry=GEOMETRY))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", table().split("\n", 1)[0], r"x.csv: the embeddings must have at least one row; got none"),
        ("x.csv", table().split("\n", 1)[0] + "\n", r"x.csv: the embeddings must have at least one row; got none"),
        (
            "x.csv",
            table(";").replace(".", ","),
            r"x.csv: numbers must have a decimal point; got '[-0-9,]+' in row 0 \(write points",
        ),
        ("x.csv", table().replace("f1,", "f0,", 1), r"x.csv: column names must be all different; got 'f0' twice"),
        (
            "x.csv",
            table().replace(repr(X.tolist()[3][2]), "nan"),
            r"got nan in row 3, column 2 of .*x.csv, and 1 of 440 rows",
        ),
        (
            "x.csv",
            table().replace(repr(X.tolist()[3][2]), "n/a"),
            r"x.csv: line 5 must have a number in column 'f2'; got 'n/a'",
        ),
    ],
)
def test_tables_that_cannot_be_used(name, text, message, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(og.InvalidInputError, match=message) as error:
        og.validate(tmp_path / name, geometry=GEOMETRY)
    assert "\n" not in str(error.value)


def test_shards_that_do_not_go_together(tmp_path):
    for name, second, message in (
        (
            "dims",
            {"X": X[:9, :7], "y": Y[:9]},
            r"rows of the same shape; got \(8,\) in .*s1.npz and \(7,\) in .*s2.npz",
        ),
        ("empty", {"X": X[:0], "y": Y[:0]}, r"s2.npz: the array 'X' must have at least one row"),
        ("unlabelled", {"X": X[:9]}, r"`labels` must have one entry per row; got none of .*s2.npz"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        np.savez(folder / "s1.npz", X=X, y=Y)
        np.savez(folder / "s2.npz", **second)
        with pytest.raises(og.InvalidInputError, match=message):
            og.validate(folder, geometry=GEOMETRY)


def test_images_across_shards_on_several_workers(tmp_path):
    pytest.importorskip("joblib")
    labels, ids = (
        np.repeat(Y[:220], 2),
        np.repeat(np.arange(220), 2),
    )  # two views of an image, one in each of two shards at the cut
    rows = MEANS[labels] + 0.1 * RNG.normal(size=(440, 8))
    for number, part in enumerate((slice(0, 201), slice(201, 440))):
        np.savez(tmp_path / f"s{number}.npz", X=rows[part], y=labels[part])
    one, two = (og.validate(tmp_path, geometry=GEOMETRY, group_ids=ids, workers=workers) for workers in (1, 2))
    assert one.num_images == two.num_images == 220
    np.testing.assert_array_equal(one.directions.gram, two.directions.gram)
    agrees(two, og.validate(rows.reshape(220, 2, 8), Y[:220], GEOMETRY), 1e-10)


# --- extremes


def test_everything_at_one_point_is_collapsed():
    found = og.validate(np.ones((440, 8)), Y, GEOMETRY)
    assert found.verdict == "collapsed" and found.judgement.num_pairs == 3
    assert found.excess_risk.direction == pytest.approx(1, abs=1e-9)
    assert found.excess_risk.total == pytest.approx(1, abs=1e-9)
    assert found.metrics["cdnv_max"].value is None or found.metrics["cdnv_max"].value >= 0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_optimum_without_any_noise(dtype):
    found = og.validate(MEANS[Y].astype(dtype), Y, GEOMETRY)
    assert found.verdict == "consistent"
    assert found.max_angle_error_ci_deg[1] < 1e-3
    assert "errors above 0.0 degrees are ruled out" in found.sentence and "not ruled out" not in found.sentence


def test_one_dimension():
    line = np.where(Y == 0, 1.0, -1.0)[:, None] * np.abs(X[:, :1])
    found = og.validate(line, (Y > 0).astype(int))
    assert found.verdict == "consistent" and found.optimal[0, 1] == pytest.approx(-1)
    limited = og.validate(line, Y, GEOMETRY)
    # One majority against all others: the best there is on a line.
    assert limited.verdict == "consistent" and "solved again for 1 dimension" in limited.notes[-1]
    assert limited.notes[-1].endswith("dimension")


@pytest.mark.parametrize("images", [1, 2, 3])
def test_a_few_images_a_class_tell_nothing(images):
    labels = np.repeat(np.arange(3), images)
    found = og.validate(MEANS[labels] + 0.1 * RNG.normal(size=(labels.size, 8)), labels, GEOMETRY)
    assert found.verdict == "inconclusive"
    assert f"({images} image" in found.sentence


def test_equal_classes_of_a_geometry_in_groups():
    """The geometry keeps 3 + 27 equal classes as two groups: compared class by class all the same."""
    counts = [500] * 3 + [20] * 27
    classes = og.ClassDistribution.from_counts(counts)
    grouped, apart = og.solve(classes, og.SupCon(0.5)), og.solve(classes, og.SupCon(0.5), grouped=False)
    labels = np.repeat(np.arange(30), counts)
    rows = np.pad(grouped.prototypes(), ((0, 0), (0, 11)))[labels] + 0.05 * RNG.normal(size=(labels.size, 40))
    found, wanted = og.validate(rows, labels, grouped), og.validate(rows, labels, apart)
    assert found.verdict == wanted.verdict == "consistent"
    np.testing.assert_allclose(found.optimal, wanted.optimal, atol=1e-6)
    assert found.excess_risk.total == pytest.approx(wanted.excess_risk.total, abs=1e-6)


def test_no_pair_to_test_is_the_reason_of_the_class_r2():
    found = og.validate(RNG.normal(size=(12, 8)), np.arange(12), classes=og.ClassDistribution.from_counts([3] * 12))
    assert found.class_r2 is None
    assert found.metrics["class_r2"].reason == "no pair of classes could be tested"
