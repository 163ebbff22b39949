"""The picture of choose-temperature-and-batch.md: what temperature and sampler do to the closest two classes.

python docs/temperature_and_sampler.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import optgeom as og
from optgeom.plotting import save_figure

PICTURE = Path(__file__).resolve().parent / "images" / "temperature-and-sampler.png"
FACTORS = (10, 100, 1000)
TEMPERATURES = np.geomspace(0.03, 3, 41)
POWERS = np.linspace(0, 1, 21)
COLOURS = ("#0173b2", "#de8f05", "#029e73")


def smallest_angle(factor: int, temperature: float, power: float = 1.0) -> float:
    """Certified smallest angle of CIFAR-10-LT, SupCon with batches of 256 images."""
    classes = og.ClassDistribution.from_profile(f"cifar10-lt:{factor}").resample(power)
    return og.solve(classes, og.SupCon(temperature, batch_size=256, views=2)).min_angle_deg


def draw() -> Figure:
    """Two panels: angle against temperature, and against the power of the sampler."""
    simplex = float(np.degrees(np.arccos(-1 / 9)))
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
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
    for axes in (left, right):
        axes.axhline(simplex, color="#888888", linestyle="--", linewidth=1)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    left.set(xscale="log", xlabel="temperature", ylabel="smallest angle (degrees)")
    left.set_title("Instance sampling", loc="left")
    left.set_xticks([0.03, 0.1, 0.3, 1, 3], ["0.03", "0.1", "0.3", "1", "3"])
    left.minorticks_off()
    left.annotate(
        "balanced classes", (3, simplex), (0, 4), textcoords="offset points", ha="right", color="#666666", fontsize=9
    )
    right.set(xlabel="power q of the sampler: 0 balanced, 1 instance")
    right.set_title("Imbalance 100", loc="left")
    return figure


if __name__ == "__main__":
    save_figure(draw(), PICTURE)
