r"""Design: what to change so that the classes do not collapse, or so that the closest two are at a wanted angle.

Each parameter is one number with a value that users would rather keep: the sampler power q (1: leave the sampler
alone), the temperature (as large as possible), the batch size or number of negatives (as small as possible), the
softness epsilon of Soft SupCon. The search walks from the preferred end over a grid, solves (with a certificate) at
each point, and refines between the first point that meets the goal and its neighbour that does not. When no point of
the grid meets it, that is the answer, with the best that was seen.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom.certificates.certificate import RANK_EIGENVALUE
from optgeom.collapse.loss_values import flat_share
from optgeom.collapse.rank_path import second_smallest_eigenvalue
from optgeom.errors import IncompatibleError, InvalidInputError, NotCertifiedError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import Loss, registry
from optgeom.losses.base import plain
from optgeom.losses.options import Option
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.api import solve

GRID_POINTS = 25
TEMPERATURES = (0.01, 10.0)
RELATIVE_WIDTH = 1e-6  # to which a continuous parameter is refined
FEW_DEGREES = 5.0  # between classes that keep their dimensions, but hardly differ
LARGEST_WHOLE = 20  # powers of 2 of a whole parameter, before infinity


def parameters() -> tuple[str, ...]:
    """Everything that can be searched over: the sampler, the parameters of registered losses, and softness."""
    return ("sampler", *registry.searched(), "epsilon")


@dataclass(frozen=True, kw_only=True)
class Design:
    """The value of one parameter that meets a goal.

    Attributes
    ----------
    parameter : str
    goal : str
        In words.
    value : float or None
        The value nearest to the preferred end that meets the goal; None when none does.
    reason : str
        One sentence: why this value, or why there is none.
    geometry : Geometry or None
        The certified optimum at `value`; when there is no value, the best that was seen. None for epsilon, whose
        geometry is equiangular.
    cosine : float or None
        Cosine between any two classes (epsilon only).
    note : str or None
        A warning where the loss there hardly tells this geometry from the balanced simplex, or where no angle was asked
        for and the classes, though each keeps its dimension, are less than 5 degrees apart.
    """

    parameter: str
    goal: str
    value: float | None
    reason: str
    geometry: Geometry | None
    cosine: float | None = None
    note: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "parameter": self.parameter,
            "goal": self.goal,
            "value": None if self.value is None else plain(self.value),
            "reason": self.reason,
            "geometry": None if self.geometry is None else self.geometry.as_dict(),
            "cosine": self.cosine,
            "note": self.note,
        }


def design(classes: ClassDistribution, loss: Loss, parameter: str, *, min_angle: float | None = None) -> Design:
    """Value of one parameter that reaches a smallest angle, or keeps every class apart.

    Parameters
    ----------
    classes : ClassDistribution
    loss : Loss
        The loss as it is now. For "epsilon" only its temperature is used.
    parameter : str
        "sampler": power q of n^q in [0, 1], the largest that works. "epsilon": weight of pairs of different classes in
        Soft SupCon, in closed form exp((cos(angle) - 1)/tau). Or a parameter of the loss: "temperature", in [0.01, 10],
        the largest that works; "batch_size" or "negatives", the smallest that works, up to 2^20 and infinity.
    min_angle : float, optional
        Wanted smallest angle between two class means, in degrees. Without it the goal is the spread regime (rank C - 1:
        no dimension collapsed).

    Returns
    -------
    Design

    Raises
    ------
    InvalidInputError
        An angle outside (0, 180], or an unknown parameter.
    IncompatibleError
        A parameter that the loss does not have.
    """
    _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    option = next((option for option in loss.options() if option.name == parameter and option.search), None)
    if option is None and parameter not in ("sampler", "epsilon"):
        _checks.choice("parameter", parameter, parameters())
        own = ", ".join(option.name for option in loss.options() if option.search)
        raise IncompatibleError(
            f"`parameter` {parameter!r} is not one of {loss.label()}; it has {own}, sampler and epsilon"
        )
    simplex = math.degrees(math.acos(-1 / (classes.num_classes - 1)))
    if min_angle is not None:
        _checks.real("min_angle", min_angle, above=0.0, hint="degrees")
        if min_angle > 180:
            raise InvalidInputError(f"`min_angle` must be at most 180 degrees; got {min_angle!r}")
    goal = (
        "every class keeps its own dimension"
        if min_angle is None
        else f"smallest angle of at least {min_angle:g} degrees"
    )
    if min_angle is not None and min_angle > simplex + 1e-9:
        # All pairwise cosines average at least -1/(C-1), so no geometry of C unit vectors does better than the simplex.
        most = f"{classes.num_classes} unit vectors have a smallest angle of at most {simplex:.6g} degrees"
        reason = f"no value can: {most} (regular simplex)"
        return Design(parameter=parameter, goal=goal, value=None, reason=reason, geometry=None)
    if parameter == "epsilon":
        return _epsilon(classes, loss.temperature, goal, simplex if min_angle is None else min_angle)
    return _search(classes, _sampler_line(loss) if option is None else _option_line(loss, option), goal, min_angle)


def _epsilon(classes: ClassDistribution, temperature: float, goal: str, angle: float) -> Design:
    """The epsilon of Soft SupCon that puts all classes at this angle.

    It is realizable iff tau log(1/eps) <= C/(C-1), whatever the class sizes, and then equiangular with cosine
    1 + tau log eps.
    """
    cosine = max(math.cos(math.radians(angle)), -1 / (classes.num_classes - 1))
    value = math.exp((cosine - 1) / temperature)
    if value < sys.float_info.min:
        # 0 would be another scheme, SupCon itself, whose optimum depends on the class sizes.
        log10 = (cosine - 1) / temperature / math.log(10)
        small = f"an epsilon of 10^{log10:.0f}, too small for floating point"
        reason = f"it would take {small}: raise the temperature, now {temperature:g}"
        return Design(parameter="epsilon", goal=goal, value=None, reason=reason, geometry=None, cosine=cosine)
    reason = f"Soft SupCon with this epsilon puts every two classes at {angle:.6g} degrees, whatever their sizes"
    return Design(parameter="epsilon", goal=goal, value=value, reason=reason, geometry=None, cosine=cosine)


@dataclass(frozen=True, kw_only=True)
class Line:
    """The values of one parameter, from the preferred end on.

    Attributes
    ----------
    parameter : str
    grid : list of float
    at : callable
        Value -> (sampler power, loss).
    looked_for, at_once : str
        The reasons of an answer within the grid, and at its preferred end.
    whole : bool
        Values between those of the grid are whole numbers.
    """

    parameter: str
    grid: list[float]
    at: Callable[[float], tuple[float, Loss]]
    looked_for: str
    at_once: str
    whole: bool = False


def _sampler_line(loss: Loss) -> Line:
    return Line(
        parameter="sampler",
        grid=np.linspace(1.0, 0.0, GRID_POINTS).tolist(),
        at=lambda power: (power, loss),
        looked_for="the power nearest to 1 (the sampler as it is) that works",
        at_once="the sampler may stay as it is",
    )


def _option_line(loss: Loss, option: Option) -> Line:
    search = option.search
    assert search is not None
    preferred = f"the {search.end} {search.noun}"

    def at(value: float) -> tuple[float, Loss]:
        given = int(value) if option.kind == "whole" and value != math.inf else value
        return 1.0, dataclasses.replace(loss, **{option.name: given})  # type: ignore[type-var]

    if option.kind == "whole":
        grid, ending = _whole_values(at), ""
    else:
        grid, ending = np.geomspace(TEMPERATURES[0], TEMPERATURES[1], GRID_POINTS).tolist(), " of the search"
    return Line(
        parameter=option.name,
        grid=grid[::-1] if search.end == "highest" else grid,
        at=at,
        looked_for=f"{preferred} that works",
        at_once=f"{preferred}{ending} works already",
        whole=option.kind == "whole",
    )


def _whole_values(at: Callable[[float], object]) -> list[float]:
    """The least whole number that the loss takes, powers of 2 above it, and infinity where the loss takes that."""

    def taken(value: float) -> bool:
        try:
            at(value)
        except InvalidInputError:
            return False
        return True

    least = next(number for number in range(1, 2**LARGEST_WHOLE) if taken(number))
    powers = [float(2**power) for power in range(1, LARGEST_WHOLE + 1) if 2**power > least]
    return [float(least), *powers, *([math.inf] if taken(math.inf) else [])]


def _search(classes: ClassDistribution, line: Line, goal: str, min_angle: float | None) -> Design:
    def solve_at(value: float) -> Geometry | None:
        power, moved = line.at(value)
        try:
            return solve(classes.resample(power), moved)
        except NotCertifiedError:
            return None

    def works(value: float) -> bool:
        if min_angle is None:
            power, moved = line.at(value)
            try:
                # The Newton solution answers at once where a collapsed optimum, near its boundary, takes the low-rank
                # method long.
                return second_smallest_eigenvalue(classes.resample(power), moved) > RANK_EIGENVALUE
            except IncompatibleError:
                pass  # Without a Newton solution the certified solve below decides.
        geometry = solve_at(value)
        if geometry is None:
            return False
        return (
            geometry.rank >= classes.num_classes - 1
            if min_angle is None
            else geometry.min_angle_deg >= min_angle - 1e-9
        )

    previous: float | None = None
    for value in line.grid:
        if works(value):
            reason = line.at_once
            if previous is not None:
                value = _refine(works, previous, value, whole=line.whole)
                reason = line.looked_for
            geometry = solve_at(value)
            notes = []
            if geometry is not None:
                notes = [_flat_note(geometry, line.at(value)[1]), _narrow_note(geometry, min_angle)]
            note = "; ".join(filter(None, notes)) or None
            return Design(parameter=line.parameter, goal=goal, value=value, reason=reason, geometry=geometry, note=note)
        previous = value
    seen = [geometry for geometry in map(solve_at, line.grid) if geometry is not None]
    best = max(
        seen, key=lambda geometry: (geometry.rank if min_angle is None else 0, geometry.min_angle_deg), default=None
    )
    reason = f"no {line.parameter.replace('_', ' ')} from {line.grid[0]:g} to {line.grid[-1]:g} reaches it"
    if best is not None:
        reason += f"; the best smallest angle there is {best.min_angle_deg:.6g} degrees, rank {best.rank}"
    return Design(parameter=line.parameter, goal=goal, value=None, reason=reason, geometry=best)


def _flat_note(geometry: Geometry, loss: Loss) -> str | None:
    share = flat_share(ClassMeanProgram.build(geometry.classes, loss), geometry.risk)
    if share is None:
        return None
    apart = f"differ by {100 * share:.1g} % of the way from a collapsed to the optimal loss"
    return (
        f"this geometry and the balanced simplex {apart}: the loss hardly tells them apart, and training "
        "may not get there"
    )


def _narrow_note(geometry: Geometry, min_angle: float | None) -> str | None:
    """At the border of collapse every class has its dimension, and yet nothing is gained."""
    if min_angle is not None or geometry.min_angle_deg >= FEW_DEGREES:
        return None
    apart = f"no class has collapsed, but the closest two are only {geometry.min_angle_deg:.2g} degrees apart"
    return f"{apart}: to have them further apart, say by how much (--min-angle, min_angle)"


def _refine(works: Callable[[float], bool], fails: float, holds: float, whole: bool) -> float:
    """Bisect between a value that fails and one that works; returns the side that works."""
    if whole and holds == math.inf:
        return holds
    while abs(holds - fails) > (1 if whole else RELATIVE_WIDTH * max(abs(holds), abs(fails))):
        middle = float(round((holds + fails) / 2)) if whole else (holds + fails) / 2
        if works(middle):
            holds = middle
        else:
            fails = middle
    return holds
