"""Rows of classes for the tests of losses, and SupCon written down from the paper."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def supcon_by_hand(rows, codes, tau):
    """Terms of SupCon written down from the paper, nan without a positive."""
    terms = np.full(len(codes), np.nan)
    for i in range(len(codes)):
        others = [j for j in range(len(codes)) if j != i]
        positives = [j for j in others if codes[j] == codes[i]]
        if positives:
            terms[i] = logsumexp([rows[i] @ rows[j] / tau for j in others]) - np.mean(
                [rows[i] @ rows[j] / tau for j in positives]
            )
    return terms


def cloud(counts, dim=4, sigma=0.5, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(len(counts)), counts)
    return unit(rng.normal(size=(len(counts), dim))[codes] + sigma * rng.normal(size=(codes.size, dim))), codes


def collapsed(geometry, counts):
    """Rows exactly at the class means of a geometry."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return geometry.prototypes()[codes], codes
