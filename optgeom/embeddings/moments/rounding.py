r"""How far rounding of the input can turn the direction of a class.

A value stored with b significant bits is off by at most u = 2^-b times its size, hence a row z by at most u |z| and its
direction by the angle u. Rows of one class may all be off in the same way (a collapsed class is one row), so that
averaging does not help: u bounds the angle of the class mean as well, and the angle between two classes is off by at
most 2 u. For float16 (b = 11) this is .056 degrees, which is no difference from an optimum; for float32 7e-6 degrees.

Values are often stored wider than they were computed: half-precision features saved as float32 keep their 11 bits,
unless they were divided by their norms afterwards. So the bits are read off the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

BITS = (8, 11, 24, 53)  # bfloat16, float16, float32, float64
LOOKED_AT = 4096  # values: a wider format shows in the first few


def significant_bits(values: npt.NDArray[Any]) -> int:
    """The least of 8, 11, 24 and 53 significant bits that hold these values (bfloat16, float16, float32, float64).

    Parameters
    ----------
    values : array of floats
        As they were read, before any row was divided by its norm. Whole numbers are exact: 53.
    """
    stored = np.asarray(values)
    if stored.dtype.kind != "f":
        return BITS[-1]
    flat = stored.ravel(order="K")
    flat = flat[:: max(1, flat.size // LOOKED_AT)].astype(np.float64)
    mantissa = np.frexp(flat[np.isfinite(flat) & (flat != 0)])[0]
    if not mantissa.size or np.all(flat == np.rint(flat)):
        return BITS[-1]
    for bits in BITS[:-1]:
        scaled = np.ldexp(mantissa, bits)
        if np.array_equal(scaled, np.rint(scaled)):
            return bits
    return BITS[-1]


def rounding_angle(bits: int) -> float:
    """Angle in radians by which a direction may be turned, 2^-bits."""
    return 2.0**-bits
