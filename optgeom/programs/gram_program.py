"""What solvers and certificates ask of a program over group-form Gram matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from optgeom._numerics import Array, Square
from optgeom.programs.group_matrix import Sizes


class GramProgram(Protocol):
    """A convex function F of a Gram matrix with unit diagonal, kept in group form (see `group_matrix`).

    Attributes
    ----------
    sizes : (G,)
        Members of each group.
    count : (G, G)
        Other members of group h seen from one member of group g: m_h, and m_g - 1 on the diagonal.
    """

    @property
    def sizes(self) -> Sizes: ...

    @property
    def count(self) -> Array: ...

    def risk(self, cosines: Square) -> float:
        """F."""
        ...

    def gradient(self, cosines: Square) -> Square:
        """(G, G) half the derivative in A_ij = A_ji for one pair of members; 0 where there is no pair."""
        ...

    def gradient_derivative(self, cosines: Square) -> Callable[[Array], Array]:
        """Function from a symmetric (G, G) direction to the derivative of the gradient along it."""
        ...

    def pair_curvature(self, cosines: Square, gradient: Square) -> Square:
        """(G, G) estimate >= 0 of the derivative of each gradient entry in its own cosine, for preconditioning."""
        ...

    def risk_above_floor(self, cosines: Square) -> float:
        """F minus a constant of the program, chosen so that differences of F keep their digits."""
        ...


class CertifiableProgram(GramProgram, Protocol):
    """A program that says which dual bounds its risk from below.

    Attributes
    ----------
    dual : {"gradient", "linear", "entropy", "entropy-with-anchors"}
        "gradient": linearisation at the matrix, for forces that only push apart, with a backward error. "linear": the
        same for a gradient of any signs. "entropy": conjugate of the log-sum-exp, whose bound
        converges with the square of the error. "entropy-with-anchors": the same where the anchor is one of its own
        negatives.
    gives : frozenset of str
        What solvers and certificates may use of it.
    """

    @property
    def dual(self) -> Literal["gradient", "cuts", "linear", "entropy", "entropy-with-anchors"]: ...

    @property
    def gives(self) -> frozenset[str]: ...

    def known_gap(self, cosines: Square) -> float | None:
        """Risk minus a lower bound that the program knows, computed to relative accuracy; None where it knows none."""
        ...


class PairProgram(CertifiableProgram, Protocol):
    """A program whose members can be told apart, for questions about single pairs.

    Attributes
    ----------
    index : (n,)
        Group of each member.
    anchor_weight : (G,)
        Weight of one member of each group in the risk; need not sum to 1.
    """

    @property
    def index(self) -> npt.NDArray[np.intp]: ...

    @property
    def anchor_weight(self) -> Array: ...

    def with_apart(self, members: tuple[int, ...], /) -> tuple[PairProgram, npt.NDArray[np.intp]]:
        """The same program with these members in groups of their own, and the old group of each new group."""
        ...
