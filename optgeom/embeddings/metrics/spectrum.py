r"""How many dimensions an embedding really uses: singular values and the effective rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg

from optgeom._numerics import EPS, Array
from optgeom.errors import InvalidInputError


def singular_values(rows: npt.ArrayLike, center: bool = False) -> Array:
    """Singular values of the rows.

    Parameters
    ----------
    rows : (n, d)
        Any finite rows.
    center : bool
        Subtract the mean row first. The effective rank of Roy and Vetterli is that of the rows as they are.

    Returns
    -------
    (min(n, d),) descending, each exact to rounding of the largest.

    Raises
    ------
    InvalidInputError
        Rows that are not a finite (n, d) table.
    """
    table = _finite("rows", rows)
    return np.asarray(scipy.linalg.svdvals(table - table.mean(axis=0) if center else table))


def singular_values_of_scatter(matrix: npt.ArrayLike) -> Array:
    """Singular values of rows Z from Z'Z (d, d), or from their Gram matrix Z Z' (n, n): square roots of the
    eigenvalues.

    Returns ------- (d,) descending. Eigenvalues below d eps times the largest are rounding and become 0: a singular
    value below 1e-8 sqrt(d) of the largest cannot be seen in a scatter matrix (`singular_values` sees it in the rows).

    Raises
    ------
    InvalidInputError
        A matrix that is not square, finite and symmetric to rounding.
    """
    given = _finite("matrix", matrix)
    size = float(np.abs(given).max())
    if given.shape[0] != given.shape[1] or np.abs(given - given.T).max() > 1e-6 * size:
        raise InvalidInputError(
            f"`matrix` must be symmetric; got shape {given.shape} (scatter or Gram matrix; rows go to singular_values)"
        )
    eigenvalues = scipy.linalg.eigvalsh((given + given.T) / 2)[::-1]
    kept = eigenvalues > eigenvalues.size * EPS * max(float(eigenvalues[0]), 0.0)
    return np.asarray(np.sqrt(np.where(kept, eigenvalues, 0.0)))


def effective_rank(values: npt.ArrayLike) -> float:
    """exp( -sum_k p_k log p_k ) with p_k = sigma_k / sum sigma: between 1 and the number of non-zero singular values.

    Parameters
    ----------
    values : (r,)
        Singular values, >= 0, in any order.

    Returns
    -------
    float
        nan where all are zero (n/a).

    Raises
    ------
    InvalidInputError
        A value that is negative or not finite.

    References
    ----------
    Roy, Vetterli 2007, The effective rank: a measure of effective dimensionality, EUSIPCO.
    """
    sigma = np.asarray(values, dtype=np.float64)
    if sigma.ndim != 1 or not np.all(np.isfinite(sigma)) or np.any(sigma < 0):
        raise InvalidInputError(
            "`values` must be singular values, finite and >= 0; got others (take them from singular_values)"
        )
    total = float(sigma.sum())
    if total == 0:
        return float("nan")
    share = sigma[sigma > 0] / total
    return float(np.exp(-np.sum(share * np.log(share))))


def _finite(name: str, values: Any) -> Array:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.size == 0 or not np.all(np.isfinite(table)):
        came = f"shape {table.shape}" if table.ndim != 2 or table.size == 0 else "NaN or infinity"
        raise InvalidInputError(f"`{name}` must be a finite table of two axes; got {came} (leave such rows out)")
    return table
