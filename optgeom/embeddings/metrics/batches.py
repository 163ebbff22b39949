"""Drawing of rows as training draws them: batches by class proportions, and samples that keep rare classes whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optgeom._numerics import Array
from optgeom.embeddings.metrics.unit_rows import Index, UnitRows


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of N images with V views each.

    The classes of the images are drawn independently by `proportions`, as the population risk assumes; the images of a
    class are then distinct while they last (a training set is not drawn with replacement either: a row beside its own
    copy would be too good a positive).

    Attributes
    ----------
    members : tuple of C arrays
        Row numbers of each class, or, with views, numbers of its images.
    views_of : tuple of arrays or None
        Row numbers of the views of each image. None where some image has fewer than V rows: then V rows of the class
        stand for the views of one image.
    """

    proportions: Array
    views: int
    members: tuple[Index, ...]
    views_of: tuple[Index, ...] | None

    @classmethod
    def of(cls, found: UnitRows, proportions: Array, views: int) -> Batches:
        """Rows by class, and by image where every image has enough views."""
        if found.images is not None:
            number = np.bincount(found.images)
            if number.min() >= views:
                of_image = _split(found.images, number.size)
                first = np.array([rows[0] for rows in of_image])
                return cls(proportions, views, _split(found.codes[first], found.num_classes), of_image)
        return cls(proportions, views, _split(found.codes, found.num_classes), None)

    def draw(self, rng: np.random.Generator, images: int) -> tuple[Index, int]:
        """Row numbers of one batch, N V of them, and how many are repeats because their class ran out."""
        parts: list[Index] = []
        repeats = 0
        for c in np.flatnonzero(counts := rng.multinomial(images, self.proportions)):
            wanted = int(counts[c]) * (self.views if self.views_of is None else 1)
            chosen = _cycled(rng, self.members[c], wanted)
            repeated = max(0, wanted - self.members[c].size)
            if self.views_of is not None:
                repeated *= self.views
                chosen = np.concatenate(
                    [rng.choice(self.views_of[image], self.views, replace=False) for image in chosen]
                )
            repeats += repeated
            parts.append(chosen)
        return np.concatenate(parts), repeats


def stratified(codes: Index, num_classes: int, size: int, rng: np.random.Generator) -> Index:
    """Row numbers of a sample of about `size` rows: every class whole up to a common number of rows, two at least.

    Rare classes weigh in every sum over negatives, and a plain sample would lose them; classes are weighted by their
    proportions afterwards, so their share of the sample does not matter.
    """
    counts = np.bincount(codes, minlength=num_classes)
    level = 2
    low, high = 2, int(counts.max())
    while low <= high:
        level_tried = (low + high) // 2
        if int(np.minimum(counts, level_tried).sum()) <= size:
            level, low = level_tried, level_tried + 1
        else:
            high = level_tried - 1
    members = _split(codes, num_classes)
    kept = [rows if rows.size <= level else rng.choice(rows, level, replace=False) for rows in members]
    return np.sort(np.concatenate(kept))


def _split(labels: Index, count: int) -> tuple[Index, ...]:
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=count))[:-1]
    return tuple(np.split(order, ends))


def _cycled(rng: np.random.Generator, members: Index, wanted: int) -> Index:
    """`wanted` members at random, each used once before any is used again."""
    whole, rest = divmod(wanted, members.size)
    return np.concatenate([np.tile(members, whole), rng.choice(members, rest, replace=False)])
