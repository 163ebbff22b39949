"""Files of realizations and recoveries: what comes back was computed anew, and changed files are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optgeom as og
from optgeom.result import Result
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Mixture, Slice, VonMisesFisher
from optgeom.sampling.optimum import SamplingOptimum, global_optimum
from optgeom.sampling.points import point_set

CLOUD = np.random.default_rng(0).normal(size=(12, 3))
CLASSES = ["a"] * 4 + ["b"] * 2 + ["c"]
SMALL: dict[str, Any] = {"temperature": 0.3, "slices": 6, "per_slice": 4}


def asymmetric() -> np.ndarray:
    return np.random.default_rng(1).uniform(1, 2, size=(8, 8))


REALIZATIONS: dict[str, Callable[[], og.Realization]] = {
    "attained": lambda: og.realize(og.Weights.soft_supcon(CLASSES, 0.1), temperature=0.5),
    "optimum": lambda: og.realize(og.Weights.y_aware(CLOUD), temperature=0.5),
    "classes": lambda: og.realize(og.Weights.supcon(CLASSES), temperature=0.5),
    "matrix": lambda: og.realize(asymmetric(), temperature=0.5),
    "bracket": lambda: og.realize(og.Weights.y_aware(CLOUD), temperature=0.5, dim=2),
    "euclidean": lambda: og.realize(og.Weights.y_aware(CLOUD), "euclidean", temperature=0.5, constant="cailliez"),
    "euclidean bracket": lambda: og.realize(og.Weights.y_aware(CLOUD), "euclidean", temperature=0.5, dim=2),
    "limit": lambda: og.realize(og.Weights.supcon(CLASSES), "euclidean", temperature=0.5),
    "fitted": lambda: og.realize(asymmetric(), "euclidean", temperature=0.5),
    "fitted bracket": lambda: og.realize(asymmetric(), "euclidean", temperature=0.5, dim=1),
}
RECOVERIES: dict[str, Callable[[], og.Recovery]] = {
    "full": lambda: og.recover(**SMALL),
    "loose": lambda: og.recover(kappa=2.5, **SMALL),
    "slices": lambda: og.recover(fixed=1, **SMALL),
    "cap": lambda: og.recover(conditional=Cap(3, 60.0, 2.0), dim=2, **SMALL),
    "mixture": lambda: og.recover(
        conditional=Mixture((VonMisesFisher(3, 9.0), VonMisesFisher(3, 1.0)), (0.5, 0.5)), **SMALL
    ),
    "pairs": lambda: og.recover(
        pairs=og.Pairs.of(*Slice(3, 5.0, (2,)).sample_pairs(np.random.default_rng(0), 500)), **SMALL
    ),
}


@pytest.mark.parametrize("suffix", [".npz", ".json"])
@pytest.mark.parametrize("name", REALIZATIONS)
def test_realizations_come_back(name: str, suffix: str, tmp_path: Path) -> None:
    one = REALIZATIONS[name]()
    one.save(tmp_path / f"one{suffix}")
    back = og.Realization.load(tmp_path / f"one{suffix}")
    assert back.as_dict() == one.as_dict()
    assert repr(back) == repr(one)
    if name != "limit":
        np.testing.assert_array_equal(back.embedding(), one.embedding())


@pytest.mark.parametrize("suffix", [".npz", ".json"])
@pytest.mark.parametrize("name", RECOVERIES)
def test_recoveries_come_back(name: str, suffix: str, tmp_path: Path) -> None:
    one = RECOVERIES[name]()
    one.save(tmp_path / f"one{suffix}")
    back = og.Recovery.load(tmp_path / f"one{suffix}")
    flat, expected = numbers(back.as_dict()), numbers(one.as_dict())
    assert flat.keys() == expected.keys()
    for key, value in expected.items():
        assert flat[key] == (pytest.approx(value, abs=1e-9, rel=1e-9) if isinstance(value, float) else value), key
    np.testing.assert_allclose(back.optimum.cosines, one.optimum.cosines, atol=1e-12)


def numbers(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves of a JSON object by their path."""
    if isinstance(value, dict):
        return {key: leaf for name, part in value.items() for key, leaf in numbers(part, f"{path}/{name}").items()}
    if isinstance(value, (list, tuple)):
        return {key: leaf for i, part in enumerate(value) for key, leaf in numbers(part, f"{path}/{i}").items()}
    return {path: value}


def test_optima_of_points_come_back(tmp_path: Path) -> None:
    one = global_optimum(point_set(VonMisesFisher(3, 4.0), 5, 5), 0.3)
    one.save(tmp_path / "one.npz")
    assert SamplingOptimum.load(tmp_path / "one.npz").loss == pytest.approx(one.loss, abs=1e-12)


def test_every_result_has_one_certificate_and_its_keys() -> None:
    geometry = og.solve(og.ClassDistribution.from_counts([5, 3, 1]), og.SupCon())
    results: list[Result] = [geometry, REALIZATIONS["optimum"](), RECOVERIES["slices"]()]
    keys = set(geometry.certificate.as_dict())
    for result in results:
        assert isinstance(result, Result) and isinstance(result.certificate, og.Certificate)
        assert result.certified is result.certificate.certified is True
        assert keys <= set(result.as_dict()["certificate"])
        assert result.as_dict()["solver"].keys() == {"name", "iterations", "seconds"}
    assert results[1].as_dict()["certificate"].keys() == keys
    assert set(RECOVERIES["slices"]().as_dict()["certificate"]) == {*keys, "corrected_gap"}


def changed(one: Result, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    path = folder / "changed.json"
    one.save(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "optimum",
            lambda d: d.update(optimal_loss=d["optimal_loss"] - 1e-3),
            "its optimal loss is .*, but that of its",
        ),
        ("optimum", lambda d: d.update(optimal_loss=math.nan), "its optimal loss is nan"),
        ("optimum", lambda d: d.update(entropic_bound=0.0), "its entropic bound is 0, but"),
        ("optimum", lambda d: d.update(regime="realizable"), "its regime is realizable, but that of its arrays is inc"),
        ("optimum", lambda d: d["certificate"].update(gap=1e-3), "its gap is 0.001, but"),
        ("optimum", lambda d: d["arrays"]["log_weights"][0].__setitem__(1, 0.0), "its weights are not symmetric"),
        ("optimum", lambda d: d["arrays"]["group_cosines"].pop(), "are not a matrix of numbers|ValueError"),
        ("optimum", lambda d: d["arrays"].pop("group_cosines"), "it has no geometry"),
        ("optimum", lambda d: d["arrays"].update(weight_sizes=[1, 2]), "its groups of samples and their sizes differ"),
        ("optimum", lambda d: d.update(temperature=-1), "`temperature` must be > 0"),
        ("optimum", lambda d: d.update(format="optgeom-geometry"), "its format is 'optgeom-geometry'"),
        ("bracket", lambda d: d["certificate"].update(certified=True), "it says certified, but 2 dimensions are fewer"),
        ("bracket", lambda d: d["bracket"].__setitem__(0, 0.0), "its bracket is 0, but"),
        ("bracket", lambda d: d["certificate"].update(gap=0.0), "its gap is 0, but"),
    ],
)
def test_changed_realizations_are_refused(name: str, change: Any, message: str, tmp_path: Path) -> None:
    path = changed(REALIZATIONS[name](), tmp_path, change)
    with pytest.raises(og.InvalidInputError, match=message) as caught:
        og.Realization.load(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["optimum"].update(loss=d["optimum"]["loss"] - 1e-3), "its loss is .*, but that of its arrays is"),
        (lambda d: d["optimum"].update(loss=math.nan), "its loss is nan"),
        (lambda d: d["corrected"]["certificate"].update(gap=1e-3), "its gap is 0.001, but"),
        (lambda d: d["in_dimension"].update(best=0.0), "its loss in this dimension is 0, but"),
        (lambda d: d["law"].update(kappa=9.0), "but"),
        (lambda d: d["arrays"]["points"][0].__setitem__(0, 0.5), "its points are not those of its law"),
        (lambda d: d["arrays"].update(best_rows=[[1.0]]), "its best map is not one of unit rows for its points"),
        (lambda d: d["law"].update(name="other"), "KeyError"),
    ],
)
def test_changed_recoveries_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    path = changed(RECOVERIES["slices"](), tmp_path, change)
    with pytest.raises(og.InvalidInputError, match=message) as caught:
        og.Recovery.load(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("kind", [og.Geometry, og.Realization, og.Recovery])
def test_truncated_files_are_refused(kind: type[Result], tmp_path: Path) -> None:
    one = REALIZATIONS["optimum"]()
    one.save(tmp_path / "one.npz")
    whole = (tmp_path / "one.npz").read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(og.InvalidInputError, match=r"cut.npz is not an? \w+ written by optgeom"):
            kind.load(tmp_path / "cut.npz")


@pytest.mark.parametrize("name", ["attained", "optimum", "bracket", "euclidean", "fitted"])
def test_the_embedding_has_the_dimension_asked_for(name: str) -> None:
    """Fault 39: with dim=6 there are six columns, zeros beyond the rank."""
    one = REALIZATIONS[name]()
    assert one.rank is not None
    wide = og.realize(one.weights, one.similarity, temperature=one.temperature, dim=one.rank + 3).embedding()
    if name != "bracket":
        assert wide.shape == (one.n, one.rank + 3)
    with pytest.raises(og.InvalidInputError, match="`dim` must be"):
        one.embedding(1)
