"""Labelled data for encoders: where it comes from, and how it is made long-tailed. Nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from optgeom.errors import InvalidInputError, MissingDependencyError
from optgeom.formatting import first_of
from optgeom.inputs import files
from optgeom.inputs.classes import ClassDistribution
from optgeom.inputs.labels import encode
from optgeom.training.settings import check_seed

TORCHVISION = {"cifar10": "CIFAR10", "cifar100": "CIFAR100", "mnist": "MNIST"}
SOURCES = ("digits", *TORCHVISION)
NPZ = "np.savez(path, X=X, y=y) writes them"


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledData:
    """Samples, each of one class.

    Attributes
    ----------
    inputs : (n, d) or (n, channels, height, width) float32
    codes : (n,) int64
        Class of each sample, an index into `names`.
    names : tuple of str, length C
    source : str
    mirrored : bool
        Whether an image and its mirror image mean the same (photographs; not digits).
    """

    inputs: Tensor
    codes: Tensor
    names: tuple[str, ...]
    source: str
    mirrored: bool = False

    @classmethod
    def from_arrays(cls, inputs: Any, labels: Any, *, source: str = "arrays") -> LabelledData:
        """Data from arrays; whole numbers of 8 bits are taken as pixels and divided by 255.

        Parameters
        ----------
        inputs : (n, d), (n, height, width), (n, channels, height, width) or (n, height, width, channels)
        labels : (n,)
        source : str
            What to call them.

        Raises
        ------
        InvalidInputError
            Shapes that do not match, numbers that are not finite, labels that cannot be used.
        """
        values = np.asarray(inputs)
        if values.dtype.kind not in "fiub" or values.ndim not in (2, 3, 4) or 0 in values.shape:
            shapes = "(n, d), (n, h, w), (n, c, h, w) or (n, h, w, c)"
            raise InvalidInputError(
                f"`X` must be numbers of shape {shapes}; got {_came(values)} (stack one row or image per sample)"
            )
        encoded = encode(labels)
        if encoded.codes.shape[0] != values.shape[0]:
            came = f"{encoded.codes.shape[0]} (take both from the same split)"
            raise InvalidInputError(f"`y` must have one label per sample, {values.shape[0]}; got {came}")
        scaled = values.astype(np.float32) / (255.0 if values.dtype == np.uint8 else 1.0)
        if not np.isfinite(scaled).all():
            row = int(np.argwhere(~np.isfinite(scaled))[0][0])
            raise InvalidInputError(
                f"`X` must be finite; got NaN or infinity in sample {row} (leave it out, or repair it)"
            )
        if scaled.ndim == 3:
            scaled = scaled[:, None]
        elif scaled.ndim == 4 and scaled.shape[3] in (1, 3) and scaled.shape[1] not in (1, 3):
            scaled = scaled.transpose(0, 3, 1, 2)
        return cls(
            inputs=torch.from_numpy(np.ascontiguousarray(scaled)),
            codes=torch.from_numpy(encoded.codes.astype(np.int64)),
            names=encoded.names,
            source=source,
        )

    @property
    def num_samples(self) -> int:
        """n."""
        return int(self.codes.shape[0])

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(C,) samples of each class."""
        return np.bincount(self.codes.numpy(), minlength=len(self.names)).astype(np.int64)

    def classes(self) -> ClassDistribution:
        """The classes with the counts of these samples."""
        return ClassDistribution.from_counts(self.counts, self.names)

    def labels(self) -> npt.NDArray[np.str_]:
        """(n,) class name of each sample."""
        return np.asarray(np.asarray(self.names)[self.codes.numpy()])

    def take(self, rows: npt.NDArray[np.intp]) -> LabelledData:
        """These samples only; the classes stay."""
        index = torch.from_numpy(rows)
        return replace(self, inputs=self.inputs[index], codes=self.codes[index])


def load_data(source: str, *, root: str | os.PathLike[str] = "data", train: bool = True) -> LabelledData:
    """Data by name or from a file.

    Parameters
    ----------
    source : str
        "digits" (1797 images of scikit-learn, 8 x 8), "cifar10", "cifar100", "mnist" (through torchvision, whose files
        must lie under `root`), or a `.npz` file with arrays X (n, ...) and y (n,).
    root : path
        Where torchvision finds its files.
    train : bool
        The training part, or the test part; for the torchvision sets only.

    Raises
    ------
    InvalidInputError
        An unknown name, or files that do not exist or are wrong.
    MissingDependencyError
        scikit-learn or torchvision is not installed.
    """
    if source == "digits":
        return _digits()
    if source in TORCHVISION:
        return _torchvision(source, Path(root), train)
    if source.lower().endswith(".npz"):
        return _npz(Path(source))
    raise InvalidInputError(f"`data` must be {', '.join(SOURCES)} or a .npz file; got {source!r}")


def make_long_tailed(
    data: LabelledData, counts: Sequence[int] | npt.ArrayLike | ClassDistribution, seed: int = 0
) -> LabelledData:
    """Draw a random subset with given counts, of the first C classes in class order.

    Parameters
    ----------
    data : LabelledData
    counts : array-like (C,) or ClassDistribution
        Samples of each class. A distribution without counts gives the largest subset with its proportions, rounded down
        but with at least one sample per class: train with the counts that result (`classes()`).
    seed : int

    Raises
    ------
    InvalidInputError
        More classes, or more samples of a class, than the data have.
    """
    available = data.counts
    if isinstance(counts, ClassDistribution) and counts.counts is None:
        _check_classes(counts.num_classes, data)
        shares = counts.proportions
        wanted = np.maximum((shares * (available[: shares.size] / shares).min() * (1 + 1e-12)).astype(np.int64), 1)
    else:
        given = counts.counts if isinstance(counts, ClassDistribution) else counts
        wanted = np.asarray(given, dtype=np.int64)
        _check_classes(wanted.size, data)
    lacking = np.flatnonzero(wanted > available[: wanted.size])
    if lacking.size:
        c = int(lacking[0])
        came = f"{wanted[c]} for class {data.names[c]} of {available[c]}"
        raise InvalidInputError(
            f"`counts` must be at most what {data.source} has; got {came} (divide all counts by one factor)"
        )
    rng = np.random.default_rng(check_seed(seed))
    codes = data.codes.numpy()
    rows = [rng.permutation(np.flatnonzero(codes == c))[:number] for c, number in enumerate(wanted.tolist())]
    subset = data.take(np.sort(np.concatenate(rows)))
    return replace(subset, names=data.names[: wanted.size])


def hold_out(data: LabelledData, share: float, seed: int = 0) -> tuple[LabelledData, LabelledData]:
    """Split the data, class by class, into a part to train with and `share` of each class, held out.

    The share is rounded down, so a rare class may have no sample in it.
    """
    if not 0 <= share < 1:
        raise InvalidInputError(
            f"`holdout` must be in [0, 1); got {share!r} (the share of each class that is not trained on)"
        )
    rng = np.random.default_rng(check_seed(seed))
    codes = data.codes.numpy()
    held_out = np.zeros(codes.size, dtype=np.bool_)
    for c in range(len(data.names)):
        rows = rng.permutation(np.flatnonzero(codes == c))
        held_out[rows[: int(share * rows.size + 1e-9)]] = True
    return data.take(np.flatnonzero(~held_out)), data.take(np.flatnonzero(held_out))


def _check_classes(wanted: int, data: LabelledData) -> None:
    if wanted > len(data.names):
        most = f"at most the {len(data.names)} classes of {data.source}"
        raise InvalidInputError(f"`counts` must be of {most}; got {wanted} classes (leave the last ones out)")


def _came(values: npt.NDArray[Any]) -> str:
    return f"{values.dtype} of shape {values.shape}"


def _digits() -> LabelledData:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingDependencyError("the digits need scikit-learn: pip install 'optgeom[data]'") from error
    digits = load_digits()
    return LabelledData.from_arrays((digits.images / 16.0).astype(np.float32), digits.target, source="digits")


def _npz(path: Path) -> LabelledData:
    try:
        with files.open_regular(path) as file, files.opened(file) as arrays:
            if isinstance(arrays, np.ndarray) or not {"X", "y"} <= set(arrays):
                came = "one array without a name" if isinstance(arrays, np.ndarray) else first_of(arrays) or "none"
                raise InvalidInputError(f"{path} must hold arrays X and y; got {came} ({NPZ})")
            inputs, labels = arrays["X"], arrays["y"]
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror or error} (check the path)") from error
    except InvalidInputError:
        raise
    except ValueError as error:
        why = files.reason(error)
        raise InvalidInputError(
            f"{path} must be a .npz file with arrays X and y; reading it failed: {why} ({NPZ})"
        ) from error
    return LabelledData.from_arrays(inputs, labels, source=path.name)


def _torchvision(name: str, root: Path, train: bool) -> LabelledData:
    try:
        from torchvision import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"{name} needs torchvision: pip install torchvision, as built for your torch"
        ) from error
    try:
        files = getattr(datasets, TORCHVISION[name])(root=str(root), train=train, download=False)
    except RuntimeError as error:
        wanted = f"torchvision.datasets.{TORCHVISION[name]}({str(root)!r}, download=True)"
        raise InvalidInputError(
            f"{name} must lie under {root}; it does not, and nothing is downloaded unasked ({wanted} does)"
        ) from error
    pixels = files.data.numpy() if isinstance(files.data, Tensor) else np.asarray(files.data)
    codes = torch.as_tensor(files.targets, dtype=torch.int64)
    samples = LabelledData.from_arrays(pixels, codes.numpy(), source=name)
    names = tuple(" ".join(str(word).split()) for word in files.classes)
    return replace(samples, codes=codes, names=names, mirrored=name.startswith("cifar"))
