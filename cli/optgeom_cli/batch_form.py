"""Options of losses without class counts: pairs, a queue of keys, or as many images of every class in a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom import choices
from optgeom_cli.class_input import parse_numbers
from optgeom_cli.output import UsageError

if TYPE_CHECKING:
    from optgeom.collapse.loss_values import LossValues
    from optgeom_cli.shared_options import LossOptions

_PANEL = "Batches without class counts (instead of classes and a loss)"
NAMES = {"simclr": "SimCLR (NT-Xent)", "clip": "CLIP, symmetric", "mnrl": "MultipleNegativesRanking"}


@dataclass(frozen=True, kw_only=True)
class BatchForm:
    """What a batch holds, where classes have no counts."""

    pairs: Annotated[
        int | None, typer.Option("--pairs", metavar="N", help="N pairs, with --form.", rich_help_panel=_PANEL)
    ] = None
    form: Annotated[
        choices.PairForm | None,
        typer.Option("--form", help="Which loss of pairs.", rich_help_panel=_PANEL),
    ] = None
    queue: Annotated[
        int | None,
        typer.Option("--queue", metavar="K", help="One positive and a queue of K keys (MoCo).", rich_help_panel=_PANEL),
    ] = None
    images: Annotated[
        int | None,
        typer.Option(
            "--images", metavar="N", help="Different images of the data, with --queue.", rich_help_panel=_PANEL
        ),
    ] = None
    per_class: Annotated[
        str | None,
        typer.Option(
            "--per-class",
            metavar="P,K",
            help="P classes with K images each, with --num-classes (and --views).",
            rich_help_panel=_PANEL,
        ),
    ] = None
    num_classes: Annotated[
        int | None,
        typer.Option("--num-classes", metavar="C", help="Classes that the P are drawn from.", rich_help_panel=_PANEL),
    ] = None

    @property
    def source(self) -> str | None:
        """The option that says what a batch holds; None where none was given.

        Raises
        ------
        UsageError
            Several, or options of another one.
        """
        given = {"--pairs": self.pairs, "--queue": self.queue, "--per-class": self.per_class}
        chosen = [option for option, value in given.items() if value is not None]
        if len(chosen) > 1:
            raise UsageError(f"give one of {', '.join(given)}; got {' and '.join(chosen)}")
        source = chosen[0] if chosen else None
        for option, owner in (("form", "--pairs"), ("images", "--queue"), ("num_classes", "--per-class")):
            if getattr(self, option) is not None and source != owner:
                raise UsageError(f"--{option.replace('_', '-')} goes with {owner}; got it without (add {owner})")
        return source

    def values(
        self,
        source: str,
        loss_options: LossOptions,
        *,
        others: dict[str, Any],
        dim: int | None,
        base_temperature: float | None,
        observed: float | None,
        equal_within: float,
    ) -> tuple[LossValues, str]:
        """Values, and the loss in words.

        Parameters
        ----------
        source : str
        loss_options : LossOptions
        others : dict
            Options by name that say what a batch holds in other ways; they must not be given.
        dim, base_temperature, observed, equal_within
        """
        allowed = {"temperature", "views"} if source == "--per-class" else {"temperature"}
        wrong = [option for option, value in others.items() if value]
        wrong += [f"--{name.replace('_', '-')}" for name in loss_options.given if name not in allowed]
        wrong += ["--loss"] if loss_options.loss is not None else []
        wrong += ["--dim"] if dim is not None and source != "--pairs" else []
        wrong += ["--base-temperature"] if base_temperature is not None and source != "--per-class" else []
        if wrong:
            kept = " and ".join(f"--{name}" for name in sorted(allowed))
            raise UsageError(
                f"{source} says what a batch holds and goes with {kept}; got {wrong[0]} too (leave it out)"
            )
        from optgeom.collapse import batch_forms

        temperature = loss_options.given.get("temperature", 0.1)
        judged: dict[str, Any] = {"temperature": temperature, "observed": observed, "equal_within": equal_within}
        if self.pairs is not None:
            if self.form is None:
                raise UsageError(f"--pairs needs --form, one of {', '.join(NAMES)} (which loss of pairs)")
            values = batch_forms.pair_loss_values(self.pairs, form=self.form, dim=dim, **judged)
            words = f"{NAMES[self.form]}, {self.pairs} pairs in a batch"
        elif self.queue is not None:
            values = batch_forms.queue_loss_values(self.queue, images=self.images, **judged)
            words = f"InfoNCE with a queue of {self.queue} keys (MoCo)"
        else:
            assert self.per_class is not None
            if self.num_classes is None:
                raise UsageError("--per-class needs --num-classes, the classes that those of a batch are drawn from")
            numbers = parse_numbers("per_class", self.per_class, "32,4")
            if len(numbers) != 2 or not all(isinstance(number, int) for number in numbers):
                raise UsageError(f"--per-class must be P,K: two whole numbers; got {self.per_class!r} (as 32,4)")
            values = batch_forms.sampler_loss_values(
                (int(numbers[0]), int(numbers[1])),
                num_classes=self.num_classes,
                views=loss_options.given.get("views", 1),
                base_temperature=base_temperature,
                **judged,
            )
            words = f"SupCon, {numbers[0]} classes with {numbers[1]} images each in a batch"
        return values, f"{words}, temperature {temperature:g}"
