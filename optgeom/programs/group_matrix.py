r"""Symmetric matrices that do not change when equal classes are exchanged, without ever writing down all C x C entries.

Such a matrix B is given by sizes m_g, its entries b_gh between two different classes of groups g and h, and its
diagonal d_g. On the span of the normalised group indicators it acts as the G x G matrix

    S_gh = sqrt(m_g m_h) b_gh,      S_gg = d_g + (m_g - 1) b_gg,

and on the vectors of group g that sum to zero (m_g - 1 dimensions) as the number d_g - b_gg. These are all its
eigenvalues.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array

Sizes = npt.NDArray[np.int64]


def symmetric_block(
    between: Annotated[Array, "G G"], diagonal: Annotated[Array, "G"], sizes: Annotated[Sizes, "G"]
) -> Annotated[Array, "G G"]:
    """(G, G) matrix S on the span of the normalised group indicators."""
    root = np.sqrt(sizes.astype(np.float64))
    block = between * root[:, None] * root[None, :]
    block[np.diag_indices_from(block)] = diagonal + (sizes - 1.0) * np.diag(between)
    return block


def complement(
    between: Annotated[Array, "G G"], diagonal: Annotated[Array, "G"], sizes: Annotated[Sizes, "G"]
) -> Annotated[Array, "G"]:
    """(G,) eigenvalue d_g - b_gg on the within-group complement; 0 where the group has one class and no complement."""
    return np.asarray(np.where(sizes > 1, diagonal - np.diag(between), 0.0))


def from_blocks(
    block: Annotated[Array, "G G"], rest: Annotated[Array, "G"], sizes: Annotated[Sizes, "G"]
) -> tuple[Annotated[Array, "G G"], Annotated[Array, "G"]]:
    """Inverse of `symmetric_block` and `complement`: entries between classes, and the diagonal."""
    m = sizes.astype(np.float64)
    root = np.sqrt(m)
    between = block / (root[:, None] * root[None, :])
    diagonal = (np.diag(block) + (m - 1) * rest) / m
    between[np.diag_indices_from(between)] = np.where(sizes > 1, (np.diag(block) - rest) / m, diagonal)
    return between, diagonal


def expand(
    between: Annotated[Array, "G G"], diagonal: Annotated[Array, "G"], index: Annotated[npt.NDArray[np.intp], "C"]
) -> Annotated[Array, "C C"]:
    """(C, C) matrix in class order from its group form; `index` gives the group of each class."""
    full = between[np.ix_(index, index)]
    np.fill_diagonal(full, diagonal[index])
    return full


def with_apart(
    index: npt.NDArray[np.intp], sizes: Sizes, members: tuple[int, ...]
) -> tuple[npt.NDArray[np.intp], Sizes, npt.NDArray[np.intp]]:
    """Groups in which these members have one of their own: index of each member, sizes, old group of each group."""
    index, finer, source = index.copy(), list(sizes), list(range(sizes.size))
    for member in members:
        old = int(index[member])
        if finer[old] > 1:
            finer[old] -= 1
            index[member] = len(finer)
            finer.append(1)
            source.append(source[old])
    return index, np.array(finer, dtype=np.int64), np.array(source, dtype=np.intp)
