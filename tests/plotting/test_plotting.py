"""Pictures have the right panels and numbers, at any number of classes and size, without warnings or global state."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

import optgeom as og
from optgeom import errors, formatting, wording
from optgeom.plotting import figures, plot_angles, plot_geometry, plot_gram, plot_prototypes, plot_spectrum, save_figure

matplotlib = pytest.importorskip("matplotlib")

FULL = og.InfoNCE(1.0, math.inf, 0.0, "mean", "scl")
CLASSES = og.ClassDistribution


def solved(counts, loss=None, names=None):
    return og.solve(CLASSES.from_counts(counts, names), loss or og.SupCon(0.1))


def profile(name, loss=None):
    return og.solve(CLASSES.from_profile(name), loss or og.SupCon(0.1))


def titles(figure):
    return [axes.get_title("left") or axes.get_title() for axes in figure.axes]


GEOMETRIES = {
    "two": lambda: solved([900, 100]),
    "three": lambda: solved([900, 300, 50]),
    "three collapsed": lambda: solved([950, 20, 20], og.SupCon(1.0)),
    "three balanced": lambda: solved([5, 5, 5]),
    "four on a sphere": lambda: solved(
        [9000, 300, 50, 20], og.SupCon(0.5), ["a very long class name, indeed", "$5 bill", "x\ny", ""]
    ),
    "ten": lambda: profile("cifar10-lt:100"),
    "partial collapse": lambda: profile("zipf:20:2", FULL),
    "hundred": lambda: profile("cifar100-lt:100"),
    "places": lambda: profile("places-lt", og.SupCon(0.1, 256)),
    "limited": lambda: og.solve(CLASSES.from_profile("exp:6:5"), og.SupCon(0.1), dim=3),
    "groups": lambda: og.solve(CLASSES.from_groups([1000, 100, 1], [10, 100, 5900]), og.SupCon(0.1)),
    "one group": lambda: og.solve(CLASSES.from_groups([7], [6000]), og.SupCon(0.1)),
}


@pytest.mark.parametrize("size", [None, (6.4, 4.0), (4.0, 8.0)])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_draws_without_warnings(name, size, tmp_path):
    geometry = GEOMETRIES[name]()
    figure = plot_geometry(geometry, size=size)
    save_figure(figure, tmp_path / "p.png", dpi=40)
    drawn = [axes for axes in figure.axes if axes.name != "3d"]
    for axes in drawn:
        assert axes.get_title("left") or axes.get_title(), "an axes without a title"
        assert axes.has_data()
    expected = 4 if geometry.num_classes <= 4 and size is None else 3
    assert len(figure.axes) == expected
    text = figure.get_suptitle().replace("\n", " ").lower()
    assert wording.describe_regime(geometry).replace("$", r"\$").lower() in text
    assert ("not certified" if geometry.bracket else "certified") in text


def texts_overlap(figure, axes):
    """Pairs of tick labels of one axis that lie on each other."""
    figure.draw_without_rendering()
    found = []
    for axis in (axes.xaxis, axes.yaxis):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels() if label.get_text()]
        found += [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    return found


@pytest.mark.parametrize("name", GEOMETRIES)
def test_labels_do_not_overlap_nor_leave_the_figure(name):
    figure = plot_geometry(GEOMETRIES[name]())
    figure.draw_without_rendering()
    for axes in figure.axes:
        if axes.name == "3d":
            continue
        assert not texts_overlap(figure, axes)
        box = axes.get_tightbbox()
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.width + 1 and box.y1 <= figure.bbox.height + 1
        legend, label = axes.get_legend(), axes.xaxis.label
        if legend is not None:
            assert not legend.get_window_extent().overlaps(axes.get_window_extent()), "the legend lies over data"
            assert not legend.get_window_extent().overlaps(label.get_window_extent())


def test_heat_map_is_ordered_by_frequency():
    geometry = solved([50, 900, 300], names=["rare", "often", "some"])
    axes = plot_gram(geometry)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["often", "some", "rare"]
    shown = axes.images[0].get_array()
    reference = wording.simplex_angle_deg(3)
    assert reference == pytest.approx(120)
    assert shown[0, 2] == pytest.approx(math.degrees(math.acos(geometry.gram[1, 0])) - 120, abs=1e-9)
    assert shown.mask.diagonal().all()
    low, high = axes.images[0].get_clim()
    assert low == -high == pytest.approx(-np.abs(shown).max())
    assert f"{reference:.2f}" in axes.child_axes[0].get_ylabel()


def test_heat_map_of_a_collapse_has_the_full_range():
    axes = plot_gram(solved([950, 20, 20], og.SupCon(1.0)))
    assert axes.images[0].get_clim() == (-1, 1)
    assert np.asarray(axes.images[0].get_array())[0, 1:] == pytest.approx([-1, -1])
    assert "cosine" in axes.child_axes[0].get_ylabel()


def test_red_is_closer_in_both_heat_maps():
    for geometry in (solved([900, 300, 50]), solved([950, 20, 20], og.SupCon(1.0))):
        image = plot_gram(geometry).images[0]
        red, _, blue, _ = image.cmap(image.norm(image.get_array()[1, 2]))  # the two rarest are the closest
        assert red > blue


def test_equal_angles_have_no_colour_bar():
    axes = plot_gram(solved([5, 5, 5]))
    assert not axes.child_axes and axes.get_title("center") == "All pairs at 120.00°, the balanced simplex"


def test_numbers_in_the_cells_of_few_classes():
    geometry = solved([900, 300, 50])
    figure = plot_geometry(geometry)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts.count(f"{geometry.angles()[1, 2]:.1f}°") == 2 and len(texts) == 6
    assert not plot_geometry(profile("cifar10-lt:100")).axes[0].texts


def test_names_only_where_they_can_be_read():
    assert len(plot_gram(profile("zipf:20:1")).get_yticklabels()) == 20
    figure = plot_geometry(profile("zipf:21:1"))
    assert figure.axes[0].get_xlabel() == "classes, most frequent first"


def test_groups_stand_for_classes_and_the_matrix_is_never_built(monkeypatch):
    def refuse(self):
        raise AssertionError("the C x C matrix was built")

    geometry = GEOMETRIES["groups"]()
    monkeypatch.setattr(og.Geometry, "gram", property(refuse))
    figure = plot_geometry(geometry)
    assert figure.axes[0].images[0].get_array().shape == (3, 3)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["10 × 1000", "100 × 100", "5900 × 1"]


def test_more_groups_than_pixels_are_thinned_out(monkeypatch):
    from optgeom.plotting import geometry as drawing

    monkeypatch.setattr(drawing, "MOST_CELLS", 8)
    geometry = solved(list(range(1, 21)))
    image = plot_gram(geometry).images[0].get_array()
    assert image.shape == (7, 7)
    assert image[0, 1] == pytest.approx(geometry.angles()[19, 16] - wording.simplex_angle_deg(20), abs=1e-9)


def test_angles_against_counts():
    geometry = solved([50, 900, 300, 50], og.SupCon(0.5))
    lines = {line.get_label(): line for line in plot_angles(geometry).lines}
    others = geometry.angles()[~np.eye(4, dtype=bool)].reshape(4, 3)
    for name, expected in (
        ("smallest", others.min(1)),
        ("largest", others.max(1)),
        ("median", np.median(others, axis=1)),
    ):
        assert lines[name].get_xdata().tolist() == [900, 300, 50]
        assert lines[name].get_ydata() == pytest.approx(expected[[1, 2, 0]], abs=1e-9)
    assert lines["simplex 109.47°"].get_ydata()[0] == pytest.approx(math.degrees(math.acos(-1 / 3)))


def test_angles_of_proportions():
    axes = plot_angles(og.solve(CLASSES.from_proportions([0.5, 0.3, 0.2]), og.SupCon(0.1)))
    assert axes.get_xlabel() == "proportion of the class" and axes.get_xscale() == "log"


def test_spectrum_marks_the_rank():
    geometry = profile("zipf:20:2", FULL)
    axes = plot_spectrum(geometry)
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["eigenvalue"].get_ydata() == pytest.approx(np.sort(np.linalg.eigvalsh(geometry.gram))[::-1][:2])
    assert lines["zero"].get_xdata().tolist() == list(range(3, 21))
    assert lines["rank"].get_xdata()[0] == 2.5 and axes.get_yscale() == "log"
    assert plot_spectrum(profile("cifar10-lt:100")).get_yscale() == "linear"


@pytest.mark.parametrize("name", ["two", "three", "three collapsed", "three balanced", "four on a sphere"])
def test_prototypes_are_an_orthogonal_image(name):
    from optgeom.plotting import prototypes
    from optgeom.prototypes import from_gram

    geometry = GEOMETRIES[name]()
    vectors = prototypes._oriented(from_gram(geometry.gram, max(geometry.rank, 2)), geometry.classes.frequency_order())
    assert vectors @ vectors.T == pytest.approx(geometry.gram, abs=1e-7)
    first, second = geometry.classes.frequency_order()[:2]
    assert vectors[first][-1] == pytest.approx(1) and vectors[second][0] > -1e-6
    assert plot_prototypes(geometry).name == ("3d" if geometry.rank == 3 else "rectilinear")


def test_coincident_prototypes_share_a_label():
    texts = [text.get_text() for text in plot_prototypes(solved([950, 20, 20], og.SupCon(1.0))).texts]
    assert [text for text in texts if text] == ["0", "1\n2"]


def test_prototypes_that_cannot_be_drawn():
    with pytest.raises(errors.InvalidInputError, match=r"up to 4 classes of rank up to 3; got 10 classes of rank 9"):
        plot_prototypes(profile("cifar10-lt:100"))
    with pytest.raises(errors.InvalidInputError, match=r"`axes` must be three-dimensional for rank 3"):
        plot_prototypes(GEOMETRIES["four on a sphere"](), axes=figures.new_axes())


def test_saved_files_are_the_same_every_time(tmp_path):
    geometry = solved([9, 3, 1])
    for suffix in (".png", ".svg", ".pdf"):
        first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
        save_figure(plot_geometry(geometry), first)
        save_figure(plot_geometry(geometry), second)
        assert first.read_bytes() == second.read_bytes()
    with pytest.raises(errors.InvalidInputError, match=r"a picture is saved as \.png, \.svg, \.pdf; got 'p\.jpg'"):
        save_figure(plot_geometry(geometry), "p.jpg")


def test_no_open_figures_and_no_lasting_settings():
    from matplotlib import _pylab_helpers

    before = dict(matplotlib.rcParams)
    plot_geometry(solved([9, 3, 1]))
    assert dict(matplotlib.rcParams) == before
    assert _pylab_helpers.Gcf.get_num_fig_managers() == 0


def test_without_matplotlib(monkeypatch):
    geometry = solved([9, 3])
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (plot_geometry, plot_gram, plot_angles, plot_spectrum, plot_prototypes):
        with pytest.raises(
            errors.MissingDependencyError, match=r"^drawing needs matplotlib: pip install 'optgeom\[plot\]'$"
        ):
            draw(geometry)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (50, 5000, [50, 100, 200, 500, 1000, 2000, 5000]),
        (1, 2000, [1, 3, 10, 30, 100, 300, 1000]),
        (1e-9, 1, None),
        (6, 7, []),
        (90, 110, [100]),
    ],
)
def test_round_ticks(low, high, ticks):
    found = figures.nice_ticks(low, high, most=7)
    assert len(found) <= 7 and all(low <= tick <= high for tick in found)
    if ticks is not None:
        assert found == pytest.approx(ticks)


def test_text_of_ticks():
    assert [figures.tick_text(value) for value in (0.001, 20, 5000, 1e5, 3e-7)] == [
        "0.001",
        "20",
        "5000",
        "$10^{5}$",
        r"$3\cdot 10^{-7}$",
    ]


def test_names_are_cut_in_the_middle():
    assert formatting.short("a b", 5) == "a b" and formatting.short("") == "(no name)"
    assert formatting.short("abcdefghij", 8) == "abc..hij" and formatting.short(" two\n lines ") == "two lines"


def test_losses_in_words():
    described = og.SupCon(0.1, 64, 1, "skip").to_dict()
    assert og.Loss.from_dict(described).words().endswith("one view each, anchors without a positive left out")
    described = og.InfoNCE(0.1, math.inf, negatives_reduction="mean", negative_law=np.full((2, 2), 0.5)).to_dict()
    assert "infinitely many negatives from an explicit law (averaged)" in og.Loss.from_dict(described).words()
    described = {"name": "triplet", "psi": "Hinge", "temperature": 0.5, "negatives": 1, "sampling": "ucl"}
    assert og.Loss.from_dict(described).words() == "triplet, psi = Hinge, temperature 0.5, 1 negative from all classes"
