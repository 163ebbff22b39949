"""What the loss determines, for `--slack` and `--saddles`: the figures, their lines and the table of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from optgeom.formatting import first_of, short
from optgeom.progress import progress_bar

if TYPE_CHECKING:
    from rich.table import Table

    from optgeom.collapse.ranges import PairRange, Ranges, SlackNeeded
    from optgeom.collapse.relaxation import Relaxation
    from optgeom.collapse.saddles import Saddles
    from optgeom.geometry import Geometry
    from optgeom.result import GramResult

SHOWN_NAMES = 4
SHOWN_PAIRS = 5
ZERO_DEGREES = 1e-5  # a few roundings of a cosine away from 1
FREE = 1e-13  # share of the loss range, a few roundings of it, that counts as no loss at all


@dataclass(frozen=True, kw_only=True)
class Determined:
    """What was asked about a certified geometry; None for what was not.

    Attributes
    ----------
    kind : {"class", "sample"}
        What the points of the geometry stand for.
    ranges, needed, free, network, saddles
        The answers.
    """

    kind: Literal["class", "sample"] = "class"
    ranges: Ranges | None = None
    needed: SlackNeeded | None = None
    free: Relaxation | None = None
    network: Relaxation | None = None
    saddles: Saddles | None = None

    def as_dict(self) -> dict[str, Any]:
        """The JSON keys."""
        content: dict[str, Any] = {}
        if self.ranges is not None and self.needed is not None:
            content |= {"ranges": self.ranges.as_dict(), "slack_needed": self.needed.as_dict()}
        if self.free is not None and self.network is not None:
            content |= {"relaxation": self.free.as_dict(), "relaxation_network": self.network.as_dict()}
        if self.saddles is not None:
            content["saddles"] = self.saddles.records()
        return content

    def of_pair(self, first: int, second: int) -> PairRange | None:
        """The range of a pair of classes; None where it was not computed."""
        pairs = () if self.ranges is None else self.ranges.pairs
        return next((pair for pair in pairs if (pair.first, pair.second) == (first, second)), None)

    def within(self, first: int, second: int) -> str:
        """The range of a pair of classes in words; nothing where it was not computed."""
        near = self.of_pair(first, second)
        if near is None:
            return ""
        text = f"{near.closest_deg:.1f} to {near.farthest_deg:.1f}"
        if not near.exact:
            return f"~{text}"
        if near.certified:
            return text
        return f"{text} ({near.closest_attained_deg:.1f} to {near.farthest_attained_deg:.1f} attained)"

    def lines(self) -> Iterable[tuple[str, str]]:
        """Lines of the summary."""
        if self.ranges is not None and self.needed is not None:
            yield from _slack_lines(self.kind, self.ranges, self.needed)
        if self.free is not None and self.network is not None:
            yield "Slowest angle", _rate_line(self.free, self.network)
        if self.saddles is not None:
            yield from _saddle_lines(self.saddles)


def determine_ranges(
    result: GramResult,
    kind: Literal["class", "sample"],
    *,
    slack: float,
    whole: bool,
    screen: bool = False,
    workers: int,
) -> Determined:
    """The ranges of angles within the slack, and the slack at which they would be fixed."""
    import optgeom

    with progress_bar("near-optimal ranges") as update:
        near = optgeom.ranges(result, slack=slack, own=not whole, screen=screen, workers=workers, progress=update)
    with progress_bar("slack needed") as update:
        return Determined(kind=kind, ranges=near, needed=optgeom.slack_needed(result, workers=workers, progress=update))


def determine(
    geometry: Geometry, *, slack: float | None, whole: bool, screen: bool, saddles: bool, workers: int
) -> Determined:
    """Compute what the options ask for."""
    import optgeom
    from optgeom.errors import IncompatibleError

    answers: dict[str, Any] = {}
    if slack is not None:
        determined = determine_ranges(geometry, "class", slack=slack, whole=whole, screen=screen, workers=workers)
        answers |= {"ranges": determined.ranges, "needed": determined.needed}
        try:
            answers["free"] = optgeom.relaxation(geometry, kernel="free")
            answers["network"] = optgeom.relaxation(geometry, kernel="network")
        except IncompatibleError:  # singletons of a full batch: their angles have no rates of their own
            answers.pop("free", None)
    if saddles:
        answers["saddles"] = optgeom.saddles(geometry.classes, geometry.loss)
    return Determined(**answers)


def pairs_table(result: GramResult, determined: Determined | None) -> Table:
    """The closest pairs, with their ranges where these were computed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    kind = "class" if determined is None else determined.kind
    table = Table(
        box=box.SIMPLE_HEAD,
        title="Closest pairs",
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
    )
    table.add_column(kind, overflow="ellipsis", no_wrap=True)
    table.add_column(kind, overflow="ellipsis", no_wrap=True)
    table.add_column("angle (degrees)", justify="right", no_wrap=True)
    ranged = determined is not None and determined.ranges is not None
    if ranged:
        table.add_column("within the slack", justify="right", no_wrap=True)
    for pair in result.closest_pairs(SHOWN_PAIRS):
        names = (Text(short(result.names[which])) for which in (pair.first, pair.second))
        ends = [determined.within(pair.first, pair.second)] if determined is not None and ranged else []
        table.add_row(*names, degrees(pair.angle_deg, result), *ends)
    return table


def degrees(angle: float, result: GramResult) -> str:
    """An angle with as many decimals as distinguish the angles of this geometry."""
    if angle < 1:
        return "0" if angle < ZERO_DEGREES else f"{angle:.2g}"
    span = result.farthest_pairs(1)[0].angle_deg - result.closest_pairs(1)[0].angle_deg
    places = 2 if span < 1e-7 else min(7, max(2, math.ceil(1.5 - math.log10(span))))
    return f"{angle:.{places}f}"


def _share(value: float) -> str:
    """A share of the loss range as a percentage with two digits."""
    return f"{100 * value:.2g} %"


def _slack_lines(kind: str, ranges: Ranges, needed: SlackNeeded) -> Iterable[tuple[str, str]]:
    of_pair = {"class": "per image of the two classes of a pair", "sample": "per sample of a pair"}
    of_all = {"class": "of all images", "sample": "of all samples"}
    whose = (of_pair if ranges.own else of_all)[kind]
    solved = [pair for pair in ranges.pairs if pair.exact]
    yield (
        "Slack",
        f"{_share(ranges.slack)} of the way from optimal to collapsed ({ranges.loss_range:.4g}), {whose}: "
        f"{len(ranges.determined)} of {len(solved)} angles are determined to {ranges.tolerance_deg:g} degrees",
    )
    if len(solved) < len(ranges):
        yield "Screened", f"{len(ranges) - len(solved)} further angles to second order: estimates (~), not bounds"
    open_pairs = sum(not pair.certified for pair in solved)
    if open_pairs:
        yield (
            "Not proved",
            f"{open_pairs} of {len(solved)} ranges: angles beyond those that are attained are not excluded",
        )
    smallest = needed.smallest
    pair = " and ".join(short(needed.geometry.names[which]) for which in (smallest.first, smallest.second))
    plural = {"class": "classes", "sample": "samples"}[kind]
    resolution = f"single precision resolves {_share(needed.float32_share)}"
    noise = "" if needed.batch_share is None else f", one batch mean varies by {_share(needed.batch_share)}"
    if smallest.whole <= FREE:
        yield (
            "Slack needed",
            f"no slack fixes every angle to {needed.tolerance_deg:g} degrees: optimal geometries, in any dimension, "
            f"differ by more ({plural} {pair})",
        )
        return
    yield (
        "Slack needed",
        f"to fix every angle to {needed.tolerance_deg:g} degrees the loss must come within {_share(smallest.whole)} of "
        f"the way of its floor ({plural} {pair}); {resolution}{noise}",
    )


def _rate_line(free: Relaxation, network: Relaxation) -> str:
    classes = first_of(map(short, network.slow_classes(SHOWN_NAMES)), SHOWN_NAMES)
    if network.geometry.rank == 1:
        return "none: on a line no angle can move"
    ratio = network.fastest / network.slowest if network.slowest > 0 else math.inf
    return (
        f"settles at rate {network.slowest:.3g} per kappa x learning rate in a network ({ratio:.2g} times more slowly "
        f"than the fastest; classes {classes}), {free.slowest:.3g} per learning rate / samples for free features"
    )


def _saddle_lines(saddles: Saddles) -> Iterable[tuple[str, str]]:
    slowest = saddles.slowest
    if slowest is None:
        yield "Saddles", "none: the optimum has one dimension"
        return
    yield (
        "Saddles",
        f"training stalls longest in {slowest.rank} of {saddles.geometry.rank} dimensions, {_share(slowest.share)} of "
        f"the way above the optimum; classes {first_of(map(short, slowest.classes), SHOWN_NAMES)} come apart last, and "
        f"the next dimension opens at rate {slowest.growth:.2g} per kappa x learning rate in a network, "
        f"{slowest.growth_free:.2g} per learning rate / samples for free features",
    )
