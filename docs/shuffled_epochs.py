r"""SupCon over shuffled epochs beside i.i.d. batches, exactly: the figures of losses-in-torch.md.

    python docs/shuffled_epochs.py            every row, some minutes
    python docs/shuffled_epochs.py digits     one of them

The theory draws the classes of a batch i.i.d. with the proportions. A loader that shuffles draws N images without
replacement: seen from an anchor of class i the other N - 1 are hypergeometric, with n_i - 1 images left in its own
class. For Y = a + V sum_j r_j x_ij,

    E log Y = log M + int ( exp(-M s) - exp(-a s) phi(s) ) ds/s,      M = E Y,      phi(s) = E exp(-s V sum_j r_j x_ij),

and phi is the coefficient of w^(N-1) in prod_j (1 - p + p w exp(-s V x_ij))^m_j over the same at s = 0: a mean over the
unit circle.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import torch

import optgeom as og

ROWS: dict[str, tuple[og.ClassDistribution, int]] = {
    "digits": (og.ClassDistribution.from_counts([174, 87, 29]), 64),
    "cifar10-lt:100": (og.ClassDistribution.from_profile("cifar10-lt:100"), 256),
    "cifar10-lt:100, N = 1024": (og.ClassDistribution.from_profile("cifar10-lt:100"), 1024),
    "cifar100-lt:100": (og.ClassDistribution.from_profile("cifar100-lt:100"), 256),
}
VIEWS = 2
LARGEST_SEARCH = 2560  # classes times batch size up to which the optimum is sought too


def shuffled_risk(gram: torch.Tensor, counts: Sequence[int], size: int, temperature: float) -> torch.Tensor:
    """Expected SupCon loss at the class means, of batches of `size` images, two views each, without replacement."""
    numbers = torch.as_tensor(counts, dtype=torch.float64)
    x = torch.exp((gram - 1) / temperature)
    terms = [
        _anchor(x[i], numbers - torch.eye(len(counts), dtype=torch.float64)[i], size - 1) for i in range(len(counts))
    ]
    return (numbers / numbers.sum() * torch.stack(terms)).sum()


def _anchor(x: torch.Tensor, left: torch.Tensor, others: int) -> torch.Tensor:
    """E log Y for one anchor, with `left` images of each class to draw `others` from."""
    share = others / left.sum()
    mean = (VIEWS - 1) + VIEWS * share * (left * x).sum()
    # The integrand is of order s^2 below 1/M, and exp(-a s) above 1/a.
    v = torch.arange(math.log(3e-9 / mean.item()), math.log(45 / (VIEWS - 1)), 0.25, dtype=torch.float64)
    s = torch.exp(v)
    # The number drawn in all has a spread of sqrt(N): what lies this many points away, and is taken for N - 1, has no
    # weight.
    points = 2 * others + 64
    circle = torch.exp(2j * math.pi * torch.arange(points, dtype=torch.float64) / points)
    decay = torch.exp(-s[:, None] * VIEWS * x)[:, None, :]
    logs = (left * torch.log(1 - share + share * circle[None, :, None] * decay)).sum(dim=2)
    phi = (torch.exp(logs) * circle[None, :] ** -others).real.mean(dim=1)
    start = left.sum() * math.log1p(-float(share))  # the chance of `others` in all, from its own logarithm
    n, k = float(left.sum()), float(others)
    chance = (
        start
        + math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(float(share / (1 - share)))
    )
    phi = phi / torch.exp(chance)
    return torch.log(mean) + 0.25 * (torch.exp(-mean * s) - torch.exp(-(VIEWS - 1) * s) * phi).sum()


def best_of_shuffled(start: np.ndarray, counts: Sequence[int], size: int, temperature: float) -> torch.Tensor:
    """Gram matrix of the optimum over shuffled epochs."""
    rows = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [rows], max_iter=200, tolerance_grad=1e-11, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        search.zero_grad()
        unit = torch.nn.functional.normalize(rows, dim=1)
        value = shuffled_risk(unit @ unit.T, counts, size, temperature)
        value.backward()
        return value

    search.step(closure)
    unit = torch.nn.functional.normalize(rows.detach(), dim=1)
    return unit @ unit.T


def largest_move(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference of an angle, in degrees."""
    angles = [torch.rad2deg(torch.arccos(gram.clamp(-1, 1).fill_diagonal_(1.0))) for gram in (one, other)]
    return float((angles[0] - angles[1]).abs().max())


def lines(names: Sequence[str]) -> Iterator[str]:
    yield (
        "| classes | images | batch | T | loss, i.i.d. | shuffled minus i.i.d. | "
        "angles of the optimum move by at most |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in names:
        classes, size = ROWS[name]
        counts = [int(number) for number in classes.counts]
        for temperature in (0.5, 0.1):
            geometry = og.solve(classes, og.SupCon(temperature, size, VIEWS))
            gram = torch.as_tensor(np.array(geometry.gram))
            away = float(shuffled_risk(gram, counts, size, temperature)) - geometry.risk
            moved = "-"
            if len(counts) * size <= LARGEST_SEARCH:
                best = best_of_shuffled(np.array(geometry.prototypes()), counts, size, temperature)
                moved = f"{largest_move(best, gram):.2f} degrees"
            what = name.split(",")[0]
            yield f"| {what} | {sum(counts)} | {size} | {temperature} | {geometry.risk:.5f} | {away:+.5f} | {moved} |"


if __name__ == "__main__":
    for line in lines(sys.argv[1:] or list(ROWS)):
        print(line, flush=True)
