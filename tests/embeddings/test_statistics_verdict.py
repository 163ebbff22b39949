"""The verdict on embeddings whose answer is known without noise, its order, and its words."""

from __future__ import annotations

import importlib.resources
import json

import numpy as np
import pytest
from helpers.reference import simplex
from helpers.simulated import judged, means_of, moments_of, optimum, sample, turned, unit, within_of

from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.statistics.bootstrap import null_intervals
from optgeom.embeddings.statistics.class_noise import class_noise
from optgeom.embeddings.statistics.deviation import deviations
from optgeom.embeddings.statistics.judgement import judge
from optgeom.embeddings.statistics.limited_risk import LimitedRisk
from optgeom.embeddings.statistics.pair_intervals import beyond, pair_intervals
from optgeom.embeddings.statistics.verdict_kinds import KINDS, LIMITED_KINDS, VerdictKind
from optgeom.errors import InvalidInputError


def tight(means, copies=1000):
    return [np.tile(row, (copies, 1)) for row in means]


def verdict_of(rows, optimal, names=None, **options):
    directions = class_directions(moments_of(rows, names))
    noise = class_noise(directions, within_of(rows, directions))
    intervals = pair_intervals(directions, noise, optimal)
    ends = null_intervals(directions, noise, intervals, optimal)
    tolerance = options.get("tolerance_deg", 2.0)
    off = beyond(ends, optimal, tolerance if isinstance(tolerance, (int, float)) else 0.0)
    return judge(directions, intervals, deviations(intervals, optimal), beyond=off, **options)


def simplex_means(classes):
    return means_of(simplex(classes), classes, np.random.default_rng(0))


@pytest.mark.parametrize("tolerance", [2.0, 0.0])
def test_exact_optimum_is_consistent_at_any_tolerance(tolerance):
    optimal = optimum([50, 20, 10, 4])
    found = verdict_of(tight(means_of(optimal, 6, np.random.default_rng(1))), optimal, tolerance_deg=tolerance)
    assert found.verdict == "consistent"
    assert found.sentence.startswith("consistent within 0.0 degrees of the optimum: no pair of classes is ")
    assert "errors above 0.0 degrees are ruled out" in found.sentence and "not ruled out" not in found.sentence
    assert found.within_deg == pytest.approx(0, abs=1e-5)
    assert found.pairs == ()
    assert not found.spread


def test_what_is_ruled_out_and_what_is_not():
    """Of X beyond the tolerance the sentence names the pair that could be off by most; errors below X stay possible."""
    counts = [400, 200, 60]
    optimal = optimum(counts)
    rng = np.random.default_rng(4)
    rows = sample(means_of(optimal, 6, rng), counts, 0.4, np.eye(6) / np.sqrt(6), rng)
    found = verdict_of(rows, optimal)
    x = found.within_deg
    assert found.verdict == "consistent" and 2.1 < x < 15
    assert f"errors above {x:.1f} degrees are ruled out for all of them together (95 % confidence)." in found.sentence
    assert (
        f"Errors between 2 and {x:.1f} degrees are not ruled out with these numbers of images, least of all"
        in found.sentence
    )
    assert "for classes c" in found.sentence and " and c2." in found.sentence
    assert f"Errors up to {x:.1f} degrees are not ruled out" in verdict_of(rows, optimal, tolerance_deg=0.0).sentence
    assert "not ruled out" not in verdict_of(rows, optimal, tolerance_deg=x + 1).sentence


def test_mirrored_embedding_is_the_same():
    means = simplex_means(4)
    means[:, 0] *= -1
    assert verdict_of(tight(means), simplex(4)).verdict == "consistent"


def test_coincident_class_means_are_a_collapsed_pair():
    e = np.eye(3)
    found = verdict_of(tight(np.stack([e[0], -e[0], -e[0]])), simplex(3))
    assert found.verdict == "collapsed"
    assert found.sentence == (
        "collapsed: 1 pair of classes that should be apart points the same way: c1 and c2 (angle 0.0, optimal 120.0 "
        "degrees)."
    )
    assert [(pair.first, pair.second) for pair in found.pairs] == [(1, 2)]
    assert found.classes == (("c1", 1), ("c2", 1))
    json.dumps(found.as_dict(("c0", "c1", "c2")), allow_nan=False)


def test_everything_at_one_point_names_some_pairs_and_counts_the_rest():
    found = verdict_of(tight(np.tile(np.eye(5)[0], (5, 1))), simplex(5))
    assert found.verdict == "collapsed"
    assert found.num_pairs == 10
    assert "10 pairs of classes that should be apart point the same way" in found.sentence
    assert "and 7 more" in found.sentence


def test_predicted_coincidence_is_as_predicted():
    optimal = optimum([2000, 60, 50, 40], 1.0)
    assert optimal[1, 3] == pytest.approx(1, abs=1e-9)
    found = verdict_of(tight(means_of(optimal, 3, np.random.default_rng(2))), optimal)
    assert found.verdict == "consistent"
    assert [(pair.first, pair.second) for pair in found.as_predicted] == [(1, 2), (1, 3), (2, 3)]


def test_turned_class_differs_and_is_named():
    means, pair = turned(simplex_means(5), 10)
    found = verdict_of(tight(means), simplex(5), ("cat", "dog", "cow", "hen", "fox"))
    assert found.verdict == "differs"
    names = ("cat", "dog", "cow", "hen", "fox")
    assert (found.pairs[0].first, found.pairs[0].second) == pair
    assert found.classes[0] == ("fox", 4)
    start = "differs from the optimum: 4 of 10 pairs of classes are off by more than 2 degrees beyond sampling noise: "
    assert found.sentence.startswith(start)
    assert f"{names[pair[0]]} and fox (angle 94.5, between 94.5 and 94.5; optimal 104.5)" in found.sentence
    assert found.sentence.endswith("and 1 more; class fox is in all of them.")


def test_one_pair_in_the_singular():
    means = np.array([[1.0, 0, 0], [np.cos(np.radians(100)), np.sin(np.radians(100)), 0], [0, 0, 1]])
    optimal = np.eye(3)
    found = verdict_of(tight(means), optimal)
    start = "differs from the optimum: 1 of 3 pairs of classes is off by more than 2 degrees beyond sampling noise: "
    assert found.sentence.startswith(start + "c0 and c1 ")
    assert "more than sampling noise explains" in verdict_of(tight(means), optimal, tolerance_deg=0).sentence


def test_collapse_comes_before_other_differences():
    means = simplex_means(4)
    means[3] = means[2]
    found = verdict_of(tight(means), simplex(4))
    assert found.verdict == "collapsed"
    assert found.num_pairs == 1


def test_difference_within_the_tolerance_is_consistent():
    means, _ = turned(simplex_means(5), 10)
    found = verdict_of(tight(means), simplex(5), tolerance_deg=12)
    assert found.verdict == "consistent"
    assert found.within_deg == pytest.approx(10, abs=1e-6)


def test_beyond_fifteen_degrees_nothing_is_consistent():
    means, _ = turned(simplex_means(5), 18)
    found = verdict_of(tight(means), simplex(5), tolerance_deg=20)
    assert found.verdict == "inconclusive"
    assert found.too_small == (), "no noise, so no class has too few images"
    assert (
        found.sentence
        == "inconclusive: an angle may be off by 18 degrees, which the tolerance of 20 degrees does not rule out."
    )


@pytest.mark.parametrize(
    ("excess", "sd", "slack", "verdict", "words"),
    [
        (0.02, 0.001, 1e-3, "differs", "the loss is 2 % (1.8 to 2.2) of the way from its value there to total"),
        (0.0004, 0.0001, 1e-3, "consistent", "as good as the best geometry found in so few dimensions: the loss is"),
        (-0.02, 0.001, 1e-3, "consistent", "consistent: better than the best geometry found"),
        (0.0009, 0.0001, 1e-3, "inconclusive", "which may be more or less than the slack of 0.1 %."),
        (0.0009, 0.0001, 0.0, "differs", "(slack 0.0001 %)"),
    ],
)
def test_with_a_bracket_the_risk_decides(excess, sd, slack, verdict, words):
    """Not the angles, which here are off by ten degrees: another arrangement may be as good."""
    means, _ = turned(simplex_means(4), 10)
    risk = LimitedRisk(excess=excess, sd=sd, accuracy=1e-6)
    found = verdict_of(tight(means), simplex(4), bracket=True, limited_risk=risk, slack=slack)
    assert found.verdict == verdict
    assert words in found.sentence
    assert found.pairs == () and found.saddle is None
    assert found.headline


def test_with_a_bracket_and_no_risk_nothing_can_be_said():
    found = verdict_of(tight(simplex_means(4)), simplex(4), bracket=True)
    assert found.verdict == "inconclusive"
    assert "an embedding is judged by its risk, which needs images of every class" in found.sentence


def test_confused_pairs_are_told_from_separated_ones():
    means, (first, second) = turned(simplex_means(5), 10)
    shares = np.zeros((5, 5))
    apart = verdict_of(tight(means), simplex(5), confusion=shares)
    assert "The images of these classes are separated (at most 0 % are nearer" in apart.sentence
    shares[first, second] = shares[second, first] = 0.14
    mixed = verdict_of(tight(means), simplex(5), confusion=shares)
    assert f"Classes c{first} and c{second} are confused in 14 % of images" in mixed.sentence
    # Nearest means say nothing of coincident classes.
    together = simplex_means(5)
    together[4] = together[3]
    merged = verdict_of(tight(together), simplex(5), confusion=np.full((5, 5), 0.5))
    assert merged.verdict == "collapsed" and "confused" not in merged.sentence


def test_small_class_makes_it_inconclusive_and_is_named():
    counts = [3000, 800, 300, 5]
    optimal = optimum(counts)
    rng = np.random.default_rng(3)
    rows = sample(means_of(optimal, 16, rng), counts, 0.5, np.eye(16) / 4, rng)
    found, *_ = judged(rows, optimal)
    assert found.verdict == "inconclusive"
    assert found.too_small == ("c3",)
    assert found.sentence.startswith(
        "inconclusive: too few images to tell in c3 (5 images). An angle could be off by up to "
    )


def test_singleton_is_too_small_and_the_others_are_judged():
    rows = tight(simplex_means(4))
    rows[2] = rows[2][:1]
    found = verdict_of(rows, simplex(4))
    assert found.verdict == "inconclusive"
    assert found.too_small == ("c2",)
    assert found.sentence == "inconclusive: too few images to tell in c2 (1 image). The others are within 0.0 degrees."


def test_class_without_direction_is_not_called_small():
    rows = tight(simplex_means(4))
    rows[2] = np.concatenate([rows[2], -rows[2]])
    found = verdict_of(rows, simplex(4))
    assert found.verdict == "inconclusive"
    assert found.without_direction == ("c2",)
    assert found.sentence == "inconclusive: the images of c2 have no common direction."


def test_nothing_could_be_tested():
    found = verdict_of([np.eye(3)[:1], np.tile(np.eye(3)[1], (5, 1))], simplex(2))
    assert found.verdict == "inconclusive"
    assert found.within_deg is None
    assert "no pair of classes could be tested" in found.sentence
    json.dumps(found.as_dict(("c0", "c1", "c2")), allow_nan=False)


def test_missing_classes_are_named():
    found = verdict_of(tight(simplex_means(4)[:3]), simplex(4)[:3, :3], missing=("zebra",))
    assert found.verdict == "consistent"
    assert found.sentence.endswith(" Left out, without embeddings: zebra.")


@pytest.mark.parametrize(("sigma", "spread"), [(0.5, False), (0.9, False), (1.2, True)])
def test_spread_is_a_flag_and_no_verdict(sigma, spread):
    optimal = optimum([500] * 4)
    rng = np.random.default_rng(4)
    rows = sample(means_of(optimal, 32, rng), [500] * 4, sigma, np.eye(32) / np.sqrt(32), rng)
    found, *_ = judged(rows, optimal)
    assert found.verdict == "consistent"
    assert found.spread is spread
    assert ("not tight" in found.sentence) is spread


def test_json_of_a_difference():
    means, _ = turned(simplex_means(5), 10)
    found = verdict_of(tight(means), simplex(5))
    plain = json.loads(json.dumps(found.as_dict(tuple("abcde")), allow_nan=False))
    assert found.verdict == "differs"
    assert plain["classes"][0] == {"name": "c4", "pairs": 4}
    assert plain["num_pairs"] == 4


def test_few_rows_that_look_right_are_not_consistent():
    """Four images per class at large scatter: the estimate may be anywhere, and says so."""
    rng = np.random.default_rng(5)
    rows = [unit(mean + 0.3 * rng.normal(size=(4, 6))) for mean in means_of(simplex(3), 6, rng)]
    found = verdict_of(rows, simplex(3))
    assert found.verdict == "inconclusive"
    assert set(found.too_small) <= {"c0", "c1", "c2"}
    assert found.too_small


def test_schema_and_kinds_have_the_same_verdicts():
    schema = json.loads(importlib.resources.files("optgeom.embeddings").joinpath("validation.schema.json").read_text())
    assert set(schema["properties"]["verdict"]["enum"]) == {kind.verdict for kind in (*KINDS, *LIMITED_KINDS)}


def test_a_new_kind_of_verdict_is_one_entry(monkeypatch):
    """A kind put first takes over where it applies, with its own words, and nowhere else."""
    kind = VerdictKind(
        verdict="within slack",
        applies=lambda evidence: 2 < (evidence.within_deg or 0) < 11,
        sentence=lambda evidence: f"within slack: off by {evidence.within_deg:.0f} degrees.",
        headline=lambda evidence: "The loss hardly asks for more",
        meaning="The differences cost less than the slack.",
        steps=("Nothing.",),
        pairs=lambda evidence: evidence.different,
    )
    monkeypatch.setattr("optgeom.embeddings.statistics.verdict_kinds.KINDS", (kind, *KINDS))
    means, pair = turned(simplex_means(5), 10)
    found = verdict_of(tight(means), simplex(5))
    assert (found.verdict, found.sentence) == ("within slack", "within slack: off by 10 degrees.")
    assert (found.headline, found.steps) == ("The loss hardly asks for more", ("Nothing.",))
    assert pair in [(one.first, one.second) for one in found.pairs]
    assert verdict_of(tight(simplex_means(5)), simplex(5)).verdict == "consistent"


@pytest.mark.parametrize("tolerance", [-1.0, np.nan, "wide"])
def test_tolerance_outside_its_domain(tolerance):
    with pytest.raises(InvalidInputError, match="`tolerance_deg` must be"):
        verdict_of(tight(simplex_means(3)), simplex(3), tolerance_deg=tolerance)
