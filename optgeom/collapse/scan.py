"""Scans: the optimal geometry on a grid of imbalance and loss parameters, as a table that a killed run can go on with.

Every cell is solved by itself, from the same start whatever was solved before. Starting Newton from the neighbouring
cell instead was tried: it saves one or two of its four to ten steps, 0 to 15 % of the time of a cell (most of which is
the majorizer of finitely many negatives, and the certificate), and nothing on collapsed cells, whose Newton answer is
no geometry. In return the last digits of a cell would depend on which cells came before it, and a resumed table would
differ from one made in a single run.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks
from optgeom.collapse import scan_table
from optgeom.collapse.scan_grid import SETTING, Cell, Values, build_grid, expand, key_of
from optgeom.collapse.scan_table import Key, Row
from optgeom.errors import InvalidInputError, NotCertifiedError, OptGeomError
from optgeom.geometry import Geometry
from optgeom.inputs import parallel
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss, SupCon
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
        One row per cell, sorted by coordinates; the columns are those of the file. Where a number does not apply it is
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
        return (
            f"Scan(cells={len(self.rows)}, collapsed={self.collapsed}, uncertified={self.uncertified}, "
            f"file={str(self.file)!r})"
        )

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
        """One column, or one parameter of the loss, as an array of float64 (nothing: NaN), bool or str.

        Whole numbers are floats too, as they may be missing.
        """
        rows = expand(self.rows) if self.rows else []
        further = [key for key in (rows[0] if rows else ()) if key not in scan_table.COLUMNS]
        _checks.choice("name", name, (*scan_table.COLUMNS, *further))
        values = [row[name] for row in rows]
        text = any(isinstance(value, str) for value in values)
        kind = scan_table.COLUMNS.get(name, (str, "string" if text else "float64"))[1]
        if kind == "string":
            return np.array(values, dtype=np.str_)
        return np.array(values, dtype=np.bool_) if kind == "bool_" else np.array(values, dtype=np.float64)

    def paths(self) -> list[tuple[dict[str, Any], list[Row]]]:
        """Rows with the same parameters apart from the imbalance, by increasing imbalance, behind these parameters."""
        grouped = itertools.groupby(self.rows, lambda row: [row[name] for name in (*SETTING, "parameters")])
        paths = [list(rows) for _, rows in grouped]
        return [({name: rows[0][name] for name in SETTING}, rows) for rows in paths]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to `.csv` or `.parquet`, replacing what is there."""
        scan_table.write(scan_table.check_target(path), {key_of(row): row for row in self.rows})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Scan:
        """All cells of a scan file, whatever grids they came from; raises `InvalidInputError` for any other file."""
        table = scan_table.read(path)
        return Scan([table[key] for key in sorted(table)], FilePath(path))


# Arguments of 0.1.0, which are parameters of the loss or axes now.
REMOVED = {
    **{name: f"axes={{{name!r}: [...]}}" for name in ("majority", "majority_odds", "imbalance")},
    **{name: f"loss=InfoNCE({name}=...)" for name in ("negatives", "alpha", "negatives_reduction", "sampling")},
    **{name: f"loss=SupCon({name}=...)" for name in ("batch_size", "views", "temperature")},
    "profile": "shape=...",
}


def scan(
    classes: ClassDistribution | int | None = None,
    loss: Loss | None = None,
    *,
    axes: Mapping[str, Values] | None = None,
    shape: str = "majority",
    workers: int = 1,
    dask: Any = None,
    out: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: Callable[[int, int], None] | None = None,
    tolerance: float = 1e-8,
    **removed: Any,
) -> Scan:
    """Solve every cell of a grid; a cell that fails is a row that says why.

    Parameters
    ----------
    classes : ClassDistribution or int, optional
        Classes that stay the same in every cell, or the number of classes of a shape (10).
    loss : Loss, optional
        Any loss; `SupCon()` by default. A loss of counts, as `SupConFullBatch`, needs classes that have counts.
    axes : mapping of str to number or sequence
        What varies. Parameters of the loss by name ("temperature", "negatives", ...), and, where no classes are given,
        "num_classes" and exactly one of "majority" (share of the majority class, between 0 and 1), "majority_odds" (its
        odds against all others together, for shares that round to 1), "imbalance" (most over least frequent class).
        Infinitely many negatives are averaged unless "negatives_reduction" is an axis, too.
    shape : {"majority", "exp", "step", "zipf"}
        How proportions fall: one majority class and equal others, exponentially, in two steps, or by Zipf's law. All
        but the first need "imbalance". They are real numbers here, not rounded to counts.
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
        A value outside its domain, axes that do not go together, an argument of 0.1.0, or a file that is no scan.
    IncompatibleError
        A loss of counts without classes that have counts.
    MissingDependencyError
        joblib, dask or pyarrow is needed and not there.
    SolverError
        A worker process died, or the cluster went away; the file keeps what was done.

    References
    ----------
    Nguyen, Aeron, Brown, Ishwar 2026, arXiv 2605.11291 (minority collapse beyond a share of the majority class).
    """
    for name in removed:
        if name not in REMOVED:
            raise TypeError(f"scan() got an unexpected keyword argument {name!r}")
        raise InvalidInputError(
            f"`{name}` of scan is gone; got {name}=... (write {REMOVED[name]}, or "
            f"axes={{{name!r}: [...]}} where it varies)"
        )
    workers = _checks.integer("workers", workers, at_least=1, hint="1 solves in this process")
    cells = build_grid(classes, SupCon() if loss is None else loss, {} if axes is None else axes, shape, tolerance)
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
    """Cells of one setting each, so that a unit needs its threshold once, and few enough to take about a second."""
    units = []
    for setting, members in itertools.groupby(cells, lambda cell: cell.setting):
        alike, length = list(members), max(1, CELLS_IN_A_UNIT // setting.groups)
        units += [alike[start : start + length] for start in range(0, len(alike), length)]
    return units


def solve_unit(cells: list[Cell]) -> list[Row]:
    """Rows of some cells; workers run this."""
    return [_solve_cell(cell) for cell in cells]


def _solve_cell(cell: Cell) -> Row:
    setting = cell.setting
    row = {**scan_table.blank(), **cell.coordinates(), "certified": False, "log_odds": cell.log_odds}
    began = time.perf_counter()
    try:
        row["threshold_log_odds"], row["threshold_imbalance"] = setting.threshold
        row.update(_result(solve(cell.build_classes(), setting.build_loss(), tolerance=setting.tolerance)))
    except NotCertifiedError as error:
        row.update(_result(error.result), error=_line(error))
    # A scan may run for hours: whatever goes wrong in one cell, memory or a bug, is a row with its reason and not the
    # end of it.
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
