"""Prescribed losses: trained features end at the wanted geometry, where plain and averaged losses end elsewhere.

Protocol, fixed before the first run: one free vector per sample, batches drawn i.i.d., the torch module of each loss as
`Prescription.torch_module` gives it; target the regular simplex; temperature .5; every distribution, loss and seed of
SETTINGS, all reported. A prescribed loss agrees if its class means end within a degree of the simplex; the plain and
the class-averaged loss if they end within a degree of their own optimum and farther than a degree from the simplex.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from experiment import Results, agrees, apart, error, plural, table
from free_samples import FreeSampleTask, class_means

import optgeom as og

SETTINGS = {
    "counts": [[36, 18, 6], [48, 24, 12, 6], [60, 30, 18, 12, 6]],
    "temperature": 0.5,
    "batch": 64,
    "seeds": [0, 1],
    "steps": 6000,
    "learning_rate": 0.03,
}
QUICK = {"counts": [[36, 18, 6]], "seeds": [0], "steps": 20}
NEAR_DEG = 1.0
PRESCRIBED = ("both", "negative-weights", "margins", "temperatures")
NAMES = {
    "plain": "SupCon",
    "published": "negatives averaged by class in the batch (BCL as published)",
    "both": "prescribed: both weights",
    "negative-weights": "prescribed: a weight per pair",
    "margins": "prescribed: margins",
    "temperatures": "prescribed: temperatures",
}


def losses(classes: og.ClassDistribution, settings: Results) -> dict[str, og.Loss]:
    """Every loss by name."""
    plain = og.SupCon(settings["temperature"], settings["batch"])
    averaged = og.SupCon(settings["temperature"], settings["batch"], negative_weights="batch-average")
    plans = {by: og.prescribe(classes, plain, by=by).loss for by in PRESCRIBED}
    return {"plain": plain, "published": averaged, **plans}


def run(settings: Results) -> Results:
    rows: list[dict[str, Any]] = []
    for counts in settings["counts"]:
        classes = og.ClassDistribution.from_counts(counts)
        codes = np.repeat(np.arange(len(counts)), counts)
        simplex = np.where(np.eye(len(counts)) > 0, 1.0, -1.0 / (len(counts) - 1))
        for name, loss in losses(classes, settings).items():
            best = np.asarray(og.solve(classes, loss).gram)
            found = []
            for seed in settings["seeds"]:
                task = FreeSampleTask(codes, loss.torch_module(classes=classes), best, settings["batch"], seed=seed)
                gram, spread = class_means(task.train(settings["steps"], settings["learning_rate"]), codes)
                found.append([apart(gram, simplex), apart(gram, best), spread])
            rows.append({"counts": counts, "loss": name, "predicted": apart(best, simplex), "trained": found})
    return {"rows": rows}


def holds(row: dict[str, Any]) -> bool:
    """Whether every seed ended where the theory has it."""
    trained = np.array(row["trained"])
    if row["loss"] in PRESCRIBED:
        return bool(trained[:, 0].max() <= NEAR_DEG)
    return bool(trained[:, 1].max() <= NEAR_DEG and trained[:, 0].min() > NEAR_DEG)


def markdown(results: Results) -> str:
    settings, lines = results["settings"], []
    for row in results["rows"]:
        trained = np.array(row["trained"])
        lines.append(
            [
                ", ".join(str(count) for count in row["counts"]),
                NAMES[row["loss"]],
                error(row["predicted"]) if row["predicted"] > 0 else "0",
                " / ".join(error(value) for value in trained[:, 0]),
                " / ".join(error(value) for value in trained[:, 1]),
                f"{trained[:, 2].max():.2f}",
                agrees(holds(row)),
            ]
        )
    header = [
        "samples of each class",
        "loss",
        "optimum to simplex",
        "trained to simplex",
        "trained to its optimum",
        "largest angle to the class mean",
        "agrees",
    ]
    caption = (
        f"T = {settings['temperature']}, batches of {settings['batch']} images and 2 views, {settings['steps']} steps,"
        f" {plural(settings['seeds'])} in this order. Largest difference of an angle, degrees; agreement is at most"
        f" {NEAR_DEG:g} to the simplex for prescribed losses, and for the others at most {NEAR_DEG:g} to their own"
        f" optimum and more to the simplex."
    )
    return f"{table(header, lines)}\n\n{caption}"


def draw(results: Results, figure: Any) -> None:
    """Distance from the simplex of every trained run, beside that of the optimum."""
    from optgeom.plotting.figures import BLUE, ORANGE

    axes = figure.add_subplot()
    labels = []
    for place, row in enumerate(results["rows"]):
        trained = np.array(row["trained"])[:, 0]
        predicted = max(row["predicted"], 1e-3)
        axes.plot([predicted], [place], "|", markersize=12, color=ORANGE, label=OPTIMUM if place == 0 else None)
        axes.plot(
            trained, [place] * len(trained), "o", markersize=4, color=BLUE, label="trained" if place == 0 else None
        )
        short = "BCL as published" if row["loss"] == "published" else NAMES[row["loss"]]
        labels.append(f"{short}, {len(row['counts'])} classes")
        if place and row["counts"] != results["rows"][place - 1]["counts"]:
            axes.axhline(place - 0.5, color="0.85", linewidth=0.8)
    axes.axvline(NEAR_DEG, color="0.6", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("largest difference of an angle from the simplex (degrees)")
    axes.legend(frameon=False, fontsize=8)


SIZE = (8.0, 5.2)
OPTIMUM = "its optimum (at the left edge: the simplex)"
