"""Options that `train features` and `train encoder` share."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom.choices import Optimizer, Precision
from optgeom_cli.output import UsageError, check_picture, notice

if TYPE_CHECKING:
    from optgeom.geometry import Geometry
    from optgeom.training.settings import Settings

_run = functools.partial(typer.Option, rich_help_panel="Run")
_output = functools.partial(typer.Option, rich_help_panel="Output")
MOST_THREADS = 1024
NO_MEMORY = ("allocate memory", "out of memory", "enough memory")  # as torch says it on the CPU and on CUDA
OF_EXACT_RUNS = {"seed", "threads", "out", "json_output", "plot"}  # all others are of random batches


StepsOption = Annotated[int, _run("--steps", help="Updates.")]
RateOption = Annotated[float, _run("--learning-rate", help="At its peak; half a cosine brings it to 0.")]
DeviceOption = Annotated[str, _run("--device", help="auto, cpu, cuda or cuda:1.")]
LogEveryOption = Annotated[int, _run("--log-every", help="Steps between two lines of the log.")]
CheckpointOption = Annotated[int, _run("--checkpoint-every", help="Steps between two checkpoints.")]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to train, and what to write; options with the name of a field of `Settings` are that field."""

    steps: StepsOption = 1500
    learning_rate: RateOption = 1e-3
    optimizer: Annotated[Optimizer, _run("--optimizer", help="adam or sgd (momentum 0.9).")] = "adam"
    average_from: Annotated[
        float, _run("--average-from", help="Share of the steps before iterates are averaged; 1: no average.")
    ] = 0.5
    accumulate: Annotated[int, _run("--accumulate", help="Batches per step.")] = 1
    device: DeviceOption = "auto"
    seed: Annotated[int, _run("--seed", help="Of everything that is random.")] = 0
    threads: Annotated[int, _run("--threads", help="Threads of torch on the CPU.")] = 1
    log_every: LogEveryOption = 100
    checkpoint_every: CheckpointOption = 500
    resume: Annotated[bool, _run("--resume", help="Go on with the run in --out; give the same options.")] = False
    out: Annotated[Path | None, _output("--out", metavar="DIR", help="Folder for log, checkpoint and results.")] = None
    json_output: Annotated[bool, _output("--json", help="One JSON object on stdout.")] = False
    plot: Annotated[Path | None, _output("--plot", metavar="FILE", help="Draw the run: .png, .svg or .pdf.")] = None

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

    def use_threads(self) -> None:
        """Set the number of threads of torch."""
        import torch

        from optgeom.errors import InvalidInputError

        number = self.threads
        if number < 1:
            raise InvalidInputError(f"`threads` must be a whole number >= 1; got {number}")
        if number > MOST_THREADS:
            raise UsageError(
                f"--threads must be at most {MOST_THREADS}; got {number} (more than one per core does not help)"
            )
        torch.set_num_threads(number)

    def settings(self) -> Settings:
        """Settings of the run."""
        from optgeom.training.settings import Settings

        names = {field.name for field in dataclasses.fields(Settings)}
        return Settings(**{name: value for name, value in vars(self).items() if name in names})


@dataclass(frozen=True, kw_only=True)
class FeatureRunOptions(RunOptions):
    """Steps on free class means are short and many."""

    steps: StepsOption = 15000
    learning_rate: RateOption = 0.03
    device: DeviceOption = "cpu"
    log_every: LogEveryOption = 500
    checkpoint_every: CheckpointOption = 5000

    def refuse_with_exact(self, ctx: typer.Context) -> None:
        """Refuse options of random batches beside --exact, which would do nothing."""
        names = [field.name for field in dataclasses.fields(self) if field.name not in OF_EXACT_RUNS]
        given = [f"--{name.replace('_', '-')}" for name in (*names, "anchors") if was_given(ctx, name)]
        if given:
            others = "it goes to the optimum by L-BFGS in seconds"
            raise UsageError(
                f"{', '.join(given)} and --exact exclude each other: {others}, without random batches (leave one out)"
            )


@dataclass(frozen=True, kw_only=True)
class EncoderRunOptions(RunOptions):
    """An encoder may run in half precision."""

    amp: Annotated[Precision, _run("--amp", help="Forward pass in half precision.")] = "off"


def was_given(ctx: typer.Context, name: str) -> bool:
    """True if the option was set explicitly, even to its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """End an interrupted run as shells expect: with 128 plus the signal, and one line that says how to go on.

    Too little memory is an error of one line as well; torch has no class of its own for it on the CPU.
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
            "not enough memory for such batches (take fewer samples or anchors per batch, or a smaller --dim)"
        ) from error


def write_results(
    run: RunOptions,
    *,
    files: dict[str, Path],
    records: list[dict[str, Any]],
    geometry: Geometry,
    content: dict[str, Any],
) -> None:
    """Write geometry, results and picture, and list all files of the run in `content`."""
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
    if out is not None:
        from optgeom.formatting import to_json
        from optgeom.inputs.files import write_text

        write_text(files["result"], json.dumps(to_json(content), allow_nan=False) + "\n")
