"""The table of a scan as a file: CSV or Parquet, sorted by coordinates, one row per cell, floats with all digits.

The parameters of InfoNCE and SupCon have columns of their own, as in 0.1.0, since people plot them; `parameters` holds
the name and all parameters of the loss as JSON, for any loss, so that the columns need not grow with the losses. Tables
of 0.1.0, which lack that column, are read until 0.3.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from optgeom.collapse.scan_grid import key_of
from optgeom.errors import InvalidInputError, MissingDependencyError
from optgeom.formatting import excerpt
from optgeom.inputs import files
from optgeom.losses import registry
from optgeom.losses.base import plain
from optgeom.losses.options import WEIGHTS

Row = dict[str, Any]
Key = tuple[Any, ...]
VERSION = "1"
LARGEST_WHOLE = 2**63 - 1  # what the int64 of Parquet holds


def _number(text: str) -> float:
    """Whole where the parameter is a whole number or infinity."""
    value = float(text)
    return int(value) if value.is_integer() else value


def _whole(text: str) -> int:
    value = int(text)
    if abs(value) > LARGEST_WHOLE:
        raise ValueError(f"{text[:20]} is too large")
    return value


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


# Column: how its text is read, and its type in Parquet. Text columns hold "" where there is nothing, the others nothing
# at all. `negatives` and `batch_size` are floats in Parquet, because they may be infinite.
COLUMNS: dict[str, tuple[Callable[[str], Any], str]] = {
    "loss": (str, "string"),
    "sampling": (str, "string"),
    "negatives": (_number, "float64"),
    "batch_size": (_number, "float64"),
    "views": (_whole, "int64"),
    "alpha": (float, "float64"),
    "negatives_reduction": (str, "string"),
    "temperature": (float, "float64"),
    "profile": (str, "string"),
    "num_classes": (_whole, "int64"),
    "tolerance": (float, "float64"),
    "imbalance": (float, "float64"),
    "majority": (float, "float64"),
    "majority_odds": (float, "float64"),
    "risk": (float, "float64"),
    "rank": (_whole, "int64"),
    "regime": (str, "string"),
    "min_angle_deg": (float, "float64"),
    "gap": (float, "float64"),
    "backward_error": (float, "float64"),
    "certified": (_boolean, "bool_"),
    "log_odds": (float, "float64"),
    "threshold_log_odds": (float, "float64"),
    "threshold_imbalance": (float, "float64"),
    "solver": (str, "string"),
    "iterations": (_whole, "int64"),
    "seconds": (float, "float64"),
    "error": (str, "string"),
    "parameters": (str, "string"),
}
COLUMNS_OF_0_1_0 = [name for name in COLUMNS if name != "parameters"]
KINDS = {"float64": "a number", "int64": "a whole number", "bool_": "true or false"}
REQUIRED = ("num_classes", "tolerance", "imbalance", "majority", "majority_odds", "certified")


def blank() -> Row:
    """A row with nothing in it."""
    return {name: "" if kind == "string" else None for name, (_, kind) in COLUMNS.items()}


def check_target(path: str | os.PathLike[str]) -> Path:
    """`path` as a place where the table can be written; checked before the work, not after it.

    Raises
    ------
    InvalidInputError
        Another ending than .csv and .parquet, or no such folder.
    MissingDependencyError
        Parquet without pyarrow.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise InvalidInputError(f"a scan is kept as .csv or .parquet; got {str(path)!r}")
    files.check_target(path)
    if suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise MissingDependencyError("Parquet files need pyarrow: pip install 'optgeom[io]' (or give a .csv file)")
    return target


def write(path: Path, table: dict[Key, Row]) -> None:
    """Write all rows, sorted by key, in one step: a reader, or the next run after a kill, never meets half a file."""
    rows = [table[key] for key in sorted(table)]
    if path.suffix.lower() == ".csv":
        files.write_text(path, _csv_text(rows))
        return
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    content = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), content)
    files.write_bytes(path, content.getvalue().to_pybytes())


def _schema(columns: Iterable[str] = tuple(COLUMNS)) -> Any:
    import pyarrow as pa

    types = [(name, getattr(pa, COLUMNS[name][1])()) for name in columns]
    return pa.schema(types, metadata={"optgeom-scan": VERSION})


def _csv_text(rows: Iterable[Row]) -> str:
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_text(row[name]) for name in COLUMNS] for row in rows)
    return content.getvalue()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def read(path: str | os.PathLike[str]) -> dict[Key, Row]:
    """Rows of a scan file by key.

    Raises
    ------
    InvalidInputError
        Not a scan file of this version, or damaged; the message says where.
    MissingDependencyError
        Parquet without pyarrow.
    """
    target = check_target(path)
    if not target.is_file():
        raise InvalidInputError(f"there is no scan file {path} (`scan` with `out` writes one)")
    return _read_csv(target) if target.suffix.lower() == ".csv" else _read_parquet(target)


def _check_columns(path: Path, columns: list[str]) -> None:
    if columns in (list(COLUMNS), COLUMNS_OF_0_1_0):
        return
    foreign = [name for name in columns if name not in COLUMNS]
    different = foreign or [name for name in COLUMNS if name not in columns] or columns
    named = ", ".join(map(repr, different[:3]))
    raise InvalidInputError(
        f"{path} is not a scan of this version: its columns differ ({named}); give another file, or remove it"
    )


def _read_csv(path: Path) -> dict[Key, Row]:
    """Rows of the file that `write` wrote.

    Cells are taken exactly as they stand. Tables that people write (`optgeom.inputs.tables`) have comments, and blanks
    around cells; to drop them here would change the text of an error or of a profile.
    """
    table: dict[Key, Row] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            lines = csv.reader(stream)
            columns = next(lines, [])
            _check_columns(path, columns)
            for cells in lines:
                row = _row_of(columns, cells, f"{path}, line {lines.line_num}")
                table[key_of(row)] = row
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInputError(f"{path} is not a scan file: {error} (give another file, or remove it)") from error
    return table


def _row_of(columns: list[str], cells: list[str], where: str) -> Row:
    if len(cells) != len(columns):
        raise InvalidInputError(
            f"{where}: a row of a scan must have {len(columns)} cells; got {len(cells)} (repair or remove it)"
        )
    row: Row = {}
    for name, text in zip(columns, cells, strict=True):
        read_text, kind = COLUMNS[name]
        try:
            row[name] = text if kind == "string" else read_text(text) if text else None
        except (ValueError, KeyError):
            raise InvalidInputError(
                f"{where}: `{name}` must be {KINDS[kind]}; got {excerpt(text)} (repair or remove it)"
            ) from None
    return _complete(row, where)


def _complete(row: Row, where: str) -> Row:
    """The row with its parameters; refuses one without what makes it a cell of a grid."""
    missing = [name for name in REQUIRED if row[name] is None]
    if missing:
        raise InvalidInputError(f"{where}: a row of a scan must have `{missing[0]}`; got nothing (repair or remove it)")
    if "parameters" not in row:
        row["parameters"] = _parameters_of_0_1_0(row)
    try:
        described = json.loads(row["parameters"])
    except ValueError:
        described = None
    if not isinstance(described, dict):
        came = excerpt(row["parameters"])
        raise InvalidInputError(f"{where}: `parameters` must be a JSON object; got {came} (repair or remove it)")
    return row


def _parameters_of_0_1_0(row: Row) -> str:
    """JSON of the loss, whose parameters had a column each; it had no weights yet."""
    entry = registry.find(row["loss"])
    options = () if entry is None else [option for option in entry.options if option not in WEIGHTS]
    values = {option.name: plain(row.get(option.name, option.default)) for option in options}
    return json.dumps({"name": row["loss"], **values})


def _read_parquet(path: Path) -> dict[Key, Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as stream:
            content = pq.read_table(stream, partitioning=None)
        _check_columns(path, content.column_names)
        rows = content.cast(_schema(content.column_names)).to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())
        raise InvalidInputError(
            f"{path} is not a Parquet file of a scan, or damaged: {why} (give another file, or remove it)"
        ) from error
    table: dict[Key, Row] = {}
    for number, row in enumerate(rows):
        for name in row:
            if COLUMNS[name][1] == "string" and row[name] is None:
                row[name] = ""
        _complete(row, f"{path}, row {number}")
        for name in ("negatives", "batch_size"):
            if row[name] is not None and math.isfinite(row[name]):
                row[name] = int(row[name])
        table[key_of(row)] = row
    return table
