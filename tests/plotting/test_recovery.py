"""The picture of a recovery: numbers against the definitions, readable at any size, nothing cut or overlapping."""

from __future__ import annotations

import numpy as np
import pytest

import optgeom as og
from optgeom.plotting import save_figure
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Mixture, Slice, VonMisesFisher

matplotlib = pytest.importorskip("matplotlib")
drawing = pytest.importorskip("optgeom.plotting.recovery")

TAU = 0.3
SMALL = {"slices": 8, "per_slice": 6}
MIXED = Mixture((Slice(3, 4.0, (2,)), VonMisesFisher(3, 4.0)), (0.9, 0.1))


def pairs(law, n=400):
    rng = np.random.default_rng(0)
    z, z_plus = law.sample_pairs(rng, n)
    turn, _ = np.linalg.qr(rng.standard_normal((law.dimension,) * 2))
    return og.Pairs.of(z @ turn, z_plus @ turn)


CASES = {
    "full": lambda: og.recover(latent_dim=3, temperature=0.3, **SMALL),
    "theory": lambda: og.recover(latent_dim=3, fixed=1, temperature=0.3, **SMALL),
    "reported": lambda: og.recover(latent_dim=3, fixed=1, convention="reported", temperature=0.3, **SMALL),
    "two fixed": lambda: og.recover(latent_dim=3, fixed=2, temperature=0.3, **SMALL),
    "circle": lambda: og.recover(latent_dim=2, fixed=1, temperature=0.3, **SMALL),
    "circle, full": lambda: og.recover(latent_dim=2, kappa=5.0, temperature=0.3, **SMALL),
    "five": lambda: og.recover(latent_dim=5, fixed=2, temperature=0.3, **SMALL),
    "hundred": lambda: og.recover(latent_dim=100, fixed=3, temperature=0.3, **SMALL),
    "cap": lambda: og.recover(conditional=Cap(3, 60.0, 4.0), temperature=0.3, **SMALL),
    "mixture": lambda: og.recover(conditional=MIXED, temperature=0.3, **SMALL),
    "pairs": lambda: og.recover(pairs=pairs(Slice(5, 6.0, (4,))), temperature=0.3, **SMALL),
    "pairs, none fixed": lambda: og.recover(pairs=pairs(VonMisesFisher(3, 3.4)), temperature=0.3, **SMALL),
    "one dimension": lambda: og.recover(latent_dim=3, fixed=1, dim=1, rho=0.0, temperature=0.3, **SMALL),
}


@pytest.mark.parametrize("size", [None, (7.0, 3.2), (4.5, 11.0)])
@pytest.mark.parametrize("name", CASES)
def test_draws_without_warnings_and_nothing_collides(name, size):
    found = CASES[name]()
    figure = drawing.plot_recovery(found, size=size)
    figure.draw_without_rendering()
    said = figure.get_suptitle().replace("\n", " ")
    assert said[1:] == found.verdict[1:] and said[0].isupper()
    boxes = [figure._suptitle.get_window_extent(), *(axes._left_title.get_window_extent() for axes in figure.axes)]
    assert not [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    for box in [*boxes, *(axes.get_tightbbox() for axes in figure.axes)]:
        assert box.x0 >= -2 and box.y0 >= -2 and box.x1 <= figure.bbox.width + 2 and box.y1 <= figure.bbox.height + 2
    frames = [axes.get_window_extent() for axes in figure.axes]
    assert len(frames) == 3 and not [(a, b) for i, a in enumerate(frames) for b in frames[i + 1 :] if a.overlaps(b)]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_same_result_same_file(tmp_path, suffix):
    found = CASES["theory"]()
    for name in ("a", "b"):
        save_figure(drawing.plot_recovery(found), tmp_path / (name + suffix), dpi=40)
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def on_sphere(axes, colour):
    """Points (x, y, z) on the near side drawn at these places: inverts the view from 18 degrees above the equator."""
    x, up = next(
        line.get_data()
        for line in axes.lines
        if line.get_color() == colour and line.get_marker() == "." and line.get_alpha() > 0.5
    )
    toward, upward = (
        np.array([-np.cos(np.radians(18)), np.sin(np.radians(18))]),
        np.array([np.sin(np.radians(18)), np.cos(np.radians(18))]),
    )
    depth = np.sqrt(np.maximum(0.0, 1 - x**2 - up**2))
    y_z = up[:, None] * upward + depth[:, None] * toward
    return np.column_stack([x, y_z])


def test_positives_stay_in_the_support_of_their_anchor():
    for name, inside in (
        ("theory", lambda anchor, drawn: np.abs(drawn[:, 2] - anchor[2]).max() < 1e-9),
        ("cap", lambda anchor, drawn: (drawn @ anchor).min() >= np.cos(np.radians(60)) - 1e-9),
    ):
        axes = drawing.plot_recovery(CASES[name]()).axes[0]
        for anchor, colour in zip(drawing.ANCHORS[3], drawing.COLOURS, strict=True):
            drawn = on_sphere(axes, colour)
            assert drawn.shape[0] > 20
            assert inside(np.array(anchor) / np.linalg.norm(anchor), drawn)
    full = on_sphere(drawing.plot_recovery(CASES["full"]()).axes[0], drawing.COLOURS[0])
    assert np.ptp(full[:, 2]) > 0.5


def test_losses_are_those_above_the_optimum():
    """True latents against the definition of the loss, the others against the sampling program of the points."""
    found = CASES["theory"]()
    z = found.optimum.point_set.points
    gram = z @ z.T
    height = np.round(z[:, 2], 9)
    same = height[:, None] == height[None]
    # theory: the weights are exp(kappa z.z') within the slice
    rows = np.where(same, np.exp(gram / TAU), 0.0)
    rows /= rows.sum(axis=1)[:, None]

    def loss(cosines, masses):
        return np.mean(np.log((masses * np.exp(cosines / TAU)).sum(axis=1)) - (rows * cosines).sum(axis=1) / TAU)

    bars = {
        drawing.ladder(found)[k][0].replace("\n", " "): patch.get_width()
        for k, patch in enumerate(drawing.plot_recovery(found).axes[1].patches)
    }
    assert bars["true latents"] == pytest.approx(loss(gram, 1.0) - loss(found.optimum.cosines, 1.0), abs=1e-9)
    assert 0 < bars["best found into 3 dimensions"] < bars["true latents"]
    assert bars["optimum into any dimension"] == 0
    assert loss(gram, 8.0 * same) == pytest.approx(found.corrected.loss, abs=1e-9)
    assert bars["true latents, corrected (rho 1)"] == 0 == bars["optimum of the corrected loss"]
    texts = " ".join(text.get_text().replace("\n", " ") for text in drawing.plot_recovery(found).axes[1].texts)
    assert f"loss {loss(gram, 1.0):.3f}" in texts and f"loss {loss(found.optimum.cosines, 1.0):.3f}" in texts


def test_nothing_to_correct_is_not_drawn():
    for name in ("full", "one dimension"):
        assert len(drawing.plot_recovery(CASES[name]()).axes[1].patches) == 3
    title = drawing.plot_recovery(CASES["full"]()).axes[1].get_title("left")
    assert title == "No map beats the true latents"


def test_cosines_of_all_pairs_of_points():
    found = CASES["theory"]()
    axes = drawing.plot_recovery(found).axes[2]
    z, n = found.optimum.point_set.points, found.optimum.point_set.n
    upper = np.triu_indices(n, 1)
    same = np.abs(z[upper[0], 2] - z[upper[1], 2]) < 1e-9
    for label, chosen in (("same slice", same), ("different slices", ~same)):
        line = next(line for line in axes.lines if line.get_label() == label)
        expected = np.sort((z @ z.T)[upper][chosen])
        np.testing.assert_allclose(np.sort(line.get_xdata()), expected, atol=1e-12)
        np.testing.assert_allclose(np.sort(line.get_ydata()), np.sort(found.optimum.cosines[upper][chosen]), atol=1e-12)
    assert "99 dimensions" not in axes.get_title("left") and f"in {found.optimum.rank} dimensions" in axes.get_title(
        "left"
    ).replace("\n", " ")
    full = drawing.plot_recovery(CASES["full"]()).axes[2].lines[1]
    np.testing.assert_allclose(full.get_xdata(), full.get_ydata(), atol=1e-8)


def test_many_points_are_thinned():
    latent, optimal, positive = drawing.angle_pairs(
        og.recover(latent_dim=3, fixed=1, slices=30, per_slice=8, temperature=0.3)
    )
    assert latent.size == optimal.size == positive.size <= drawing.MOST_PAIRS and 0 < positive.sum() == 30 * 28


def test_changes_of_pairs_and_the_threshold():
    law = Slice(5, 6.0, (4,))
    rng = np.random.default_rng(0)
    z, z_plus = law.sample_pairs(rng, 400)
    axes = drawing.plot_recovery(CASES["pairs"]()).axes[0]
    heights = np.array([patch.get_height() for patch in axes.patches])
    second = (z_plus - z).T @ (z_plus - z) / 400
    np.testing.assert_allclose(heights, np.sqrt(np.maximum(0.0, np.linalg.eigvalsh(second))), atol=1e-7)
    levels = {line.get_label(): line.get_ydata()[0] for line in axes.lines if not line.get_label().startswith("_")}
    assert levels["threshold of fixed: 0.02"] == 0.02
    independent = np.sqrt(2 / 5)  # E (z+ - z)^2 of one coordinate of two independent unit vectors
    assert levels["if positives did not depend on anchors"] == pytest.approx(independent)
    colours = [patch.get_facecolor() for patch in axes.patches]
    assert colours[0] != colours[1] == colours[4]


def test_the_stillest_of_many_directions():
    axes = drawing.plot_recovery(CASES["hundred"]()).axes[0]
    assert len(axes.patches) == drawing.MOST_BARS and "40 of 100" in axes.get_xlabel()
    assert sum(patch.get_height() == 0 for patch in axes.patches) == 3
