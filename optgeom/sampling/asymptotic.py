r"""The contrastive loss with infinitely many negatives, for any map h of the latents.

    L(h) = log N + E_z log[ (1 - rho) E_z' exp(h(z).h(z')/tau) + rho E_{z' ~ support(z)} exp(h(z).h(z')/tau) ]
           - E h(z).h(z+)/tau,

z, z' uniform on the sphere, z+ a positive of z, rho the share of negatives that the support-corrected loss draws from
the anchor's own support. By quadrature on S^1 and S^2, by Monte Carlo with an error bar elsewhere.

References
----------
Zaliaduonis, Putzky, Richter, Gatidis 2026, arXiv 2606.04280; Wang, Isola 2020, arXiv 2005.10242
(alignment and uniformity).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optgeom import _checks
from optgeom._numerics import Array, blocks
from optgeom.errors import InvalidInputError
from optgeom.sampling import latents
from optgeom.sampling.conditionals import Conditional, Slice, VonMisesFisher
from optgeom.sampling.maps import Map, identity, image
from optgeom.sampling.quadrature import PositiveRule, Rule, has_rule, positive_rule, sphere_rule, support_rule

BUDGET = 2**21  # numbers in memory at a time


@dataclass(frozen=True)
class AsymptoticLoss:
    """A loss and its parts.

    Attributes
    ----------
    value : float
        uniformity - alignment + log N.
    alignment : float
        E h(z).h(z+) / tau.
    uniformity : float
        E_z log of the mean of exp(h(z).h(z')/tau) over negatives.
    standard_error : float
        Of `value`: 0 for quadrature.
    method : {"quadrature", "monte-carlo"}
    """

    value: float
    alignment: float
    uniformity: float
    standard_error: float
    method: str


def asymptotic_loss(
    conditional: Conditional,
    temperature: float,
    mapping: Map = identity,
    *,
    negatives: float = 1.0,
    rho: float = 0.0,
    method: str = "auto",
    rule: Rule | None = None,
    resolution: tuple[int, int] = (32, 64),
    samples: int = 20_000,
    references: int = 2_000,
    seed: int = 0,
) -> AsymptoticLoss:
    """Asymptotic loss of a map.

    Parameters
    ----------
    conditional : Conditional
    temperature : float
        tau > 0.
    mapping : callable
        (n, d) latents -> (n, q) unit rows; the identity by default.
    negatives : float
        N > 0: adds log N.
    rho : float
        Share of negatives from the anchor's own support, in [0, 1].
    method : {"auto", "quadrature", "monte-carlo"}
    rule : Rule, optional
        Quadrature over the latents, for maps that jump.
    resolution : (int, int)
        Heights and angles of the quadrature; Gauss-Legendre nodes in the angle for caps.
    samples, references : int
        Monte Carlo: anchors with their positives, and common negatives.
    seed : int
        Monte Carlo.
    """
    tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    shift = math.log(_checks.real("negatives", negatives, above=0.0, hint="1 leaves log N out"))
    check_rho(rho)
    _checks.choice("method", method, ("auto", "quadrature", "monte-carlo"))
    if method == "quadrature" and not has_rule(conditional):
        raise InvalidInputError(
            f"`method` must be monte-carlo in dimension {conditional.dimension}; got 'quadrature' (it needs 2 or 3)"
        )
    if method == "monte-carlo" or not has_rule(conditional):
        _checks.integer("samples", samples, at_least=2)
        _checks.integer("references", references, at_least=2)
        return _monte_carlo(conditional, tau, mapping, shift, rho, samples, references, np.random.default_rng(seed))
    heights, angles = resolution
    over = rule or sphere_rule(conditional.dimension, heights, angles)
    h = image(mapping, over.nodes)
    positive = positive_rule(conditional, heights, angles)
    align = float(np.sum(over.weights * _expected(positive, over.nodes, h, mapping, lambda s: s / tau)))
    mean = np.zeros(h.shape[0])
    if rho < 1:
        for part in blocks(h.shape[0], h.shape[0], BUDGET):
            mean[part] = (1 - rho) * (np.exp((h[part] @ h.T - 1) / tau) @ over.weights)
    if rho > 0:
        own = support_rule(conditional, heights, angles)
        mean += rho * _expected(own, over.nodes, h, mapping, lambda s: np.exp((s - 1) / tau))
    uniform = float(np.sum(over.weights * np.log(mean))) + 1 / tau
    return AsymptoticLoss(uniform - align + shift, align, uniform, 0.0, "quadrature")


def _expected(rule: PositiveRule, z: Array, h: Array, mapping: Map, of: Callable[[Array], Array]) -> Array:
    """(n,) expectation of a function of h(z).h(z+) under a rule of z+ for each anchor."""
    means = np.empty(z.shape[0])
    per_anchor = rule(z[:1])[1].size * max(z.shape[1], h.shape[1])
    for part in blocks(z.shape[0], per_anchor, BUDGET):
        nodes, weights = rule(z[part])
        mapped = image(mapping, nodes.reshape(-1, z.shape[1])).reshape(*nodes.shape[:2], -1)
        means[part] = (weights * of(np.einsum("nq,nkq->nk", h[part], mapped))).sum(axis=1)
    return means


def _monte_carlo(
    conditional: Conditional,
    tau: float,
    mapping: Map,
    shift: float,
    rho: float,
    n: int,
    m: int,
    rng: np.random.Generator,
) -> AsymptoticLoss:
    z, z_plus = conditional.sample_pairs(rng, n)
    h = image(mapping, z)
    align = (h * image(mapping, z_plus)).sum(axis=1) / tau
    common = image(mapping, latents.uniform(rng, m, conditional.dimension))
    own = min(m, 200)  # negatives of one anchor alone: their error averages out over anchors
    logs, spread, influence = np.empty(n), np.empty(n), np.zeros(m)
    for part in blocks(n, m + own * z.shape[1], BUDGET):
        anchors = h[part]
        shared = np.exp((anchors @ common.T - 1) / tau) if rho < 1 else np.zeros((anchors.shape[0], m))
        mean = (1 - rho) * shared.mean(axis=1)
        variance = (1 - rho) ** 2 * shared.var(axis=1, ddof=1) / m
        if rho > 0:
            drawn = conditional.sample_support(rng, np.repeat(z[part], own, axis=0))
            mapped = image(mapping, drawn).reshape(anchors.shape[0], own, -1)
            alone = np.exp((np.einsum("nq,nkq->nk", anchors, mapped) - 1) / tau)
            mean += rho * alone.mean(axis=1)
            variance += rho**2 * alone.var(axis=1, ddof=1) / own
        logs[part], spread[part] = np.log(mean), variance / mean**2
        influence += ((1 - rho) * shared / mean[:, None]).sum(axis=0)
    # The log of a mean is low by half its relative variance.
    uniform = logs + spread / 2 + 1 / tau
    # Anchors and common negatives are drawn independently: their variances add.
    error = math.sqrt(float((uniform - align).var(ddof=1)) / n + float((influence / n).var(ddof=1)) / m)
    parts = float(align.mean()), float(uniform.mean())
    return AsymptoticLoss(parts[1] - parts[0] + shift, *parts, error, "monte-carlo")


def orthogonal_loss(conditional: Conditional, temperature: float, negatives: float = 1.0) -> float:
    """Loss of every orthogonal map: its uniformity is log E exp(t/tau), and its alignment (1 - E|z+ - z|^2/2)/tau."""
    tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    change = float(conditional.mean_square_change().sum())
    return math.log(negatives) + float(latents.log_mean_exp(1 / tau, conditional.dimension)) - (1 - change / 2) / tau


def infimum(conditional: Conditional, temperature: float, negatives: float = 1.0) -> float | None:
    r"""Infimum over all maps into the sphere of the same dimension, where it is known; None elsewhere.

    Some coordinates fixed: log(N E exp(t/tau)) - 1/tau. No map has better alignment than 1/tau or a better uniformity
    than that of the uniform law; spreading the fixed coordinates over the sphere, positives kept together, comes as
    close to both as one likes. Full support with kappa tau = 1: the orthogonal maps.
    """
    tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    if isinstance(conditional, Slice):
        return math.log(negatives) + float(latents.log_mean_exp(1 / tau, conditional.dimension)) - 1 / tau
    if isinstance(conditional, VonMisesFisher) and abs(conditional.kappa * tau - 1) <= 1e-12:
        return orthogonal_loss(conditional, tau, negatives)
    return None


def check_rho(rho: float) -> float:
    """A share in [0, 1]."""
    if _checks.real("rho", rho, at_least=0.0, hint="the share of negatives from the own support") > 1:
        raise InvalidInputError(f"`rho` must be in [0, 1]; got {rho!r} (the share of negatives from the own support)")
    return float(rho)
