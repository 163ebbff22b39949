"""Rows of a batch as unit vectors in float64: their norms, and what cannot be normalised."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.embeddings.moments.source import Batch
from optgeom.errors import InvalidInputError

# 2 MiB of float64, about the level-2 cache: a block is still there when its norms follow its conversion. Half of it
# costs 5 % in calls.
BLOCK_ENTRIES = 2**18
# Squares of entries beyond these leave float64; rows below the second are as good as zero, and 1/norm is still a number
# above it.
_SAFE = (1e-280, 1e280)
_SHORTEST = 1e-290


def embeddings_of(batch: Batch, source: str = "") -> npt.NDArray[Any]:
    """The rows of a batch, (b, d) or (b, V, d), refused unless they are real numbers with at least one component."""
    rows = np.asarray(batch.rows)
    of = f" of {source}" if source else ""
    if rows.dtype.kind not in "fiu":
        raise InvalidInputError(
            f"`embeddings` must be real numbers; got values of type {rows.dtype}{of} (convert them to float32)"
        )
    if rows.ndim not in (2, 3) or 0 in rows.shape[1:]:
        raise InvalidInputError(
            f"`embeddings` must be (n, d), or (n, views, d); got a batch of shape {rows.shape}{of} (one row a vector)"
        )
    return rows


def check_length(what: str, values: npt.NDArray[Any], rows: npt.NDArray[Any], source: str = "") -> None:
    """Refuse labels or group ids that are not one per row."""
    if len(values) != len(rows):
        of = f" of {source}" if source else ""
        raise InvalidInputError(
            f"`{what}` must have one entry per row; got {len(values)} for {len(rows)} rows{of} (check that both go together)"
        )


def row_norms(block: Array) -> Array:
    """Norms of the rows of a contiguous (b, d) block.

    NaN where a component is not finite, 0 where the row is (next to) zero.
    """
    with np.errstate(all="ignore"):
        # One BLAS dot a row: half the time of einsum.
        squares = np.matmul(block[:, None, :], block[:, :, None])[:, 0, 0]
        norms = np.sqrt(squares)
    odd = np.flatnonzero(~((squares > _SAFE[0]) & (squares < _SAFE[1])))
    if odd.size:
        rows = block[odd]
        largest = np.abs(rows).max(axis=1)
        usable = np.isfinite(largest) & (largest > 0)
        exact = np.where(np.isfinite(largest), 0.0, math.nan)
        exact[usable] = largest[usable] * np.sqrt(((rows[usable] / largest[usable, None]) ** 2).sum(axis=1))
        exact[exact < _SHORTEST] = 0.0
        norms[odd] = exact
    return np.asarray(norms)


def inverse(norms: Array) -> Array:
    """1/norm; 0 for rows that have no direction, which `Faults` counts."""
    with np.errstate(divide="ignore"):
        return np.where(norms > 0, 1.0 / norms, 0.0)


def unit_views(rows: npt.NDArray[Any]) -> tuple[Array, Array]:
    """Unit rows in float64, of the shape of `rows`, and norms, (b,) or (b, V)."""
    block = np.array(rows, dtype=np.float64, order="C")
    norms = row_norms(block.reshape(-1, block.shape[-1])).reshape(block.shape[:-1])
    with np.errstate(invalid="ignore"):
        block *= inverse(norms)[..., None]
    return block, norms


def unit_images(rows: npt.NDArray[Any]) -> tuple[Array, Array]:
    """(b, d) images, the unit row or the mean of the unit views, and norms of all rows."""
    block, norms = unit_views(rows)
    return (block if block.ndim == 2 else block.mean(axis=1)), norms


@dataclass
class NormSpread:
    """Norms of the rows as stored: smallest, largest, mean."""

    count: int = 0
    smallest: float = math.inf
    largest: float = 0.0
    total: float = 0.0

    def add(self, norms: Array) -> None:
        usable = norms if norms.min(initial=1.0) > 0 else norms[norms > 0]
        if usable.size:
            self.count += usable.size
            self.smallest = min(self.smallest, float(usable.min()))
            self.largest = max(self.largest, float(usable.max()))
            self.total += float(usable.sum())

    def merge(self, other: NormSpread) -> None:
        self.count += other.count
        self.smallest = min(self.smallest, other.smallest)
        self.largest = max(self.largest, other.largest)
        self.total += other.total

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    @property
    def unit(self) -> bool:
        """Whether the rows were unit vectors; 1 % is what rounding to bfloat16 leaves of them, with a margin of two."""
        return bool(self.count) and self.smallest > 0.99 and self.largest < 1.01


@dataclass
class Faults:
    """Rows without a direction: how many, and the first of each kind.

    The position is (number of the shard, row, words that go before the name, the name of the source), so that the
    smallest is the first.
    """

    not_finite: int = 0
    zero: int = 0
    rows: int = 0
    first_not_finite: tuple[int, int, str, str] | None = field(default=None)
    first_zero: tuple[int, int, str, str] | None = field(default=None)

    def look(self, rows: npt.NDArray[Any], norms: Array, numbers: npt.NDArray[Any], shard: int, source: str) -> None:
        """Add the rows whose `norms`, (b,) or (b, V), are NaN or 0; `numbers` are the rows' numbers in the source."""
        self.rows += len(rows)
        if norms.min(initial=1.0) > 0:  # false where there is a NaN
            return
        views = norms.reshape(len(rows), -1)
        broken, zero = np.isnan(views).any(axis=1), (views == 0).any(axis=1)
        for kind, found in (("not_finite", broken), ("zero", zero)):
            if not found.any():
                continue
            row = int(found.argmax())
            wrong = ~np.isfinite(rows[row]) if kind == "not_finite" else views[row] == 0
            at = tuple(map(int, np.unravel_index(int(wrong.argmax()), wrong.shape)))
            view = f", view {at[0]}" if rows.ndim == 3 else ""
            words = f"row {int(numbers[row])}{view}"
            if kind == "not_finite":
                words = f"{float(rows[row][at])} in {words}, column {at[-1]}"
            self._keep(kind, int(np.count_nonzero(found)), (shard, int(numbers[row]), words, source))

    def merge(self, other: Faults) -> None:
        self.rows += other.rows
        self._keep("not_finite", other.not_finite, other.first_not_finite)
        self._keep("zero", other.zero, other.first_zero)

    def _keep(self, kind: str, count: int, first: tuple[int, int, str, str] | None) -> None:
        setattr(self, kind, getattr(self, kind) + count)
        held = [position for position in (getattr(self, f"first_{kind}"), first) if position is not None]
        setattr(self, f"first_{kind}", min(held) if held else None)

    def refuse(self) -> None:
        """Raise `InvalidInputError` where a row has no direction."""
        if self.first_not_finite is not None:
            raise InvalidInputError(
                f"`embeddings` must be finite; got {_words(self.first_not_finite)}, and {self.not_finite} of {self.rows} rows "
                "have such a value (look where the training diverged, or leave these rows out)"
            )
        if self.first_zero is not None:
            raise InvalidInputError(
                f"`embeddings` must have a direction in every row; got a zero vector in {_words(self.first_zero)}, and {self.zero} of "
                f"{self.rows} rows are zero (look for samples that were never embedded, or leave these rows out)"
            )


def _words(position: tuple[int, int, str, str]) -> str:
    return position[2] + (f" of {position[3]}" if position[3] else "")
