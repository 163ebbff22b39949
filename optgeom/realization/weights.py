r"""Weights of pairs of samples: which samples should be similar, in group form.

The loss of weighted InfoNCE sees the matrix W only through its rows, normalised without the diagonal: w~_ij = w_ij /
sum_{k != i} w_ik. Samples with the same label have the same rows and are one group, exactly; entry (g, h) of every G x
G array here speaks of one sample of group g and ANOTHER sample of group h, so that the diagonal belongs to two
different samples of one group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks, choices
from optgeom._numerics import EPS, Array, freeze, log_nonnegative, logsumexp_rows, read_only
from optgeom.errors import InvalidInputError
from optgeom.programs.group_matrix import Sizes
from optgeom.realization import schemes, weight_matrix

HARD = "hard scheme, the entropic bound is not attained"
PARAMETERS = {"supcon": (), "soft-supcon": ("epsilon",), "y-aware": ("bandwidth", "paper"), "x-clr": ("temperature",)}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Weights:
    """Weights of pairs of samples, on groups of samples with the same weights.

    Made by `from_matrix`, by a scheme (`supcon`, `soft_supcon`, `y_aware`, `x_clr`) or by its name (`by_name`). Arrays
    are read-only.

    Attributes
    ----------
    index : (n,) intp
        Group of each sample.
    sizes : (G,) int64
        Samples of each group.
    log_weights : (G, G)
        log w; -inf for a weight of zero, and where there is no pair (the diagonal of a group of one sample).
    labels : (G,) text, (G, p) numbers, or None
        Label of each group.
    scheme : dict
        Name and parameters, for JSON.
    notes : tuple of str
        What the caller should know: symmetrised, hard, samples without a positive.
    symmetric : bool
        Whether W, up to one factor per row, is symmetric. No similarity attains the entropic bound otherwise.
    precision : float
        Relative rounding of the weights as given (that of float32 for a matrix in float32).
    """

    index: npt.NDArray[np.intp]
    sizes: Sizes
    log_weights: Array
    scheme: dict[str, Any]
    labels: npt.NDArray[Any] | None = None
    notes: tuple[str, ...] = field(default=())
    symmetric: bool = True
    precision: float = EPS

    def __post_init__(self) -> None:
        if self.n < 3:
            raise InvalidInputError(
                f"`labels` must be of at least 3 samples; got {self.n} (with two, every embedding has the same loss)"
            )
        object.__setattr__(self, "log_weights", np.where(self.count > 0, self.log_weights, -np.inf))
        freeze(self)
        without = ~np.isfinite(logsumexp_rows(self.log_weights))
        if without.all():
            raise InvalidInputError(
                "`weights` must have a positive weight; got only zeros off the diagonal (every class has one sample?)"
            )
        derived: list[str] = []
        if self.hard:
            g, h = (int(which[0]) for which in np.nonzero((self.count > 0) & np.isneginf(self.log_weights)))
            i = int(np.flatnonzero(self.index == g)[0])
            j = int(np.flatnonzero((self.index == h) & (np.arange(self.n) != i))[0])
            derived.append(f"{HARD} (w_{i},{j} = 0)")
        if without.any():
            alone = int(self.sizes[without].sum())
            derived.append(
                f"{alone} samples have no positive: they carry no term of the loss and act as negatives only"
            )
        # A copy comes with the notes of its original.
        object.__setattr__(self, "notes", (*self.notes, *(note for note in derived if note not in self.notes)))

    def __repr__(self) -> str:
        kind = f"hard={self.hard}, symmetric={self.symmetric}"
        return f"Weights(n={self.n}, groups={self.sizes.size}, scheme={self.scheme!r}, {kind})"

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self.index.size)

    @functools.cached_property
    def count(self) -> Array:
        """(G, G) samples of group h other than one given sample of group g: m_h, and m_g - 1 on the diagonal."""
        count = np.broadcast_to(self.sizes.astype(np.float64), (self.sizes.size, self.sizes.size)).copy()
        np.fill_diagonal(count, self.sizes - 1.0)
        return read_only(count)

    @functools.cached_property
    def hard(self) -> bool:
        """Whether some pair has weight zero."""
        return bool(np.any((self.count > 0) & np.isneginf(self.log_weights)))

    @functools.cached_property
    def log_rows(self) -> Array:
        """(G, G) log of w~_ij = w_ij / sum_{k != i} w_ik; a row of -inf for a sample without positives."""
        norm = logsumexp_rows(self.log_weights + log_nonnegative(self.count))
        return read_only(self.log_weights - np.where(np.isfinite(norm), norm, 0.0)[:, None])

    @functools.cached_property
    def with_positive(self) -> npt.NDArray[np.bool_]:
        """(G,) whether the samples of the group have a pair of positive weight."""
        return np.asarray(np.isfinite(self.log_rows).any(axis=1))

    @staticmethod
    def from_matrix(matrix: Any) -> Weights:
        """Weights from an (n, n) matrix, dense or `scipy.sparse`.

        Parameters
        ----------
        matrix : array-like of shape (n, n)
            Non-negative, n >= 3; the diagonal is ignored. Asymmetry by rounding is averaged away, and a matrix that
            only differs from a symmetric one by factors of its rows is replaced by that one; the notes say so.

        Raises
        ------
        InvalidInputError
            Not square, negative (the pair is named), not finite, or without any positive weight.
        """
        grouped = weight_matrix.read(matrix)
        sizes = np.bincount(grouped.index).astype(np.int64)
        log_weights, symmetric, note = weight_matrix.symmetrise(log_nonnegative(grouped.weights))
        notes = (*grouped.notes, note) if note else grouped.notes
        if not symmetric:
            notes = (*notes, "weights are not symmetrisable: no similarity can attain the entropic bound")
        return Weights(
            index=grouped.index,
            sizes=sizes,
            log_weights=log_weights,
            scheme={"name": "matrix"},
            notes=notes,
            symmetric=symmetric,
            precision=grouped.precision,
        )

    @staticmethod
    def supcon(labels: Any) -> Weights:
        """Supervised contrastive weights w_ij = 1{y_i = y_j}: a hard scheme.

        `labels` holds one class per sample, as whole numbers, text or booleans.
        """
        return Weights._from_scheme(schemes.supcon(labels))

    @staticmethod
    def soft_supcon(labels: Any, epsilon: float) -> Weights:
        """w_ij = 1 within a class and `epsilon` (0 < epsilon <= 1) across classes.

        With cosine similarity the bound is attained iff temperature * log(1/epsilon) <= C/(C-1), whatever the class
        sizes.
        """
        return Weights._from_scheme(schemes.soft_supcon(labels, epsilon))

    @staticmethod
    def y_aware(labels: Any, bandwidth: float = 1.0, paper: bool = False) -> Weights:
        """w_ij = exp(-|y_i - y_j|^2 / (2 bandwidth^2)); `paper` for the form without the 2.

        `labels` is (n,) or (n, p) numbers; `bandwidth` > 0 has their unit.
        """
        return Weights._from_scheme(schemes.y_aware(labels, bandwidth, paper))

    @staticmethod
    def x_clr(labels: Any, temperature: float) -> Weights:
        """w_ij = exp(cos(y_i, y_j) / temperature); `labels` is (n, p) numbers without zero rows.

        With cosine similarity at the same temperature the optimal embedding is z = Q y / |y| for an orthogonal Q.
        """
        return Weights._from_scheme(schemes.x_clr(labels, temperature))

    @staticmethod
    def by_name(scheme: str, labels: Any, **parameters: Any) -> Weights:
        """The scheme of this name.

        "supcon", "soft-supcon" (epsilon), "y-aware" (bandwidth, paper) or "x-clr" (temperature).

        Parameters that are None are left at their default.
        """
        name = _checks.choice("scheme", scheme.replace("_", "-") if isinstance(scheme, str) else scheme, choices.Scheme)
        given = {key: value for key, value in parameters.items() if value is not None}
        for key in given:
            if key not in PARAMETERS[name]:
                takes = " and ".join(PARAMETERS[name]) or "none"
                raise InvalidInputError(f"`{key}` must not be given for the scheme {name}; it takes {takes} (drop it)")
        needed = {"soft-supcon": "epsilon", "x-clr": "temperature"}.get(name)
        if needed is not None and needed not in given:
            raise InvalidInputError(
                f"`{needed}` must be given for the scheme {name}; got none (see Weights.{name.replace('-', '_')})"
            )
        makers: dict[str, Callable[..., Weights]] = {
            "supcon": Weights.supcon,
            "soft-supcon": Weights.soft_supcon,
            "y-aware": Weights.y_aware,
            "x-clr": Weights.x_clr,
        }
        return makers[name](labels, **given)

    @staticmethod
    def _from_scheme(scheme: schemes.Scheme) -> Weights:
        return Weights(
            index=scheme.index,
            sizes=np.bincount(scheme.index, minlength=len(scheme.labels)).astype(np.int64),
            log_weights=scheme.log_weights,
            labels=scheme.labels,
            scheme=scheme.parameters,
            notes=scheme.notes,
        )

    def to_parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Plain values and arrays for a file, which `from_parts` reads."""
        document = {
            "scheme": self.scheme,
            "weight_notes": list(self.notes),
            "symmetric": self.symmetric,
            "precision": self.precision,
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "weight_index": self.index,
            "weight_sizes": self.sizes,
            "log_weights": self.log_weights,
        }
        if self.labels is not None:
            arrays["labels" if self.labels.dtype.kind == "f" else "class_labels"] = self.labels
        return document, arrays

    @staticmethod
    def from_parts(document: dict[str, Any], arrays: dict[str, Any]) -> Weights:
        """Weights in a file; raises ValueError where the parts do not fit together."""
        index, sizes = arrays["weight_index"], arrays["weight_sizes"]
        log_weights = arrays["log_weights"].astype(np.float64)
        whole = (
            index.dtype.kind in "iu" and sizes.dtype.kind in "iu" and index.ndim == sizes.ndim == 1 and index.size > 0
        )
        within = whole and index.min() >= 0 and index.max() < sizes.size
        if not within or not np.array_equal(np.bincount(index, minlength=sizes.size), sizes):
            raise ValueError("its groups of samples and their sizes differ")
        if log_weights.shape != (sizes.size, sizes.size) or not np.all(log_weights < np.inf):
            raise ValueError("its weights are not a matrix of numbers for its groups")
        if document["symmetric"] and not np.array_equal(log_weights, log_weights.T):
            raise ValueError("its weights are not symmetric, as it says")
        labels = arrays["labels"].astype(np.float64) if "labels" in arrays else arrays.get("class_labels")
        if labels is not None and labels.shape[0] != sizes.size:
            raise ValueError("its labels are not one per group")
        return Weights(
            index=index.astype(np.intp),
            sizes=sizes.astype(np.int64),
            log_weights=log_weights,
            scheme=dict(document["scheme"]),
            labels=labels,
            notes=tuple(document["weight_notes"]),
            symmetric=bool(document["symmetric"]),
            precision=float(document["precision"]),
        )
