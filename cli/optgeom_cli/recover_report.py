"""What `optgeom recover` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optgeom.sampling.recover import Recovery


def recovery_lines(recovery: Recovery) -> Iterable[tuple[str, str]]:
    """A heading and a sentence for each question."""
    law, optimum, bracket = recovery.conditional, recovery.optimum, recovery.in_dimension
    yield "Verdict", recovery.verdict
    yield "Positives", _positives(recovery)
    verdict = {True: "holds", False: "violated", None: "not refuted"}[recovery.diversity.holds]
    yield "Diversity", f"{verdict}: {recovery.diversity.reason}"
    count = recovery.fixed_dimensions
    yield (
        "Variation",
        f"{count} fixed direction{'' if count == 1 else 's'}, effective dimension {recovery.effective_dimension:.4g}",
    )
    points = optimum.held
    yield (
        "Points",
        f"{points.n}" + (f" on {points.slices} slices" if points.slices > 1 else "") + "; losses below are on these",
    )
    if recovery.coarse:
        yield (
            "Note",
            f"these points are coarse for this law: positives have mean cosine {points.mean_cosine:.3g} on them and "
            f"{recovery.mean_cosine:.3g} under the law, so read the losses as those of the points only (more points, "
            "or a smaller kappa, come nearer)",
        )
    yield "True latents", f"InfoNCE {recovery.loss_identity:.6g}, as of every orthogonal map"
    by = f", by {optimum.gap:.6g}" if optimum.orthogonal_maps == "beaten" else ""
    certified = "certified" if optimum.certified else "NOT certified"
    proved = f"within {max(optimum.loss - optimum.lower_bound, 0.0):.1e} of the optimum, {certified}"
    yield (
        "Any dimension",
        f"{optimum.loss:.6g} in {optimum.rank} dimensions ({proved}); orthogonal maps {optimum.orthogonal_maps}{by}",
    )
    inside = f"best found {bracket.best:.5g} (a bracket: none goes below {bracket.lower:.6g})"
    if bracket.gain > 0:
        inside += f"; the true latents are beaten by {bracket.gain:.4g} (search from {bracket.start})"
    fits = bracket.dimension >= law.dimension
    yield f"Dimension {bracket.dimension}", _not_beaten(recovery) if fits and bracket.gain == 0 else inside
    if recovery.asymptotic_infimum is not None:
        apart = recovery.asymptotic_identity - recovery.asymptotic_infimum
        yield "Continuum", f"in dimension {law.dimension}, true latents {apart:.6g} above the infimum over all maps"
    yield "Corrected", _corrected(recovery)


def _positives(recovery: Recovery) -> str:
    law = recovery.conditional
    text = f"latents on the sphere of R^{law.dimension}, kappa {getattr(law, 'kappa', float('nan')):.6g}"
    if recovery.kappa_interval is not None:
        low, high = recovery.kappa_interval
        text += f" (fitted; 95 % interval {low:.4g} to {high:.4g})"
    angle = getattr(law, "angle_deg", None)
    if angle is not None:
        text += f", at most {angle:g} degrees away"
    if law.fixed:
        text += f", {getattr(law, 'convention', '')} convention"
    return f"{text}, temperature {recovery.temperature:g}"


def _not_beaten(recovery: Recovery) -> str:
    if recovery.optimum.identity_is_optimal:
        return "no map beats the true latents"
    return f"no map found beats the true latents (none goes below {recovery.in_dimension.lower:.6g})"


def _corrected(recovery: Recovery) -> str:
    if not recovery.correctable:
        why = "every negative is in the anchor's support" if recovery.rho > 0 else "rho is 0"
        return f"the same as InfoNCE: {why}"
    corrected = recovery.corrected
    excess = f"true latents {corrected.gap:.6g} above the optimum"
    return f"rho {corrected.rho:g}: {excess}; orthogonal maps {corrected.orthogonal_maps}"
