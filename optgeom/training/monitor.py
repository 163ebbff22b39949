r"""How far the features of a training run are from the optimal geometry, step by step.

Each image i of a recent batch has a weight w_i, and each class keeps

    W = sum w_i,     W2 = sum w_i^2,     Q = sum w_i^2 |z_i|^2,     S = sum w_i z_i,

z_i being the unit row, or the mean of its unit views. All of this is a sum over images, so several processes add up to
what one process would have seen, and it is one table, so that they exchange one message. From the sums follow

    rho^2 = (|S|^2 - Q) / (W^2 - W2),      u = S / (W rho),

the weighted mean of z_i . z_j over pairs of different images, and the direction of the class mean. With equal weights
these are the directions of `optgeom.embeddings.moments.directions`, free of the shortening that small samples cause.
W^2 / W2 is the number of images of equal weight that would be as informative.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.distributed import gather_all_tensors

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.embeddings.moments.directions import weighted_directions
from optgeom.embeddings.statistics.class_noise import isotropic_noise
from optgeom.embeddings.statistics.saddle import Saddle, saddle_test
from optgeom.errors import InvalidInputError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.api import solve
from optgeom.training.losses.base import check_features, check_labels
from optgeom.training.task import GramDistance

WEIGHT, SQUARED, SQUARES, SUMS = 0, 1, 2, 3  # columns of W, W2 and Q, and the first of S
IGNORED, OUTSIDE, UNUSABLE, EXTRA_ROWS = 0, 1, 2, 3  # rows of the table after those of the classes
FARTHEST_LABEL = 1_000_000  # a table says what labels up to this one mean
FORGOTTEN = 1e-3  # weight of a class that was last seen seven windows ago: the features have moved on
FEWEST_IMAGES = 1.5  # W^2 / W2 of one image is 1, whose rho would be 0/0


class GeometryMonitor(Metric):
    r"""Distance of the class means of recent features from their optimal geometry, for any training loop.

    Call `update` with the features and labels of each step (cheap, and nothing waits for the device), `compute` when
    you log. What `compute` returns:

    * `max_angle_error_deg`: largest difference of an angle between two class means from the optimal one, degrees
    * `gram_distance`: sqrt(sum (A - A*)^2 / sum A*^2) over pairs of classes, A the cosines and A* the optimal ones
    * `class_r2`: 1 - sum (A - A*)^2 / sum (A* - mean A*)^2; nan where the optimal cosines are equal
    * `simplex_max_angle_error_deg`, `simplex_gram_distance`: the first two for the regular simplex, the optimum of
      balanced classes, instead of A*; the distance in the same unit, sum A*^2
    * `min_rho`, `median_rho`, `max_rho`: tightness, the length of a class mean: 1 where all images of a class coincide,
      0 where they share no direction
    * `classes_seen`: classes with an image in the window
    * `classes_measured`: classes with enough images and a direction: all of the above is over these
    * `images`: weight of the images in the window
    * `smallest_class_images`: W^2 / W2 of the measured class that has fewest images: where this is small, angles are
      noise
    * `proportions_distance`: total variation between the class frequencies in the window and those that the optimum is
      for
    * `unusable_images`: weight of the images left out: features that are not finite, or zero

    All are floats; what is not defined is nan. Lengths and cosines are without bias, but no number has the intervals of
    `optgeom.validate`: each is noisy where classes are small.

    Parameters
    ----------
    geometry : Geometry or ClassDistribution
        The optimum; or the classes to solve for, once, with `loss`.
    loss : Loss, optional
        With a ClassDistribution: the loss that is trained with.
    window : float or None
        An update weighs (1 - 1/window)^age after `age` further updates, window >= 1: in total as much as `window`
        updates of weight one. Features move while a network trains: an average over an epoch says where they were.
        None: equal weights since the last `reset`, for features that do not move, as in an evaluation.
    min_images : float
        Classes with fewer images, W^2 / W2, in the window are not measured; at least 1.5: two images, one of which may
        be 1.3 windows old.
    class_names : sequence of str or None, optional
        Name, among the geometry's, of the class that each label 0, 1, ... stands for; None to ignore a label. By
        default labels are class indices of the geometry.
    ignore_index : int or None
        Label of images to leave out.
    dim : int, optional
        Length of the feature rows; by default that of the first update.
    prefix : str
        Precedes the name of every number.
    **options
        Options of `torchmetrics.Metric`, such as `process_group`.

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.

    Notes
    -----
    Several processes: `compute` adds up their sums, on all of them. That equals exactly one process that sees the union
    of their batches, step by step; with `window` all of them must have made the same number of updates, as
    data-parallel training does.

    Checkpoints: `monitor.persistent(True)` puts the window into the `state_dict`, so that a resumed run logs the same
    numbers.

    The table is float64 and moves to the device of the features. A device without float64:
    `monitor.set_dtype(torch.float32)` first.
    """

    is_differentiable = False
    higher_is_better = None
    # Otherwise torchmetrics calls a metric by adding the batch to a window that has not aged.
    full_state_update = True

    table: Tensor

    def __init__(
        self,
        geometry: Geometry | ClassDistribution,
        loss: Loss | None = None,
        *,
        window: float | None = 100.0,
        min_images: float = FEWEST_IMAGES,
        class_names: Sequence[str | None] | None = None,
        ignore_index: int | None = -1,
        dim: int | None = None,
        prefix: str = "",
        **options: Any,
    ) -> None:
        options.setdefault("dist_sync_fn", _gathered)
        super().__init__(**options)
        self.geometry = _solved(geometry, loss)
        hint = "updates; None to weigh all since the last reset equally"
        self.window = None if window is None else _checks.real("window", window, at_least=1.0, hint=hint)
        self.min_images = _checks.real(
            "min_images", min_images, at_least=FEWEST_IMAGES, hint="the spread of a class takes two images"
        )
        self.ignore_index = ignore_index
        self.dim = None if dim is None else _checks.integer("dim", dim, at_least=1)
        self.prefix = prefix
        self._lowest, self._num_labels, lookup = _lookup(class_names, ignore_index, self.geometry)
        # No buffer: `set_dtype` would make its integers floats.
        self._rows_of_labels = torch.tensor(lookup)
        table = torch.zeros(self.num_classes + EXTRA_ROWS, SUMS + (self.dim or 0), dtype=torch.float64)
        self.add_state("table", table, dist_reduce_fx="sum")

    @property
    def num_classes(self) -> int:
        """C, of the geometry."""
        return self.geometry.num_classes

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Add one batch to the window.

        Parameters
        ----------
        features : (B, d) or (N, V, d)
            Rows, or V views of each of N images; of any length and floating type, with or without a graph.
        labels : (B,) or (N,)
            Class of each row or image, integers. The next `compute` reports one outside the classes: only the device
            knows it.

        Raises
        ------
        InvalidInputError
            Shapes that do not fit.
        """
        check_features(features, "any")
        check_labels(labels, features.shape[0])
        if labels.is_floating_point():
            raise InvalidInputError(f"`labels` must be integers; got {labels.dtype} (class indices: labels.long())")
        rows = features.detach().unsqueeze(1) if features.ndim == 2 else features.detach()
        # Never in place: the table may be shared with a loaded state_dict, or come from inference mode.
        table = self._ready(rows) * (1.0 if self.window is None else 1.0 - 1.0 / self.window)
        if self.window is not None:
            table[:, SQUARED : SQUARES + 1] *= 1.0 - 1.0 / self.window
        entries, squares = _entries(rows, table.dtype)
        self.table = table.index_add_(0, self._slots(labels.to(rows.device), squares), entries)

    def compute(self) -> dict[str, float]:
        """The numbers of this window, over all processes.

        Raises
        ------
        InvalidInputError
            Labels that are not classes of the geometry.
        """
        table = self._on_host()
        outside = table[self.num_classes + OUTSIDE, WEIGHT]
        if outside > 0:
            wanted = f"`labels` must be 0 to {self._num_labels - 1}" + (
                f" or {self.ignore_index}" if self.ignore_index is not None else ""
            )
            remedy = "`class_names` says what labels mean, `ignore_index` which to leave out; `reset` forgets them"
            raise InvalidInputError(f"{wanted}; got others in {outside:.3g} images ({remedy})")
        sums, geometry = table[: self.num_classes], self.geometry
        values = measure(sums, geometry.gram, proportions=geometry.proportions, min_images=self.min_images)
        values["unusable_images"] = float(table[self.num_classes + UNUSABLE, WEIGHT])
        return {self.prefix + name: value for name, value in values.items()}

    def class_gram(self) -> Array:
        """(C, C) cosines between the class means in this window, in the geometry's class order.

        Of this process alone, unless within `with monitor.sync_context():`. Nan where a class is not measured; not
        clipped to [-1, 1], with unit diagonal.
        """
        return table_directions(self._on_host()[: self.num_classes], self.min_images)[0]

    def saddle(self) -> dict[str, Any]:
        """Whether training has stalled at a saddle: class means of too few dimensions, where all forces balance.

        The test of `optgeom.validate` (theory: statistics, "Saddles") on what the monitor keeps: sampling noise is
        taken as isotropic, and whether two classes share images is not asked. It takes 40 draws of that noise, so ask
        when the loss is flat, not in every step. Of this process alone, unless within `with monitor.sync_context():`.

        Returns
        -------
        dict
            `at_saddle`; `reason`, the first condition that fails; `rank` and `predicted_rank`, dimensions that the
            class means span (0 where a class is not measured) and should; `least_eigenvalue` of the dual; `growth` =
            4 |least_eigenvalue|, the rate per kappa x learning rate of the missing eigenvalue of the Gram matrix;
            `escape`, `escape_sd` and `force`, as shares of the forces; `classes`, names of those that lack a dimension;
            `sentence`, the finding with its remedies, empty where there is no saddle.
        """
        names = self.geometry.names
        answer = self._saddle()
        return {**answer.as_dict(names), "sentence": answer.sentence(names)}

    def _saddle(self) -> Saddle:
        geometry, table = self.geometry, self._on_host()[: self.num_classes]
        gram, vectors, rho, images = table_directions(table, self.min_images)
        known = np.diag(gram) == 1.0
        reason = ""
        if geometry.bracket is not None or not geometry.certified or not geometry.loss.gives:
            reason = "the optimum of this geometry is not certified"
        elif not known.all():
            reason = f"{np.count_nonzero(~known)} of {known.size} classes are not measured"
        if reason:
            return Saddle(at_saddle=False, reason=reason, rank=0, optimal_rank=geometry.rank)
        program = ClassMeanProgram.build(geometry.classes, geometry.loss, grouped=False)
        noise = isotropic_noise(vectors, rho, images, table[:, SQUARES] / table[:, SQUARED])
        return saddle_test(gram, np.asarray(geometry.gram), program.gradient, noise)

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add what another monitor of the same geometry has seen, as another process would."""
        if isinstance(incoming_state, GeometryMonitor):
            other = incoming_state.table
        elif isinstance(incoming_state, Metric):
            raise InvalidInputError(
                "`incoming_state` must be a GeometryMonitor or its state; "
                f"got {type(incoming_state).__name__} (merge metrics of one kind)"
            )
        else:
            other = incoming_state["table"]
        if other.shape[0] != self.table.shape[0]:
            raise InvalidInputError(
                f"`incoming_state` must be of {self.num_classes} classes; got {other.shape[0] - EXTRA_ROWS} "
                "(monitor the same geometry)"
            )
        ours, theirs = _widened([self.table, other.to(self.table.device)])
        self.table = ours + theirs
        self._update_count += incoming_state.update_count if isinstance(incoming_state, Metric) else 1
        self._computed = None

    def _on_host(self) -> Array:
        return np.asarray(self.table.detach().cpu().double().numpy())

    def _ready(self, features: Tensor) -> Tensor:
        """The table on the device of the features and of their width."""
        table = self.table
        if table.device != features.device:
            table = table.to(features.device)
        if self._rows_of_labels.device != features.device:
            self._rows_of_labels = self._rows_of_labels.to(features.device)
        missing = SUMS + features.shape[-1] - table.shape[1]
        if missing and (table.shape[1] > SUMS or self.dim is not None):
            raise InvalidInputError(
                f"`features` must have rows of length {table.shape[1] - SUMS}, as before; got {features.shape[-1]} "
                "(`reset` starts anew)"
            )
        return torch.nn.functional.pad(table, (0, missing)) if missing else table

    def _slots(self, labels: Tensor, squares: Tensor) -> Tensor:
        """Row of the table that each image is added to."""
        known = self._rows_of_labels
        slots = known.index_select(
            0, labels.long().clamp(self._lowest, self._lowest + known.numel() - 1) - self._lowest
        )
        usable = (squares >= 0) | (slots == self.num_classes + IGNORED)
        return torch.where(usable, slots, self.num_classes + UNUSABLE)


def _entries(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(N, 3 + d) what each image of (N, V, d) adds to its row of the table, and (N,) its |z|^2.

    Both are nan for an image with a view that is zero or not finite. In the table these reach the row of unusable
    images only, of which nothing but the weight is read. Apart from the result nothing of its size is written, which
    would take most of the time on a CPU.
    """
    if rows.dtype == torch.float64:
        rows = rows.to(dtype)
    norms = torch.linalg.vector_norm(rows, dim=2, keepdim=True, dtype=dtype)
    entries = norms.new_zeros(rows.shape[0], SUMS + rows.shape[2])
    means = entries[:, SUMS:]
    for view in range(rows.shape[1]):
        means.addcdiv_(rows[:, view], norms[:, view], value=1.0 / rows.shape[1])
    squares = torch.linalg.vector_norm(means, dim=1).square_()
    entries[:, :SQUARES] = 1.0
    entries[:, SQUARES] = squares
    return entries, squares


def _solved(geometry: object, loss: Loss | None) -> Geometry:
    if isinstance(geometry, Geometry):
        if loss is not None:
            raise InvalidInputError("`loss` must be left out with a Geometry; got both (the geometry holds its loss)")
        return geometry
    if not isinstance(geometry, ClassDistribution):
        came = type(geometry).__name__
        raise InvalidInputError(
            f"`geometry` must be a Geometry, or a ClassDistribution with a `loss`; got {came} (optgeom.solve(...))"
        )
    if loss is None:
        raise InvalidInputError(
            "`loss` must be given with a ClassDistribution; got none (for example SupCon(temperature=0.1))"
        )
    return solve(geometry, loss)


def _lookup(
    class_names: Sequence[str | None] | None, ignore_index: Any, geometry: Geometry
) -> tuple[int, int, list[int]]:
    """The first label of the table of rows, how many labels have a meaning, and the table.

    Its ends stand for all labels beyond them.
    """
    ignored, outside = geometry.num_classes + IGNORED, geometry.num_classes + OUTSIDE
    known = {name: index for index, name in enumerate(geometry.names)} | {None: ignored}
    names = geometry.names if class_names is None else tuple(class_names)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        came = f"{unknown[0]!r} ({len(unknown)} such names)" if unknown else "none"
        raise InvalidInputError(
            f"`class_names` must be classes of the geometry, such as {geometry.names[0]!r}; "
            f"got {came} (None ignores a label)"
        )
    rows = [known[name] for name in names]
    if ignore_index is None:
        return -1, len(names), [outside, *rows, outside]
    if not isinstance(ignore_index, int) or abs(ignore_index) > FARTHEST_LABEL:
        wanted = f"`ignore_index` must be a label of at most {FARTHEST_LABEL} in size, or None"
        raise InvalidInputError(f"{wanted}; got {ignore_index!r} (-1 and -100 are usual)")
    lowest, highest = min(-1, ignore_index - 1), max(len(names), ignore_index + 1)
    table = [outside] * -lowest + rows + [outside] * (highest - len(names) + 1)
    table[ignore_index - lowest] = ignored
    return lowest, len(names), table


def _widened(tables: Sequence[Tensor]) -> list[Tensor]:
    """Tables padded to one width, as a process without an update does not know the length of the rows yet."""
    width = max(table.shape[1] for table in tables)
    return [torch.nn.functional.pad(table, (0, width - table.shape[1])) for table in tables]


def _gathered(table: Tensor, group: Any = None) -> list[Tensor]:
    """Tables of all processes."""
    return _widened(gather_all_tensors(table, group))


def measure(table: Array, optimal: Array, *, proportions: Array, min_images: float) -> dict[str, float]:
    """Compute the numbers of `GeometryMonitor.compute` from the sums of each class.

    Parameters
    ----------
    table : (C, 3 + d)
        W, W2, Q and S of each class.
    optimal : (C, C)
        Optimal Gram matrix.
    proportions : (C,)
        Class proportions that it is optimal for.
    min_images : float
        Least W^2 / W2 of a measured class.
    """
    gram, _, rho, images = table_directions(table, min_images)
    known = np.diag(gram) == 1.0
    # All classes would be on this simplex, also where only some are measured.
    simplex = np.full_like(optimal, -1.0 / (optimal.shape[0] - 1))
    distance, from_simplex = GramDistance.between(gram, optimal), GramDistance.between(gram, simplex)
    pairs = np.triu(np.outer(known, known), 1)
    size = float(np.linalg.norm(optimal[pairs]))
    weight, total = table[:, WEIGHT], float(table[:, WEIGHT].sum())
    lengths = rho[~np.isnan(rho)]
    return {
        "max_angle_error_deg": _or_nan(distance.max_angle_error_deg),
        "gram_distance": _or_nan(distance.relative_frobenius),
        "class_r2": _or_nan(distance.class_r2),
        "simplex_max_angle_error_deg": _or_nan(from_simplex.max_angle_error_deg),
        "simplex_gram_distance": float(np.linalg.norm((gram - simplex)[pairs])) / size if size > 0 else np.nan,
        "min_rho": float(lengths.min()) if lengths.size else np.nan,
        "median_rho": float(np.median(lengths)) if lengths.size else np.nan,
        "max_rho": float(lengths.max()) if lengths.size else np.nan,
        "classes_seen": float(np.count_nonzero(weight > FORGOTTEN)),
        "classes_measured": float(np.count_nonzero(known)),
        "images": total,
        "smallest_class_images": float(images[known].min()) if known.any() else np.nan,
        "proportions_distance": float(np.abs(weight / total - proportions).sum() / 2) if total > 0 else np.nan,
    }


def table_directions(table: Array, min_images: float) -> tuple[Array, Array, Array, Array]:
    """(C, C) cosines and (C, d) u, nan for classes not measured; (C,) rho, nan for too few images; (C,) W^2 / W2."""
    weight, squared = table[:, WEIGHT], table[:, SQUARED]
    seen = weight > FORGOTTEN
    images = np.where(seen, weight**2 / np.where(seen, squared, 1.0), 0.0)
    # Two images that came together, aged a thousand updates, are 2 up to rounding.
    several = images >= min_images * (1 - 1e-9)
    rho_squared, _, vectors, gram = weighted_directions(table[:, SUMS:], table[:, SQUARES], weight, squared, several)
    return gram, vectors, np.sqrt(np.maximum(rho_squared, 0.0)), images


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
