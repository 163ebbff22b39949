"""One pair of a certified optimum, and the geometries of least risk for each of its cosines, or for each tilt."""

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
from optgeom.solvers.newton import fit_log_dual
from optgeom.solvers.pinned import Face, solve_on_face, solve_pinned

HALVINGS = 6  # halfway points in a row before Newton is given up
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
class Point:
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
    _factor: Array | None = field(init=False)
    _before: tuple[Array, Array] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        frame = self.frame
        self._floor = frame.program.risk_above_floor(frame.cosines)
        self.noise = EPS * (frame.program.risk_above_floor(np.ones_like(frame.cosines)) - self._floor)
        self._cosines = frame.cosines
        self._factor = None
        if frame.spread:
            assert isinstance(frame.program, ClassMeanProgram)
            self._factor = np.exp(fit_log_dual(frame.program, frame.cosines))[:, None]

    def excess(self, cosines: Array) -> float:
        """F above its value at the optimum."""
        return max(self.frame.program.risk_above_floor(cosines) - self._floor, 0.0)

    def tilted_by(self, log_strength: float) -> Point:
        """The optimum of the program tilted by c = sign exp(log_strength), by the low-rank method."""
        frame = self.frame
        tilted = frame.tilted(self.sign * math.exp(log_strength))
        cosines = LowRank(good_gap=LOW_RANK_GAP).solve(tilted, self._cosines, judge(tilted)).certified.cosines
        self._cosines = cosines
        return Point(log_strength, cosines, self.excess(cosines), float(cosines[frame.first, frame.second]))

    def with_cosine(self, cosine: float) -> Point | None:
        """The least-risk geometry with this cosine of the pair, by Newton's method.

        Where Newton diverges, halfway points lead there. None where that fails too, or the geometry has collapsed.
        """
        if self.frame.alone:
            return self._only(cosine)
        if self._factor is None:
            return None
        kept = self._cosines, self._factor, self._before
        point = self._follow(cosine)
        if point is None:
            # Newton may have gone on along matrices that are no geometries.
            self._cosines, self._factor, self._before = kept
        return point

    def _follow(self, cosine: float) -> Point | None:
        frame, goals, tilt = self.frame, [cosine], 0.0
        here = float(self._cosines[frame.first, frame.second])
        while goals:
            face = self._face(goals[-1])
            if face is not None:
                assert self._factor is not None
                self._before = self._cosines, self._factor
                self._cosines, self._factor, tilt, here = face.cosines, face.factor, face.tilt, goals.pop()
            elif len(goals) > HALVINGS:
                return None
            else:
                goals.append((here + goals[-1]) / 2)
        if not self.sign * tilt > 0:
            return None
        return Point(math.log(self.sign * tilt), self._cosines, self.excess(self._cosines), cosine)

    def _face(self, cosine: float) -> Face | None:
        """One step to this cosine: in logarithms where one dimension is lost, with further columns of the dual else."""
        program, pin = self.frame.program, (self.frame.first, self.frame.second, cosine)
        assert isinstance(program, ClassMeanProgram)
        cosines, factor = self._predict(cosine)
        if factor.shape[1] == 1 and factor.min() > 0:
            solution, tilt = solve_pinned(program, pin, cosines, np.log(factor[:, 0]), self.accuracy)
            if not solution.converged or not np.all(np.isfinite(solution.cosines)):
                return None
            cosines, factor = solution.cosines, np.exp(solution.log_dual)[:, None]
            if is_feasible(cosines, program.sizes):
                return Face(cosines, factor, tilt)
        return solve_on_face(program, pin, cosines, factor, self.accuracy)

    def _predict(self, cosine: float) -> tuple[Array, Array]:
        """Where the last two geometries lead, on a line, at this cosine of the pair; the last one if that is far."""
        assert self._factor is not None
        here = self._cosines, self._factor
        if self._before is None or self._before[1].shape != self._factor.shape:
            return here
        cosines, factor = self._before
        pair = (self.frame.first, self.frame.second)
        moved = float(self._cosines[pair] - cosines[pair])
        ratio = (cosine - float(self._cosines[pair])) / moved if moved else math.inf
        if abs(ratio) > 1.0:
            return here
        return self._cosines + ratio * (self._cosines - cosines), self._factor + ratio * (self._factor - factor)

    def _only(self, cosine: float) -> Point | None:
        """Two points have one geometry for each cosine, and the tilt is the derivative of its risk."""
        cosines = np.array([[1.0, cosine], [cosine, 1.0]])
        strength = 2 * self.sign * float(self.frame.program.gradient(cosines)[0, 1])
        return Point(math.log(strength), cosines, self.excess(cosines), cosine) if strength > 0 else None

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

    def _gap(self, point: Point, strength: float) -> float:
        """By how much the point may exceed the minimum of the tilted program."""
        tilted = self.frame.tilted(self.sign * strength)
        return DUALS[tilted.dual](tilted, point.cosines, tilted.risk(point.cosines)).gap

    def outer_cosine(self, point: Point, slack: float) -> float:
        """A cosine that no near-optimal geometry goes beyond, in the direction of the path."""
        strength = math.exp(point.log_strength)
        gap = self._gap(point, strength)
        return self.sign * min(1.0, self.sign * point.cosine + (slack - point.excess + gap) / strength)

    def lower_excess(self, point: Point, cosine: float) -> float:
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
