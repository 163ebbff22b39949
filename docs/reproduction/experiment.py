"""What the experiments share: a table, the word for agreement, small figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Results = dict[str, Any]
IMAGES = Path(__file__).resolve().parent.parent / "images"
DOTS_PER_INCH = 110


def agrees(holds: bool) -> str:
    """The last cell of a row."""
    return "yes" if holds else "**no**"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def degrees(values: Iterable[float]) -> str:
    """Angles in one cell."""
    return " / ".join(f"{value:.2f}" for value in values)


def error(value: float) -> str:
    """The size of an error, two digits, never rounded to nothing."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.1g}"


def angles(gram: Any) -> list[float]:
    """Angles of the pairs i < j, in degrees."""
    cosines = np.asarray(gram)
    return [
        float(angle) for angle in np.degrees(np.arccos(np.clip(cosines[np.triu_indices(len(cosines), 1)], -1.0, 1.0)))
    ]


def apart(cosines: Any, best: Any) -> float:
    """Largest difference of an angle between two matrices of cosines, in degrees."""
    return float(np.abs(np.subtract(angles(cosines), angles(best))).max())


def image(name: str) -> str:
    """File name of the figure of an experiment."""
    return f"reproduction-{name.replace('_', '-')}.png"


def plural(seeds: Sequence[int]) -> str:
    """The seeds, in words."""
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(str(seed) for seed in seeds)}"
