"""The training loop of any `Task`: steps, schedule, accumulation, average of the iterates, checkpoints, log.

It never waits for the device between two lines of the log.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.swa_utils import get_swa_multi_avg_fn

from optgeom.errors import InvalidInputError
from optgeom.progress import Update, progress_bar
from optgeom.training import checkpoint
from optgeom.training.checkpoint import TrainingLog
from optgeom.training.settings import Settings, autocast, check_precision, choose_device
from optgeom.training.stops import DivergedError, StopRequest, TrainingInterruptedError, explain_divergence, stoppable
from optgeom.training.task import GramDistance, Task

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
MAY_CHANGE = ("checkpoint_every", "device")  # in a resumed run


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopResult:
    """Figures of a finished run; the module of the task is the result, averaged where an average was asked for.

    Attributes
    ----------
    records : list of dict
        The log: step, loss (mean since the last line), optimal_loss, learning_rate, and the figures of `GramDistance`.
    loss : float
        Mean over the steps since the last but one line of the log.
    distance : GramDistance
        Of the result.
    averaged : int
        Iterates in the average, 0 without an average.
    seconds : float
        Of this process: a resumed run does not count what came before.
    """

    records: list[dict[str, Any]]
    loss: float
    distance: GramDistance
    averaged: int
    seconds: float


class Loop:
    """One run.

    Parameters
    ----------
    task : Task
    settings : Settings
    folder : path, optional
        For `checkpoint.pt` and `log.jsonl`; nothing is written without one.
    progress : bool
        Show a progress bar where stderr is a terminal.
    after_step : callable, optional
        Called after each step with the number of steps done.

    Raises
    ------
    InvalidInputError
        A device that does not exist, or a module without parameters.
    """

    def __init__(
        self,
        task: Task,
        settings: Settings,
        *,
        folder: Path | None = None,
        progress: bool = False,
        after_step: Callable[[int], None] | None = None,
    ) -> None:
        self.task, self.settings, self.folder = task, settings, folder
        self.progress, self.after_step = progress, after_step
        self.device = choose_device(settings.device)
        self.amp = check_precision(settings.amp, self.device)
        task.to(self.device)
        self.parameters = [parameter for parameter in task.module.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise InvalidInputError(
                "`task` must have a module with parameters to train; got none (set requires_grad on some of them)"
            )
        self.optimizer = _optimizer(self.parameters, settings, self.device)
        # Of half precision on CUDA; anywhere else it passes everything through.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.amp == "fp16")
        self.average = IterateAverage(self.parameters)
        self.step = 0
        self._pending: list[Tensor] = []  # (loss, inputs, features) of the latest steps, still on the device
        self._losses: list[float] = []  # of the steps before these, since the last line of the log
        self._saved: Path | None = None

    @property
    def run_description(self) -> dict[str, Any]:
        """What a checkpoint must agree with; how often one is saved, and where the run computes, may change."""
        settings = self.settings.as_dict()
        return {
            "settings": {name: settings[name] for name in settings if name not in MAY_CHANGE},
            "task": self.task.description,
        }

    def run(self, resume: bool = False) -> LoopResult:
        """Train to the last step.

        Parameters
        ----------
        resume : bool
            Go on from the checkpoint in the folder; from the beginning where the run ended before its first one. On a
            CPU the result is bit for bit that of a run that was never interrupted.

        Returns
        -------
        LoopResult

        Raises
        ------
        InvalidInputError
            The folder holds a run and `resume` is not set, or a run with other settings.
        DivergedError
            The loss is no longer finite.
        TrainingInterruptedError
            SIGINT or SIGTERM; the state is then saved.
        """
        began = time.perf_counter()
        with _separate_random_numbers(self.settings.seed):
            self._start(resume)
            log = TrainingLog(None if self.folder is None else self.folder / LOG, self.step)
            bar = progress_bar("training", start=self.step, total=self.settings.steps, wanted=self.progress)
            with stoppable() as request, bar as show:
                self.task.module.train()
                while self.step < self.settings.steps:
                    self._pending.append(self._train_step())
                    self.step += 1
                    if self.step > self.settings.first_averaged:
                        self.average.add()
                    if self.after_step is not None:
                        self.after_step(self.step)
                    self._after_step(log, show, request)
        return self._finish(log, time.perf_counter() - began)

    def _train_step(self) -> Tensor:
        """One update; (3,) loss and sums of inputs and features, still on the device."""
        rate = self.settings.rate(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        # Only the device may know the counts, so gradients of sums are added up and divided at the end. The constant
        # keeps them in the range of half precision until then.
        nominal = self.task.expected_count * self.settings.accumulate
        sums: list[Tensor] = []
        for _ in range(self.settings.accumulate):
            with autocast(self.amp, self.device):
                terms = self.task.terms()
            self.scaler.scale(terms.total / nominal).backward()
            parts = (terms.total, terms.count, terms.inputs, terms.features)
            sums.append(torch.stack([part.detach().double() for part in parts]))
        total, count, inputs, features = (sums[0] if len(sums) == 1 else torch.stack(sums).sum(dim=0)).unbind()
        count = count.clamp_min(1.0)
        self.scaler.unscale_(self.optimizer)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        torch._foreach_mul_(gradients, (nominal / count).to(gradients[0].dtype))
        if self.settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return torch.stack([total / count, inputs, features])

    def _after_step(self, log: TrainingLog, show: Update, request: StopRequest) -> None:
        """Log, save and stop, each when it is time."""
        last = self.step == self.settings.steps
        logged = last or self.step % self.settings.log_every == 0
        saved = last or self.step % self.settings.checkpoint_every == 0
        asked = request.signal
        if not (logged or saved or asked is not None):
            show(self.step)
            return
        self._flush_losses()
        if logged:
            loss = math.fsum(self._losses) / len(self._losses)
            distance = self._distance()
            record = {"step": self.step, "loss": loss, "optimal_loss": self.task.optimal_loss}
            log.write({**record, "learning_rate": self.settings.rate(self.step - 1), **distance.as_dict()})
            self._losses = []
            show(self.step, words=describe_progress(loss, self.task.optimal_loss, distance))
        if (saved or asked is not None) and self.folder is not None:
            self._save(self.folder / CHECKPOINT)
        if asked is not None and not last:
            raise TrainingInterruptedError(asked, self.step, self._saved)

    def _flush_losses(self) -> None:
        """Fetch the pending losses from the device, all at once; raise at the first that is not finite."""
        if not self._pending:
            return
        rows = torch.stack(self._pending).tolist()
        for step, (loss, inputs, features) in enumerate(rows, start=self.step - len(rows) + 1):
            if not math.isfinite(loss):
                cause = explain_divergence(inputs, features, step, self.settings.rate(step - 1))
                raise DivergedError(step, loss, cause, self._saved)
        self._losses += [row[0] for row in rows]
        self._pending = []

    def _distance(self) -> GramDistance:
        self.task.module.eval()
        with torch.no_grad():
            distance = self.task.distance()
        self.task.module.train()
        return distance

    def _save(self, path: Path) -> None:
        content = {
            "run": json.dumps(self.run_description),
            "step": self.step,
            "module": self.task.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "average": self.average.state(),
            "task": self.task.state(),
            "random": checkpoint.get_random_states(),
            "losses": self._losses,
        }
        checkpoint.save(path, content)
        self._saved = path

    def _start(self, resume: bool) -> None:
        if self.folder is None:
            if resume:
                raise InvalidInputError(
                    "`folder` must be given to resume a run; got none (the folder that holds its checkpoint)"
                )
            return
        path = self.folder / CHECKPOINT
        if path.exists() and not resume:
            raise InvalidInputError(
                f"{self.folder} holds a run already (resume it with --resume, resume=True, or choose another folder)"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return
        saved = checkpoint.load(path, self.run_description, torch.device("cpu"))
        self.task.module.load_state_dict(saved["module"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scaler.load_state_dict(saved["scaler"])
        self.average.load(saved["average"])
        self.task.load(saved["task"])
        checkpoint.set_random_states(saved["random"])
        self.step, self._losses, self._saved = int(saved["step"]), list(saved["losses"]), path

    def _finish(self, log: TrainingLog, seconds: float) -> LoopResult:
        averaged = self.average.number
        if averaged:
            self.average.put()
            self.task.refresh()
        distance = self._distance()
        self.task.module.eval()
        loss = float(log.records[-1]["loss"])
        return LoopResult(records=log.records, loss=loss, distance=distance, averaged=averaged, seconds=seconds)


class IterateAverage:
    """Mean of the parameters over the steps at which `add` was called (Polyak and Juditsky 1992).

    With the arithmetic of `torch.optim.swa_utils`, but without its `AveragedModel`: that one counts in a tensor, from
    which the same function takes 1/n in single precision (a relative error of 2e-8 in float64 parameters), and which it
    copies to a CUDA device at every step, where a run must not wait.

    Parameters
    ----------
    parameters : list of Parameter
        In the order that the averages keep.
    """

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = parameters
        self._means: list[Tensor] = []
        self.number = 0

    def add(self) -> None:
        """Count the parameters as they are now."""
        current = [parameter.detach() for parameter in self._parameters]
        if self.number == 0:
            self._means = [parameter.clone() for parameter in current]
        else:
            get_swa_multi_avg_fn()(self._means, current, self.number)
        self.number += 1

    @torch.no_grad()
    def put(self) -> None:
        """Replace the parameters by their average."""
        for parameter, mean in zip(self._parameters, self._means, strict=True):
            parameter.copy_(mean)

    def state(self) -> dict[str, Any]:
        """Number and means."""
        return {"number": self.number, "means": self._means}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.number = int(state["number"])
        # As long as nothing is averaged there are no means yet.
        pairs = zip(state["means"], self._parameters, strict=False)
        self._means = [mean.to(parameter.device, copy=True) for mean, parameter in pairs]


def _optimizer(parameters: list[torch.nn.Parameter], settings: Settings, where: torch.device) -> torch.optim.Optimizer:
    # The fused ones skip a step with infinite gradients by themselves; with the others the scaler of half precision
    # waits for the device.
    common: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if where.type == "cuda":
        common["fused"] = True
    if settings.optimizer == "adam":
        return torch.optim.AdamW(parameters, **common)
    return torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=settings.momentum > 0, **common)


@contextlib.contextmanager
def _separate_random_numbers(seed: int) -> Iterator[None]:
    """Seed the global generators for the run; afterwards they go on as if the run had drawn nothing."""
    states = checkpoint.get_random_states()
    try:
        torch.manual_seed(seed)
        yield
    finally:
        checkpoint.set_random_states(states)


def describe_progress(loss: float, optimal_loss: float | None, distance: GramDistance) -> str:
    """The loss, its optimal value and the distance of the Gram matrices, in a few words."""
    words = f"loss {loss:.5g}"
    if optimal_loss is not None:
        words += f" (optimum {optimal_loss:.5g})"
    if distance.max_angle_error_deg is not None:
        words += f", angles within {distance.max_angle_error_deg:.2g} deg"
        if distance.relative_frobenius is not None:
            words += f", Gram {distance.relative_frobenius:.2g}"
    return words
