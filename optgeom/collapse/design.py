r"""Design: what to change so that the classes do not collapse, or so that the closest two are at a wanted angle.

Each parameter is one number with a value that users would rather keep: the sampler power q (1: leave the sampler
alone), the temperature (as large as possible), the batch size or number of negatives (as small as possible), the
softness epsilon of Soft SupCon. The search walks from the preferred end over a grid, solves (with a certificate) at
each point, and refines between the first point that meets the goal and its neighbour that does not. When no point of
the grid meets it, that is the answer, with the best that was seen. The value in use is judged first, and the value
nearest to it that meets the goal is found by walking away from it in both directions.

`design_table` shows the trade-off instead: smallest angle and slack needed over temperature, batch size and sampler.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom.certificates.certificate import RANK_EIGENVALUE
from optgeom.collapse.loss_values import flat_share
from optgeom.collapse.ranges import slack_needed
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
class Candidate:
    """One value of the parameter.

    Attributes
    ----------
    value : float
    works : bool
        Whether it meets the goal.
    min_angle_deg : float or None
        Smallest angle there; None where the optimum could not be certified.
    """

    value: float
    works: bool
    min_angle_deg: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"value": plain(self.value), "works": self.works, "min_angle_deg": self.min_angle_deg}


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
    present : Candidate or None
        The value in use; None for epsilon, and where no geometry can meet the goal.
    nearest : Candidate or None
        The value nearest to it that meets the goal (by ratio; by difference for the sampler); None when none was found.
    """

    parameter: str
    goal: str
    value: float | None
    reason: str
    geometry: Geometry | None
    cosine: float | None = None
    note: str | None = None
    present: Candidate | None = None
    nearest: Candidate | None = None

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
            "present": None if self.present is None else self.present.as_dict(),
            "nearest": None if self.nearest is None else self.nearest.as_dict(),
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
    present : float
        The value in use.
    whole : bool
        Values between those of the grid are whole numbers.
    """

    parameter: str
    grid: list[float]
    at: Callable[[float], tuple[float, Loss]]
    looked_for: str
    at_once: str
    present: float
    whole: bool = False

    def distance(self, value: float) -> float:
        """How far a value is from the present one: a ratio, or a difference where 0 is a value."""
        if min(self.grid) <= 0:
            return abs(value - self.present)
        if math.inf in (value, self.present):
            return 0.0 if value == self.present else math.inf
        return abs(math.log(value / self.present))


def _sampler_line(loss: Loss) -> Line:
    return Line(
        parameter="sampler",
        grid=np.linspace(1.0, 0.0, GRID_POINTS).tolist(),
        at=lambda power: (power, loss),
        looked_for="the power nearest to 1 (the sampler as it is) that works",
        at_once="the sampler may stay as it is",
        present=1.0,
    )


def _option_line(loss: Loss, option: Option) -> Line:
    search = option.search
    assert search is not None
    if option.name == "temperature":
        loss.require_shared_temperature(option.name)
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
        present=float(getattr(loss, option.name)),
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

    def candidate(value: float) -> Candidate:
        geometry = solve_at(value)
        angle = None if geometry is None else geometry.min_angle_deg
        return Candidate(value=value, works=works(value), min_angle_deg=angle)

    present = candidate(line.present)
    nearest = None if present.works else _nearest(line, works)
    beside: dict[str, Any] = {
        "present": present,
        "nearest": present if present.works else None if nearest is None else candidate(nearest),
    }
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
            return Design(
                parameter=line.parameter, goal=goal, value=value, reason=reason, geometry=geometry, note=note, **beside
            )
        previous = value
    seen = [geometry for geometry in map(solve_at, line.grid) if geometry is not None]
    best = max(
        seen, key=lambda geometry: (geometry.rank if min_angle is None else 0, geometry.min_angle_deg), default=None
    )
    tried = f"{line.parameter.replace('_', ' ')} from {line.grid[0]:g} to {line.grid[-1]:g}"
    reason = f"no {tried} reaches it, of the {len(line.grid)} values that were tried"
    if best is not None:
        reason += f"; the best smallest angle there is {best.min_angle_deg:.6g} degrees, rank {best.rank}"
    return Design(parameter=line.parameter, goal=goal, value=None, reason=reason, geometry=best, **beside)


def _nearest(line: Line, works: Callable[[float], bool]) -> float | None:
    """The working value nearest to the present one, which does not work: the first in either direction, refined."""
    reached = []
    for side in (
        sorted(value for value in line.grid if value > line.present),
        sorted((value for value in line.grid if value < line.present), reverse=True),
    ):
        previous = line.present
        for value in side:
            if works(value):
                reached.append(_refine(works, previous, value, whole=line.whole))
                break
            previous = value
    return min(reached, key=line.distance, default=None)


TABLE_TEMPERATURES = (0.07, 0.1, 0.2, 0.3, 0.5, 1.0)
TABLE_BATCHES = (64.0, 256.0, 1024.0, math.inf)
TABLE_SAMPLERS = (1.0, 0.5, 0.0)
BATCH_OPTIONS = ("batch_size", "negatives")  # what the second column is, the first that the loss has


@dataclass(frozen=True, kw_only=True)
class DesignCell:
    """One setting of the trade-off table.

    Attributes
    ----------
    temperature : float
    batch_size : float or None
        Images per batch, or negatives per anchor; None where the loss has neither.
    sampler : float
        Power q of a sampler that draws classes with proportions ~ n^q.
    min_angle_deg : float or None
        Smallest angle of the certified optimum; None where there is none.
    slack_needed : float or None
        Share of the loss range within which the loss must come to fix the angle of the closest pair to 2 degrees.
    """

    temperature: float
    batch_size: float | None
    sampler: float
    min_angle_deg: float | None
    slack_needed: float | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        cell = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**cell, "batch_size": None if self.batch_size is None else plain(self.batch_size)}


def design_table(
    classes: ClassDistribution,
    loss: Loss,
    *,
    temperatures: tuple[float, ...] = TABLE_TEMPERATURES,
    batch_sizes: tuple[float, ...] = TABLE_BATCHES,
    samplers: tuple[float, ...] = TABLE_SAMPLERS,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[DesignCell, ...]:
    """Trade-off for these classes: smallest angle and slack needed over temperature, batch size and sampler.

    Parameters
    ----------
    classes : ClassDistribution
    loss : Loss
        The loss as it is now; the settings of the table replace its own.
    temperatures, batch_sizes, samplers : tuple of float
        Values of each axis; `batch_sizes` are negatives per anchor where the loss has those.
    progress : callable, optional
        Called with (cells done, cells in all).

    Returns
    -------
    tuple of DesignCell
        Every combination that exists for this loss, by temperature, batch size and sampler.
    """
    _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    own = {option.name for option in loss.options()}
    batch = next((name for name in BATCH_OPTIONS if name in own), None)
    settings = itertools.product(temperatures, batch_sizes if batch is not None else (None,), samplers)
    cells = []
    every = list(settings)
    for done, (temperature, size, power) in enumerate(every, 1):
        given: dict[str, Any] = {"temperature": temperature}
        if batch is not None and size is not None:
            given[batch] = int(size) if size != math.inf else size
        cells.append(_cell(classes, loss, given, size, power))
        if progress is not None:
            progress(done, len(every))
    return tuple(cells)


def _cell(
    classes: ClassDistribution, loss: Loss, given: dict[str, Any], size: float | None, power: float
) -> DesignCell:
    angle = slack = None
    try:
        geometry = solve(classes.resample(power), loss.with_options(given))
    except NotCertifiedError:
        geometry = None
    if geometry is not None:
        angle, pair = geometry.min_angle_deg, geometry.closest_pairs(1)[0]
        slack = slack_needed(geometry, pairs=[(pair.first, pair.second)]).smallest.whole
    return DesignCell(
        temperature=given["temperature"], batch_size=size, sampler=power, min_angle_deg=angle, slack_needed=slack
    )


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
