"""Paths of problems: parameter -> (classes, loss), as `first_rank_loss` takes them."""

from __future__ import annotations

import numpy as np

import optgeom as og


def power_path(classes, loss):
    """counts^q: q = 0 is balanced, 1 the given classes."""
    return lambda power: (classes.resample(power), loss)


def imbalance_path(num_classes, loss):
    """Exponential profiles with imbalance factor IF = max / min >= 1 (proportions IF^(-i/(C-1)))."""
    steps = np.arange(num_classes) / (num_classes - 1)
    return lambda factor: (og.ClassDistribution.from_counts(factor**-steps), loss)


def temperature_path(classes, loss_at):
    """Fixed classes, loss as a function of the temperature."""
    return lambda temperature: (classes, loss_at(temperature))
