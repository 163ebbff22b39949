"""Negatives drawn from the batch."""

from __future__ import annotations

import torch
from torch import Tensor

ENTRIES = 1 << 20  # random numbers held at once


def draw_others(samples: int, k: int, codes: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(N, k) images drawn for each of N images, and (N,) how many there are to draw from.

    Without replacement, from all other images, or from those of another class where codes are given. In batches with
    i.i.d. classes the classes of the negatives of an anchor are then i.i.d. too, exactly as in `optgeom.InfoNCE`; drawn
    with replacement they would not be, as the same image could come twice. Where fewer than k images are of another
    class, they are repeated in turn.
    """
    device = generator.device
    images = torch.arange(samples, device=device)
    chosen, available = [], []
    step = max(1, ENTRIES // samples)
    for begin in range(0, samples, step):
        mine = images[begin : begin + step]
        keys = torch.rand((mine.shape[0], samples), generator=generator, device=device)
        barred = mine[:, None] == images[None, :] if codes is None else codes[mine][:, None] == codes[None, :]
        found = samples - barred.sum(dim=1)
        order = keys.masked_fill_(barred, -1.0).topk(k, dim=1).indices
        turn = images[:k][None, :] % found.clamp_min(1)[:, None]
        chosen.append(order.gather(1, turn))
        available.append(found)
    return torch.cat(chosen), torch.cat(available)
