r"""Quadrature on S^1 and S^2: trapezoid rule on the circle, Gauss-Legendre heights times trapezoid rule on the sphere.

Both converge faster than any power for smooth maps. A map that jumps at known heights needs `breaks` there: each panel
has its own Gauss-Legendre rule. The law of positives gets a rule of the same kind in coordinates of its own: around the
anchor, or along its slice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.sampling import latents
from optgeom.sampling.caps import Cap
from optgeom.sampling.conditionals import Conditional, Mixture, Slice


@dataclass(frozen=True, eq=False)
class Rule:
    """Nodes and probabilities.

    Attributes
    ----------
    nodes : (n, d)
    weights : (n,)
        They sum to 1.
    """

    nodes: Array
    weights: Array


def has_rule(conditional: Conditional) -> bool:
    """Whether expectations under this law are done by quadrature."""
    return conditional.dimension <= 3


def sphere_rule(
    dimension: int,
    heights: int = 32,
    angles: int = 64,
    breaks: Array | None = None,
    axis: int | None = None,
    turn: float = 0.0,
) -> Rule:
    """Uniform law on S^1 (`angles` nodes) or S^2 (`heights` nodes in each panel, times `angles`).

    Parameters
    ----------
    dimension : {2, 3}
    heights, angles : int
    breaks : (k,), optional
        Heights from -1 to 1 between which the integrand is smooth.
    axis : int, optional
        Coordinate that the heights are; the last by default.
    turn : float
        Angle of the first node, radians.
    """
    _checks.integer("heights", heights, at_least=1)
    _checks.integer("angles", angles, at_least=1)
    around = turn + 2 * math.pi * np.arange(angles) / angles
    circle = np.column_stack([np.cos(around), np.sin(around)])
    if dimension == 2:
        return Rule(circle, np.full(angles, 1 / angles))
    if dimension != 3:
        raise InvalidInputError(f"`dimension` must be 2 or 3 for quadrature; got {dimension} (use Monte Carlo)")
    ends = np.array([-1.0, 1.0]) if breaks is None else np.asarray(breaks, dtype=np.float64)
    if ends.ndim != 1 or ends.size < 2 or ends[0] != -1 or ends[-1] != 1 or not (np.diff(ends) > 0).all():
        raise InvalidInputError(f"`breaks` must rise from -1 to 1; got {ends.tolist()} (heights where the map jumps)")
    inner, gauss = np.polynomial.legendre.leggauss(heights)
    half = np.diff(ends) / 2
    height = ((ends[:-1] + ends[1:]) / 2)[:, None] + half[:, None] * inner
    weight = (half[:, None] * gauss / 2).ravel()
    height = height.ravel()
    radius = np.sqrt(np.maximum(0.0, 1 - height**2))
    plane = (radius[:, None, None] * circle).reshape(-1, 2)
    nodes = np.insert(plane, 2 if axis is None else axis, np.repeat(height, angles), axis=1)
    return Rule(nodes, np.repeat(weight, angles) / angles)


class PositiveRule(Protocol):
    """Nodes (n, k, d) and probabilities (n, k) for each of n anchors."""

    def __call__(self, z: Array) -> tuple[Array, Array]: ...


def positive_rule(conditional: Conditional, heights: int = 32, angles: int = 64) -> PositiveRule:
    """Rule of p(z+ | z): nodes of the uniform law on the reference set, weighted by the density."""
    if isinstance(conditional, Mixture):
        rules = [positive_rule(part, heights, angles) for part in conditional.parts]

        def mixed(z: Array) -> tuple[Array, Array]:
            parts = [rule(z) for rule in rules]
            weights = [w * part for (_, part), w in zip(parts, conditional.weights, strict=True)]
            return np.concatenate([nodes for nodes, _ in parts], axis=1), np.concatenate(weights, axis=1)

        return mixed
    places = _places(conditional, heights, angles)

    def weighted(z: Array) -> tuple[Array, Array]:
        nodes, uniform = places(z)
        return nodes, uniform * np.exp(conditional.log_density(z[:, None, :], nodes))

    return weighted


def support_rule(conditional: Conditional, heights: int = 32, angles: int = 64) -> PositiveRule:
    """Rule of the uniform law on the support of each anchor, the negatives of the support-corrected loss."""
    if isinstance(conditional, Mixture):
        if conditional.largest is None:
            raise InvalidInputError(
                "`conditional` must have a largest support for rho > 0; got a mixture without one (add it)"
            )
        return support_rule(conditional.largest, heights, angles)
    places = _places(conditional, heights, angles)
    share = conditional.share if isinstance(conditional, Cap) else 1.0

    def even(z: Array) -> tuple[Array, Array]:
        nodes, uniform = places(z)
        return nodes, np.asarray(uniform / share)

    return even


def _places(conditional: Conditional, heights: int, angles: int) -> PositiveRule:
    """Nodes that cover the support, with weights of the uniform law on the reference set."""
    if isinstance(conditional, Slice):
        return _along_slice(conditional, angles)
    if isinstance(conditional, Cap):
        inner, gauss = np.polynomial.legendre.leggauss(heights)
        top = math.radians(conditional.angle_deg)
        slant = top / 2 * (inner + 1)
        if conditional.dimension == 2:
            local = np.column_stack([np.cos(slant), np.sin(slant)])
            return _around(np.concatenate([local, local * [1, -1]]), np.tile(top / 2 * gauss, 2) / (2 * math.pi))
        weight = top / 2 * gauss * np.sin(slant) / 2
        turn = 2 * math.pi * np.arange(angles) / angles
        ring = np.stack([np.cos(turn), np.sin(turn)], axis=1)
        plane = (np.sin(slant)[:, None, None] * ring).reshape(-1, 2)
        return _around(np.column_stack([np.repeat(np.cos(slant), angles), plane]), np.repeat(weight, angles) / angles)
    rule = sphere_rule(conditional.dimension, heights, angles, axis=0)
    return _around(rule.nodes, rule.weights)


def _around(local: Array, weights: Array) -> PositiveRule:
    """Nodes given around the first axis, carried to each anchor."""

    def places(z: Array) -> tuple[Array, Array]:
        n, k = z.shape[0], local.shape[0]
        carried = latents.carry_pole(np.tile(local, (n, 1)), np.repeat(z, k, axis=0))
        return carried.reshape(n, k, -1), np.broadcast_to(weights, (n, k))

    return places


def _along_slice(conditional: Slice, angles: int) -> PositiveRule:
    free = conditional.free

    def places(z: Array) -> tuple[Array, Array]:
        v = z[:, free]
        if len(free) == 1:
            moved = np.stack([v, -v], axis=1)
        else:
            turn = 2 * math.pi * np.arange(angles) / angles
            across = np.stack([-v[:, 1], v[:, 0]], axis=1)
            moved = np.cos(turn)[None, :, None] * v[:, None, :] + np.sin(turn)[None, :, None] * across[:, None, :]
        nodes = np.repeat(z[:, None, :], moved.shape[1], axis=1)
        nodes[:, :, free] = moved
        return nodes, np.full(nodes.shape[:2], 1 / moved.shape[1])

    return places
