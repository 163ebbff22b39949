r"""How much the loss of one batch varies at the optimum, from the classes that it happens to hold.

The loss of a batch of N images drawn independently has the risk as its mean and, with features at their class means,
depends on its class counts alone. Its standard deviation is estimated from simulated counts; a value averaged over b
batches has 1/sqrt(b) of it. What within-class noise of real features adds comes on top.
"""

from __future__ import annotations

import numpy as np

from optgeom.geometry import Geometry

DRAWS = 4000  # batches: the standard deviation is good to about one per cent
ENTRIES = 1 << 22  # of counts at a time
LARGEST = 20_000  # classes whose Gram matrix is written down
SEED = 0


def batch_deviation(geometry: Geometry) -> float | None:
    """Standard deviation of the loss of one batch at the optimum; None for losses without batches of a known size.

    Parameters
    ----------
    geometry : Geometry
        A certified optimum, with its loss.
    """
    size = geometry.loss.images_per_batch
    if size is None or geometry.num_classes > LARGEST:
        return None
    rng = np.random.default_rng(SEED)
    gram, shares = np.asarray(geometry.gram), geometry.proportions / geometry.proportions.sum()
    step = max(1, ENTRIES // geometry.num_classes)
    of_classes = geometry.loss.class_values(geometry.classes)
    values = []
    for start in range(0, DRAWS, step):
        images = rng.multinomial(size, shares, size=min(step, DRAWS - start)).astype(np.float64)
        part = geometry.loss.batch_values(gram, images, of_classes)
        if part is None:
            return None
        values.append(part)
    return float(np.std(np.concatenate(values), ddof=1))
