"""The class input, the same in every command: exactly one source of classes, then a sampler."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optgeom_cli.output import UsageError, notice

if TYPE_CHECKING:
    from optgeom.inputs.classes import ClassDistribution

_PANEL = "Classes (exactly one source)"

CountsOption = Annotated[
    str | None,
    typer.Option(
        "--counts", metavar="N,N,...", help="Samples of each class, such as 900,50,50.", rich_help_panel=_PANEL
    ),
]
ProportionsOption = Annotated[
    str | None,
    typer.Option(
        "--proportions", metavar="P,P,...", help="Proportions with sum 1, such as .9,.05,.05.", rich_help_panel=_PANEL
    ),
]
CountsFileOption = Annotated[
    Path | None,
    typer.Option(
        "--counts-file",
        metavar="FILE",
        help="JSON list or object, `class,count` lines, one number per line, or `path label` lines.",
        rich_help_panel=_PANEL,
    ),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Labels, one per row: .npy, .npz, .csv, .tsv, .txt or .json.",
        rich_help_panel=_PANEL,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A known data set or formula; `optgeom profiles` lists them.",
        rich_help_panel=_PANEL,
    ),
]
SamplerOption = Annotated[
    str | None,
    typer.Option(
        "--sampler",
        metavar="instance|balanced|sqrt|POWER",
        help="Draw classes with proportions ~ n^POWER: 1 (instance, the default), 0, 0.5.",
    ),
]
DropEmptyOption = Annotated[
    bool, typer.Option("--drop-empty", help="Leave out classes with count 0 instead of refusing them.")
]
IgnoreLabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-label",
        metavar="LABEL",
        help="Leave out the rows with this label, such as -1 or 255; may be repeated.",
    ),
]


def read_classes(
    *,
    counts: str | None = None,
    proportions: str | None = None,
    counts_file: Path | None = None,
    labels: Path | None = None,
    profile: str | None = None,
    sampler: str | None = None,
    drop_empty: bool = False,
    ignore_label: list[str] | None = None,
) -> ClassDistribution:
    """The classes that the options describe; notes on what was changed go to stderr.

    Raises
    ------
    UsageError
        No source of classes, several, an unknown sampler, or --ignore-label without --labels.
    InvalidInputError
        The source is wrong.
    """
    sources = {
        "--counts": counts,
        "--proportions": proportions,
        "--counts-file": counts_file,
        "--labels": labels,
        "--profile": profile,
    }
    given = [option for option, value in sources.items() if value is not None]
    if len(given) != 1:
        came = " and ".join(given) if given else "none"
        raise UsageError(f"give exactly one of {', '.join(sources)}; got {came} (for example --counts 900,50,50)")
    if ignore_label and labels is None:
        raise UsageError(f"--ignore-label goes with --labels; got {given[0]} (leave it out)")
    power = sampler_power(sampler)

    from optgeom.inputs.classes import ClassDistribution

    if counts is not None:
        classes = ClassDistribution.from_counts(parse_numbers("counts", counts, "900,50,50"), drop_empty=drop_empty)
    elif proportions is not None:
        classes = ClassDistribution.from_proportions(
            parse_numbers("proportions", proportions, ".9,.05,.05"), drop_empty=drop_empty
        )
    elif counts_file is not None:
        classes = ClassDistribution.from_file(counts_file, drop_empty=drop_empty)
    elif labels is not None:
        from optgeom.inputs.tables import read_labels

        classes = ClassDistribution.from_labels(read_labels(labels), ignore=ignore_label or ())
    else:
        assert profile is not None
        classes = ClassDistribution.from_profile(profile)
    for note in classes.notes:
        notice(note)
    return classes.resample(power)


def sampler_power(sampler: str | None) -> float:
    """q of ``--sampler``: proportions ~ n^q; 1 where it was not given."""
    if sampler is None:
        return 1.0
    named = {"instance": 1.0, "balanced": 0.0, "sqrt": 0.5}
    try:
        power = named[sampler] if sampler in named else float(sampler)
    except ValueError:
        power = math.nan
    if not math.isfinite(power):
        raise UsageError(
            f"--sampler must be instance, balanced, sqrt or a number; got {sampler!r} (proportions ~ n^number)"
        )
    return power


def parse_numbers(parameter: str, text: str, example: str) -> list[int | float]:
    """Numbers separated by commas, exact where they are whole."""
    from optgeom.errors import InvalidInputError
    from optgeom.inputs.tables import is_number, number_of

    parts = [part.strip() for part in text.split(",")]
    for index, part in enumerate(parts):
        if not is_number(part):
            raise InvalidInputError(
                f"`{parameter}` must be numbers with commas between; got {part!r} for class {index} (as {example})"
            )
    return [number_of(part) for part in parts]
