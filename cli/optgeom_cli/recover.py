"""`optgeom recover`: can the contrastive loss recover the latents under these positives?"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom_cli.output import UsageError, emit_json, exit_on_error
from optgeom_cli.progress import working
from optgeom_cli.summary import print_summary

if TYPE_CHECKING:
    from optgeom.sampling.recover import Recovery


class Convention(enum.StrEnum):
    """What the concentration on a slice is in units of."""

    THEORY = "theory"
    REPORTED = "reported"


@exit_on_error()
def recover(
    dimension: Annotated[int | None, typer.Option("--dimension", help="Latents are uniform unit vectors of this R^d; 3.")] = None,
    kappa: Annotated[float | None, typer.Option("--kappa", help="Concentration of the positives; 1/temperature by default.")] = None,
    temperature: Annotated[float, typer.Option("--temperature", help="tau of the loss.")] = 0.3,
    fixed: Annotated[int | None, typer.Option("--fixed", help="Latent coordinates that positives never change; 0.")] = None,
    convention: Annotated[
        Convention, typer.Option("--convention", help="kappa in units of the latents (theory) or of their free part (reported).")
    ] = Convention.THEORY,
    rho: Annotated[float, typer.Option("--rho", help="Corrected loss: share of negatives from the anchor's own support.")] = 1.0,
    pairs: Annotated[
        Path | None, typer.Option("--pairs", metavar="FILE", help="Observed pairs instead: .npz with unit rows z and z_plus.")
    ] = None,
    dim: Annotated[int | None, typer.Option("--dim", help="Dimension of the maps searched; that of the latents by default.")] = None,
    slices: Annotated[int, typer.Option("--slices", help="Slices that stand for the continuum.")] = 40,
    per_slice: Annotated[int, typer.Option("--per-slice", help="Points on each slice.")] = 10,
    resolution: Annotated[float, typer.Option("--resolution", help="--pairs: rms change below which a direction is fixed.")] = 0.02,
    tolerance: Annotated[float, typer.Option("--tolerance", help="Gap that counts as certified, relative to 1 + |loss|.")] = 1e-9,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Do these positives let the contrastive loss recover the latents; if not, what is optimal instead, and what does a correction do?"""
    options = {"--dimension": dimension, "--kappa": kappa, "--fixed": fixed}
    given = [option for option, value in options.items() if value is not None]
    if pairs is not None and given:
        raise UsageError(f"{', '.join(given)} and --pairs exclude each other: these are found from the pairs")

    from optgeom.sampling.pairs import Pairs
    from optgeom.sampling.recover import recover as run

    observed = None if pairs is None else Pairs.read(pairs)
    with working("solving for the optimal maps"):
        found = run(
            3 if dimension is None else dimension, kappa, temperature, fixed or 0, convention.value, rho, pairs=observed, dim=dim,
            slices=slices, per_slice=per_slice, resolution=resolution, tolerance=tolerance,
        )  # fmt: skip
    if json_output:
        emit_json(found.as_dict())
    else:
        print_summary(_lines(found))


def _lines(found: Recovery) -> Iterable[tuple[str, str]]:
    law, optimum, bracket, corrected = found.conditional, found.optimum, found.in_dimension, found.corrected
    kappa = f", kappa {getattr(law, 'kappa', float('nan')):.6g}" + ("" if found.diversity.pairs is None else " (fitted)")
    convention = f", {getattr(law, 'convention', '')} convention" if law.fixed else ""
    yield "Positives", f"latents on the sphere of R^{law.dimension}{kappa}{convention}, temperature {found.temperature:g}"
    verdict = {True: "holds", False: "violated", None: "not refuted"}[found.diversity.holds]
    yield "Diversity", f"{verdict}: {found.diversity.reason}"
    count = found.fixed_dimensions
    yield "Variation", f"{count} fixed direction{'' if count == 1 else 's'}, effective dimension {found.effective_dimension:.4g}"
    held = optimum.held
    yield "Points", f"{held.n}" + (f" on {held.slices} slices" if held.slices > 1 else "") + "; losses below are on these"
    yield "True latents", f"InfoNCE {found.loss_identity:.6g}, as of every orthogonal map"
    by = f", by {optimum.gap:.6g}" if optimum.orthogonal_maps == "beaten" else ""
    proved = f"certified within {max(optimum.loss - optimum.lower_bound, 0.0):.1e}"
    yield (
        "Any dimension",
        f"optimum {optimum.loss:.6g} in {optimum.rank} dimensions ({proved}); orthogonal maps {optimum.orthogonal_maps}{by}",
    )
    inside = f"best found {bracket.best:.6g} (a bracket: none goes below {bracket.lower:.6g})"
    if bracket.gain > 0:
        inside += f"; the true latents are beaten by {bracket.gain:.6g}, from {bracket.start}"
    fits = bracket.dimension >= law.dimension
    yield f"Dimension {bracket.dimension}", _not_beaten(found) if fits and bracket.gain == 0 else inside
    if found.asymptotic_infimum is not None:
        apart = found.asymptotic_identity - found.asymptotic_infimum
        yield "Continuum", f"in dimension {law.dimension}, true latents {apart:.6g} above the infimum over all maps"
    yield (
        "Corrected",
        f"rho {corrected.rho:g}: true latents {corrected.gap:.6g} above the optimum; orthogonal maps {corrected.orthogonal_maps}",
    )
    if found.recoverable:
        yield "Verdict", "the loss recovers the latents, up to an orthogonal map"
    elif found.diversity.holds and hasattr(law, "kappa"):
        product = law.kappa * found.temperature
        yield "Verdict", f"the optimum has other angles than the latents: kappa times temperature is {product:.4g}, and should be 1"
    else:
        yield "Verdict", "minimising the loss does not recover the latents"


def _not_beaten(found: Recovery) -> str:
    if found.optimum.identity_is_optimal:
        return "no map beats the true latents"
    return f"no map found beats the true latents (none goes below {found.in_dimension.lower:.6g})"
