"""A Gram matrix of one's own, certified: what is refused, and that the optimum alone passes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers.reference import LIMIT, collapsed, off_diagonal

import optgeom as og


def counted(*values: int) -> og.ClassDistribution:
    return og.ClassDistribution.from_counts(values)


def changed(row: int, column: int, value: float) -> np.ndarray:
    gram = off_diagonal(-0.5, 3)
    gram[row, column] = value
    return gram


@pytest.mark.parametrize(
    ("gram", "options", "message"),
    [
        (np.eye(2), {}, r"`gram` must have shape \(C, C\) = \(3, 3\) in class order; got \(2, 2\)"),
        (np.ones(3), {}, r"`gram` must have shape \(C, C\) = \(3, 3\) in class order; got \(3,\)"),
        (changed(1, 2, math.nan), {}, "`gram` must be finite; got nan in row 1, column 2"),
        (changed(2, 0, -math.inf), {}, "`gram` must be finite; got -inf in row 2, column 0"),
        (changed(1, 1, 0.0), {}, "`gram` must have a positive diagonal; got 0.0 in row 1"),
        (np.eye(3), {"tolerance": 0.0}, "`tolerance` must be > 0; got 0.0"),
    ],
)
def test_wrong_arguments_of_certify_gram(gram: np.ndarray, options: dict[str, Any], message: str) -> None:
    with pytest.raises(og.InvalidInputError, match=message):
        og.certify_gram(gram, counted(3, 2, 1), og.SupCon(), **options)
    with pytest.raises(
        og.IncompatibleError, match="`gram` of a full batch with several singleton classes cannot be certified"
    ):
        og.certify_gram(np.eye(4), counted(3, 2, 1, 1), og.SupConFullBatch())


def test_certify_gram_accepts_the_optimum_only() -> None:
    classes, loss = counted(6, 3, 3, 1), og.InfoNCE(0.5, **LIMIT)
    best = og.solve(classes, loss)
    certificate = og.certify_gram(best.gram, classes, loss)
    assert certificate.certified and certificate.unique and certificate.primal_shift < 1e-14
    assert certificate.lower_bound <= best.risk
    order = [3, 1, 2, 0]
    assert not og.certify_gram(best.gram[np.ix_(order, order)], classes, loss).certified
    assert og.certify_gram(best.gram[np.ix_(order, order)], counted(1, 3, 3, 6), loss).certified
    for wrong in (off_diagonal(-1 / 3, 4), np.eye(4), collapsed(4), np.ones((4, 4))):
        refusal = og.certify_gram(wrong, classes, loss)
        assert not refusal.certified and not refusal.unique
        assert refusal.lower_bound <= best.risk
    skew = np.zeros((4, 4))
    skew[0, 1], skew[1, 0] = 1e-3, -1e-3
    refusal = og.certify_gram(best.gram + skew, classes, loss)
    assert not refusal.certified and not refusal.unique
    assert refusal.primal_shift == pytest.approx(1e-3, rel=1e-6)
    refusal = og.certify_gram(4 * best.gram, classes, loss)
    assert not refusal.certified and refusal.primal_shift > 1


def test_certify_gram_refuses_a_flat_answer() -> None:
    """What an interior-point method returns as optimal for proportions (.9, .1) at temperature .1.

    The gap alone would let it pass.
    """
    classes, loss = og.ClassDistribution.from_proportions([0.9, 0.1]), og.SupCon(0.1)
    refusal = og.certify_gram(off_diagonal(-0.9596, 2), classes, loss)
    assert refusal.gap < 1e-8 and not refusal.certified
    assert refusal.backward_error > 1e-2
    assert og.certify_gram(off_diagonal(-1.0, 2), classes, loss).certified
    with pytest.raises(og.NotCertifiedError, match="found by conic is not certified") as caught:
        og.solve(counted(900, 90, 10), loss, solver="conic")
    assert not og.certify_gram(caught.value.geometry.gram, counted(900, 90, 10), loss).certified


def test_case_29_almost_positive_semidefinite() -> None:
    gram = off_diagonal(-0.5 - 5e-7, 3)
    assert np.linalg.eigvalsh(gram)[0] == pytest.approx(-1e-6, rel=1e-6)
    refusal = og.certify_gram(gram, counted(4, 4, 4), og.SupCon(0.5))
    assert not refusal.certified
    assert refusal.primal_shift == pytest.approx(5e-7, rel=1e-3)
    assert refusal.gap < 1e-12  # at the repaired matrix, which is the optimum
