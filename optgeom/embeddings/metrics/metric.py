"""A number that was computed on a sample, with what the sampling may have moved it by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

NOTHING = "the loss itself, nothing left out"


@dataclass(frozen=True)
class Estimate:
    """A value with its sampling error.

    Attributes
    ----------
    value : float
        nan where the quantity is not defined for these rows (n/a).
    standard_error : float
        0 where the value is exact for the rows given; nan where a single repeat had a value, so that nothing is known
        about its spread.
    rows : int
        Rows that each repeat was computed on.
    """

    value: float
    standard_error: float
    rows: int

    @classmethod
    def exact(cls, value: float, rows: int) -> Self:
        """A value without sampling error."""
        return cls(float(value), 0.0 if math.isfinite(value) else math.nan, rows)

    @classmethod
    def of_repeats(cls, values: Sequence[float], rows: int) -> Self:
        """Mean over independent repeats with the standard error of that mean.

        Repeats without a value (nan) are left out.
        """
        found = np.asarray([value for value in values if not math.isnan(value)], dtype=np.float64)
        if found.size == 0:
            return cls(math.nan, math.nan, rows)
        error = float(found.std(ddof=1) / math.sqrt(found.size)) if found.size > 1 else math.nan
        return cls(float(found.mean()), error, rows)


@dataclass(frozen=True)
class RiskEstimate(Estimate):
    """An estimate of a risk.

    Attributes
    ----------
    anchors : int
        Anchor terms that were evaluated.
    skipped : int
        Of these, anchors without a positive: counted as 0 or left out, as the loss says.
    stand_ins : int
        Anchors, or rows of batches, for which the same row was taken again because its class has no other: the value is
        then too low.
    views_missing : bool
        The loss has several views and the rows have not: other rows of the class stood for views, and the value is
        rather too high.
    convention : str
        What the value leaves out, as `geometry.risk` does.
    """

    anchors: int = 0
    skipped: int = 0
    stand_ins: int = 0
    views_missing: bool = False
    convention: str = NOTHING
