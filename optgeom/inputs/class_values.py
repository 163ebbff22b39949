"""Checks of one number per class: counts, weights and proportions as users give them."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from optgeom.errors import InvalidInputError
from optgeom.formatting import first_of


class Cleaned(NamedTuple):
    """Checked values and what became of the classes."""

    values: npt.NDArray[Any]
    """(C,) int64 or float64, positive."""
    names: tuple[str, ...] | None
    """Names of the C classes, None where none were given."""
    kept: npt.NDArray[np.intp] | None
    """(C,) index in the input, None where all were kept."""
    dropped: tuple[str, ...]
    notes: tuple[str, ...]


def clean(parameter: str, values: Any, names: Sequence[str] | None, drop_empty: bool) -> Cleaned:
    """Check one number per class: finite, positive, at least two; leave out zeros on request."""
    array = numeric(parameter, values)
    given = None if names is None else _checked_names(names, array.size)
    kept: npt.NDArray[np.intp] | None = None
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    if drop_empty and (array == 0).any():
        kept = np.flatnonzero(array)
        dropped = tuple(str(k) if given is None else given[k] for k in np.flatnonzero(array == 0).tolist())
        given = None if given is None else tuple(given[k] for k in kept.tolist())
        array = array[kept]
        notes = (
            f"{len(dropped)} {'class' if len(dropped) == 1 else 'classes'} without samples left out: "
            f"{first_of(dropped)}",
        )
    labels = given if given is not None or kept is None else tuple(map(str, kept.tolist()))
    return Cleaned(positive(parameter, array, 2, labels), given, kept, dropped, notes)


def numeric(parameter: str, values: Any) -> npt.NDArray[Any]:
    """A fresh one-dimensional int64 or float64 array; whole floats below 2^63 become int64."""
    if (
        isinstance(values, Iterable)
        and not isinstance(values, (list, tuple, str, bytes))
        and not hasattr(values, "__array__")
    ):
        values = list(values)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = "a nested list" if isinstance(values, (list, tuple)) else f"{type(values).__name__}: {error}"
        raise InvalidInputError(
            f"`{parameter}` must be one number per class; got {reason} (pass a one-dimensional list)"
        ) from error
    if array.ndim != 1:
        raise InvalidInputError(
            f"`{parameter}` must be one number per class; got shape {array.shape} (pass a one-dimensional list)"
        )
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        array = _one_by_one(parameter, list(values) if isinstance(values, (list, tuple)) else array.tolist())
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        whole = np.isfinite(array).all() and (array == np.floor(array)).all() and np.abs(array).max(initial=0) < 2.0**63
        return array.astype(np.int64) if whole else array
    if array.dtype.kind == "u" and array.max(initial=0) >= 2**63:
        return array.astype(np.float64)
    return array.astype(np.int64)


def _one_by_one(parameter: str, entries: list[Any]) -> npt.NDArray[np.float64]:
    """Entries that numpy has no number type for: text is refused, fractions and huge whole numbers become floats."""
    for index, value in enumerate(entries):
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
            raise InvalidInputError(
                f"`{parameter}` must be numbers; got {value!r} for class {index} (convert the entries to int or float)"
            )
    try:
        return np.array([float(value) for value in entries])
    except OverflowError as error:
        raise InvalidInputError(
            f"`{parameter}` must be below 1.8e308; got a larger number (divide all by one factor)"
        ) from error


def positive(
    parameter: str,
    array: npt.NDArray[Any],
    at_least: int,
    names: tuple[str, ...] | None = None,
    *,
    entry: str = "class",
    remedy: str = "drop it with drop_empty=True, on the command line --drop-empty",
) -> npt.NDArray[Any]:
    """Refuse entries that are not finite and positive, naming the first, and fewer than `at_least` of them."""
    for wrong, need, advice in (
        (~np.isfinite(array), "finite", "correct it, or leave it out"),
        (array < 0, "positive", "correct it, or leave it out"),
        (array == 0, "positive", remedy),
    ):
        if wrong.any():
            index = int(wrong.argmax())
            more = int(wrong.sum()) - 1
            name = str(index) if names is None else names[index]
            others = f" and {more} more" if more else ""
            raise InvalidInputError(
                f"`{parameter}` must be {need}; got {array[index]:.12g} for {entry} {name}{others} ({advice})"
            )
    if array.size == 0:
        raise InvalidInputError(
            f"`{parameter}` must have at least {at_least} entries; got none (give one number per {entry})"
        )
    if array.size < at_least:
        raise InvalidInputError(
            f"no geometry with one class: `{parameter}` has one entry, {array[0]:.12g} (at least 2 classes are needed)"
        )
    return array


def rounding(values: Any) -> float:
    """How far the rounding of narrow floats may carry a sum of 1; 0 for values of any other type."""
    dtype = np.asarray(values).dtype if hasattr(values, "__array__") else np.dtype(np.float64)
    # Normalising in float32 leaves the sum off by a few of its roundings, which is not a mistake of the user.
    return 16 * float(np.finfo(dtype).eps) if dtype.kind == "f" and dtype.itemsize < 8 else 0.0


def _checked_names(names: Sequence[str], size: int) -> tuple[str, ...]:
    if isinstance(names, (str, bytes)):
        raise InvalidInputError(f"`names` must be a list with one name per class; got the text {names!r} (split it)")
    texts = tuple(map(str, names))
    if len(texts) != size:
        raise InvalidInputError(
            f"`names` must have one name for each of the {size} classes; got {len(texts)} (add or remove names)"
        )
    seen: set[str] = set()
    for name in texts:
        if name in seen:
            raise InvalidInputError(f"`names` must be all different; got {name!r} twice (add what tells the two apart)")
        seen.add(name)
    return texts
