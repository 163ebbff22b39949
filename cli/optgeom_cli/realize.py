"""`optgeom realize`: weighted InfoNCE as distance geometry."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom.choices import AdditiveConstant, Scheme, Similarity
from optgeom.progress import working
from optgeom_cli.output import (
    ExitCode,
    UsageError,
    check_picture,
    emit_json,
    exit_on_error,
    notice,
    page,
    print_summary,
    summary_table,
)

if TYPE_CHECKING:
    from optgeom.realization.api import Realization
    from optgeom.realization.weights import Weights
    from optgeom_cli.determined import Determined


_CLASS_SCHEMES = ("supcon", "soft-supcon")
_PANEL = "Output"
_DETERMINED = "What the loss determines"


@exit_on_error()
def realize(
    weights: Annotated[
        Path | None,
        typer.Option("--weights", metavar="FILE", help="(n, n) weights: .npy, or a scipy sparse matrix in .npz."),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="Labels for --scheme: classes, or numbers (.npy, or .csv with one row per sample).",
        ),
    ] = None,
    label_column: Annotated[
        list[str] | None,
        typer.Option(
            "--label-column", metavar="NAME", help="y-aware, x-clr: take this column of a table; may be repeated."
        ),
    ] = None,
    scheme: Annotated[Scheme | None, typer.Option("--scheme", help="How labels become weights.")] = None,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="soft-supcon: weight of pairs of different classes.")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option("--bandwidth", help="y-aware: sigma of exp(-|yi - yj|^2 / (2 sigma^2)) (1).")
    ] = None,
    paper_form: Annotated[
        bool,
        typer.Option(
            "--paper-form",
            help="y-aware: exp(-|yi - yj|^2 / sigma^2), without the 2, as the paper writes it (sigma = 1).",
        ),
    ] = False,
    label_temperature: Annotated[
        float | None, typer.Option("--label-temperature", help="x-clr: tau' of exp(cos(yi, yj) / tau').")
    ] = None,
    similarity: Annotated[Similarity, typer.Option("--similarity", help="Latent similarity.")] = "cosine",
    temperature: Annotated[float, typer.Option("--temperature", help="tau of cos/tau or -|zi - zj|^2/tau.")] = 0.1,
    dim: Annotated[int | None, typer.Option("--dim", help="Embedding dimension; any by default.")] = None,
    tolerance: Annotated[
        float, typer.Option("--tolerance", help="Gap that counts as certified, relative to 1 + |loss|.")
    ] = 1e-9,
    search: Annotated[
        bool,
        typer.Option(
            "--search", help="Look for the largest temperature at which the target is realizable (ten times the work)."
        ),
    ] = False,
    constant: Annotated[
        AdditiveConstant,
        typer.Option(
            "--constant", help="euclidean: cailliez compares with a constant added to distances; --out writes it."
        ),
    ] = "lingoes",
    slack: Annotated[
        float | None,
        typer.Option(
            "--slack",
            metavar="SHARE",
            help="Range of each angle within this share of the way from optimal to collapsed loss, such as 1e-3.",
            rich_help_panel=_DETERMINED,
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Slack of the mean over all samples, not per sample of a pair.",
            rich_help_panel=_DETERMINED,
        ),
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", help="Processes that compute ranges.", rich_help_panel=_DETERMINED)
    ] = 1,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_PANEL)
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the embedding: .npy or .csv.", rich_help_panel=_PANEL),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Weights, target, geometry: .png, .svg, .pdf.", rich_help_panel=_PANEL
        ),
    ] = None,
) -> None:
    """Does an embedding attain the entropic bound of these weights, and in which dimension?

    If none does, what is the optimum?
    """
    if out is not None:
        if out.suffix.lower() not in (".npy", ".csv"):
            raise UsageError(f"--out must end in .npy, .csv; got {str(out)!r}")
        from optgeom.inputs import files

        files.check_target(out)
    if plot is not None:
        check_picture(plot)
    if whole and slack is None:
        raise UsageError("--whole goes with --slack; got no --slack (give one, such as --slack 1e-3)")
    parameters = {
        "epsilon": epsilon,
        "bandwidth": bandwidth,
        "temperature": label_temperature,
        "paper": paper_form or None,
    }
    sample_weights, notes = _read_weights(weights, labels, scheme, label_column or [], parameters)

    from optgeom.errors import NotCertifiedError
    from optgeom.realization.api import realize as run

    failure: NotCertifiedError | None = None
    try:
        with working(f"realizing {sample_weights.n} samples"):
            realization = run(
                sample_weights,
                similarity,
                temperature=temperature,
                dim=dim,
                tolerance=tolerance,
                search=search,
                constant=constant,
            )
    except NotCertifiedError as error:
        realization, failure, out, plot = error.result, error, None, None
    if out is not None:
        _write(realization, out, dim)
    if plot is not None:
        from optgeom.plotting import save_figure
        from optgeom.plotting.realization import plot_realization

        save_figure(plot_realization(realization), plot)
    determined = None
    if slack is not None and failure is None:
        from optgeom_cli.determined import determine_ranges

        determined = determine_ranges(realization, "sample", slack=slack, whole=whole, workers=workers)
    if json_output:
        content = realization.as_dict() | ({} if determined is None else determined.as_dict())
        emit_json({**content, "notes": [*content["notes"], *notes]})
    else:
        _report(_lines(realization, notes, [path for path in (out, plot) if path is not None]), determined)
    if failure is not None:
        notice(f"{failure}; no file is written")
        raise typer.Exit(ExitCode.NOT_CERTIFIED)


def _read_weights(
    weights: Path | None, labels: Path | None, scheme: Scheme | None, columns: list[str], parameters: dict[str, Any]
) -> tuple[Weights, list[str]]:
    """Weights from the options, and notes about defaults that the user may not have meant."""
    if (weights is None) == (labels is None):
        raise UsageError("give --weights FILE, or --labels FILE with --scheme (exactly one of the two)")
    from optgeom.realization.weights import Weights

    if weights is not None:
        given = [f"--{name}" for name, value in parameters.items() if value is not None]
        if scheme is not None or given or columns:
            raise UsageError("--scheme and its parameters belong to --labels; --weights are taken as they are")
        return Weights.from_matrix(_matrix(weights)), []
    assert labels is not None
    if scheme is None:
        raise UsageError("--labels need --scheme supcon, soft-supcon, y-aware or x-clr")
    notes: list[str] = []
    if scheme in _CLASS_SCHEMES:
        if columns:
            raise UsageError(
                "--label-column belongs to --scheme y-aware and x-clr "
                "(classes are the column named label, y, target or class)"
            )
        from optgeom.inputs.tables import read_labels

        values: Any = read_labels(labels)
    else:
        from optgeom.inputs.tables import read_label_table

        table = read_label_table(labels, columns)
        values = table.values
        notes += [] if table.note is None else [table.note]
    if scheme != "x-clr" and parameters["temperature"] is not None:
        raise UsageError("--label-temperature belongs to --scheme x-clr (--temperature is that of the loss)")
    if scheme != "y-aware" and parameters["paper"] is not None:
        raise UsageError(
            "--paper-form belongs to --scheme y-aware (it leaves out the 2 of exp(-|yi - yj|^2 / (2 sigma^2)))"
        )
    if scheme == "x-clr" and parameters["temperature"] is None:
        raise UsageError("--scheme x-clr needs --label-temperature (tau' of exp(cos(yi, yj) / tau'))")
    sample_weights = Weights.by_name(scheme, values, **parameters)
    if scheme == "y-aware" and parameters["bandwidth"] is None:
        import numpy as np

        spread = float(np.sqrt(np.var(np.asarray(values, dtype=np.float64), axis=0).sum()))
        notes.append(
            f"bandwidth 1, the default; the labels have standard deviation {spread:.3g} "
            "(--bandwidth sets which labels count as near)"
        )
    return sample_weights, notes


def _matrix(path: Path) -> Any:
    from optgeom.errors import InvalidInputError
    from optgeom.inputs import files

    try:
        with files.open_regular(path) as file:
            if path.suffix.lower() != ".npz":
                return files.read_array(file)
            from scipy.sparse import load_npz

            return load_npz(file)
    except (OSError, TypeError, AttributeError, *files.DAMAGE) as error:
        why = files.reason(error)
        raise InvalidInputError(
            f"`weights` must be an .npy matrix or a scipy sparse .npz; cannot read {path} ({why})"
        ) from error


def _write(realization: Realization, path: Path, dim: int | None) -> None:
    import io

    import numpy as np

    from optgeom.inputs import files

    table = (realization if realization.cailliez is None else realization.cailliez).embedding(dim)
    buffer = io.BytesIO()
    if path.suffix.lower() == ".npy":
        np.save(buffer, table, allow_pickle=False)
    else:
        np.savetxt(buffer, table, delimiter=",", fmt="%.17g")
    files.write_bytes(path, buffer.getvalue())


def _report(lines: Iterable[tuple[str, str]], determined: Determined | None) -> None:
    """Print the answer on stdout."""
    if determined is None or determined.ranges is None:
        print_summary(lines)
        return
    from optgeom_cli.determined import pairs_table

    with page() as out:
        out.print(summary_table((*lines, *determined.lines())))
        out.print()
        out.print(pairs_table(determined.ranges.geometry, determined))


def _lines(realization: Realization, notes: list[str], files: list[Path]) -> Iterable[tuple[str, str]]:
    scheme = realization.weights.scheme
    details = ", ".join(
        "the paper's form" if key == "paper" else f"{key} {value}"
        for key, value in scheme.items()
        if key != "name" and value is not False
    )
    named = str(scheme.get("name", "weights")) + (f" ({details})" if details else "")
    yield "Weights", f"{named}, {realization.n} samples, {realization.weights.sizes.size} distinct"
    yield (
        "Similarity",
        f"{realization.similarity}, temperature {realization.temperature:g}"
        + ("" if realization.dim is None else f", dimension {realization.dim}"),
    )
    yield "Verdict", f"{realization.regime}: {realization.verdict.reason}"
    yield "Also" if realization.verdict.unique else "To change it", realization.verdict.remedy
    yield "Entropic bound", f"{realization.entropic_bound:.12g}"
    if realization.bracket is not None:
        bound = f"no embedding goes below {realization.bracket[0]:.12g}"
        yield "Best found", f"{realization.optimal_loss:.12g} (a bracket: {bound}; not certified)"
    else:
        yield "Optimal loss", f"{realization.optimal_loss:.12g}, {realization.gap_to_bound:.3g} above the bound"
        distance = f"within {max(realization.optimal_loss - realization.lower_bound, 0.0):.1e} of the optimum"
        yield "Certificate", ("certified: " if realization.certified else "NOT certified: ") + distance
    if realization.rank is not None:
        yield (
            "Dimension",
            f"{realization.rank}"
            + ("; the only geometry, up to rotation and reflection" if realization.unique else ""),
        )
    if realization.cailliez is not None:
        other = realization.cailliez
        where = f"{other.dimension} dimension" + ("" if other.dimension == 1 else "s")
        missed = f"loss {other.loss:.12g}, {other.gap_to_bound:.3g} above the bound"
        yield "Cailliez", f"{other.constant:.6g} added to distances: {where}, {missed}"
    for note in (*realization.weights.notes, *notes):
        yield "Note", note
    for path in files:
        yield "Written", str(path)
