r"""Contrastive learning whose true latents are known: positive pairs of latents, seen through a generator.

A batch has N anchors z_i, uniform on the sphere, with positives z+_i ~ p(. | z_i), and both are anchors to each other
(the laws are symmetric). The negatives of an anchor are the K = 2 (N - 1) rows of the other anchors and their
positives, never itself nor its own positive:

    term = log sum_j m_j exp(h.h_j/tau) - h.h+/tau,      sum_j m_j = K,

so that values are those of the asymptotic theory with K negatives, low by about the relative variance of exp(h.h_j/tau)
over 2 K.

rho > 0, negatives from the own support. Independent anchors never share a slice, so anchors come in groups of
`per_slice`, each on one slice. In a batch of such groups a share s = (per_slice - 1)/(N - 1) of the negatives is on the
own slice already; the loss is given (rho - s)/(1 - s), which makes rho in all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from latents import require
from latents.generators import Generator
from optgeom.embeddings.metrics.recovery import LatentRecovery, latent_recovery
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.sampling.asymptotic import check_rho
from optgeom.sampling.conditionals import Conditional
from optgeom.sampling.latents import uniform
from optgeom.training.loop import Loop, LoopResult
from optgeom.training.losses import SupportCorrectedLoss
from optgeom.training.settings import Settings
from optgeom.training.task import REFRESHING_BATCHES, GramDistance, Task, Terms

Array = npt.NDArray[np.float64]

BATCH, PER_SLICE = 256, 16
LOGGED_LATENTS = 200  # whose cosines the log compares
MEASURED_LATENTS = 4000
MEASURED_SEED = 990_001  # no training run draws from it


class LatentPairTask(Task):
    """An encoder of generated data, trained on positive pairs of latents.

    Parameters
    ----------
    encoder : torch.nn.Module
        (B, *generator.shape) -> (B, q) features, brought to length 1 by the loss.
    generator : Generator
    conditional : Conditional
        Law of the positives.
    temperature : float
        tau > 0.
    rho : float
        In [0, 1]: share of the negatives that come from the anchor's own support; 0 is InfoNCE.
    alpha : float
        >= 0: 1 puts the positive into the denominator, 0 is the form of the asymptotic theory.
    batch : int
        N >= 2 pairs.
    per_slice : int
        Anchors that share a slice, where rho > 0 and coordinates are fixed; divides the batch.
    seed : int

    Raises
    ------
    InvalidInputError
        Dimensions that differ, a group that does not divide the batch or is all of it, a rho below the share that
        groups bring anyway.
    IncompatibleError
        rho > 0 where supports are neither the whole sphere nor slices.
    """

    def __init__(
        self,
        encoder: torch.nn.Module,
        generator: Generator,
        conditional: Conditional,
        *,
        temperature: float = 0.3,
        rho: float = 0.0,
        alpha: float = 0.0,
        batch: int = BATCH,
        per_slice: int = PER_SLICE,
        seed: int = 0,
    ) -> None:
        if generator.dimension != conditional.dimension:
            came = f"{generator.dimension} and {conditional.dimension}"
            raise InvalidInputError(
                f"`generator` must take latents of the dimension of `conditional`; got {came} (make it anew)"
            )
        require(batch >= 2, f"`batch` must be a whole number >= 2; got {batch!r}")
        self.batch = batch
        check_rho(rho)
        self._per_slice = _group(conditional, rho, self.batch, per_slice)
        already = (self._per_slice - 1) / (self.batch - 1)
        if self._per_slice > 1 and rho < already:
            raise InvalidInputError(
                f"`rho` must be 0 or at least {already:.4g}, the share that groups of {per_slice} bring; "
                f"got {rho!r} (take smaller groups)"
            )
        corrected = (rho - already) / (1 - already) if self._per_slice > 1 else rho
        self.loss = SupportCorrectedLoss(temperature, corrected, alpha=alpha)
        self.module, self.generator, self.conditional = encoder, generator, conditional
        self.expected_count, self.optimal_loss = 2.0 * self.batch, None
        self.description = {
            "features": "generated data",
            "encoder": str(encoder),
            "generator": f"{type(generator).__name__} {generator.shape}",
            "conditional": repr(conditional),
            "temperature": temperature,
            "rho": rho,
            "alpha": alpha,
            "batch": self.batch,
            "per_slice": self._per_slice,
        }
        self._seed, self._random = seed, np.random.default_rng(seed)
        self._probe = uniform(np.random.default_rng(MEASURED_SEED), LOGGED_LATENTS, conditional.dimension)
        self.to(torch.device("cpu"))

    def to(self, device: torch.device) -> None:
        """Encoder and generator; latents are drawn on the CPU."""
        self._device = device
        self.module.to(device)
        self.generator.to(device)

    def draw(self) -> tuple[Array, Array]:
        """(N, d) anchors and their positives; anchors of one slice follow each other."""
        groups = self.batch // self._per_slice
        z = uniform(self._random, groups, self.conditional.dimension)
        if self._per_slice > 1:
            z = self.conditional.sample_support(self._random, np.repeat(z, self._per_slice, axis=0))
        return z, self.conditional.sample(self._random, z)

    def _inputs(self) -> Tensor:
        """(2 N, ...) generated data of the next batch, pair by pair."""
        return self._generated(np.stack(self.draw(), axis=1).reshape(2 * self.batch, -1))

    def _generated(self, z: Array) -> Tensor:
        with torch.no_grad():
            return self.generator(torch.from_numpy(z).float().to(self._device))  # type: ignore[no-any-return]

    def terms(self) -> Terms:
        """Loss of the next batch of pairs."""
        inputs = self._inputs()
        features = self.module(inputs)
        sharing = self.batch if self.conditional.full_support else self._per_slice
        supports = torch.arange(self.batch, device=self._device) // sharing
        total, count = self.loss.sum_and_count(features.view(self.batch, 2, -1), supports)
        return Terms(total=total, count=count, inputs=inputs.sum(), features=features.detach().float().sum())

    @torch.no_grad()
    def embed(self, z: Array) -> Array:
        """(n, q) unit features of (n, d) latents, float64: the map h = encoder(g(z)), as `asymptotic_loss` takes it."""
        training = self.module.training
        self.module.eval()
        features = self.module(self._generated(np.asarray(z, dtype=np.float64)))
        self.module.train(training)
        return np.asarray(torch.nn.functional.normalize(features.double(), dim=1).cpu().numpy())

    def distance(self) -> GramDistance:
        """Cosines of the features of fixed latents beside those of the latents: the distance from orthogonal maps."""
        features = self.embed(self._probe)
        return GramDistance.between(features @ features.T, self._probe @ self._probe.T)

    def recovery(self, samples: int = MEASURED_LATENTS) -> LatentRecovery:
        """Metrics on latents that were not trained on, the same for every run."""
        z = uniform(np.random.default_rng(MEASURED_SEED + 1), samples, self.conditional.dimension)
        return latent_recovery(z, self.embed(z))

    def state(self) -> dict[str, Any]:
        """State of the draws, as text: its integers are larger than those of a checkpoint."""
        return {"random": json.dumps(self._random.bit_generator.state)}

    def load(self, state: dict[str, Any]) -> None:
        """Go on with these draws."""
        self._random.bit_generator.state = json.loads(state["random"])

    def refresh(self) -> None:
        """Statistics of batch normalisation for the averaged parameters."""
        update_bn((self._inputs() for _ in range(REFRESHING_BATCHES)), self.module)


@dataclass(frozen=True, kw_only=True, eq=False)
class LatentRun:
    """What an encoder recovered.

    Attributes
    ----------
    recovery : LatentRecovery
        On fresh latents.
    loop : LoopResult
        Its loss is that of batches.
    task : LatentPairTask
        `task.embed` is the trained map.
    """

    recovery: LatentRecovery
    loop: LoopResult
    task: LatentPairTask


def train_latents(
    task: LatentPairTask, settings: Settings, *, folder: Path | None = None, resume: bool = False
) -> LatentRun:
    """Train an encoder on pairs of latents and measure what it recovered.

    Parameters
    ----------
    task : LatentPairTask
    settings : Settings
    folder : Path, optional
        For checkpoint and log.
    resume : bool
        See `Loop.run`; on a CPU bit for bit the run that was not interrupted.

    Raises
    ------
    InvalidInputError, DivergedError, TrainingInterruptedError
        As `Loop.run`.
    """
    finished = Loop(task, settings, folder=folder).run(resume)
    return LatentRun(recovery=task.recovery(), loop=finished, task=task)


def _group(conditional: Conditional, rho: float, batch: int, per_slice: int) -> int:
    """Anchors per slice: 1 where no support is asked for, or where all anchors have the same."""
    require(per_slice >= 2, f"`per_slice` must be a whole number >= 2; got {per_slice!r}")
    if rho == 0 or conditional.full_support:
        return 1
    if not conditional.fixed:
        name = type(conditional).__name__
        raise IncompatibleError(
            f"`conditional` must have the whole sphere or slices as supports for rho > 0; got {name} (take rho = 0)"
        )
    require(
        batch % per_slice == 0 and batch != per_slice,
        f"`per_slice` must divide `batch` = {batch} and be less; got {per_slice} (at least 2 anchors per slice)",
    )
    return per_slice
