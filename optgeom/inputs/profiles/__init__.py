"""Class counts known by name: real data sets, shipped with their source, and formulas of the long-tailed benchmarks."""

from __future__ import annotations

import difflib
import importlib.resources
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import freeze
from optgeom.errors import InvalidInputError
from optgeom.inputs.profiles.formulas import FORMULAS, evaluate

__all__ = ["Profile", "describe", "formula_usages", "list_profiles", "load"]


@dataclass(frozen=True, eq=False)
class Profile:
    """Class counts or proportions with where they come from.

    Attributes
    ----------
    name, source, note : str
        The name that loads it, where the numbers were taken from, what they count.
    proportions : (C,) float64
        Read-only, sum 1.
    counts : (C,) int64 or None
        Read-only; None for formulas that define proportions only.
    names : tuple of str or None
        Class names, where the source has them.
    """

    name: str
    source: str
    note: str
    proportions: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64] | None
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        freeze(self)

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.proportions.size)

    @property
    def imbalance_factor(self) -> float:
        """Largest over smallest count as realised: `cifar100-lt:200` ends at floor(2.5) = 2, hence 250."""
        sizes = self.proportions if self.counts is None else self.counts
        return float(sizes.max() / sizes.min())


def list_profiles() -> tuple[str, ...]:
    """Names of the shipped profiles, sorted."""
    folder = importlib.resources.files("optgeom.inputs.profiles") / "data"
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


def formula_usages() -> dict[str, str]:
    """How each formula is written, and what it means."""
    return {formula.usage: formula.meaning for formula in FORMULAS.values()}


def load(name: str) -> Profile:
    """The profile with this name, shipped ("places-lt") or by formula ("cifar10-lt:100").

    Raises
    ------
    InvalidInputError
        No such profile (the message lists close names), or a formula with wrong arguments.
    """
    if not isinstance(name, str):
        raise InvalidInputError(f"`profile` must be a name; got {name!r} (`optgeom profiles` lists all)")
    name = name.strip()
    if name.partition(":")[0] in FORMULAS:
        formula, values = evaluate(name)
        counts = values.astype(np.int64) if values.dtype.kind == "i" else None
        return Profile(name, formula.source, formula.meaning, values / values.sum(), counts)
    if name not in list_profiles():
        raise _unknown(name)
    text = (importlib.resources.files("optgeom.inputs.profiles") / "data" / f"{name}.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    counts = np.array(content["counts"], dtype=np.int64)
    names = tuple(content["names"]) if "names" in content else None
    return Profile(name, content["source"], content["note"], counts / counts.sum(), counts, names)


def describe(name: str) -> dict[str, str | int | float | None]:
    """Name, source, note, number of classes and imbalance factor of a profile, and its extreme counts or None."""
    profile = load(name)
    return {
        "name": profile.name,
        "source": profile.source,
        "note": profile.note,
        "num_classes": profile.num_classes,
        "max_count": None if profile.counts is None else int(profile.counts.max()),
        "min_count": None if profile.counts is None else int(profile.counts.min()),
        "imbalance_factor": profile.imbalance_factor,
    }


def _unknown(name: str) -> InvalidInputError:
    known = [*list_profiles(), *FORMULAS]
    usages = {kind: formula.usage for kind, formula in FORMULAS.items()}
    wanted = name.lower().partition(":")[0]
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f"; close: {', '.join(usages.get(match, match) for match in close)}" if close else ""
    return InvalidInputError(f"`profile` must be a known name; got {name!r}{hint} (`optgeom profiles` lists all)")
