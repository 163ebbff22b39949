"""Words of the report of a validation: what the verdict means, what to do next, and each number in a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from optgeom.embeddings.result import Validation
from optgeom.formatting import visible
from optgeom.wording import short

NAME_WIDTH = 60  # characters of a class name in a table


class Advice(NamedTuple):
    """A verdict for somebody who meets it for the first time."""

    meaning: str
    next: tuple[str, ...]


ADVICE = {
    "consistent": Advice(
        "The class means stand where the loss wants them for these class sizes, as far as this number of images can tell. Whatever still "
        "separates the embedding from the lowest loss lies within the classes, not in how they stand to each other.",
        (
            "Read the excess risk: what is left is the scatter of images around their class mean.",
            "Classes that stand close together do so because the loss asks for it. To move them apart, change the loss or the sampler.",
        ),
    ),
    "differs": Advice(
        "Some class means are not where the loss would put them for these class sizes, and sampling noise does not explain it.",
        (
            "Make sure that class counts, sampler, loss and temperature are those of training: another setting has another optimum.",
            "Look at the classes at the top of the table. Few large classes: often an early stop or a learning rate; many small classes: "
            "too few images in training for their means to get there.",
            "Embed training images as well. If those agree with the optimum and these do not, it is generalisation, not optimisation.",
        ),
    ),
    "collapsed": Advice(
        "Classes that the loss keeps apart have merged: their means point the same way. No classifier can tell them apart by "
        "direction.",
        (
            "Check the labels of the merged classes, then temperature, learning rate and whether gradients reach the encoder.",
            "Compare the loss of training with what the command optgeom loss says: a collapsed network has a value of its own.",
        ),
    ),
    "inconclusive": Advice(
        "These images cannot tell whether the embedding is at the optimum. This says nothing against the training.",
        (
            "Embed more images of the classes named; several views of one image count as one image.",
            "Or leave those classes out, and judge the rest.",
        ),
    ),
}
UNCERTIFIED = Advice(
    "The embedding has fewer dimensions than the optimum needs. The best geometry in so few dimensions is not certified, so nothing can be "
    "called consistent with it.",
    (
        "Use an embedding dimension of at least the rank that the optimum needs, or read the angles below as a comparison, not as a test.",
    ),
)

# One line for each metric, by name; formulas and sources are in the docstrings of `optgeom.embeddings.metrics`.
METRICS = {
    "class_r2": "share of the differences between the optimal cosines of classes that the embedding has, noise set aside; 1 is best",
    "sample_r2": "share of the variation of the optimal similarities between images that the embedding has; 1 is best",
    "procrustes_r2": "share of the spread of the optimum that the embedding has after the best rotation or reflection; 1 is best",
    "relative_frobenius": "distance of the cosines from the optimal ones, relative to those; 0 is best",
    "nc1": "scatter within classes relative to that of the class means (neural collapse 1); 0 where every class is one point",
    "cdnv_mean": "class-distance normalised variance, mean over pairs; 0 where every class is one point",
    "cdnv_max": "class-distance normalised variance of the worst pair",
    "simplex_frobenius": "distance of the cosines from the balanced simplex, relative; for comparison only",
    "simplex_max_angle_deg": "largest difference from the angle of the balanced simplex, degrees; for comparison only",
    "effective_rank": "how many dimensions the images really use",
    "effective_rank_means": "how many dimensions the class means really use",
    "uniformity": "how evenly the images fill the sphere: logarithm of the mean Gaussian of their distances; lower is more even",
    "tolerance": "mean similarity of two images, counted only if they are of one class",
    "conditional_tolerance": "mean similarity of two images of one class; 1 where every class is one point",
    "alignment": "mean squared distance of two views of one image; 0 is best",
    "saa": "share of images whose nearest neighbour is another view of the same image",
    "cac": "share of the same class among the nearest 5 % of the images; 1 is best",
    "penalty_entropy": "how evenly the loss spreads its force over the negatives, in nats",
    "nearest_mean": "accuracy of assigning each image to the nearest class mean",
    "empirical_loss": "loss of these images, as the training loss is defined",
}


def name_of(text: str, width: int = NAME_WIDTH) -> str:
    """A class name in one line, shortened in the middle."""
    return short(visible(text), width)


def told(text: str, validation: Validation) -> str:
    """A sentence that names classes, with names that would fill the page shortened."""
    text = shortened(text, validation)
    return text[:1].upper() + text[1:]


def shortened(text: str, validation: Validation) -> str:
    """The same for a part of a sentence."""
    for name in (*validation.names, *validation.missing, *validation.extra):
        if len(name) > NAME_WIDTH:  # before control characters are replaced, or it would not be found
            text = text.replace(name, name_of(name))
    return visible(text)


def headline(validation: Validation) -> str:
    """The verdict in one plain sentence, for readers who do not know the words of the verdict itself."""
    judged = validation.judgement
    number, tested = judged.num_pairs, validation.intervals.num_pairs
    if validation.verdict == "consistent":
        within = judged.within_deg or 0.0
        seen = (
            f"to within {within:.1f} degrees" if within <= judged.tolerance_deg else "as far as these images can tell"
        )
        return f"The class means are where the loss wants them, {seen}"
    some = f"{number} of {tested} pairs of classes" if tested > 1 else "The pair of classes"
    are, have = ("is", "has") if number == 1 else ("are", "have")
    if validation.verdict == "differs":
        known = "the angle of the best geometry known in so few dimensions"
        where = "the optimal angle" if validation.geometry.bracket is None else known
        return f"{some} {are} not at {where}"
    if validation.verdict == "collapsed":
        return f"{some} {have} merged, though the loss would keep them apart"
    return f"These images cannot tell: {_why_inconclusive(validation)}"


def _why_inconclusive(validation: Validation) -> str:
    judged = validation.judgement
    if judged.within_deg is None:
        return "no pair of classes can be tested"
    small, without = len(judged.too_small), len(judged.without_direction)
    if small:
        return f"too few of {_classes(small, judged.too_small)}"
    if without:
        return f"the images of {_classes(without, judged.without_direction)} have no common direction"
    if validation.geometry.bracket is not None:
        return "in so few dimensions no optimum is certified"
    return f"an angle may be off by up to {judged.within_deg:.0f} degrees"


def _classes(number: int, names: Sequence[str]) -> str:
    return f"class {name_of(names[0], 30)}" if number == 1 else f"{number} classes"


def advice(validation: Validation) -> Advice:
    """What the verdict means and what to do next."""
    judged = validation.judgement
    lacking = judged.within_deg is None or judged.too_small or judged.without_direction
    if validation.verdict == "inconclusive" and validation.geometry.bracket is not None and not lacking:
        return UNCERTIFIED
    return ADVICE[validation.verdict]


def reason_without_r2(validation: Validation) -> str:
    """Why class r2 is n/a, or how far to trust it."""
    if validation.intervals.num_pairs == 0:
        return "no pair of classes could be tested"
    if validation.class_r2 is None:
        return "at the optimum all pairs have the same angle, so there are no differences to reproduce"
    if validation.deviations.class_r2_weak:
        return "the optimal angles are nearly equal: this mostly measures noise"
    return "share of the differences between the optimal cosines that the embedding has; 1 is best"


def about(value: float, digits: int = 4) -> str:
    """A number for a table."""
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e+")
