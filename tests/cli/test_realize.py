"""The `realize` command: JSON, the summary, label and weight files, outputs, exit codes with one line on stderr."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from helpers import command_line
from helpers.reference import GOLDEN

from optgeom.realization.api import realize
from optgeom.realization.weights import Weights

KEYS = {
    "n",
    "entropic_bound",
    "optimal_loss",
    "gap_to_bound",
    "regime",
    "unique",
    "shift_interval",
    "min_dimension",
    "certificate",
}
CLASSES = ["cat", "dog", "cat", "emu", "dog", "cat", "cat"]
POINTS = np.random.default_rng(0).normal(size=(10, 3))
SQUARED = ((POINTS[:, None] - POINTS[None]) ** 2).sum(axis=-1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    np.save(tmp_path / "points.npy", POINTS)
    (tmp_path / "points.csv").write_text(
        "x,y,z\n" + "\n".join(",".join(map(repr, map(float, row))) for row in POINTS) + "\n"
    )
    np.save(tmp_path / "w.npy", np.exp(-((POINTS[:, None] - POINTS[None]) ** 2).sum(axis=-1) / 2))
    codes = np.unique(CLASSES, return_inverse=True)[1]
    scipy.sparse.save_npz(tmp_path / "w.npz", scipy.sparse.csr_array((codes[:, None] == codes[None]).astype(float)))
    return tmp_path


run = partial(command_line.run, "realize", "--temperature", 0.5)
realized = partial(command_line.answer, "realize", "--temperature", 0.5)
words = partial(command_line.words, "realize", "--temperature", 0.5)


# --- JSON
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GOLDEN["realize"], ids=lambda case: case["name"])
def test_reference_cases(case, tmp_path):
    y = np.array(case["labels"])
    width = float(case["weights"].split("/")[1].rstrip(")"))
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "w.npy", np.exp(-((y[:, None] - y[None]) ** 2).sum(axis=-1) / width))
    labels = ("--labels", tmp_path / "y.npy", "--scheme", "y-aware", "--bandwidth", math.sqrt(width / 2))
    for given in (labels, ("--weights", tmp_path / "w.npy")):
        found = realized(*given, "--similarity", case["similarity"], "--temperature", case["temperature"])
        assert set(found) >= KEYS
        assert found["optimal_loss"] == pytest.approx(case["optimal_loss"], abs=1e-6)
        assert found["entropic_bound"] == pytest.approx(case["entropic_bound"], abs=1e-9)
        assert (found["regime"] == "realizable") == case["realizable"]
        assert found["certificate"]["certified"] is True and found["certificate"]["gap"] <= 1e-9 * 4


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        (("--labels", "classes.txt", "--scheme", "supcon"), lambda: Weights.supcon(CLASSES)),
        (
            ("--labels", "classes.txt", "--scheme", "soft-supcon", "--epsilon", 0.1),
            lambda: Weights.soft_supcon(CLASSES, 0.1),
        ),
        (("--labels", "points.npy", "--scheme", "y-aware"), lambda: Weights.y_aware(POINTS)),
        (("--labels", "points.csv", "--scheme", "y-aware", "--bandwidth", 2), lambda: Weights.y_aware(POINTS, 2.0)),
        (
            ("--labels", "points.npy", "--scheme", "y-aware", "--paper-form"),
            lambda: Weights.from_matrix(np.exp(-SQUARED)),
        ),
        (
            ("--labels", "points.npy", "--scheme", "y-aware", "--paper-form", "--bandwidth", 2),
            lambda: Weights.from_matrix(np.exp(-SQUARED / 4)),
        ),
        (
            ("--labels", "points.npy", "--scheme", "x-clr", "--label-temperature", 0.4),
            lambda: Weights.x_clr(POINTS, 0.4),
        ),
        (("--weights", "w.npy"), lambda: Weights.y_aware(POINTS)),
        (("--weights", "w.npz"), lambda: Weights.supcon(CLASSES)),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_every_scheme_gives_what_python_gives(options, weights, similarity, folder):
    found = realized(*options, "--similarity", similarity, "--temperature", 0.7)
    expected = realize(weights(), similarity, temperature=0.7)
    assert found["regime"] == expected.regime and found["n"] == expected.n and found["similarity"] == similarity
    assert found["optimal_loss"] == pytest.approx(expected.optimal_loss, abs=1e-9)
    assert found["min_dimension"] == expected.verdict.min_dimension
    assert found["certificate"]["certified"] is True


def test_defaults_are_cosine_at_a_tenth(folder):
    found = command_line.answer("realize", "--labels", "points.npy", "--scheme", "y-aware")
    assert (found["similarity"], found["temperature"], found["dim"], found["bracket"]) == ("cosine", 0.1, None, None)
    assert found["scheme"] == {"name": "y-aware", "bandwidth": 1.0, "paper": False}
    assert found["reason"] and found["remedy"]


def test_open_end_of_the_interval_is_null(folder):
    low, high = realized("--labels", "points.npy", "--scheme", "y-aware", "--similarity", "euclidean")["shift_interval"]
    assert low is None and high == pytest.approx(0, abs=1e-9)


def test_too_few_dimensions_are_a_bracket_and_exit_0(folder):
    options = ("--labels", "points.npy", "--scheme", "y-aware", "--dim", 2)
    found = realized(*options)
    low, high = found["bracket"]
    assert low <= high == found["optimal_loss"] and found["certificate"]["certified"] is False
    assert "a bracket" in words(*options)


def test_search_finds_the_temperature(folder):
    found = realized("--labels", "points.npy", "--scheme", "y-aware", "--search")
    assert "lower the temperature to" in found["remedy"]


# --- in words
# ----------------------------------------------------------------------------------------------------------------------


def test_summary(folder):
    text = words("--labels", "classes.txt", "--scheme", "soft-supcon", "--epsilon", 0.1, "--temperature", 0.6)
    for part in (
        "soft-supcon (epsilon 0.1), 7 samples, 3 distinct",
        "cosine, temperature 0.6",
        "realizable",
        "certified:",
    ):
        assert part in text
    text = words("--labels", "classes.txt", "--scheme", "supcon")
    assert "degenerate: hard scheme, the entropic bound is not attained" in text and "act as negatives only" in text
    done = run("--labels", "points.npy", "--scheme", "y-aware")
    assert max(map(len, done.stdout.splitlines())) <= 100 and "\x1b" not in done.stdout


# --- files
# ----------------------------------------------------------------------------------------------------------------------


def test_out_and_plot(folder):
    pytest.importorskip("matplotlib")
    options = ("--labels", "points.npy", "--scheme", "x-clr", "--label-temperature", 0.5, "--dim", 4)
    assert run(*options, "--out", "z.npy", "--plot", "p.png").exit_code == 0
    assert run(*options, "--out", "z.csv", "--plot", "p.svg").exit_code == 0
    table = np.load("z.npy")
    unit = POINTS / np.linalg.norm(POINTS, axis=1, keepdims=True)
    assert table.shape == (10, 4)
    assert table @ table.T == pytest.approx(unit @ unit.T, abs=1e-8)
    assert np.array_equal(np.loadtxt("z.csv", delimiter=","), table)
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (folder / "p.svg").read_text()


def test_cailliez_is_compared_and_written(folder):
    star = np.array([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0]])
    np.save("star.npy", np.exp(-(star**2) / 0.5))
    options = ("--weights", "star.npy", "--similarity", "euclidean", "--constant", "cailliez")
    found = realized(*options, "--out", "z.npy")
    assert (
        found["cailliez"]["constant"] == pytest.approx((math.sqrt(3) - 1) / 2, abs=1e-13)
        and found["cailliez"]["dimension"] == 2
    )
    assert found["optimal_loss"] == pytest.approx(found["entropic_bound"], abs=1e-13)
    assert found["cailliez"]["loss"] > found["entropic_bound"] + 1e-3
    table = np.load("z.npy")
    between = np.linalg.norm(table[:, None] - table[None], axis=-1)
    assert between == pytest.approx((star + found["cailliez"]["constant"]) * (1 - np.eye(4)), abs=1e-7)
    assert "Cailliez 0.366025 added to distances: 2 dimensions, loss 0.303128112181, 0.00257 above the bound" in words(
        *options
    )
    assert realized(*options[:-2])["cailliez"] is None


@pytest.mark.parametrize(
    "text",
    ["\ufeff0.5,1\n2,3\n4,7\n", "x,y\n0.5,1\n2,3\n4,7\n", "0.5 1\n\n2 3\n4 7\n", '# by hand\n"x";y\n0.5;1\n2;3\n4;7\n'],
    ids=["mark", "header", "blanks", "semicolons"],
)
def test_every_row_of_a_table_counts(text, folder):
    (folder / "t.csv").write_text(text, encoding="utf-8")
    found = realized("--labels", "t.csv", "--scheme", "y-aware", "--similarity", "euclidean")
    expected = realize(Weights.y_aware([[0.5, 1], [2, 3], [4, 7]]), "euclidean", temperature=0.5)
    assert found["n"] == 3 and found["entropic_bound"] == pytest.approx(expected.entropic_bound, abs=1e-14)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1,2\n3\n4,5\n", "cannot read t.csv (line 2 has 1 cells, the first has 2)"),
        ("1,,3\n1,2,\n4,5,\n", "cannot read t.csv (line 1 has '')"),
        ("n/a,2\n3,4\n5,6\n", "cannot read t.csv (line 1 has 'n/a')"),
        ("1,2\n3,x\n5,6\n", "cannot read t.csv (line 2 has 'x')"),
        ("1,2\n3,1_000\n5,6\n", "cannot read t.csv (line 2 has '1_000')"),
        ("x,y\n1\n", "cannot read t.csv (line 2 has 1 cells, the first has 2)"),
        ("x,y\n", "`labels` must be numbers of shape (n,) or (n, p); got shape (0,)"),
    ],
)
def test_tables_with_holes_are_refused(text, line, folder):
    (folder / "t.csv").write_text(text)
    done = run("--labels", "t.csv", "--scheme", "y-aware")
    assert done.exit_code == 3 and line in done.stderr and done.stderr.count("\n") == 1


def test_bracket_has_its_dimension(folder):
    assert run("--labels", "points.npy", "--scheme", "y-aware", "--dim", 2, "--out", "z.npy").exit_code == 0
    assert np.load("z.npy").shape == (10, 2)


PEOPLE = "id,age,height\n0,23,1.7\n1,40,1.8\n2,61,1.6\n3,35,1.9\n"
AGES = [23.0, 40.0, 61.0, 35.0]
EUCLIDEAN = ("--scheme", "y-aware", "--similarity", "euclidean")


@pytest.mark.parametrize("heading", ["id", "Index", "path", ""])
def test_a_column_that_numbers_the_samples_is_no_label(heading, folder):
    (folder / "t.csv").write_text(PEOPLE.replace("id", heading, 1))
    message = command_line.refused("realize", 3, "--labels", "t.csv", *EUCLIDEAN)
    assert f"got '{heading}' in t.csv" in message and "--label-column age --label-column height" in message
    found = realized("--labels", "t.csv", "--label-column", "age", *EUCLIDEAN, "--bandwidth", 10)
    expected = realize(Weights.y_aware(AGES, 10), "euclidean", temperature=0.5)
    assert found["min_dimension"] == 1 and found["entropic_bound"] == pytest.approx(expected.entropic_bound, abs=1e-14)
    assert found["notes"] == []


def test_columns_beside_the_labels_need_not_be_numbers(folder):
    (folder / "t.csv").write_text("file,age\na.png,23\nb.png,40\nc.png,61\nd.png,35\n")
    found = realized("--labels", "t.csv", "--label-column", "age", *EUCLIDEAN)
    assert found["n"] == 4 and found["min_dimension"] == 1


def test_several_columns_are_said(folder):
    (folder / "t.csv").write_text(PEOPLE)
    chosen = ("--label-column", "height", "--label-column", "age", *EUCLIDEAN, "--bandwidth", 10)
    assert "Note labels: 2 columns, height, age (--label-column NAME takes some of them)" in words(
        "--labels", "t.csv", *chosen
    )
    (folder / "bare.csv").write_text("0,23\n1,40\n2,61\n3,35\n")
    assert "labels: 2 columns, column 1, column 2" in words("--labels", "bare.csv", *EUCLIDEAN)
    (folder / "one.csv").write_text("id\n5\n6\n8\n")  # the only column: no other could be meant
    assert realized("--labels", "one.csv", *EUCLIDEAN)["n"] == 3


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ("--labels", "t.csv", "--label-column", "weight", *EUCLIDEAN),
            "--label-column must name one column of t.csv; got 'weight' (it has id",
        ),
        (
            ("--labels", "points.npy", "--label-column", "age", *EUCLIDEAN),
            "--label-column needs a table with headings; got points.npy",
        ),
        (
            ("--labels", "classes.txt", "--label-column", "age", "--scheme", "supcon"),
            "--label-column belongs to --scheme y-aware and x-clr",
        ),
        (("--weights", "w.npy", "--label-column", "age"), "--scheme and its parameters belong to --labels"),
    ],
)
def test_columns_that_are_not_there(options, line, folder):
    (folder / "t.csv").write_text(PEOPLE)
    done = run(*options)
    assert (
        done.exit_code in (2, 3) and done.stdout == "" and done.stderr.startswith(line) and done.stderr.count("\n") == 1
    )


def test_default_bandwidth_is_noted(folder):
    (folder / "t.csv").write_text("".join(f"{age}\n" for age in AGES))
    note = f"bandwidth 1, the default; the labels have standard deviation {np.std(AGES):.3g} "
    note += "(--bandwidth sets which labels count as near)"
    assert realized("--labels", "t.csv", *EUCLIDEAN)["notes"] == [note]
    assert note in words("--labels", "t.csv", *EUCLIDEAN)
    assert realized("--labels", "t.csv", *EUCLIDEAN, "--bandwidth", 1)["notes"] == []


def test_words_of_the_paper_only_where_it_differs(folder):
    assert "(bandwidth 1.0), 10 samples" in words("--labels", "points.npy", "--scheme", "y-aware")
    assert "(bandwidth 1.0, the paper's form), 10 samples" in words(
        "--labels", "points.npy", "--scheme", "y-aware", "--paper-form"
    )


def test_a_verdict_without_a_remedy_says_what_else_there_is(folder):
    soft = ("--labels", "classes.txt", "--scheme", "soft-supcon", "--epsilon", 0.1)
    text = words(*soft, "--temperature", 0.5)
    assert (
        "unit vectors in 3 dimensions have them for one constant only" in text
        and "Also in 6 dimensions there is a second" in text
    )
    assert "To change it" not in text and "To change it lower the temperature to" in words(*soft, "--temperature", 2)


# --- wrong use
# ----------------------------------------------------------------------------------------------------------------------

Y_AWARE = ("--labels", "points.npy", "--scheme", "y-aware")


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        ((), 2, "give --weights FILE, or --labels FILE with --scheme (exactly one of the two)"),
        (("--weights", "w.npy", "--labels", "points.npy"), 2, "give --weights FILE, or --labels FILE with --scheme"),
        (("--labels", "points.npy"), 2, "--labels need --scheme supcon, soft-supcon, y-aware or x-clr"),
        (("--weights", "w.npy", "--epsilon", 0.1), 2, "--scheme and its parameters belong to --labels"),
        (("--weights", "w.npy", "--scheme", "supcon"), 2, "--scheme and its parameters belong to --labels"),
        ((*Y_AWARE, "--out", "z.txt"), 2, "--out must end in .npy, .csv; got 'z.txt'"),
        ((*Y_AWARE, "--plot", "p.jpg"), 2, "--plot must end in .png, .svg, .pdf; got 'p.jpg'"),
        ((*Y_AWARE, "--temperature", 0), 3, "`temperature` must be > 0; got 0.0 (usual values are 0.05 to 1)"),
        ((*Y_AWARE, "--dim", 0), 3, "`dim` must be a whole number >= 1; got 0"),
        ((*Y_AWARE, "--tolerance", 0), 3, "`tolerance` must be > 0; got 0.0 (the default is 1e-9)"),
        ((*Y_AWARE, "--bandwidth", -1), 3, "`bandwidth` must be > 0; got -1.0"),
        (
            (*Y_AWARE, "--epsilon", 0.1),
            3,
            "`epsilon` must not be given for the scheme y-aware; it takes bandwidth and paper",
        ),
        ((*Y_AWARE, "--label-temperature", 0.1), 2, "--label-temperature belongs to --scheme x-clr"),
        ((*Y_AWARE, "--constant", "cailliez"), 3, "`constant` must be lingoes with cosine similarity; got 'cailliez'"),
        (
            (*Y_AWARE, "--temperature", 1e-9),
            3,
            "`temperature` must be from 1e-06 to 1e+12 with cosine similarity; got 1e-09",
        ),
        (
            (*Y_AWARE, "--bandwidth", 1e-200),
            3,
            "`bandwidth` must not be below a millionth of the largest distance of labels",
        ),
        (
            ("--labels", "classes.txt", "--scheme", "supcon", "--paper-form"),
            2,
            "--paper-form belongs to --scheme y-aware",
        ),
        (("--weights", "w.npy", "--paper-form"), 2, "--scheme and its parameters belong to --labels"),
        (("--labels", "points.npy", "--scheme", "x-clr"), 2, "--scheme x-clr needs --label-temperature"),
        (
            ("--labels", "classes.txt", "--scheme", "soft-supcon"),
            3,
            "`epsilon` must be given for the scheme soft-supcon",
        ),
        (
            ("--labels", "classes.txt", "--scheme", "soft-supcon", "--epsilon", 2),
            3,
            "`epsilon` must be in (0, 1]; got 2.0",
        ),
        (
            ("--labels", "classes.txt", "--scheme", "y-aware"),
            3,
            "`labels` must be numbers, one row per sample, for this scheme",
        ),
        (("--weights", "none.npy"), 3, "`weights` must be an .npy matrix or a scipy sparse .npz; cannot read none.npy"),
        (("--weights", "bad.npy"), 3, "`weights` must be not negative; got w_0,1 = -0.1"),
        (("--weights", "nan.npy"), 3, "`weights` must be finite; got w_0,1 = nan"),
        (("--weights", "two.npy"), 3, "`weights` must be of at least 3 samples; got 2"),
        (
            ("--weights", "object.npy"),
            3,
            "`weights` must be an .npy matrix or a scipy sparse .npz; cannot read object.npy",
        ),
        (("--weights", "points.npy"), 3, "`weights` must be a square (n, n) matrix; got shape (10, 3)"),
        (
            ("--labels", "classes.txt", "--scheme", "supcon", "--similarity", "euclidean", "--out", "z.npy"),
            3,
            "`verdict` must be",
        ),
    ],
    ids=str,
)
def test_wrong_use_is_one_line_and_no_file(options, code, line, folder):
    for name, value in (("bad", -0.1), ("nan", math.nan)):
        w = np.ones((4, 4))
        w[0, 1] = w[1, 0] = value
        np.save(folder / f"{name}.npy", w)
    np.save(folder / "two.npy", np.ones((2, 2)))
    np.save(folder / "object.npy", np.array([[1, "a"], [None, 2]], dtype=object), allow_pickle=True)
    before = sorted(path.name for path in folder.iterdir())
    done = run(*options)
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before


def test_unknown_scheme_is_a_usage_error(folder):
    done = run("--labels", "classes.txt", "--scheme", "simclr")
    assert done.exit_code == 2 and done.stdout == ""


# --- What the loss determines
# ----------------------------------------------------------------------------------------------------------------------


def test_slack_adds_ranges_of_pairs(folder):
    found = realized("--labels", folder / "classes.txt", "--scheme", "supcon", "--slack", "1e-3", "--whole")
    assert found["ranges"]["own"] is False and len(found["ranges"]["pairs"]) == 21
    assert set(found["slack_needed"]) == {"tolerance_deg", "whole", "own", "float32_share", "batch_share"}
    first = found["ranges"]["pairs"][0]
    assert (first["first"], first["second"]) == ("0", "1")
    assert first["closest_deg"] < first["angle_deg"] < first["farthest_deg"]
    text = words("--labels", folder / "classes.txt", "--scheme", "supcon", "--slack", "1e-3")
    assert "per sample of a pair: 0 of 21 angles are determined to 2 degrees" in text
    assert "sample sample angle (degrees) within the slack" in text


def test_slack_of_a_family_of_optima(folder):
    text = words("--labels", folder / "classes.txt", "--scheme", "soft-supcon", "--epsilon", "0.2", "--slack", "1e-3")
    assert "no slack fixes every angle to 2 degrees: optimal geometries, in any dimension, differ by more" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--whole",), 2, "--whole goes with --slack"),
        (("--slack", "1e-3", "--similarity", "euclidean"), 2, "`geometry` must have cosine similarity"),
        (("--slack", "1e-3", "--dim", "1"), 2, "`geometry` must be an optimum without a limit of dimension"),
    ],
)
def test_refusals_of_slack(folder, arguments, code, message):
    labels = ("--labels", folder / "classes.txt", "--scheme", "soft-supcon", "--epsilon", "0.2")
    assert message in command_line.refused("realize", code, *labels, *arguments)
