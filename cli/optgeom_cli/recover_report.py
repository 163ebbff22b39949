"""What `optgeom recover` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optgeom.sampling.recover import Recovery


def recovery_lines(found: Recovery) -> Iterable[tuple[str, str]]:
    """A heading and a sentence for each question."""
    law, optimum, bracket = found.conditional, found.optimum, found.in_dimension
    yield "Verdict", found.verdict
    yield "Positives", _positives(found)
    verdict = {True: "holds", False: "violated", None: "not refuted"}[found.diversity.holds]
    yield "Diversity", f"{verdict}: {found.diversity.reason}"
    count = found.fixed_dimensions
    yield (
        "Variation",
        f"{count} fixed direction{'' if count == 1 else 's'}, effective dimension {found.effective_dimension:.4g}",
    )
    held = optimum.held
    yield (
        "Points",
        f"{held.n}" + (f" on {held.slices} slices" if held.slices > 1 else "") + "; losses below are on these",
    )
    if found.coarse:
        yield (
            "Note",
            f"these points are coarse for this law: positives have mean cosine {held.mean_cosine:.3g} on them and {found.mean_cosine:.3g} "
            "under the law, so read the losses as those of the points only (more points, or a smaller kappa, come nearer)",
        )
    yield "True latents", f"InfoNCE {found.loss_identity:.6g}, as of every orthogonal map"
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
    yield f"Dimension {bracket.dimension}", _not_beaten(found) if fits and bracket.gain == 0 else inside
    if found.asymptotic_infimum is not None:
        apart = found.asymptotic_identity - found.asymptotic_infimum
        yield "Continuum", f"in dimension {law.dimension}, true latents {apart:.6g} above the infimum over all maps"
    yield "Corrected", _corrected(found)


def _positives(found: Recovery) -> str:
    law = found.conditional
    said = f"latents on the sphere of R^{law.dimension}, kappa {getattr(law, 'kappa', float('nan')):.6g}"
    if found.kappa_interval is not None:
        low, high = found.kappa_interval
        said += f" (fitted; 95 % interval {low:.4g} to {high:.4g})"
    angle = getattr(law, "angle_deg", None)
    if angle is not None:
        said += f", at most {angle:g} degrees away"
    if law.fixed:
        said += f", {getattr(law, 'convention', '')} convention"
    return f"{said}, temperature {found.temperature:g}"


def _not_beaten(found: Recovery) -> str:
    if found.optimum.identity_is_optimal:
        return "no map beats the true latents"
    return f"no map found beats the true latents (none goes below {found.in_dimension.lower:.6g})"


def _corrected(found: Recovery) -> str:
    if not found.correctable:
        why = "every negative is in the anchor's support" if found.rho > 0 else "rho is 0"
        return f"the same as InfoNCE: {why}"
    corrected = found.corrected
    return f"rho {corrected.rho:g}: true latents {corrected.gap:.6g} above the optimum; orthogonal maps {corrected.orthogonal_maps}"
