"""Cases 29 and 32 to 34 of practice: matrices that are not quite what they should be.

The last test asks that every case of practice has its numbered test.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import answer, refused, words

import optgeom as og
from optgeom.realization import cailliez, euclidean

STAR = np.array([[0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0.0]])


def test_case_29_an_optimal_matrix_that_is_not_positive_semidefinite() -> None:
    cosine = -0.5 - 5e-7  # eigenvalue 1 + 2 cosine = -1e-6
    classes, loss = og.ClassDistribution.from_counts([4, 4, 4]), og.InfoNCE(0.5, 1, 1.0, "sum", "scl")
    given = og.certify_gram(np.where(np.eye(3) > 0, 1.0, cosine), classes, loss)
    assert given.primal_shift == pytest.approx(5e-7, rel=1e-3) and not given.certified
    assert given.gap < 1e-12  # of the clipped matrix, whose diagonal is restored: the simplex, which is optimal
    assert "had to be moved by 5.0e-07 to become feasible" in given.reason


def test_case_32_distances_that_are_not_euclidean(tmp_path) -> None:
    found = euclidean.spectrum(STAR**2)
    assert np.sort(found.values) == pytest.approx([-0.25, 2, 2], abs=1e-14)  # and 0, of the ones vector
    assert found.lingoes == pytest.approx(0.25, abs=1e-15)
    assert cailliez.additive_constant(STAR) == pytest.approx(0.36602540378443860, abs=1e-14)
    # The weights whose target these distances are: -|z_i - z_j|^2 / tau = log w_ij. In units of tau = 1, d^2 = STAR^2.
    np.save(tmp_path / "w.npy", np.exp(-(STAR**2)))
    use = ("--weights", tmp_path / "w.npy", "--similarity", "euclidean", "--temperature", 1, "--constant", "cailliez")
    assert answer("realize", *use)["shift_interval"] is not None
    assert "0.366025 added to distances" in words("realize", *use)


def test_case_33_weights_asymmetric_by_rounding(tmp_path) -> None:
    places = np.random.default_rng(1).normal(size=(6, 2))
    w = np.exp(-((places[:, None] - places[None]) ** 2).sum(axis=-1) / 2)
    noisy = w * (1 + 1e-16 * np.random.default_rng(0).choice([-3, 0, 3], size=w.shape))
    assert not np.array_equal(noisy, noisy.T)
    np.save(tmp_path / "w.npy", noisy)
    np.save(tmp_path / "even.npy", w)
    found, even = (
        answer("realize", "--weights", tmp_path / "w.npy"),
        answer("realize", "--weights", tmp_path / "even.npy"),
    )
    assert found["optimal_loss"] == pytest.approx(even["optimal_loss"], abs=1e-12)
    assert "asymmetric by rounding" in words("realize", "--weights", tmp_path / "w.npy")


def test_case_34_negative_and_zero_weights(tmp_path) -> None:
    w = np.ones((5, 5))
    w[0, 1] = w[1, 0] = -0.1
    np.save(tmp_path / "w.npy", w)
    assert "`weights` must be not negative; got w_0,1 = -0.1" in refused("realize", 3, "--weights", tmp_path / "w.npy")
    w[0, 1] = w[1, 0] = 0.0
    np.save(tmp_path / "w.npy", w)
    assert "hard scheme, the entropic bound is not attained" in words("realize", "--weights", tmp_path / "w.npy")
    assert answer("realize", "--weights", tmp_path / "w.npy")["regime"] == "degenerate"


def test_every_case_has_its_test() -> None:
    text = "".join(
        path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parents[1].rglob("test_cases_*.py"))
    )
    numbers = [int(number) for number in re.findall(r"^def test_case_(\d+)_", text, re.MULTILINE)]
    assert sorted(numbers) == list(range(1, 39))
