"""Cells of the sweep over classes and losses: each must give a verifiable certificate or a typed error."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import optgeom as og
from helpers.watchdog import watched
from optgeom.certificates.certificate import PRIMAL_SHIFT_LIMIT, certify
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram

CLASSES = (2, 3, 5, 10, 30, 100, 300)
PROFILES = ("balanced", "step", "exp", "zipf", "majority")
RATIOS = (2.0, 10.0, 1e2, 1e4, 1e6, 1e9)
TEMPERATURES = (0.01, 0.03, 0.1, 0.5, 1.0, 10.0, 100.0)
NEGATIVES = (1, 2, 10, 1000, 100_000, 10_000_000, math.inf)
LOSSES = (
    "ucl 0 sum",
    "ucl 1 sum",
    "ucl 1 mean",
    "scl 0 mean",
    "scl 1 sum",
    "scl 1 mean",
    "supcon 1",
    "supcon 2",
    "full 1",
    "full 2",
)
TYPES = (np.float64, np.float32)
AXES = (CLASSES, PROFILES, RATIOS, TEMPERATURES, NEGATIVES, LOSSES, TYPES)
RARE = 1e-6  # backward error for ratios beyond 1e6, where the proportions themselves leave no more digits
LARGEST_RATIO = 1e6


@dataclass(frozen=True)
class Cell:
    """One point of the sweep."""

    classes: int
    profile: str
    ratio: float
    temperature: float
    negatives: float
    loss: str
    kind: Any

    def __str__(self) -> str:
        held = f"{self.classes} classes, {self.profile} {self.ratio:g}, tau {self.temperature:g}, k {self.negatives:g}"
        return f"{held}, {self.loss}, {np.dtype(self.kind).name}"

    def build_loss(self) -> Loss:
        first, *rest = self.loss.split()
        if first == "supcon":
            size = self.negatives if self.negatives == math.inf else max(3, int(self.negatives))
            return og.SupCon(self.temperature, size, int(rest[0]))
        if first == "full":
            return og.SupConFullBatch(self.temperature, int(rest[0]))
        reduction = "mean" if self.negatives == math.inf else rest[1]
        return og.InfoNCE(self.temperature, self.negatives, float(rest[0]), reduction, first)

    def build_classes(self) -> og.ClassDistribution:
        i = np.arange(self.classes)
        weights = {
            "balanced": np.ones(self.classes),
            "step": np.where(i < (self.classes + 1) // 2, 1.0, 1 / self.ratio),
            "exp": self.ratio ** (-i / (self.classes - 1)),
            "zipf": (i + 1.0) ** (-math.log(self.ratio) / math.log(self.classes)),
            "majority": np.where(i < 1, 1.0, 1 / self.ratio),
        }[self.profile]
        if self.loss.startswith("full"):
            return og.ClassDistribution.from_counts(np.maximum(1, np.rint(3 * self.ratio * weights)).astype(np.int64))
        return og.ClassDistribution.from_proportions((weights / weights.sum()).astype(self.kind))


def drawn(number: int, seed: int, largest: int) -> list[Cell]:
    """Cells in which the values of any two axes meet about equally often, by shuffled columns."""
    rng = np.random.default_rng(seed)
    axes = (tuple(size for size in CLASSES if size <= largest), *AXES[1:])
    columns = [rng.permutation(np.resize(np.arange(len(axis)), number)) for axis in axes]
    return [Cell(*(axis[k] for axis, k in zip(axes, row, strict=True))) for row in zip(*columns, strict=True)]


def pairs(cells: list[Cell]) -> int:
    """How many pairs of values of two axes occur."""
    rows = [tuple(getattr(cell, name) for name in Cell.__dataclass_fields__) for cell in cells]
    return sum(len({(row[a], row[b]) for row in rows}) for a, b in itertools.combinations(range(len(AXES)), 2))


def answer(cell: Cell) -> str:
    """Solve a cell and check the answer.

    Returns "certified", "rare" (by backward error at `RARE`), or the name of the typed error.
    """
    limit = RARE if cell.ratio > LARGEST_RATIO else 1e-8
    with warnings.catch_warnings(), watched(str(cell)):
        warnings.simplefilter("error")
        try:
            classes, loss = cell.build_classes(), cell.build_loss()
            geometry = og.solve(classes, loss, backward_tolerance=limit)
        except og.OptGeomError as error:
            assert str(error) and "\n" not in str(error)
            return type(error).__name__
        recomputed(geometry, classes, loss, limit)
    return "certified" if geometry.certificate.backward_error <= 1e-8 else "rare"


def recomputed(geometry: og.Geometry, classes: og.ClassDistribution, loss: Loss, limit: float) -> None:
    """Recompute the certificate from the cosines alone.

    In groups, and class by class where the matrix of classes is that of the program.
    """
    given = geometry.certificate
    assert given.certified and given.gap >= 0 and math.isfinite(geometry.risk) and given.lower_bound <= geometry.risk
    assert np.abs(geometry.group_cosines).max() <= 1 + 1e-12
    program = ClassMeanProgram.build(classes, loss)
    again = certify(program, geometry.group_cosines, backward_tolerance=limit)
    assert again.certificate.certified and again.risk == geometry.risk and again.certificate.rank == geometry.rank
    singles = (
        classes.counts is not None
        and np.count_nonzero(classes.counts == 1) > 1
        and isinstance(loss, og.SupConFullBatch)
    )
    if not singles:
        whole = og.certify_gram(geometry.gram, classes, loss, backward_tolerance=limit)
        assert whole.primal_shift <= PRIMAL_SHIFT_LIMIT and whole.gap <= 1e-8 * (1 + abs(geometry.risk))


def gap_by_hand(gram: np.ndarray, lam: np.ndarray, loss: og.InfoNCE) -> tuple[float, float]:
    r"""Risk and duality gap of an InfoNCE of one or infinitely many negatives, from the matrix alone.

    With S = G - diag(sum_j G_ij A_ij), G the symmetric gradient, F(B) >= F(A) + <S, B> >= F(A) + C min(0,
    lambda_min(S)).
    """
    law = np.tile(lam, (lam.size, 1)) * (1 - np.eye(lam.size) if loss.sampling == "scl" else 1)
    law /= law.sum(axis=1, keepdims=True)
    x = np.exp((gram - 1) / loss.temperature)
    if loss.negatives == math.inf:
        inside = loss.alpha + (law * x).sum(axis=1) if loss.alpha else (law * x).sum(axis=1)
        risk = lam @ np.log(inside)
        slope = lam[:, None] * law * x / inside[:, None] / loss.temperature
    else:
        risk = lam @ (law * np.log(loss.alpha + x)).sum(axis=1)
        slope = lam[:, None] * law * x / (loss.alpha + x) / loss.temperature
    gradient = (slope + slope.T) / 2
    dual = gradient - np.diag((gradient * gram).sum(axis=1))
    return float(risk), -lam.size * min(0.0, float(np.linalg.eigvalsh(dual)[0]))
