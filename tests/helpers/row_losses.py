"""SupCon of one batch of rows, by the kernel that the empirical risk of batches is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom.embeddings.metrics.pair_risk import cosines_of_rows, supcon_terms
from optgeom.embeddings.moments.unit_rows import UnitRows


@dataclass(frozen=True)
class BatchLoss:
    """Mean over all anchors ("zero") or over those with a positive ("skip"), terms (n,), and numbers of anchors."""

    value: float
    terms: np.ndarray
    anchors: int
    skipped: int


def supcon_loss(rows: Any, codes: Any, temperature: float = 0.1, singletons: str = "zero") -> BatchLoss:
    """SupCon (L_out, the anchor itself excluded) of one batch; terms are nan for anchors without a positive."""
    unit = UnitRows.of(rows, codes)
    terms = supcon_terms(cosines_of_rows(unit.take(slice(None))), unit.codes, temperature)
    skipped = int(np.isnan(terms).sum())
    over = unit.n if singletons == "zero" else unit.n - skipped
    return BatchLoss(float(np.nansum(terms)) / over if over else np.nan, terms, unit.n, skipped)
