"""One free vector per sample, trained by the loop of the package on sampled or full batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from optgeom.training.features import FreeFeatures
from optgeom.training.loop import Loop
from optgeom.training.losses import ContrastiveLoss
from optgeom.training.settings import Settings
from optgeom.training.task import GramDistance, Task, Terms

Array = npt.NDArray[np.float64]


class FreeSampleTask(Task):
    """Samples as free unit vectors, in batches of two views.

    Parameters
    ----------
    codes : (n,) int64
        Class of each sample.
    loss : ContrastiveLoss
        Taking (N, 2, d) features and labels.
    optimal : (C, C)
        Cosines of the class means to compare with.
    batch : int
        Images of a batch, drawn with replacement, so that classes are i.i.d. with the proportions of the samples, as in
        the theory.
    partner : {"image", "class"}
        The second view is the same vector (free features know no augmentation), or another sample of the class: InfoNCE
        with collapsed classes speaks of positives that share the class and nothing else.
    dim, seed : int
    """

    def __init__(
        self,
        codes: Array,
        loss: ContrastiveLoss,
        optimal: Array,
        batch: int,
        partner: str = "image",
        dim: int = 8,
        seed: int = 0,
    ) -> None:
        self.codes, self.loss, self.batch, self.partner = torch.as_tensor(codes), loss, batch, partner
        self.module = FreeFeatures(len(codes), dim, seed=seed)
        self.expected_count, self.optimal_loss, self.description = 2.0 * batch, None, {}
        self._optimal = np.asarray(optimal)
        self._members = [torch.from_numpy(np.flatnonzero(np.asarray(codes) == c)) for c in range(len(self._optimal))]
        self._generator = torch.Generator().manual_seed(seed + 1)

    def to(self, device: torch.device) -> None:
        """Runs on the CPU only: these problems are too small for anything else."""

    def terms(self) -> Terms:
        """Loss of the next batch."""
        chosen = torch.randint(len(self.codes), (self.batch,), generator=self._generator)
        other = chosen if self.partner == "image" else self._of_the_same_class(chosen)
        unit = self.module()
        total, count = self.loss.sum_and_count(unit[torch.stack([chosen, other], dim=1)], self.codes[chosen])
        seen = unit.detach().sum()
        return Terms(total=total, count=count, inputs=seen.new_zeros(()), features=seen)

    def _of_the_same_class(self, chosen: torch.Tensor) -> torch.Tensor:
        uniform = torch.rand(len(chosen), generator=self._generator)
        classes = self.codes[chosen]
        other = torch.empty_like(chosen)
        for c, members in enumerate(self._members):
            here = classes == c
            other[here] = members[(uniform[here] * len(members)).long()]
        return other

    def distance(self) -> GramDistance:
        """Directions of the class means beside the optimum."""
        return GramDistance.between(class_means(self.rows(), self.codes.numpy())[0], self._optimal)

    def rows(self) -> Array:
        """(n, d) unit vectors."""
        return np.asarray(self.module().detach().numpy())

    def state(self) -> dict[str, Any]:
        """Never saved: a run takes seconds."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Never loaded."""

    def train(self, steps: int, learning_rate: float) -> Array:
        """(n, d) unit vectors after training: rate to 0 along a cosine, mean of the iterates of the second half."""
        settings = Settings(steps=steps, learning_rate=learning_rate, device="cpu", log_every=steps, seed=0)
        Loop(self, settings).run()
        return self.rows()


def class_means(rows: Array, codes: Array) -> tuple[Array, float]:
    """(C, C) cosines of the directions of class means; largest angle between a sample and its class mean, degrees."""
    means = np.stack([rows[codes == c].mean(axis=0) for c in range(int(codes.max()) + 1)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    # By the chord: the arccos of a cosine near 1 would not see below 1e-6 degrees.
    chord = np.linalg.norm(rows - means[codes], axis=1).max()
    return means @ means.T, float(np.degrees(2 * np.arcsin(min(1.0, chord / 2))))


def descend(
    loss: Any, number: int, dim: int, seed: int, iterations: int = 3000, normalize: bool = True
) -> tuple[Array, float]:
    """Full batch by L-BFGS: (n, d) rows and the loss, a function of the rows."""
    start = torch.randn(number, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    rows = start.requires_grad_(True)
    limits = {"max_iter": iterations, "max_eval": 2 * iterations, "tolerance_grad": 1e-10, "tolerance_change": 1e-15}
    search = torch.optim.LBFGS([rows], history_size=50, line_search_fn="strong_wolfe", **limits)

    def shaped() -> torch.Tensor:
        return torch.nn.functional.normalize(rows, dim=1) if normalize else rows

    def closure() -> torch.Tensor:
        search.zero_grad()
        value = loss(shaped())
        value.backward()
        return value

    search.step(closure)
    with torch.no_grad():
        return np.asarray(shaped().numpy()), float(loss(shaped()))
