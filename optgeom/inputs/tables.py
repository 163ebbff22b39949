"""Text tables and the files of counts and labels that people keep: one dialect of CSV, one idea of a number.

Cells are separated by tabs, commas or semicolons, may be quoted, and are stripped; empty lines and lines that begin
with ``#`` are passed over. Every kind of file has a header only if its first line cannot be data.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError
from optgeom.formatting import excerpt, first_of
from optgeom.inputs import files
from optgeom.inputs.labels import encode

LABEL_COLUMNS = ("label", "labels", "target", "targets", "y", "class")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d{1,300}", re.ASCII)
_FILE_NAME = re.compile(r"\.[A-Za-z][A-Za-z0-9]{1,4}$")
_COUNT_WORDS = frozenset(
    {"count", "counts", "n", "num", "number", "frequency", "freq", "images", "samples", "instances", "weight", "size"}
)
_CLASS_WORDS = frozenset({"class", "classes", "name", "names", "class_name", "label", "category", "id", "class_id"})
_LABEL_WORDS = frozenset({"label", "labels", "target", "targets", "y"})
_COUNTS_KINDS = "a JSON list or object, `class,count` lines, one number per line, or `path label` lines"
_LABELS_KINDS = ".npy, .npz, .csv, .tsv, .txt or .json"
# Headings of columns that number or name the samples; pandas leaves that of its index empty.
_SAMPLE_WORDS = frozenset(
    {"", "id", "ids", "idx", "index", "row", "path", "file", "filename", "image_id", "sample_id", "unnamed: 0"}
)
_SHOWN_NAMES = 5


@dataclass(frozen=True)
class CountsTable:
    """What a counts file holds; `counts` are unchecked, in file order, with names where the file has them."""

    counts: list[Any]
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class LabelTable:
    """Numeric labels, one row per sample: values (n,) or (n, p), and the headings of the columns taken, if any."""

    values: Any
    columns: tuple[str, ...] = ()

    @property
    def note(self) -> str | None:
        """For the user where several columns of a text file count as labels."""
        if len(self.columns) < 2:
            return None
        named = first_of(self.columns, _SHOWN_NAMES)
        return f"labels: {len(self.columns)} columns, {named} (--label-column NAME takes some of them)"


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """The UTF-8 text of a file, or `InvalidInputError` with the reason; `what` says what the file was to be."""
    try:
        with files.open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise InvalidInputError(f"cannot read the {what} {path}: {error.strerror or error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"cannot read the {what} {path}: it is not UTF-8 text (byte {error.start}; save it as text)"
        ) from error
    if "\0" in text:
        raise InvalidInputError(f"cannot read the {what} {path}: it is a binary file (save it as text)")
    return text


def is_number(text: str) -> bool:
    """Whether `text` is a decimal number, NaN or infinity. Narrower than `float`, which also takes 1_000."""
    return _NUMBER.fullmatch(text) is not None


def number_of(text: str) -> int | float:
    """The number in `text`, exact where it is whole."""
    return int(text) if _WHOLE.fullmatch(text) else float(text)


def read_rows(path: object, text: str, *, blanks: bool = False) -> list[tuple[int, list[str]]]:
    """Rows of a table with their line numbers, from 1; with `blanks`, white space separates where nothing else does."""
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    delimiter = next((mark for mark in "\t,;" if mark in first), None)
    if delimiter is None and blanks:
        lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
        return [(number, cells) for number, cells in lines if cells and not cells[0].startswith("#")]
    reader = csv.reader(text.splitlines(), delimiter=delimiter or ",", skipinitialspace=True, strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped) and not stripped[0].startswith("#"):
                rows.append((reader.line_num, stripped))
    except csv.Error as error:
        raise InvalidInputError(
            f"{path}: line {reader.line_num} cannot be read: {error} (check its quotation marks)"
        ) from error
    return rows


def load_json(path: object, text: str) -> Any:
    """Parse JSON; a name given twice in an object is an error instead of the last one winning."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
            raise InvalidInputError(f"{path}: names must be all different; got {twice!r} twice (remove or rename one)")
        return result

    try:
        content = json.loads(text, object_pairs_hook=unique)
        if "\\ud" in text.lower():  # half a character, which can be read so but not written
            json.dumps(content, ensure_ascii=False).encode("utf-8")
        return content
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{path}: JSON must have whole characters; got half of one, {error.object[error.start]!a}"
        ) from error
    except InvalidInputError:
        raise
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            f"{path}: line {error.lineno} is not valid JSON: {error.msg} (column {error.colno})"
        ) from error
    except ValueError as error:  # Python refuses to read whole numbers of thousands of digits
        raise InvalidInputError(
            f"{path}: the JSON cannot be read: {' '.join(str(error).split())} (check its numbers)"
        ) from error
    except RecursionError as error:
        raise InvalidInputError(f"{path}: the JSON is nested too deeply (give a flat list of numbers)") from error


def read_counts(path: str | os.PathLike[str]) -> CountsTable:
    """Read class counts, finding out the kind of the file from its content.

    Parameters
    ----------
    path : str or path-like
        UTF-8 text of one of these kinds:

        * JSON list ``[5000, 50]``; JSON object name -> count; JSON object with a list ``counts`` and, if you like,
          ``names``;
        * ``class,count`` lines, with a comma, a tab or a semicolon, with or without a header line;
        * one number per line;
        * ``path label`` lines, one per sample, as in ``Places_LT_train.txt``: the lines of each label are counted, and
          the classes are in the order of `ClassDistribution.from_labels`.

        Empty lines and lines that begin with ``#`` are passed over, except in JSON.

    Returns
    -------
    CountsTable
        Counts may still be zero, negative or NaN: `ClassDistribution.from_counts` judges them.

    Raises
    ------
    InvalidInputError
        The file cannot be read, is of none of these kinds, or a line is wrong (the message has its number, from 1).
    """
    text = read_text(path, "counts file")
    if text.lstrip()[:1] in ("[", "{"):
        return _from_json(path, text)
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not lines:
        raise InvalidInputError(f"{path}: a counts file must not be empty (it holds {_COUNTS_KINDS})")
    # The kind is what most lines look like, so that a single bad line is named instead of changing the kind.
    if 2 * sum(is_number(line) for _, line in lines) > len(lines):
        return _from_numbers(path, lines)
    if 2 * sum(any(mark in line for mark in ",\t;") for _, line in lines) > len(lines):
        return _from_csv(path, text)
    if 2 * sum(_path_and_label(line) is not None for _, line in lines) > len(lines):
        return _from_label_list(path, lines)
    number, line = lines[0]
    raise InvalidInputError(
        f"{path}: a counts file must hold {_COUNTS_KINDS}; got {excerpt(line)} in line {number} "
        "(put a comma or a tab between class and count)"
    )


def _from_json(path: object, text: str) -> CountsTable:
    content = load_json(path, text)
    names: Any = None
    if isinstance(content, dict) and isinstance(content.get("counts"), (list, dict)):
        names = content.get("names")
        content = content["counts"]
    if isinstance(content, dict):
        names, content = list(content), list(content.values())
    for index, value in enumerate(content):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            entry = json.dumps(value)
            where = f"entry {index}" if names is None or index >= len(names) else f"class {names[index]!r}"
            raise InvalidInputError(
                f"{path}: counts must be numbers; got {excerpt(entry)} for {where} (one number per class)"
            )
    if names is not None and (not isinstance(names, list) or len(names) != len(content)):
        came = f"{len(names)} of them" if isinstance(names, list) else type(names).__name__
        raise InvalidInputError(
            f"{path}: `names` must be a list with one name for each of the {len(content)} counts; got {came}"
        )
    return CountsTable(content, None if names is None else tuple(map(str, names)))


def _from_numbers(path: object, lines: list[tuple[int, str]]) -> CountsTable:
    if lines[0][1].lower() in _COUNT_WORDS:
        lines = lines[1:]
    counts: list[int | float] = []
    for number, line in lines:
        if not is_number(line):
            raise _wrong(path, number, "one number", line, "the other lines hold one number each")
        counts.append(number_of(line))
    return CountsTable(counts)


def _from_csv(path: object, text: str) -> CountsTable:
    rows = read_rows(path, text)
    if not rows:
        raise InvalidInputError(
            f"{path}: a counts file must hold {_COUNTS_KINDS}; got empty cells only (give each class a count)"
        )
    class_column, count_column, width = 0, 1, 2
    header = [cell.lower() for cell in rows[0][1]]
    # A header has no digits in its count: a typo such as "1O0" must not be taken for a header.
    if len(header) > 1 and not any(is_number(cell) for cell in header) and not re.search(r"\d", header[1]):
        width = len(header)
        counts = [k for k, word in enumerate(header) if word in _COUNT_WORDS]
        classes = [k for k, word in enumerate(header) if word in _CLASS_WORDS]
        if counts and (classes or width == 2):
            count_column = counts[0]
            class_column = classes[0] if classes else 1 - count_column
        elif width != 2 or header[1] in _LABEL_WORDS:
            many = width != 2
            remedy = (
                "name the two columns so, or leave out the others"
                if many
                else "a list of labels goes in as labels, with --labels"
            )
            raise _wrong(path, rows[0][0], "a header `class,count`", ",".join(header), remedy)
        rows = rows[1:]
    elif all(len(cells) == 2 and _FILE_NAME.search(cells[0]) for _, cells in rows):
        return _count_labels([cells[1] for _, cells in rows])
    names: dict[str, int] = {}
    counted: list[int | float] = []
    for number, cells in rows:
        if len(cells) != width:
            raise _wrong(
                path, number, f"{width} cells, `class,count`", ",".join(cells), "quote a name that has a comma in it"
            )
        name, count = cells[class_column], cells[count_column]
        if not is_number(count):
            raise _wrong(path, number, "`class,count` with a number as the count", ",".join(cells), "correct the line")
        if name in names:
            raise _wrong(
                path,
                number,
                f"a class not met before (line {names[name]} has it too)",
                name,
                "add up the two or rename one",
            )
        names[name] = number
        counted.append(number_of(count))
    return CountsTable(counted, tuple(names))


def _path_and_label(line: str) -> tuple[str, str] | None:
    """The two halves of a `path label` line; None if the first is not like a path or the second is."""
    path, _, label = line.rpartition(" ")
    path = path.strip()
    if not path or "/" in label or "\\" in label or _FILE_NAME.search(label):
        return None
    named = _FILE_NAME.search(path) is not None
    # "a/b.jpg 3 5" has two labels, while "a/b c 5" may be a path with a space in it.
    several = _WHOLE.fullmatch(path.rpartition(" ")[2]) is not None
    return (path, label) if named or (("/" in path or "\\" in path) and not several) else None


def _from_label_list(path: object, lines: list[tuple[int, str]]) -> CountsTable:
    labels: list[str] = []
    for number, line in lines:
        halves = _path_and_label(line)
        if halves is None:
            raise _wrong(path, number, "a path and one label", line, "one sample per line, `path label`")
        labels.append(halves[1])
    return _count_labels(labels)


def _count_labels(labels: list[str]) -> CountsTable:
    encoded = encode(np.array(labels))
    return CountsTable(encoded.counts.tolist(), encoded.names)


def _wrong(path: object, number: int, need: str, got: str, remedy: str) -> InvalidInputError:
    return InvalidInputError(f"{path}: line {number} must be {need}; got {excerpt(got)} ({remedy})")


def read_labels(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read a column of labels.

    Parameters
    ----------
    path : str or path-like
        By suffix: ``.npy``; ``.npz`` with an array ``label``, ``labels``, ``target``, ``targets``, ``y`` or ``class``,
        or with a single one-dimensional array; ``.csv`` or ``.tsv`` with a column of one of these names, or with a
        single column; ``.txt`` with one label per line; ``.json`` with a list. A single column has a header only if its
        first line is one of these names. Nothing is unpickled.

    Returns
    -------
    ndarray of shape (n,)
        Numbers from binary files and JSON, text from the others; two-dimensional arrays are returned as they are.
        Missing values are judged by `ClassDistribution.from_labels`.

    Raises
    ------
    InvalidInputError
        The file cannot be read, holds pickled objects, or its column of labels cannot be told apart.
    """
    suffix = Path(path).suffix.lower()
    if suffix in (".npy", ".npz"):
        return _binary(path)
    if suffix == ".json":
        content = load_json(path, read_text(path, "labels file"))
        if not isinstance(content, list):
            raise InvalidInputError(
                f"{path}: a JSON labels file must be a list with one label per row; got {type(content).__name__}"
            )
        return listed(content)
    if suffix in (".csv", ".tsv"):
        return _table(path, read_text(path, "labels file"))
    if suffix == ".txt":
        return _lines(path, read_text(path, "labels file"))
    raise InvalidInputError(
        f"{path}: a labels file must be {_LABELS_KINDS}; got the suffix {suffix!r} (save the labels in one of these)"
    )


def listed(content: list[Any]) -> npt.NDArray[Any]:
    """A list of labels as an array; mixed kinds stay objects."""
    # Mixed and ragged lists are kept as objects, so that the check of the labels can name the row.
    kinds = {type(label) for label in content}
    if len(kinds) == 1 and kinds <= {int, str, float, bool}:
        return np.array(content)
    array = np.empty(len(content), dtype=object)
    array[:] = content
    return array


def _binary(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    try:
        with files.open_regular(path) as file, files.opened(file) as loaded:
            if isinstance(loaded, np.ndarray):
                return loaded
            named = [key for key in LABEL_COLUMNS if key in loaded]
            if named:
                return loaded[named[0]]
            columns = [key for key in loaded if loaded[key].ndim == 1]
            if len(columns) == 1:
                return loaded[columns[0]]
            arrays = ", ".join(loaded) or "nothing"
    except OSError as error:
        raise InvalidInputError(f"cannot read the labels file {path}: {error.strerror or error}") from error
    except ValueError as error:
        if "pickle" in str(error):
            raise InvalidInputError(
                f"{path}: labels must be numbers or text; got Python objects, which need pickle and are never "
                "unpickled "
                "(save labels.astype(str) or labels.astype(int) instead)"
            ) from error
        raise InvalidInputError(f"cannot read the labels file {path}: {files.reason(error)} (save it again)") from error
    raise InvalidInputError(
        f"{path}: the labels must be the array `labels` or the only one-dimensional array; got {arrays} (rename it)"
    )


def _table(path: object, text: str) -> npt.NDArray[Any]:
    rows = read_rows(path, text)
    if not rows:
        raise InvalidInputError(f"{path}: a labels file must have at least one row; got an empty file")
    header = [cell.lower() for cell in rows[0][1]]
    width, column = len(header), 0
    named = [header.index(word) for word in LABEL_COLUMNS if word in header]
    if named:
        column, rows = named[0], rows[1:]
    elif width > 1:
        raise InvalidInputError(
            f"{path}: the labels must be a column named {', '.join(LABEL_COLUMNS)}, or the only column; "
            f"got {', '.join(rows[0][1][:8])} (rename the column)"
        )
    elif not is_number(header[0]) and len(rows) > 1 and all(is_number(cells[0]) for _, cells in rows[1:]):
        rows = rows[1:]
    for number, cells in rows:
        if len(cells) != width:
            raise InvalidInputError(
                f"{path}: line {number} must have {width} cells, as the first; got {len(cells)} (quote commas)"
            )
    return np.array([cells[column] for _, cells in rows], dtype=str)


def _lines(path: object, text: str) -> npt.NDArray[Any]:
    lines = text.rstrip().splitlines()
    for number, line in enumerate(lines, 1):
        # A line left out would shift all labels after it against their embeddings.
        if not line.strip():
            raise InvalidInputError(
                f"{path}: line {number} must be a label; got an empty line (one label per line, in row order)"
            )
    return np.array([line.strip() for line in lines], dtype=str)


def read_label_table(path: str | os.PathLike[str], wanted: Sequence[str] = ()) -> LabelTable:
    """Read a table of numeric labels: an .npy file, or text with perhaps a header, where blanks may separate numbers.

    Parameters
    ----------
    path : str or path-like
    wanted : sequence of str
        Headings of the columns that are labels; all columns by default.

    Raises
    ------
    InvalidInputError
        The file cannot be read, holds what is not a number, lacks a wanted column, or has one that names the samples
        while none is wanted.
    """
    if Path(path).suffix.lower() == ".npy":
        if wanted:
            raise InvalidInputError(f"--label-column needs a table with headings; got {path} (slice the array)")
        try:
            with files.open_regular(path) as file:
                return LabelTable(files.read_array(file))
        except (OSError, ValueError) as error:
            raise _not_numeric(path, files.reason(error)) from error
    rows = read_rows(path, read_text(path, "labels file"), blanks=True)
    header = rows.pop(0)[1] if rows and not any(map(is_number, rows[0][1])) else []
    places = _label_places(path, header, wanted) or range(len(rows[0][1]) if rows else 0)
    width = len(header or places)
    for number, cells in rows:
        if len(cells) != width:
            raise _not_numeric(path, f"line {number} has {len(cells)} cells, the first has {width}")
        wrong = next((cells[place] for place in places if not is_number(cells[place])), None)
        if wrong is not None:
            raise _not_numeric(path, f"line {number} has {wrong!r}")
    values = np.array([[float(cells[place]) for place in places] for _, cells in rows])
    return LabelTable(values, tuple(header[place] if header else f"column {place + 1}" for place in places))


def _label_places(path: object, header: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Places of the columns that are labels; none for a file without a header."""
    for name in wanted:
        if header.count(name) != 1:
            columns = ", ".join(header[:_SHOWN_NAMES]) or "no header"
            raise InvalidInputError(f"--label-column must name one column of {path}; got {name!r} (it has {columns})")
    if wanted:
        return [header.index(name) for name in wanted]
    naming = [name for name in header if name.lower() in _SAMPLE_WORDS]
    others = [name for name in header if name not in naming]
    if naming and others:
        choice = " ".join(f"--label-column {name}" for name in others[:_SHOWN_NAMES])
        raise InvalidInputError(
            f"`labels` must be columns of labels; got {naming[0]!r} in {path}, which seems to name the samples "
            f"(say which are: {choice})"
        )
    return list(range(len(header)))


def _not_numeric(path: object, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"`labels` must be numbers, one row per sample, for this scheme; cannot read {path} ({why})"
    )
