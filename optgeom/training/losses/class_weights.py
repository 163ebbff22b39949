"""Weights and temperatures per class of the losses of this room, as tensors that go with the module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from optgeom.errors import InvalidInputError
from optgeom.losses.weights import ClassValues
from optgeom.training.losses.rows import Contrast

SMALLEST_LOG = -1e4  # of a weight of 0: its exponential is 0, and its gradient is not NaN as that of -inf


class ClassWeights(torch.nn.Module):
    """Weights by label; labels are numbers 0 to C - 1 in class order.

    Parameters
    ----------
    values : ClassValues
        As `loss.class_values(classes)` gives them.
    """

    anchor: Tensor
    log_negative: Tensor
    temperature: Tensor

    def __init__(self, values: ClassValues) -> None:
        super().__init__()
        self.with_own, self.averaged = values.with_own, values.averaged
        log_negative = torch.from_numpy(values.negative.copy()).log().clamp_min(SMALLEST_LOG)
        for name, tensor in (
            ("anchor", torch.from_numpy(values.anchor.copy())),
            ("log_negative", log_negative),
            ("temperature", torch.from_numpy(values.temperature.copy())),
        ):
            self.register_buffer(name, tensor, persistent=False)

    def contrast(self, labels: Tensor, images: Tensor, dtype: torch.dtype) -> Contrast:
        """Log weights of rows in the denominators, for `row_terms`.

        Parameters
        ----------
        labels, images : (B,)
            Class and image of each row.
        dtype : torch.dtype
        """
        zeros = torch.zeros(self.anchor.shape[0], dtype=dtype, device=labels.device)
        number = zeros.index_add(0, labels, torch.ones_like(labels, dtype=dtype))[labels]
        table = self.log_negative.to(dtype)

        def of_block(block: slice, _: Tensor) -> Tensor:
            own = labels[block, None] == labels[None, :]
            log_weight = table[labels[block]][:, labels]
            if self.averaged:
                log_weight = log_weight - torch.where(own, number - 1.0, number).clamp_min(1.0).log()
            else:
                log_weight = log_weight.masked_fill(images[block, None] == images[None, :], 0.0)
            return log_weight if self.with_own else log_weight.masked_fill(own, -torch.inf)

        return of_block

    def of_pairs(self, anchors: Tensor, negatives: Tensor) -> Tensor:
        """Log weights of negatives (..., k) for anchors (...), both as labels."""
        return self.log_negative[anchors[..., None], negatives]


def tables(values: ClassValues | None) -> ClassWeights | None:
    """The tensors, where there are weights."""
    return None if values is None else ClassWeights(values)


def class_labels(labels: Any) -> Tensor:
    """Labels as int64; refuses those that do not say which class: weights per class need numbers 0 to C - 1."""
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point():
        came = "none" if labels is None else str(getattr(labels, "dtype", type(labels).__name__))
        raise InvalidInputError(
            f"`labels` must be whole numbers 0 to C - 1 in class order for weights per class; got {came}"
        )
    return labels.long()
