r"""Two programs made of another one: its objective tilted towards one cosine, and two of its members tied together.

The *tilted* program minimises F(A) - c A_ab for one pair of groups a, b of one member each. It is as convex as F, and
its gradient differs by a constant in two entries, so every solver and every bound applies. The minimiser A_c for c from
0 to infinity traces the geometries that have the greatest cosine A_ab among all of their risk (c < 0: the least
cosine).

The *tied* program minimises F over the geometries in which member b is member a, or its mirror image: A = S B S' with
one entry 1, or one entry -1, in row b of S. It is where the tilted program ends when the pair has come together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Square
from optgeom.programs.gram_program import GramProgram, PairProgram
from optgeom.programs.group_matrix import Sizes
from optgeom.programs.weighted import WeightedProgram


class _Derived:
    """What both programs say to certificates."""

    dual: ClassVar[Literal["linear", "entropy"]] = "linear"
    gives: ClassVar[frozenset[str]] = frozenset()

    def known_gap(self, cosines: Square) -> float | None:
        """None: no lower bound is known."""
        return None


def tilt(program: PairProgram, first: int, second: int, strength: float) -> TiltedProgram:
    """The program tilted by `strength` towards the cosine of two groups of one member."""
    if isinstance(program, WeightedProgram):
        return TiltedWeights(program, first, second, strength)
    return TiltedProgram(program, first, second, strength)


@dataclass(frozen=True, eq=False)
class TiltedProgram(_Derived):
    """F(A) - strength A_ab.

    Attributes
    ----------
    base : PairProgram
        F, in group form.
    first, second : int
        Groups a and b, each of one member, a != b.
    strength : float
        c, of either sign; in units of the risk per unit of cosine.
    """

    base: PairProgram
    first: int
    second: int
    strength: float

    @property
    def sizes(self) -> Sizes:
        return self.base.sizes

    @property
    def count(self) -> Array:
        return self.base.count

    def risk(self, cosines: Square) -> float:
        """F - c A_ab, without the constant of F, beside which a small c would be lost."""
        return self.base.risk_above_floor(cosines) - self.strength * float(cosines[self.first, self.second])

    def risk_above_floor(self, cosines: Square) -> float:
        """The same."""
        return self.risk(cosines)

    def _shifted(self, gradient: Square, by: float) -> Array:
        shifted = gradient.copy()
        shifted[self.first, self.second] += by
        shifted[self.second, self.first] += by
        return shifted

    def gradient(self, cosines: Square) -> Square:
        """G' - c/2 in the two entries of the pair: half the derivative in A_ab = A_ba."""
        return self._shifted(self.base.gradient(cosines), -self.strength / 2)

    def gradient_derivative(self, cosines: Square) -> Callable[[Array], Array]:
        """That of F."""
        return self.base.gradient_derivative(cosines)

    def pair_curvature(self, cosines: Square, gradient: Square) -> Square:
        """That of F."""
        return self.base.pair_curvature(cosines, self._shifted(gradient, self.strength / 2))


@dataclass(frozen=True, eq=False)
class TiltedWeights(TiltedProgram):
    """The tilted weighted program: that of weights which want more of one pair, both ways.

    L - c A_ab is the loss with c n tau / 2 added to w~_ab and w~_ba. So the entropy dual holds, whose bound converges
    with the square of the error, and so does every method for weights that need not sum to 1.
    """

    base: WeightedProgram
    dual: ClassVar[Literal["linear", "entropy"]] = "entropy"
    gives: ClassVar[frozenset[str]] = frozenset({"row-softmax"})

    @cached_property
    def rows(self) -> Array:
        """(G, G) w~ with what is added for the pair."""
        return self._shifted(self.base.rows, self.strength * self.num_samples * self.temperature / 2)

    @property
    def num_samples(self) -> int:
        return self.base.num_samples

    @property
    def temperature(self) -> float:
        return self.base.temperature

    @property
    def anchored(self) -> npt.NDArray[np.bool_]:
        return self.base.anchored

    def log_softmax(self, cosines: Square) -> tuple[Array, Array]:
        """That of L."""
        return self.base.log_softmax(cosines)

    def probabilities(self, cosines: Square) -> Square:
        """That of L."""
        return self.base.probabilities(cosines)

    def risk(self, cosines: Square) -> float:
        """L - c A_ab, with the constant of L, as the entropy dual has it."""
        return self.base.risk(cosines) - self.strength * float(cosines[self.first, self.second])


@dataclass(frozen=True, eq=False)
class TiedProgram(_Derived):
    """F(S B S') as a function of the Gram matrix B of all members but b, which is `sign` times a.

    Attributes
    ----------
    base : GramProgram
    first, second : int
        Groups a and b of one member each; group b is the one that is left out of B.
    sign : float
        1: merged; -1: antipodal.
    """

    base: GramProgram
    first: int
    second: int
    sign: float

    @cached_property
    def kept(self) -> npt.NDArray[np.intp]:
        """Groups of the base that B has."""
        return np.delete(np.arange(self.base.sizes.size), self.second)

    @cached_property
    def sizes(self) -> Sizes:
        return np.asarray(self.base.sizes[self.kept])

    @cached_property
    def count(self) -> Array:
        return np.asarray(self.base.count[np.ix_(self.kept, self.kept)])

    @cached_property
    def _selection(self) -> Array:
        selection = np.zeros((self.base.sizes.size, self.kept.size))
        selection[self.kept, np.arange(self.kept.size)] = 1.0
        selection[self.second] = self.sign * selection[self.first]
        return selection

    def lift(self, cosines: Square) -> Array:
        """(G, G) group form of the base from the (G - 1, G - 1) one; the pair has cosine `sign`."""
        full = self._selection @ cosines @ self._selection.T
        full[self.second, self.second] = cosines[self._position, self._position]
        return full

    @cached_property
    def _position(self) -> int:
        return int(np.flatnonzero(self.kept == self.first)[0])

    def _gather(self, full: Array, selection: Array) -> Array:
        """Sum of the pairs of the base that one pair of B stands for; within-group entries are kept."""
        within = np.diag(full)[self.kept]
        off = np.where(self.base.count > 0, full, 0.0)
        np.fill_diagonal(off, 0.0)
        gathered = selection.T @ off @ selection
        np.fill_diagonal(gathered, np.where(self.sizes > 1, within, 0.0))
        return np.asarray(gathered)

    def risk(self, cosines: Square) -> float:
        """F, without its constant."""
        return self.base.risk_above_floor(self.lift(cosines))

    def risk_above_floor(self, cosines: Square) -> float:
        """The same."""
        return self.risk(cosines)

    def gradient(self, cosines: Square) -> Square:
        """Half the derivative in B_gh = B_hg."""
        return self._gather(self.base.gradient(self.lift(cosines)), self._selection)

    def gradient_derivative(self, cosines: Square) -> Callable[[Array], Array]:
        """Function from a symmetric direction of B to the derivative of the gradient along it."""
        derivative = self.base.gradient_derivative(self.lift(cosines))

        def tied(direction: Square) -> Array:
            full = self.lift(direction)
            # A member keeps its unit length, and the pair its cosine.
            single = self.base.sizes == 1
            full[single, single] = 0.0
            full[self.first, self.second] = full[self.second, self.first] = 0.0
            return self._gather(derivative(full), self._selection)

        return tied

    def pair_curvature(self, cosines: Square, gradient: Square) -> Square:
        """Sum of the estimates of the pairs that each pair stands for."""
        full = self.lift(cosines)
        estimate = self.base.pair_curvature(full, self.base.gradient(full))
        return np.maximum(self._gather(estimate, np.abs(self._selection)), 0.0)
