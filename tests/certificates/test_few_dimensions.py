"""The lower bound from two moments of the cosines: below every geometry, close to known codes, refused elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

import optgeom as og
from optgeom.certificates.few_dimensions import pair_bound
from optgeom.programs.class_mean import ClassMeanProgram

LOSSES = {
    "supcon .1": og.SupCon(0.1),
    "supcon .5": og.SupCon(0.5),
    "supcon 2": og.SupCon(2.0),
    "supcon batch": og.SupCon(0.2, 32, views=1),
    "infonce": og.InfoNCE(0.3, 5, 1.0, "sum", "scl"),
    "linear": og.InfoNCE(0.5, 1, 0.0),
}


def equal(classes: int, loss: og.Loss) -> ClassMeanProgram:
    return ClassMeanProgram.build(og.ClassDistribution.from_counts([7] * classes), loss)


def test_the_cross_polytope_is_nearly_proved() -> None:
    """T = .1, 8 classes in 4 dimensions: each row has six cosines of 0 and one of -1."""
    optimum = math.log1p(6 * math.exp(-10) + math.exp(-20)) - math.log(8)
    bound = pair_bound(equal(8, og.SupCon(0.1)), 4)
    assert optimum == pytest.approx(-2.079169177, abs=1e-9)
    assert -2.079169214 < bound < optimum  # the bound of theory-2, section 23, is a little lower
    # The mean over pairs instead of the logarithm of a sum, in closed form.
    assert bound == pytest.approx(
        (6 * math.log1p(7 * math.exp(-10)) + math.log1p(7 * math.exp(-20))) / 7 - math.log(8), abs=1e-12
    )


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(("classes", "dim"), [(5, 1), (5, 2), (6, 3), (8, 4), (9, 3)])
def test_no_geometry_of_so_few_dimensions_is_below(classes: int, dim: int, loss: og.Loss) -> None:
    bound = pair_bound(equal(classes, loss), dim)
    program = ClassMeanProgram.build(og.ClassDistribution.from_counts([7] * classes), loss, grouped=False)

    def risk(flat: np.ndarray) -> float:
        rows = flat.reshape(classes, dim)
        rows = rows / np.linalg.norm(rows, axis=1)[:, None]
        return program.risk(np.clip(rows @ rows.T, -1, 1))

    starts = np.random.default_rng(0).standard_normal((4, classes * dim))
    reached = [minimize(risk, start, method="L-BFGS-B", options={"maxiter": 60}).fun for start in starts]
    assert bound <= min(reached) + 1e-12
    assert bound > -math.inf


@pytest.mark.parametrize("loss", [LOSSES["supcon .5"], LOSSES["supcon 2"], LOSSES["infonce"]], ids=str)
@pytest.mark.parametrize(("classes", "dim"), [(6, 2), (9, 3), (12, 5)])
def test_the_parabola_is_the_best_of_a_linear_program(classes: int, dim: int, loss: og.Loss) -> None:
    """min E phi(X) over measures on a grid, of which the bound is the dual: never above it, and close to it."""
    program = equal(classes, loss)
    grid = np.linspace(-1, 1, 401)
    phi = np.array([program.risk(np.array([[x]])) for x in grid])
    least = linprog(
        phi,
        A_ub=[-grid, -(grid**2)],
        b_ub=[1 / (classes - 1), -(classes / dim - 1) / (classes - 1)],
        A_eq=[np.ones_like(grid)],
        b_eq=[1.0],
    ).fun
    bound = pair_bound(program, dim)
    assert bound <= least + 1e-9
    assert bound >= least - 1e-5


def test_the_bracket_takes_the_better_bound() -> None:
    loss = og.SupCon(0.1)
    geometry = og.solve(og.ClassDistribution.from_counts([7] * 8), loss, dim=4)
    assert geometry.bracket is not None and geometry.relaxed is not None
    assert geometry.bracket[0] == pair_bound(equal(8, loss), 4) > geometry.relaxed.certificate.lower_bound
    assert geometry.bracket[1] - geometry.bracket[0] < 1e-8
    linear = og.InfoNCE(0.5, negatives=1, alpha=0.0)
    flat = og.solve(og.ClassDistribution.from_counts([7] * 8), linear, dim=4)
    assert flat.certificate.lower_bound >= pair_bound(equal(8, linear), 4)


def test_unequal_classes_have_no_such_bound() -> None:
    program = ClassMeanProgram.build(og.ClassDistribution.from_counts([50, 20, 20, 10]), og.SupCon(0.1))
    assert pair_bound(program, 2) == -math.inf


def test_one_dimension_closes_the_bracket(tmp_path) -> None:
    """All signs are tried: the ends are equal, and a file that claims less is refused."""
    geometry = og.solve(og.ClassDistribution.from_counts([50, 20, 9, 4, 2]), og.SupCon(0.1), dim=1)
    assert geometry.bracket == (geometry.risk, geometry.risk)
    assert not geometry.certified
    why = "one dimension is fewer than the 4 of the optimum: the answer is the lowest there, not that optimum"
    assert geometry.certificate.reason == why
    geometry.save(tmp_path / "line.npz")
    assert og.Geometry.load(tmp_path / "line.npz").bracket == geometry.bracket
