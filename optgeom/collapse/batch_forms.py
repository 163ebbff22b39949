r"""Values of losses that know no class counts: pairs, a queue, or as many images of every class.

Every one of these programs does not change when its images, or classes, are exchanged, and is convex in the inner
products: averaging over all exchanges raises nothing, so that one similarity of positives and one of negatives are
optimal, 1 and -1/(n - 1) for n points (positive semidefiniteness bounds their difference; with two towers the average
of all inner products of both is that of the means, and bounds it as well). With T the temperature:

    clip, mnrl    N pairs, logits of every first with every second (both ways for CLIP):
                  ln N collapsed,             log( 1 + (N - 1) exp(-N/((N-1) T)) )  at the floor;
    simclr        2 N rows, the other 2 N - 1 in the denominator:
                  ln(2 N - 1),                log( 1 + 2 (N - 1) exp(-N/((N-1) T)) );
    queue         one positive and K keys of a queue (MoCo): ln(K + 1); of n images, InfoNCE with k = K and n equally
                  frequent classes; of more and more images    log( 1 + K exp(-1/T) )    (Jensen, mean cosine >= 0);
    sampler       P of C classes, K images of each with V views: ln(P K V - 1),
                  log( (V K - 1) + (P - 1) V K exp(-C/((C-1) T)) ).

At the floor of pairs and of the sampler every batch has the same value: it has no noise.
"""

from __future__ import annotations

import math

from optgeom import _checks, choices
from optgeom.collapse.loss_values import LossValues, check_share, judged
from optgeom.errors import InvalidInputError
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses import InfoNCE, Loss, SupConFullBatch
from optgeom.solvers.api import solve

TOWERS = {"clip": "image to text and text to image", "mnrl": "one way: every first with every second"}


def pair_loss_values(
    pairs: int,
    *,
    form: str,
    temperature: float = 0.1,
    dim: int | None = None,
    observed: float | None = None,
    equal_within: float = 0.01,
) -> LossValues:
    """Collapsed and lowest value of a loss on pairs that are each other's negatives, all different.

    Parameters
    ----------
    pairs : int
        N >= 2 in a batch (of all devices, where they are gathered).
    form : {"simclr", "clip", "mnrl"}
        "simclr": NT-Xent, mean over 2 N rows. "clip": mean of both directions of the N x N cross-entropy. "mnrl": one
        direction of it (MultipleNegativesRankingLoss; its scale is 1/T).
    temperature : float
        T > 0, dimensionless.
    dim : int, optional
        Embedding dimension. Below N - 1 the lowest value is known by a bracket.
    observed : float, optional
        A value printed in training, to be judged.
    equal_within : float
        See `loss_values`.

    Returns
    -------
    LossValues
        `batch_sd` is 0 where the floor is reached: all batches have its value.

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.

    References
    ----------
    Chen et al. 2020, arXiv 2002.05709 (NT-Xent). Radford et al. 2021, arXiv 2103.00020 (CLIP). Henderson et al. 2017,
    arXiv 1705.00652 (multiple negatives ranking).

    Examples
    --------
    >>> import optgeom as og
    >>> values = og.pair_loss_values(128, form="clip", temperature=0.07, observed=4.852)
    >>> print(f"{values.collapsed_value:.6f} {values.optimal_value:.2e}")
    4.852030 7.09e-05
    """
    pairs = _checks.integer("pairs", pairs, at_least=2, hint="the pairs of a batch are each other's negatives")
    form = _checks.choice("form", form, choices.PairForm)
    temperature = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.01 to 1")
    each = 2 if form == "simclr" else 1
    floor = math.log1p(each * (pairs - 1) * math.exp(-pairs / ((pairs - 1) * temperature)))
    collapsed = math.log(each * (pairs - 1) + 1)
    towers = {"simclr": f"2 x {pairs} rows, each with the {2 * pairs - 1} others"} | TOWERS
    note = f"{towers[form]}; all pairs of a batch taken to be different"
    if form == "mnrl":
        note += f"; temperature {temperature:g} is scale {1 / temperature:g}"
    formula = f"ln({2 * pairs} - 1)" if form == "simclr" else f"ln {pairs}"
    values = LossValues(
        collapsed_value=collapsed,
        optimal_value=floor,
        simplex_value=floor,
        collapsed_formula=formula,
        scale=1.0,
        constant=0.0,
        rows=2 * pairs,
        batch_sd=0.0,
        notes=(note, *_dimensions(pairs, dim)),
    )
    values = _in_dimensions(values, pairs, form, temperature, dim)
    return judged(values, observed, 1, None, check_share(equal_within))


def _dimensions(points: int, dim: int | None) -> tuple[str, ...]:
    if dim is None:
        needs = f"the floor needs embeddings of {points - 1} dimensions or more; in fewer the lowest value is higher"
        return (needs,) if points > 2 else ()
    return ()


def _in_dimensions(values: LossValues, points: int, form: str, temperature: float, dim: int | None) -> LossValues:
    """With `dim` below what the floor needs: a bracket, whose lower end holds for both towers."""
    if dim is None or _checks.integer("dim", dim, at_least=1) >= points - 1:
        return values if dim is None else LossValues(**{**vars(values), "dim": dim})
    equal = ClassDistribution.from_groups([1], [points])
    loss: Loss = SupConFullBatch(temperature, 2)
    offset = 0.0
    if form != "simclr":
        loss, offset = InfoNCE(temperature, math.inf, 0.0, "mean"), math.log(points)
    ends = solve(equal, loss, dim=dim).bracket
    assert values.optimal_value is not None
    # With two towers the bound of few dimensions, which is about one, does not hold; that of all dimensions does.
    low = values.optimal_value if form != "simclr" or ends is None else max(values.optimal_value, ends[0] + offset)
    high = values.optimal_value if ends is None else ends[1] + offset
    note = f"the floor of all dimensions needs {points - 1}; {high:.6f} is reached in {dim}"
    changed = {
        "optimal_value": high,
        "bracket": (low, high),
        "batch_sd": None,
        "dim": dim,
        "unlimited_value": values.optimal_value,
        "notes": (*values.notes, note),
    }
    return LossValues(**{**vars(values), **changed})


def queue_loss_values(
    queue: int,
    *,
    images: int | None = None,
    temperature: float = 0.1,
    observed: float | None = None,
    equal_within: float = 0.01,
) -> LossValues:
    """Collapsed and lowest value of InfoNCE with a queue of keys, as in MoCo.

    Parameters
    ----------
    queue : int
        K >= 1 keys of other batches.
    images : int, optional
        n >= 2 different images; keys count as drawn from them independently, so that the own image may be among them.
        None: many more images than keys.
    temperature, observed, equal_within
        As for `pair_loss_values`.

    Returns
    -------
    LossValues

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.

    References
    ----------
    He et al. 2020, arXiv 1911.05722 (MoCo: K = 65536, T = .07; version 2: T = .2).
    """
    queue = _checks.integer("queue", queue, at_least=1, hint="keys in the queue, such as 65536")
    temperature = _checks.real("temperature", temperature, above=0.0, hint="MoCo has 0.07, its version 2 0.2")
    if images is None:
        floor = math.log1p(queue * math.exp(-1.0 / temperature))
        notes = ("the floor of many more images than keys, in as many dimensions as it takes",)
        geometry = None
    else:
        images = _checks.integer("images", images, at_least=2, hint="different images of the data set")
        geometry = solve(ClassDistribution.from_groups([1], [images]), InfoNCE(temperature, queue))
        floor = geometry.risk
        notes = (
            f"keys drawn independently from {images} images: the own image is among them in "
            f"{100 * -math.expm1(queue * math.log1p(-1 / images)):.2g} % of the queues",
        )
    values = LossValues(
        collapsed_value=math.log(queue + 1),
        optimal_value=floor,
        simplex_value=floor,
        collapsed_formula=f"ln({queue} + 1)",
        scale=1.0,
        constant=0.0,
        geometry=geometry,
        notes=notes,
    )
    return judged(values, observed, 1, None, check_share(equal_within))


def sampler_loss_values(
    per_class: tuple[int, int],
    *,
    num_classes: int,
    views: int = 1,
    temperature: float = 0.1,
    base_temperature: float | None = None,
    observed: float | None = None,
    equal_within: float = 0.01,
) -> LossValues:
    """Collapsed and lowest value of SupCon in batches of P classes with K images each.

    Parameters
    ----------
    per_class : (int, int)
        P >= 2 classes of a batch, drawn without replacement, and K >= 1 images of each.
    num_classes : int
        C >= P.
    views : int
        V >= 1 of each image; V K >= 2, or no anchor has a positive.
    temperature, observed, equal_within
        As for `pair_loss_values`.
    base_temperature : float, optional
        See `loss_values`.

    Returns
    -------
    LossValues
        By symmetry the regular simplex is the optimum whatever the class counts, and all batches have its value.

    Raises
    ------
    InvalidInputError
        A parameter outside its domain.
    """
    chosen, each = per_class
    chosen = _checks.integer("per_class[0]", chosen, at_least=2, hint="classes of a batch")
    each = _checks.integer("per_class[1]", each, at_least=1, hint="images of each class in a batch")
    views = _checks.integer("views", views, at_least=1, hint="of each image")
    number = _checks.integer("num_classes", num_classes, at_least=chosen, hint="at least those of a batch")
    temperature = _checks.real("temperature", temperature, above=0.0, hint="usual values are 0.05 to 1")
    rows = views * each
    if rows < 2:
        raise InvalidInputError(
            "`per_class` must give every class two rows or more in a batch; got one image with one view (no anchor has "
            "a positive: take more images, or two views)"
        )
    scale = 1.0
    if base_temperature is not None:
        scale = temperature / _checks.real("base_temperature", base_temperature, above=0.0, hint="SupContrast: 0.07")
    near = math.exp(-number / ((number - 1) * temperature))
    floor = math.log((rows - 1) + (chosen - 1) * rows * near)
    total = chosen * rows
    values = LossValues(
        collapsed_value=scale * math.log(total - 1),
        optimal_value=scale * floor,
        simplex_value=scale * floor,
        collapsed_formula=f"ln({total} - 1)" if scale == 1 else f"{scale:.6g} times ln({total} - 1)",
        scale=scale,
        constant=0.0,
        rows=total,
        batch_sd=0.0,
        notes=(
            f"{chosen} of {number} classes with {each} images each, {views} view{'s' if views > 1 else ''}: classes "
            "are equally frequent, and the simplex is the optimum whatever their counts",
            *_dimensions(number, None),
        ),
    )
    hinted = None if base_temperature is not None else temperature
    return judged(values, observed, 1, hinted, check_share(equal_within))
