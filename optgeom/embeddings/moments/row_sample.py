"""A random sample of rows (or images) that does not depend on the split into batches, and can be taken in any pass.

Every row has a number that is scrambled with the seed; the rows with the smallest results are the sample. That is a
uniform sample without replacement, needs no number of rows, and does not depend on the order in which rows arrive.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.moments.image_table import distinct_ids
from optgeom.embeddings.moments.source import Source, display_name, read_batch, source_parts
from optgeom.embeddings.moments.unit_rows import Faults, UnitRows, unit_views
from optgeom.errors import InvalidInputError
from optgeom.inputs.labels import ClassNames

_SHARD_BITS = 40  # of the row number: a shard has less than 2^40 rows
_ROWS_AT_ONCE = 16384


class RowSample:
    """The sample so far: mergeable, and small enough to be sent between processes.

    Parameters
    ----------
    size : int
        Rows, or images where views are rows.
    seed : int
    shard : int
        Row numbers are counted within a shard.
    """

    def __init__(self, size: int, seed: int, shard: int = 0) -> None:
        self.size = _checks.integer("size", size, at_least=1)
        salt = _checks.integer("seed", seed, at_least=0) % 2**64
        self._salt = scramble(np.array([salt], dtype=np.uint64), np.uint64(0))[0]
        self._shard = shard
        self._keys = np.empty(0, dtype=np.uint64)
        self._places = np.empty(0, dtype=np.uint64)
        self._codes = np.empty(0, dtype=np.intp)
        self._rows: npt.NDArray[Any] | None = None
        self._grouped = False

    def update(
        self,
        rows: npt.NDArray[Any],
        codes: npt.NDArray[np.intp],
        numbers: npt.NDArray[Any],
        ids: Sequence[str] | None = None,
        local: npt.NDArray[Any] | None = None,
    ) -> None:
        """Offer rows (b, d) or (b, V, d) with running codes and row numbers; row i is a view of image ids[local[i]]."""
        places = np.uint64(self._shard << _SHARD_BITS) + numbers.astype(np.uint64)
        if ids is None or local is None:
            keys = scramble(places, self._salt)
        else:
            self._grouped = True
            keys = scramble(np.array([_number_of(image) for image in ids], dtype=np.uint64), self._salt)[local]
        limit = self._limit(keys)
        near = np.flatnonzero(keys <= limit)
        self._take(keys[near], places[near], codes[near], rows[near])

    def merge(self, other: RowSample, codes: npt.NDArray[np.intp]) -> None:
        """Take in `other`, whose class code k is `codes[k]` here."""
        self._grouped |= other._grouped
        if other._rows is not None:
            self._take(other._keys, other._places, codes[other._codes], other._rows)

    def finish(self, place: npt.NDArray[np.intp]) -> UnitRows:
        """The sample, where running class code k is class `place[k]`; refuses rows without a direction."""
        if self._rows is None:
            raise InvalidInputError(
                "`embeddings` must have a row with a label of the classes asked for; got none (check the labels)"
            )
        order = np.argsort(self._places)
        unit, norms = unit_views(self._rows[order])
        faults = Faults()
        numbers = self._places[order] & np.uint64(2**_SHARD_BITS - 1)
        faults.record(self._rows[order], norms, numbers, 0, "")
        faults.refuse()
        codes = place[self._codes[order]]
        return (
            _by_image(unit, codes, self._keys[order], place.size)
            if self._grouped
            else UnitRows.of_images(unit, codes, place.size)
        )

    def _limit(self, keys: npt.NDArray[np.uint64]) -> np.uint64:
        """The largest key of a sample of the rows so far and of rows with `keys`."""
        together = np.concatenate([self._keys, keys])
        if self._grouped:
            together = np.unique(together)
        if together.size <= self.size:
            return np.uint64(2**64 - 1)
        return np.uint64(np.partition(together, self.size - 1)[self.size - 1])

    def _take(
        self,
        keys: npt.NDArray[np.uint64],
        places: npt.NDArray[np.uint64],
        codes: npt.NDArray[np.intp],
        rows: npt.NDArray[Any],
    ) -> None:
        limit = self._limit(keys)
        mine, theirs = self._keys <= limit, keys <= limit
        if not theirs.any():
            return
        self._rows = rows[theirs] if self._rows is None else np.concatenate([self._rows[mine], rows[theirs]])
        self._keys = np.concatenate([self._keys[mine], keys[theirs]])
        self._places = np.concatenate([self._places[mine], places[theirs]])
        self._codes = np.concatenate([self._codes[mine], codes[theirs]])


def sample_rows(source: Source, names: Sequence[str], size: int, seed: int) -> UnitRows:
    """Rows of a source that can be read again, drawn without replacement.

    Parameters
    ----------
    source : Source
    names : sequence of str
        Classes in class order; rows of other labels are left out before drawing.
    size : int
        Rows, or images where views are rows; all of them if there are fewer.
    seed : int

    Returns
    -------
    UnitRows
        The same rows however the source is split into batches, and the same that a pass over it would have kept.
    """
    sources = source_parts(source)
    wanted = {name: k for k, name in enumerate(names)}
    total = RowSample(size, seed)
    same = np.arange(len(names))
    for shard, part in enumerate(sources):
        name = display_name(part)
        sample, labels = RowSample(size, seed, shard), ClassNames(source=name)
        for batch in part.batches(_ROWS_AT_ONCE):
            rows, running, groups = read_batch(batch, labels, name)
            codes = np.array([wanted.get(name, -1) for name in labels.running], dtype=np.intp)[running]
            kept = np.flatnonzero(codes >= 0)
            numbers = batch.start + kept
            images = () if groups is None else distinct_ids(groups[kept], numbers, name)
            sample.update(rows if kept.size == len(rows) else rows[kept], codes[kept], numbers, *images)
        total.merge(sample, same)
    return total.finish(same)


def scramble(values: npt.NDArray[np.uint64], salt: np.uint64) -> npt.NDArray[np.uint64]:
    """A one-to-one map of 64-bit numbers that looks random (the finaliser of splitmix64; Steele, Lea, Flood 2014)."""
    with np.errstate(over="ignore"):
        mixed = (values ^ salt) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _number_of(image: str) -> int:
    return int.from_bytes(hashlib.blake2b(image.encode(), digest_size=8).digest(), "little")


def _by_image(unit: Array, codes: npt.NDArray[np.intp], keys: npt.NDArray[np.uint64], num_classes: int) -> UnitRows:
    """Stack V views of each image, in the order of their first views.

    V is the smallest number of views, above one, that an image has: images of one view are dropped, and views beyond V.
    """
    _, first, image, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    several = count[count > 1]
    views = int(several.min()) if several.size else 1
    order = np.argsort(image, kind="stable")
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    kept = np.flatnonzero(count >= views)
    kept = kept[np.argsort(first[kept])]
    chosen = order[starts[kept, None] + np.arange(views)]
    flat = unit.reshape(len(unit), -1, unit.shape[-1])  # (rows, views in a row, d)
    stacked = flat[chosen].reshape(len(kept), -1, unit.shape[-1])
    rows = stacked if stacked.shape[1] > 1 else stacked[:, 0]
    return UnitRows.of_images(rows, codes[first[kept]], num_classes, int(len(unit) - chosen.size))
