r"""The verdict: does an embedding attain the entropic bound, is it the only one, and what would change the answer?

    realizable     an embedding attains the bound; `unique` says whether it is the only one in its dimension, up to O(q)
                   (cosine) or rigid motions (Euclidean)
    degenerate     several geometries attain it in the dimension that was asked for; or a hard scheme, which only
                   reaches it in a limit
    inconsistent   no embedding attains it (in this dimension)

Without a dimension the question is asked in the least dimension that attains the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np

from optgeom import _checks, choices
from optgeom._numerics import Array
from optgeom.errors import InvalidInputError
from optgeom.programs.weighted import WeightedProgram
from optgeom.realization import euclidean, spherical
from optgeom.realization.weights import Weights

# Cosines have 16 digits: outside, similarities cos/tau do not keep the 9 that a certificate needs.
TEMPERATURES = (1e-6, 1e12)
# Relative misfit of squared distances to the centre: rounding of the labels, far below any real scatter.
ON_SPHERE = 1e-9
NO_FORCE = 1e-6  # share of the forces that is left, below which they may be zero
_ASKED = "the weights ask for cosines up to an added constant, which the loss does not see"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether the entropic bound is attained, why, and what would change it.

    Attributes
    ----------
    regime : {"realizable", "degenerate", "inconsistent"}
    attained : bool
        Whether an embedding (in `dim` dimensions, where asked for) attains the bound. False for the limit of a hard
        scheme.
    unique : bool
        Whether it is the only one in its dimension, up to O(q) or rigid motions.
    reason : str
        One sentence.
    remedy : str
        What would change the verdict: a temperature, a dimension, other weights.
    similarity : {"cosine", "euclidean"}
    temperature : float
    dim : int or None
        Dimension that was asked for.
    shift_interval : (float, float) or None
        The constants c whose target is a geometry, in any dimension: [lo, hi] for the cosine, (-inf, c*] for the
        Euclidean similarity.
    ranks : (int, int) or None
        Dimension of the target at both ends (n - 1 for the open end of the Euclidean one).
    min_dimension : int or None
        Least dimension that attains the bound (for a hard scheme, comes arbitrarily close); None where none does.
    shift : float or None
        The c of the geometry to take: of least dimension. None where the bound is not attained.
    margin : float or None
        Cosine: max_c lambda_min of the target; negative where it is no Gram matrix.
    best_shift : float or None
        Cosine: where it is largest; a start for the optimum when the bound is out of reach.
    """

    regime: str
    attained: bool
    unique: bool
    reason: str
    remedy: str
    similarity: str
    temperature: float
    dim: int | None = None
    shift_interval: tuple[float, float] | None = None
    ranks: tuple[int, int] | None = None
    min_dimension: int | None = None
    shift: float | None = None
    margin: float | None = None
    best_shift: float | None = None


def judge(
    weights: Weights, similarity: str, temperature: float, *, dim: int | None = None, search: bool = False
) -> Verdict:
    """Decide whether an embedding attains the entropic bound.

    Parameters
    ----------
    weights : Weights
    similarity : {"cosine", "euclidean"}
        s = cos/temperature on the sphere, or -|z_i - z_j|^2/temperature.
    temperature : float
        > 0.
    dim : int, optional
        Embedding dimension q >= 1; the least one that attains the bound by default.
    search : bool
        Where the cosine target is no Gram matrix and no formula applies, search for the largest temperature at which it
        is (some ten times the work).

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.
    """
    _checks.choice("similarity", similarity, choices.Similarity)
    tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    if similarity == "cosine" and not TEMPERATURES[0] <= tau <= TEMPERATURES[1]:
        raise InvalidInputError(
            f"`temperature` must be from {TEMPERATURES[0]:g} to {TEMPERATURES[1]:g} with cosine similarity; "
            f"got {tau:g} (usual values are 0.05 to 1)"
        )
    q = (
        None
        if dim is None
        else _checks.integer("dim", dim, at_least=1, hint="the embedding dimension; None for the least possible")
    )
    if not weights.symmetric:
        return Verdict(
            regime="inconsistent",
            attained=False,
            unique=False,
            reason="similarities are symmetric, and no symmetric matrix has these normalised weights "
            "(log w_ij - log w_ji is not a_j - a_i)",
            remedy="symmetrise the weights, (W + W.T) / 2",
            similarity=similarity,
            temperature=tau,
            dim=q,
        )
    if weights.hard:
        return _hard(weights, similarity, tau, q)
    return _cosine(weights, tau, q, search) if similarity == "cosine" else _euclidean(weights, tau, q)


def embed(weights: Weights, verdict: Verdict, dim: int | None = None) -> Array:
    """(n, q) embedding that attains the bound; q is `dim`, else `verdict.dim`, else the least dimension.

    Raises
    ------
    InvalidInputError
        No embedding attains it, or `dim` is below the dimension that attains it.
    """
    if verdict.shift is None:
        why = f"got {verdict.regime}: {verdict.reason}"
        raise InvalidInputError(
            f"`verdict` must be of an attained bound to have an embedding; {why} ({verdict.remedy})"
        )
    columns = verdict.dim if dim is None else dim
    if verdict.similarity == "cosine":
        return spherical.embedding(weights, verdict.temperature, verdict.shift, columns)
    return euclidean.embedding(weights, verdict.temperature, verdict.shift, columns)


def is_unique(weights: Weights, program: WeightedProgram, cosines: Array, gap: float) -> bool:
    r"""Whether a certified optimum that does not attain the bound is proved to be the only one.

    Let D be the difference of two optima. The loss is constant between them and a sum of convex terms, so each is
    affine there: a logsumexp is affine only along constants, and D_ik = d_i for all k != i of every anchor i (a sample
    with a positive). D is symmetric and its diagonal is zero, so D = d (11' - I) plus a part between samples that are
    no anchors, whose pairs occur in no normaliser. And Z D = 0 for the dual matrix Z of either optimum, by
    complementarity. Z has the gradient g off the diagonal.

    All samples anchors. If d is not 0, then Z (11' - I) = 0, so Z = 0 and g = 0: P + P' = w~ + w~'. For weights that
    are symmetric but for factors of the rows, P and w~ are both Bradley-Terry models with these sums, P_ij = M_ij / (1
    + exp(u_i - u_j)), and such a model is unique: P = w~, the bound would be attained. So the optimum is unique. Other
    weights may have g = 0, and then d is free unless the constraint stops it.

    Some sample u is no anchor. Its column of weights is zero (`Weights` sees to that), so g_iu = P_iu/(2 tau) > 0 for
    every anchor i, while g = 0 between two such samples. A positive semidefinite Z then has Z_uu > 0. If d is not 0,
    the column of an anchor k in Z D = 0 says Z e_k = Z 1, so row u of Z holds the same y > 0 at each of N >= 2 anchors
    and N y + Z_uu = y: Z_uu < 0, impossible. With d = 0, row u of Z D = 0 is Z_uu D_uv = 0: D = 0. The optimum is
    unique, whatever the weights.

    Parameters
    ----------
    weights : Weights
    program : WeightedProgram
        Of these weights.
    cosines : (G, G)
    gap : float
        Of its certificate: by Pinsker's inequality probabilities are off by about its root, and so are the forces.
    """
    if weights.symmetric or not weights.with_positive.all():
        return True
    # All forces together, P + P' + w~ + w~' over (2 tau n), sum to 2 / tau.
    forces = float(np.sum(program.sizes[:, None] * program.count * np.abs(program.gradient(cosines))))
    return forces * program.temperature / 2 > NO_FORCE + 10 * math.sqrt(max(gap, 0.0))


def soft_supcon_temperature(num_classes: int, epsilon: float) -> float:
    """Largest temperature at which Soft SupCon attains its bound, where a class has two samples."""
    return math.inf if num_classes == 1 or epsilon >= 1 else num_classes / ((num_classes - 1) * math.log(1 / epsilon))


def sphere_of(labels: Array) -> float | None:
    """Radius of the sphere on which the rows of `labels` lie (in their affine span), or None.

    |y|^2 = 2 <a, y> + r^2 - |a|^2 is linear in the centre a: the centred |y|^2 must be in the span of the centred
    labels.
    """
    centred = labels - labels.mean(axis=0)
    scale = float(np.abs(centred).max())
    if scale == 0:
        return None
    centred = centred / scale
    squares = (centred**2).sum(axis=1)
    # The solution of least norm keeps the centre in the affine span of the labels.
    centre = np.linalg.lstsq(2 * centred, squares - squares.mean(), rcond=1e-10)[0]
    distances = ((centred - centre) ** 2).sum(axis=1)
    if np.ptp(distances) > ON_SPHERE * float(distances.mean()):
        return None
    return scale * float(np.sqrt(distances.mean()))


def _hard(weights: Weights, similarity: str, tau: float, q: int | None) -> Verdict:
    soften = "give these pairs a small weight (soft-supcon), or take the optimum at this temperature"
    if similarity == "cosine":
        return Verdict(
            regime="degenerate",
            attained=False,
            unique=False,
            reason="hard scheme, the entropic bound is not attained: pairs of weight 0 want a similarity of -infinity, "
            "a cosine over the temperature is bounded, and only the limit of temperature 0 reaches the bound",
            remedy=soften,
            similarity=similarity,
            temperature=tau,
            dim=q,
        )
    needed, exact = euclidean.limit_dimension(weights, tau)
    enough = _dimensions(needed) if exact else f"at most {_dimensions(needed)}"
    if q is not None and q < needed and exact:
        reason = f"even the limit of infinite distances between pairs of weight 0 needs dimension {needed}, not {q}"
        return Verdict(
            regime="inconsistent",
            attained=False,
            unique=False,
            reason=reason,
            remedy=f"embed in dimension {needed}",
            similarity=similarity,
            temperature=tau,
            dim=q,
            min_dimension=needed,
        )
    reason = (
        "hard scheme, the entropic bound is not attained: pairs of weight 0 want an infinite distance, and only that "
        f"limit reaches the bound, in {enough}"
    )
    if q is not None and q < needed:
        reason += f"; whether it does in {_dimensions(q)} is not known"
    return Verdict(
        regime="degenerate",
        attained=False,
        unique=False,
        reason=reason,
        remedy=soften,
        similarity=similarity,
        temperature=tau,
        dim=q,
        min_dimension=needed,
    )


def _cosine(weights: Weights, tau: float, q: int | None, search: bool) -> Verdict:
    shifts = spherical.feasible_shifts(weights, tau)
    verdict = Verdict(
        regime="inconsistent",
        attained=False,
        unique=False,
        reason=_off_sphere(weights)
        + "no added constant makes the cosines that the weights ask for those of unit vectors "
        f"(least eigenvalue {shifts.margin:.3g} at best)",
        remedy="",
        similarity="cosine",
        temperature=tau,
        dim=q,
        shift_interval=shifts.interval,
        ranks=shifts.ranks,
        min_dimension=shifts.min_dimension,
        margin=shifts.margin,
        best_shift=shifts.best_shift,
    )
    if shifts.interval is None or shifts.ranks is None or shifts.min_dimension is None:
        return replace(verdict, remedy=_cooler(weights, tau, search))
    least = shifts.min_dimension
    low, high = shifts.interval
    ends = shifts.shifts_up_to(least if q is None else q)
    if not ends:
        where = f"in {_dimensions(least)} or more, not in {q}"
        reason = f"{_off_sphere(weights)}the target cosines are those of unit vectors {where}"
        remedy = f"embed in dimension {least}{_matched(weights, least, tau)}"
        return replace(verdict, reason=reason, remedy=remedy)
    whole = q is not None and q >= weights.n and shifts.kind == "interval"
    if whole or len(ends) > 1:
        constants = f"{'every constant in' if whole else 'each end of'} [{_plain(low)}, {_plain(high)}]"
        where = _dimensions(least if q is None else q)
        reason = f"several geometries attain the bound: {constants} gives target cosines of unit vectors in {where}"
        remedy = "the weights do not choose between them"
        if len(set(shifts.ranks)) > 1:
            remedy = f"embed in dimension {least}, where only one does"
        elif (matched := _matched(weights, least, tau)) != "":
            remedy += matched
        # Asked without a dimension, "does an embedding attain the bound" has the answer yes; `unique` says the rest.
        regime = "realizable" if q is None else "degenerate"
        return replace(verdict, regime=regime, attained=True, reason=reason, remedy=remedy, shift=ends[0])
    if shifts.ranks[0] == shifts.ranks[1]:
        reason = f"{_ASKED}; unit vectors have them for one constant only, {_plain(low)}, and need {_dimensions(least)}"
        remedy = "in fewer dimensions, or at a higher temperature, no embedding attains the bound"
    else:
        only = "" if q is None or q == least else f" up to {q}"
        reason = (
            f"{_ASKED}; unit vectors in {_dimensions(least)}{only} have them for one constant only, {_plain(ends[0])}"
        )
        remedy = f"in {_dimensions(max(shifts.ranks))} there is a second such geometry, in {weights.n} a whole family"
    return replace(
        verdict, regime="realizable", attained=True, unique=True, reason=reason, remedy=remedy, shift=ends[0]
    )


def _euclidean(weights: Weights, tau: float, q: int | None) -> Verdict:
    spectrum = euclidean.target_spectrum(weights, tau)
    least, shift = spectrum.min_dimension, spectrum.largest_shift
    verdict = Verdict(
        regime="inconsistent",
        attained=False,
        unique=False,
        reason=f"the target distances are Euclidean in {_dimensions(least)} or more, not in {q}, at every temperature",
        remedy="",
        similarity="euclidean",
        temperature=tau,
        dim=q,
        shift_interval=(-math.inf, shift),
        ranks=(weights.n - 1, least),
        min_dimension=least,
    )
    if q is not None and q < least:
        labels = f"labels in {_dimensions(q)}"
        return replace(
            verdict, remedy=f"embed in dimension {least}, or choose weights exp(-|y_i - y_j|^2/...) of {labels}"
        )
    if q is not None and q >= weights.n - 1:
        where = f"Euclidean distances in {_dimensions(weights.n - 1)}"
        reason = f"several geometries attain the bound: every constant up to {_plain(shift)} gives {where}"
        remedy = f"embed in dimension {least}, where only one does"
        return replace(verdict, regime="degenerate", attained=True, reason=reason, remedy=remedy, shift=shift)
    points = "coinciding points" if least == 0 else f"points in {_dimensions(least)}"
    asked = "the weights ask for squared distances up to an added constant, which the loss does not see"
    reason = f"{asked}; {points} have them for one constant only, {_plain(shift)} (Lingoes)"
    below = "" if least <= 1 else f"in fewer than {_dimensions(least)} no embedding attains the bound; "
    remedy = f"{below}in {_dimensions(weights.n - 1)} or more there are several such geometries"
    return replace(verdict, regime="realizable", attained=True, unique=True, reason=reason, remedy=remedy, shift=shift)


def _dimensions(count: int) -> str:
    return f"{count} dimension" + ("" if count == 1 else "s")


def _plain(shift: float) -> str:
    """A constant in words: rounding around zero is zero."""
    return "0" if abs(shift) < 1e-9 else f"{shift:.6g}"


def _down(border: float) -> str:
    """A border in six digits, rounded to the side that attains the bound: typed in, it must work."""
    return f"{float(Context(prec=6, rounding=ROUND_FLOOR).create_decimal(border)):.6g}"


def _up(border: float) -> str:
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(border)):.6g}"


def _exact(value: float) -> str:
    """All digits but the last, which are rounding: in few dimensions one temperature works, and none next to it."""
    return f"{value:.15g}"


def _off_sphere(weights: Weights) -> str:
    """The usual reason why y-Aware weights and cosines do not go together."""
    if weights.scheme["name"] != "y-aware" or sphere_of(np.asarray(weights.labels, dtype=np.float64)) is not None:
        return ""
    return "the labels do not lie on a sphere, and "


def _cooler(weights: Weights, tau: float, search: bool) -> str:
    """The temperature that makes the cosine target a Gram matrix, by formula where there is one."""
    if weights.scheme["name"] == "soft-supcon" and int(weights.sizes.max()) > 1:
        classes = int(weights.sizes.size)
        top = soft_supcon_temperature(classes, weights.scheme["epsilon"])
        epsilon = math.exp(-classes / ((classes - 1) * tau))
        return f"lower the temperature to {_down(top)}, C / ((C-1) log(1/epsilon)), or raise epsilon to {_up(epsilon)}"
    matched = _matched_temperature(weights)
    if matched is not None:
        where = "which matches the weights: the labels, as unit vectors, then are the embedding"
        return f"lower the temperature to {_exact(matched)}, {where}"
    if search:
        return f"lower the temperature to {_down(spherical.largest_temperature(weights))}, or take Euclidean similarity"
    return "lower the temperature (how far: search=True, --search), or take Euclidean similarity"


def _matched(weights: Weights, least: int, tau: float) -> str:
    matched = _matched_temperature(weights)
    if matched is None or weights.labels is None or weights.labels.shape[1] >= least or matched <= tau:
        return ""
    where = f"where the labels in {_dimensions(weights.labels.shape[1])}, as unit vectors, are the embedding"
    return f", or raise the temperature to {_exact(matched)}, {where}"


def _matched_temperature(weights: Weights) -> float | None:
    """The temperature at which cosines of the labels are the target.

    That is tau' of X-CLR, and sigma^2/r^2 of y-Aware labels on a sphere.
    On a sphere of radius r, |y_i - y_j|^2 = 2 r^2 (1 - cos_ij), so log w_ij = (r^2/sigma^2)(cos_ij - 1); twice that in
    the paper's form.
    """
    name = weights.scheme["name"]
    if name == "x-clr":
        return float(weights.scheme["temperature"])
    if name != "y-aware":
        return None
    radius = sphere_of(np.asarray(weights.labels, dtype=np.float64))
    if radius is None:
        return None
    return float(weights.scheme["bandwidth"] ** 2 / radius**2 / (2.0 if weights.scheme["paper"] else 1.0))
