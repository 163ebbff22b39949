"""All angles at once in `validate`: the optimum, the balanced simplex or neither, with the position between the two."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.command_line import parsed, run
from helpers.reference import simplex
from helpers.simulated import long_tail, means_of

import optgeom as og

COUNTS = long_tail(3000, 30, 10)


def rows_about(gram, counts=COUNTS, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    return means_of(gram, 32, rng)[labels] + noise / 32**0.5 * rng.standard_normal((labels.size, 32)), labels


def geometry_of(counts=COUNTS, temperature=0.5):
    return og.solve(og.ClassDistribution.from_counts(counts), og.SupCon(temperature))


@pytest.mark.parametrize(("truth", "position"), [("optimum", 1.0), ("simplex", 0.0), ("neither", 0.5)])
def test_where_all_angles_stand(truth, position):
    geometry = geometry_of()
    gram = position * np.asarray(geometry.gram) + (1 - position) * simplex(10)
    found = og.validate(*rows_about(gram), geometry)
    assert found.reference is not None and found.reference.verdict == truth
    assert found.reference.position == pytest.approx(position, abs=0.05)
    content = found.as_dict()
    assert content["reference_verdict"] == truth
    assert content["reference"] == {
        "verdict": truth,
        "position": found.reference.position,
        "position_sd": found.reference.position_sd,
        "lack_of_fit": found.reference.lack_of_fit,
    }
    words = {
        "optimum": "All angles together: the optimum, not the balanced simplex: at ",
        "simplex": "All angles together: the balanced simplex, not the optimum: at ",
        "neither": "All angles together: neither at the optimum nor at the balanced simplex: at 0.5",
    }[truth]
    assert words in found.sentence
    assert ("degrees off the optimum" in found.sentence) == (truth == "neither")


def test_the_simplex_is_that_of_all_classes_of_the_training():
    """Without the images of two classes the others stand at the simplex of ten, cosine -1/9, not at that of eight."""
    geometry = geometry_of()
    rows, labels = rows_about(simplex(10))
    found = og.validate(rows[labels > 1], labels[labels > 1], geometry)
    assert found.missing == ("0", "1")
    assert found.reference.verdict == "simplex" and found.reference.position == pytest.approx(0.0, abs=0.05)


def test_no_answer_without_a_certified_optimum_and_no_sentence_for_balanced_classes():
    rows, labels = rows_about(simplex(5), [100] * 5)
    balanced = og.validate(rows, labels, geometry_of([100] * 5))
    assert balanced.reference.verdict == "indistinguishable" and math.isnan(balanced.reference.position)
    assert balanced.as_dict()["reference"]["position"] is None
    assert "All angles" not in balanced.sentence
    flat = og.validate(rows[:, :3], labels, geometry_of([100] * 5))
    assert flat.geometry.bracket is not None and flat.reference is None
    assert flat.as_dict()["reference_verdict"] is None and flat.as_dict()["reference"] is None


@pytest.mark.parametrize("stored", [np.float64, np.float32])
def test_rows_without_noise_are_at_the_optimum(stored):
    geometry = geometry_of()
    rows, labels = rows_about(np.asarray(geometry.gram), noise=0.0)
    rows = np.asarray(means_of(np.asarray(geometry.gram), 32, np.random.default_rng(0))).astype(stored)[labels]
    found = og.validate(rows, labels, geometry)
    assert found.verdict == "consistent"
    if stored is np.float64:
        assert found.reference.verdict == "optimum"
    assert found.reference.position == pytest.approx(1.0, abs=1e-5)


def test_unseen_kinds_can_be_switched_off(tmp_path):
    """A class of 30 images turned by 6 degrees: noise explains nothing of it, kinds of images not shown may."""
    geometry = geometry_of()
    means = means_of(np.asarray(geometry.gram), 32, np.random.default_rng(3))
    means[9] += 0.08 * means[8]
    labels = np.repeat(np.arange(10), COUNTS)
    rows = means[labels] + 0.01 * np.random.default_rng(4).standard_normal((labels.size, 32))
    off = {
        share: og.validate(rows, labels, geometry, tolerance_deg=0.0, slack=0.0, unseen_share=share)
        for share in (0.0, 0.3)
    }
    assert off[0.0].verdict == "differs" and off[0.3].judgement.num_pairs < off[0.0].judgement.num_pairs
    assert off[0.0].as_dict()["intervals"]["unseen_share"] == 0.0
    assert og.validate(rows, labels, geometry).as_dict()["intervals"]["unseen_share"] == 0.05
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels)
    given = ["validate", "--embeddings", tmp_path / "rows.npz", "--counts", ",".join(map(str, COUNTS))]
    given += ["--temperature", "0.5", "--tolerance-deg", "0", "--slack", "0"]
    found = parsed(run(*given, "--unseen", "0", "--json"))
    assert found["verdict"] == "differs" and found["intervals"]["unseen_share"] == 0.0
    printed = run(*given).stdout
    assert "All angles" in printed and "of the way from the simplex" in " ".join(printed.split())


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_wrong_share_of_unseen_kinds(share):
    rows, labels = rows_about(simplex(10))
    with pytest.raises(og.InvalidInputError, match="`unseen_share` must be "):
        og.validate(rows, labels, geometry_of(), unseen_share=share)
