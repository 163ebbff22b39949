"""One free vector a sample: that classes collapse to their means is then something to be seen, not an assumption."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from optgeom.classes import ClassDistribution
from optgeom.errors import InvalidInputError
from optgeom.training.data import LabelledData


class FreeSamples(torch.nn.Module):
    """An encoder that looks up a trained vector for each sample number.

    Parameters
    ----------
    number, dim : int
    seed : int
        Of the random start.
    """

    def __init__(self, number: int, dim: int, seed: int = 0) -> None:
        super().__init__()
        start = torch.randn(number, dim, generator=torch.Generator().manual_seed(seed))
        self.rows = torch.nn.Parameter(torch.nn.functional.normalize(start, dim=1))

    def forward(self, numbers: Tensor) -> Tensor:
        """(B, dim) rows of (B, 1) sample numbers."""
        return self.rows.index_select(0, numbers[:, 0].long())


def numbered_samples(classes: ClassDistribution) -> LabelledData:
    """Data whose inputs are nothing but sample numbers, (n, 1), for `train_encoder` with `FreeSamples` and no augmentation.

    Raises
    ------
    InvalidInputError
        Classes without counts, or more samples than float32 can number.
    """
    if classes.counts is None:
        raise InvalidInputError("`classes` must have whole counts, one vector a sample; got proportions (give counts)")
    codes = np.repeat(np.arange(classes.num_classes), classes.counts)
    if codes.size > 1 << 24:
        raise InvalidInputError(f"`classes` must have at most {1 << 24} samples in all; got {codes.size} (divide the counts)")
    numbers = torch.arange(codes.size, dtype=torch.float32)[:, None]
    return LabelledData(numbers, torch.from_numpy(codes.astype(np.int64)), classes.names, "free samples")
