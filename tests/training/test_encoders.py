"""Encoders on real images: networks, losses of batches, and digits that end at the optimum and not at the simplex."""

from __future__ import annotations

import math

import numpy as np
import pytest

import optgeom as og

torch = pytest.importorskip("torch")

from helpers.training_cases import blobs, encoder_task, settings  # noqa: E402

from optgeom.training.batches import Augmentation  # noqa: E402
from optgeom.training.data import LabelledData, hold_out, load_data, make_long_tailed  # noqa: E402
from optgeom.training.encoder import train_encoder  # noqa: E402
from optgeom.training.features import FreeFeatures  # noqa: E402
from optgeom.training.losses import GeneralizedContrastiveLoss, SupConLoss  # noqa: E402
from optgeom.training.networks import make_encoder  # noqa: E402
from optgeom.training.settings import Settings  # noqa: E402


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def digits(temperature, seed, share=0.0):
    pytest.importorskip("sklearn")
    data, held_out = hold_out(make_long_tailed(load_data("digits"), [174, 87, 29]), share)
    chosen = Settings(steps=1500, learning_rate=1e-3, log_every=500, seed=seed, device="cpu")
    return train_encoder(data, og.SupCon(temperature, 64, 2), settings=chosen, held_out=held_out)


def check_digits(temperature, seed):
    run = digits(temperature, seed)
    assert run.distance.max_angle_error_deg <= 3.0
    assert run.simplex.max_angle_error_deg >= 4 * run.distance.max_angle_error_deg
    assert run.geometry.classes.counts.tolist() == [174, 87, 29]
    assert run.validation.max_angle_error_deg == pytest.approx(run.distance.max_angle_error_deg, abs=1e-3)


def test_digits_end_at_the_optimum():
    check_digits(0.5, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_digits_end_at_the_optimum_for_every_seed(temperature, seed):
    check_digits(temperature, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "share"), [(0.5, 1 / 3), (1.0, 1 / 3), (0.1, 1 / 3), (0.1, 0.0)])
def test_held_out_digits_and_low_temperature_are_reported(temperature, share):
    # No threshold: at T = .1 the optimum is a few degrees from the simplex and the loss nearly flat, and 9 held-out
    # images are few.
    run = digits(temperature, 0, share)
    print(f"T = {temperature}: train {run.distance}, held out {run.held_out}")
    assert (run.held_out is not None) == (share > 0)


@pytest.mark.parametrize(("arch", "parameters"), [("mlp", None), ("cnn", None), ("resnet18", 11_168_832)])
def test_networks(arch, parameters):
    shape = (3, 32, 32)
    network = make_encoder(arch, shape, dim=16, seed=1)
    assert network(torch.randn(2, *shape)).shape == (2, 16)
    if parameters is not None:
        # Convolutions and norms of ResNet-18 with a 3 x 3 stem, without its classifier: He et al. 2016, table 1.
        head = 512 * 512 + 512 + 512 * 16 + 16
        assert sum(parameter.numel() for parameter in network.parameters()) == parameters + head
    same = make_encoder(arch, shape, dim=16, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), same.parameters(), strict=True))
    other = make_encoder(arch, shape, dim=16, seed=2)
    assert not all(torch.equal(a, b) for a, b in zip(network.parameters(), other.parameters(), strict=True))


def test_networks_for_what_they_are_not():
    with pytest.raises(og.IncompatibleError, match=r"`arch` 'cnn' needs images .*got inputs of shape .20,. .take mlp."):
        make_encoder("cnn", (20,), dim=4)
    with pytest.raises(og.InvalidInputError, match="`arch` must be one of mlp, cnn, resnet18; got 'vit'"):
        make_encoder("vit", (3, 8, 8), dim=4)
    assert make_encoder("mlp", (20,), dim=4)(torch.zeros(2, 20)).shape == (2, 4)


def test_losses_in_torch():
    assert isinstance(og.SupCon(0.5, 8, 1, "skip").torch_module(), SupConLoss)
    assert og.SupCon(0.5, 8, 1, "skip").torch_module().singletons == "skip"
    module = og.InfoNCE(0.5, 3, 0.0, "mean", "scl").torch_module()
    assert isinstance(module, GeneralizedContrastiveLoss) and (module.negatives, module.sampling, module.psi.alpha) == (
        3,
        "scl",
        0.0,
    )
    for loss in (og.SupCon(0.5), og.InfoNCE(0.5, math.inf, negatives_reduction="mean")):
        with pytest.raises(og.IncompatibleError, match="must have finite batches and negatives"):
            loss.torch_module()


@pytest.mark.parametrize(
    "loss", [og.SupCon(0.5, 8, 2), og.SupCon(0.5, 8, 1, "skip"), og.InfoNCE(0.5, 4, sampling="scl")], ids=str
)
@pytest.mark.parametrize("arch", ["mlp", "cnn"])
def test_every_loss_trains(loss, arch):
    run = train_encoder(
        blobs(), loss, settings=settings(steps=30), arch=arch, dim=4, batch=8 if isinstance(loss, og.InfoNCE) else None
    )
    assert run.embeddings.shape == (60, 4) and run.labels.shape == (60,)
    np.testing.assert_allclose(np.linalg.norm(run.embeddings, axis=1), 1.0, rtol=1e-6)
    assert math.isfinite(run.loop.loss) and run.held_out is None


def test_full_batch_and_balanced_sampler():
    full = train_encoder(blobs(), og.SupConFullBatch(0.5), settings=settings(steps=60, accumulate=1), dim=4)
    # One batch: nothing is random but the views, so the loss approaches its optimum from above.
    assert full.geometry.risk <= full.loop.loss < full.geometry.risk + 0.2
    balanced = train_encoder(blobs(), og.SupCon(0.5, 8), settings=settings(steps=5), dim=4, sampler_power=0.0)
    np.testing.assert_allclose(balanced.geometry.proportions, 1 / 3)
    assert balanced.geometry.names == ("0", "1", "2")
    with pytest.raises(og.IncompatibleError, match="`loss` takes all samples at once"):
        train_encoder(blobs(), og.SupConFullBatch(0.5), settings=settings(), sampler_power=0.0)


def test_data_and_losses_of_another_type():
    with pytest.raises(
        og.InvalidInputError, match=r"`data` must be a LabelledData; got list .LabelledData.from_arrays"
    ):
        train_encoder([1, 2], og.SupCon(0.5, 8))
    with pytest.raises(og.InvalidInputError, match="`loss` must be a loss; got str"):
        train_encoder(blobs(), "supcon")


def test_batch_sizes_that_do_not_fit():
    with pytest.raises(
        og.IncompatibleError,
        match="`batch` must be the batch size of the loss, 8, since the optimum depends on it; got 9",
    ):
        train_encoder(blobs(), og.SupCon(0.5, 8), settings=settings(), batch=9)
    with pytest.raises(og.IncompatibleError, match="`batch` must be above the 16 negatives of an anchor"):
        train_encoder(blobs(), og.InfoNCE(0.5, 16), settings=settings(), batch=16)


def test_distance_is_that_of_validate():
    task = encoder_task()
    embeddings = task.embed(task.data.inputs).numpy()
    validation = og.validate(embeddings, task.data.labels(), og.solve(task.data.classes(), og.InfoNCE(0.5, 4)))
    distance = task.distance()
    assert distance.max_angle_error_deg == pytest.approx(validation.max_angle_error_deg, abs=1e-4)
    assert task.module.training is True


def test_own_encoder():
    own = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))
    run = train_encoder(blobs(), og.SupCon(0.5, 8), settings=settings(steps=5), encoder=own)
    assert run.encoder is own and run.embeddings.shape == (60, 3)


def test_class_without_held_out_samples():
    data, held_out = hold_out(blobs(), 1 / 11)
    assert held_out.counts.tolist() == [2, 1, 0]
    run = train_encoder(data, og.SupCon(0.5, 8), settings=settings(steps=5), dim=4, held_out=held_out)
    assert run.held_out.angles_deg[1:] == (None, None)


class FreeSamples(FreeFeatures):
    """An encoder that looks up a free vector by the number of the sample, (B, 1)."""

    def forward(self, numbers):
        return self.rows.index_select(0, numbers[:, 0].long())


def test_free_samples_collapse_to_class_means_at_the_optimum():
    classes = og.ClassDistribution.from_counts([30, 15, 5])
    data = LabelledData.from_arrays(np.arange(50.0)[:, None], np.repeat(np.arange(3), classes.counts))
    chosen = Settings(steps=1000, learning_rate=0.03, device="cpu", log_every=500)
    free = FreeSamples(50, 4).float()
    run = train_encoder(data, og.SupConFullBatch(0.5), settings=chosen, encoder=free, augmentation=Augmentation())
    means = np.stack([run.embeddings[run.labels == name].mean(axis=0) for name in classes.names])
    assert np.linalg.norm(means, axis=1).min() > 0.9999
    assert run.distance.max_angle_error_deg < 0.2
    assert run.loop.loss == pytest.approx(run.geometry.risk, abs=1e-4)
