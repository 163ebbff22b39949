"""Train an encoder on labelled data with a loss whose optimum is known, and compare the two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.swa_utils import update_bn

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import class_directions
from optgeom.embeddings.moments.first_pass import ClassMoments
from optgeom.embeddings.result import Validation
from optgeom.embeddings.validate import validate
from optgeom.errors import IncompatibleError
from optgeom.geometry import Geometry
from optgeom.losses import Loss
from optgeom.solvers.api import solve
from optgeom.training.batches import Augmentation, Sampler
from optgeom.training.data import LabelledData
from optgeom.training.loop import Loop, LoopResult
from optgeom.training.losses import ContrastiveLoss
from optgeom.training.networks import make_encoder
from optgeom.training.settings import Settings, check_size, to_device
from optgeom.training.task import REFRESHING_BATCHES, GramDistance, Task, Terms

EMBEDDED_ROWS = 1024  # at once
MEASURED_ROWS = 20000  # of the training data, for the distance in the log


class EncoderWithLoss(torch.nn.Module):
    """An encoder with its loss, so that a checkpoint has the state of both."""

    encoder: torch.nn.Module
    loss: ContrastiveLoss

    def __init__(self, encoder: torch.nn.Module, loss: ContrastiveLoss) -> None:
        super().__init__()
        self.encoder, self.loss = encoder, loss


class EncoderTask(Task):
    """An encoder trained on views of samples.

    Where positives share the image (SupCon), the views of a row of the batch are augmentations of one image. Where they
    share the class (InfoNCE), they are two samples of one class, since the optimum asks for positives that know the
    class and nothing else.

    Parameters
    ----------
    encoder : torch.nn.Module
    data : LabelledData
    loss : Loss
    geometry : Geometry
        The optimum for the classes of the sampler and this loss.
    sampler : Sampler
    augmentation : Augmentation
    batch : int, optional
        Samples per batch; SupCon with another batch size has another optimum.
    seed : int
    description : dict
        What else a resumed run must agree with.

    Raises
    ------
    IncompatibleError
        A loss that cannot be trained on batches, or whose batch size is not the given one.
    """

    module: EncoderWithLoss

    def __init__(
        self,
        encoder: torch.nn.Module,
        data: LabelledData,
        loss: Loss,
        *,
        geometry: Geometry,
        sampler: Sampler,
        augmentation: Augmentation,
        batch: int | None,
        seed: int,
        description: dict[str, Any],
    ) -> None:
        self.module = EncoderWithLoss(encoder, loss.torch_module(seed=seed, classes=geometry.classes))
        self.plan = loss.batch_plan(batch=batch, num_samples=data.num_samples)
        self.data, self._sampler, self._augmentation = data, sampler, augmentation
        self._optimal, self.optimal_loss = np.asarray(geometry.gram), geometry.risk
        self.expected_count = float(self.plan.size * self.plan.views)
        self.description = {
            **description,
            "data": data.source,
            "classes": dict(zip(data.names, data.counts.tolist(), strict=True)),
            "sampler_power": sampler.power,
            "shuffled": sampler.shuffled,
            "loss": loss.to_dict(),
            "batch": self.plan.size,
            "augmentation": augmentation.as_dict(),
        }
        self._seed = seed
        self._measured = np.arange(data.num_samples)
        if data.num_samples > MEASURED_ROWS:
            self._measured = np.sort(np.random.default_rng(seed).choice(data.num_samples, MEASURED_ROWS, replace=False))
        self.to(torch.device("cpu"))

    def to(self, device: torch.device) -> None:
        """The encoder and the whole data; sample numbers are still drawn on the CPU."""
        self._device = device
        self.module.to(device)
        self._inputs, self._codes = self.data.inputs.to(device), self.data.codes.to(device)
        self._generator = torch.Generator(device=device).manual_seed(self._seed + 2)

    def draw(self) -> tuple[Tensor, Tensor]:
        """(N V, ...) augmented views and (N,) classes of the next batch."""
        if self.plan.everything:
            chosen = torch.arange(self.data.num_samples)[:, None].expand(-1, self.plan.views)
        else:
            chosen = self._sampler.draw(self.plan.size, views=self.plan.views, positives=self.plan.positives)
        index = to_device(chosen.contiguous(), self._device)
        return self._augmentation(self._inputs[index.flatten()], self._generator), self._codes[index[:, 0]]

    def terms(self) -> Terms:
        """Loss of the next batch of views."""
        views, codes = self.draw()
        features = self.module.encoder(views)
        total, count = self.module.loss.sum_and_count(features.view(codes.shape[0], self.plan.views, -1), codes)
        return Terms(total=total, count=count, inputs=views.detach().sum(), features=features.detach().float().sum())

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
        return GramDistance.between(self.gram(self.data.take(self._measured)), self._optimal)

    def gram(self, data: LabelledData) -> Array:
        """(C, C) cosines of the directions of the class means, without attenuation; nan where a class has none."""
        features, codes = self.embed(data.inputs).double(), data.codes
        number = len(self.data.names)
        sums = torch.zeros(number, features.shape[1], dtype=torch.float64).index_add_(0, codes, features)
        squares = torch.zeros(number, dtype=torch.float64).index_add_(0, codes, features.square().sum(dim=1))
        counts = torch.bincount(codes, minlength=number).numpy()
        present = np.flatnonzero(counts > 0)
        names = tuple(self.data.names[c] for c in present)
        moments = ClassMoments(names, counts[present], sums.numpy()[present], squares.numpy()[present])
        gram = np.full((number, number), np.nan)
        gram[np.ix_(present, present)] = class_directions(moments).gram
        return gram

    def state(self) -> dict[str, Any]:
        """Sampler, and the generator of the augmentation."""
        return {"sampler": self._sampler.state(), "augmentation": self._generator.get_state()}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self._sampler.load(state["sampler"])
        self._generator.set_state(state["augmentation"])

    def refresh(self) -> None:
        """Statistics of batch normalisation for the parameters as they are now, from fresh batches."""
        update_bn((self.draw()[0] for _ in range(REFRESHING_BATCHES)), self.module.encoder)


@dataclass(frozen=True, kw_only=True, eq=False)
class EncoderRun:
    """A trained encoder beside the optimum.

    Attributes
    ----------
    geometry : Geometry
        The optimum for the classes as they were drawn.
    encoder : torch.nn.Module
    embeddings : (n, d) float32
        Unit features of the training samples, not augmented.
    labels : (n,) str
    gram : (C, C)
        Cosines between the directions of the class means of the training samples.
    distance : GramDistance
        Of this matrix from the optimum.
    simplex : GramDistance
        Of this matrix from the balanced simplex.
    held_out : GramDistance or None
        Of the samples that were not trained on from the optimum.
    validation : Validation
        Everything that `optgeom.validate` says about the embeddings.
    loop : LoopResult
    """

    geometry: Geometry
    encoder: torch.nn.Module
    embeddings: np.ndarray
    labels: np.ndarray
    gram: Array
    distance: GramDistance
    simplex: GramDistance
    held_out: GramDistance | None
    validation: Validation
    loop: LoopResult


def train_encoder(
    data: LabelledData,
    loss: Loss,
    *,
    settings: Settings | None = None,
    arch: str = "mlp",
    dim: int = 32,
    batch: int | None = None,
    sampler_power: float = 1.0,
    shuffled: bool = False,
    augmentation: Augmentation | None = None,
    held_out: LabelledData | None = None,
    encoder: torch.nn.Module | None = None,
    folder: Path | None = None,
    resume: bool = False,
    progress: bool = False,
) -> EncoderRun:
    """Train an encoder with a contrastive loss and compare its class means with the optimum.

    Parameters
    ----------
    data : LabelledData
        For training. The optimum is computed for its realised counts, as the sampler draws them.
    loss : Loss
        SupCon with a finite batch size (its number of images is the batch), InfoNCE with finitely many negatives, or
        SupConFullBatch.
    settings : Settings, optional
    arch : {"mlp", "cnn", "resnet18"}
    dim : int
    batch : int, optional
        Rows of a batch for InfoNCE, each with two samples of one class: more than its negatives, by default at least
        64.
    sampler_power, shuffled
        See `Sampler`.
    augmentation : Augmentation, optional
        By default shifts of an eighth of an image and some noise.
    held_out : LabelledData, optional
        Samples of the same classes to be measured at the end.
    encoder : torch.nn.Module, optional
        Your own, in place of `arch` and `dim`.
    folder, resume, progress
        See `Loop`.

    Returns
    -------
    EncoderRun

    Raises
    ------
    IncompatibleError
        A loss that cannot be trained on batches, or whose batch size is not the given one; a full batch with another
        sampler.
    InvalidInputError, NotCertifiedError, DivergedError, TrainingInterruptedError
        As `optgeom.solve` and `Loop.run`.
    """
    data = _checks.instance("data", data, LabelledData, "LabelledData.from_arrays(X, y)")
    loss = _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1, batch_size=64)", what="a loss")
    settings = Settings(learning_rate=1e-3) if settings is None else settings
    check_size("dim", dim)
    plan = loss.batch_plan(batch=None if batch is None else check_size("batch", batch), num_samples=data.num_samples)
    check_size("batch", plan.size * plan.views)
    if plan.everything and (sampler_power != 1 or settings.accumulate != 1):
        raise IncompatibleError(
            "`loss` takes all samples at once; got a sampler or accumulation beside it (leave them out)"
        )
    sampler = Sampler(data, power=sampler_power, shuffled=shuffled, seed=settings.seed + 1)
    geometry = solve(sampler.classes(), loss)
    shape = tuple(data.inputs.shape[1:])
    network = make_encoder(arch, shape, dim=dim, seed=settings.seed) if encoder is None else encoder
    views = Augmentation.usual(shape, mirrored=data.mirrored) if augmentation is None else augmentation
    views.check(shape)
    task = EncoderTask(
        network,
        data,
        loss,
        geometry=geometry,
        sampler=sampler,
        augmentation=views,
        batch=batch,
        seed=settings.seed,
        description={
            "arch": arch if encoder is None else type(encoder).__name__,
            "dim": dim,
            "shape": list(shape),
        },
    )
    finished = Loop(task, settings, folder=folder, progress=progress).run(resume)
    embeddings, labels = task.embed(data.inputs).numpy(), data.labels()
    gram, optimal = task.gram(data), np.asarray(geometry.gram)
    number = geometry.num_classes
    simplex = np.where(np.eye(number) > 0, 1.0, -1.0 / (number - 1))
    others = None
    if held_out is not None and held_out.num_samples > 0:
        others = GramDistance.between(task.gram(held_out), optimal)
    return EncoderRun(
        geometry=geometry,
        encoder=task.module.encoder,
        embeddings=embeddings,
        labels=labels,
        gram=gram,
        distance=GramDistance.between(gram, optimal),
        simplex=GramDistance.between(gram, simplex),
        held_out=others,
        validation=validate(embeddings, labels, geometry),
        loop=finished,
    )
