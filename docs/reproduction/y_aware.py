"""y-Aware on the sphere and in Euclidean space: whether continuous labels come back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from experiment import Results, agrees, plural, table
from free_samples import descend

from optgeom.embeddings.metrics.similarity import procrustes_r2, sample_similarity_r2
from optgeom.realization.api import realize
from optgeom.realization.weights import Weights
from optgeom.training.losses import YAwareLoss

# (labels, similarity, dimension of the embedding)
SETTINGS = {
    "samples": 100,
    "bandwidth": 1.0,
    "temperature": 1.0,
    "rows": [
        ["plane", "cosine", 2],
        ["plane", "cosine", 3],
        ["plane", "cosine", 20],
        ["plane", "euclidean", 2],
        ["circle", "cosine", 2],
        ["circle", "euclidean", 2],
    ],
    "seeds": [0, 1, 2],
    "iterations": 3000,
}
QUICK = {"samples": 16, "rows": [["plane", "cosine", 20], ["circle", "euclidean", 2]], "seeds": [0], "iterations": 20}
LABELS = {"plane": "normal in the plane", "circle": "on the unit circle"}
NEAR_LOSS, NEAR_R2 = 1e-5, 1e-3


def labels_of(kind: str, number: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "plane":
        return rng.normal(size=(number, 2))
    angle = rng.uniform(0, 2 * math.pi, number)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def run(settings: Results) -> Results:
    rows: list[dict[str, Any]] = []
    tau, bandwidth = settings["temperature"], settings["bandwidth"]
    for kind, similarity, dim in settings["rows"]:
        labels = labels_of(kind, settings["samples"])
        weights = Weights.y_aware(labels, bandwidth)
        free = realize(weights, similarity, temperature=tau)
        limited = (
            free
            if free.rank is not None and free.rank <= dim
            else realize(weights, similarity, temperature=tau, dim=dim)
        )
        loss = YAwareLoss(tau, bandwidth, similarity=similarity)
        target = torch.from_numpy(labels)
        best = math.inf
        for seed in settings["seeds"]:
            descended, value = descend(
                lambda z, loss=loss, target=target: loss(z, target),
                len(labels),
                dim,
                seed,
                settings["iterations"],
                similarity == "cosine",
            )
            if value < best:
                best, points = value, descended
        optimum = limited.embedding()
        rows.append(
            {
                "labels": kind,
                "similarity": similarity,
                "dim": dim,
                "bound": limited.entropic_bound,
                "regime": free.regime,
                "rank": free.rank,
                "certified": limited.bracket is None,
                "predicted_gap": limited.gap_to_bound,
                "gap": best - limited.entropic_bound,
                # The optimum of a Euclidean latent is z = sqrt(T/2) y / bandwidth; labels are compared up to one scale,
                # translation allowed.
                "predicted_labels": procrustes_r2(optimum, labels, latent="euclidean", scale=True),
                "found_labels": procrustes_r2(points, labels, latent="euclidean", scale=True),
                "similarity_r2": sample_similarity_r2(points, optimum, latent=similarity),
            }
        )
    return {"rows": rows}


def _bound(row: Results) -> str:
    if row["regime"] == "realizable" and row["predicted_gap"] < 1e-9:
        return "attained"
    return "missed, certified" if row["certified"] else "missed, best found"


def _held(row: Results) -> bool:
    near = abs(row["gap"] - row["predicted_gap"]) <= NEAR_LOSS and row["similarity_r2"] >= 1 - NEAR_R2
    return near and abs(row["found_labels"] - row["predicted_labels"]) <= 0.01


def _gap(value: float) -> str:
    return f"{value:.5f}" if value >= 5e-6 else f"{max(value, 0.0):.0e}" if value > 1e-12 else "0"


def markdown(results: Results) -> str:
    settings, lines = results["settings"], []
    for row in results["rows"]:
        lines.append(
            [
                LABELS[row["labels"]],
                row["similarity"],
                str(row["dim"]),
                _bound(row),
                _gap(row["predicted_gap"]),
                _gap(row["gap"]),
                f"{row['similarity_r2']:.4f}",
                f"{row['predicted_labels']:.4f}",
                f"{row['found_labels']:.4f}",
                agrees(_held(row)),
            ]
        )
    header = [
        "labels",
        "similarity",
        "dimensions",
        "entropic bound, predicted",
        "loss above it, predicted",
        "ours",
        "sample similarity r2",
        "labels, Procrustes r2, predicted",
        "ours",
        "agrees",
    ]
    caption = (
        f"{settings['samples']} samples, w = exp(-|y - y'|^2 / 2), T = {settings['temperature']:g}, free features, "
        f"full batch by L-BFGS, "
        f"the best of {plural(settings['seeds'])}. Sample similarity r2 is against the predicted embedding; "
        f"Procrustes r2 is against the "
        "labels themselves, after the best rotation, translation and scale. Agreement: loss within "
        f"{NEAR_LOSS:g}, sample similarity r2 at least {1 - NEAR_R2:g}, label r2 within .01. Where the dimension is "
        f"below that of the "
        "optimum the prediction is the best found and not certified."
    )
    return f"{table(header, lines)}\n\n{caption}"


SIZE = (7.5, 3.6)


def draw(results: Results, figure: Any) -> None:
    """Bars: how much of the labels comes back, and the loss above the bound."""
    from optgeom.plotting.figures import BLUE, GREY, ORANGE

    left, right = figure.subplots(1, 2, sharey=True)
    rows = results["rows"][::-1]
    names = [f"{LABELS[row['labels']]}: {row['similarity']}, {row['dim']}-d" for row in rows]
    colours = [BLUE if row["similarity"] == "euclidean" else ORANGE for row in rows]
    at = np.arange(len(rows))
    left.barh(at, [max(row["gap"], 0.0) for row in rows], color=colours, height=0.5)
    left.plot([row["predicted_gap"] for row in rows], at, "|", color="black", markersize=18)
    left.set_yticks(at, names)
    left.set_xlabel("loss above the entropic bound")
    right.barh(at, [row["found_labels"] for row in rows], color=colours, height=0.5)
    right.plot([row["predicted_labels"] for row in rows], at, "|", color="black", markersize=18)
    right.set_xlabel("Procrustes r2 with the labels")
    right.axvline(1.0, color=GREY, linewidth=0.8)
    left.set_title("Bars: trained. Strokes: predicted.", fontsize=10)
