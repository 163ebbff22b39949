"""Small runs for the tests of the loop, one in a process of its own that can be killed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import optgeom as og
from optgeom.training.batches import Augmentation, Sampler
from optgeom.training.data import LabelledData
from optgeom.training.encoder import EncoderTask
from optgeom.training.loop import Loop
from optgeom.training.networks import make_encoder
from optgeom.training.settings import Settings

COUNTS = (30, 20, 10)
LONG = 120  # steps of the run that is killed


def blobs(seed: int = 0) -> LabelledData:
    """Three classes of small images."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3), COUNTS)
    centres = rng.normal(size=(3, 1, 6, 6))
    images = centres[labels] + 0.3 * rng.normal(size=(labels.size, 1, 6, 6))
    return LabelledData.from_arrays(images.astype(np.float32), labels, source="blobs")


def encoder_task(
    loss: og.Loss | None = None, arch: str = "cnn", power: float = 1.0, shuffled: bool = False
) -> EncoderTask:
    """With everything that has a state: batch normalisation, sampler, augmentation, sampled negatives."""
    data = blobs()
    chosen = og.InfoNCE(0.5, 4) if loss is None else loss
    sampler = Sampler(data, power=power, shuffled=shuffled, seed=5)
    geometry = og.solve(sampler.classes(), chosen)
    return EncoderTask(
        make_encoder(arch, (1, 6, 6), dim=4, seed=3),
        data,
        chosen,
        geometry=geometry,
        sampler=sampler,
        augmentation=Augmentation(shift=1, noise=0.1),
        batch=8,
        seed=0,
        description={"arch": arch},
    )


def settings(**changed: object) -> Settings:
    """A run of 40 steps."""
    given = {
        "steps": 40,
        "learning_rate": 0.01,
        "device": "cpu",
        "log_every": 7,
        "checkpoint_every": 5,
        "accumulate": 2,
        **changed,
    }
    return Settings(**given)


def main(folder: str, resume: str) -> None:
    """Train, printing each step on stdout; the weights go to `final.pt`."""
    torch.set_num_threads(1)
    task = encoder_task()
    loop = Loop(task, settings(steps=LONG), folder=Path(folder), after_step=lambda step: print(step, flush=True))
    finished = loop.run(resume == "resume")
    torch.save({"module": task.module.state_dict(), "records": finished.records}, Path(folder) / "final.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
