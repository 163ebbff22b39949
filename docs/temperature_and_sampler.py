"""The picture and the table of choose-temperature-and-batch.md: what temperature, batch and sampler do to angles.

python docs/temperature_and_sampler.py            the picture, a few minutes
python docs/temperature_and_sampler.py --table    the table of both data sets, a few minutes
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import optgeom as og
from optgeom.plotting import save_figure

PICTURE = Path(__file__).resolve().parent / "images" / "temperature-and-sampler.png"
FACTORS = (10, 100, 1000)
TEMPERATURES = np.geomspace(0.03, 3, 41)
POWERS = np.linspace(0, 1, 21)
HUNDRED = np.geomspace(0.03, 3, 25)
BATCHES = (32, 512, 4096)
ROWS = (0.1, 0.2, 0.3, 0.5)
PROFILES = {"CIFAR-10-LT": "cifar10-lt:100", "CIFAR-100-LT": "cifar100-lt:100"}
COLOURS = ("#0173b2", "#de8f05", "#029e73")


def smallest_angle(factor: int, temperature: float, power: float = 1.0) -> float:
    """Certified smallest angle of CIFAR-10-LT, SupCon with batches of 256 images."""
    classes = og.ClassDistribution.from_profile(f"cifar10-lt:{factor}").resample(power)
    return og.solve(classes, og.SupCon(temperature, batch_size=256, views=2)).min_angle_deg


def angle_of_hundred(temperature: float, images: int) -> float:
    """The same of CIFAR-100-LT with imbalance 100 and batches of so many images."""
    classes = og.ClassDistribution.from_profile("cifar100-lt:100")
    return og.solve(classes, og.SupCon(temperature, batch_size=images, views=2)).min_angle_deg


def rows(names: tuple[str, ...] = tuple(PROFILES)) -> Iterator[str]:
    """Rows of the table: angles at three batch sizes, then slack and rates at 512 images."""
    for name in names:
        classes = og.ClassDistribution.from_profile(PROFILES[name])
        for temperature in ROWS:
            found = [og.solve(classes, og.SupCon(temperature, batch_size=images, views=2)) for images in BATCHES]
            angles = " | ".join(f"{geometry.min_angle_deg:.2f}" for geometry in found)
            slack = og.slack_needed(found[1]).smallest.whole
            rates = [og.relaxation(found[1], kernel=kernel).slowest for kernel in ("network", "free")]
            yield f"| {name} | {temperature} | {angles} | {100 * slack:.1e} % | {rates[0]:.1e} | {rates[1]:.1e} |"


def draw() -> Figure:
    """Three panels: angle against temperature for ten and a hundred classes, and against the power of the sampler."""
    simplex = float(np.degrees(np.arccos(-1 / 9)))
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True)
    for images, colour in zip(BATCHES, COLOURS, strict=True):
        middle.plot(HUNDRED, [angle_of_hundred(one, images) for one in HUNDRED], color=colour, label=f"{images} images")
    middle.legend(frameon=False, fontsize=9, loc="lower right")
    middle.set_title("CIFAR-100-LT, imbalance 100", loc="left")
    for factor, colour in zip(FACTORS, COLOURS, strict=True):
        angles = [smallest_angle(factor, temperature) for temperature in TEMPERATURES]
        left.plot(TEMPERATURES, angles, color=colour)
        left.annotate(
            f"imbalance {factor}",
            (TEMPERATURES[20], angles[20]),
            (0, 5),
            textcoords="offset points",
            color=colour,
            fontsize=9,
        )
    for temperature, colour, offset in ((0.1, "#777777", (4, 5)), (0.5, "#000000", (-4, -12))):
        angles = [smallest_angle(100, temperature, power) for power in POWERS]
        right.plot(POWERS, angles, color=colour)
        side = "left" if offset[0] > 0 else "right"
        place = (POWERS[10], angles[10])
        right.annotate(
            f"temperature {temperature}", place, offset, textcoords="offset points", ha=side, color=colour, fontsize=9
        )
    middle.axhline(float(np.degrees(np.arccos(-1 / 99))), color="#888888", linestyle="--", linewidth=1)
    for axes in (left, right):
        axes.axhline(simplex, color="#888888", linestyle="--", linewidth=1)
    for axes in (left, middle, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (left, middle):
        axes.set(xscale="log", xlabel="temperature")
        axes.set_xticks([0.03, 0.1, 0.3, 1, 3], ["0.03", "0.1", "0.3", "1", "3"])
        axes.minorticks_off()
    left.set_ylabel("smallest angle (degrees)")
    left.set_title("CIFAR-10-LT, batches of 256", loc="left")
    left.annotate(
        "balanced classes", (3, simplex), (0, 4), textcoords="offset points", ha="right", color="#666666", fontsize=9
    )
    right.set(xlabel="power q of the sampler: 0 balanced, 1 instance")
    right.set_title("CIFAR-10-LT, imbalance 100", loc="left")
    return figure


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(*rows(), sep="\n")
    else:
        save_figure(draw(), PICTURE)
