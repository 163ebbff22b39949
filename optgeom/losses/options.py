"""Parameters of losses as data: how each is given on a command line, searched over, and named in titles.

This module imports nothing heavy, so that the help of the command line can be built from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Search:
    """How `design` looks for a value of a parameter: from the preferred end on.

    Attributes
    ----------
    end : str
        The preferred end in words: "smallest" or "highest".
    noun : str
        What is preferred small or high: "batch", "number of negatives", "temperature".
    """

    end: Literal["smallest", "highest"]
    noun: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """One parameter of a loss, a field of its class.

    Attributes
    ----------
    name : str
    help : str
        What it is, for the command line: no capital at the start, no full stop at the end.
    default : object
        Value of the field where it is not given.
    kind : {"real", "whole", "choice", "flag", "per-class"}
        "per-class": one of `choices`, or a number for each class by name.
    infinite : bool
        Infinity is a value, too.
    choices : tuple of str
        The values of a choice.
    square : bool
        A (C, C) table is a value, too.
    words : callable
        The value in words, for titles of pictures; "" where it goes without saying.
    search : Search, optional
        How `design` looks for a value; None where it does not.
    """

    name: str
    help: str
    default: Any
    kind: Literal["real", "whole", "choice", "flag", "per-class"]
    infinite: bool = False
    choices: tuple[str, ...] = ()
    square: bool = False
    words: Callable[[Any], str] | None = None
    search: Search | None = None

    def say(self, value: Any) -> str:
        """The value in words: "8 negatives", "temperature 0.1"."""
        if self.words is not None:
            return self.words(value)
        shown = value if isinstance(value, str) else f"{value:g}"
        return f"{self.name.replace('_', ' ')} {shown}"


def _alpha(value: Any) -> str:
    return "positive left out of the denominator" if value == 0 else f"alpha {value:g}"


TEMPERATURE = Option(
    name="temperature",
    help="cosines are divided by it; > 0",
    default=0.1,
    kind="real",
    search=Search(end="highest", noun="temperature"),
)
BATCH_SIZE = Option(
    name="batch_size",
    help="images per batch",
    default=math.inf,
    kind="whole",
    infinite=True,
    words=lambda value: "large batches (limit)" if value == math.inf else f"batches of {value} images",
    search=Search(end="smallest", noun="batch"),
)
SINGLETONS = Option(
    name="singletons",
    help="anchors without a positive count as 0 or are skipped",
    default="zero",
    kind="choice",
    choices=("zero", "skip"),
    words=lambda value: "" if value == "zero" else "anchors without a positive skipped",
)
NEGATIVES = Option(
    name="negatives",
    help="negatives per anchor",
    default=256,
    kind="whole",
    infinite=True,
    words=lambda value: {1: "1 negative", math.inf: "infinitely many negatives"}.get(value, f"{value} negatives"),
    search=Search(end="smallest", noun="number of negatives"),
)
ALPHA = Option(
    name="alpha",
    help="1 keeps the positive in the denominator, 0 leaves it out",
    default=1.0,
    kind="real",
    words=_alpha,
)
REDUCTION = Option(
    name="negatives_reduction",
    help="sum (as usual), or mean, the only one for inf negatives",
    default="sum",
    kind="choice",
    choices=("sum", "mean"),
    words=lambda value: "summed" if value == "sum" else "averaged",
)
SAMPLING = Option(
    name="sampling",
    help="negatives from all classes (ucl) or from the other classes (scl)",
    default="ucl",
    kind="choice",
    choices=("ucl", "scl"),
    words=lambda value: {"ucl": "from all classes (UCL)", "scl": "from other classes (SCL)"}.get(value, value),
)

BALANCED, CLASS_AVERAGE, BATCH_AVERAGE = "balanced", "class-average", "batch-average"


def _weights_words(noun: str) -> Callable[[Any], str]:
    return lambda value: "" if value is None else f"{value} {noun}" if isinstance(value, str) else f"weighted {noun}"


ANCHOR_WEIGHTS = Option(
    name="anchor_weights",
    help="weights of anchors per class",
    default=None,
    kind="per-class",
    choices=(BALANCED,),
    words=_weights_words("anchors"),
)
NEGATIVE_WEIGHTS = Option(
    name="negative_weights",
    help="weights of negatives per class, or for each class of anchors",
    default=None,
    kind="per-class",
    choices=(CLASS_AVERAGE, BATCH_AVERAGE),
    square=True,
    words=_weights_words("negatives"),
)
OWN_CLASS = Option(
    name="own_class_in_denominator",
    help="whether other rows of the anchor's class stand in the denominator",
    default=True,
    kind="flag",
    words=lambda value: "" if value else "own class left out of the denominator",
)
CLASS_TEMPERATURES = Option(
    name="class_temperatures",
    help="temperatures of the anchors of each class",
    default=None,
    kind="per-class",
    words=lambda value: "" if value is None else "a temperature per class",
)
MARGIN = Option(
    name="margin",
    help="margins of the anchors of each class, added to their cosines with other classes",
    default=None,
    kind="per-class",
    words=lambda value: "" if value is None else "a margin per class",
)
WEIGHTS = (ANCHOR_WEIGHTS, NEGATIVE_WEIGHTS, OWN_CLASS, CLASS_TEMPERATURES, MARGIN)


def views(help: str, default: int) -> Option:
    """Views per image, which losses count in their own way."""
    return Option(
        name="views",
        help=help,
        default=default,
        kind="whole",
        words=lambda value: "1 view" if value == 1 else f"{value} views",
    )
