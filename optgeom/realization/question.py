"""What was asked of weights, the search for its answer, and everything that follows from weights and one array."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from optgeom._numerics import Array
from optgeom.certificates import Certificate, certify, decide
from optgeom.realization import bracket, entropy, euclidean, optimum, spherical
from optgeom.realization.verdict import Verdict, is_unique, judge
from optgeom.realization.weights import Weights

SYMMETRIC = "best symmetric similarity"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What was asked, and what follows from the weights alone."""

    weights: Weights
    temperature: float
    tolerance: float
    verdict: Verdict

    @functools.cached_property
    def bound(self) -> float:
        """The entropic bound."""
        return entropy.entropic_bound(self.weights)

    @property
    def is_limit(self) -> bool:
        """Whether the bound is the infimum of a hard scheme in Euclidean space, which no embedding attains."""
        verdict = self.verdict
        enough = verdict.dim is None or verdict.min_dimension is None or verdict.dim >= verdict.min_dimension
        return verdict.similarity == "euclidean" and verdict.regime == "degenerate" and not verdict.attained and enough

    @functools.cached_property
    def symmetric(self) -> tuple[entropy.SymmetricFit, Verdict] | None:
        """Best symmetric similarity of asymmetric weights in Euclidean space, and the verdict on it."""
        if self.verdict.similarity != "euclidean" or self.weights.symmetric or self.weights.hard:
            return None
        fit = entropy.fit_symmetric(self.weights)
        return fit, judge(fit.weights, "euclidean", self.temperature, dim=self.verdict.dim)


def search_geometry(question: Question) -> tuple[str, int, dict[str, Array]]:
    """Solver, iterations, and the array that no closed form gives."""
    weights, temperature, verdict = question.weights, question.temperature, question.verdict
    if verdict.attained:
        return "closed form", 0, {}
    if verdict.similarity == "euclidean":
        if question.is_limit:
            return "limit", 0, {}
        if question.symmetric is not None and question.symmetric[1].attained:
            return SYMMETRIC, 0, {}
        near = None if question.symmetric is None else question.symmetric[0].weights
        dim = verdict.dim or max(1, weights.n - 1)
        points, steps = bracket.best_in_space(weights, temperature, dim, near=near)
        return "L-BFGS, dimension limited", steps, {"points": points}
    best = optimum.optimal_cosines(weights, temperature, question.tolerance)
    if verdict.dim is not None and verdict.dim < best.certificate.rank:
        points, steps = bracket.best_on_sphere(weights, temperature, verdict.dim, best.cosines)
        return "low-rank, dimension limited", steps, {"points": points, "relaxed_cosines": best.cosines}
    return best.solver, best.iterations, {"group_cosines": best.cosines}


def figures(
    question: Question,
    *,
    group_cosines: Array | None = None,
    points: Array | None = None,
    relaxed_cosines: Array | None = None,
) -> dict[str, Any]:
    """Everything that a realization says, but for who solved it, from the weights and at most one array."""
    weights, verdict, bound = question.weights, question.verdict, question.bound
    shared = {
        "weights": weights,
        "similarity": verdict.similarity,
        "temperature": question.temperature,
        "dim": verdict.dim,
        "verdict": verdict,
        "entropic_bound": bound,
    }
    if points is not None:
        return {**shared, **_bracketed(question, points, relaxed_cosines)}
    if group_cosines is not None:
        gap = entropy.gap_to_bound(weights, group_cosines / question.temperature)
        certificate = _certified(question, group_cosines)
        geometry = {"group_cosines": group_cosines, "rank": certificate.rank}
        return {**shared, **geometry, "optimal_loss": bound + gap, "gap_to_bound": gap, "certificate": certificate}
    attained, gap, lower = (weights, verdict), 0.0, bound
    if verdict.attained and verdict.shift is not None:
        gap = entropy.gap_to_bound(weights, _target(weights, verdict, verdict.shift))
    elif question.symmetric is not None:
        fit, inner = question.symmetric
        attained, gap, lower = (fit.weights, inner), fit.gap, bound + fit.gap if fit.exact else bound
    ranks = attained[1].ranks if attained[1].attained else None
    rank = None if ranks is None else min(ranks)
    certificate = decide(
        risk=bound + gap,
        gap=gap if lower == bound else max(0.0, bound + gap - lower),
        lower_bound=lower,
        primal_shift=0.0,
        rank=rank or 0,
        tolerance=question.tolerance,
        unique=attained[1].unique,
    )
    geometry = {"rank": rank, "_attained": attained}
    return {**shared, **geometry, "optimal_loss": bound + gap, "gap_to_bound": gap, "certificate": certificate}


def _target(weights: Weights, verdict: Verdict, shift: float) -> Array:
    """(G, G) similarities of the geometry that attains the bound."""
    tau = verdict.temperature
    if verdict.similarity == "cosine":
        return spherical.target_cosines(weights, tau, shift) / tau
    return -euclidean.squared_distances(weights, tau, shift) / tau


def _certified(question: Question, cosines: Array) -> Certificate:
    """Certificate of a Gram matrix in any dimension."""
    program = optimum.program_of(question.weights, question.temperature)
    certificate = certify(program, cosines, tolerance=question.tolerance).certificate
    unique = certificate.certified and is_unique(question.weights, program, cosines, certificate.gap)
    return replace(certificate, unique=unique, lower_bound=max(question.bound, certificate.lower_bound))


def _bracketed(question: Question, points: Array, relaxed: Array | None) -> dict[str, Any]:
    """The loss of points in too few dimensions, and the best lower bound."""
    loss = bracket.loss_of(question.weights, question.temperature, question.verdict.similarity, points)
    lower = question.bound
    if relaxed is not None:
        least = bracket.least_on_sphere(question.weights, question.temperature, points.shape[1])
        lower = min(loss, max(_certified(question, relaxed).lower_bound, least))
    elif question.symmetric is not None and question.symmetric[0].exact:
        lower += question.symmetric[0].gap
    certificate = decide(
        risk=loss,
        gap=loss - lower,
        lower_bound=lower,
        primal_shift=0.0,
        rank=points.shape[1],
        tolerance=question.tolerance,
        refusal=f"{points.shape[1]} dimensions are fewer than the optimum needs: the answer is "
        + ("a bracket" if loss > lower else "the lowest in them, not the optimum"),
    )
    return {
        "points": points,
        "relaxed_cosines": relaxed,
        "rank": points.shape[1],
        "optimal_loss": loss,
        "gap_to_bound": loss - question.bound,
        "bracket": (lower, loss),
        "certificate": certificate,
    }
