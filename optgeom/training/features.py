"""Free class means (unconstrained features): the vectors themselves are the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss
from optgeom.solvers.api import solve
from optgeom.training.loop import Loop, LoopResult
from optgeom.training.population import PopulationRisk, train_population
from optgeom.training.settings import Settings, check_size, to_device
from optgeom.training.task import GramDistance, Task, Terms

ANCHORS = 2048


class FreeFeatures(torch.nn.Module):
    """Free vectors as rows of length 1.

    Parameters
    ----------
    number, dim : int
    seed : int
        Of the random start.
    """

    def __init__(self, number: int, dim: int, *, seed: int = 0) -> None:
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
        Anchors per batch, for InfoNCE.
    seed : int
    """

    def __init__(
        self, classes: ClassDistribution, loss: Loss, *, geometry: Geometry, dim: int, anchors: int, seed: int
    ) -> None:
        self.module = FreeFeatures(classes.num_classes, dim, seed=seed)
        self._batches = loss.class_batches(classes, anchors=anchors)
        self._optimal = np.asarray(geometry.gram)
        # Drawn on the CPU wherever the rest is: the same batches on every device.
        self._generator = torch.Generator().manual_seed(seed + 1)
        self._device = torch.device("cpu")
        self.expected_count = self._batches.expected_count
        self.optimal_loss = geometry.risk
        self.description = {
            "features": "class means",
            "proportions": classes.proportions.tolist(),
            "loss": loss.to_dict(),
            "dim": dim,
            "anchors": anchors,
        }

    def to(self, device: torch.device) -> None:
        """Move the means; what batches are drawn from stays on the CPU."""
        self.module.to(device)
        self._device = device

    def terms(self) -> Terms:
        """Loss of the next random batch."""
        unit = self.module()
        drawn = to_device(self._batches.draw(self._generator), self._device)
        total, count = self._batches(unit @ unit.T, drawn)
        features = unit.detach().sum()
        return Terms(total=total, count=count, inputs=features.new_zeros(()), features=features)

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


@dataclass(frozen=True, kw_only=True, eq=False)
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
    *,
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
        Of a run on random batches. Without settings L-BFGS minimises the exact population objective.
    dim : int, optional
        Embedding dimension; C by default.
    anchors : int
        Anchors per random batch, for InfoNCE (SupCon has its batch size).
    folder : Path, optional
        For checkpoint and log of a run on random batches.
    resume, progress : bool
        See `Loop`.
    seed : int
        Of the start; a run with settings takes theirs.

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
    classes = _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    loss = _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    size = classes.num_classes if dim is None else check_size("dim", dim)
    check_size("anchors", anchors)
    if settings is None:
        if resume:
            raise InvalidInputError(
                "`resume` goes with runs on random batches; got it for the exact objective, which takes seconds "
                "(start it again)"
            )
        geometry = solve(classes, loss, dim=dim)
        records: list[dict[str, Any]] = []

        def watch(step: int, risk: float, gram: Array) -> None:
            distance = GramDistance.between(gram, np.asarray(geometry.gram))
            records.append({"step": step, "loss": risk, "optimal_loss": geometry.risk, **distance.as_dict()})

        run = train_population(classes, loss, dim=size, seed=seed, watch=watch)
        return FeatureRun(
            geometry=geometry,
            means=run.means,
            gram=run.gram,
            risk=run.risk,
            distance=GramDistance.between(run.gram, np.asarray(geometry.gram)),
            records=records,
            loop=None,
        )
    # Before the solver, which may take longer: a loss that cannot be sampled is refused at once.
    loss.class_batches(classes, anchors=anchors)
    geometry = solve(classes, loss, dim=dim)
    task = ClassMeanTask(classes, loss, geometry=geometry, dim=size, anchors=anchors, seed=settings.seed)
    finished = Loop(task, settings, folder=folder, progress=progress).run(resume)
    means = task.module().detach().cpu()
    return FeatureRun(
        geometry=geometry,
        means=means.numpy(),
        gram=task.gram(),
        risk=PopulationRisk(classes, loss)(means).item(),
        distance=finished.distance,
        records=finished.records,
        loop=finished,
    )
