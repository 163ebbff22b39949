"""Checks of single arguments.

Each raises `InvalidInputError` with the parameter, the requirement, what came and the remedy.
"""

from __future__ import annotations

import math
import numbers
import typing
from typing import Any, TypeVar

from optgeom.errors import InvalidInputError

T = TypeVar("T")

LONGEST = 10**30


def real(name: str, value: Any, *, above: float | None = None, at_least: float | None = None, hint: str = "") -> float:
    """A finite real number, strictly above `above` or at least `at_least`."""
    need = f"> {above:g}" if above is not None else f">= {at_least:g}" if at_least is not None else "a finite number"
    remedy = f" ({hint})" if hint else ""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        wanted = need if need == "a finite number" else f"a number {need}"
        raise InvalidInputError(f"`{name}` must be {wanted}; got {_shown(value)}{remedy}")
    number = _float(value)
    if (
        not math.isfinite(number)
        or (above is not None and number <= above)
        or (at_least is not None and number < at_least)
    ):
        raise InvalidInputError(f"`{name}` must be {need}; got {_shown(value)}{remedy}")
    return number


def integer(name: str, value: Any, *, at_least: int, hint: str = "") -> int:
    """A whole number >= `at_least`."""
    if not _is_whole(value) or value < at_least:
        remedy = f" ({hint})" if hint else ""
        raise InvalidInputError(f"`{name}` must be a whole number >= {at_least}; got {_shown(value)}{remedy}")
    return int(value)


def integer_or_inf(name: str, value: Any, *, at_least: int, hint: str = "") -> int | float:
    """A whole number >= `at_least`, or `math.inf`."""
    if isinstance(value, numbers.Real) and value == math.inf:
        return math.inf
    if not _is_whole(value) or value < at_least:
        remedy = f" ({hint})" if hint else ""
        raise InvalidInputError(f"`{name}` must be a whole number >= {at_least} or inf; got {_shown(value)}{remedy}")
    return int(value)


def index(name: str, value: Any, size: int, what: str = "class") -> int:
    """A whole number from 0 to size - 1: which of the `size` things called `what`."""
    if not _is_whole(value) or not 0 <= value < size:
        raise InvalidInputError(
            f"`{name}` must be a {what} index from 0 to {size - 1}; got {_shown(value)} (the first {what} is 0)"
        )
    return int(value)


def choice(name: str, value: Any, allowed: Any) -> str:
    """One of the strings in `allowed`, a tuple or a Literal."""
    allowed = allowed if isinstance(allowed, tuple) else typing.get_args(allowed)
    if value not in allowed:
        raise InvalidInputError(f"`{name}` must be one of {', '.join(allowed)}; got {value!r}")
    return str(value)


def instance(name: str, value: Any, kind: type[T], hint: str, *, what: str = "") -> T:
    """An object of the class `kind`; messages call it `what`, by default "a" or "an" and the name of the class."""
    if not isinstance(value, kind):
        wanted = what or f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
        raise InvalidInputError(f"`{name}` must be {wanted}; got {type(value).__name__} ({hint})")
    return value


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Real) and _float(value).is_integer()


def _shown(value: Any) -> str:
    """As Python writes it, whole numbers of hundreds of digits in short: Python itself refuses to write the longest."""
    if isinstance(value, int) and abs(value) > LONGEST:
        return "a whole number of more than 30 digits"
    return repr(value)


def _float(value: numbers.Real) -> float:
    """As a float; a whole number beyond all floats is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
