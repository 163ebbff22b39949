"""Statistics of batch normalisation for weights that did not come from training steps: averages of iterates."""

from __future__ import annotations

from collections.abc import Callable

import torch

BATCHES = 50


@torch.no_grad()
def refresh_statistics(module: torch.nn.Module, forward: Callable[[], object]) -> None:
    """Replace running means and variances by those of fresh batches, weights as they are now.

    Parameters
    ----------
    module : torch.nn.Module
        Left in training mode where it has any such layer.
    forward : callable
        Draws a batch and passes it through the module.
    """
    norms = [layer for layer in module.modules() if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    held = [layer.momentum for layer in norms]
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # a plain mean over the batches to come
    module.train()
    for _ in range(BATCHES):
        forward()
    for layer, momentum in zip(norms, held, strict=True):
        layer.momentum = momentum
