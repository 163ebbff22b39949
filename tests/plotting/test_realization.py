"""The picture of a realization: right numbers in a readable order at any size, nothing cut or empty."""

from __future__ import annotations

import numpy as np
import pytest

from optgeom.plotting import save_figure
from optgeom.realization.api import realize
from optgeom.realization.weights import Weights

matplotlib = pytest.importorskip("matplotlib")
drawing = pytest.importorskip("optgeom.plotting.realization")

ANGLE = 2 * np.pi * np.arange(16) / 16
CIRCLE = np.column_stack([np.cos(ANGLE), np.sin(ANGLE)])
CLASSES = np.repeat([0, 1, 2], [10, 5, 3])
SHUFFLED = np.random.default_rng(0).permutation(CLASSES)
CLOUD = np.random.default_rng(0).normal(size=(12, 3))

CASES = {
    "circle": lambda: realize(Weights.y_aware(CIRCLE, paper=True), temperature=0.5),
    "line": lambda: realize(Weights.y_aware(np.linspace(0, 1, 12), 0.2), temperature=0.5),
    "hard cosine": lambda: realize(Weights.supcon(CLASSES), temperature=0.5),
    "hard limit": lambda: realize(Weights.supcon(CLASSES), "euclidean", temperature=0.5),
    "singletons": lambda: realize(Weights.supcon([0, 0, 0, 1, 2]), temperature=0.5),
    "sorted classes": lambda: realize(Weights.soft_supcon(CLASSES, 0.1), temperature=0.5),
    "unsorted classes": lambda: realize(Weights.soft_supcon(SHUFFLED, 0.1), temperature=1.0),
    "too few dimensions": lambda: realize(Weights.y_aware(CLOUD), temperature=0.5, dim=2),
    "euclidean, too few": lambda: realize(Weights.y_aware(CLOUD), "euclidean", temperature=0.5, dim=2),
    "asymmetric": lambda: realize(np.random.default_rng(1).uniform(1, 2, size=(8, 8)), temperature=0.5),
    "all equal": lambda: realize(np.ones((4, 4)), temperature=0.5),
    "thousand": lambda: realize(
        Weights.y_aware(np.random.default_rng(0).normal(size=(1000, 2))), "euclidean", temperature=1.0, dim=2
    ),
}


def panels(figure):
    return figure.axes[:4]


def image(axes):
    return np.ma.filled(axes.images[0].get_array().astype(float), np.nan)


@pytest.mark.parametrize("size", [None, (7.0, 3.5), (6.0, 6.0)])
@pytest.mark.parametrize("name", CASES)
def test_draws_without_warnings_and_nothing_collides(name, size):
    found = CASES[name]()
    figure = drawing.plot_realization(found, size=size)
    figure.draw_without_rendering()
    assert found.regime in figure.get_suptitle()
    boxes = []
    for axes in panels(figure):
        title = axes._left_title
        assert title.get_text()
        assert axes.images or axes.lines or axes.texts, "an empty panel without a word"
        boxes.append(title.get_window_extent())
        assert boxes[-1].x1 <= figure.bbox.width + 1 and boxes[-1].x0 >= -1
    boxes.append(figure._suptitle.get_window_extent())
    assert boxes[-1].x1 <= figure.bbox.width + 1
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box.x0 >= -2 and box.y0 >= -2 and box.x1 <= figure.bbox.width + 2 and box.y1 <= figure.bbox.height + 2
    frames = [axes.get_window_extent() for axes in figure.axes]
    assert not [(a, b) for i, a in enumerate(frames) for b in frames[i + 1 :] if a.overlaps(b)]


def test_same_result_same_file(tmp_path):
    found = CASES["sorted classes"]()
    for name in ("a.png", "b.png"):
        save_figure(drawing.plot_realization(found), tmp_path / name, dpi=40)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_panels_hold_weights_target_and_geometry():
    figure = drawing.plot_realization(CASES["circle"]())
    weights, target, realised = (image(axes) for axes in panels(figure)[:3])
    pairs = ~np.eye(16, dtype=bool)
    expected = np.exp(-((CIRCLE[:, None] - CIRCLE[None]) ** 2).sum(axis=-1))
    assert weights[pairs] == pytest.approx((expected / expected[0, 1])[pairs])
    for shown in (target, realised):
        assert np.isnan(np.diag(shown)).all()
        assert shown[pairs] == pytest.approx((CIRCLE @ CIRCLE.T)[pairs], abs=1e-8)
    assert panels(figure)[1].images[0].get_clim() == panels(figure)[2].images[0].get_clim()
    assert "at the entropic bound" in panels(figure)[3].get_title("left").replace("\n", " ")


def test_groups_and_line_labels_are_put_in_order():
    figure = drawing.plot_realization(CASES["unsorted classes"]())
    weights = image(figure.axes[0])
    assert panels(figure)[0].get_xlabel() == "sample, by group"
    same = np.nan_to_num(weights, nan=1.0) == 1
    changes = np.flatnonzero(~same[np.arange(17), np.arange(1, 18)])
    assert changes.size == 2  # three blocks
    shuffled = np.random.default_rng(2).permutation(12)
    line = drawing.plot_realization(realize(Weights.y_aware(np.linspace(0, 1, 12)[shuffled], 0.2), temperature=0.5))
    assert image(panels(line)[0]) == pytest.approx(
        image(panels(drawing.plot_realization(CASES["line"]()))[0]), nan_ok=True
    )
    assert panels(drawing.plot_realization(CASES["sorted classes"]()))[0].get_xlabel() == "sample"


def test_pairs_without_a_target_are_explained():
    figure = drawing.plot_realization(CASES["hard cosine"]())
    assert "grey: weight 0" in panels(figure)[1].get_title("left").replace("\n", " ")
    assert "grey" not in panels(drawing.plot_realization(CASES["circle"]()))[1].get_title("left")
    limit = panels(drawing.plot_realization(CASES["hard limit"]()))
    assert "no embedding" in limit[2].texts[0].get_text()
    assert "no embedding" in limit[3].texts[0].get_text()


def test_gap_is_told():
    found = CASES["line"]()
    title = panels(drawing.plot_realization(found))[3].get_title("left").replace("\n", " ")
    assert f"loss {found.gap_to_bound:.3g} above the bound" in title


def test_many_samples_are_thinned():
    figure = drawing.plot_realization(CASES["thousand"]())
    assert image(panels(figure)[0]).shape == (400, 400)
    assert panels(figure)[0].get_xlabel() == "sample, 400 of 1000 shown"
    assert panels(figure)[3].lines[-1].get_xdata().size <= drawing.MOST_PAIRS
