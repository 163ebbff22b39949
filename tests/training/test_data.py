"""Data, samplers and augmentation: what is there is what the optimum is computed for."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import optgeom as og

torch = pytest.importorskip("torch")

from helpers.training_cases import blobs  # noqa: E402

from optgeom.training import require_torch  # noqa: E402
from optgeom.training.batches import (  # noqa: E402
    Augmentation,
    Sampler,
)
from optgeom.training.data import LabelledData, hold_out, load_data, make_long_tailed  # noqa: E402


def test_digits():
    pytest.importorskip("sklearn")
    data = load_data("digits")
    assert data.inputs.shape == (1797, 1, 8, 8) and data.inputs.dtype == torch.float32
    assert float(data.inputs.max()) == 1.0 and not data.mirrored
    assert data.names == tuple("0123456789") and data.counts.tolist()[:3] == [178, 182, 177]
    subset = make_long_tailed(data, [174, 87, 29])
    assert subset.counts.tolist() == [174, 87, 29] and subset.names == ("0", "1", "2")
    assert subset.classes().counts.tolist() == [174, 87, 29]
    assert set(subset.labels()) == {"0", "1", "2"}
    again = make_long_tailed(data, [174, 87, 29])
    assert torch.equal(again.inputs, subset.inputs)
    assert not torch.equal(make_long_tailed(data, [174, 87, 29], seed=1).inputs, subset.inputs)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(og.MissingDependencyError, match=r"the digits need scikit-learn: pip install 'optgeom\[data\]'"):
        load_data("digits")


def test_without_torch(monkeypatch):
    require_torch()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(og.MissingDependencyError, match=r"training needs torch: pip install 'optgeom\[torch\]'"):
        require_torch()


def test_without_torchvision(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(og.MissingDependencyError, match="cifar10 needs torchvision: pip install torchvision"):
        load_data("cifar10", root=tmp_path)


def test_torchvision_files(monkeypatch, tmp_path):
    """Stand-ins for torchvision's classes, which keep pixels in `data`, labels in `targets` and names in `classes`."""

    class Cifar:
        def __init__(self, root, train, download):
            assert not download
            if not train:
                raise RuntimeError("Dataset not found or corrupted. You can use download=True to download it")
            self.data = np.full((4, 32, 32, 3), 255, dtype=np.uint8)
            self.targets, self.classes = [0, 1, 2, 0], ["plane", "car", "bird"]

    class Mnist(Cifar):
        def __init__(self, root, train, download):
            super().__init__(root, train, download)
            self.data, self.targets = torch.zeros(4, 28, 28, dtype=torch.uint8), torch.tensor(self.targets)

    datasets = types.ModuleType("torchvision.datasets")
    datasets.CIFAR10, datasets.MNIST = Cifar, Mnist
    package = types.ModuleType("torchvision")
    package.datasets = datasets
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", datasets)
    data = load_data("cifar10", root=tmp_path)
    assert data.inputs.shape == (4, 3, 32, 32) and float(data.inputs.max()) == 1.0
    assert data.names == ("plane", "car", "bird") and data.mirrored and data.counts.tolist() == [2, 1, 1]
    digits = load_data("mnist", root=tmp_path)
    assert digits.inputs.shape == (4, 1, 28, 28) and not digits.mirrored
    with pytest.raises(
        og.InvalidInputError,
        match=r"cifar10 must lie under .*nothing is downloaded unasked .torchvision.datasets.CIFAR10",
    ):
        load_data("cifar10", root=tmp_path, train=False)


def test_npz(tmp_path):
    np.savez(tmp_path / "d.npz", X=np.arange(12.0).reshape(4, 3), y=["b", "a", "b", "b"])
    data = load_data(str(tmp_path / "d.npz"))
    assert data.names == ("a", "b") and data.codes.tolist() == [1, 0, 1, 1] and data.inputs.shape == (4, 3)
    np.savez(tmp_path / "e.npz", X=np.zeros((4, 3)), labels=np.zeros(4))
    (tmp_path / "f.npz").write_bytes(b"no archive")
    with open(tmp_path / "h.npz", "wb") as file:
        np.save(file, np.zeros((4, 3)))
    np.savez(tmp_path / "i.npz", X=np.zeros((2, 3)), y=np.array([0x110000, 97], dtype=np.uint32).view("U1"))
    for name, message in (
        ("e", r"must hold arrays X and y; got X, labels \(np.savez"),
        ("f", r"reading it failed: .* \(np.savez"),
        ("g", r"cannot read .*No such file or directory \(check the path\)"),
        ("h", "must hold arrays X and y; got one array without a name"),
        ("i", "reading it failed: its text has characters that do not exist"),
    ):
        with pytest.raises(og.InvalidInputError, match=message):
            load_data(str(tmp_path / f"{name}.npz"))
    with pytest.raises(
        og.InvalidInputError, match=r"`data` must be digits, cifar10, cifar100, mnist or a .npz file; got 'imagenet'"
    ):
        load_data("imagenet")


def test_arrays_of_every_shape():
    y = [0, 1]
    assert LabelledData.from_arrays(np.zeros((2, 5, 5)), y).inputs.shape == (2, 1, 5, 5)
    assert LabelledData.from_arrays(np.zeros((2, 3, 5, 5)), y).inputs.shape == (2, 3, 5, 5)
    assert LabelledData.from_arrays(np.zeros((2, 5, 6, 3)), y).inputs.shape == (2, 3, 5, 6)
    assert float(LabelledData.from_arrays(np.full((2, 5), 255, dtype=np.uint8), y).inputs.max()) == 1.0
    bad = np.zeros((2, 5))
    bad[1, 2] = np.nan
    for inputs, labels, message in (
        (np.zeros(2), y, "`X` must be numbers of shape"),
        (np.array([["a"], ["b"]]), y, "`X` must be numbers"),
        (np.zeros((2, 5)), [0, 1, 1], "`y` must have one label per sample, 2; got 3"),
        (bad, y, "`X` must be finite; got NaN or infinity in sample 1"),
    ):
        with pytest.raises(og.InvalidInputError, match=message):
            LabelledData.from_arrays(inputs, labels)


def test_long_tails():
    data = blobs()
    shares = og.ClassDistribution.from_proportions([0.7, 0.2, 0.1])
    subset = make_long_tailed(data, shares)
    # Largest subset with these proportions: 30 of the first class are .7 of 42.86.
    assert subset.counts.tolist() == [30, 8, 4]
    assert make_long_tailed(data, og.ClassDistribution.from_proportions([0.998, 0.001, 0.001])).counts.tolist() == [
        30,
        1,
        1,
    ]
    assert make_long_tailed(data, og.ClassDistribution.from_counts([5, 4])).counts.tolist() == [5, 4]
    with pytest.raises(og.InvalidInputError, match="`counts` must be at most what blobs has; got 21 for class 1 of 20"):
        make_long_tailed(data, [5, 21, 3])
    with pytest.raises(og.InvalidInputError, match="at most the 3 classes of blobs; got 4 classes"):
        make_long_tailed(data, [1, 1, 1, 1])


def test_holding_out():
    data = blobs()
    rest, held_out = hold_out(data, 1 / 3)
    assert held_out.counts.tolist() == [10, 6, 3] and rest.counts.tolist() == [20, 14, 7]
    rows = {tuple(row) for part in (rest, held_out) for row in part.inputs.flatten(1).tolist()}
    assert len(rows) == 60
    assert hold_out(data, 0.0)[1].num_samples == 0
    with pytest.raises(og.InvalidInputError, match=r"`holdout` must be in \[0, 1\); got 1"):
        hold_out(data, 1)


@pytest.mark.parametrize("power", [1.0, 0.0, 0.5, -1.0])
def test_sampler_law(power):
    data = blobs()
    sampler = Sampler(data, power=power)
    drawn = sampler.draw(60_000)[:, 0]
    weights = data.counts.astype(float) ** power
    np.testing.assert_allclose(sampler.classes().proportions, weights / weights.sum(), rtol=1e-14)
    share = np.bincount(data.codes[drawn].numpy()) / 60_000
    np.testing.assert_allclose(share, weights / weights.sum(), atol=5 * 0.5 / np.sqrt(60_000))
    # Within a class every sample equally often.
    times = torch.bincount(drawn, minlength=60)[data.codes == 2].double()
    expected = 60_000 * weights[2] / weights.sum() / 10
    assert (times - expected).abs().max() < 5 * np.sqrt(expected)


def test_epochs_take_every_sample_once():
    sampler = Sampler(blobs(), shuffled=True)
    drawn = torch.cat([sampler.draw(25)[:, 0] for _ in range(12)])
    for epoch in drawn.split(60):
        assert torch.equal(epoch.sort().values, torch.arange(60))
    state = sampler.state()
    expected = sampler.draw(33)
    other = Sampler(blobs(), shuffled=True, seed=8)
    other.load(state)
    assert torch.equal(other.draw(33), expected)
    with pytest.raises(og.InvalidInputError, match="`power` must be 1 for shuffled epochs"):
        Sampler(blobs(), power=0.5, shuffled=True)


def test_positives():
    data = blobs()
    sampler = Sampler(data)
    images = sampler.draw(50, views=3)
    assert images.shape == (50, 3) and torch.equal(images[:, 0], images[:, 2])
    classes = sampler.draw(50, views=3, positives="class")
    assert torch.equal(data.codes[classes[:, 0]], data.codes[classes[:, 2]])
    assert not torch.equal(classes[:, 0], classes[:, 2])


def test_sampler_of_an_empty_class():
    data = blobs().take(np.arange(50))
    with pytest.raises(og.InvalidInputError, match="`data` must have a sample of every class; got none of class 2"):
        Sampler(data)


def test_shifted_and_mirrored_images():
    image = torch.zeros(1, 1, 5, 5)
    image[0, 0, 2, 1] = 1.0
    generator = torch.Generator().manual_seed(0)
    views = Augmentation(shift=1)(image.expand(400, 1, 5, 5), generator)
    assert views.shape == (400, 1, 5, 5)
    places = {tuple(place[1:].tolist()) for place in views[:, 0].nonzero()}
    assert places == {(row, column) for row in (1, 2, 3) for column in (0, 1, 2)}
    assert torch.equal(views.sum(dim=(1, 2, 3)), torch.ones(400))
    mirrored = Augmentation(mirror=True)(image.expand(400, 1, 5, 5), generator)
    assert {tuple(place[1:].tolist()) for place in mirrored[:, 0].nonzero()} == {(2, 1), (2, 3)}
    channels = torch.arange(2.0)[None, :, None, None].expand(3, 2, 4, 4)
    assert torch.equal(Augmentation(mirror=True)(channels, generator), channels)


def test_noise():
    rows = torch.zeros(1000, 20)
    noisy = Augmentation(noise=0.5)(rows, torch.Generator().manual_seed(0))
    assert float(noisy.std()) == pytest.approx(0.5, rel=0.03)
    assert torch.equal(Augmentation()(rows, torch.Generator()), rows)
    assert Augmentation.usual((3, 32, 32), mirrored=True) == Augmentation(shift=4, mirror=True, noise=0.05)
    assert Augmentation.usual((20,), mirrored=False).shift == 0
    with pytest.raises(og.InvalidInputError, match="`noise` must be >= 0"):
        Augmentation(noise=-1.0)
