"""What the loss determines, for `optgeom solve --slack` and `--saddles`: the figures and their lines in the table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optgeom.formatting import first_of, short
from optgeom.progress import progress_bar

if TYPE_CHECKING:
    from optgeom.collapse.ranges import PairRange, Ranges, SlackNeeded
    from optgeom.collapse.relaxation import Relaxation
    from optgeom.collapse.saddles import Saddles
    from optgeom.geometry import Geometry

SHOWN_NAMES = 4


@dataclass(frozen=True, kw_only=True)
class Determined:
    """What was asked about a certified geometry; None for what was not."""

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

    def lines(self) -> Iterable[tuple[str, str]]:
        """Lines of the summary."""
        if self.ranges is not None and self.needed is not None:
            yield from _slack_lines(self.ranges, self.needed)
        if self.free is not None and self.network is not None:
            yield "Slowest angle", _rate_line(self.free, self.network)
        if self.saddles is not None:
            yield from _saddle_lines(self.saddles)


def determine(geometry: Geometry, *, slack: float | None, whole: bool, saddles: bool) -> Determined:
    """Compute what the options ask for."""
    import optgeom
    from optgeom.errors import IncompatibleError

    answers: dict[str, Any] = {}
    if slack is not None:
        with progress_bar("near-optimal ranges") as update:
            answers["ranges"] = optgeom.ranges(geometry, slack=slack, own=not whole, progress=update)
            answers["needed"] = optgeom.slack_needed(geometry, progress=update)
        try:
            answers["free"] = optgeom.relaxation(geometry, kernel="free")
            answers["network"] = optgeom.relaxation(geometry, kernel="network")
        except IncompatibleError:  # singletons of a full batch: their angles have no rates of their own
            answers.pop("free", None)
    if saddles:
        answers["saddles"] = optgeom.saddles(geometry.classes, geometry.loss)
    return Determined(**answers)


def _share(value: float) -> str:
    """A share of the loss range as a percentage with two digits."""
    return f"{100 * value:.2g} %"


def _slack_lines(ranges: Ranges, needed: SlackNeeded) -> Iterable[tuple[str, str]]:
    whose = "per image of the two classes of a pair" if ranges.own else "of all images"
    yield (
        "Slack",
        f"{_share(ranges.slack)} of the way from optimal to collapsed ({ranges.loss_range:.4g}), {whose}: "
        f"{len(ranges.determined)} of {len(ranges)} angles are determined to {ranges.tolerance_deg:g} degrees",
    )
    smallest = needed.smallest
    names = needed.geometry.names
    noise = "" if needed.batch_share is None else f", one batch mean varies by {_share(needed.batch_share)}"
    yield (
        "Slack needed",
        f"to fix every angle to {needed.tolerance_deg:g} degrees the loss must come within {_share(smallest.whole)} of "
        f"the way of its floor (classes {short(names[smallest.first])} and {short(names[smallest.second])}); single "
        f"precision resolves {_share(needed.float32_share)}{noise}",
    )


def _rate_line(free: Relaxation, network: Relaxation) -> str:
    classes = first_of(map(short, network.slow_classes(SHOWN_NAMES)), SHOWN_NAMES)
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
