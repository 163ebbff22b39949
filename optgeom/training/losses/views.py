"""Losses whose positives are the other views of the same image: shared parts."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def positive_similarities(views: Tensor, temperature: float) -> Tensor:
    """(N V, V - 1) similarities z.z' / T of every view with the other views of its image, from unit rows (N, V, d)."""
    others = [(views * views.roll(shift, dims=1)).sum(dim=2) for shift in range(1, views.shape[1])]
    return torch.stack(others, dim=2).flatten(0, 1) / temperature


def log_ratio(log_sum: Tensor, positives: Tensor, alpha: float) -> Tensor:
    """(A,) mean over the positives p of log( alpha + exp(l - s_p) ).

    An l of -inf leaves log alpha, and -inf where alpha is 0.
    """
    if alpha == 0:
        return log_sum - positives.mean(dim=1)
    return torch.logaddexp(log_sum[:, None] - positives, positives.new_full((), math.log(alpha))).mean(dim=1)
