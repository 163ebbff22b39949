"""`optgeom solve --slack` and `--saddles`: what the loss determines, in JSON and in words."""

from __future__ import annotations

import pytest
from helpers.command_line import answer, refused, words
from helpers.reference import GOLDEN_2

COUNTS = ("--counts", "5000,1500,400,100")


def test_json_has_the_golden_ranges():
    case = next(case for case in GOLDEN_2["ranges"] if case["law"].endswith("tau .5") and case["pair"] == [0, 1])
    found = answer("solve", *COUNTS, "--temperature", "0.5", "--slack", str(case["slack_share"]), "--whole")
    ranges = found["ranges"]
    assert (ranges["slack"], ranges["own"], len(ranges["pairs"])) == (case["slack_share"], False, 6)
    pair = next(pair for pair in ranges["pairs"] if {pair["first"], pair["second"]} == {"0", "1"})
    assert pair["closest_deg"] == pytest.approx(case["closest"], abs=1e-3)
    assert pair["farthest_deg"] == pytest.approx(case["farthest"], abs=1e-3)
    assert pair["certified"] and pair["exact"]
    assert set(found["slack_needed"]) == {"tolerance_deg", "whole", "own", "float32_share", "batch_share"}
    assert found["relaxation"]["kernel"] == "free"
    assert found["relaxation"]["slowest"] > found["relaxation_network"]["slowest"] > 0
    assert "saddles" not in found


def test_json_of_saddles():
    found = answer("solve", "--counts", "200,120,72,43,26,15", "--temperature", "0.5", "--saddles")
    assert [saddle["rank"] for saddle in found["saddles"]] == [1, 2, 3, 4]
    assert set(found["saddles"][0]) >= {"rank", "excess", "least_eigenvalue", "classes"}
    for saddle in found["saddles"]:
        assert saddle["least_eigenvalue"] < 0 < saddle["excess"]
        assert saddle["growth"] == pytest.approx(-4 * saddle["least_eigenvalue"])
        assert saddle["growth_free"] > saddle["growth"]
    assert "ranges" not in found


def test_every_number_comes_with_its_scale():
    text = words("solve", *COUNTS, "--temperature", "0.1", "--slack", "1e-3", "--saddles", "--batch-size", "256")
    assert "0.1 % of the way from optimal to collapsed" in text
    assert "per image of the two classes of a pair: 0 of 6 angles are determined to 2 degrees" in text
    assert "to fix every angle to 2 degrees the loss must come within" in text
    assert "single precision resolves" in text
    assert "one batch mean varies by" in text
    assert "within the slack" in text
    assert "training stalls longest in 2 of 3 dimensions" in text
    assert "per kappa x learning rate in a network" in text
    assert "learning rate / samples for free features" in text


def test_an_optimum_of_one_dimension_has_no_saddles():
    text = words("solve", "--counts", "1000,10,10", "--temperature", "1", "--saddles")
    assert "none: the optimum has one dimension" in text


def test_screened_pairs_are_marked():
    many = ("solve", "--profile", "zipf:31:0.5", "--temperature", "0.5", "--slack", "1e-4", "--screen")
    ranges = answer(*many)["ranges"]["pairs"]
    assert len(ranges) == 31 * 30 // 2
    further = [pair for pair in ranges if not pair["exact"]]
    assert 0 < len(ranges) - len(further) <= 30
    assert not any(pair["certified"] for pair in further)
    text = words(*many)
    assert f"{len(further)} further angles to second order: estimates (~), not bounds" in text
    assert "; ~" in text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--whole",), 2, "--whole goes with --slack"),
        (("--screen",), 2, "--screen goes with --slack"),
        (("--slack", "0"), 3, "`slack` must be > 0"),
        (("--slack", "1e-3", "--dim", "2"), 2, "`geometry` must be an optimum without a limit of dimension"),
    ],
)
def test_refusals(arguments, code, message):
    assert message in refused("solve", code, *COUNTS, *arguments)
