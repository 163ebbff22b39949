"""What a metric is: a number with its sampling error, and what the report says of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from optgeom.formatting import finite

if TYPE_CHECKING:
    from optgeom.embeddings.measures import Embedding


@dataclass(frozen=True)
class Estimate:
    """A value with its sampling error.

    Attributes
    ----------
    value : float
        nan where the quantity is not defined for these rows (n/a).
    standard_error : float
        0 where the value is exact for the rows given; nan where a single repeat had a value, so that its spread is
        unknown.
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
        """Mean over the independent repeats that have a value, with the standard error of that mean."""
        known = np.asarray([value for value in values if not math.isnan(value)], dtype=np.float64)
        if known.size == 0:
            return cls(math.nan, math.nan, rows)
        error = float(known.std(ddof=1) / math.sqrt(known.size)) if known.size > 1 else math.nan
        return cls(float(known.mean()), error, rows)


@dataclass(frozen=True)
class Metric:
    """One number of the report.

    Attributes
    ----------
    value : float or None
        None where the metric is n/a, which `reason` explains; never 0 instead.
    standard_error : float or None
        None where nothing was sampled, or where a single sample had a value.
    rows : int or None
        Rows of each sample, where it is one.
    reason : str or None
        Why the value is n/a, or what it leaves out.
    words : str
        What the number says, and which value is best.
    heading : str
        Its name in the summary of the command line; "" where it is left to the full report.
    """

    value: float | None
    _: KW_ONLY
    standard_error: float | None = None
    rows: int | None = None
    reason: str | None = None
    words: str = ""
    heading: str = ""

    @classmethod
    def of(cls, value: float | Estimate | None, reason: str | None = None) -> Metric:
        """From a number or an estimate; `reason` is kept only where there is no finite value."""
        if isinstance(value, Estimate):
            metric = cls(finite(value.value), standard_error=finite(value.standard_error), rows=value.rows)
        else:
            metric = cls(finite(value))
        return metric if metric.value is not None else replace(metric, reason=reason)

    def noted(self, note: str | None) -> Metric:
        """The same with a note on what the value leaves out."""
        return self if self.reason is not None or note is None else replace(self, reason=note)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"value": self.value, "standard_error": self.standard_error, "rows": self.rows, "reason": self.reason}


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A metric of the report; `measures.METRICS` lists all of them.

    Attributes
    ----------
    name : str
        Its key in the JSON object.
    words, heading : str
        As in `Metric`.
    measure : callable
    """

    name: str
    words: str
    heading: str = ""
    measure: Callable[[Embedding], Metric]

    def of(self, embedding: Embedding) -> Metric:
        """The metric of an embedding, with what it says."""
        return replace(self.measure(embedding), words=self.words, heading=self.heading)
