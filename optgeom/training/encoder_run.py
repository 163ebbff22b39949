"""Train an encoder on labelled data and compare it with the optimum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from optgeom._numerics import Array
from optgeom.embeddings.result import Validation
from optgeom.embeddings.validate import validate
from optgeom.errors import IncompatibleError
from optgeom.geometry import Geometry
from optgeom.losses import InfoNCE, Loss, SupCon, SupConFullBatch
from optgeom.solvers.api import solve
from optgeom.training.augmentation import Augmentation, usual_augmentation
from optgeom.training.data import LabelledData
from optgeom.training.distance import GramDistance
from optgeom.training.encoder_task import EncoderTask, torch_loss
from optgeom.training.encoders import make_encoder
from optgeom.training.loop import Loop, LoopResult
from optgeom.training.samplers import Sampler
from optgeom.training.settings import Settings, check_size

BATCH = 64


@dataclass(frozen=True, eq=False)
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
        For training; its realised counts, bent by the sampler, are what the optimum is computed for.
    loss : Loss
        SupCon with a finite batch size (its number of images is the batch), InfoNCE with finitely many negatives, or
        SupConFullBatch.
    settings : Settings, optional
    arch : {"mlp", "cnn", "resnet18"}
    dim : int
    batch : int, optional
        Rows of a batch for InfoNCE, each with two samples of one class; more than its negatives, 64 at least by
        default.
    sampler_power, shuffled
        See `Sampler`.
    augmentation : Augmentation, optional
        By default shifts of an eighth of an image and some noise.
    held_out : LabelledData, optional
        Samples of the same classes to be measured at the end.
    encoder : torch.nn.Module, optional
        One's own, in place of `arch` and `dim`.
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
    settings = Settings(learning_rate=1e-3) if settings is None else settings
    check_size("dim", dim)
    torch_loss(loss)
    size = _batch(loss, batch, data)
    sampler = Sampler(data, sampler_power, shuffled, settings.seed + 1)
    if isinstance(loss, SupConFullBatch) and (sampler_power != 1 or settings.accumulate != 1):
        raise IncompatibleError(
            "`loss` supcon-full takes all samples at once; got a sampler or accumulation beside it (leave them out)"
        )
    geometry = solve(sampler.classes(), loss)
    shape = tuple(data.inputs.shape[1:])
    made = make_encoder(arch, shape, dim, settings.seed) if encoder is None else encoder
    chosen = usual_augmentation(shape, data.mirrored) if augmentation is None else augmentation
    chosen.check(shape)
    description = {"arch": arch if encoder is None else type(encoder).__name__, "dim": dim, "shape": list(shape)}
    task = EncoderTask(made, data, loss, geometry, sampler, chosen, size, settings.seed, description)
    found = Loop(task, settings, folder, progress).run(resume)
    embeddings, labels = task.embed(data.inputs).numpy(), data.labels()
    gram = task.gram(data.inputs, data.codes)
    optimal = np.asarray(geometry.gram)
    number = geometry.num_classes
    simplex = np.where(np.eye(number) > 0, 1.0, -1.0 / (number - 1))
    other = None
    if held_out is not None and held_out.num_samples > 0:
        other = GramDistance.between(task.gram(held_out.inputs, held_out.codes), optimal)
    return EncoderRun(
        geometry,
        task.module.encoder,
        embeddings,
        labels,
        gram,
        GramDistance.between(gram, optimal),
        GramDistance.between(gram, simplex),
        other,
        validate(embeddings, labels, geometry),
        found,
    )


def _batch(loss: Loss, batch: int | None, data: LabelledData) -> int:
    """Samples of a batch, before their views."""
    if batch is not None:
        check_size("batch", batch)
    size = _fitting(loss, batch, data)
    check_size("batch", size * getattr(loss, "views", 1))
    return size


def _fitting(loss: Loss, batch: int | None, data: LabelledData) -> int:
    if isinstance(loss, SupCon):
        size = int(loss.batch_size)
        if batch is not None and batch != size:
            wanted = f"the batch size of the loss, {size}, since the optimum depends on it"
            raise IncompatibleError(f"`batch` must be {wanted}; got {batch} (leave it out, or change the loss)")
        return size
    if isinstance(loss, InfoNCE):
        least = int(loss.negatives) + 1
        size = max(BATCH, least) if batch is None else batch
        if size < least:
            wanted = f"above the {least - 1} negatives of an anchor, which come from it"
            raise IncompatibleError(f"`batch` must be {wanted}; got {size} (raise it, or lower the negatives)")
        return size
    if batch is not None and batch != data.num_samples:
        raise IncompatibleError(
            f"`batch` must be all {data.num_samples} samples for a full batch; got {batch} (leave it out)"
        )
    return data.num_samples


def weights_of(encoder: torch.nn.Module) -> dict[str, Any]:
    """State of an encoder on the CPU, ready to be saved."""
    return {name: value.detach().cpu() for name, value in encoder.state_dict().items()}
