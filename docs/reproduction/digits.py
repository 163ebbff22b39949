"""Digits with an encoder: is the trained geometry that of the optimum, or the balanced simplex?"""

from __future__ import annotations

from typing import Any

import numpy as np
from experiment import Results, agrees, plural, table

import optgeom as og
from optgeom.training.data import hold_out, load_data, make_long_tailed
from optgeom.training.encoder import train_encoder
from optgeom.training.settings import Settings

SETTINGS = {
    "data": "digits",
    "root": "data",
    "arch": "mlp",
    "device": "cpu",
    "counts": [174, 87, 29],
    "temperatures": [0.5, 1.0, 0.1],
    "judged": [0.5, 1.0],
    "batch": 64,
    "steps": 1500,
    "learning_rate": 1e-3,
    "seeds": [0, 1, 2],
    "held_out": 1 / 3,
}
QUICK = {"temperatures": [0.5], "batch": 16, "steps": 4, "seeds": [0]}
LARGEST_DEG, TIMES = 3.0, 4.0  # what is called agreement


def run(settings: Results) -> Results:
    rows: list[dict[str, Any]] = []
    source = load_data(settings["data"], root=settings["root"])
    for tau in settings["temperatures"]:
        for share in (0.0, settings["held_out"]):
            for seed in settings["seeds"]:
                data = make_long_tailed(source, settings["counts"], seed)
                kept, away = hold_out(data, share, seed)
                how = Settings(
                    steps=settings["steps"],
                    learning_rate=settings["learning_rate"],
                    device=settings["device"],
                    seed=seed,
                    log_every=settings["steps"],
                )
                trained = train_encoder(
                    kept, og.SupCon(tau, settings["batch"], 2), settings=how, arch=settings["arch"], held_out=away
                )
                rows.append(
                    {
                        "temperature": tau,
                        "share": share,
                        "seed": seed,
                        "counts": kept.counts.tolist(),
                        "error": trained.distance.max_angle_error_deg,
                        "simplex": trained.simplex.max_angle_error_deg,
                        "held_out": None if trained.held_out is None else trained.held_out.max_angle_error_deg,
                        "angles": trained.distance.angles_deg,
                        "optimal": _angles(trained.geometry),
                        "loss": trained.loop.loss,
                        "optimal_loss": trained.geometry.risk,
                    }
                )
    return {"rows": rows}


def _angles(geometry: og.Geometry) -> list[float]:
    return [float(angle) for angle in geometry.angles()[np.triu_indices(geometry.num_classes, 1)]]


def _each(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def markdown(results: Results) -> str:
    settings, lines, held_lines = results["settings"], [], []
    for tau in settings["temperatures"]:
        rows = [row for row in results["rows"] if row["temperature"] == tau and not row["share"]]
        errors, simplex = [row["error"] for row in rows], [row["simplex"] for row in rows]
        ratios = [far / near for far, near in zip(simplex, errors, strict=True)]
        ok = max(errors) <= LARGEST_DEG and min(ratios) >= TIMES
        lines.append(
            [
                f"{tau:g}",
                " / ".join(f"{angle:.1f}" for angle in rows[0]["optimal"]) if len(rows[0]["optimal"]) == 3 else "-",
                f"at most {LARGEST_DEG:g}" if tau in settings["judged"] else "-",
                _each(errors),
                _each(simplex),
                ", ".join(f"{ratio:.1f}" for ratio in ratios),
                agrees(ok) if tau in settings["judged"] else "reported only",
            ]
        )
        apart = [row for row in results["rows"] if row["temperature"] == tau and row["share"]]
        held_lines.append(
            [
                f"{tau:g}",
                _each([row["error"] for row in apart]),
                _each([row["held_out"] for row in apart]),
                "reported only",
            ]
        )
    header = [
        "T",
        "optimal angles",
        "error, predicted",
        "error, ours, by seed",
        "distance from the simplex",
        "times closer to the optimum",
        "agrees",
    ]
    held_header = ["T", "error on the samples trained on", "error on the third held out", "agrees"]
    held_counts = next(row["counts"] for row in results["rows"] if row["share"])
    caption = (
        f"{settings['data']}, classes with {', '.join(map(str, settings['counts']))} samples, {settings['arch']}, "
        f"SupCon with batches of "
        f"{settings['batch']} images and 2 augmented views, Adam, {settings['steps']} steps, "
        f"{plural(settings['seeds'])}. Largest error of "
        f"an angle between class directions, in degrees. Agreement: at most {LARGEST_DEG:g} degrees and at least "
        f"{TIMES:g} times closer "
        "to the optimum than to the simplex, for every seed. Second table: trained on "
        f"{', '.join(map(str, held_counts))}, measured "
        "on them and on the others, of which the rarest class has few."
    )
    return f"{table(header, lines)}\n\n{table(held_header, held_lines)}\n\n{caption}"


def draw(results: Results, figure: Any) -> None:
    """Distance from the optimum and from the simplex, by temperature and seed."""
    from optgeom.plotting.figures import BLUE, GREEN, GREY, ORANGE

    axes = figure.add_subplot()
    marks = (
        ("the optimum", BLUE, "o"),
        ("the balanced simplex", ORANGE, "s"),
        ("the optimum, third held out", GREEN, "^"),
    )
    for position, tau in enumerate(results["settings"]["temperatures"]):
        rows = [row for row in results["rows"] if row["temperature"] == tau]
        full, split = [row for row in rows if not row["share"]], [row for row in rows if row["share"]]
        values = ([row["error"] for row in full], [row["simplex"] for row in full], [row["held_out"] for row in split])
        for (label, colour, mark), errors, shift in zip(marks, values, (-0.2, 0.0, 0.2), strict=True):
            label = label if position == 0 else None
            axes.plot(
                [position + shift] * len(errors),
                errors,
                mark,
                color=colour,
                markersize=6,
                markerfacecolor="none",
                label=label,
            )
    axes.axhline(LARGEST_DEG, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xticks(
        range(len(results["settings"]["temperatures"])), [f"T = {tau:g}" for tau in results["settings"]["temperatures"]]
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("largest error of an angle (degrees)")
    axes.set_title("Distance from …", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
