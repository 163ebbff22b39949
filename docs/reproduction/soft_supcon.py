"""SupCon and Soft SupCon under imbalance: the weights decide whether the geometry follows the class sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from experiment import Results, agrees, angles, apart, error, plural, table
from free_samples import FreeSampleTask, class_means, descend

import optgeom as og
from optgeom.realization.api import realize
from optgeom.realization.weights import Weights
from optgeom.training.losses import SoftSupConLoss, SupConLoss

SETTINGS = {
    "counts": [[24, 24, 24, 24], [60, 24, 8, 4]],
    "temperature": 0.5,
    "epsilons": [0.1, 0.01],
    "seeds": [0, 1],
    "dim": 8,
    "batch": 32,
    "steps": 4000,
    "iterations": 3000,
}
QUICK = {"counts": [[12, 6, 4, 2]], "seeds": [0], "steps": 10, "iterations": 20}
EXACT_DEG, SAMPLED_DEG, SPREAD_DEG = 0.05, 1.0, 1.0


def run(settings: Results) -> Results:
    rows: list[dict[str, Any]] = []
    tau = settings["temperature"]
    for epsilon in (None, *settings["epsilons"]):
        for counts in settings["counts"]:
            codes = np.repeat(np.arange(len(counts)), counts)
            labels = torch.from_numpy(codes)
            regime = None
            if epsilon is None:
                loss: Any = SupConLoss(tau)
                best = np.asarray(og.solve(og.ClassDistribution.from_counts(counts), og.SupConFullBatch(tau)).gram)
            else:
                loss = SoftSupConLoss(tau, epsilon)
                realization = realize(Weights.soft_supcon(codes, epsilon), temperature=tau)
                vectors, regime = realization.embedding(), realization.regime
                # The optimum of an attained bound leaves samples of a class apart where its target does; class
                # directions are compared.
                best, _ = class_means(vectors, codes)
            errors, spreads, grams = [], [], []
            for seed in settings["seeds"]:
                rows_found, _ = descend(
                    lambda unit, loss=loss, labels=labels: loss(unit, labels),
                    len(codes),
                    settings["dim"],
                    seed,
                    settings["iterations"],
                )
                gram, spread = class_means(rows_found, codes)
                errors.append(apart(gram, best))
                spreads.append(spread)
                grams.append(angles(gram))
            sampled = None
            if epsilon is not None and regime == "realizable":
                task = FreeSampleTask(codes, loss, best, settings["batch"], dim=settings["dim"])
                sampled = apart(class_means(task.train(settings["steps"], 0.03), codes)[0], best)
            rows.append(
                {
                    "epsilon": epsilon,
                    "counts": counts,
                    "regime": regime,
                    "best": angles(best),
                    "trained": grams[0],
                    "error": max(errors),
                    "spread": max(spreads),
                    "sampled": sampled,
                }
            )
    return {"rows": rows}


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"


def markdown(results: Results) -> str:
    settings, lines = results["settings"], []
    for row in results["rows"]:
        name = "SupCon" if row["epsilon"] is None else f"Soft SupCon, epsilon {row['epsilon']:g}"
        holds = (
            row["error"] <= EXACT_DEG
            and row["spread"] <= SPREAD_DEG
            and (row["sampled"] is None or row["sampled"] <= SAMPLED_DEG)
        )
        lines.append(
            [
                name,
                ", ".join(str(count) for count in row["counts"]),
                "-" if row["regime"] is None else row["regime"],
                _range(row["best"]),
                _range(row["trained"]),
                error(row["error"]),
                error(row["spread"]),
                "-" if row["sampled"] is None else f"{row['sampled']:.2f}",
                agrees(holds),
            ]
        )
    header = [
        "loss",
        "samples of the classes",
        "entropic bound",
        "predicted angles",
        "ours",
        "error, full batch",
        "largest angle to the class mean",
        "error, batches",
        "agrees",
    ]
    limit = np.exp(-len(settings["counts"][0]) / (len(settings["counts"][0]) - 1) / settings["temperature"])
    caption = (
        f"T = {settings['temperature']}, one free vector a sample in {settings['dim']} dimensions. Full batch: L-BFGS, "
        f"{plural(settings['seeds'])} (the worst). Batches of {settings['batch']} images with 2 equal views: "
        f"{settings['steps']} steps, "
        f"seed 0. Degrees; agreement is at most {EXACT_DEG} in full batch, {SAMPLED_DEG:g} on batches and "
        f"{SPREAD_DEG:g} within a class "
        "(where the bound is attained, leaving the span of the means costs only the fourth power of that angle). "
        "Theory: attained iff "
        f"T log(1/epsilon) <= C/(C - 1), here epsilon >= {limit:.4f}, for any class sizes."
    )
    return f"{table(header, lines)}\n\n{caption}"


def draw(results: Results, figure: Any) -> None:
    """Angles of all pairs of classes, by loss, for equal and for unequal classes."""
    from optgeom.plotting.figures import BLUE, ORANGE

    axes = figure.add_subplot()
    names, position = [], 0
    for epsilon in (None, *results["settings"]["epsilons"]):
        rows = [row for row in results["rows"] if row["epsilon"] == epsilon]
        for row, colour, shift in zip(rows, (BLUE, ORANGE), (-0.15, 0.15), strict=False):
            at = position + shift
            axes.hlines(row["best"], at - 0.1, at + 0.1, color=colour)
            label = ", ".join(map(str, row["counts"])) + " samples" if position == 0 else None
            axes.plot(
                [at] * len(row["trained"]),
                row["trained"],
                "o",
                markersize=5,
                color=colour,
                markerfacecolor="none",
                label=label,
            )
        names.append("SupCon" if epsilon is None else f"Soft SupCon,\nepsilon {epsilon:g}")
        position += 1
    axes.set_xticks(range(position), names)
    axes.set_xlim(-0.5, position - 0.5)
    axes.set_ylabel("angles of the class means (degrees)")
    axes.set_title("Lines: predicted. Circles: trained, full batch.", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
