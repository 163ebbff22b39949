"""What a table is: hypothesis, measurement, how its rows are rendered, and how much work a measurement is."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from _harness import Row

PARTS = ("speed", "collapse", "ranges", "scan", "realize", "scaling", "validate", "training", "growth")
Plan = TypeVar("Plan")


@dataclass(frozen=True)
class Effort:
    """Which plan of a module ("full", "quick", "tiny"), which sizes of it, and at most how many runs of everybody."""

    level: str = "full"
    sizes: frozenset[int] = frozenset()
    most: int = 10**9

    def plan(self, full: Plan, quick: Plan, tiny: Plan) -> Plan:
        return {"full": full, "quick": quick, "tiny": tiny}[self.level]

    def wants(self, size: int) -> bool:
        return not self.sizes or size in self.sizes

    def times(self, repeats: int) -> int:
        return min(repeats, self.most)

    @property
    def patient(self) -> bool:
        """Whether runs wait for a quiet machine."""
        return self.level == "full"


@dataclass(frozen=True)
class Table:
    """One table of the page; `figure` draws its rows on a file, beside those of other tables in a folder of results."""

    name: str
    title: str
    hypothesis: str
    measure: Callable[[Effort], Iterable[Row]]
    render: Callable[[Sequence[Row]], str]
    figure: Callable[[Sequence[Row], Path, Path], None] | None = None


def tables() -> dict[str, Table]:
    """All tables by name, in the order of the page."""
    found = [table for part in PARTS for table in importlib.import_module(f"bench_{part}").TABLES]
    return {table.name: table for table in found}


def selected(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The names that equal a wanted one or start with it and a dash; all where nothing is asked for."""
    unknown = [want for want in wanted if not any(_fits(name, want) for name in names)]
    if unknown:
        raise ValueError(
            f"`--only` must be a table or a part of the page; got {unknown[0]!r} (one of {', '.join(names)})"
        )
    return [name for name in names if not wanted or any(_fits(name, want) for want in wanted)]


def _fits(name: str, want: str) -> bool:
    return name == want or name.startswith(f"{want}-")
