"""solve against reference cases computed without it (data/golden.json) and against the values printed in the theory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.reference import GOLDEN, LIMIT, build, case, distribution, geometry_cases, gram_entries, off_diagonal

import optgeom as og
from optgeom.losses.base import Loss

EPS = np.finfo(float).eps


def full_rank(known: dict[str, Any]) -> bool:
    return not known["name"].startswith("partial-collapse")


def zipf(power: float, classes: int) -> og.ClassDistribution:
    return distribution([float((i + 1) ** -power) for i in range(classes)])


def counts(*values: int) -> og.ClassDistribution:
    return og.ClassDistribution.from_counts(values)


@pytest.mark.parametrize("known", [one for one in geometry_cases() if full_rank(one)], ids=lambda one: one["name"])
@pytest.mark.parametrize("grouped", [True, False])
def test_reference_cases_of_full_rank(known: dict[str, Any], grouped: bool) -> None:
    classes, loss = build(known)
    geometry = og.solve(classes, loss, grouped=grouped)
    tolerance = {"rel": 1e-9} if abs(known["risk"]) >= 1e-3 else {"abs": 1e-12}
    assert geometry.risk == pytest.approx(known["risk"], **tolerance)
    for (i, j), value in gram_entries(known).items():
        assert geometry.gram[i, j] == pytest.approx(value, abs=1e-8)
        assert geometry.cosine(i, j) == geometry.cosine(j, i) == geometry.gram[i, j]
    eigenvalues, vectors = np.linalg.eigh(geometry.gram)
    assert geometry.rank == known.get("rank", classes.num_classes - 1) == classes.num_classes - 1
    assert geometry.regime == "spread"
    assert abs(eigenvalues[0]) < 1e-12
    if "second_smallest_eigenvalue" in known:
        assert eigenvalues[1] == pytest.approx(known["second_smallest_eigenvalue"], abs=1e-8)
    dual = vectors[:, 0] * np.sign(vectors[0, 0])  # the class means satisfy one linear relation, with positive weights
    assert dual.min() > 0
    certificate = geometry.certificate
    assert certificate.certified and certificate.unique
    assert 0 <= certificate.gap <= 1e-10 * (1 + abs(geometry.risk))
    assert certificate.lower_bound == geometry.risk - certificate.gap
    assert certificate.backward_error <= max(1e-9, 100 * EPS * float(np.max(dual.sum() / dual)))


@pytest.mark.parametrize("name", ["partial-collapse-5", "partial-collapse-zipf2-20"])
@pytest.mark.parametrize("grouped", [True, False])
def test_reference_cases_of_partial_collapse(name: str, grouped: bool) -> None:
    """Five classes, ratio 100, SCL, temperature 0.5: the cosine of the rarest two is 0.99949, not 1."""
    known = case(name)
    geometry = og.solve(*build(known), grouped=grouped)
    assert geometry.risk == pytest.approx(known["risk"], rel=1e-10)
    for (i, j), value in gram_entries(known).items():
        assert geometry.gram[i, j] == pytest.approx(value, abs=1e-6)
    assert (geometry.rank, geometry.regime) == (known["rank"], "partial-collapse")
    assert int((np.linalg.eigvalsh(geometry.gram) > 1e-7).sum()) == known["rank"]
    assert geometry.certificate.certified and geometry.certificate.unique
    assert geometry.certificate.gap <= 1e-10 * (1 + abs(geometry.risk))
    assert geometry.prototypes(known["rank"]).shape == (geometry.num_classes, known["rank"])
    assert geometry.coincident_classes == ()


def test_every_reference_case_was_used() -> None:
    assert len(geometry_cases()) == len(GOLDEN["geometry"]) + len(GOLDEN["supcon"]) == 15


@pytest.mark.parametrize(
    ("negatives", "sampling", "risk"),
    [(1, "scl", 0.190112921806), (8, "ucl", 1.659427366645), (8, "scl", 0.977752424551)],
)
def test_steep_zipf(negatives: int, sampling: str, risk: float) -> None:
    """Cases that Newton from the simplex was known to miss."""
    geometry = og.solve(zipf(2.0, 20), og.InfoNCE(1.0, negatives, 1.0, "sum", sampling))
    assert geometry.risk == pytest.approx(risk, abs=1e-11)
    assert geometry.certificate.certified
    assert geometry.rank == 19


@pytest.mark.parametrize("singletons", ["zero", "skip"])
def test_supcon_with_one_view(singletons: str) -> None:
    geometry = og.solve(counts(5, 4, 3), og.SupCon(0.5, 8, 1, singletons))
    lam = np.array([5, 4, 3]) / 12
    share = 1.0 if singletons == "zero" else float(lam @ (1 - (1 - lam) ** 7))
    assert geometry.risk * share == pytest.approx(0.884703641708, abs=1e-11)
    np.testing.assert_allclose(geometry.gram[[0, 0, 1], [1, 2, 2]], [-0.590688, -0.487640, -0.416417], atol=6e-7)


def test_singletons_of_a_full_batch_coincide() -> None:
    geometry = og.solve(counts(3, 2, 1, 1), og.SupConFullBatch(0.5))
    assert geometry.risk == pytest.approx(0.393997886069, abs=1e-12)
    gram = geometry.gram
    np.testing.assert_allclose(gram[[0, 0, 1], [1, 2, 2]], [-0.711786, -0.340588, -0.417977], atol=6e-7)
    assert gram[2, 3] == pytest.approx(1.0, abs=1e-14)
    assert np.array_equal(gram[2, :2], gram[3, :2])
    assert geometry.coincident_classes == ((2, 3),)
    assert (geometry.rank, geometry.regime) == (2, "partial-collapse")
    prototypes = geometry.prototypes()
    assert prototypes[2] @ prototypes[3] == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(prototypes @ prototypes.T, gram, atol=1e-12)
    x = np.exp((gram - 1) / 0.5)
    by_hand = 3 / 7 * math.log(2 + 2 * x[0, 1] + 2 * x[0, 2]) + 2 / 7 * math.log(1 + 3 * x[1, 0] + 2 * x[1, 2])
    assert geometry.risk == pytest.approx(by_hand, abs=1e-14)
    skip = og.solve(counts(3, 2, 1, 1), og.SupConFullBatch(0.5, singletons="skip"))
    assert skip.risk == pytest.approx(geometry.risk * 7 / 5, rel=1e-12)
    np.testing.assert_allclose(skip.gram, gram, atol=1e-12)


def test_only_one_class_with_a_positive() -> None:
    """Everything else goes to its antipode."""
    geometry = og.solve(counts(1, 5, 1, 1), og.SupConFullBatch(0.5))
    side = np.array([-1.0, 1.0, -1.0, -1.0])
    np.testing.assert_allclose(geometry.gram, np.outer(side, side), atol=1e-14)
    assert geometry.risk == pytest.approx(5 / 8 * math.log(4 + 3 * math.exp(-4)), rel=1e-14)
    assert (geometry.rank, geometry.regime) == (1, "minority-collapse")
    assert geometry.coincident_classes == ((0, 2, 3),)
    assert geometry.certificate.certified and geometry.certificate.unique


def test_no_class_with_a_positive() -> None:
    with pytest.raises(
        og.InvalidInputError, match=r"`counts` must hold a class with two rows or more; got only singletons"
    ):
        og.solve(counts(1, 1, 1), og.SupConFullBatch(0.5))
    two_views = og.solve(counts(1, 1, 1), og.SupConFullBatch(0.5, views=2))
    np.testing.assert_allclose(two_views.gram, off_diagonal(-0.5, 3), atol=1e-14)
    assert two_views.risk == pytest.approx(math.log(1 + 4 * math.exp(-3)), rel=1e-14)


@pytest.mark.parametrize(
    "loss", [og.InfoNCE(0.1, **LIMIT), og.InfoNCE(0.1, 256), og.SupCon(0.1, 64, 1), og.SupCon(), og.SupConFullBatch()]
)
def test_case_15_a_singleton_class(loss: Loss) -> None:
    geometry = og.solve(counts(5000, 1), loss)
    assert geometry.gram[0, 1] == pytest.approx(-1.0, abs=1e-14)
    assert (geometry.rank, geometry.regime) == (1, "spread")
    assert geometry.certificate.certified


def test_case_30_flat_objective() -> None:
    geometry = og.solve(og.ClassDistribution.from_proportions([0.9, 0.1]), og.SupCon(0.1))
    assert geometry.gram[0, 1] == pytest.approx(-1.0, abs=1e-14)
    assert geometry.risk == pytest.approx(-0.32508297133029, abs=1e-13)
    assert geometry.certificate.certified
    assert geometry.certificate.backward_error < 1e-12
