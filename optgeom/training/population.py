r"""Free class means trained on the exact population objective.

    minimise  F( A(U) ),     A_ij = u_i.u_j / (|u_i| |u_j|),     U (C, d) unconstrained.

F is the risk of the program, its expectation over batches computed exactly, and dF/dv_i = 2 sum_j G'_ij v_j with unit
rows v: so L-BFGS on U is a training run with batches of infinite size, by a method that shares nothing with the solver
but the objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.inputs.classes import ClassDistribution, ClassGroups
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram, lift
from optgeom.training.settings import check_seed

ROUND = 50  # iterations between two comparisons of the angles
SETTLED_DEG = 1e-5  # a round that moves no angle further ends the run
SHORTEST = 1e-3  # length of the shortest row of U


class PopulationRisk(torch.nn.Module):
    """Population risk of a loss as a function of free class means, exact in float64.

    Parameters
    ----------
    classes : ClassDistribution
    loss : Loss
    """

    def __init__(self, classes: ClassDistribution, loss: Loss) -> None:
        super().__init__()
        self._whole = ClassMeanProgram.build(classes, loss, grouped=False)
        # Singletons of a full batch coincide at the optimum and are one row here.
        self.program = self._whole.merged()

    @property
    def groups(self) -> ClassGroups:
        """Groups of the classes; each has one row of the means in `program`."""
        return self._whole.groups

    @property
    def num_rows(self) -> int:
        """Rows of the means: one per class, all singletons of a full batch together."""
        return int(self.program.sizes.size)

    def forward(self, means: Tensor) -> Tensor:
        """Risk at means (C, d), brought to length 1 first."""
        unit = torch.nn.functional.normalize(means.double(), dim=1)
        risk: Tensor = _Risk.apply(unit, self.program)  # type: ignore[no-untyped-call]
        return risk

    def gram(self, means: Tensor) -> Array:
        """(C, C) cosines in class order."""
        cosines = _cosines(means)
        cosines[self._whole.coincident, self._whole.coincident] = 1.0
        return lift(self._whole, cosines)


def _cosines(means: Tensor) -> Array:
    unit = torch.nn.functional.normalize(means.detach().double(), dim=1).cpu().numpy()
    cosines = np.clip(unit @ unit.T, -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return np.asarray(cosines)


class _Risk(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, unit: Tensor, program: ClassMeanProgram) -> Tensor:
        ctx.save_for_backward(unit)
        ctx.program = program
        return unit.new_tensor(program.risk(_cosines(unit)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (unit,) = ctx.saved_tensors
        pull = torch.from_numpy(ctx.program.gradient(_cosines(unit))).to(unit)
        return 2.0 * grad * (pull @ unit), None


@dataclass(frozen=True, kw_only=True, eq=False)
class PopulationRun:
    """Result of `train_population`.

    Attributes
    ----------
    means : (C, d)
        Unit class means, in class order.
    gram : (C, C)
    risk : float
    iterations : int
    gradient_norm : float
        Largest entry of the gradient at the end, relative to that at the start.
    """

    means: Array
    gram: Array
    risk: float
    iterations: int
    gradient_norm: float


def train_population(
    classes: ClassDistribution,
    loss: Loss,
    *,
    dim: int | None = None,
    iterations: int = 5000,
    seed: int = 0,
    watch: Callable[[int, float, Array], None] | None = None,
) -> PopulationRun:
    """Train free class means on the exact objective by L-BFGS.

    Parameters
    ----------
    classes : ClassDistribution
    loss : Loss
    dim : int, optional
        Embedding dimension; C by default (the optimum needs at most C - 1).
    iterations : int
        Most iterations; the run ends earlier when 50 of them move no angle by more than 1e-5 degrees.
    seed : int
        Of the random start.
    watch : callable, optional
        Called with (iteration, risk, gram) at the start and after every 50 iterations.

    Returns
    -------
    PopulationRun

    Raises
    ------
    InvalidInputError
        A number outside its domain, or a loss that is undefined for these classes.
    """
    classes = _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    loss = _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    _checks.integer("iterations", iterations, at_least=1)
    objective = PopulationRisk(classes, loss)
    size = classes.num_classes if dim is None else _checks.integer("dim", dim, at_least=1)
    start = torch.randn(
        objective.num_rows, size, dtype=torch.float64, generator=torch.Generator().manual_seed(check_seed(seed))
    )
    # The gradient in u is that in v divided by |u|: short rows are fast ones. Rare classes feel forces in proportion to
    # their frequency, and L-BFGS would need hundreds of iterations to learn what these lengths tell it at once.
    frequent = torch.from_numpy(objective.program.groups.proportions / objective.program.groups.proportions.max())
    means = torch.nn.functional.normalize(start, dim=1) * frequent.sqrt().clamp_min(SHORTEST)[:, None]
    means.requires_grad_(True)
    first = _gradient(objective, means)
    optimizer = torch.optim.LBFGS(
        [means],
        max_iter=ROUND,
        max_eval=4 * ROUND,
        history_size=60,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    # At low temperature the objective is flat: in its own unit the first step would be lost in rounding.
    unit = 1.0 / max(first, np.finfo(np.float64).tiny)

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = objective(means) * unit
        value.backward()
        return value

    done, grams = 0, objective.gram(means)
    if watch is not None:
        watch(0, objective(means).item(), grams)
    while done < iterations:
        before = grams
        optimizer.step(closure)
        done += ROUND
        grams = objective.gram(means)
        if watch is not None:
            watch(done, objective(means).item(), grams)
        if np.degrees(np.abs(np.arccos(grams) - np.arccos(before)).max()) < SETTLED_DEG:
            break
    vectors = torch.nn.functional.normalize(means.detach(), dim=1).numpy()
    groups = objective.groups
    left = _gradient(objective, means) / first if first > 0 else math.nan
    return PopulationRun(
        means=vectors[groups.index],
        gram=grams,
        risk=objective(means).item(),
        iterations=done,
        gradient_norm=left,
    )


def _gradient(objective: PopulationRisk, means: Tensor) -> float:
    (gradient,) = torch.autograd.grad(objective(means), means)
    return float(gradient.abs().max())
