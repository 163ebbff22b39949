"""`optgeom threshold`: from which majority on all other classes collapse onto one direction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom.progress import working
from optgeom_cli import class_input
from optgeom_cli.output import UsageError, emit_json, exit_on_error, print_summary
from optgeom_cli.shared_options import ClassOptions, LossOptions, with_shared_options

if TYPE_CHECKING:
    from optgeom.collapse.thresholds import CollapseMargin, CollapseThreshold
    from optgeom.inputs.classes import ClassDistribution
    from optgeom.losses.base import Loss

_PANEL = "Output"
SMALL_SHARE = (
    1e-3  # below it a majority share is written as 1 - x: three nines say little and more of them are hard to count
)


@with_shared_options
@exit_on_error()
def threshold(
    class_options: ClassOptions,
    loss_options: LossOptions,
    minorities: Annotated[
        int | None,
        typer.Option(
            "--minorities", metavar="M", help="Equal minority classes, 2 or more (those of the classes given, or 2)."
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split", metavar="A,B,...", help="Relative sizes of unequal minority classes, instead of --minorities."
        ),
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout.", rich_help_panel=_PANEL)
    ] = False,
) -> None:
    """Exact majority share above which all minority classes share one direction (minority collapse).

    Classes are optional: with them, how far they are from it.
    """
    if minorities is not None and split is not None:
        raise UsageError(
            "give --minorities or --split, not both (the split already says how many minority classes there are)"
        )
    chosen = loss_options.read()
    classes = class_options.read() if class_options.given else None

    with working("computing the threshold"):
        answer, margin = _compute(chosen, classes, minorities, split)
    if json_output:
        emit_json({**answer.as_dict(), "margin": None if margin is None else margin.as_dict()})
    else:
        print_summary(_lines(answer, margin, chosen, classes, split, minorities))


def _compute(
    loss: Loss, classes: ClassDistribution | None, minorities: int | None, split: str | None
) -> tuple[CollapseThreshold, CollapseMargin | None]:
    from optgeom.collapse.thresholds import CollapseThreshold, collapse_margin, collapse_threshold

    margin = None if classes is None else collapse_margin(classes, loss)
    if split is not None:
        return collapse_threshold(loss, split=class_input.parse_numbers("split", split, ".5,.3,.2")), margin
    if minorities is not None or classes is None:
        return collapse_threshold(loss, minorities=2 if minorities is None else minorities), margin
    if margin is None:  # a tie for the largest class, or a loss that the threshold refuses, which then says why
        return collapse_threshold(loss, minorities=classes.num_classes - 1), None
    return CollapseThreshold.from_log_odds(margin.threshold_log_odds, classes.num_classes - 1, loss), margin


def odds_text(log_odds: float) -> str:
    """exp(log_odds) in four digits, as people write it: 12.16, 0.087, 9.703e8."""
    value = math.exp(log_odds)
    if 1e-4 <= value < 1e4:
        return f"{value:.4g}"
    if 1e4 <= value < 1e5:
        return f"{value:.0f}"
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def margin_text(margin: CollapseMargin) -> str:
    """How far from total collapse, in one sentence."""
    odds, needed = odds_text(margin.log_odds), odds_text(margin.threshold_log_odds)
    away = abs(margin.threshold_log_odds - margin.log_odds)
    if margin.collapsed:
        return (
            f"total collapse: the majority's odds are {odds} : 1, {odds_text(away)} times the {needed} : 1 "
            "at which it begins"
        )
    return f"the majority's odds are {odds} : 1; total collapse needs {needed} : 1, {odds_text(away)} times as much"


def _share(answer: CollapseThreshold) -> str:
    return (
        f"{answer.threshold:.6f}"
        if answer.one_minus_threshold >= SMALL_SHARE
        else f"1 - {odds_text(math.log(answer.one_minus_threshold))}"
    )


def _lines(
    answer: CollapseThreshold,
    margin: CollapseMargin | None,
    loss: Loss,
    classes: ClassDistribution | None,
    split: str | None,
    minorities: int | None,
) -> Iterable[tuple[str, str]]:
    yield "Loss", answer.loss.words()
    yield "Minorities", _minorities(answer, margin, loss, split, minorities)
    needs = odds_text(answer.log_odds)
    yield "Total collapse", f"needs odds of {needs} : 1 or more, majority samples to all other samples together"
    yield (
        "Majority share",
        f"{_share(answer)} or more: then all minority classes share one direction, opposite to the majority",
    )
    if answer.published_sufficient is not None:
        published = answer.published_sufficient
        yield (
            "In the literature",
            f"a share of {published:.4f} is known to suffice; exactly, {_share(answer)} suffices and is needed",
        )
    if classes is not None and margin is None:
        yield "Your classes", "no single class is the most frequent: total collapse is not the optimum"
    elif margin is not None:
        yield "Your classes", margin_text(margin)


def _minorities(
    answer: CollapseThreshold, margin: CollapseMargin | None, loss: Loss, split: str | None, minorities: int | None
) -> str:
    if "uniform-negatives" in loss.gives:
        return f"{answer.minorities} (the threshold is the same for any number of them, however unequal)"
    if split is not None:
        return f"{answer.minorities}, in proportions {split}"
    if minorities is None and margin is not None:
        return f"{answer.minorities}, in proportion as given"
    return f"{answer.minorities}, equally frequent"
