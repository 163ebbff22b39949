"""Scans: the optimal geometry on a grid of imbalance and loss parameters, as a table that a killed run can go on with.

Every cell is solved by itself, from the same start whatever was solved before. Starting Newton from the neighbouring
cell instead was tried: it saves one or two of its four to ten steps, 0 to 15 % of the time of a cell (most of which is
the majorizer of finitely many negatives, and the certificate), and nothing on collapsed cells, whose Newton answer is
no geometry. In return the last digits of a cell would depend on which cells came before it, and a resumed table would
differ from one made in a single run.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom.collapse import scan_table
from optgeom.collapse.scan_grid import Cell, Path, Values, build_grid, key_of
from optgeom.collapse.scan_table import Key, Row
from optgeom.collapse.thresholds import LARGEST_LOG_ODDS, collapse_threshold
from optgeom.errors import NotCertifiedError, OptGeomError
from optgeom.geometry import Geometry
from optgeom.inputs import parallel
from optgeom.solvers.api import solve

WRITE_SECONDS = 2.0  # a killed run loses about so much work
WRITE_SHARE = (
    20  # but a table so long that writing takes t seconds is written every 20 t: 5 % of the time, however long it grows
)
CELLS_IN_A_UNIT = (
    100  # cells of two groups that a worker solves at a stretch: below a second, far above the cost of sending them
)
RESUME = "what was done is in the file, if one was given: run again to go on"


@dataclass(frozen=True, eq=False, repr=False)
class Scan:
    """The cells of a grid, solved.

    Attributes
    ----------
    rows : list of dict
        One row a cell, sorted by coordinates; the columns are those of the file. Where a number does not apply it is
        None.
    file : pathlib.Path or None
        Where the table is kept; it may hold cells of other grids as well.
    new : int
        Cells solved by this run; the others were in the file.
    """

    rows: list[Row]
    file: FilePath | None = None
    new: int = 0

    def __repr__(self) -> str:
        return f"Scan(cells={len(self.rows)}, collapsed={self.collapsed}, uncertified={self.uncertified}, file={str(self.file)!r})"

    def __len__(self) -> int:
        return len(self.rows)

    def count(self, regime: str) -> int:
        """Certified cells of a regime: "spread", "partial-collapse" or "minority-collapse"."""
        return sum(bool(row["certified"]) and row["regime"] == regime for row in self.rows)

    @property
    def collapsed(self) -> int:
        """Cells where all minority classes provably share one direction."""
        return self.count("minority-collapse")

    @property
    def uncertified(self) -> int:
        """Cells without a certified geometry; their `error` says why."""
        return sum(not row["certified"] for row in self.rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        """One column as an array of float64 (nothing: NaN), bool or str.

        Whole numbers are floats too, as they may be missing.
        """
        _checks.choice("name", name, tuple(scan_table.COLUMNS))
        values = [row[name] for row in self.rows]
        kind = scan_table.COLUMNS[name][1]
        if kind == "string":
            return np.array(values, dtype=np.str_)
        return np.array(values, dtype=np.bool_) if kind == "bool_" else np.array(values, dtype=np.float64)

    def paths(self) -> list[tuple[Path, list[Row]]]:
        """Rows with the same parameters apart from the imbalance, by increasing imbalance."""
        names = tuple(Path.__dataclass_fields__)
        grouped = itertools.groupby(self.rows, lambda row: Path(**{name: row[name] for name in names}))
        return [(path, list(rows)) for path, rows in grouped]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to `.csv` or `.parquet`, replacing what is there."""
        scan_table.write(scan_table.check_target(path), {key_of(row): row for row in self.rows})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Scan:
        """All cells of a scan file, whatever grids they came from; raises `InvalidInputError` for any other file."""
        table = scan_table.read(path)
        return Scan([table[key] for key in sorted(table)], FilePath(path))


def scan(
    majority: Values | None = None,
    imbalance: Values | None = None,
    classes: Values = 10,
    temperature: Values = 0.1,
    negatives: Values | None = None,
    batch_size: Values | None = None,
    sampling: Values | None = None,
    *,
    majority_odds: Values | None = None,
    alpha: float | None = None,
    negatives_reduction: str | None = None,
    loss: str | None = None,
    views: int | None = None,
    profile: str = "majority",
    workers: int = 1,
    dask: Any = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: Callable[[int, int], None] | None = None,
    tolerance: float = 1e-8,
) -> Scan:
    """Solve every cell of a grid; a cell that fails is a row that says why.

    Parameters
    ----------
    majority, imbalance, majority_odds : number or sequence
        Exactly one of them. Share of the majority class, strictly between 0 and 1; most over least frequent class; odds
        of the majority class against all others together (for shares that round to 1).
    classes, temperature : number or sequence
        C >= 2; tau > 0.
    negatives : number or sequence
        Of InfoNCE: k >= 1 or inf (256).
    batch_size : number or sequence
        Of SupCon: N images or inf (inf).
    sampling : {"ucl", "scl"} or sequence
        Of InfoNCE: negatives from all classes or from the other classes ("ucl").
    alpha, negatives_reduction
        Of InfoNCE, as there; without a reduction, sums for finitely many negatives and the mean for infinitely many.
    loss : {"infonce", "supcon"}, optional
        InfoNCE where one of its parameters is given, else SupCon.
    views : int
        Of SupCon (2); anchors without a positive count as 0.
    profile : {"majority", "exp", "step", "zipf"}
        How proportions fall: one majority class and equal others, exponentially, in two steps, or by Zipf's law. All
        but the first need `imbalance`. They are real numbers here, not rounded to counts.
    workers : int
        Processes (joblib); 1 solves in this one.
    dask : str or distributed.Client, optional
        Address of a dask.distributed scheduler, whose workers can import optgeom; replaces `workers`.
    out : path, optional
        `.csv` or `.parquet`, written every few seconds, always whole. Cells that it holds already are not solved again.
    resume : bool
        False replaces the file instead of adding to it.
    progress : callable, optional
        Called with (cells done, cells in all).
    tolerance : float
        Relative duality gap, as in `solve`.

    Returns
    -------
    Scan
        The cells of this grid. Apart from `seconds` they do not depend on `workers`, on `dask`, or on how often the run
        was interrupted.

    Raises
    ------
    InvalidInputError
        A value outside its domain, parameters that do not go together, or a file that is no scan.
    MissingDependencyError
        joblib, dask or pyarrow is needed and not there.
    SolverError
        A worker process died, or the cluster went away; the file keeps what was done.

    References
    ----------
    Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291 (minority collapse beyond a share of the majority class).
    """
    workers = _checks.integer("workers", workers, at_least=1, hint="1 solves in this process")
    cells = build_grid(
        majority=majority,
        majority_odds=majority_odds,
        imbalance=imbalance,
        classes=classes,
        temperature=temperature,
        negatives=negatives,
        batch_size=batch_size,
        sampling=sampling,
        alpha=alpha,
        negatives_reduction=negatives_reduction,
        loss=loss,
        views=views,
        profile=profile,
        tolerance=tolerance,
    )
    file = None if out is None else scan_table.check_target(out)
    ledger = _Ledger(file, scan_table.read(file) if file is not None and resume and file.exists() else {})
    todo = [cell for cell in cells if cell.key not in ledger.table]
    done = len(cells) - len(todo)
    try:
        if progress is not None:
            progress(done, len(cells))
        for rows in parallel.run(solve_unit, _units(todo), workers, dask, remedy=RESUME):
            ledger.add(rows)
            done += len(rows)
            if progress is not None:
                progress(done, len(cells))
    finally:
        ledger.close()
    return Scan([ledger.table[cell.key] for cell in cells], file, len(todo))


class _Ledger:
    """The rows so far, and their file, which is never far behind."""

    def __init__(self, file: FilePath | None, table: dict[Key, Row]) -> None:
        self.file = file
        self.table = table
        self.unsaved = file is not None and not file.exists()
        self.cost = 0.0
        self.written = time.monotonic()

    def add(self, rows: list[Row]) -> None:
        self.table.update((key_of(row), row) for row in rows)
        self.unsaved = True
        if time.monotonic() - self.written > max(WRITE_SECONDS, WRITE_SHARE * self.cost):
            self.close()

    def close(self) -> None:
        """Write what is not in the file yet."""
        if self.file is None or not self.unsaved:
            return
        began = time.monotonic()
        scan_table.write(self.file, self.table)
        self.written = time.monotonic()
        self.cost = self.written - began
        self.unsaved = False


def _units(cells: list[Cell]) -> list[list[Cell]]:
    """Cells of one path each, so that a unit needs its threshold once, and few enough to take about a second."""
    units = []
    for path, members in itertools.groupby(cells, lambda cell: cell.path):
        held, length = list(members), max(1, CELLS_IN_A_UNIT // path.groups)
        units += [held[start : start + length] for start in range(0, len(held), length)]
    return units


def solve_unit(cells: list[Cell]) -> list[Row]:
    """Rows of some cells; this is what workers run."""
    return [_solve_cell(cell) for cell in cells]


def _solve_cell(cell: Cell) -> Row:
    row = {**scan_table.blank(), **cell.coordinates(), "certified": False, "log_odds": _log_odds(cell)}
    began = time.perf_counter()
    try:
        row["threshold_log_odds"], row["threshold_imbalance"] = _threshold(cell.path)
        row.update(_result(solve(cell.build_classes(), cell.path.build_loss(), tolerance=cell.path.tolerance)))
    except NotCertifiedError as error:
        row.update(_result(error.geometry), error=_line(error))
    # A scan may run for hours: whatever goes wrong in one cell, be it memory or a bug, is a row with its reason and not
    # the end of it.
    except Exception as error:
        row["error"] = _line(error) if isinstance(error, OptGeomError) else f"{type(error).__name__}: {_line(error)}"
    row["seconds"] = time.perf_counter() - began
    return row


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _result(geometry: Geometry) -> Row:
    return {
        "risk": float(geometry.risk),
        "rank": int(geometry.rank),
        "regime": geometry.regime,
        "min_angle_deg": float(geometry.min_angle_deg),
        "gap": float(geometry.certificate.gap),
        "backward_error": geometry.certificate.backward_error,
        "certified": bool(geometry.certificate.certified),
        "solver": geometry.solver.name,
        "iterations": int(geometry.solver.iterations),
    }


def _log_odds(cell: Cell) -> float:
    return (
        math.log(cell.majority_odds)
        if cell.path.profile == "majority"
        else cell.path.log_odds(math.log(cell.imbalance))
    )


@functools.lru_cache(maxsize=4096)
def _threshold(path: Path) -> tuple[float | None, float | None]:
    """Log odds and imbalance at which total collapse begins on a path; None where there is no such point in floating
    point.

    With negatives from all classes the odds depend neither on the number of minority classes nor on their split. Where
    they do, and the split changes along the path, there is no one threshold for it.
    """
    if (
        path.num_classes < 3 or path.profile == "step"
    ):  # two classes have no minority to collapse, and steps have several majorities
        return None, None
    try:
        loss = path.build_loss()
        if path.profile != "majority" and "uniform-negatives" not in loss.gives:
            return None, None
        log_odds = collapse_threshold(loss, minorities=path.num_classes - 1).log_odds
    except OptGeomError:
        return None, None

    def beyond(log_imbalance: float) -> float:
        return path.log_odds(log_imbalance) - log_odds

    if path.profile == "majority":
        log_imbalance = log_odds + math.log(path.num_classes - 1)
    elif beyond(LARGEST_LOG_ODDS) < 0:
        return log_odds, None
    else:
        from scipy.optimize import brentq

        log_imbalance = float(brentq(beyond, 0.0, LARGEST_LOG_ODDS, xtol=1e-13, rtol=1e-14))
    return log_odds, math.exp(log_imbalance) if log_imbalance < LARGEST_LOG_ODDS else None
