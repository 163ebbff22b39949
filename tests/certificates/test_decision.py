"""The one decision: which figures are refused, and in which words."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from helpers.reference import LIMIT, off_diagonal, program_of

from optgeom.certificates import Certificate, certify, decide
from optgeom.certificates.repair import repair
from optgeom.losses.infonce import InfoNCE
from optgeom.programs.sampling import SamplingProgram
from optgeom.realization.optimum import program_of as weighted_program
from optgeom.realization.weights import Weights

GOOD: dict[str, Any] = {
    "risk": -3.0,
    "gap": 3.9e-8,
    "primal_shift": 1e-9,
    "backward_error": 1e-8,
    "rank": 2,
    "unique": True,
}
KEYS = [
    "certified",
    "gap",
    "lower_bound",
    "primal_shift",
    "backward_error",
    "tolerance",
    "scale",
    "unique",
    "rank",
    "rigorous",
    "enclosure",
    "reason",
]


def test_figures_at_their_limits_are_certified() -> None:
    certificate = decide(**GOOD)
    assert (certificate.certified, certificate.unique, certificate.reason) == (True, True, "")
    assert (certificate.scale, certificate.tolerance, certificate.lower_bound) == (4.0, 1e-8, -3.0 - 3.9e-8)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"primal_shift": 1.01e-9}, "the matrix had to be moved by 1.0e-09 to become feasible (limit 1e-09)"),
        ({"gap": 4.1e-8}, "the duality gap is 4.1e-08 (limit 4.0e-08)"),
        ({"gap": math.inf}, "the duality gap is inf (limit 4.0e-08)"),
        ({"backward_error": 2e-8}, "the backward error is 2.0e-08 (limit 1e-08)"),
        ({"backward_error": math.inf}, "the backward error is inf (limit 1e-08)"),
        ({"risk": math.inf, "scale": 1.0}, "the risk is inf"),
        ({"refusal": "unverified: no loss"}, "unverified: no loss"),
        ({"refusal": "unverified: no loss", "gap": 1.0}, "unverified: no loss"),
        *(({name: math.nan}, "nan") for name in ("risk", "gap", "primal_shift", "backward_error")),
    ],
)
def test_each_criterion_refuses_alone_and_says_so(change: dict[str, Any], reason: str) -> None:
    certificate = decide(**GOOD | change)
    assert (certificate.certified, certificate.unique) == (False, False)
    assert reason in certificate.reason and "\n" not in certificate.reason


def test_limits_can_be_asked_for_and_a_missing_backward_error_refuses_nothing() -> None:
    assert decide(**GOOD | {"backward_error": 1e-6}, backward_tolerance=1e-6).certified
    assert decide(**GOOD | {"backward_error": None}).certified
    assert decide(**GOOD | {"primal_shift": 3e-9}, shift_limit=4e-9).certified
    assert not decide(**GOOD, scale=3.0).certified
    assert not decide(**GOOD, tolerance=9e-9).certified
    assert decide(**GOOD, lower_bound=-3.1).lower_bound == -3.1


def of_every_program() -> list[Certificate]:
    """A certificate that holds and one that does not, of each kind of program."""
    classes = program_of([3, 3, 3], InfoNCE(0.5, **LIMIT))
    weights = weighted_program(Weights.y_aware(np.arange(5.0)), 0.5)
    points = SamplingProgram(np.full((5, 5), 0.2), np.ones((5, 5)), 0.5)
    return [
        certify(program, cosines).certificate
        for program, cosines in (
            (classes, np.array([[-0.5]])),
            (classes, np.array([[0.0]])),
            (weights, np.eye(5)),
            (points, off_diagonal(0.5, 5)),
        )
    ]


def test_every_program_writes_the_same_keys() -> None:
    certificates = of_every_program()
    assert [certificate.certified for certificate in certificates] == [True, False, False, False]
    for certificate in certificates:
        content = certificate.as_dict()
        assert list(content) == KEYS
        json.dumps(content, allow_nan=False)
    content = decide(**GOOD | {"gap": math.inf}, enclosure=(-math.inf, 1.0)).as_dict()
    assert (content["gap"], content["lower_bound"], content["enclosure"]) == (None, None, [None, 1.0])


def test_the_limit_of_the_shift_is_rounding_where_that_is_more() -> None:
    """Of ten million coincident classes the trace on the group indicators is 1e7; (3 + 8) units of rounding of it."""
    program = program_of([5, 5, 5], InfoNCE(0.5, **LIMIT))
    assert "(limit 1e-09)" in certify(program, np.array([[-0.51]])).certificate.reason
    sizes = np.array([10**7])
    assert repair(np.array([[1.0]]), sizes).rounding == pytest.approx(11 * 2.0**-53 * 1e7, rel=1e-9)
    assert repair(np.array([[-1e-7]]), sizes).rounding < 1e-14
