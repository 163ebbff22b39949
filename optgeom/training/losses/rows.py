r"""The sums over rows that all losses are made of, in O(B d) memory: no (B, B) matrix is ever whole.

For anchors i and the similarities s_ij of all B rows,

    l_i = log sum_{j != i} c_ij exp(s_ij),      p_i = sum_{j != i} t_ij s_ij,

with s_ij = z_i.z_j / T, or -|z_i - z_j|^2 / T. Forward and backward go through blocks of rows and compute each block of
similarities anew, so that only z and l are kept between them: O(B d) in place of O(B^2). With G_ij = g_i exp(s_ij + log
c_ij - l_i) + h_i t_ij, where g and h are the incoming gradients of l and p,

    dz = (G + G') z / T,      or      2 ( (G + G') z - diag((G + G') 1) z ) / T.

Nothing here waits for the device: shapes decide, never values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Similarities in memory at once. On a CPU 2 MiB of float32, which stays in the caches; on a GPU enough to keep it busy.
ENTRIES = 1 << 19
ENTRIES_ON_GPU = 1 << 22

Contrast = Callable[[slice, Tensor], Tensor]
Targets = Callable[[slice], Tensor]


@dataclass(frozen=True)
class Rows:
    """What to sum, and for whom.

    Attributes
    ----------
    temperature : float or (B,) tensor
        T > 0, of all rows or of each anchor.
    start, stop : int
        The anchors are the rows start to stop - 1; all rows are contrasted with.
    euclidean : bool
        -|z_i - z_j|^2 / T in place of z_i.z_j / T.
    contrast : callable, optional
        (rows, similarities of shape (b, B)) -> (b, B) log c; -inf leaves a row out. A constant for the gradient. All
        others without it.
    targets : callable, optional
        rows -> (b, B) t, zero for the anchor itself. A constant for the gradient.
    """

    temperature: float | Tensor
    start: int
    stop: int
    euclidean: bool = False
    contrast: Contrast | None = None
    targets: Targets | None = None

    @property
    def symmetric(self) -> bool:
        return self.contrast is None and self.targets is None and not isinstance(self.temperature, Tensor)

    def divisor(self, block: slice) -> float | Tensor:
        """The temperature of a block of anchors."""
        return self.temperature[block, None] if isinstance(self.temperature, Tensor) else self.temperature

    def blocks(self, z: Tensor) -> Iterator[slice]:
        """Slices of anchors, as row numbers of z."""
        entries = ENTRIES if z.device.type == "cpu" else ENTRIES_ON_GPU
        step = max(1, min(entries // max(1, z.shape[0]), self.stop - self.start))
        for begin in range(self.start, self.stop, step):
            yield slice(begin, min(begin + step, self.stop))

    def buffer(self, z: Tensor) -> Tensor:
        rows = max((block.stop - block.start for block in self.blocks(z)), default=0)
        return z.new_empty((rows, z.shape[0]))


def row_terms(z: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """(A,) l, p and the mass sum_j t_ij of each anchor, from z (B, d) in the type in which everything is computed.

    l is -inf where nothing is contrasted with; p and the mass are 0 without targets.
    """
    # Autocast would turn the products into half precision, of which exp(s) has no correct digit at small T.
    with torch.autocast(z.device.type, enabled=False):
        log_sum, pulled, mass = _RowTerms.apply(z, rows)  # type: ignore[no-untyped-call]
    return log_sum, pulled, mass


class _RowTerms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        z = _centred(z, rows)
        norms = _norms(z, rows)
        anchors = rows.stop - rows.start
        log_sum = z.new_empty(anchors)
        pulled, mass = z.new_zeros(anchors), z.new_zeros(anchors)
        buffer = rows.buffer(z)
        for block in rows.blocks(z):
            at = slice(block.start - rows.start, block.stop - rows.start)
            similarities = _similarities(z, norms, rows, block, buffer)
            if rows.targets is not None:
                targets = rows.targets(block)
                torch.sum(targets * similarities, dim=1, out=pulled[at])
                torch.sum(targets, dim=1, out=mass[at])
            _mask(similarities, rows, block)
            top = similarities.amax(dim=1)
            top.masked_fill_(top == -torch.inf, 0.0)
            log_sum[at] = similarities.sub_(top[:, None]).exp_().sum(dim=1).log_().add_(top)
        ctx.save_for_backward(z, log_sum)
        ctx.rows = rows
        ctx.mark_non_differentiable(mass)
        return log_sum, pulled, mass

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, log_grad: Tensor, pull_grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
        z, log_sum = ctx.saved_tensors
        rows: Rows = ctx.rows
        with torch.no_grad(), torch.autocast(z.device.type, enabled=False):
            # An anchor that is contrasted with nothing: exp(-inf - 0) is the 0 that it should be.
            norm = log_sum.masked_fill(log_sum == -torch.inf, 0.0)
            symmetric = rows.symmetric and rows.stop - rows.start == z.shape[0]
            gradient = _gradient_of_all if symmetric else _gradient
            return gradient(z, norm, log_grad, pull_grad, rows), None


def _gradient_of_all(z: Tensor, norm: Tensor, log_grad: Tensor, _: Tensor, rows: Rows) -> Tensor:
    """Of all rows as anchors and symmetric s, where a block of rows of G' has the same similarities: one product."""
    gradient = torch.empty_like(z)
    norms = _norms(z, rows)
    buffer, other = rows.buffer(z), rows.buffer(z)
    for block in rows.blocks(z):
        similarities = _similarities(z, norms, rows, block, buffer)
        _mask(similarities, rows, block)
        transposed = (
            torch.sub(similarities, norm[None, :], out=other[: similarities.shape[0]]).exp_().mul_(log_grad[None, :])
        )
        pull = similarities.sub_(norm[block, None]).exp_().mul_(log_grad[block, None]).add_(transposed)
        torch.mm(pull, z, out=gradient[block])
        if rows.euclidean:
            gradient[block].addcmul_(pull.sum(dim=1)[:, None], z[block], value=-1.0)
    assert not isinstance(rows.temperature, Tensor), "such rows are not symmetric"
    return gradient.mul_((2.0 if rows.euclidean else 1.0) / rows.temperature)


def _gradient(z: Tensor, norm: Tensor, log_grad: Tensor, pull_grad: Tensor, rows: Rows) -> Tensor:
    gradient = torch.zeros_like(z)
    norms = _norms(z, rows)
    buffer = rows.buffer(z)
    for block in rows.blocks(z):
        at = slice(block.start - rows.start, block.stop - rows.start)
        pull = _similarities(z, norms, rows, block, buffer)
        _mask(pull, rows, block)
        pull.sub_(norm[at, None]).exp_().mul_(log_grad[at, None])
        if rows.targets is not None:
            pull.addcmul_(rows.targets(block), pull_grad[at, None])
        pull.div_(rows.divisor(block))
        gradient[block].addmm_(pull, z)
        gradient.addmm_(pull.T, z[block])
        if rows.euclidean:
            gradient[block].addcmul_(pull.sum(dim=1)[:, None], z[block], value=-1.0)
            gradient.addcmul_(pull.sum(dim=0)[:, None], z, value=-1.0)
    return gradient.mul_(2.0) if rows.euclidean else gradient


def _centred(z: Tensor, rows: Rows) -> Tensor:
    """Rows about their mean: distances stay, and squared norms lose fewer digits."""
    return z - z.mean(dim=0) if rows.euclidean else z


def _norms(z: Tensor, rows: Rows) -> Tensor | None:
    return z.square().sum(dim=1) if rows.euclidean else None


def _similarities(z: Tensor, norms: Tensor | None, rows: Rows, block: slice, buffer: Tensor) -> Tensor:
    """(b, B) similarities of a block of anchors, in the buffer."""
    similarities = torch.mm(z[block], z.T, out=buffer[: block.stop - block.start])
    if norms is None:
        return similarities.div_(rows.divisor(block))
    similarities.mul_(2.0).sub_(norms[block, None]).sub_(norms[None, :])
    return similarities.clamp_max_(0.0).div_(rows.divisor(block))


def _mask(similarities: Tensor, rows: Rows, block: slice) -> None:
    """Leave the anchor itself out, and add log c."""
    if rows.contrast is not None:
        # Called before the anchor is masked: it may look at the similarities.
        similarities.add_(rows.contrast(block, similarities))
    similarities.diagonal(block.start).fill_(-torch.inf)


def class_codes(labels: Tensor) -> Tensor:
    """(B,) numbers 0 to B - 1, equal where the labels are; how many differ is never asked, so nothing waits."""
    ordered, order = torch.sort(labels)
    new = torch.zeros_like(order)
    new[1:] = ordered[1:] != ordered[:-1]
    codes = torch.empty_like(order)
    codes[order] = new.cumsum(0)
    return codes


def class_sums(rows: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """(B, d) sum of all rows of each row's class, itself included, and (B,) their number, in O(B d)."""
    sums = torch.zeros_like(rows).index_add(0, codes, rows)
    counts = rows.new_zeros(rows.shape[0]).index_add(0, codes, rows.new_ones(rows.shape[0]))
    return sums.index_select(0, codes), counts.index_select(0, codes)


def positive_similarities(views: Tensor, temperature: float) -> Tensor:
    """(N V, V - 1) similarities z.z' / T of every view with the other views of its image, from unit rows (N, V, d)."""
    others = [(views * views.roll(shift, dims=1)).sum(dim=2) for shift in range(1, views.shape[1])]
    return torch.stack(others, dim=2).flatten(0, 1) / temperature


def log_ratio(log_sum: Tensor, positives: Tensor, alpha: float) -> Tensor:
    """(A,) mean over the positives p of log( alpha + exp(l - s_p) ).

    An l of -inf leaves log alpha, and -inf where alpha is 0.
    """
    if alpha == 0:
        return log_sum - positives.mean(dim=1)
    return torch.logaddexp(log_sum[:, None] - positives, positives.new_full((), math.log(alpha))).mean(dim=1)
