"""Options that `train features` and `train encoder` share."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom_cli.output import UsageError, notice

if TYPE_CHECKING:
    from optgeom.geometry import Geometry
    from optgeom.losses.base import Loss
    from optgeom.training.settings import Settings

_RUN = "Run"
_OUTPUT = "Output"
_ENDINGS = (".png", ".svg", ".pdf")


class Optimizer(enum.StrEnum):
    """Optimizers of the command line."""

    ADAM = "adam"
    SGD = "sgd"


class Precision(enum.StrEnum):
    """Precisions of the forward pass."""

    OFF = "off"
    BF16 = "bf16"
    FP16 = "fp16"


RateOption = Annotated[
    float | None, typer.Option("--learning-rate", help="At its peak; half a cosine brings it to 0.", rich_help_panel=_RUN)
]
OptimizerOption = Annotated[Optimizer, typer.Option("--optimizer", help="adam or sgd (momentum 0.9).", rich_help_panel=_RUN)]
AverageOption = Annotated[
    float, typer.Option("--average-from", help="Share of the steps before iterates are averaged; 1: no average.", rich_help_panel=_RUN)
]
AccumulateOption = Annotated[int, typer.Option("--accumulate", help="Batches a step.", rich_help_panel=_RUN)]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.", rich_help_panel=_RUN)]
AmpOption = Annotated[Precision, typer.Option("--amp", help="Forward pass in half precision.", rich_help_panel=_RUN)]
SeedOption = Annotated[int, typer.Option("--seed", help="Of everything that is random.", rich_help_panel=_RUN)]
ThreadsOption = Annotated[int, typer.Option("--threads", help="Threads of torch on the CPU.", rich_help_panel=_RUN)]
LogEveryOption = Annotated[int, typer.Option("--log-every", help="Steps between two lines of the log.", rich_help_panel=_RUN)]
CheckpointOption = Annotated[int, typer.Option("--checkpoint-every", help="Steps between two checkpoints.", rich_help_panel=_RUN)]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out; give the same options.", rich_help_panel=_RUN)]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder for log, checkpoint and results.", rich_help_panel=_OUTPUT)
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_OUTPUT)]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the run: .png, .svg or .pdf.", rich_help_panel=_OUTPUT)
]


def check_outputs(out: Path | None, plot: Path | None, resume: bool) -> None:
    """Refuse what cannot be written before the run, not after it."""
    if resume and out is None:
        raise UsageError("--resume goes with --out DIR, the folder of the run; got none")
    from optgeom.errors import InvalidInputError

    if out is not None and out.exists() and not out.is_dir():
        raise InvalidInputError(f"cannot write into {out}: it is a file (give a folder)")
    if out is not None and not out.absolute().parent.is_dir():
        raise InvalidInputError(f"cannot make {out}: the folder {out.parent} does not exist (make it first)")
    if plot is not None:
        if plot.suffix.lower() not in _ENDINGS:
            raise UsageError(f"--plot must end in {', '.join(_ENDINGS)}; got {str(plot)!r}")
        if not plot.absolute().parent.is_dir():
            raise InvalidInputError(f"cannot write {plot}: the folder {plot.parent} does not exist (make it first)")
        from optgeom.plotting import require_matplotlib

        require_matplotlib()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """A run that was asked to stop ends as shells expect, with 128 and the number of the signal, and one line that says how to go on."""
    from optgeom.training.stops import TrainingInterruptedError

    try:
        yield
    except TrainingInterruptedError as error:
        notice(str(error))
        raise typer.Exit(128 + error.signal) from error


def make_settings(threads: int, **given: Any) -> Settings:
    """Settings of the run, and the number of threads."""
    import torch

    from optgeom import _checks
    from optgeom.training.settings import Settings

    torch.set_num_threads(int(_checks.integer("threads", threads, at_least=1)))
    return Settings(**{name: value for name, value in given.items() if value is not None})


def sampled_loss(loss: Loss, batch: int) -> Loss:
    """A loss that random batches have: SupCon without a batch size (the limit) takes `batch`, and its optimum is that of this size."""
    from optgeom.losses import SupCon

    if isinstance(loss, SupCon) and loss.batch_size == math.inf:
        return dataclasses.replace(loss, batch_size=batch)
    return loss


def write_common(
    files: dict[str, Path], out: Path | None, plot: Path | None, records: list[dict[str, Any]], geometry: Geometry, content: dict[str, Any]
) -> None:
    """Geometry, results and picture; the names of the files are added to `files`."""
    from optgeom import _files

    if plot is not None:
        from optgeom.plotting import save_figure
        from optgeom.plotting.training import plot_training

        save_figure(plot_training(records, geometry), plot)
        files["plot"] = plot
    if out is not None:
        files |= {"geometry": out / "geometry.npz", "result": out / "result.json"}
        geometry.save(files["geometry"])
        content["files"] = {name: str(path) for name, path in files.items()}
        from optgeom_cli.output import plain

        _files.write_text(files["result"], json.dumps(plain(content), allow_nan=False) + "\n")
    content["files"] = {name: str(path) for name, path in files.items()}
