"""Near-optimal ranges of realizations: descents and a conic solver on the loss written out, in every verdict."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.near_optimal import cosines_by_descents, extreme_by_conic_solver, weighted_loss
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import optgeom as og

POINTS = np.random.default_rng(0).standard_normal((5, 2))
SAME = np.equal.outer([0, 0, 1, 1, 2], [0, 0, 1, 1, 2]).astype(float)
FAR = ((POINTS[:, None] - POINTS[None]) ** 2).sum(axis=-1)

# Name: weights, temperature, verdict.
CASES = {
    "a family of optima": (SAME + 0.1 * (1 - SAME), 0.3, "realizable"),
    "labels on the sphere": (np.exp(np.round(POINTS @ POINTS.T / 4, 3)), 0.2, "realizable"),
    "too hot": (SAME + 0.01 * (1 - SAME), 2.0, "inconsistent"),
    "y-aware": (np.exp(-FAR / 2), 0.5, "inconsistent"),
    "hard, a sample without a positive": (SAME, 0.5, "degenerate"),
    "not symmetric": (np.random.default_rng(1).random((5, 5)), 0.4, "inconsistent"),
}


def angle(cosine: float) -> float:
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def full_gram(result: og.Realization) -> np.ndarray:
    index = result.weights.index
    gram = result.optimal_cosines[np.ix_(index, index)]
    np.fill_diagonal(gram, 1.0)
    return gram


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (3, 4)])
@pytest.mark.parametrize("slack", [1e-5, 1e-2])
@pytest.mark.parametrize("case", CASES)
def test_ends_are_those_of_a_conic_solver(case, slack, pair):
    weights, tau, regime = CASES[case]
    result = og.realize(weights, temperature=tau)
    assert result.regime == regime
    near = og.ranges(result, slack=slack, own=False, pairs=[pair])
    found = near.pairs[0]
    collapsed = weighted_loss(weights, tau, np.ones((5, 5)))[0]
    assert near.loss_range == pytest.approx(collapsed - weighted_loss(weights, tau, full_gram(result))[0], rel=1e-9)
    limit = collapsed - (1 - slack) * near.loss_range
    for ends, sign in (
        (("closest_deg", "closest_attained_deg"), 1.0),
        (("farthest_deg", "farthest_attained_deg"), -1.0),
    ):
        cosine = extreme_by_conic_solver(weights, tau, pair, limit, sign)
        for end in ends:
            assert math.cos(math.radians(getattr(found, end))) == pytest.approx(cosine, abs=1e-5)
    assert found.certified


@hypothesis_settings(max_examples=15)
@given(
    n=st.integers(3, 6),
    tau=st.sampled_from([0.1, 0.3, 1.0, 2.0]),
    slack=st.sampled_from([1e-6, 1e-4, 1e-2, 1e-1]),
    kind=st.sampled_from(["soft", "hard", "smooth", "any"]),
    seed=st.integers(0, 10**6),
)
def test_no_descent_leaves_the_range(n, tau, slack, kind, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    labels[:2] = 0
    same = np.equal.outer(labels, labels).astype(float)
    y = rng.standard_normal((n, 2))
    weights = {
        "soft": same + 0.05 * (1 - same),
        "hard": same,
        "smooth": np.exp(-((y[:, None] - y[None]) ** 2).sum(axis=-1)),
        "any": rng.random((n, n)),
    }[kind]
    try:
        result = og.realize(weights, temperature=tau)
    except og.NotCertifiedError:
        return
    pair = (0, int(rng.integers(1, n)))
    if np.allclose(weights[~np.eye(n, dtype=bool)], weights[0, 1]):
        with pytest.raises(og.IncompatibleError, match="all points may coincide"):
            og.ranges(result)
        return
    near = og.ranges(result, slack=slack, own=False, pairs=[pair])
    found = near.pairs[0]
    assert found.closest_deg <= found.closest_attained_deg <= found.angle_deg + 1e-6
    assert found.angle_deg - 1e-6 <= found.farthest_attained_deg <= found.farthest_deg

    def objective(gram: np.ndarray) -> tuple[float, np.ndarray]:
        return weighted_loss(weights, tau, gram)

    least, greatest = cosines_by_descents(objective, full_gram(result), pair, slack * near.loss_range, 8, seed)
    assert found.closest_deg - 1e-4 <= angle(greatest)
    assert angle(least) <= found.farthest_deg + 1e-4
    assert found.certified


def test_own_slack_counts_the_two_samples_among_those_with_a_positive():
    result = og.realize(SAME, temperature=0.5)
    own = og.ranges(result, slack=1e-3, pairs=[(0, 2), (0, 4)]).pairs
    # Four samples of five have a positive; sample 4 has none.
    for pair, share in zip(own, (2 / 4, 1 / 4), strict=True):
        which = (pair.first, pair.second)
        whole = og.ranges(result, slack=1e-3 * share, own=False, pairs=[which]).pairs[0]
        assert pair.closest_deg == pytest.approx(whole.closest_deg, abs=1e-6)
        assert pair.farthest_deg == pytest.approx(whole.farthest_deg, abs=1e-6)


def test_slack_needed_is_the_slack_at_which_a_range_reaches_the_tolerance():
    needed = og.slack_needed(og.realize(CASES["y-aware"][0], temperature=0.5), tolerance_deg=3.0)
    assert needed.batch_share is None
    for pair in needed.pairs[:3]:
        assert pair.whole_lower <= pair.whole <= pair.whole_lower * (1 + 1e-4)
        which = (pair.first, pair.second)
        found = og.ranges(needed.geometry, slack=pair.whole, own=False, pairs=[which]).pairs[0]
        reach = max(found.angle_deg - found.closest_deg, found.farthest_deg - found.angle_deg)
        assert reach == pytest.approx(3.0, abs=1e-4)


def test_where_optima_form_a_family_no_slack_fixes_the_angles():
    """Soft SupCon below its temperature: a constant may be added to all cosines."""
    needed = og.slack_needed(og.realize(CASES["a family of optima"][0], temperature=0.3))
    assert needed.smallest.whole < 1e-12


def test_equal_samples_have_equal_ranges_and_workers_change_nothing():
    classes = [0, 0, 0, 1, 1, 2, 2]
    result = og.realize(og.Weights.soft_supcon(classes, 0.02), temperature=1.0)
    near = og.ranges(result)
    assert og.ranges(result, workers=2).pairs == near.pairs
    ends = {}
    for pair in near.pairs:
        kind = (classes[pair.first], classes[pair.second])
        assert ends.setdefault(kind, (pair.closest_deg, pair.farthest_deg)) == (pair.closest_deg, pair.farthest_deg)
    assert near.records()[0]["second"] == "1"


def test_many_samples_are_chosen_from_one_pair_for_every_two_groups():
    result = og.realize(og.Weights.soft_supcon([0] * 12 + [1] * 12 + [2] * 12, 0.01), temperature=1.0)
    near = og.ranges(result)
    assert [(pair.first, pair.second) for pair in near.pairs] == [
        (0, 1),
        (0, 12),
        (0, 24),
        (12, 13),
        (12, 24),
        (24, 25),
    ]
    assert all(pair.certified for pair in near.pairs)


@pytest.mark.parametrize(
    ("similarity", "options", "message"),
    [
        ("euclidean", {}, "`geometry` must have cosine similarity; got euclidean"),
        ("cosine", {"dim": 2}, "`geometry` must be an optimum without a limit of dimension"),
    ],
)
def test_refusals(similarity, options, message):
    result = og.realize(CASES["y-aware"][0], similarity, temperature=0.5, **options)
    with pytest.raises(og.IncompatibleError, match=message):
        og.ranges(result)


def test_other_results_have_no_ranges():
    with pytest.raises(og.InvalidInputError, match="`geometry` must be a Geometry or a Realization; got ndarray"):
        og.slack_needed(np.eye(3))
