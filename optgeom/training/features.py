"""Free class means (unconstrained features): the vectors themselves are the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss
from optgeom.solvers.api import solve
from optgeom.training.class_batches import class_batches
from optgeom.training.device import to_device
from optgeom.training.distance import GramDistance
from optgeom.training.loop import Loop, LoopResult
from optgeom.training.population import train_population
from optgeom.training.settings import Settings, check_size
from optgeom.training.task import Task, Terms

ANCHORS = 2048


class FreeFeatures(torch.nn.Module):
    """Rows of free vectors, given out with length 1.

    Parameters
    ----------
    number, dim : int
    seed : int
        Of the random start.
    """

    def __init__(self, number: int, dim: int, seed: int = 0) -> None:
        super().__init__()
        start = torch.randn(number, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        self.rows = torch.nn.Parameter(torch.nn.functional.normalize(start, dim=1))

    def forward(self) -> Tensor:
        """(number, dim) unit rows."""
        return torch.nn.functional.normalize(self.rows, dim=1)


class ClassMeanTask(Task):
    """Free class means, trained on random batches of classes.

    Parameters
    ----------
    classes : ClassDistribution
    loss : SupCon or InfoNCE
        With finite batches or negatives.
    geometry : Geometry
        The optimum to be compared with.
    dim : int
    anchors : int
        Of a batch, for InfoNCE.
    seed : int
    """

    def __init__(
        self, classes: ClassDistribution, loss: Loss, geometry: Geometry, dim: int, anchors: int, seed: int
    ) -> None:
        self.module = FreeFeatures(classes.num_classes, dim, seed)
        self._batches = class_batches(classes, loss, anchors)
        self._optimal = np.asarray(geometry.gram)
        # Drawn on the CPU wherever the rest is: the same batches on every device.
        self._generator = torch.Generator().manual_seed(seed + 1)
        self._device = torch.device("cpu")
        self.expected_count = self._batches.expected_count
        self.optimal_loss = geometry.risk
        self.describe = {
            "features": "class means",
            "proportions": classes.proportions.tolist(),
            "loss": loss.to_dict(),
            "dim": dim,
            "anchors": anchors,
        }

    def to(self, device: torch.device) -> None:
        """The means; what batches are drawn from stays on the CPU."""
        self.module.to(device)
        self._device = device

    def terms(self) -> Terms:
        """Loss of the next random batch."""
        unit = self.module()
        drawn = to_device(self._batches.draw(self._generator), self._device)
        total, count = self._batches(unit @ unit.T, drawn)
        seen = unit.detach().sum()
        return Terms(total, count, seen.new_zeros(()), seen)

    def distance(self) -> GramDistance:
        """Cosines of the means beside the optimum."""
        return GramDistance.between(self.gram(), self._optimal)

    def gram(self) -> Array:
        """(C, C) cosines of the means."""
        unit = self.module().detach().cpu().numpy()
        return np.asarray(unit @ unit.T)

    def state(self) -> dict[str, Any]:
        """State of the draws."""
        return {"generator": self._generator.get_state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on with these draws."""
        self._generator.set_state(state["generator"])


@dataclass(frozen=True, eq=False)
class FeatureRun:
    """Free features beside the optimum.

    Attributes
    ----------
    geometry : Geometry
        The optimum.
    means : (C, d)
        Unit class means.
    gram : (C, C)
    risk : float
        Population loss at these means, exact.
    distance : GramDistance
    records : list of dict
        The log.
    loop : LoopResult or None
        Of a run on sampled batches; None on the exact objective.
    """

    geometry: Geometry
    means: Array
    gram: Array
    risk: float
    distance: GramDistance
    records: list[dict[str, Any]]
    loop: LoopResult | None


def train_features(
    classes: ClassDistribution,
    loss: Loss,
    settings: Settings | None = None,
    dim: int | None = None,
    anchors: int = ANCHORS,
    folder: Path | None = None,
    resume: bool = False,
    progress: bool = False,
    seed: int = 0,
) -> FeatureRun:
    """Train free class means and compare them with the optimum.

    Parameters
    ----------
    classes : ClassDistribution
    loss : Loss
    settings : Settings, optional
        Of a run on random batches; without them the exact population objective is minimised by L-BFGS.
    dim : int, optional
        Embedding dimension; C by default.
    anchors : int
        Of a random batch, for InfoNCE (SupCon has its batch size).
    folder : Path, optional
        For checkpoint and log of a run on random batches.
    resume, progress : bool
        See `Loop`.
    seed : int
        Of the start; with settings theirs is used.

    Returns
    -------
    FeatureRun

    Raises
    ------
    IncompatibleError
        A loss whose batches are infinite, with settings.
    InvalidInputError, NotCertifiedError, DivergedError, TrainingInterruptedError
        As `optgeom.solve` and `Loop.run`.
    """
    from optgeom.training.population import PopulationRisk

    size = classes.num_classes if dim is None else check_size("dim", dim)
    check_size("anchors", anchors)
    if settings is None:
        if resume:
            raise InvalidInputError(
                "`resume` goes with runs on random batches; the exact objective takes seconds (start it again)"
            )
        geometry = solve(classes, loss, dim)
        records: list[dict[str, Any]] = []

        def watch(step: int, risk: float, gram: Array) -> None:
            distance = GramDistance.between(gram, np.asarray(geometry.gram))
            records.append({"step": step, "loss": risk, "optimal_loss": geometry.risk, **distance.as_dict()})

        run = train_population(classes, loss, size, seed=seed, watch=watch)
        return FeatureRun(
            geometry,
            run.means,
            run.gram,
            run.risk,
            GramDistance.between(run.gram, np.asarray(geometry.gram)),
            records,
            None,
        )
    # Before the solver, which may take longer: a loss that cannot be sampled is refused at once.
    class_batches(classes, loss, anchors)
    geometry = solve(classes, loss, dim)
    task = ClassMeanTask(classes, loss, geometry, size, anchors, settings.seed)
    found = Loop(task, settings, folder, progress).run(resume)
    means = task.module().detach().cpu()
    risk = PopulationRisk(classes, loss)(means).item()
    return FeatureRun(geometry, means.numpy(), task.gram(), risk, found.distance, found.records, found)
