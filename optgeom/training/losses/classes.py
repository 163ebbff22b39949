"""Sums over the rows of one class in O(B d), for labels of any values."""

from __future__ import annotations

import torch
from torch import Tensor


def class_codes(labels: Tensor) -> Tensor:
    """(B,) numbers 0 to B - 1, equal where the labels are.

    Their number is not known, so that nothing waits for the device.
    """
    ordered, order = torch.sort(labels)
    new = torch.zeros_like(order)
    new[1:] = ordered[1:] != ordered[:-1]
    codes = torch.empty_like(order)
    codes[order] = new.cumsum(0)
    return codes


def class_sums(rows: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """(B, d) sum of all rows of each row's class, itself included, and (B,) their number."""
    sums = torch.zeros_like(rows).index_add(0, codes, rows)
    counts = rows.new_zeros(rows.shape[0]).index_add(0, codes, rows.new_ones(rows.shape[0]))
    return sums.index_select(0, codes), counts.index_select(0, codes)
