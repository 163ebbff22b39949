"""`optgeom recover`: can the contrastive loss recover the latents under these positives?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optgeom.choices import Convention
from optgeom.progress import working
from optgeom_cli.output import ExitCode, UsageError, check_picture, emit_json, exit_on_error, notice
from optgeom_cli.recover_report import recovery_lines
from optgeom_cli.summary import print_summary


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

    from optgeom.errors import NotCertifiedError
    from optgeom.sampling.caps import Cap
    from optgeom.sampling.diversity import RESOLUTION
    from optgeom.sampling.pairs import Pairs
    from optgeom.sampling.recover import recover as run

    observed = None if pairs is None else Pairs.read(pairs)
    size = 3 if latent_dim is None else latent_dim
    cap = None
    if max_angle is not None:
        from optgeom import _checks

        tau = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
        cap = Cap(size, max_angle, 1 / tau if kappa is None else kappa)
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
        recovery, failure = error.geometry, error
    written = plot if failure is None else None
    if written is not None:
        from optgeom.plotting import save_figure
        from optgeom.plotting.recovery import plot_recovery

        save_figure(plot_recovery(recovery), written)
    if json_output:
        emit_json(recovery.as_dict())
    else:
        print_summary([*recovery_lines(recovery), *([] if written is None else [("Written", str(written))])])
    if failure is not None:
        notice(str(failure) + (" (no file was written)" if plot else ""))
        raise typer.Exit(ExitCode.NOT_CERTIFIED)
