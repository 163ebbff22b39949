"""Soft SupCon: rows of other classes are positives too, with a small weight."""

from __future__ import annotations

from torch import Tensor

from optgeom import _checks
from optgeom.errors import InvalidInputError
from optgeom.training.losses.base import ContrastiveLoss, check_anchors, check_features, check_labels
from optgeom.training.losses.classes import class_codes, class_sums
from optgeom.training.losses.rows import Rows, row_terms


class SoftSupConLoss(ContrastiveLoss):
    r"""Weighted InfoNCE with w_ij = 1 within a class and `epsilon` across, in O(B d) memory:

        term_i = log sum_{j != i} exp(z_i.z_j / T) - sum_{j != i} w_ij z_i.z_j / ( T sum_{j != i} w_ij ).

    On one batch it is the loss of `optgeom.realize` with the scheme soft-supcon.

    Parameters
    ----------
    temperature : float
        T > 0, dimensionless.
    epsilon : float
        In (0, 1]. T log(1/epsilon) <= C/(C - 1) is where the geometry no longer depends on class sizes.
    normalize : bool

    References
    ----------
    Vock, Duchesnay, Dufumier 2026, arXiv 2605.13943.
    """

    def __init__(self, temperature: float = 0.1, epsilon: float = 0.1, normalize: bool = True) -> None:
        super().__init__(temperature, "zero", normalize)
        self.epsilon = _checks.real(
            "epsilon", epsilon, above=0.0, hint="the weight across classes, in (0, 1]; for 0 use SupConLoss"
        )
        if self.epsilon > 1:
            raise InvalidInputError(
                f"`epsilon` must be in (0, 1]; got {epsilon!r} (it is the weight across classes, 1 the weight within)"
            )

    def sum_and_count(self, features: Tensor, labels: Tensor, anchors: slice | None = None) -> tuple[Tensor, Tensor]:
        """Sum of the terms and number of anchors; arguments as in `SupConLoss`, labels required."""
        check_features(features, "any")
        samples, views = features.shape[0], features.shape[1] if features.ndim == 3 else 1
        check_labels(labels, samples)
        start, stop = check_anchors(anchors, samples)
        rows = self._rows(features).reshape(samples * views, -1)
        part = slice(start * views, stop * views)
        log_sum, _, _ = row_terms(rows, Rows(self.temperature, part.start, part.stop))
        sums, counts = class_sums(rows, class_codes(labels).repeat_interleave(views))
        mine = rows[part]
        others = sums[part] - mine
        rest = rows.sum(dim=0) - sums[part]
        mass = (counts[part] - 1.0) + self.epsilon * (rows.shape[0] - counts[part])
        pulled = (mine * (others + self.epsilon * rest)).sum(dim=1) / (mass.clamp_min(self.epsilon) * self.temperature)
        return self._total(log_sum - pulled, mass > 0)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, epsilon={self.epsilon}, normalize={self.normalize}"
