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

Where one dimension is lost only, Newton on the rank-one dual solves for a given cosine (`solve_pinned`). Elsewhere the
low-rank method minimises the tilted program, and the search is for its c. The cosine 1 is then reached at a finite c
(the pair merges, and moving on costs nothing more), -1 only as c grows without limit; the excess at which that happens
comes from the tied program.

The *least excess of an angle* is h - F* at its cosine; L_c + c cos bounds it from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import scipy.linalg

from optgeom._numerics import EPS, Array
from optgeom.certificates import Certified, certify
from optgeom.certificates.certificate import DUALS
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.programs.gram_program import CertifiableProgram, PairProgram
from optgeom.programs.tilted import TiedProgram, TiltedProgram, tilt
from optgeom.solvers.low_rank import LowRank
from optgeom.solvers.newton import fit_log_dual, solve_pinned

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
HALVINGS = 6  # halfway points in a row before Newton is given up
SMALL_TILT = 1e10  # times the noise of the excess: where the search begins if a pair feels no force at all
NEARLY_TIED = 0.999  # cosine, of either sign, beyond which it is asked whether the pair reaches +-1 within the slack
INFEASIBLE = -1e-10  # of the largest eigenvalue: below it Newton's matrix is not the tilted optimum
LOW_RANK_GAP = 1e-10  # at which the low-rank method ends; the outer bound pays for what is left


@dataclass(frozen=True, eq=False)
class Frame:
    """A certified optimum with the two classes of one pair in groups of their own.

    Attributes
    ----------
    program : PairProgram
    cosines : (G, G)
        The optimum in group form.
    first, second : int
        Groups of the pair.
    gap : float
        F exceeds the minimum by at most this much at `cosines`.
    spread : bool
        Whether one dimension is lost only, so that Newton on the rank-one dual applies.
    """

    program: PairProgram
    cosines: Array
    first: int
    second: int
    gap: float
    spread: bool

    @property
    def cosine(self) -> float:
        """Cosine of the pair at the optimum."""
        return float(self.cosines[self.first, self.second])

    def stiffness(self) -> float:
        """Derivative of c in the cosine if nothing else moved: a first guess of one over the susceptibility."""
        gradient = self.program.gradient(self.cosines)
        return 2.0 * float(self.program.pair_curvature(self.cosines, gradient)[self.first, self.second])

    @property
    def alone(self) -> bool:
        """Whether there are no other points."""
        return int(self.program.sizes.sum()) == 2

    def tilted(self, strength: float) -> TiltedProgram:
        """The program tilted towards the pair."""
        return tilt(self.program, self.first, self.second, strength)


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


@dataclass(frozen=True)
class _Point:
    """The tilted optimum for one strength."""

    log_strength: float  # of c, or of -c where the pair is pushed apart
    cosines: Array
    excess: float
    cosine: float


@dataclass
class Path:
    """Least-risk geometries of a frame in one direction, each started from the one before.

    Attributes
    ----------
    frame : Frame
    sign : float
        1 towards larger cosines, -1 towards smaller ones.
    accuracy : float
        Change of exponents at which the majorizers of Newton's method count as settled.
    noise : float
        Excess that is not told from rounding: a unit of it of the loss range.
    """

    frame: Frame
    sign: float
    accuracy: float = 0.0
    noise: float = field(init=False)
    _floor: float = field(init=False)
    _cosines: Array = field(init=False)
    _log_dual: Array | None = field(init=False)
    _before: tuple[Array, Array] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        frame = self.frame
        self._floor = frame.program.risk_above_floor(frame.cosines)
        self.noise = EPS * (frame.program.risk_above_floor(np.ones_like(frame.cosines)) - self._floor)
        self._cosines = frame.cosines
        self._log_dual = None
        if frame.spread:
            assert isinstance(frame.program, ClassMeanProgram)
            self._log_dual = fit_log_dual(frame.program, frame.cosines)

    def excess(self, cosines: Array) -> float:
        """F above its value at the optimum."""
        return max(self.frame.program.risk_above_floor(cosines) - self._floor, 0.0)

    def tilted_by(self, log_strength: float) -> _Point:
        """The optimum of the program tilted by c = sign exp(log_strength), by the low-rank method."""
        frame = self.frame
        tilted = frame.tilted(self.sign * math.exp(log_strength))
        cosines = LowRank(good_gap=LOW_RANK_GAP).solve(tilted, self._cosines, judge(tilted)).certified.cosines
        self._cosines = cosines
        return _Point(log_strength, cosines, self.excess(cosines), float(cosines[frame.first, frame.second]))

    def with_cosine(self, cosine: float) -> _Point | None:
        """The least-risk geometry with this cosine of the pair, by Newton's method.

        Where Newton diverges, halfway points lead there. None where that fails too, or the geometry has collapsed.
        """
        if self.frame.alone:
            return self._only(cosine)
        if self._log_dual is None:
            return None
        kept = self._cosines, self._log_dual, self._before
        point = self._follow(cosine)
        if point is None:
            # Newton may have gone on along matrices that are no geometries.
            self._cosines, self._log_dual, self._before = kept
        return point

    def _follow(self, cosine: float) -> _Point | None:
        frame, goals = self.frame, [cosine]
        assert isinstance(frame.program, ClassMeanProgram) and self._log_dual is not None
        here = float(self._cosines[frame.first, frame.second])
        while goals:
            pin = (frame.first, frame.second, goals[-1])
            cosines, log_dual = self._predict(goals[-1])
            solution, strength = solve_pinned(frame.program, pin, cosines, log_dual, self.accuracy)
            if solution.converged and np.all(np.isfinite(solution.cosines)):
                self._before = self._cosines, self._log_dual
                self._cosines, self._log_dual, here = solution.cosines, solution.log_dual, goals.pop()
            elif len(goals) > HALVINGS:
                return None
            else:
                goals.append((here + goals[-1]) / 2)
        if not self.sign * strength > 0 or not is_feasible(self._cosines, frame.program.sizes):
            return None
        return _Point(math.log(self.sign * strength), self._cosines, self.excess(self._cosines), cosine)

    def _predict(self, cosine: float) -> tuple[Array, Array]:
        """Where the last two geometries lead, on a line, at this cosine of the pair; the last one if that is far."""
        assert self._log_dual is not None
        if self._before is None:
            return self._cosines, self._log_dual
        cosines, log_dual = self._before
        pair = (self.frame.first, self.frame.second)
        moved = float(self._cosines[pair] - cosines[pair])
        ratio = (cosine - float(self._cosines[pair])) / moved if moved else math.inf
        if abs(ratio) > 1.0:
            return self._cosines, self._log_dual
        return (
            self._cosines + ratio * (self._cosines - cosines),
            self._log_dual + ratio * (self._log_dual - log_dual),
        )

    def _only(self, cosine: float) -> _Point | None:
        """Two points have one geometry for each cosine, and the tilt is the derivative of its risk."""
        cosines = np.array([[1.0, cosine], [cosine, 1.0]])
        strength = 2 * self.sign * float(self.frame.program.gradient(cosines)[0, 1])
        return _Point(math.log(strength), cosines, self.excess(cosines), cosine) if strength > 0 else None

    def tied_candidate(self, cosines: Array) -> float:
        """Excess of the geometry in which both classes move to the line halfway between them, and nothing else does."""
        frame, sign = self.frame, self.sign
        first, second = frame.first, frame.second
        length = math.sqrt(2 * (1 + sign * float(cosines[first, second])))
        row = (cosines[first] + sign * cosines[second]) / length
        moved = cosines.copy()
        for member, side in ((first, 1.0), (second, sign)):
            moved[member] = moved[:, member] = side * row
        moved[first, first] = moved[second, second] = 1.0
        moved[first, second] = moved[second, first] = sign
        return self.excess(moved)

    def tied_excess(self) -> float:
        """Excess of a geometry in which the pair has cosine `sign`: the best one that is found."""
        frame = self.frame
        tied = TiedProgram(frame.program, frame.first, frame.second, self.sign)
        start = frame.cosines[np.ix_(tied.kept, tied.kept)]
        return max(LowRank().solve(tied, start, judge(tied)).certified.risk - self._floor, 0.0)

    def _gap(self, point: _Point, strength: float) -> float:
        """By how much the point may exceed the minimum of the tilted program."""
        tilted = self.frame.tilted(self.sign * strength)
        return DUALS[tilted.dual](tilted, point.cosines, tilted.risk(point.cosines)).gap

    def outer_cosine(self, point: _Point, slack: float) -> float:
        """A cosine that no near-optimal geometry goes beyond, in the direction of the path."""
        strength = math.exp(point.log_strength)
        gap = self._gap(point, strength)
        return self.sign * min(1.0, self.sign * point.cosine + (slack - point.excess + gap) / strength)

    def lower_excess(self, point: _Point, cosine: float) -> float:
        """A risk above the optimum that every geometry with this cosine of the pair has at least."""
        strength = math.exp(point.log_strength)
        gap = self._gap(point, strength)
        return max(0.0, point.excess - gap + strength * self.sign * (cosine - point.cosine))


def judge(program: CertifiableProgram) -> Callable[[Array], Certified]:
    """Certificates of a tilted or tied program, for the low-rank method."""
    return partial(certify, program, tolerance=LOW_RANK_GAP)


def is_feasible(cosines: Array, sizes: group_matrix.Sizes) -> bool:
    """Whether a group-form matrix is positive semidefinite to rounding."""
    if not np.all(np.isfinite(cosines)):
        return False
    ones = np.ones(sizes.size)
    eigenvalues = scipy.linalg.eigvalsh(group_matrix.symmetric_block(cosines, ones, sizes))
    lowest = min(float(eigenvalues[0]), float(group_matrix.complement(cosines, ones, sizes).min()))
    return lowest >= INFEASIBLE * float(eigenvalues[-1])


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


def _by_cosine(path: Path, slack: float, room: float, susceptibility: float | None) -> End | _Point | None:
    """Newton's method for h(a) = F* + room; the last geometry, or None, where those on the way have collapsed."""
    frame, sign = path.frame, path.sign
    farthest = sign * (1.0 - TIED)
    step = math.sqrt(2 * room * susceptibility) if susceptibility else math.inf
    at = frame.cosine + sign * min(step, 0.9 * (1.0 - sign * frame.cosine))
    inside, outside, outer = frame.cosine, None, sign
    inside_excess, outside_excess, collapsed = 0.0, math.inf, farthest
    last: _Point | None = None

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

    def misfit(point: _Point) -> float:
        return math.log(max(point.excess, 1e-300)) - math.log(room)

    def stop(point: _Point) -> bool:
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

    def misfit(point: _Point) -> float:
        return math.log(max(sign * (point.cosine - frame.cosine), 1e-300)) - goal

    def stop(point: _Point) -> bool:
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
    misfit: Callable[[_Point], float],
    start: float,
    stop: Callable[[_Point], bool],
    slope: float,
    matched: float = NEARLY_MATCHED,
) -> tuple[_Point | None, _Point | None]:
    """Points on either side of the root of a non-decreasing misfit of log c, as close as rounding allows.

    A point with a misfit of at most `matched` counts for both sides.

    Steps with the last secant slope; once the root is bracketed they stay inside, and halve the bracket where the
    secant has not done so for three steps.
    """
    below: _Point | None = None
    above: _Point | None = None
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
