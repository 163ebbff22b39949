"""og.validate: verdicts in closed form, the same data in every container, views, refusals, and the result."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import math

import jsonschema
import numpy as np
import pytest
from helpers.simulated import long_tail, means_of, optimum, sample, shape_root, turned, unit

import optgeom as og
from optgeom.embeddings.metrics.similarity import class_optimum_r2, procrustes_r2, sample_similarity_r2
from optgeom.formatting import to_json

COUNTS = long_tail(600, 60, 8)
LOSS = og.SupCon(0.5, batch_size=32)
GEOMETRY = og.solve(og.ClassDistribution.from_counts(COUNTS), LOSS)
RNG = np.random.default_rng(5)
MEANS = means_of(np.array(GEOMETRY.gram), 16, RNG)
X = np.concatenate(sample(MEANS, COUNTS, 0.4, shape_root(16, 1, RNG), RNG))
Y = np.repeat(np.arange(8), COUNTS)
ORDER = RNG.permutation(len(Y))
X, Y = X[ORDER].astype(np.float32), Y[ORDER]
SCHEMA = json.loads(
    importlib.resources.files("optgeom.embeddings").joinpath("validation.schema.json").read_text(encoding="utf-8")
)


def checked(found):
    """The JSON object, after a check against the schema."""
    content = json.loads(json.dumps(to_json(found.as_dict()), allow_nan=False))
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    return content


def numbers(found):
    """Every number of the JSON object but the time, by its path."""
    held = {}

    def walk(path, value):
        if isinstance(value, dict):
            for key, item in value.items():
                walk(f"{path}/{key}", item)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                walk(f"{path}/{number}", item)
        else:
            held[path] = value

    content = checked(found)
    del (
        content["seconds"],
        content["embeddings_from"],
        content["optimum"]["from"],
        content["sentence"],
        content["notes"],
    )
    walk("", content)
    return held


def same(found, wanted, tolerance=1e-6):
    mine, theirs = numbers(found), numbers(wanted)
    assert mine.keys() == theirs.keys()
    for path, value in mine.items():
        if isinstance(value, float):
            # Draws are not turned with the embedding: a mean of 500 of them is known to a twentieth of their spread.
            drawn = theirs["/reference/position_sd"] / 4 if path.startswith("/reference/position") else 0.0
            assert value == pytest.approx(theirs[path], rel=tolerance, abs=max(tolerance, drawn)), path
        else:
            assert value == theirs[path], path


# --- verdicts


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_consistent_with_the_optimum():
    found = og.validate(X, Y, GEOMETRY)
    content = checked(found)
    assert found.verdict == content["verdict"] == "consistent"
    assert content["optimum"]["own_counts"] is False
    assert content["num_pairs"] == 28
    assert found.max_angle_error_ci_deg[0] == 0
    assert all(row.count == COUNTS[int(row.name)] for row in found.classes)
    assert abs(found.excess_risk.direction) < 1e-3
    assert found.excess_risk.within > 0


def test_a_turned_class_is_named():
    rng = np.random.default_rng(6)
    moved, (first, last) = turned(MEANS, 10)
    rows = np.concatenate(sample(moved, COUNTS, 0.3, shape_root(16, 1, rng), rng))
    found = og.validate(rows, np.repeat(np.arange(8), COUNTS), GEOMETRY)
    assert found.verdict == "differs"
    worst = found.worst_pairs(1)[0]
    assert {worst.first, worst.second} == {first, last}
    assert found.classes[0].name in (str(first), str(last))
    assert found.classes[0].pairs >= 1
    checked(found)


def test_a_perfect_embedding_in_closed_form():
    counts = [500, 100, 20]
    geometry = og.solve(og.ClassDistribution.from_counts(counts), og.SupCon(0.5))
    rows = np.repeat(geometry.prototypes(), counts, axis=0)
    found = og.validate(rows, np.repeat(np.arange(3), counts), geometry, tolerance_deg=0)
    assert found.verdict == "consistent"
    assert found.max_angle_error_deg < 1e-5
    assert found.class_r2 == pytest.approx(1, abs=1e-9)
    for name, value in (("sample_r2", 1), ("procrustes_r2", 1), ("nc1", 0), ("cdnv_max", 0), ("nearest_mean", 1)):
        assert found.metrics[name].value == pytest.approx(value, abs=1e-9), name
    assert found.metrics["empirical_loss"].value == pytest.approx(geometry.risk, abs=1e-9)
    terms = found.excess_risk
    assert (terms.direction, terms.shrink, terms.within) == pytest.approx((0, 0, 0), abs=1e-8)


def test_case_28_a_mirrored_embedding_is_at_distance_0():
    mirrored = X * np.array([-1] + [1] * 15, dtype=np.float32)
    same(og.validate(mirrored, Y, GEOMETRY), og.validate(X, Y, GEOMETRY))


def test_balanced_classes_have_no_r2():
    classes = og.ClassDistribution.from_counts([10, 10, 10])
    rows = np.repeat(og.solve(classes, og.SupCon()).prototypes(), 10, axis=0)
    found = og.validate(rows, np.repeat(np.arange(3), 10), classes=classes)
    assert found.class_r2 is None
    assert "no variation to explain" in found.metrics["class_r2"].reason
    assert found.metrics["simplex_max_angle_deg"].value == pytest.approx(0, abs=1e-5)
    checked(found)


def test_case_15_a_singleton_has_no_statistics():
    rng = np.random.default_rng(0)
    rows = np.concatenate([unit(np.array([1, 0, 0]) + 0.1 * rng.normal(size=(50, 3))), [[-1.0, 0, 0]]])
    found = og.validate(rows, [0] * 50 + [1], classes=og.ClassDistribution.from_counts([5000, 1]))
    assert found.optimal[0, 1] == pytest.approx(-1)
    assert found.verdict == "inconclusive"
    assert "1 (1 image)" in found.sentence
    single = next(row for row in found.classes if row.name == "1")
    assert (single.rho, single.deviation, single.cdnv, single.nearest_mean, single.cac) == (None,) * 5
    assert found.max_angle_error_deg is None
    checked(found)


def test_case_22_one_collapsed_minority_is_not_averaged_away():
    rng = np.random.default_rng(1)
    rows = np.concatenate(
        [unit(np.array([1, 0, 0.0]) + 0.5 * rng.normal(size=(1000, 3))), np.tile([[-1.0, 0, 0]], (20, 1))]
    )
    found = og.validate(rows, [0] * 1000 + [1] * 20, loss=og.SupCon(0.5))
    by_name = {row.name: row for row in found.classes}
    assert by_name["1"].rho == pytest.approx(1)
    assert by_name["0"].rho < 0.95


def test_case_23_an_empty_class_is_named_and_left_out():
    classes = og.ClassDistribution.from_counts([10, 10, 10, 10])
    rows = np.repeat(og.solve(og.ClassDistribution.from_counts([1, 1, 1]), og.SupCon()).prototypes(), 10, axis=0)
    found = og.validate(rows, np.repeat(np.arange(3), 10), classes=classes)
    assert found.missing == ("3",)
    assert found.metrics["simplex_frobenius"].value == pytest.approx(0, abs=1e-9)
    checked(found)


def test_case_24_coincident_means_are_a_collapsed_pair():
    rows = np.repeat([[1.0, 0], [-1, 0], [-1, 0]], 10, axis=0)
    found = og.validate(rows, np.repeat(np.arange(3), 10))
    assert found.verdict == "collapsed"
    assert "1 and 2" in found.sentence
    content = checked(found)
    assert content["judgement"]["classes"][0]["pairs"] == 1
    assert math.isfinite(found.metrics["cdnv_mean"].value)
    assert found.classes[0].cdnv == math.inf


def test_case_25_too_few_dimensions_are_compared_with_a_bracket():
    geometry = og.solve(og.ClassDistribution.from_counts([60, 50, 40, 30, 20]), og.SupCon(0.5))
    best = og.solve(geometry.classes, og.SupCon(0.5), dim=3)
    rows = np.repeat(best.prototypes(3), 20, axis=0)
    found = og.validate(rows, np.repeat(np.arange(5), 20), geometry)
    assert found.geometry.bracket is not None
    assert found.verdict == "consistent"
    assert "as good as the best geometry found in so few dimensions" in found.sentence
    assert found.max_angle_error_deg < 1e-3
    assert "The optimum needs 4 dimensions and the embeddings have 3" in found.sentence
    assert checked(found)["optimum"]["required_rank"] == 4
    assert any("solved again for 3 dimensions" in note for note in found.notes)


def test_case_26_a_simplex_fits_into_one_dimension_less_than_classes():
    classes = og.ClassDistribution.from_counts([1] * 10)
    rows = np.repeat(og.solve(classes, og.SupCon()).prototypes(9), 10, axis=0)
    found = og.validate(rows, np.repeat(np.arange(10), 10), classes=classes)
    assert found.geometry.bracket is None
    assert found.verdict == "consistent"


def test_own_counts_are_said():
    found = og.validate(X, Y, loss=LOSS)
    assert found.own_counts
    assert "label counts of the embeddings themselves, not from the training data" in found.sentence
    np.testing.assert_allclose(found.optimal, GEOMETRY.gram, atol=1e-7)
    half = og.validate(X, Y, loss=LOSS, sampler_power=0.5)
    np.testing.assert_allclose(half.geometry.proportions, np.sqrt(COUNTS) / np.sqrt(COUNTS).sum(), rtol=1e-12)


def test_case_20_norms_are_taken_off_and_told():
    scale = np.linspace(1, 20, len(X))[:, None].astype(np.float32)
    found = og.validate(X * scale, Y, GEOMETRY)
    assert found.norms.smallest == pytest.approx(1, rel=1e-5)
    assert found.norms.largest == pytest.approx(20, rel=1e-5)
    assert any("normalised" in note for note in found.notes)
    assert found.max_angle_error_deg == pytest.approx(og.validate(X, Y, GEOMETRY).max_angle_error_deg, rel=1e-4)


def test_case_21_a_cosine_beyond_1_by_rounding():
    rows = np.tile(unit(np.ones((1, 7), dtype=np.float32)), (30, 1))
    rows[15:] *= -1
    found = og.validate(rows, [0] * 15 + [1] * 15)
    assert found.max_angle_error_deg < 1e-3
    assert found.verdict == "consistent"


# --- the same data in every container


def test_memory_map_iterator_tensor_and_files(tmp_path):
    torch = pytest.importorskip("torch")
    wanted = og.validate(X, Y, GEOMETRY)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    GEOMETRY.save(tmp_path / "g.npz")
    same(og.validate(np.load(tmp_path / "x.npy", mmap_mode="r"), Y, GEOMETRY), wanted)
    same(og.validate(torch.from_numpy(X), torch.from_numpy(Y), GEOMETRY), wanted)
    same(og.validate([(X[:100], Y[:100]), (X[100:], Y[100:])], geometry=GEOMETRY), wanted)
    same(og.validate(tmp_path / "x.npy", tmp_path / "y.npy", tmp_path / "g.npz"), wanted)
    same(og.validate(X, str(tmp_path / "y.npy"), GEOMETRY, batch_rows=17), wanted)


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"vec": pyarrow.array(X.tolist(), pyarrow.list_(pyarrow.float32())), "kind": Y})
    parquet.write_table(table, tmp_path / "x.parquet")
    found = og.validate(tmp_path / "x.parquet", geometry=GEOMETRY, label_column="kind", vector_column="vec")
    same(found, og.validate(X, Y, GEOMETRY))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_is_its_rounded_values(kind, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    from safetensors.torch import save_file

    rounded = torch.from_numpy(X).to(getattr(torch, kind))
    save_file({"embeddings": rounded, "labels": torch.from_numpy(Y)}, tmp_path / "x.safetensors")
    same(
        og.validate(tmp_path / "x.safetensors", geometry=GEOMETRY),
        og.validate(rounded.float().numpy(), Y, GEOMETRY),
        1e-12,
    )


def test_an_iterator_that_is_read_once():
    found = og.validate(iter([(X, Y)]), geometry=GEOMETRY)
    assert found.verdict == "consistent"
    assert found.intervals.source == "pooled"
    assert any("only once" in note for note in found.notes)
    checked(found)


def test_shards_on_workers_give_the_same(tmp_path):
    for number, part in enumerate(np.array_split(np.arange(len(X)), 3)):
        np.savez(tmp_path / f"part-{number}.npz", embeddings=X[part], labels=Y[part])
    same(og.validate(tmp_path, geometry=GEOMETRY), og.validate(X, Y, GEOMETRY))


def test_views_are_one_image():
    rng = np.random.default_rng(9)
    views = np.stack([unit(X + 0.05 * rng.normal(size=X.shape)) for _ in range(2)], axis=1)
    stacked = og.validate(views, Y, GEOMETRY)
    assert stacked.num_images == len(X)
    assert stacked.metrics["alignment"].value > 0
    assert stacked.metrics["saa"].value is not None
    assert stacked.classes[0].saa is not None
    ids = np.repeat(np.arange(len(X)), 2)
    flat = og.validate(views.reshape(-1, 16), np.repeat(Y, 2), GEOMETRY, group_ids=ids)
    assert flat.num_rows == 2 * len(X)
    np.testing.assert_allclose(flat.directions.gram, stacked.directions.gram, atol=1e-12)
    assert flat.metrics["alignment"].value == pytest.approx(stacked.metrics["alignment"].value)
    checked(flat)


# --- metrics


def test_r2_of_all_samples_without_their_pairs():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 60)
    vertices = unit(rng.normal(size=(4, 3)))
    rows = unit(np.pad(vertices[y], ((0, 0), (0, 2))) + 0.4 * rng.normal(size=(60, 5)))
    sums = np.stack([rows[y == c].sum(axis=0) for c in range(4)])
    found = class_optimum_r2(np.bincount(y), sums, rows.T @ rows, vertices @ vertices.T)
    assert found.sample_r2 == pytest.approx(sample_similarity_r2(rows, vertices[y]), abs=1e-10)
    assert found.procrustes_r2 == pytest.approx(procrustes_r2(rows, vertices[y]), abs=1e-10)
    constant = class_optimum_r2([3, 4], sums[:2], rows.T @ rows, np.ones((2, 2)))
    assert math.isnan(constant.sample_r2)
    assert math.isnan(constant.procrustes_r2)
    with pytest.raises(og.InvalidInputError, match=r"`sums`, `scatter`, `gram` must be"):
        class_optimum_r2([3, 4], sums, rows.T @ rows, np.ones((2, 2)))


def test_every_metric_is_a_number_or_has_a_reason():
    for found in (og.validate(X, Y, GEOMETRY), og.validate(np.array([[1.0, 0], [-1, 0]]), [0, 1])):
        for name, metric in found.metrics.items():
            assert (metric.value is None) == (metric.value is None and bool(metric.reason)), name
            assert metric.value is None or math.isfinite(metric.value), name


class Exponential:
    """A user's psi."""

    is_additive = True

    def value(self, t):
        return np.exp(t).sum(axis=-1)

    def derivative(self, t):
        return np.exp(t)


def test_a_file_has_only_a_description_of_a_users_psi(tmp_path):
    loss = og.GeneralizedContrastive(Exponential(), 0.5)
    geometry = og.solve(GEOMETRY.classes, loss)
    geometry.save(tmp_path / "g.npz")
    found = og.validate(X, Y, tmp_path / "g.npz")
    assert found.excess_risk.direction is None
    assert "has only a description of its loss generalized" in found.metrics["empirical_loss"].reason
    assert og.validate(X, Y, og.Geometry.load(tmp_path / "g.npz", loss=loss)).excess_risk.direction is not None
    assert og.validate(X, Y, geometry).excess_risk.direction is not None
    with pytest.raises(
        og.InvalidInputError, match=r"`geometry` must fit into the 3 dimensions of the embeddings; got rank 7"
    ):
        og.validate(X[:, :3], Y, tmp_path / "g.npz")


def test_the_law_of_the_negatives_is_kept_in_a_file(tmp_path):
    geometry = og.solve(GEOMETRY.classes, og.InfoNCE(0.5, 16, negative_law=np.full((8, 8), 1 / 8)))
    geometry.save(tmp_path / "g.npz")
    found = og.validate(X, Y, tmp_path / "g.npz").excess_risk
    assert found.direction == og.validate(X, Y, geometry).excess_risk.direction is not None


def test_rare_classes_are_not_lost_from_the_loss(monkeypatch):
    from optgeom.embeddings import validate as validation

    monkeypatch.setattr(validation, "SAMPLE_ENTRIES", 0)
    monkeypatch.setattr(validation, "FEWEST_SAMPLED", 40)
    found = og.validate(X, Y, GEOMETRY)
    assert found.metrics["uniformity"].rows == 40
    assert found.excess_risk.within == pytest.approx(og.validate(X, Y, GEOMETRY).excess_risk.within, rel=0.5)
    checked(found)


# --- the result


def test_the_result_is_frozen():
    found = og.validate(X, Y, GEOMETRY)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.sentence = ""
    with pytest.raises(ValueError, match="read-only"):
        found.optimal[0, 1] = 0
    assert repr(found) == f"Validation(num_classes=8, num_images={len(X)}, verdict='consistent')"


def test_the_same_seed_gives_the_same():
    same(og.validate(X, Y, GEOMETRY, seed=3), og.validate(X, Y, GEOMETRY, seed=3), 0)


# --- refusals


def bad(row=None, column=None, value=np.nan, rows=X):
    changed = rows.copy()
    changed[row if column is None else (row, column)] = value
    return changed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"embeddings": bad(3, 7)}, r"`embeddings` must be finite; got nan in row 3, column 7, and 1 of \d+ rows"),
        (
            {"embeddings": bad(slice(None, None, 10))},
            rf"got nan in row 0, column 0, and {len(X[::10])} of {len(X)} rows",
        ),
        ({"embeddings": bad(0, value=0)}, r"got a zero vector in row 0, and 1 of \d+ rows are zero"),
        ({"labels": np.where(np.arange(len(Y)) == 1, np.nan, Y)}, r"`labels` must not be missing; got nan in row 1"),
        ({"labels": Y[:-1]}, r"`labels`"),
        ({"labels": None}, r"`labels` must have one entry per row; got none"),
        (
            {"labels": np.zeros(len(X)), "geometry": None},
            r"no geometry with one class: all \d+ rows of `labels` have the label '0'",
        ),
        ({"tolerance_deg": -1}, r"`tolerance_deg` must be >= 0"),
        ({"match": "shape"}, r"`match` must be one of names, hungarian"),
        ({"classes": GEOMETRY.classes}, r"`geometry` and `classes` must not both be given"),
        ({"geometry": None, "classes": [3, 2]}, r"`classes` must be a ClassDistribution; got list"),
        ({"geometry": COUNTS}, r"`geometry` must be a Geometry or the path of a saved one; got list"),
        ({"geometry": None, "loss": 3}, r"`loss` must be a loss; got int"),
        (
            {"loss": og.SupCon(0.1)},
            r"that of the geometry: SupCon, temperature 0.5, batches of 32 .*; got SupCon, temperature 0.1, ",
        ),
        ({"sampler_power": 0.5}, r"`sampler_power` applies to the label counts of the embeddings"),
        ({"label_column": "y"}, r"`label_column` is for files; got 'y'"),
    ],
)
def test_refused_in_one_line(given, message):
    arguments = {"embeddings": X, "labels": Y, "geometry": GEOMETRY, **given}
    with pytest.raises(og.InvalidInputError, match=message) as caught:
        og.validate(**arguments)
    assert "\n" not in str(caught.value)


def test_too_many_classes(monkeypatch):
    from optgeom.embeddings import validate as validation

    monkeypatch.setattr(validation, "MOST_CLASSES", 7)
    with pytest.raises(
        og.InvalidInputError, match=r"`labels` must have at most 7 classes, since all pairs are compared; got 8"
    ):
        og.validate(X, Y, GEOMETRY)


def test_optimum_of_the_tests_is_that_of_the_geometry():
    np.testing.assert_allclose(
        optimum([30, 20, 10]), og.solve(og.ClassDistribution.from_counts([30, 20, 10]), og.SupCon(0.5)).gram
    )
