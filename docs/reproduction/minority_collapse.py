"""One majority, two equal minorities: they coincide on one side of the exact threshold, and do not on the other."""

from __future__ import annotations

import math
from typing import Any

from experiment import Results, agrees, plural, table

import optgeom as og
from optgeom.collapse.thresholds import collapse_threshold
from optgeom.training.features import train_features
from optgeom.training.settings import Settings

SETTINGS = {
    "shares": {
        "ucl": [0.7, 0.8, 0.82, 0.9],
        "scl": [0.66, 0.72, 0.8],
        "batches": [0.9, 0.95],
        "limit": [0.9, 0.92, 0.93, 0.95],
    },
    "seeds": [0, 1, 2],
    "steps": 8000,
    "anchors": 2048,
    "curve": [0.5, 0.98, 60],
}
QUICK = {
    "shares": {"ucl": [0.9], "scl": [0.8], "batches": [0.9], "limit": [0.9]},
    "seeds": [0],
    "steps": 10,
    "curve": [0.7, 0.98, 4],
}
COLLAPSED = 0.99  # cosine of the minorities from which they are called one
EXACT, SAMPLED = 1e-3, 0.02  # largest error of this cosine that is called agreement
LOSSES: dict[str, tuple[str, og.Loss]] = {
    "ucl": ("InfoNCE, k = 1, UCL", og.InfoNCE(1.0, 1, sampling="ucl")),
    "scl": ("InfoNCE, k = 1, SCL", og.InfoNCE(1.0, 1, sampling="scl")),
    "batches": ("SupCon, batches of 256", og.SupCon(1.0, 256, 2)),
    "limit": ("SupCon, limit of large batches", og.SupCon(1.0)),
}


def classes_of(share: float) -> og.ClassDistribution:
    return og.ClassDistribution.from_proportions([share, (1 - share) / 2, (1 - share) / 2])


def run(settings: Results) -> Results:
    rows, curves = [], {}
    low, high, number = settings["curve"]
    grid = [low + (high - low) * i / (number - 1) for i in range(number)]
    for key, (_, loss) in LOSSES.items():
        collapse = collapse_threshold(loss, minorities=2)
        # With the threshold itself, where the curve has a corner.
        curves[key] = [
            [share, float(og.solve(classes_of(share), loss).gram[1, 2])]
            for share in sorted([*grid, collapse.threshold])
        ]
        for share in settings["shares"][key]:
            classes = classes_of(share)
            exact = [train_features(classes, loss, seed=seed) for seed in settings["seeds"]]
            predicted = float(exact[0].geometry.gram[1, 2])
            sampled = None
            if key != "limit":
                how = Settings(steps=settings["steps"], learning_rate=0.03, device="cpu", log_every=settings["steps"])
                sampled = float(train_features(classes, loss, settings=how, anchors=settings["anchors"]).gram[1, 2])
            trained = [float(one.gram[1, 2]) for one in exact]
            rows.append(
                {
                    "loss": key,
                    "share": share,
                    "threshold": collapse.threshold,
                    "published": collapse.published_sufficient,
                    "predicted": predicted,
                    "exact": max(trained, key=lambda one: abs(one - predicted)),
                    "sampled": sampled,
                }
            )
    return {"rows": rows, "curves": curves}


def _held(row: Results) -> bool:
    side = (row["share"] > row["threshold"]) == (row["exact"] >= COLLAPSED)
    near = abs(row["exact"] - row["predicted"]) <= EXACT
    return side and near and (row["sampled"] is None or abs(row["sampled"] - row["predicted"]) <= SAMPLED)


def markdown(results: Results) -> str:
    settings, lines = results["settings"], []
    for row in results["rows"]:
        published = "-" if row["published"] is None else f"{row['published']:.4f}"
        side = "collapse" if row["share"] > row["threshold"] else "none"
        sampled = "-" if row["sampled"] is None else f"{row['sampled']:.4f}"
        lines.append(
            [
                LOSSES[row["loss"]][0],
                f"{row['share']:g}",
                published,
                f"{row['threshold']:.4f}",
                side,
                f"{row['predicted']:.4f}",
                f"{row['exact']:.4f}",
                sampled,
                agrees(_held(row)),
            ]
        )
    header = [
        "loss",
        "majority",
        "published threshold (sufficient)",
        "our threshold (exact)",
        "predicted",
        "minority cosine, predicted",
        "trained, exact objective",
        "trained, batches",
        "agrees",
    ]
    caption = (
        f"T = 1. Exact objective: L-BFGS, {plural(settings['seeds'])} (the farthest from the prediction is shown); "
        f"batches: "
        f"{settings['steps']} steps of {settings['anchors']} anchors for InfoNCE, seed 0; the limit has no batches. "
        f"Agreement: trained on "
        f"the exact objective the cosine is at least {COLLAPSED} where collapse is predicted and below where it is "
        f"not, and within "
        f"{EXACT:g} of the prediction (batches: {SAMPLED:g})."
    )
    return f"{table(header, lines)}\n\n{caption}"


def draw(results: Results, figure: Any) -> None:
    """Cosine of the minorities against the share of the majority."""
    from optgeom.plotting.figures import BLACK, BLUE, GREEN, ORANGE

    axes = figure.add_subplot()
    for (key, curve), colour in zip(results["curves"].items(), (BLUE, GREEN, BLACK, ORANGE), strict=True):
        axes.plot(*zip(*curve, strict=True), color=colour, label=LOSSES[key][0])
        rows = [row for row in results["rows"] if row["loss"] == key]
        axes.plot([row["share"] for row in rows], [row["exact"] for row in rows], "o", markersize=5, color=colour)
        sampled = [row for row in rows if row["sampled"] is not None]
        axes.plot(
            [row["share"] for row in sampled], [row["sampled"] for row in sampled], "x", markersize=8, color=colour
        )
        axes.axvline(rows[0]["threshold"], color=colour, linestyle=":", linewidth=0.8)
    axes.set_xlabel("share of the majority")
    axes.set_ylabel("cosine of the two minorities")
    axes.set_title("Lines: predicted, dotted at the threshold. Dots, crosses: trained (exact, batches).", fontsize=10)
    axes.set_ylim(-0.55, 1.05)
    axes.set_xlim(0.5, math.nextafter(0.98, 1))
    axes.legend(fontsize=8, loc="lower right", framealpha=1.0, edgecolor="none")
