"""Cases 18 to 24, 27, 28 and 35 to 37 of practice: embeddings and their files. One test a case, named by its number."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.command_line import answer, refused, words

import optgeom as og
from optgeom._numerics import arccos_clipped
from optgeom.embeddings.metrics.class_metrics import simplex_distance

COUNTS = [60, 30, 15, 10]
LOSS = og.SupCon(0.5)
OPTIMUM = og.solve(og.ClassDistribution.from_counts(COUNTS), LOSS)
Y = np.repeat(np.arange(4), COUNTS)
RNG = np.random.default_rng(5)
X = OPTIMUM.prototypes(8)[Y] + 0.1 * RNG.normal(size=(Y.size, 8))
X /= np.linalg.norm(X, axis=1, keepdims=True)
TAU = ("--temperature", 0.5)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("y.npy", Y)
    OPTIMUM.save("g.npz")
    return tmp_path


def given(rows: np.ndarray) -> tuple[str, ...]:
    np.save("x.npy", rows)
    return ("--embeddings", "x.npy", "--labels", "y.npy", "--geometry", "g.npz")


def test_case_18_a_zero_vector(folder) -> None:
    broken = X.copy()
    broken[0] = 0
    assert "zero vector in row 0" in refused("validate", 3, *given(broken))


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_case_19_a_component_that_is_no_number(value: str, folder) -> None:
    broken = X.copy()
    broken[3, 7] = broken[8, 1] = float(value)
    message = refused("validate", 3, *given(broken))
    assert f"got {value} in row 3, column 7" in message and f"2 of {len(X)} rows" in message


def test_case_20_embeddings_that_are_not_normalised(folder) -> None:
    straight = answer("validate", *given(X))
    report = answer("validate", *given(X * np.linspace(1, 20, len(X))[:, None]))
    assert report["max_angle_error_deg"] == pytest.approx(straight["max_angle_error_deg"], abs=1e-9)
    assert any(
        note.startswith("rows were not of length 1 (norms 1 to 20, mean 10.5): normalised") for note in report["notes"]
    )
    assert report["norms"] == pytest.approx({"smallest": 1, "largest": 20, "mean": 10.5})


def test_case_21_a_cosine_above_one() -> None:
    assert np.degrees(arccos_clipped(np.array([1.0000001, -1.0000001]))).tolist() == [0.0, 180.0]
    rows = np.full((20, 3), 0.5773504, dtype=np.float32)
    rows[10:] *= -1
    assert np.float32(rows[0] @ rows[1]) > 1  # as computed in float32
    report = og.validate(rows, [0] * 10 + [1] * 10, loss=LOSS).as_dict()
    assert report["median_rho"] == pytest.approx(1, abs=1e-15) and report["verdict"] == "consistent"
    assert report["max_angle_error_deg"] == pytest.approx(0, abs=1e-6)


def test_case_22_one_collapsed_class_is_not_averaged_away(folder) -> None:
    rows = X + 0.4 * RNG.normal(size=X.shape)
    rows[Y == 3] = OPTIMUM.prototypes(8)[3]
    per_class = {row["name"]: row for row in answer("validate", *given(rows))["per_class"]}
    assert per_class["3"]["rho"] == pytest.approx(1) and per_class["0"]["rho"] < 0.9
    lost = X.copy()
    lost[Y == 2] = X[0]  # a class that fell onto another
    text = words("validate", *given(lost))
    assert "Worst class" in text and text.index("Classes in most trouble") > 0
    assert answer("validate", *given(lost))["per_class"][0]["name"] in "02"


def test_case_23_an_empty_class(folder) -> None:
    simplex = og.solve(og.ClassDistribution.from_counts([1, 1, 1]), LOSS).prototypes(8)
    np.save("y.npy", np.repeat(np.arange(3), 10))
    np.save("x.npy", np.repeat(simplex, 10, axis=0))
    report = answer("validate", "--embeddings", "x.npy", "--labels", "y.npy", "--counts", "10,10,10,10", *TAU)
    assert report["missing"] == ["3"]
    assert report["metrics"]["simplex_frobenius"]["value"] == pytest.approx(0, abs=1e-7)
    gram = np.zeros((4, 4))
    gram[:3, :3] = np.where(np.eye(3) > 0, 1.0, -0.5)
    empty = simplex_distance(gram)
    assert empty.left_out == (3,) and empty.relative_frobenius == pytest.approx(0, abs=1e-12)


def test_case_24_coincident_class_means(folder) -> None:
    np.save("y.npy", np.repeat(np.arange(3), 10))
    np.save("x.npy", np.repeat([[1.0, 0], [-1, 0], [-1, 0]], 10, axis=0))
    report = answer("validate", "--embeddings", "x.npy", "--labels", "y.npy", *TAU)
    assert report["verdict"] == "collapsed" and "1 and 2" in report["sentence"]
    json.dumps(report, allow_nan=False)
    assert "Worst classes 1 and 2, with each other: off by" in words(
        "validate", "--embeddings", "x.npy", "--labels", "y.npy", *TAU
    )


def test_case_27_permuted_classes(folder) -> None:
    order = np.array([2, 0, 3, 1])
    np.save("y.npy", order[Y])
    assert answer("validate", *given(X))["verdict"] != "consistent"
    np.save("y.npy", order[Y])
    report = answer("validate", *given(X), "--match", "hungarian")
    assert report["matched"] == {str(order[c]): str(c) for c in range(4)} and report["verdict"] == "consistent"


def test_case_28_a_mirrored_embedding(folder) -> None:
    mirror = np.diag([-1.0] + [1.0] * 7)
    straight, mirrored = answer("validate", *given(X)), answer("validate", *given(X @ mirror))
    assert mirrored["max_angle_error_deg"] == pytest.approx(straight["max_angle_error_deg"], abs=1e-9)
    perfect = OPTIMUM.prototypes(8)
    np.testing.assert_allclose(og.align(perfect @ mirror, perfect), perfect, atol=1e-12)


def test_case_35_files_of_the_projector(folder) -> None:
    def write(name: str, rows: list) -> None:
        (folder / name).write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))

    several = [["label", "file"], *([label, f"{row}.png"] for row, label in enumerate(Y[:20]))]
    write("vectors.tsv", X[:20].tolist())
    write("metadata.tsv", several)
    assert len(several) == 21
    use = ("--embeddings", "vectors.tsv", "--profile", "exp:4:6")
    np.save("y.npy", Y[:20])
    assert "must have two classes of the geometry at least" in refused(
        "validate", 3, *use
    )  # 20 rows of class 0: read, then judged
    write("vectors.tsv", X[50:70].tolist())
    write("metadata.tsv", [["label", "file"], *([label, "a.png"] for label in Y[50:70])])
    assert answer("validate", *use)["num_rows"] == 20
    write("metadata.tsv", [[label] for label in Y[50:70]])
    assert answer("validate", *use)["num_rows"] == 20
    write("metadata.tsv", [["label"], *([label] for label in Y[50:70])])
    assert "the metadata file of a single column has no header: remove it" in refused("validate", 3, *use)


def test_case_36_object_arrays_are_never_unpickled(folder) -> None:
    np.save("x.npy", X.astype(object), allow_pickle=True)
    assert "which need pickle and are never unpickled" in refused(
        "validate", 3, "--embeddings", "x.npy", "--labels", "y.npy", *TAU
    )
    np.save("y.npy", Y.astype(object), allow_pickle=True)
    assert "which need pickle and are never unpickled" in refused("solve", 3, "--labels", "y.npy")


def test_case_37_bfloat16_in_safetensors(folder) -> None:
    bits = (X.astype("<f4").view("<u4") >> 16).astype("<u2")  # the upper half of a float32 is a bfloat16
    header = {
        "embeddings": {"dtype": "BF16", "shape": list(X.shape), "data_offsets": [0, bits.nbytes]},
        "labels": {"dtype": "I64", "shape": [Y.size], "data_offsets": [bits.nbytes, bits.nbytes + 8 * Y.size]},
    }
    text = json.dumps(header).encode()
    (folder / "x.safetensors").write_bytes(
        len(text).to_bytes(8, "little") + text + bits.tobytes() + Y.astype("<i8").tobytes()
    )
    report = answer("validate", "--embeddings", "x.safetensors", "--geometry", "g.npz")
    rounded = (bits.astype("<u4") << 16).view("<f4")
    assert report["max_angle_error_deg"] == pytest.approx(
        answer("validate", *given(rounded))["max_angle_error_deg"], abs=1e-6
    )
