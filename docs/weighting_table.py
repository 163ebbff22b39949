"""The table and the picture of weighting-guide.md: four weighting schemes, two latent similarities.

python docs/weighting_table.py             print the table
python docs/weighting_table.py --write     put it into the page, and draw the picture
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from optgeom.inputs import files
from optgeom.realization.api import Realization, realize
from optgeom.realization.weights import Weights

PAGE = Path(__file__).resolve().parent / "weighting-guide.md"
BEGIN, END = "<!-- weighting_table:begin -->", "<!-- weighting_table:end -->"
CLASSES = np.repeat(["a", "b", "c"], [12, 6, 3])
ANGLE = 2 * np.pi * np.arange(30) / 30
CIRCLE = np.column_stack([np.cos(ANGLE), np.sin(ANGLE)])
CLOUD = np.random.default_rng(0).normal(size=(30, 3))

# (scheme and labels, weights, temperature of the loss, dimension of the embedding)
ROWS = (
    ("SupCon, 3 classes", Weights.supcon(CLASSES), 0.5, None),
    ("Soft SupCon, epsilon .1, 3 classes", Weights.soft_supcon(CLASSES, 0.1), 0.5, None),
    ("Soft SupCon, epsilon .01, 3 classes", Weights.soft_supcon(CLASSES, 0.01), 0.5, None),
    ("y-Aware, labels on a circle", Weights.y_aware(CIRCLE), 1.0, 2),
    ("y-Aware, labels in space", Weights.y_aware(CLOUD), 1.0, 3),
    ("X-CLR, temperatures equal", Weights.x_clr(CLOUD, 0.5), 0.5, 3),
    ("X-CLR, loss warmer than the weights", Weights.x_clr(CLOUD, 0.5), 1.0, 3),
)


def verdict(found: Realization) -> str:
    """A cell: the verdict, with the dimension or the distance from the bound."""
    if found.regime == "realizable":
        return f"realizable in {found.rank} dimensions"
    if found.regime == "degenerate" and found.rank is None:
        return "degenerate: only in the limit of infinite distances"
    if found.bracket is not None:
        return f"{found.regime}: {found.gap_to_bound:.2f} above the bound, the best found"
    return f"{found.regime}: {found.gap_to_bound:.2f} above the bound, certified"


def table() -> str:
    """The Markdown table."""
    lines = ["| weights | temperature | dimension | cosine | Euclidean |", "| --- | --- | --- | --- | --- |"]
    for name, weights, tau, dim in ROWS:
        cells = [
            verdict(realize(weights, similarity, temperature=tau, dim=dim)) for similarity in ("cosine", "euclidean")
        ]
        lines.append(f"| {name} | {tau:g} | {'any' if dim is None else dim} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def draw(path: Path) -> None:
    """Labels on a line, cosine similarity: what the weights ask for and what a sphere can give."""
    from optgeom.plotting import save_figure
    from optgeom.plotting.realization import plot_realization

    save_figure(plot_realization(realize(Weights.y_aware(np.linspace(0, 1, 40), 0.2), temperature=0.5)), path, dpi=110)


def main(argv: list[str]) -> int:
    text = table()
    print(text)
    if "--write" in argv:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        files.write_text(PAGE, f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")
        draw(PAGE.parent / "images" / "weighting-line.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
