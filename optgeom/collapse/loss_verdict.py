"""What one printed value of the loss says, in words."""

from __future__ import annotations

from dataclasses import dataclass

CHECKS = (
    "temperature, base temperature, batch size, views, whether the anchor itself is excluded, and how "
    "anchors without a positive count"
)
SUPCONTRAST_BASE = 0.07
NOISE = 3.0  # standard deviations of a mean of batches that a value may be below the floor
# A loss whose optimum is above this prints something else than 0 in float32, so an exact 0 means that nothing was
# summed.
SMALLEST_PRINTED = 1e-6


@dataclass(frozen=True)
class Landmarks:
    """Values to compare with, as printed; `optimal` and `simplex` are None where there are no classes.

    In fewer dimensions than the optimum needs `optimal` is the upper end of a bracket, `floor` its lower end, which
    holds for classes that are one point each, and `unlimited` the optimum in any dimension, which holds for all
    features.
    """

    collapsed: float
    optimal: float | None
    simplex: float | None
    formula: str
    scale: float
    noise: float | None = None  # standard deviation of a mean of `batches` batches at the optimum
    batches: int = 1
    floor: float | None = None
    unlimited: float | None = None


def verdict(observed: float, marks: Landmarks, tolerance: float, temperature: float | None = None) -> str:
    """One sentence on `observed`.

    Parameters
    ----------
    observed : float
    marks : Landmarks
    tolerance : float
        Share of the way from collapsed to optimal (of the collapsed value without an optimum) that counts as equal.
    temperature : float, optional
        Given where no base temperature was: a value that only a base temperature explains is then recognised.
    """
    collapsed, optimal = marks.collapsed, marks.optimal
    way = 0.0 if optimal is None else collapsed - optimal
    near = tolerance * (way if way > 1e-9 * abs(collapsed) else abs(collapsed))
    within = f"within {near:.2g}"
    if observed == 0 and (optimal is None or optimal > SMALLEST_PRINTED):
        return (
            "exactly 0: no anchor had a positive (every label once in the batch?), or all were masked; "
            f"the loss itself {_low(optimal if marks.unlimited is None else marks.unlimited)}"
        )
    if abs(observed - collapsed) <= near:
        if optimal is not None and way <= near:
            return f"collapsed and optimal have the same value here, {collapsed:.6g}: the loss says nothing"
        return f"collapsed: this is {marks.formula} = {collapsed:.6f} ({within}): all features at one point"
    if observed > collapsed:
        return _above(observed, marks, near, temperature)
    if optimal is None and observed < 0:
        return f"below 0: impossible, as the positive is one of the terms of the denominator (check {CHECKS})"
    if optimal is None:
        below = f"{collapsed - observed:.4g} below the collapsed value {marks.formula} = {collapsed:.6f}"
        return f"not collapsed: {below} (the floor needs classes)"
    floor = optimal if marks.floor is None else marks.floor
    if observed < floor - near:
        return _below(floor - observed, floor, marks)
    if observed < optimal - near:
        return (
            f"inside the bracket: below the lowest value found in so few dimensions, {optimal:.6f}, by "
            f"{optimal - observed:.4g}, and not below the lower end {floor:.6f}: possible, and better than what was "
            "found"
        )
    simplex = marks.simplex
    if observed <= optimal + near:
        also = (
            "; the balanced simplex has nearly this value too: the loss cannot tell them apart"
            if _same(simplex, optimal, near)
            else ""
        )
        place = "optimum" if marks.floor is None else "lowest value found in so few dimensions,"
        return f"at the {place} {optimal:.6f} ({within}){also}"
    share = 100 * (collapsed - observed) / way
    above = (
        f"above the {'floor' if marks.floor is None else 'lowest value found,'} {optimal:.6f} by "
        f"{observed - optimal:.4g} ({share:.1f} % of the way from collapsed to optimal)"
    )
    if simplex is not None and abs(observed - simplex) <= near:
        return f"near the value of the balanced simplex, {simplex:.6f} ({within}): {above}"
    return above


def _low(optimal: float | None) -> str:
    return "cannot be 0" if optimal is None else f"is never below {optimal:.6f}"


def _same(simplex: float | None, optimal: float, near: float) -> bool:
    """The simplex is another geometry than the optimum, and yet within the tolerance of its value."""
    return simplex is not None and 1e-12 < simplex - optimal <= near


def _above(observed: float, marks: Landmarks, near: float, temperature: float | None) -> str:
    if temperature is not None:
        factor = temperature / SUPCONTRAST_BASE
        if abs(observed / factor - marks.collapsed) <= near:
            value = f"{factor:.6g} times {marks.formula} = {factor * marks.collapsed:.6f}"
            return (
                "collapsed, if your code multiplies by temperature / base temperature = "
                f"{temperature:g} / {SUPCONTRAST_BASE:g}, "
                f"as SupContrast does: this is {value} (give the base temperature)"
            )
    over = f"above the collapsed value {marks.collapsed:.6f} by {observed - marks.collapsed:.4g}"
    return f"{over}: positives are farther apart than negatives, or the settings differ (check {CHECKS})"


def _below(missing: float, floor: float, marks: Landmarks) -> str:
    """A value below the floor: noise of the batches that it is the mean of, or other settings."""
    bound = "optimum" if marks.floor is None else "lower end of the bracket,"
    if marks.floor == marks.optimal:
        bound = "lowest value in so few dimensions,"
    under = f"below the {bound} {floor:.6f} by {missing:.4g}"
    impossible = f"{under}: impossible for these settings (check {CHECKS})"
    if marks.unlimited is not None and floor - missing >= marks.unlimited:
        collapsed = f"impossible for these settings with each class at one point (check {CHECKS})"
        impossible = f"{under}: {collapsed}; no features at all go below {marks.unlimited:.6f}"
    if marks.noise is None:
        return impossible
    mean = "one batch varies" if marks.batches == 1 else f"a mean of {marks.batches} batches varies"
    spread = f"at the optimum {mean} by {marks.noise:.2g} (one standard deviation)"
    if missing <= NOISE * marks.noise:
        return f"at the optimum, as far as noise tells: {under}, and {spread}; average more batches to tell"
    return f"{impossible}; {spread}, and this is {missing / marks.noise:.1f} of them"
