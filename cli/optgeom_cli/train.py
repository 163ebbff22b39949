"""`optgeom train features` and `optgeom train encoder`: train, and see how far the class means are from the optimum."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom.choices import Architecture
from optgeom_cli import train_options as options
from optgeom_cli.output import UsageError, emit_json, exit_on_error
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options

if TYPE_CHECKING:
    from optgeom.training.data import LabelledData
    from optgeom.training.encoder import EncoderRun
    from optgeom.training.features import FeatureRun
    from optgeom.training.task import GramDistance

train = typer.Typer(
    help="Train free features or an encoder, and compare the class means with the optimum.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

FEATURES_BATCH = 256
ENCODER_BATCH = 64


@train.command("features")
@with_shared_options
@exit_on_error()
def features(
    ctx: typer.Context,
    class_options: ClassOptions,
    loss_options: LossOptions,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Minimise the exact population loss by L-BFGS, without random batches and their options."
        ),
    ] = False,
    dim: Annotated[int | None, typer.Option("--dim", help="Embedding dimension (number of classes).")] = None,
    anchors: Annotated[int, typer.Option("--anchors", help="infonce: anchors per random batch.")] = 2048,
    *,
    run_options: options.FeatureRunOptions,
) -> None:
    """Free class means (unconstrained features) on random batches of classes, or on the exact population loss.

    SupCon without --batch-size is trained, and solved, with batches of 256 images; with --exact it is the limit of
    large batches.
    """
    if exact:
        run_options.refuse_with_exact(ctx)
    classes, loss = class_options.read(), loss_options.read()
    if options.was_given(ctx, "anchors") and "negatives" not in {option.name for option in loss.options()}:
        raise UsageError("--anchors goes with --loss infonce; this loss contrasts whole batches (leave it out)")
    run_options.check_outputs()
    from optgeom.training import require_torch

    require_torch()
    run_options.use_threads()
    from optgeom.training.features import train_features

    train_means = functools.partial(train_features, classes, dim=dim, anchors=anchors, seed=run_options.seed)
    out = run_options.out
    if exact:
        if out is not None:
            out.mkdir(exist_ok=True)
        run = train_means(loss)
    else:
        settings, loss = run_options.settings(), loss.sampled(FEATURES_BATCH)
        with options.interruptible():
            run = train_means(loss, settings=settings, folder=out, resume=run_options.resume, progress=True)
    content = _features_content(run)
    files: dict[str, Path] = {}
    if out is not None:
        import numpy as np

        from optgeom.inputs.files import atomic_path

        files = {} if exact else {"log": out / "log.jsonl", "checkpoint": out / "checkpoint.pt"}
        files["means"] = out / "means.npz"
        with atomic_path(files["means"]) as temporary:
            np.savez(temporary, means=run.means, names=np.asarray(run.geometry.names))
    options.write_results(run_options, files=files, records=run.records, geometry=run.geometry, content=content)
    _show(content, run_options.json_output)


@train.command("encoder")
@with_shared_options
@exit_on_error()
def encoder(
    class_options: ClassOptions,
    loss_options: LossOptions,
    data: Annotated[
        str, typer.Option("--data", metavar="NAME|FILE", help="digits, cifar10, cifar100, mnist; .npz with X, y.")
    ] = "digits",
    data_root: Annotated[
        Path, typer.Option("--data-root", metavar="DIR", help="Where torchvision finds its files.")
    ] = Path("data"),
    holdout: Annotated[
        float, typer.Option("--holdout", help="Share of each class that is not trained on but measured.")
    ] = 0.0,
    arch: Annotated[Architecture, typer.Option("--arch", help="mlp, cnn or resnet18.")] = "mlp",
    dim: Annotated[int, typer.Option("--dim", help="Embedding dimension.")] = 32,
    rows: Annotated[
        int | None, typer.Option("--rows", help="infonce: rows of a batch, each with two samples of a class.")
    ] = None,
    shuffled: Annotated[
        bool, typer.Option("--shuffled", help="Go through the data in epochs, in place of independent draws.")
    ] = False,
    noise: Annotated[float | None, typer.Option("--noise", help="Standard deviation of the noise of a view.")] = None,
    shift: Annotated[int | None, typer.Option("--shift", help="Pixels that a view is moved by, at most.")] = None,
    *,
    run_options: options.EncoderRunOptions,
) -> None:
    """An encoder on real data; then the same comparison as `optgeom validate`.

    Classes given by --counts, --counts-file, --proportions or --profile choose a long-tailed subset of the data: its
    first classes, with these counts. --sampler says how its samples are drawn; the optimum follows. SupCon without
    --batch-size has batches of 64 images.
    """
    run_options.check_outputs()
    from optgeom.training import require_torch

    require_torch()
    from optgeom_cli.class_input import sampler_power

    power = sampler_power(class_options.sampler)
    loss = loss_options.read().sampled(ENCODER_BATCH)
    samples, held_out = _data(data, data_root, class_options, holdout=holdout, seed=run_options.seed)
    run_options.use_threads()
    settings, out = run_options.settings(), run_options.out
    from optgeom.training.batches import Augmentation
    from optgeom.training.encoder import train_encoder

    usual = Augmentation.usual(tuple(samples.inputs.shape[1:]), mirrored=samples.mirrored)
    shift, noise = usual.shift if shift is None else shift, usual.noise if noise is None else noise
    with options.interruptible():
        run = train_encoder(
            samples,
            loss,
            settings=settings,
            arch=arch,
            dim=dim,
            batch=rows,
            sampler_power=power,
            shuffled=shuffled,
            augmentation=dataclasses.replace(usual, shift=shift, noise=noise),
            held_out=held_out,
            folder=out,
            resume=run_options.resume,
            progress=True,
        )
    content = _encoder_content(run, samples)
    files: dict[str, Path] = {}
    if out is not None:
        import numpy as np
        import torch

        from optgeom.inputs.files import atomic_path

        files = {"log": out / "log.jsonl", "checkpoint": out / "checkpoint.pt", "encoder": out / "encoder.pt"}
        files["embeddings"] = out / "embeddings.npz"
        with atomic_path(files["encoder"]) as temporary:
            torch.save({name: value.cpu() for name, value in run.encoder.state_dict().items()}, temporary)
        with atomic_path(files["embeddings"]) as temporary:
            np.savez(temporary, embeddings=run.embeddings, labels=run.labels)
    options.write_results(run_options, files=files, records=run.loop.records, geometry=run.geometry, content=content)
    _show(content, run_options.json_output)


def _data(
    source: str, root: Path, classes: ClassOptions, *, holdout: float, seed: int
) -> tuple[LabelledData, LabelledData]:
    """The samples to train with, and those that are held out."""
    from optgeom.training.data import hold_out, load_data, make_long_tailed

    if classes.labels is not None:
        raise UsageError(
            "--labels is not a source of classes here: the data have their labels (leave it out, or give --counts)"
        )
    samples = load_data(source, root=root)
    # The sampler is for the draws, all other options are for the subset.
    wanted = dataclasses.replace(classes, sampler=None)
    if wanted.given:
        samples = make_long_tailed(samples, wanted.read(), seed)
    return hold_out(samples, holdout, seed)


def _features_content(run: FeatureRun) -> dict[str, Any]:
    geometry = run.geometry
    return {
        "kind": "features",
        "num_classes": geometry.num_classes,
        "names": list(geometry.names),
        "proportions": geometry.proportions.tolist(),
        "loss": geometry.loss.to_dict(),
        "geometry": run.distance.as_dict(),
        "losses": {
            "final": run.records[-1]["loss"],
            "population": run.risk,
            "optimal": geometry.risk,
            "excess": run.risk - geometry.risk,
        },
        "steps": run.records[-1]["step"],
        "gram": run.gram.tolist(),
    }


def _distance(distance: GramDistance, names: Sequence[str]) -> dict[str, Any]:
    """Figures of the distance, with the names of the classes that they leave out."""
    return {**distance.as_dict(), "without_direction": [names[c] for c in distance.without_direction]}


def _encoder_content(run: EncoderRun, data: LabelledData) -> dict[str, Any]:
    geometry = run.geometry
    return {
        "kind": "encoder",
        "data": data.source,
        "num_classes": geometry.num_classes,
        "names": list(geometry.names),
        "counts": data.counts.tolist(),
        "proportions": geometry.proportions.tolist(),
        "loss": geometry.loss.to_dict(),
        "geometry": _distance(run.distance, geometry.names),
        "from_simplex": run.simplex.as_dict(),
        "held_out": None if run.held_out is None else _distance(run.held_out, geometry.names),
        "losses": {"final": run.loop.loss, "optimal": geometry.risk},
        "steps": run.loop.records[-1]["step"],
        "validation": run.validation.as_dict(),
    }


def _show(content: dict[str, Any], json_output: bool) -> None:
    if json_output:
        emit_json(content)
        return
    from optgeom_cli.train_report import report

    report(content)
