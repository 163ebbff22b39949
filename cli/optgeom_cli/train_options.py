"""Options that `train features` and `train encoder` share."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom_cli.output import UsageError, check_picture, notice

if TYPE_CHECKING:
    from optgeom.geometry import Geometry
    from optgeom.losses.base import Loss
    from optgeom.training.settings import Settings

_RUN = "Run"
_OUTPUT = "Output"
MOST_THREADS = 1024
NO_MEMORY = ("allocate memory", "out of memory", "enough memory")  # as torch says it on the CPU and on CUDA
OF_RANDOM_BATCHES = (
    "steps", "anchors", "learning_rate", "optimizer", "average_from", "accumulate", "device", "log_every", "checkpoint_every", "resume",
)  # fmt: skip


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
    float | None,
    typer.Option("--learning-rate", help="At its peak; half a cosine brings it to 0.", rich_help_panel=_RUN),
]
OptimizerOption = Annotated[
    Optimizer, typer.Option("--optimizer", help="adam or sgd (momentum 0.9).", rich_help_panel=_RUN)
]
AverageOption = Annotated[
    float,
    typer.Option(
        "--average-from", help="Share of the steps before iterates are averaged; 1: no average.", rich_help_panel=_RUN
    ),
]
AccumulateOption = Annotated[int, typer.Option("--accumulate", help="Batches a step.", rich_help_panel=_RUN)]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.", rich_help_panel=_RUN)]
AmpOption = Annotated[Precision, typer.Option("--amp", help="Forward pass in half precision.", rich_help_panel=_RUN)]
SeedOption = Annotated[int, typer.Option("--seed", help="Of everything that is random.", rich_help_panel=_RUN)]
ThreadsOption = Annotated[int, typer.Option("--threads", help="Threads of torch on the CPU.", rich_help_panel=_RUN)]
LogEveryOption = Annotated[
    int, typer.Option("--log-every", help="Steps between two lines of the log.", rich_help_panel=_RUN)
]
CheckpointOption = Annotated[
    int, typer.Option("--checkpoint-every", help="Steps between two checkpoints.", rich_help_panel=_RUN)
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the run in --out; give the same options.", rich_help_panel=_RUN)
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Folder for log, checkpoint and results.", rich_help_panel=_OUTPUT),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_OUTPUT)]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Draw the run: .png, .svg or .pdf.", rich_help_panel=_OUTPUT),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to train, and what to write; both commands have their own defaults for some."""

    learning_rate: RateOption = None
    optimizer: OptimizerOption = Optimizer.ADAM
    average_from: AverageOption = 0.5
    accumulate: AccumulateOption = 1
    device: DeviceOption = "auto"
    seed: SeedOption = 0
    threads: ThreadsOption = 1
    log_every: LogEveryOption = 100
    checkpoint_every: CheckpointOption = 500
    resume: ResumeOption = False
    out: OutOption = None
    json_output: JsonOption = False
    plot: PlotOption = None

    def check_outputs(self) -> None:
        """Refuse what cannot be written before the run, not after it."""
        if self.resume and self.out is None:
            raise UsageError("--resume goes with --out DIR, the folder of the run; got none")
        from optgeom.errors import InvalidInputError

        out, plot = self.out, self.plot
        if out is not None and out.exists() and not out.is_dir():
            raise InvalidInputError(f"cannot write into {out}: it is a file (give a folder)")
        if out is not None and not out.absolute().parent.is_dir():
            raise InvalidInputError(f"cannot make {out}: the folder {out.parent} does not exist (make it first)")
        if plot is not None:
            check_picture(plot)

    def refuse_with_exact(self, ctx: typer.Context) -> None:
        """Refuse options of random batches beside --exact, which would do nothing."""
        given = [f"--{name.replace('_', '-')}" for name in OF_RANDOM_BATCHES if was_given(ctx, name)]
        if given:
            others = "it goes to the optimum by L-BFGS in seconds"
            raise UsageError(
                f"{', '.join(given)} and --exact exclude each other: {others}, without random batches (leave one out)"
            )

    def use_threads(self) -> None:
        """Set the number of threads of torch."""
        import torch

        from optgeom import _checks

        number = _checks.integer("threads", self.threads, at_least=1)
        if number > MOST_THREADS:
            raise UsageError(
                f"--threads must be at most {MOST_THREADS}; got {number} (one a core is the most that helps)"
            )
        torch.set_num_threads(number)

    def settings(self, steps: int, learning_rate: float, **more: Any) -> Settings:
        """Settings of the run, with the learning rate of the command where none was given.

        Sets the number of threads.
        """
        from optgeom.training.settings import Settings

        self.use_threads()
        return Settings(
            steps=steps,
            learning_rate=learning_rate if self.learning_rate is None else self.learning_rate,
            optimizer=self.optimizer.value,
            average_from=self.average_from,
            accumulate=self.accumulate,
            device=self.device,
            seed=self.seed,
            log_every=self.log_every,
            checkpoint_every=self.checkpoint_every,
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class FeatureRunOptions(RunOptions):
    """Steps on free class means are short and many."""

    device: DeviceOption = "cpu"
    log_every: LogEveryOption = 500
    checkpoint_every: CheckpointOption = 5000


@dataclass(frozen=True, kw_only=True)
class EncoderRunOptions(RunOptions):
    """An encoder may run in half precision."""

    amp: AmpOption = Precision.OFF


def was_given(ctx: typer.Context, name: str) -> bool:
    """Whether the user gave this option, be it with the value that it has by default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """A run that was asked to stop ends as shells expect, with 128 and the number of the signal, and one line that says
    how to go on.

    What does not fit into memory is an error of one line as well; torch has no class of its own for it on the CPU.
    """
    from optgeom.errors import SolverError
    from optgeom.training.stops import TrainingInterruptedError

    try:
        yield
    except TrainingInterruptedError as error:
        notice(str(error))
        raise typer.Exit(128 + error.signal) from error
    except RuntimeError as error:
        if not any(words in str(error) for words in NO_MEMORY):
            raise
        raise SolverError(
            "not enough memory for such batches (take fewer samples or anchors of a batch, or a smaller --dim)"
        ) from error


def sampled_loss(loss: Loss, batch: int) -> Loss:
    """A loss that random batches have.

    SupCon without a batch size (the limit) takes `batch`, and its optimum is that of this size.
    """
    from optgeom.losses import SupCon

    if isinstance(loss, SupCon) and loss.batch_size == math.inf:
        return dataclasses.replace(loss, batch_size=batch)
    return loss


def write_common(
    files: dict[str, Path], run: RunOptions, records: list[dict[str, Any]], geometry: Geometry, content: dict[str, Any]
) -> None:
    """Geometry, results and picture; the names of the files are added to `files`."""
    from optgeom.inputs.files import write_text

    out, plot = run.out, run.plot
    if plot is not None:
        from optgeom.plotting import save_figure
        from optgeom.plotting.training import plot_training

        save_figure(plot_training(records, geometry), plot)
        files["plot"] = plot
    if out is not None:
        files |= {"geometry": out / "geometry.npz", "result": out / "result.json"}
        geometry.save(files["geometry"])
        content["files"] = {name: str(path) for name, path in files.items()}
        from optgeom.formatting import to_json

        write_text(files["result"], json.dumps(to_json(content), allow_nan=False) + "\n")
    content["files"] = {name: str(path) for name, path in files.items()}
