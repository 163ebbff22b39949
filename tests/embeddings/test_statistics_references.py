"""Optimum, balanced simplex or neither, and the test for a saddle, on embeddings made to be each of them."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest
from helpers.families import families
from helpers.simulated import long_tail, means_of, moments_of, optimum, sample, turned, unit, within_of

import optgeom as og
from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.statistics.class_noise import class_noise
from optgeom.embeddings.statistics.confusion import close_neighbours
from optgeom.embeddings.statistics.reference_test import reference_test
from optgeom.embeddings.statistics.saddle import saddle_test
from optgeom.errors import InvalidInputError
from optgeom.programs.class_mean import ClassMeanProgram

TEN = long_tail(5000, 50, 10)
HUNDRED = long_tail(500, 5, 100)
TAIL = [200, 120, 72, 43, 26, 15, 9, 6, 3, 2]


def regular(classes):
    gram = np.full((classes, classes), -1 / (classes - 1))
    np.fill_diagonal(gram, 1.0)
    return gram


def noise_of(rows):
    directions = class_directions(moments_of(rows))
    return directions, class_noise(directions, within_of(rows, directions))


def answers(family, counts, optimal, runs):
    return [
        reference_test(*noise_of(family.sample(counts, np.random.default_rng([51, run]))), optimal)
        for run in range(runs)
    ]


@pytest.mark.parametrize("runs", [4, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["isotropic", "two modes", "radial"])
@pytest.mark.parametrize(("counts", "dim"), [(TEN, 64), (HUNDRED, 128)], ids=["10", "100"])
def test_each_reference_is_told_from_the_other(counts, dim, name, runs):
    """At least 95 of 100, and a wrong answer is never the other one."""
    if len(counts) == 100:
        runs = 1 if runs == 4 else 40
    optimal = optimum(counts)
    for truth, gram in (("optimum", optimal), ("simplex", regular(len(counts)))):
        found = answers(families(gram, dim, (name,))[name], counts, optimal, runs)
        verdicts = Counter(one.verdict for one in found)
        assert verdicts[truth] >= 0.95 * runs - (runs < 40), verdicts  # of a few runs one may be wrong
        assert set(verdicts) <= {truth, "neither"}
        positions = np.array([one.position for one in found])
        assert positions.mean() == pytest.approx(1.0 if truth == "optimum" else 0.0, abs=0.02)
        if runs >= 40:
            assert positions.std() == pytest.approx(np.mean([one.position_sd for one in found]), rel=0.4)


def test_halfway_is_neither_and_says_where():
    optimal = optimum(TEN)
    gram = (optimal + regular(10)) / 2
    (found,) = answers(families(gram, 64, ("isotropic",))["isotropic"], TEN, optimal, 1)
    assert found.verdict == "neither" and found.position == pytest.approx(0.5, abs=5 * found.position_sd)
    assert found.position_sd < 0.02
    assert re.match(
        r"neither at the optimum nor .*: at 0\.5\d \+- 0\.0\d of the way from the simplex", found.sentence()
    )


def test_lack_of_fit_is_the_error_that_noise_does_not_explain():
    optimal = optimum(TEN)
    means, pair = turned(means_of(optimal, 64, np.random.default_rng(2)), 10.0)
    rows = sample(means, TEN, 0.3, np.eye(64) / 8, np.random.default_rng(3))
    found = reference_test(*noise_of(rows), optimal)
    true = np.sqrt(np.mean((means @ means.T - optimal)[np.triu_indices(10, 1)] ** 2))
    assert found.verdict == "neither" and found.lack_of_fit == pytest.approx(np.degrees(true), rel=0.2)
    assert pair == (8, 9)


def test_few_images_cannot_tell():
    counts = [12, 11, 10, 9, 8]
    optimal = optimum(counts, 0.1)
    family = families(optimal, 32, ("power law",))["power law"]
    found = answers(family, counts, optimal, 4)
    assert all(one.verdict == "indistinguishable" for one in found)
    assert "cannot be told apart" in found[0].sentence()


def test_balanced_classes_have_one_reference():
    counts = [100] * 5
    (found,) = answers(families(regular(5), 16, ("isotropic",))["isotropic"], counts, optimum(counts), 1)
    assert found.verdict == "indistinguishable" and np.isnan(found.position)
    assert found.sentence().endswith("the same geometry here")


def test_without_a_simplex_or_images_there_is_no_answer():
    counts = [60] * 5
    rows = sample(unit(np.random.default_rng(0).normal(size=(5, 3))), counts, 0.3, np.eye(3), np.random.default_rng(1))
    assert reference_test(*noise_of(rows), np.eye(5)) is None
    rows = sample(np.eye(5), [5] * 5, 0.3, np.eye(5) / 5, np.random.default_rng(1))
    assert reference_test(*noise_of(rows), np.eye(5)) is None
    rows = sample(np.eye(5), counts, 0.3, np.eye(5) / 5, np.random.default_rng(1))
    with pytest.raises(InvalidInputError, match=re.escape("`alpha` must be < 1; got 1 (0.02 is usual)")):
        reference_test(*noise_of(rows), np.eye(5), alpha=1)


# --- saddles


@cache
def tail(temperature=0.5):
    """Program, optimum, and the best geometry of each rank, of section 24's ten classes."""
    classes, loss = og.ClassDistribution.from_counts(TAIL), og.SupCon(temperature)
    program = ClassMeanProgram.build(classes, loss, grouped=False)
    return program, np.array(og.solve(classes, loss).gram), classes, loss


@cache
def best_of_rank(rank, temperature=0.5):
    _, _, classes, loss = tail(temperature)
    return np.array(og.solve(classes, loss, dim=rank).gram)


def asked(rows, temperature=0.5):
    program, optimal, _, _ = tail(temperature)
    directions, noise = noise_of(rows)
    return saddle_test(
        directions.gram, optimal, program.gradient, noise, close=lambda p, q: close_neighbours(rows[p], rows[q])
    )


def rows_about(gram, sigma, rng, dim=32):
    images = [25 * count for count in TAIL]
    return sample(means_of(gram, dim, rng), images, sigma, np.eye(dim) / np.sqrt(dim), rng)


@pytest.mark.parametrize("runs", [2, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sigma", [0.1, 0.75], ids=["rho .995", "rho .8"])
@pytest.mark.parametrize("rank", [5, 6, 7, 8])
def test_best_geometry_of_lower_rank_is_a_saddle(rank, sigma, runs):
    """zeta against the pencil of the exact matrix, and the classes that are together in it."""
    import scipy.linalg

    gram = best_of_rank(rank)
    program = tail()[0]
    slopes = program.gradient(gram)
    np.fill_diagonal(slopes, 0.0)
    basis = np.linalg.eigh(gram)[1][:, : 10 - rank]
    dual = slopes - np.diag(np.einsum("ij,ij->i", slopes, gram))
    exact = scipy.linalg.eigh(basis.T @ dual @ basis, basis.T @ np.diag(slopes.sum(axis=1)) @ basis)[0][0]
    found = [asked(rows_about(gram, sigma, np.random.default_rng([61, run]))) for run in range(runs)]
    # The last dimension to open is the one whose escape noise hides first: 67 of 100 at rho .8.
    least = 0.5 if (rank, sigma) == (8, 0.75) else 0.95
    assert sum(one.at_saddle for one in found) >= least * runs, Counter(one.reason for one in found)
    assert all(one.rank == rank and one.optimal_rank == 9 for one in found if one.at_saddle)
    assert np.median([one.escape for one in found]) == pytest.approx(exact, rel=0.05 if sigma < 0.5 else 0.3)
    closest = gram - 2 * np.eye(10)
    merged = {int(c) for c in np.unravel_index(closest.argmax(), closest.shape)}
    assert any(merged & set(one.classes) for one in found)


@pytest.mark.parametrize("runs", [2, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sigma", [0.1, 0.75])
def test_what_is_no_saddle(sigma, runs):
    """Optimum, random means, too few random dimensions, and two-way overlap of the rarest classes: never."""
    _, optimal, _, _ = tail()

    def random_means(rng):
        return unit(rng.normal(size=(10, 32)))

    def flat(rng):
        return unit(rng.normal(size=(10, 32)) @ np.diag([1.0] * 6 + [0.02] * 26))

    for run in range(runs):
        rng = np.random.default_rng([62, run])
        for means in (random_means(rng), flat(rng)):
            rows = sample(means, [25 * count for count in TAIL], sigma, np.eye(32) / 32**0.5, rng)
            assert not asked(rows).at_saddle
        assert not asked(rows_about(optimal, sigma, rng)).at_saddle
        rows = rows_about(optimal, sigma, rng)
        pool = rng.permutation(np.concatenate(rows[8:]))
        rows[8], rows[9] = pool[: len(rows[8])], pool[len(rows[8]) :]
        assert not asked(rows).at_saddle


def test_reasons_in_words():
    _, optimal, _, _ = tail()
    rng = np.random.default_rng(7)
    assert asked(rows_about(optimal, 0.1, rng)).reason == "the class means span all dimensions"
    rows = rows_about(best_of_rank(8), 0.1, rng)
    found = asked(rows)
    names = tuple("abcdefghij")
    sentence = found.sentence(names)
    assert sentence.startswith(
        "at a saddle: the class means span 8 of 9 dimensions; classes j and i lack a dimension of their own; forces"
    )
    rows[9] = rows[9][:4]
    assert asked(rows).reason == "too few images in the classes that are together: 4"
    rows[9] = np.concatenate([rows[8][:40], rows[9]])
    assert asked(rows).reason == "classes overlap: images of one have near copies in the other"
    assert asked(rows).sentence(names) == ""


def test_matrices_must_be_of_the_same_classes():
    program, optimal, _, _ = tail()
    directions, noise = noise_of(rows_about(optimal, 0.1, np.random.default_rng(0)))
    with pytest.raises(
        InvalidInputError, match=re.escape("must be of the same C classes; got (10, 10), (9, 9) and 10")
    ):
        saddle_test(directions.gram, optimal[1:, 1:], program.gradient, noise)
