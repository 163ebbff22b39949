"""An encoder on labelled data, with a loss whose optimum is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from optgeom._numerics import Array
from optgeom.embeddings.moments.class_moments import ClassMoments
from optgeom.embeddings.statistics.directions import class_directions
from optgeom.errors import IncompatibleError
from optgeom.geometry import Geometry
from optgeom.losses import InfoNCE, Loss, SupCon, SupConFullBatch
from optgeom.training.augmentation import Augmentation
from optgeom.training.batch_norm import refresh_statistics
from optgeom.training.data import LabelledData
from optgeom.training.device import to_device
from optgeom.training.distance import GramDistance
from optgeom.training.losses import ContrastiveLoss, GeneralizedContrastiveLoss, InfoNCEPsi, SupConLoss
from optgeom.training.samplers import Sampler
from optgeom.training.task import Task, Terms

EMBEDDED_ROWS = 1024  # at once
MEASURED_ROWS = 20000  # of the training data, for the distance in the log


def torch_loss(loss: Loss, seed: int = 0) -> ContrastiveLoss:
    """The torch module whose expectation is the risk of `loss`.

    Raises
    ------
    IncompatibleError
        A loss that no finite batch has.
    """
    if isinstance(loss, (SupCon, SupConFullBatch)):
        if isinstance(loss, SupConFullBatch) or loss.batch_size != math.inf:
            return SupConLoss(loss.temperature, singletons=loss.singletons)
    elif isinstance(loss, InfoNCE) and loss.negatives != math.inf and loss.negative_law is None:
        psi = InfoNCEPsi(loss.alpha, loss.negatives_reduction)
        return GeneralizedContrastiveLoss(loss.temperature, int(loss.negatives), psi, loss.sampling, seed)
    held = type(loss).__name__
    raise IncompatibleError(
        f"`loss` must have finite batches and negatives, ucl or scl, for an encoder; got {held} (give their number)"
    )


class Encoded(torch.nn.Module):
    """An encoder with its loss, so that the state of both is kept."""

    def __init__(self, encoder: torch.nn.Module, loss: ContrastiveLoss) -> None:
        super().__init__()
        self.encoder, self.loss = encoder, loss


class EncoderTask(Task):
    """An encoder trained on views of samples.

    Under SupCon the views of a row of the batch are augmentations of one image. Under InfoNCE they are two samples of
    one class, since the optimum asks for positives that know the class and nothing else.

    Parameters
    ----------
    encoder : torch.nn.Module
    data : LabelledData
    loss : Loss
    geometry : Geometry
        The optimum for the classes of the sampler and this loss.
    sampler : Sampler
    augmentation : Augmentation
    batch : int
        Samples a batch; SupCon with another batch size has another optimum.
    seed : int
    description : dict
        What else a resumed run must agree with.
    """

    def __init__(
        self,
        encoder: torch.nn.Module,
        data: LabelledData,
        loss: Loss,
        geometry: Geometry,
        sampler: Sampler,
        augmentation: Augmentation,
        batch: int,
        seed: int,
        description: dict[str, Any],
    ) -> None:
        self.module = Encoded(encoder, torch_loss(loss, seed))
        self.data, self._sampler, self._augmentation, self.batch = data, sampler, augmentation, batch
        self.views = loss.views if isinstance(loss, (SupCon, SupConFullBatch)) else 2
        self._positives = "class" if isinstance(loss, InfoNCE) else "image"
        self._everything = isinstance(loss, SupConFullBatch)
        self._optimal, self.optimal_loss = np.asarray(geometry.gram), geometry.risk
        self.expected_count = float((data.num_samples if self._everything else batch) * self.views)
        self.describe = {
            **description,
            "data": data.source,
            "classes": dict(zip(data.names, data.counts.tolist(), strict=True)),
            "sampler_power": sampler.power,
            "shuffled": sampler.shuffled,
            "loss": loss.to_dict(),
            "batch": batch,
            "augmentation": augmentation.as_dict(),
        }
        self._seed = seed
        self._rows = np.arange(data.num_samples)
        if data.num_samples > MEASURED_ROWS:
            self._rows = np.sort(np.random.default_rng(seed).choice(data.num_samples, MEASURED_ROWS, replace=False))
        self.to(torch.device("cpu"))

    def to(self, device: torch.device) -> None:
        """The encoder and the whole data; sample numbers are still drawn on the CPU."""
        self._device = device
        self.module.to(device)
        self._inputs, self._codes = self.data.inputs.to(device), self.data.codes.to(device)
        self._generator = torch.Generator(device=device).manual_seed(self._seed + 2)

    def _next(self) -> tuple[Tensor, Tensor]:
        """(N V, ...) augmented views and (N,) classes."""
        if self._everything:
            chosen = torch.arange(self.data.num_samples)[:, None].expand(-1, self.views)
        else:
            chosen = self._sampler.draw(self.batch, self.views, self._positives)
        index = to_device(chosen.contiguous(), self._device)
        return self._augmentation(self._inputs[index.flatten()], self._generator), self._codes[index[:, 0]]

    def terms(self) -> Terms:
        """Loss of the next batch of views."""
        views, codes = self._next()
        features = self.module.encoder(views)
        total, count = self.module.loss.sum_and_count(features.view(codes.shape[0], self.views, -1), codes)
        return Terms(total, count, views.detach().sum(), features.detach().float().sum())

    @torch.no_grad()
    def embed(self, inputs: Tensor) -> Tensor:
        """(n, d) unit features of inputs as they are, without augmentation, float32 on the CPU."""
        training = self.module.training
        self.module.eval()
        parts = [self.module.encoder(part.to(self._device)) for part in inputs.split(EMBEDDED_ROWS)]
        self.module.train(training)
        return torch.nn.functional.normalize(torch.cat(parts).float(), dim=1).cpu()

    def distance(self) -> GramDistance:
        """Directions of the class means of the training samples beside the optimum."""
        rows = torch.from_numpy(self._rows)
        return GramDistance.between(self.gram(self.data.inputs[rows], self.data.codes[rows]), self._optimal)

    def gram(self, inputs: Tensor, codes: Tensor) -> Array:
        """(C, C) cosines of the directions of the class means, free of attenuation.

        Nan for classes without a direction.
        """
        features = self.embed(inputs).double()
        number = len(self.data.names)
        sums = torch.zeros(number, features.shape[1], dtype=torch.float64).index_add_(0, codes, features)
        squares = torch.zeros(number, dtype=torch.float64).index_add_(0, codes, features.square().sum(dim=1))
        counts = torch.bincount(codes, minlength=number).numpy()
        there = np.flatnonzero(counts > 0)
        names = tuple(self.data.names[c] for c in there)
        found = class_directions(ClassMoments(names, counts[there], sums.numpy()[there], squares.numpy()[there]))
        gram = np.full((number, number), np.nan)
        gram[np.ix_(there, there)] = found.gram
        return gram

    def state(self) -> dict[str, Any]:
        """Sampler, and the generator of the augmentation."""
        return {"sampler": self._sampler.state(), "augmentation": self._generator.get_state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._sampler.load(state["sampler"])
        self._generator.set_state(state["augmentation"])

    def refresh(self) -> None:
        """Statistics of batch normalisation for the weights as they are now, from fresh batches."""
        refresh_statistics(self.module, lambda: self.module.encoder(self._next()[0]))
