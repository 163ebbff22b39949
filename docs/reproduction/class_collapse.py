"""Three imbalanced classes: samples of a class meet, and equally frequent classes have equal angles."""

from __future__ import annotations

from typing import Any

import numpy as np
from experiment import Results, agrees, angles, apart, degrees, error, plural, table
from free_samples import FreeSampleTask, class_means

import optgeom as og
from optgeom.training.features import train_features
from optgeom.training.losses import ContrastiveLoss, GeneralizedContrastiveLoss, SupConLoss
from optgeom.training.settings import Settings

SETTINGS = {
    "counts": [[36, 12, 12], [36, 18, 6]],
    "temperature": 0.5,
    "negatives": 8,
    "batch": 64,
    "anchors": 128,
    "seeds": [0, 1, 2],
    "mean_steps": 6000,
    "sample_steps": 6000,
}
QUICK = {"counts": [[36, 12, 12]], "seeds": [0], "mean_steps": 20, "sample_steps": 20}
EXACT_DEG, SAMPLED_DEG = 0.05, 1.0  # what is called agreement


def losses(settings: Results) -> dict[str, tuple[og.Loss, ContrastiveLoss, str]]:
    """The loss of the solver, the torch loss, and what the second view is."""
    tau, k = settings["temperature"], settings["negatives"]
    return {
        "SupCon": (og.SupCon(tau, settings["batch"], 2), SupConLoss(tau), "image"),
        "InfoNCE, UCL": (
            og.InfoNCE(tau, k, sampling="ucl"),
            GeneralizedContrastiveLoss(tau, k, sampling="ucl"),
            "class",
        ),
        "InfoNCE, SCL": (
            og.InfoNCE(tau, k, sampling="scl"),
            GeneralizedContrastiveLoss(tau, k, sampling="scl"),
            "class",
        ),
    }


def run(settings: Results) -> Results:
    rows: list[dict[str, Any]] = []
    for counts in settings["counts"]:
        classes = og.ClassDistribution.from_counts(counts)
        codes = np.repeat(np.arange(len(counts)), counts)
        for name, (loss, torch_loss, partner) in losses(settings).items():
            best = np.asarray(og.solve(classes, loss).gram)
            exact = [apart(train_features(classes, loss, seed=seed).gram, best) for seed in settings["seeds"]]
            how = Settings(
                steps=settings["mean_steps"], learning_rate=0.03, device="cpu", log_every=settings["mean_steps"]
            )
            means = train_features(classes, loss, settings=how, anchors=2 * settings["anchors"])
            size = settings["batch" if partner == "image" else "anchors"]
            samples = FreeSampleTask(codes, torch_loss, best, size, partner).train(settings["sample_steps"], 0.03)
            gram, spread = class_means(samples, codes)
            rows.append(
                {
                    "counts": counts,
                    "loss": name,
                    "best": angles(best),
                    "exact_error": max(exact),
                    "mean_error": apart(means.gram, best),
                    "samples": angles(gram),
                    "sample_error": apart(gram, best),
                    "spread": spread,
                }
            )
    return {"rows": rows}


def markdown(results: Results) -> str:
    settings, lines = results["settings"], []
    for row in results["rows"]:
        sampled = max(row["mean_error"], row["sample_error"], row["spread"])
        lines.append(
            [
                ", ".join(str(count) for count in row["counts"]),
                row["loss"],
                degrees(row["best"]),
                degrees(row["samples"]),
                error(row["exact_error"]),
                error(row["mean_error"]),
                error(row["sample_error"]),
                f"{row['spread']:.2f}",
                agrees(row["exact_error"] <= EXACT_DEG and sampled <= SAMPLED_DEG),
            ]
        )
    isosceles = [row for row in results["rows"] if row["counts"][1] == row["counts"][2]]
    worst = max(abs(row["samples"][0] - row["samples"][1]) for row in isosceles)
    header = [
        "samples of class 0, 1, 2",
        "loss",
        "predicted angles 0-1 / 0-2 / 1-2",
        "ours, one vector per sample",
        "error, exact objective",
        "error, batches of class means",
        "error, one vector per sample",
        "largest angle to the class mean",
        "agrees",
    ]
    caption = (
        f"T = {settings['temperature']}, k = {settings['negatives']} negatives, SupCon with batches of "
        f"{settings['batch']} images and 2 "
        f"views. Exact objective: L-BFGS, {plural(settings['seeds'])} (the worst). Batches of class means: "
        f"{settings['mean_steps']} steps, "
        f"{2 * settings['anchors']} anchors for InfoNCE, seed 0. One vector a sample: 8 dimensions, "
        f"{settings['sample_steps']} steps, "
        f"{settings['anchors']} images for InfoNCE, seed 0. Degrees; agreement is at most {EXACT_DEG} on the exact "
        f"objective and "
        f"{SAMPLED_DEG:g} on batches, angle to the class mean included. With classes 1 and 2 equally frequent the "
        f"triangle of the class "
        f"means must be isosceles: predicted difference of its legs 0, ours at most {error(worst)}."
    )
    return f"{table(header, lines)}\n\n{caption}"


def draw(results: Results, figure: Any) -> None:
    """Predicted angles beside those of the samples."""
    from optgeom.plotting.figures import BLUE, GREEN, ORANGE

    axes = figure.add_subplot()
    for name, colour, shift in (("SupCon", BLUE, -0.22), ("InfoNCE, UCL", ORANGE, 0.0), ("InfoNCE, SCL", GREEN, 0.22)):
        position = 0
        for row in results["rows"]:
            if row["loss"] != name:
                continue
            at = position + np.arange(3) + shift
            axes.hlines(row["best"], at - 0.09, at + 0.09, color=colour, label=f"{name}" if position == 0 else None)
            axes.plot(at, row["samples"], "o", markersize=4, color=colour, markerfacecolor="none")
            position += 4
    labels, ticks = [], []
    for block, counts in enumerate(results["settings"]["counts"]):
        ticks += [4 * block + pair for pair in range(3)]
        # As many lines in each, or they would stand at different heights.
        labels += ["0-1\n\n ", f"0-2\n\n{', '.join(map(str, counts))} samples", "1-2\n\n "]
    axes.axhline(120, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.annotate("equal classes", (3, 120.4), ha="center", color="#777777", fontsize=8)
    axes.set_xticks(ticks, labels)
    axes.set_ylabel("angle of the class means (degrees)")
    axes.set_title("Lines: predicted. Circles: trained, one vector per sample.", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower left")
