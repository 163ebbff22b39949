"""What validate says of the cause: a saddle, overlapping classes, rounding of the input, too few dimensions."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from helpers.command_line import parsed, run
from helpers.simulated import long_tail, means_of, sample, turned, unit

import optgeom as og

TAIL = (200, 120, 72, 43, 26, 15, 9, 6, 3, 2)  # of theory-2, section 24
LOSS = og.SupCon(0.5)
CLASSES = og.ClassDistribution.from_counts(TAIL)
IMAGES = [25 * count for count in TAIL]


@functools.cache
def tail(dim: int | None = None) -> og.Geometry:
    return og.solve(CLASSES, LOSS) if dim is None else og.solve(CLASSES, LOSS, dim=dim)


def drawn(gram, counts, seed, sigma=0.1, dim=32):
    rng = np.random.default_rng(seed)
    rows = sample(means_of(np.array(gram), dim, rng), counts, sigma, np.eye(dim) / np.sqrt(dim), rng)
    return np.concatenate(rows), np.repeat(np.arange(len(counts)), counts)


# --- saddles


@pytest.mark.parametrize("runs", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_best_geometry_of_lower_rank_reads_at_a_saddle(runs):
    """Free features started there stay there: the gradient is zero in closed form, whatever the learning rate."""
    gram = tail(8).gram
    for run_number in range(runs):
        found = og.validate(*drawn(gram, IMAGES, [1, run_number]), tail())
        assert found.verdict == "at-a-saddle"
        assert found.sentence.startswith("at a saddle: the class means span 8 of 9 dimensions; classes ")
        seen = found.as_dict()["saddle"]
        assert (seen["rank"], seen["predicted_rank"], seen["at_saddle"]) == (8, 9, True)
        assert set(seen["classes"]) == {"8", "9"}
        assert {(pair.first, pair.second) for pair in found.judgement.pairs} == {(8, 9)}
        # theory-2, section 24: -1.8e-4.
        assert seen["least_eigenvalue"] == pytest.approx(-1.8e-4, rel=0.1)
        assert seen["growth"] == pytest.approx(-4 * seen["least_eigenvalue"])


@pytest.mark.parametrize("runs", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_optimum_noise_and_overlap_are_no_saddles(runs):
    for run_number in range(runs):
        for sigma in (0.1, 0.75):
            rows, labels = drawn(tail().gram, IMAGES, [2, run_number], sigma)
            assert og.validate(rows, labels, tail()).verdict not in ("at-a-saddle", "collapsed")
            # Images of the two rarest classes shuffled among them: no encoder could separate these.
            rng = np.random.default_rng([3, run_number])
            rare = np.flatnonzero(labels >= 8)
            labels[rare] = labels[rare][rng.permutation(rare.size)]
            assert og.validate(rows, labels, tail()).verdict != "at-a-saddle"
            noise = unit(rng.normal(size=rows.shape))
            assert og.validate(noise, labels, tail()).verdict != "at-a-saddle"


def test_merged_classes_that_repel_each_other_strongly_are_collapsed():
    """At a low temperature the two classes feel little but each other: nothing stalls there."""
    geometry = og.solve(CLASSES, og.SupCon(0.1))
    means = means_of(np.array(geometry.gram), 16, np.random.default_rng(0))
    means[9] = means[8]
    found = og.validate(*drawn(means @ means.T, IMAGES, 4), geometry)
    assert found.verdict == "collapsed"
    assert found.saddle is not None and not found.saddle.at_saddle
    assert found.saddle.reason == "the loss pulls the classes apart as strongly as all forces together"


def test_saddle_is_not_asked_at_the_optimum_nor_of_some_classes():
    rows, labels = drawn(tail().gram, IMAGES, 5)
    assert og.validate(rows, labels, tail()).saddle is None
    rows, labels = drawn(tail(8).gram, IMAGES, 5)
    kept = labels != 0
    found = og.validate(rows[kept], labels[kept], tail())
    assert found.saddle is None and found.verdict in ("differs", "collapsed")


# --- overlap


def test_share_of_confused_images_is_that_of_a_nearest_mean_rule():
    counts = [400, 300, 200]
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    rows, labels = drawn(geometry.gram, counts, 6, sigma=0.3)
    # A third of class 2 lies where class 1 is.
    moved = np.flatnonzero(labels == 2)[:66]
    rows[moved] = rows[np.flatnonzero(labels == 1)[:66]] + 1e-3
    found = og.validate(rows, labels, geometry)
    assert found.verdict == "differs"
    images = unit(rows)
    means = np.stack([images[labels == c].mean(axis=0) for c in range(3)])
    distance = np.linalg.norm(images[:, None] - means[None], axis=2)
    wrong = [np.mean(distance[labels == a, b] < distance[labels == a, a]) for a, b in ((1, 2), (2, 1))]
    pair = next(pair for pair in found.as_dict()["pairs"] if {pair["first"], pair["second"]} == {"1", "2"})
    assert pair["confusion"] == pytest.approx(np.mean(wrong), abs=0.005)
    assert "Classes 1 and 2 are confused in 1" in found.sentence
    assert "the encoder does not separate them" in found.sentence


def test_confusion_of_views_is_that_of_images():
    counts = [60, 40, 30]
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    rows, labels = drawn(geometry.gram, counts, 7, sigma=1.5)
    views = np.stack([rows, rows + 0.3 * np.random.default_rng(0).normal(size=rows.shape) / 32**0.5], axis=1)
    found = og.validate(views, labels, geometry)
    images = unit(views.reshape(-1, 32)).reshape(-1, 2, 32).mean(axis=1)
    sums = np.stack([images[labels == c].sum(axis=0) for c in range(3)])
    expected = np.zeros((3, 3))
    for a in range(3):
        for image in images[labels == a]:
            own = (sums[a] - image) / (counts[a] - 1)
            for b in range(3):
                if b != a:
                    nearer = np.linalg.norm(image - sums[b] / counts[b]) < np.linalg.norm(image - own)
                    expected[a, b] += nearer / counts[a]
    np.testing.assert_allclose(found.confusion, (expected + expected.T) / 2, atol=1e-12)


# --- rounding


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_rounding_of_the_input_is_no_difference(kind):
    """Fault 4: classes exactly at the optimum, stored in half precision, at tolerance 0."""
    counts = long_tail(300, 100, 6)
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    rows = np.repeat(geometry.prototypes(16), counts, axis=0)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(16, 16)))[0]
    stored = (rows @ turn).astype(kind)
    labels = np.repeat(np.arange(6), counts)
    found = og.validate(stored, labels, geometry, tolerance_deg=0.0, slack=0.0, unseen_share=0.0)
    assert found.verdict == "consistent"
    # The same error in numbers of full precision is a difference.
    wrong = og.validate(
        stored.astype(np.float64) / np.linalg.norm(stored.astype(np.float64), axis=1)[:, None],
        labels,
        geometry,
        tolerance_deg=0.0,
        slack=0.0,
        unseen_share=0.0,
    )
    assert wrong.verdict == ("differs" if kind is np.float16 else wrong.verdict)


# --- rows that are not independent


@pytest.mark.parametrize("runs", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_frames_without_ids_are_counted_as_images(runs):
    """Fault 1: ten frames of each image, the population exactly at the optimum; 0.1.0 rejected 58 of 60."""
    counts = long_tail(60, 20, 6)
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    rejected = 0
    for run_number in range(runs):
        rng = np.random.default_rng([16, run_number])
        images = sample(means_of(np.array(geometry.gram), 32, rng), counts, 0.4, np.eye(32) / 32**0.5, rng)
        frames = [np.repeat(part, 10, axis=0) + 0.01 * rng.normal(size=(10 * len(part), 32)) for part in images]
        rows, labels = np.concatenate(frames), np.repeat(np.arange(6), 10 * np.array(counts))
        found = og.validate(rows, labels, geometry, tolerance_deg=0.0, slack=0.0)
        assert "Rows in groups of about 10" in found.sentence
        assert found.num_images == sum(counts) and found.num_rows == 10 * sum(counts)
        rejected += found.verdict in ("differs", "collapsed", "at-a-saddle")
        ids = np.repeat(np.arange(sum(counts)), 10)
        told = og.validate(rows, labels, geometry, group_ids=ids, tolerance_deg=0.0, slack=0.0)
        assert found.verdict == told.verdict
        np.testing.assert_allclose(found.intervals.standard_errors, told.intervals.standard_errors, rtol=1e-9)
        np.testing.assert_allclose(found.directions.gram, told.directions.gram, rtol=1e-9)
    assert rejected <= 0.12 * runs


# --- fewer dimensions than classes - 1


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 1, 3], [3, 0, 1, 2]])
def test_any_square_is_as_good_as_another(order):
    """Fault 5: four balanced classes in two dimensions, in any order around the circle."""
    angles = np.radians(np.array([0, 90, 180, 270])[order])
    geometry = og.solve(og.ClassDistribution.from_counts([50] * 4), LOSS)
    means = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    labels = np.repeat(np.arange(4), 50)
    noise = np.random.default_rng(8).normal(size=(200, 2)) * 0.02
    found = og.validate(means[labels] + noise, labels, geometry)
    assert found.geometry.bracket is not None
    assert found.verdict == "consistent"
    assert "as good as the best geometry found in so few dimensions" in found.sentence
    assert found.judgement.limited_risk.high < 1e-3


def test_worse_than_the_best_in_few_dimensions_differs_by_the_loss():
    geometry = og.solve(og.ClassDistribution.from_counts([50] * 4), LOSS)
    angles = np.radians([0, 60, 180, 270])
    labels = np.repeat(np.arange(4), 50)
    means = np.stack([np.cos(angles), np.sin(angles)], axis=1)[labels]
    found = og.validate(means + np.random.default_rng(9).normal(size=means.shape) * 0.02, labels, geometry)
    assert found.verdict == "differs"
    risk = found.judgement.limited_risk
    # SupCon of four balanced classes: mean over classes of log( sum_j exp((A_ij - 1)/tau) / 4 ).
    exact = [
        np.mean(np.log(np.exp((np.cos(a[:, None] - a[None]) - 1) / 0.5).sum(axis=1) / 4))
        for a in (angles, np.radians([0, 90, 180, 270]))
    ]
    assert risk.low < (exact[0] - exact[1]) / -exact[1] < risk.high
    assert "no single pair is to blame" in found.sentence


def test_noise_of_the_means_is_taken_off_the_risk():
    """The excess of twenty noisy samples of the best geometry is zero on average, within its own standard deviation."""
    classes = og.ClassDistribution.from_counts([80, 60, 40, 30, 20])
    best = og.solve(classes, LOSS, dim=2)
    risks = [
        og.validate(*drawn_in(best, [80, 60, 40, 30, 20], seed), best).judgement.limited_risk for seed in range(20)
    ]
    scores = np.array([risk.excess / risk.sd for risk in risks])
    assert abs(scores.mean()) < 1.5
    assert np.abs(scores).max() < 6


def drawn_in(geometry, counts, seed):
    means = geometry.prototypes(2)
    labels = np.repeat(np.arange(len(counts)), counts)
    return means[labels] + 0.5 * np.random.default_rng(seed).normal(size=(labels.size, 2)) / 2**0.5, labels


def test_without_every_class_the_risk_in_few_dimensions_is_not_known():
    best = og.solve(og.ClassDistribution.from_counts([80, 60, 40, 30, 20]), LOSS, dim=2)
    rows, labels = drawn_in(best, [80, 60, 40, 30, 20], 0)
    found = og.validate(rows[labels > 0], labels[labels > 0], best)
    assert found.verdict == "inconclusive"
    assert "which needs images of every class" in found.sentence


# --- ranges


def test_pairs_have_the_range_at_the_excess_reached():
    counts = [5000, 1500, 400, 100]
    geometry = og.solve(og.ClassDistribution.from_counts(counts), og.SupCon(0.2))
    means = means_of(np.array(geometry.gram), 16, np.random.default_rng(0))
    means[3] = unit((means[3] + 0.2 * means[0])[None])[0]
    found = og.validate(*drawn(means @ means.T, [c // 5 for c in counts], 10), geometry)
    excess = found.excess_risk.direction
    assert found.ranges.excess == excess > 0
    assert found.ranges.exact[0, 3]
    near = og.ranges(geometry, slack=excess, own=False).records()
    needed = og.slack_needed(geometry).records()
    for pair in found.as_dict()["pairs"]:
        which = next(
            k for k, one in enumerate(near) if (one["first"], one["second"]) == (pair["first"], pair["second"])
        )
        loose = 1e-9 if pair["exact"] else 0.25
        assert pair["closest_deg"] == pytest.approx(near[which]["closest_deg"], rel=loose)
        assert pair["farthest_deg"] == pytest.approx(near[which]["farthest_deg"], rel=loose)
        assert pair["slack_needed"] == pytest.approx(needed[which]["own"], rel=loose)
        # A pair measured at this excess is inside what this excess allows, up to noise.
        assert pair["closest_deg"] - 1 <= pair["angle_deg"] <= pair["farthest_deg"] + 1


def test_command_line_says_what_it_saw(tmp_path):
    rows, labels = drawn(tail(8).gram, IMAGES, 11)
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=labels)
    arguments = ["--embeddings", tmp_path / "rows.npz", "--counts", ",".join(map(str, TAIL)), "--temperature", "0.5"]
    found = parsed(run("validate", *arguments, "--json"))
    assert found["verdict_kind"] == "at-a-saddle"
    assert {"slack_needed", "closest_deg", "farthest_deg", "confusion", "own_excess"} <= set(found["pairs"][0])
    text = run("validate", *arguments).stdout
    assert "At a saddle: the class means span 8 of 9 dimensions" in " ".join(text.split())


# --- several seeds


def test_several_seeds_get_one_verdict_and_their_spread():
    """Two seeds at the optimum and one with a class turned by ten degrees; spread of the angles as numpy has it."""
    counts = [400, 300, 200]
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    means = means_of(np.array(geometry.gram), 8, np.random.default_rng(0))
    moved, _ = turned(means, 12)
    embeddings = []
    for seed, points in enumerate((means, moved, means)):
        rows, labels = drawn(points @ points.T, counts, [12, seed], dim=8)
        embeddings.append(rows)
    found = og.validate(embeddings, labels, geometry)
    assert found.seeds.verdicts == ("consistent", "differs", "consistent")
    assert (found.seeds.worst, found.verdict) == (1, "differs")
    assert found.sentence.startswith(
        "differs: 3 seeds: differs in 1, consistent in 2. Between seeds an angle varies by "
    )
    alone = [og.validate(rows, labels, geometry) for rows in embeddings]
    angles = np.stack([one.deviations.angles for one in alone])
    np.testing.assert_allclose(found.seeds.sd_deg, angles.std(axis=0, ddof=1), atol=1e-9)
    np.testing.assert_allclose(found.seeds.mean_deg, angles.mean(axis=0), atol=1e-9)
    upper = np.triu_indices(3, 1)
    assert found.seeds.spread_deg == pytest.approx(np.sqrt(np.mean(found.seeds.sd_deg[upper] ** 2)))
    assert found.seeds.spread_deg > 3 * found.seeds.noise_deg
    # Intervals hold for all seeds together, so each is wider than alone.
    assert found.intervals.alpha == pytest.approx(0.05 / 3)
    assert np.all(found.intervals.upper[upper] > alone[1].intervals.upper[upper])
    content = found.as_dict()
    assert content["seeds"]["worst"] == 1
    assert content["seeds"]["pairs"][0]["sd_deg"] == pytest.approx(np.nanmax(found.seeds.sd_deg[upper]))


def test_noise_between_seeds_is_the_standard_error():
    """Forty embeddings of one population: their spread is what each says of its own noise."""
    counts = [300, 200, 100]
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    embeddings = []
    means = means_of(np.array(geometry.gram), 8, np.random.default_rng(0))
    for seed in range(40):
        rng = np.random.default_rng([13, seed])
        embeddings.append(np.concatenate(sample(means, counts, 0.5, np.eye(8) / 8**0.5, rng)))
    labels = np.repeat(np.arange(3), counts)
    found = og.validate(embeddings, labels, geometry)
    assert found.seeds.spread_deg == pytest.approx(found.seeds.noise_deg, rel=0.2)
    assert found.verdict == "consistent"


def test_seeds_from_files_on_the_command_line(tmp_path):
    counts = [300, 200, 100]
    arguments = ["--counts", "300,200,100", "--temperature", "0.5"]
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    for seed in range(2):
        rows, labels = drawn(geometry.gram, counts, [14, seed])
        np.savez(tmp_path / f"seed{seed}.npz", embeddings=rows, labels=labels)
        arguments += ["--embeddings", tmp_path / f"seed{seed}.npz"]
    found = parsed(run("validate", *arguments, "--json"))
    assert [one["verdict_kind"] for one in found["seeds"]["verdicts"]] == ["consistent", "consistent"]
    assert found["seeds"]["verdicts"][1]["embeddings_from"].endswith("seed1.npz")
    assert "2 seeds: consistent in 2." in " ".join(run("validate", *arguments).stdout.split())
    again = og.validate([tmp_path / "seed0.npz", tmp_path / "seed1.npz"], geometry=geometry)
    assert again.as_dict()["seeds"]["spread_deg"] == pytest.approx(found["seeds"]["spread_deg"])


def test_labels_of_seeds():
    counts = [30, 20]
    geometry = og.solve(og.ClassDistribution.from_counts(counts), LOSS)
    rows, labels = drawn(geometry.gram, counts, 15)
    order = np.random.default_rng(0).permutation(50)
    found = og.validate([rows, rows[order]], [labels, labels[order]], geometry)
    assert found.seeds.spread_deg == pytest.approx(0, abs=1e-6)
    with pytest.raises(og.InvalidInputError, match="`labels` must be those of all seeds, or one per seed; got 3 for 2"):
        og.validate([rows, rows], [labels] * 3, geometry)
    others = np.where(labels == 0, 0, 2)
    both = og.solve(og.ClassDistribution.from_counts({"0": 30, "1": 20, "2": 20}), LOSS)
    with pytest.raises(og.InvalidInputError, match="two classes in common at least; got 1"):
        og.validate([rows, rows], [labels, others], both)
