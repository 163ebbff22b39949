r"""Why are my tail classes merged? Trained examples of the three causes: the runs of why-are-my-tail-classes-merged.md.

    python docs/merged_tails.py             one seed of every run, about a minute on an idle core
    python docs/merged_tails.py 3           seeds 0, 1 and 2
    python docs/merged_tails.py --picture   the picture of the page

Protocol, fixed before the first run:

* Ten classes of 64 numbers, template + noise of standard deviation .3 per number, drawn afresh for every batch, so that
  nothing can be learnt by heart. Templates are standard normal; of classes 7, 8 and 9, the rare look-alikes, one common
  template plus half of their own.
* Batches of 200, 120, 72, 43, 26, 15, 9, 6, 3, 2 images, one view; SupCon of these fixed numbers. An MLP with two
  hidden layers of 128, 16 dimensions; Adam, rate 1e-3, constant, 1500 steps.
* Runs: `plain` at T = .5; `majority` at T = 1 with batches of 460, 6, 5, 5, 4, 4, 4, 3, 3, 2; and each remedy alone
  from the same start as `plain`: `balanced first` (50 images of every class for the first 300 steps), `cooler` at
  T = .2, `longer` with 4500 steps. `overlap` is `cooler`, but half of the images of class 9 show class 8.
* Judged on fresh images, 25 times as many of each class as in a batch, against the optimum of the run's temperature:
  verdict of `validate`, dimensions, largest angle error, share of confused images of classes 8 and 9. Every run of
  every seed is printed.

Added after these runs, of which `plain` had left the saddle by itself in two of three, and fixed before its own first
run: `plain`, `balanced first` (150 steps) and `cooler` in half as many steps.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

import optgeom as og
from optgeom.plotting import plot_saddles, save_figure
from optgeom.training.losses import SupConLoss
from optgeom.training.networks import MLP

TAIL = (200, 120, 72, 43, 26, 15, 9, 6, 3, 2)
BALANCED = (50,) * 10
INPUTS, DIM, NOISE, SHOWN = 64, 16, 0.3, 25
PICTURE = Path(__file__).resolve().parent / "images" / "saddles.png"


class Run(NamedTuple):
    """One way to train."""

    temperature: float
    steps: int = 1500
    balanced: int = 0
    mixed: bool = False
    counts: tuple[int, ...] = TAIL


RUNS = {
    "plain": Run(0.5),
    "majority": Run(1.0, counts=(460, 6, 5, 5, 4, 4, 4, 3, 3, 2)),
    "balanced first": Run(0.5, balanced=300),
    "cooler": Run(0.2),
    "longer": Run(0.5, steps=4500),
    "overlap": Run(0.2, mixed=True),
    "plain 750": Run(0.5, steps=750),
    "balanced first 750": Run(0.5, steps=750, balanced=150),
    "cooler 750": Run(0.2, steps=750),
}


class Images:
    """Images of ten classes, drawn afresh."""

    def __init__(self, seed: int, *, mixed: bool) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.templates = torch.randn(10, INPUTS, generator=self.generator)
        self.templates[7:] = self.templates[6].roll(1) + 0.5 * self.templates[7:]
        self.mixed = mixed

    def draw(self, counts: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, 64) images and (N,) labels."""
        labels = torch.arange(10).repeat_interleave(torch.tensor(counts))
        shows = labels
        if self.mixed:
            other = (labels == 9) & (torch.rand(len(labels), generator=self.generator) < 0.5)
            shows = torch.where(other, 8, labels)
        return self.templates[shows] + NOISE * torch.randn(len(labels), INPUTS, generator=self.generator), labels


def train(run: Run, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of fresh images after training."""
    torch.manual_seed(seed)
    images, net = Images(seed, mixed=run.mixed), MLP(INPUTS, DIM, width=128)
    loss, optimizer = SupConLoss(run.temperature), torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(run.steps):
        rows, labels = images.draw(BALANCED if step < run.balanced else run.counts)
        optimizer.zero_grad()
        loss(net(rows), labels).backward()
        optimizer.step()
    rows, labels = images.draw(tuple(SHOWN * count for count in run.counts))
    with torch.no_grad():
        return net(rows).numpy(), labels.numpy()


def judge(name: str, seed: int) -> str:
    """One line on one run."""
    run = RUNS[name]
    geometry = og.solve(og.ClassDistribution.from_counts(run.counts), og.SupConFullBatch(temperature=run.temperature))
    found = og.validate(*train(run, seed), geometry)
    pair = next(pair for pair in found.as_dict()["pairs"] if {pair["first"], pair["second"]} == {"8", "9"})
    saddle = found.saddle
    spanned = f"{saddle.rank} of {saddle.optimal_rank} dimensions" if saddle else ""
    return (
        f"{name:18}  seed {seed}  {found.verdict:12} {spanned:17}  angle of 8 and 9 {pair['angle_deg']:5.1f} "
        f"(optimal {pair['optimal_deg']:.1f}), confused {100 * pair['confusion']:.1f} %"
    )


def draw() -> Figure:
    """Escape rates of the long tail, of a network and of free features."""
    classes = og.ClassDistribution.from_counts(TAIL)
    found = [og.saddles(classes, og.SupConFullBatch(temperature=one)) for one in (0.1, 0.2, 0.3, 0.5, 1.0)]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    network, free = figure.subplots(1, 2)
    plot_saddles(found, axes=network).set_title("A network")
    plot_saddles(found, kernel="free", axes=free).set_title("Free features")
    for axes in (network, free):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    """Print every run, or draw the picture."""
    if sys.argv[1:] == ["--picture"]:
        save_figure(draw(), PICTURE)
        return
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 1):
        for name in RUNS:
            print(judge(name, seed), flush=True)


if __name__ == "__main__":
    main()
