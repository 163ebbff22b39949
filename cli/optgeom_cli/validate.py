"""`optgeom validate`: a trained embedding beside the optimum."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom.choices import Match
from optgeom.losses.options import TEMPERATURE
from optgeom.progress import working
from optgeom_cli.output import UsageError, emit_json, exit_on_error
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options

if TYPE_CHECKING:
    from optgeom.embeddings.result import Validation


_PANEL = "Output"
_FILES = "Embeddings"
_ENDINGS = {"--report": (".html", ".htm"), "--out": (".json",)}


@with_shared_options
@exit_on_error()
def validate(
    class_options: ClassOptions,
    loss_options: LossOptions,
    embeddings: Annotated[
        list[str],
        typer.Option(
            "--embeddings",
            metavar="FILE",
            help="Rows: .npy, .npz, .pt, .safetensors, .csv, .parquet, vectors.tsv, a folder or a pattern of shards. "
            "Repeat it for several training seeds: they get one verdict.",
            rich_help_panel=_FILES,
        ),
    ],
    geometry: Annotated[
        Path | None,
        typer.Option(
            "--geometry", metavar="FILE", help="Optimum from `optgeom solve --out`, instead of classes and loss."
        ),
    ] = None,
    tolerance_deg: Annotated[
        float,
        typer.Option(
            "--tolerance-deg",
            "--tolerance",
            help="Degrees up to which an angle counts as optimal; 0: up to noise. --tolerance is read until 0.3.",
        ),
    ] = 2.0,
    slack: Annotated[
        float,
        typer.Option(
            "--slack",
            metavar="SHARE",
            help="Pairs that are off count only if their angle costs more than this share of the way from optimal to "
            "collapsed loss, per image of the two classes; 0: all count.",
        ),
    ] = 1e-3,
    unseen: Annotated[
        float,
        typer.Option(
            "--unseen",
            metavar="SHARE",
            help="Share of a class that may be of a kind that its images do not show; 0: the images show all kinds.",
        ),
    ] = 0.05,
    group_ids: Annotated[
        str | None,
        typer.Option(
            "--group-ids",
            metavar="FILE",
            help="Where images have several rows (views): the id of its image for each row.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(
            "--label-column",
            metavar="NAME",
            help="Column or array of the labels in the file, unless it is named label, y, ...",
            rich_help_panel=_FILES,
        ),
    ] = None,
    vector_column: Annotated[
        str | None,
        typer.Option(
            "--vector-column",
            metavar="NAME",
            help="Column or array of the vectors, where several could be.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(
            "--group-column",
            metavar="NAME",
            help="Column or array of the image ids, instead of --group-ids.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    ignore_extra: Annotated[
        bool,
        typer.Option(
            "--ignore-extra", help="Leave out classes that the geometry does not have, instead of refusing them."
        ),
    ] = False,
    match: Annotated[
        Match,
        typer.Option("--match", help="Match classes by name, or by the shape they form (the verdict then says so)."),
    ] = "names",
    workers: Annotated[
        int, typer.Option("--workers", help="Processes that read the shards of a folder or pattern side by side.")
    ] = 1,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Scheduler of a dask cluster whose workers read the shards."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random rows that some metrics are computed on.")] = 0,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_PANEL)
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write one self-contained page: .html.", rich_help_panel=_PANEL),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the JSON object: .json.", rich_help_panel=_PANEL)
    ] = None,
) -> None:
    """How close are the class means of trained embeddings to the optimum of their class proportions and loss?

    The optimum is that of the TRAINING classes: --geometry, or a source of classes with the loss. --labels are the
    labels of the embeddings; without another source their counts stand in, and the verdict says so.
    """
    targets = {option: path for option, path in (("--report", report), ("--out", out)) if path is not None}
    _check_targets(targets)
    given = _optimum(class_options, loss_options, geometry)

    from optgeom.embeddings.validate import validate as run
    from optgeom.formatting import to_json

    with working("comparing with the optimum"):
        validation = run(
            embeddings if len(embeddings) > 1 else embeddings[0],
            None if class_options.labels is None else str(class_options.labels),
            tolerance_deg=tolerance_deg,
            slack=slack,
            unseen_share=unseen,
            group_ids=group_ids,
            ignore_labels=class_options.ignore_label or (),
            ignore_extra=ignore_extra,
            match=match,
            label_column=label_column,
            vector_column=vector_column,
            group_column=group_column,
            workers=workers,
            dask=dask,
            seed=seed,
            **given,
        )
    if loss_options.used and "temperature" not in loss_options.given:
        note = f"--temperature was not given: the optimum is that of the default, {TEMPERATURE.default}"
        validation = dataclasses.replace(validation, notes=(note, *validation.notes))
    content = to_json(validation.as_dict())
    _write(validation, content, targets)
    if json_output:
        emit_json(content)
    else:
        from optgeom_cli.validate_report import report as show

        show(validation, targets)


def _optimum(classes: ClassOptions, losses: LossOptions, geometry: Path | None) -> dict[str, Any]:
    """Where the optimum comes from, as arguments of `validate`."""
    names = ("counts", "proportions", "counts_file", "profile")
    sources = [name for name in names if getattr(classes, name) is not None]
    if geometry is not None:
        others = ["--" + name.replace("_", "-") for name in sources]
        others += ["--sampler"] if classes.sampler is not None else []
        others += ["--drop-empty"] if classes.drop_empty else []
        others += ["options of the loss"] if losses.used else []
        if others:
            raise UsageError(
                f"--geometry has its classes and its loss; got {' and '.join(others)} beside it (leave them out)"
            )
        return {"geometry": geometry}
    # Without a loss validate takes the usual one, and its verdict says so.
    loss = losses.read() if losses.used else None
    if sources:
        training = dataclasses.replace(classes, labels=None, ignore_label=None)
        return {"classes": training.read(), "loss": loss}
    if classes.drop_empty:
        raise UsageError("--drop-empty goes with a source of classes; labels have no empty ones (leave it out)")
    from optgeom_cli.class_input import sampler_power

    return {"loss": loss, "sampler_power": sampler_power(classes.sampler)}


def _check_targets(targets: dict[str, Path]) -> None:
    """Refuse what cannot be written before the work, not after it."""
    for option, path in targets.items():
        if path.suffix.lower() not in _ENDINGS[option]:
            raise UsageError(f"{option} must end in {' or '.join(_ENDINGS[option])}; got {str(path)!r}")
    from optgeom.errors import MissingDependencyError
    from optgeom.inputs import files

    for option, path in targets.items():
        files.check_target(path)
        if option == "--report":
            from optgeom.plotting import require_matplotlib

            require_matplotlib()
            if importlib.util.find_spec("jinja2") is None:
                raise MissingDependencyError("a report needs jinja2: pip install 'optgeom[plot]'")


def _write(validation: Validation, content: dict[str, Any], targets: dict[str, Path]) -> None:
    if "--out" in targets:
        from optgeom.inputs import files

        files.write_text(targets["--out"], json.dumps(content, allow_nan=False) + "\n")
    if "--report" in targets:
        from optgeom.plotting.validation_report import write_report

        with working("writing the report"):
            write_report(validation, targets["--report"])
