"""A geometry file against itself: classes and program rebuilt from its arrays, every figure computed anew.

Functions return the parts of a `Geometry` by name, or raise where the file does not agree with itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array
from optgeom.certificates import certify, decide
from optgeom.certificates.certificate import BACKWARD_ERROR_LIMIT, PRIMAL_SHIFT_LIMIT
from optgeom.certificates.few_dimensions import refusal
from optgeom.inputs.classes import ClassDistribution, ClassGroups
from optgeom.io import SAME_FIGURE, FileMismatchError, check_certificate, check_figure
from optgeom.losses.base import Loss
from optgeom.programs.class_mean import ClassMeanProgram


def read_classes(document: dict[str, Any], arrays: dict[str, Any]) -> ClassDistribution:
    """Classes of a file."""
    counts, names = arrays.get("class_counts"), document["names"]
    groups = ClassGroups(
        index=arrays["class_index"].astype(np.intp),
        sizes=arrays["class_sizes"].astype(np.int64),
        proportions=arrays["class_proportions"].astype(np.float64),
        counts=None if counts is None else counts.astype(np.int64),
    )
    return ClassDistribution(
        groups=groups,
        dropped=tuple(document["dropped"]),
        notes=tuple(document["class_notes"]),
        sampler_power=float(document["sampler_power"]),
        given_names=None if names is None else tuple(names),
        given_kept=arrays["kept"].astype(np.intp),
    )


def bind(classes: ClassDistribution, loss: Loss, index: npt.NDArray[np.intp]) -> ClassMeanProgram:
    """The program whose groups are those of a file: equal classes together, or every class apart."""
    for grouped in (True, False):
        program = ClassMeanProgram.build(classes, loss, grouped)
        if np.array_equal(program.groups.index, index):
            return program
    raise FileMismatchError("its groups are not those of its classes")


def verify(program: ClassMeanProgram, cosines: Array, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Risk and certificate of an optimum, compared with those of the file."""
    claimed = stored["certificate"]
    # The limit of the backward error is not in a file. One that is certified beyond the usual limit had a larger one.
    error = claimed["backward_error"]
    limit = max(BACKWARD_ERROR_LIMIT, 2 * float(error)) if claimed["certified"] and error is not None else 0.0
    moved = max(0.0, float(claimed["primal_shift"]))
    judged = certify(
        program,
        cosines,
        tolerance=float(claimed["tolerance"]),
        backward_tolerance=limit or BACKWARD_ERROR_LIMIT,
        moved=moved,
    )
    check_figure("risk", stored["risk"], judged.risk, judged.certificate.scale)
    check_certificate(claimed, judged.certificate)
    if int(stored["rank"]) != judged.certificate.rank:
        raise FileMismatchError(f"its rank is {stored['rank']}, but that of its arrays is {judged.certificate.rank}")
    return {"risk": judged.risk, "certificate": judged.certificate}


def verify_bracket(
    program: ClassMeanProgram, cosines: Array, stored: Mapping[str, Any], lower_bound: float | None
) -> dict[str, Any]:
    """The upper end is the risk of the arrays; the lower one is certified where the file has the relaxed optimum."""
    claimed, (low, high) = stored["certificate"], stored["bracket"]
    judged = certify(program, cosines, tolerance=float(claimed["tolerance"]))
    risk, scale = judged.risk, judged.certificate.scale
    lower = float(low) if lower_bound is None else min(risk, lower_bound)
    if not judged.certificate.primal_shift <= PRIMAL_SHIFT_LIMIT or not lower <= risk + scale * SAME_FIGURE:
        raise FileMismatchError(f"its bracket ends at {lower:.12g}, but the risk of its arrays is {risk:.12g}")
    for name, figure, computed in (("risk", stored["risk"], risk), ("bracket", high, risk), ("bracket", low, lower)):
        check_figure(name, figure, computed, scale)
    why = refusal(stored["dim"], stored["required_rank"], risk - lower)
    certificate = decide(
        risk=risk,
        gap=risk - lower,
        lower_bound=lower,
        primal_shift=0.0,
        backward_error=np.inf,
        tolerance=float(claimed["tolerance"]),
        rank=judged.certificate.rank,
        scale=scale,
        refusal=why + (", its lower end unverified" if lower_bound is None else ""),
    )
    check_certificate(claimed, certificate)
    return {"risk": risk, "bracket": (lower, risk), "certificate": certificate}


def leave_unverified(stored: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Figures of a file whose loss is not at hand: nothing is proved."""
    risk, bracket = float(stored["risk"]), stored["bracket"]
    if not np.isfinite(risk):
        raise FileMismatchError(f"its risk is {risk}")
    certificate = decide(
        risk=risk,
        gap=np.inf,
        primal_shift=float(stored["certificate"]["primal_shift"]),
        backward_error=np.inf,
        tolerance=float(stored["certificate"]["tolerance"]),
        rank=int(stored["rank"]),
        refusal=reason,
    )
    ends = None if bracket is None else (float(bracket[0]), float(bracket[1]))
    return {"risk": risk, "bracket": ends, "certificate": certificate}


def check_sound(document: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Raise ValueError where the parts of a file do not fit together: it was damaged, or written by hand."""
    number = arrays["class_index"].size
    for index, sizes in ((arrays["class_index"], arrays["class_sizes"]), (arrays["index"], arrays["group_sizes"])):
        whole = index.dtype.kind in "iu" and sizes.dtype.kind in "iu" and index.shape == (number,) and sizes.ndim == 1
        within = whole and number > 1 and index.min() >= 0 and index.max() < sizes.size
        if not within or not np.array_equal(np.bincount(index, minlength=sizes.size), sizes):
            raise ValueError("its groups of classes and their sizes differ")
    groups, cosines = arrays["group_sizes"].size, arrays["group_cosines"]
    if (
        cosines.shape != (groups, groups)
        or not np.all(np.abs(cosines) <= 1 + 1e-9)
        or not np.array_equal(cosines, cosines.T)
    ):
        raise ValueError("its cosines are not a symmetric matrix of numbers from -1 to 1")
    shares = arrays["class_proportions"]
    if (
        shares.shape != arrays["class_sizes"].shape
        or not np.all(shares > 0)
        or not abs(shares @ arrays["class_sizes"] - 1) <= 1e-9
    ):
        raise ValueError("its proportions are not positive with sum 1")
    counts, names = arrays.get("class_counts", shares), document["names"]
    if counts.shape != shares.shape or arrays["kept"].shape != (number,) or len(names or range(number)) != number:
        raise ValueError("its counts and names are not one per class")
    if not (isinstance(document["loss"], dict) and isinstance(document["loss"]["name"], str)) or not all(
        map(_is_text, names or ())
    ):
        raise ValueError("its loss and its classes have no names")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
