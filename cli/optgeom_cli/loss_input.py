"""The loss input, the same in every command: which loss, and its parameters."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optgeom_cli.output import UsageError

if TYPE_CHECKING:
    from optgeom.losses.base import Loss

_PANEL = "Loss"
DEFAULT_TEMPERATURE = 0.1


class LossName(enum.StrEnum):
    """Losses of the command line."""

    INFONCE = "infonce"
    SUPCON = "supcon"
    SUPCON_FULL = "supcon-full"


class Reduction(enum.StrEnum):
    """How the negatives are taken together."""

    SUM = "sum"
    MEAN = "mean"


class Sampling(enum.StrEnum):
    """Where the negatives come from."""

    UCL = "ucl"
    SCL = "scl"


class Singletons(enum.StrEnum):
    """What becomes of anchors without a positive."""

    ZERO = "zero"
    SKIP = "skip"


# None is "not given" for every option here: what is typed beside a geometry, which has its loss, must not pass unseen.
LossOption = Annotated[
    LossName | None,
    typer.Option(
        "--loss",
        help="SupCon over batches (the default), InfoNCE, or SupCon with all samples in one batch.",
        rich_help_panel=_PANEL,
    ),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        help=f"Cosines are divided by it; > 0; {DEFAULT_TEMPERATURE} by default.",
        rich_help_panel=_PANEL,
    ),
]
NegativesOption = Annotated[
    str | None,
    typer.Option("--negatives", metavar="K|inf", help="infonce: negatives of an anchor (256).", rich_help_panel=_PANEL),
]
AlphaOption = Annotated[
    float | None,
    typer.Option(
        "--alpha", help="infonce: 1 keeps the positive in the denominator, 0 leaves it out (1).", rich_help_panel=_PANEL
    ),
]
ReductionOption = Annotated[
    Reduction | None,
    typer.Option(
        "--negatives-reduction",
        help="infonce: sum (as usual), or mean, the only one for inf negatives.",
        rich_help_panel=_PANEL,
    ),
]
SamplingOption = Annotated[
    Sampling | None,
    typer.Option(
        "--sampling",
        help="infonce: negatives from all classes (ucl) or from the other classes (scl).",
        rich_help_panel=_PANEL,
    ),
]
BatchSizeOption = Annotated[
    str | None,
    typer.Option("--batch-size", metavar="N|inf", help="supcon: images in a batch (inf).", rich_help_panel=_PANEL),
]
ViewsOption = Annotated[
    int | None,
    typer.Option(
        "--views", help="supcon: views of an image (2); supcon-full: rows a sample (1).", rich_help_panel=_PANEL
    ),
]
SingletonsOption = Annotated[
    Singletons | None,
    typer.Option(
        "--singletons",
        help="supcon, supcon-full: anchors without a positive count as 0 or are skipped.",
        rich_help_panel=_PANEL,
    ),
]

# Which options belong to which loss; the temperature belongs to all.
_BELONGS = {
    LossName.INFONCE: {"--negatives", "--alpha", "--negatives-reduction", "--sampling"},
    LossName.SUPCON: {"--batch-size", "--views", "--singletons"},
    LossName.SUPCON_FULL: {"--views", "--singletons"},
}


def read_loss(
    *,
    loss: LossName | None = None,
    temperature: float | None = None,
    negatives: str | None = None,
    alpha: float | None = None,
    negatives_reduction: Reduction | None = None,
    sampling: Sampling | None = None,
    batch_size: str | None = None,
    views: int | None = None,
    singletons: Singletons | None = None,
) -> Loss:
    """The loss that the options describe; None is "not given".

    Raises
    ------
    UsageError
        An option of another loss, or a number that is none.
    InvalidInputError
        A parameter outside its domain.
    """
    loss = loss or LossName.SUPCON
    temperature = DEFAULT_TEMPERATURE if temperature is None else temperature
    given: dict[str, Any] = {
        "--negatives": negatives,
        "--alpha": alpha,
        "--negatives-reduction": negatives_reduction,
        "--sampling": sampling,
        "--batch-size": batch_size,
        "--views": views,
        "--singletons": singletons,
    }
    for option, value in given.items():
        if value is not None and option not in _BELONGS[loss]:
            owners = " or ".join(f"--loss {name.value}" for name, options in _BELONGS.items() if option in options)
            raise UsageError(
                f"{option} goes with {owners}; got --loss {loss.value} (change --loss, or leave {option} out)"
            )

    from optgeom.losses import InfoNCE, SupCon, SupConFullBatch

    if loss is LossName.INFONCE:
        number = 256 if negatives is None else number_or_inf("--negatives", negatives)
        # Infinitely many negatives can only be averaged: asking for the one reduction that exists would be pedantry.
        reduction = negatives_reduction or (Reduction.MEAN if number == math.inf else Reduction.SUM)
        kept = 1.0 if alpha is None else alpha
        return InfoNCE(temperature, number, kept, reduction.value, (sampling or Sampling.UCL).value)
    rule = (singletons or Singletons.ZERO).value
    if loss is LossName.SUPCON:
        size = math.inf if batch_size is None else number_or_inf("--batch-size", batch_size)
        return SupCon(temperature, size, 2 if views is None else views, rule)
    # Counts are rows of the batch here, so one row a sample unless said otherwise.
    return SupConFullBatch(temperature, 1 if views is None else views, rule)


def number_or_inf(option: str, text: str) -> float:
    """A number, exact where it is whole, or infinity; whether it lies in its domain is for the loss to say."""
    try:
        number = float(text)
    except ValueError:
        raise UsageError(f"{option} must be a whole number or inf; got {text!r}") from None
    return int(number) if number.is_integer() else number
