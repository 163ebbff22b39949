"""Every batch of a small size with its probability, and features at class means, for exact expectations."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch

LAM = np.array([0.6, 0.3, 0.1])


def compositions(size: int, lam: np.ndarray = LAM) -> Iterator[tuple[torch.Tensor, float]]:
    """(labels of `size` images, probability of these class counts) for i.i.d. classes."""
    for counts in _counts(size, len(lam)):
        ways = math.factorial(size) / math.prod(math.factorial(number) for number in counts)
        chance = ways * math.prod(p**number for p, number in zip(lam, counts, strict=True))
        yield torch.arange(len(lam)).repeat_interleave(torch.tensor(counts)), chance


def _counts(size: int, classes: int) -> Iterator[tuple[int, ...]]:
    if classes == 1:
        yield (size,)
        return
    for first in range(size + 1):
        for rest in _counts(size - first, classes - 1):
            yield (first, *rest)


def class_means(seed: int, classes: int = 3) -> torch.Tensor:
    """(C, C) unit rows with a random Gram matrix."""
    rows = torch.randn(classes, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=1)


def gram(means: torch.Tensor) -> np.ndarray:
    found = (means @ means.T).numpy()
    np.fill_diagonal(found, 1.0)
    return found


def views_of(rows: torch.Tensor, views: int) -> torch.Tensor:
    """(N, V, d): every image's row, V times."""
    return rows[:, None].expand(-1, views, -1)
