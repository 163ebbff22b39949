r"""Class moments of unit embeddings: what the statistics of section "trained embedding against the optimum" need, and
nothing else.

The unit of observation is the image: z_i is the unit row, or the mean of the unit rows of the views of image i (then
|z_i| <= 1). All sums are float64 whatever the type of the input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """First pass: sums over the images of each class.

    Attributes
    ----------
    names : tuple of str, length C
        Classes that occur, in class order (as `labels.encode` orders them).
    counts : (C,) int64
        Images of each class, n_c.
    sums : (C, d)
        sum_i z_i.
    squares : (C,)
        sum_i |z_i|^2; n_c where every image is one row.
    total_scatter : (d, d) or None
        sum_i z_i z_i' over all images; only where it was asked for (sources that cannot be read twice).
    """

    names: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    sums: Array
    squares: Array
    total_scatter: Array | None = None


@dataclass(frozen=True, eq=False)
class WithinClass:
    """Second pass: covariances within classes.

    With m_c the class mean, S_c = sum_i (z_i - m_c)(z_i - m_c)' / (n_c - 1), u_c = m_c / rho_c the direction of a class
    (the one that the statistics use) and P_c = I - u_c u_c'.

    Attributes
    ----------
    pooled : (d, d)
        sum_c (n_c - 1) S_c / sum_c (n_c - 1).
    traces : (C,)
        tr S_c; nan where n_c = 1.
    full : (C, d, d) or None
        S_c (nan where n_c = 1), only while C d^2 <= 2^24.
    projected : (C, C) or None
        u_e' P_c S_c P_c u_e at [c, e], exactly, from the projections of all rows; None after a single pass.
    """

    pooled: Array
    traces: Array
    full: Array | None = None
    projected: Array | None = None
