"""`optgeom recover`: can the contrastive loss recover the latents under these positives?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom.choices import Convention
from optgeom.progress import working
from optgeom_cli.output import ExitCode, UsageError, check_picture, emit_json, exit_on_error, notice, print_summary

if TYPE_CHECKING:
    from optgeom.sampling.recover import Recovery


@exit_on_error()
def recover(
    latent_dim: Annotated[
        int | None,
        typer.Option("--latent-dim", "--dimension", help="Latents are uniform unit vectors of this R^d; 3."),
    ] = None,
    kappa: Annotated[
        float | None, typer.Option("--kappa", help="Concentration of the positives; 1/temperature by default.")
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", help="tau of the loss.")] = 0.1,
    fixed: Annotated[
        int | None, typer.Option("--fixed", help="Latent coordinates that positives never change; 0.")
    ] = None,
    max_angle: Annotated[
        float | None, typer.Option("--max-angle", help="Positives are at most so many degrees from their anchor; 180.")
    ] = None,
    convention: Annotated[
        Convention,
        typer.Option("--convention", help="kappa in units of the latents (theory) or of their free part (reported)."),
    ] = "theory",
    rho: Annotated[
        float, typer.Option("--rho", help="Corrected loss: share of negatives from the anchor's own support.")
    ] = 1.0,
    pairs: Annotated[
        Path | None,
        typer.Option("--pairs", metavar="FILE", help="Observed pairs instead: .npz with unit rows z and z_plus."),
    ] = None,
    dim: Annotated[
        int | None, typer.Option("--dim", help="Dimension of the maps searched; that of the latents by default.")
    ] = None,
    slices: Annotated[
        int | None, typer.Option("--slices", help="Slices that stand for the continuum; 40, with --max-angle 20.")
    ] = None,
    per_slice: Annotated[int, typer.Option("--per-slice", help="Points on each slice.")] = 10,
    resolution: Annotated[
        float | None, typer.Option("--resolution", help="--pairs: rms change below which a direction is fixed; 0.02.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Gap that counts as certified, relative to 1 + |loss|.")
    ] = 1e-9,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Where positives go, losses, angles at the optimum: .png, .svg, .pdf."
        ),
    ] = None,
) -> None:
    """Do these positives let the contrastive loss recover the latents?

    If not, what is optimal instead, and what does a correction do?
    """
    options = {"--latent-dim": latent_dim, "--kappa": kappa, "--fixed": fixed, "--max-angle": max_angle}
    given = [option for option, value in options.items() if value is not None]
    if pairs is not None and given:
        raise UsageError(f"{', '.join(given)} and --pairs exclude each other: these are estimated from the pairs")
    if pairs is None and resolution is not None:
        raise UsageError("--resolution belongs to --pairs; a law given by options fixes what --fixed says, exactly")
    if max_angle is not None and fixed:
        raise UsageError("--max-angle and --fixed exclude each other: give one way in which positives stay near")
    if plot is not None:
        check_picture(plot)

    from optgeom.errors import InvalidInputError, NotCertifiedError
    from optgeom.sampling.caps import Cap
    from optgeom.sampling.diversity import RESOLUTION
    from optgeom.sampling.pairs import Pairs
    from optgeom.sampling.recover import recover as run

    observed = None if pairs is None else Pairs.read(pairs)
    size = 3 if latent_dim is None else latent_dim
    cap = None
    if max_angle is not None:
        if not 0 < temperature < math.inf:
            raise InvalidInputError(f"`temperature` must be > 0; got {temperature} (usual values are 0.05 to 1)")
        cap = Cap(size, max_angle, 1 / temperature if kappa is None else kappa)
    failure: NotCertifiedError | None = None
    try:
        with working("solving for the optimal maps"):
            recovery = run(
                latent_dim=size,
                kappa=kappa,
                temperature=temperature,
                fixed=fixed or 0,
                convention=convention,
                rho=rho,
                conditional=cap,
                pairs=observed,
                dim=dim,
                slices=slices,
                per_slice=per_slice,
                resolution=RESOLUTION if resolution is None else resolution,
                tolerance=tolerance,
            )
    except NotCertifiedError as error:
        recovery, failure = error.result, error
    written = plot if failure is None else None
    if written is not None:
        from optgeom.plotting import save_figure
        from optgeom.plotting.recovery import plot_recovery

        save_figure(plot_recovery(recovery), written)
    if json_output:
        emit_json(recovery.as_dict())
    else:
        print_summary([*_lines(recovery), *([] if written is None else [("Written", str(written))])])
    if failure is not None:
        notice(str(failure) + (" (no file was written)" if plot else ""))
        raise typer.Exit(ExitCode.NOT_CERTIFIED)


def _lines(recovery: Recovery) -> Iterable[tuple[str, str]]:
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
    points = optimum.point_set
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
