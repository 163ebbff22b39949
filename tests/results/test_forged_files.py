"""Geometry files that were changed after they were written, files of 0.1.0, files without the code of their loss."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.geometries import GEOMETRIES, LIMIT_LOSS, mixed, solved

import optgeom as og

OLD = Path(__file__).parent.parent / "data" / "files-0.1.0"


class Exp:
    """A user's psi; the files of 0.1.0 know it by this name."""

    is_additive = True

    def value(self, t: np.ndarray) -> np.ndarray:
        return np.exp(t).sum(axis=-1)

    def derivative(self, t: np.ndarray) -> np.ndarray:
        return np.exp(t)


def forged(geometry: og.Geometry, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The file of a geometry after a change of its document."""
    path = folder / "forged.json"
    geometry.save(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def poor() -> og.Geometry:
    """The simplex for classes of which it is not the optimum, with the certificate that says so."""
    with pytest.raises(og.NotCertifiedError) as caught:
        og.solve(og.ClassDistribution.from_counts([9, 5, 2]), og.SupCon(0.5), tolerance=1e-18)
    result = caught.value.result
    assert result is caught.value.geometry and not result.certified
    return result


def set_cosine(document: dict[str, Any], value: float) -> None:
    document["arrays"]["group_cosines"][0][1] = document["arrays"]["group_cosines"][1][0] = value


def swap(document: dict[str, Any], first: str, second: str) -> None:
    arrays = document["arrays"]
    arrays[first], arrays[second] = arrays[second], arrays[first]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(risk=d["risk"] - 1e-3), r"changed after it was written: its risk is .*, but that of its"),
        (lambda d: d.update(risk=math.nan), "its risk is nan, but that of its arrays is"),
        (lambda d: d["certificate"].update(gap=1e-3), "its gap is 0.001, but that of its arrays is"),
        (lambda d: d["certificate"].update(gap="nan"), "its gap is nan, but that of its arrays is"),
        (lambda d: d["certificate"].update(lower_bound=0.0), "its lower bound is 0, but that of its arrays is"),
        (lambda d: d.update(rank=2), "its rank is 2, but that of its arrays is 7"),
        (lambda d: set_cosine(d, 0.5), "its risk is"),
        (lambda d: d["loss"].update(temperature=0.4), "its risk is"),
        (lambda d: d["arrays"].update(class_proportions=d["arrays"]["class_proportions"][::-1]), "written by optgeom"),
        (lambda d: swap(d, "group_sizes", "index"), "its groups of classes and their sizes differ"),
        (lambda d: swap(d, "group_cosines", "class_proportions"), "written by optgeom"),
        (lambda d: d["arrays"].pop("group_cosines"), "KeyError"),
        (lambda d: d["arrays"]["group_cosines"][0].__setitem__(0, math.nan), "are not a symmetric matrix of numbers"),
        (lambda d: d["loss"].update(temperature=-1.0), "`temperature` must be > 0"),
        (lambda d: d["certificate"].update(tolerance=-1.0), "`tolerance` must be > 0"),
    ],
)
def test_a_changed_file_is_refused_in_one_line(change: Any, message: str, tmp_path: Path) -> None:
    path = forged(mixed(), tmp_path, change)
    with pytest.raises(og.InvalidInputError, match=message) as caught:
        og.Geometry.load(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_a_certificate_that_was_turned_on_is_refused(tmp_path: Path) -> None:
    def certify(document: dict[str, Any]) -> None:
        document["certificate"].update(certified=True, reason="")

    path = forged(poor(), tmp_path, certify)
    with pytest.raises(og.InvalidInputError, match=r"it says certified, but the duality gap is .* \(limit"):
        og.Geometry.load(path)
    limited = forged(GEOMETRIES["limited"](), tmp_path, certify)
    with pytest.raises(
        og.InvalidInputError, match=r"it says certified, but 2 dimensions are fewer than the 5 of the opt"
    ):
        og.Geometry.load(limited)


@pytest.mark.parametrize("end", [0, 1])
def test_both_ends_of_a_bracket_are_computed_anew(end: int, tmp_path: Path) -> None:
    limited = GEOMETRIES["limited"]()
    limited.save(tmp_path / "limited.npz")
    back = og.Geometry.load(tmp_path / "limited.npz")
    assert back.relaxed is not None and back.relaxed.certified and back.bracket is not None
    assert back.bracket[0] == back.relaxed.certificate.lower_bound

    def move(document: dict[str, Any]) -> None:
        document["bracket"][end] += 1e-3

    with pytest.raises(og.InvalidInputError, match=r"its bracket is .*, but that of its arrays is"):
        og.Geometry.load(forged(limited, tmp_path, move))

    def zero_gap(document: dict[str, Any]) -> None:
        document["certificate"]["gap"] = 0.0

    with pytest.raises(og.InvalidInputError, match=r"its gap is 0, but that of its arrays is 0.1"):
        og.Geometry.load(forged(limited, tmp_path, zero_gap))


def test_a_gap_of_rounding_is_the_computed_one(tmp_path: Path) -> None:
    """A gap below all rounding may be any such number in a file: what is loaded was computed."""
    one = solved(9, 5, 2, 1, loss=og.SupCon(0.2, batch_size=32))
    path = forged(one, tmp_path, lambda document: document["certificate"].update(gap=0.0))
    assert og.Geometry.load(path).certificate == one.certificate


def test_larger_limits_of_the_backward_error_stay(tmp_path: Path) -> None:
    """Certified with the limit 1e-3 that was asked for, by a solver that is not accurate enough for 1e-8."""
    pytest.importorskip("cvxpy")
    classes = og.ClassDistribution.from_counts([9, 5, 2])
    one = og.solve(classes, LIMIT_LOSS, solver="conic", tolerance=1e-3, backward_tolerance=1e-1)
    assert one.certificate.backward_error is not None and one.certificate.backward_error > 1e-8
    one.save(tmp_path / "conic.npz")
    back = og.Geometry.load(tmp_path / "conic.npz")
    assert back.certified and back.certificate.backward_error == pytest.approx(one.certificate.backward_error, rel=1e-3)


# --- files of 0.1.0


@pytest.mark.parametrize("name", ["supcon.npz", "supcon.json", "full-batch.npz", "apart.npz", "infonce-names.json"])
def test_files_of_the_first_version_are_certified_anew(name: str) -> None:
    geometry = og.Geometry.load(OLD / name)
    assert geometry.certified and geometry.certificate.backward_error is not None
    again = og.solve(geometry.classes, geometry.loss)
    assert geometry.risk == pytest.approx(again.risk, abs=1e-12)
    np.testing.assert_allclose(geometry.gram, again.gram, atol=1e-8)


def test_a_bracket_of_the_first_version_has_an_unverified_end(tmp_path: Path) -> None:
    geometry = og.Geometry.load(OLD / "limited.json")
    assert geometry.bracket is not None and geometry.required_rank == 5 and geometry.relaxed is None
    assert geometry.regime == "dimension-limited"
    assert geometry.certificate.reason.endswith("the answer is a bracket, its lower end unverified")
    geometry.save(tmp_path / "again.json")
    assert og.Geometry.load(tmp_path / "again.json").bracket == geometry.bracket


# --- a loss of which a file has only a description


def test_an_own_psi_is_unverified_until_the_loss_is_given(tmp_path: Path) -> None:
    loss = og.GeneralizedContrastive(Exp(), 0.5)
    one = og.solve(og.ClassDistribution.from_counts([3, 9, 4]), loss)
    assert one.certified
    one.save(tmp_path / "own.npz")
    for path in (tmp_path / "own.npz", OLD / "own-psi.json"):
        alone = og.Geometry.load(path)
        assert not alone.certified and alone.certificate.reason.startswith("unverified: `loss` generalized is known by")
        assert alone.certificate.gap == math.inf and alone.as_dict()["certificate"]["gap"] is None
        assert og.Geometry.load(path, loss=loss).certified
    np.testing.assert_array_equal(og.Geometry.load(tmp_path / "own.npz").gram, one.gram)
    with pytest.raises(
        og.InvalidInputError, match=r"own.npz: `loss` must be that of the geometry: generalized.*; got Sup"
    ):
        og.Geometry.load(tmp_path / "own.npz", loss=og.SupCon(0.5))
    path = forged(one, tmp_path, lambda document: document.update(risk=math.nan))
    with pytest.raises(og.InvalidInputError, match=r"changed after it was written: its risk is nan"):
        og.Geometry.load(path)


def test_an_explicit_law_of_the_first_version_needs_its_loss() -> None:
    law = [[0, 0.5, 0.5], [0.3, 0, 0.7], [0.6, 0.4, 0]]
    assert og.Geometry.load(OLD / "law.json").certificate.reason.startswith("unverified: `loss` infonce is known by")
    assert og.Geometry.load(OLD / "law.json", loss=og.InfoNCE(0.5, negative_law=law)).certified


def test_many_classes_in_group_form(tmp_path: Path) -> None:
    classes = og.ClassDistribution.from_groups([500, 40, 3], [10, 990, 99_000])
    one = og.solve(classes, og.SupCon(0.1))
    for name in ("many.npz", "many.json"):
        one.save(tmp_path / name)
        back = og.Geometry.load(tmp_path / name)
        assert back.certified and back.num_classes == 100_000 and back.risk == one.risk
