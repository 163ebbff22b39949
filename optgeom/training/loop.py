"""The loop: steps, schedule, accumulation, averages, checkpoints, log.

It trains any `Task` and never waits for the device between logs.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from optgeom.errors import InvalidInputError
from optgeom.progress import Update, progress_bar
from optgeom.training import checkpoint, device
from optgeom.training.average import IterateAverage
from optgeom.training.display import figures
from optgeom.training.distance import GramDistance
from optgeom.training.log import TrainingLog
from optgeom.training.settings import Settings
from optgeom.training.stops import DivergedError, Stop, TrainingInterruptedError, likely_cause, stoppable
from optgeom.training.task import Task

CHECKPOINT = "checkpoint.pt"
LOG = "log.jsonl"
MAY_CHANGE = ("checkpoint_every", "device")


@dataclass(frozen=True, eq=False)
class LoopResult:
    """What a finished run came to; the module of the task holds the result, averaged where an average was asked for.

    Attributes
    ----------
    records : list of dict
        The log: step, loss (mean since the last line), optimal_loss, learning_rate, and the figures of `GramDistance`.
    loss : float
        Mean over the last logged window.
    distance : GramDistance
        Of the result.
    last_distance : GramDistance
        Of the last iterate.
    averaged : int
        Iterates in the average, 0 where there is none.
    seconds : float
        Of this process; a resumed run does not count what came before.
    """

    records: list[dict[str, Any]]
    loss: float
    distance: GramDistance
    last_distance: GramDistance
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
        Called with the number of steps done, after each.

    Raises
    ------
    InvalidInputError
        A device that is not there, or a module without parameters.
    """

    def __init__(
        self,
        task: Task,
        settings: Settings,
        folder: Path | None = None,
        progress: bool = False,
        after_step: Callable[[int], None] | None = None,
    ) -> None:
        self.task, self.settings, self.folder, self.progress, self.after_step = (
            task,
            settings,
            folder,
            progress,
            after_step,
        )
        self.device = device.choose_device(settings.device)
        self.amp = device.check_precision(settings.amp, self.device)
        task.to(self.device)
        self.parameters = [parameter for parameter in task.module.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise InvalidInputError("`task` must have a module with parameters to train; got none")
        self.optimizer = _optimizer(self.parameters, settings, self.device)
        # Half precision on CUDA only: everywhere else it passes everything through.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.amp == "fp16")
        self.average = IterateAverage(self.parameters)
        self.step = 0
        self._window: list[
            Tensor
        ] = []  # of the steps that were not looked at yet: (loss, inputs, features), on the device
        self._losses: list[float] = []  # of the steps that were, since the last line of the log
        self._saved: Path | None = None

    @property
    def run_description(self) -> dict[str, Any]:
        """What a checkpoint must agree with.

        How often one is saved changes no number, and a run may move to another device.
        """
        settings = self.settings.as_dict()
        return {
            "settings": {name: settings[name] for name in settings if name not in MAY_CHANGE},
            "task": self.task.describe,
        }

    def run(self, resume: bool = False) -> LoopResult:
        """Train to the last step.

        Parameters
        ----------
        resume : bool
            Go on from the checkpoint in the folder; from the beginning where the run was ended before its first one. On
            a CPU the result is bit for bit that of a run that was never interrupted.

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
        with _own_random_numbers(self.settings.seed, self.device):
            self._start(resume)
            log = TrainingLog(None if self.folder is None else self.folder / LOG, self.step)
            bar = progress_bar("training", start=self.step, total=self.settings.steps, wanted=self.progress)
            with stoppable() as stop, bar as show:
                self.task.module.train()
                while self.step < self.settings.steps:
                    self._window.append(self._train_step())
                    self.step += 1
                    if self.step > self.settings.first_averaged:
                        self.average.add()
                    if self.after_step is not None:
                        self.after_step(self.step)
                    self._keep(log, show, stop)
        return self._finish(log, time.perf_counter() - began)

    def _train_step(self) -> Tensor:
        """One update; (3,) loss and sums of inputs and features, not waited for."""
        rate = self.settings.rate(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        # Counts may be known to the device only, so gradients of sums are added up and divided at the end. The constant
        # keeps them in the range of half precision meanwhile.
        nominal = self.task.expected_count * self.settings.accumulate
        seen: list[Tensor] = []
        for _ in range(self.settings.accumulate):
            with device.autocast(self.amp, self.device):
                terms = self.task.terms()
            self.scaler.scale(terms.total / nominal).backward()
            seen.append(
                torch.stack(
                    [part.detach().double() for part in (terms.total, terms.count, terms.inputs, terms.features)]
                )
            )
        total, count, inputs, features = (seen[0] if len(seen) == 1 else torch.stack(seen).sum(dim=0)).unbind()
        count = count.clamp_min(1.0)
        self.scaler.unscale_(self.optimizer)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        torch._foreach_mul_(gradients, (nominal / count).to(gradients[0].dtype))
        if self.settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return torch.stack([total / count, inputs, features])

    def _keep(self, log: TrainingLog, show: Update, stop: Stop) -> None:
        """After a step: look at the losses, log, save, stop, each when it is time."""
        last = self.step == self.settings.steps
        logged = last or self.step % self.settings.log_every == 0
        saved = last or self.step % self.settings.checkpoint_every == 0
        asked = stop.signal
        if not (logged or saved or asked is not None):
            show(self.step)
            return
        self._look()
        if logged:
            loss = math.fsum(self._losses) / len(self._losses)
            distance = self._distance()
            record = {"step": self.step, "loss": loss, "optimal_loss": self.task.optimal_loss}
            log.write({**record, "learning_rate": self.settings.rate(self.step - 1), **distance.as_dict()})
            self._losses = []
            show(self.step, words=figures(loss, self.task.optimal_loss, distance))
        if (saved or asked is not None) and self.folder is not None:
            self._save()
        if asked is not None and not last:
            raise TrainingInterruptedError(asked, self.step, self._saved)

    def _look(self) -> None:
        """Fetch the losses since the last look, all at once, and find the first that is not finite."""
        if not self._window:
            return
        rows = torch.stack(self._window).tolist()
        first = self.step - len(rows) + 1
        for step, (loss, inputs, features) in enumerate(rows, start=first):
            if not math.isfinite(loss):
                raise DivergedError(
                    step, loss, likely_cause(inputs, features, step, self.settings.rate(step - 1)), self._saved
                )
        self._losses += [row[0] for row in rows]
        self._window = []

    def _distance(self) -> GramDistance:
        self.task.module.eval()
        with torch.no_grad():
            found = self.task.distance()
        self.task.module.train()
        return found

    def _save(self) -> None:
        assert self.folder is not None
        content = {
            "run": json.dumps(self.run_description),
            "step": self.step,
            "module": self.task.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "average": self.average.state(),
            "task": self.task.state(),
            "random": checkpoint.random_states(),
            "losses": self._losses,
        }
        path = self.folder / CHECKPOINT
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
        held = checkpoint.load(path, self.run_description, torch.device("cpu"))
        self.task.module.load_state_dict(held["module"])
        self.optimizer.load_state_dict(held["optimizer"])
        self.scaler.load_state_dict(held["scaler"])
        self.average.load(held["average"])
        self.task.load(held["task"])
        checkpoint.set_random_states(held["random"])
        self.step, self._losses, self._saved = int(held["step"]), list(held["losses"]), path

    def _finish(self, log: TrainingLog, seconds: float) -> LoopResult:
        last = self._distance()
        averaged = self.average.number
        if averaged:
            self.average.put()
            self.task.refresh()
        self.task.module.eval()
        distance = self._distance() if averaged else last
        self.task.module.eval()
        return LoopResult(log.records, float(log.records[-1]["loss"]), distance, last, averaged, seconds)


def _optimizer(parameters: list[torch.nn.Parameter], settings: Settings, where: torch.device) -> Any:
    # The fused ones skip a step with infinite gradients by themselves; with the others the scaler of half precision
    # waits for the device.
    common: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if where.type == "cuda":
        common["fused"] = True
    if settings.optimizer == "adam":
        return torch.optim.AdamW(parameters, **common)
    return torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=settings.momentum > 0, **common)


@contextmanager
def _own_random_numbers(seed: int, where: torch.device) -> Iterator[None]:
    """The run has generators of its own, and the caller's go on afterwards as if nothing had been drawn."""
    held = checkpoint.random_states()
    try:
        torch.manual_seed(seed)
        yield
    finally:
        checkpoint.set_random_states(held)
