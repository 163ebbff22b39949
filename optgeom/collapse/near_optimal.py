r"""Near-optimal geometries: how far one cosine can move while the risk stays within a slack of its minimum.

    greatest / least A_ab   over   { A positive semidefinite, diag A = 1, F(A) <= F* + slack }.

The least risk h(a) of the geometries with A_ab = a is convex in a, with its minimum F* at the optimal cosine, so each
end is the root of h(a) = F* + slack on its side. Its derivative is the tilt c for which the geometry at a minimises
F(A) - c A_ab (`programs.tilted`), so Newton's method has it for nothing.

*From inside* the geometry at a is near-optimal itself. *From outside*, for ANY c > 0, ANY matrix in the set and any
lower bound L_c <= min F_c of the tilted program,

    A_ab = (F(A) - F_c(A)) / c <= (F* + slack - L_c) / c,

so a range is proved whatever the solver did; the two ends differ by the square of what the search left over. Both ends
are returned, and a range counts as certified where they agree.

Where one dimension is lost at the optimum, Newton's method solves for a given cosine, with further columns of the dual
where more are lost on the way (`solvers.pinned`). Elsewhere the low-rank method minimises the tilted program, and the
search is for its c. The cosine 1 is then reached at a finite c (the pair merges, and moving on costs nothing more), -1
only as c grows without limit; the excess at which that happens comes from the tied program.

The *least excess of an angle* is h - F* at its cosine; L_c + c cos bounds it from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from optgeom._numerics import EPS
from optgeom.collapse.least_risk import Frame, Path, Point

# Relative misfit of the excess at which a search ends, and at which it ends if the two ends agree as closely.
MATCHED, NEARLY_MATCHED, CLOSE_DEG = 1e-9, 1e-6, 1e-4
SEARCH_STEPS = 80
SMALLEST_LOG, LARGEST_LOG = -650.0, 300.0  # of c: beyond, its exponential leaves the floating-point numbers
LARGEST_MOVE = 4.0  # of log c in one step while the root is not bracketed
NEAR = 0.1  # relative misfit of the excess within which the outer bound is worth computing
OVERSHOT = 0.95  # of the way to the pair merged, or antipodal, when a step would go farther than that
TIED = 1e-10  # distance of a cosine from +-1 that counts as reached: 0.0008 degrees
NEAR_COLLAPSE = (
    1e-3  # of a cosine: how closely the last spread geometry is approached before the tilted program is asked
)
# Times the root of the slack: the bound is off by the accuracy over the tilt, which goes with that root.
ACCURACY = 1e-6
SMALL_TILT = 1e10  # times the noise of the excess: where the search begins if a pair feels no force at all
NEARLY_TIED = 0.999  # cosine, of either sign, beyond which it is asked whether the pair reaches +-1 within the slack


@dataclass(frozen=True)
class End:
    """One end of a range, as a cosine.

    Attributes
    ----------
    attained : float
        Cosine of a geometry in the near-optimal set.
    outer : float
        No geometry of the set goes beyond.
    """

    attained: float
    outer: float


@dataclass(frozen=True)
class Excess:
    """Least risk above the optimum at which the pair has a given cosine.

    Attributes
    ----------
    attained : float
        Excess of a geometry that has it.
    lower : float
        No geometry that has it comes closer to the optimum.
    """

    attained: float
    lower: float


def extreme_cosine(frame: Frame, sign: float, slack: float, susceptibility: float | None = None) -> End:
    """Greatest (sign 1) or least (sign -1) cosine of the pair at this slack.

    Parameters
    ----------
    frame : Frame
    sign : float
    slack : float
        Absolute, in units of the risk, > 0.
    susceptibility : float, optional
        Derivative of the cosine in c at c = 0, which starts the search.
    """
    room = slack - frame.gap
    if not room > 0:
        return End(frame.cosine, sign)
    if sign * frame.cosine >= 1.0 - EPS:
        return End(sign, sign)
    path = Path(frame, sign)
    path.accuracy = ACCURACY * math.sqrt(min(1.0, EPS * room / path.noise))
    stiffness = 1.0 / susceptibility if susceptibility else frame.stiffness()
    # By convexity the tilt at the end is at least the room over the distance, which is at most 2.
    start = math.log(max(math.sqrt(2 * room * stiffness), room / 2))
    if frame.spread or frame.alone:
        reached = _by_cosine(path, slack, room, susceptibility)
        if isinstance(reached, End):
            return reached
        if reached is not None:
            start = reached.log_strength + min(math.log(room / reached.excess), 1.0)
    return _by_tilt(path, slack, room, start)


def _by_cosine(path: Path, slack: float, room: float, susceptibility: float | None) -> End | Point | None:
    """Newton's method for h(a) = F* + room; the last geometry, or None, where those on the way have collapsed."""
    frame, sign = path.frame, path.sign
    farthest = sign * (1.0 - TIED)
    step = math.sqrt(2 * room * susceptibility) if susceptibility else math.inf
    at = frame.cosine + sign * min(step, 0.9 * (1.0 - sign * frame.cosine))
    inside, outside, outer = frame.cosine, None, sign
    inside_excess, outside_excess, collapsed = 0.0, math.inf, farthest
    last: Point | None = None

    def reached() -> float:
        """The farthest cosine of the set that is known: between inside and outside by convexity of the excess."""
        if outside is None or not outside_excess > inside_excess:
            return inside
        return inside + (room - inside_excess) / (outside_excess - inside_excess) * (outside - inside)

    for _ in range(SEARCH_STEPS):
        point = path.with_cosine(at)
        if point is None:
            # Collapsed, or out of Newton's reach: the root may still lie on this side.
            collapsed = at
            at = (inside + collapsed) / 2
            if abs(collapsed - inside) < NEAR_COLLAPSE:
                return last
            continue
        if abs(point.excess - room) <= NEAR * room:
            # The bound is off by the square of what the excess is off: it is of use near the root only.
            bound = path.outer_cosine(point, slack)
            outer = min(outer, bound) if sign > 0 else max(outer, bound)
        if point.excess <= room:
            inside, inside_excess, last = at, point.excess, point
            # Not beyond the root yet: the pair may be able to go all the way.
            if outside is None and path.tied_candidate(point.cosines) <= room:
                return End(sign, sign)
            if sign * at >= 1.0 - TIED:
                return End(at, sign)
        else:
            outside, outside_excess = at, point.excess
        misfit = abs(point.excess - room) / room
        if misfit <= MATCHED or abs(outer - inside) <= 4 * EPS:
            break
        if misfit <= NEARLY_MATCHED and abs(_degrees(outer) - _degrees(reached())) <= CLOSE_DEG:
            break
        beyond = collapsed if outside is None else outside
        if outside is None and collapsed != farthest and abs(collapsed - inside) < NEAR_COLLAPSE:
            return last
        # With a power of the distance for the excess, which is 2 near an optimum and 1 where coincident points part.
        distance = sign * (at - frame.cosine)
        power = max(1.0, math.exp(point.log_strength) * distance / max(point.excess, 1e-300))
        at = frame.cosine + sign * distance * (room / max(point.excess, 1e-300)) ** (1.0 / power)
        if sign * at >= sign * beyond:
            at = inside + OVERSHOT * (farthest - inside) if beyond == farthest else (inside + beyond) / 2
        elif sign * at <= sign * inside:
            at = (inside + beyond) / 2
    return End(reached(), outer)


def _degrees(cosine: float) -> float:
    return math.degrees(math.acos(max(-1.0, min(1.0, cosine))))


def _by_tilt(path: Path, slack: float, room: float, start: float) -> End:
    """Search for the tilt whose optimum has the excess `room`, from this logarithm of it."""
    frame, sign = path.frame, path.sign
    tied: float | None = None

    def misfit(point: Point) -> float:
        return math.log(max(point.excess, 1e-300)) - math.log(room)

    def stop(point: Point) -> bool:
        nonlocal tied
        if tied is None and sign * point.cosine > NEARLY_TIED:
            tied = path.tied_excess()
        return tied is not None and tied <= room

    below, above = _search(path, misfit, start, stop, slope=2.0)
    if tied is not None and tied <= room:
        return End(sign, sign)
    points = [point for point in (below, above) if point is not None]
    attained, outer = frame.cosine, sign
    for point in points:
        share = min(1.0, room / point.excess) if point.excess > 0 else 1.0
        inside = frame.cosine + share * (point.cosine - frame.cosine)
        bound = path.outer_cosine(point, slack)
        attained = max(attained, inside) if sign > 0 else min(attained, inside)
        outer = min(outer, bound) if sign > 0 else max(outer, bound)
    return End(attained, outer)


def least_excess(frame: Frame, cosine: float, susceptibility: float | None = None) -> Excess:
    """Least excess at which the pair has this cosine (beyond that of the optimum, in either direction)."""
    if cosine == frame.cosine:
        return Excess(0.0, 0.0)
    sign = 1.0 if cosine > frame.cosine else -1.0
    path = Path(frame, sign)
    if abs(cosine) >= 1.0:
        return Excess(path.tied_excess(), 0.0)
    exact = path.with_cosine(cosine)
    if exact is not None:
        return Excess(exact.excess, min(exact.excess, path.lower_excess(exact, cosine)))
    path = Path(frame, sign)
    distance = abs(cosine - frame.cosine)

    # The aim is a little beyond, so that what matches is beyond as well.
    margin = math.log1p(min(NEARLY_MATCHED, 0.5 * (1.0 - abs(cosine)) / distance))
    goal = math.log(distance) + margin

    def misfit(point: Point) -> float:
        return math.log(max(sign * (point.cosine - frame.cosine), 1e-300)) - goal

    def stop(point: Point) -> bool:
        """Whether the cosine costs nothing that could be told from rounding: there are several optima."""
        beyond = sign * (point.cosine - cosine) >= 0
        return beyond and point.excess <= path.noise and path.lower_excess(point, cosine) <= 0

    # Without a susceptibility: the force between the two, which the tilt must outweigh.
    force = abs(float(frame.program.gradient(frame.cosines)[frame.first, frame.second]))
    least = max(0.1 * force, distance * frame.stiffness(), SMALL_TILT * path.noise)
    start = math.log(distance / susceptibility if susceptibility else least)
    below, above = _search(path, misfit, start, stop, slope=1.0, matched=margin)
    lower = max((path.lower_excess(point, cosine) for point in (below, above) if point is not None), default=0.0)
    if above is None:
        return Excess(math.inf, lower)
    # Convexity: between two least-risk geometries (the optimum is one) the excess is at most the interpolated one.
    near, excess = (0.0, 0.0) if below is None else (sign * (below.cosine - frame.cosine), below.excess)
    far = sign * (above.cosine - frame.cosine)
    weight = (distance - near) / (far - near) if far > near else 1.0
    attained = excess + min(max(weight, 0.0), 1.0) * (above.excess - excess)
    return Excess(max(attained, lower), lower)


def _search(
    path: Path,
    misfit: Callable[[Point], float],
    start: float,
    stop: Callable[[Point], bool],
    slope: float,
    matched: float = NEARLY_MATCHED,
) -> tuple[Point | None, Point | None]:
    """Points on either side of the root of a non-decreasing misfit of log c, as close as rounding allows.

    A point with a misfit of at most `matched` counts for both sides.

    Steps with the last secant slope; once the root is bracketed they stay inside, and halve the bracket where the
    secant has not done so for three steps.
    """
    below: Point | None = None
    above: Point | None = None
    last: tuple[float, float] | None = None
    at, width, stalled = start, math.inf, 0
    for _ in range(SEARCH_STEPS):
        point = path.tilted_by(at)
        off = misfit(point)
        if off <= matched:
            below = point
        if off >= -matched:
            above = point
        if abs(off) <= matched or stop(point):
            break
        if last is not None and last[0] != at and last[1] != off:
            slope = (off - last[1]) / (at - last[0])
        last = (at, off)
        step = -off / slope if slope > 0 else -math.copysign(LARGEST_MOVE, off)
        if below is None or above is None:
            at += max(-LARGEST_MOVE, min(LARGEST_MOVE, step))
            if not SMALLEST_LOG < at < LARGEST_LOG:
                break
            continue
        low, high = below.log_strength, above.log_strength
        stalled = 0 if high - low <= width / 2 else stalled + 1
        if stalled == 0:
            width = high - low
        if high - low <= 4 * EPS * max(1.0, abs(low)):
            break
        at = at + step if stalled < 3 and low < at + step < high else (low + high) / 2
    return below, above
