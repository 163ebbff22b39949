r"""What value should my loss have? The landmarks of a training curve, as the training code prints them.

    collapsed   all class means at one point, A = 11^T: ln(n - 1) for SupCon with n rows in a batch, ln(alpha + q k) for InfoNCE;
    optimal     F at the certified optimum of these classes: no network goes below it;
    simplex     F at the regular simplex, which is what balanced classes would give, for the SAME imbalanced classes.

A printed loss is scale * (F + constant): SupContrast multiplies by temperature / base temperature, and the risk of
SupCon in the limit of large batches leaves log(views (N - 1)) out. Where the batch size is known nothing is left out:
the value is then that of finite batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom.collapse.flatness import flat_share
from optgeom.collapse.loss_verdict import Landmarks, verdict
from optgeom.errors import InvalidInputError, NotCertifiedError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.inputs.labels import encode
from optgeom.losses import InfoNCE, Loss, SupCon, SupConFullBatch
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.api import solve
from optgeom.solvers.newton import simplex

VALUE_GAP = 1e-8  # relative duality gap up to which the optimal VALUE is known, whatever the geometry


@dataclass(frozen=True)
class LossValues:
    """Landmarks of a training curve; every value is multiplied by `scale`.

    Attributes
    ----------
    collapsed_value : float
        All features at one point.
    optimal_value : float or None
        The lowest value that any features reach, up to the certificate's gap; None without classes.
    simplex_value : float or None
        The regular simplex for the same classes; equal to the optimum when the classes are balanced.
    collapsed_formula : str
        Where `collapsed_value` comes from, in words.
    scale : float
        temperature / base temperature, 1 without a base temperature.
    constant : float or None
        What was added to the risk of the loss; None where it depends on a batch size that was not given (the limit of
        SupCon).
    rows : int or None
        n, rows in a batch, where the loss has batches.
    loss : dict or None
        Name and parameters of the loss that the values belong to, with the batch size that `rows` stands for.
    observed : float or None
        The value to be judged.
    verdict : str or None
        What `observed` says; None without it.
    geometry : Geometry or None
        The optimum that `optimal_value` belongs to, with its certificate.
    notes : tuple of str
    """

    collapsed_value: float
    optimal_value: float | None
    simplex_value: float | None
    collapsed_formula: str
    scale: float
    constant: float | None
    rows: int | None = None
    loss: dict[str, Any] | None = None
    observed: float | None = None
    verdict: str | None = None
    geometry: Geometry | None = None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; of the geometry its rank, regime and certificate."""
        found = {key: getattr(self, key) for key in self.__dataclass_fields__ if key != "geometry"}
        found["notes"] = list(self.notes)
        held = self.geometry
        found |= (
            {"rank": None, "regime": None, "certificate": None}
            if held is None
            else {"rank": held.rank, "regime": held.regime}
        )
        if held is not None:
            found["certificate"] = held.certificate.as_dict()
        return found


@dataclass(frozen=True)
class BatchLossValues(LossValues):
    """Landmarks for the labels of one batch.

    Attributes
    ----------
    anchors : int
        Rows of the batch.
    anchors_without_positive : int
        Rows whose label no other row has.
    per_anchor_collapsed : tuple of (float or None)
        Collapsed value of each image's rows, in the order of the labels; None where there is no positive.
    """

    anchors: int = 0
    anchors_without_positive: int = 0
    per_anchor_collapsed: tuple[float | None, ...] = ()


def loss_values(
    classes: ClassDistribution | None = None,
    loss: Loss | None = None,
    rows: int | None = None,
    base_temperature: float | None = None,
    observed: float | None = None,
    tolerance: float = 0.01,
) -> LossValues:
    """Collapsed, optimal and balanced-simplex value of a loss, and what an observed value says.

    Parameters
    ----------
    classes : ClassDistribution, optional
        Without them only the collapsed value is known. SimCLR with N pairs: `ClassDistribution.from_groups([1], [N])`,
        every image its own class, and `SupConFullBatch(temperature, views=2)`.
    loss : Loss, optional
        Needed with classes, and for its temperature with `base_temperature`.
    rows : int, optional
        n >= 3 rows in a batch (images times views), for SupCon: the collapsed value is ln(n - 1) and, with classes,
        batches of n / views images are taken exactly.
    base_temperature : float, optional
        T_base of code that multiplies the loss by temperature / T_base (SupContrast: 0.07).
    observed : float, optional
        A value printed in training, averaged over some batches, to be judged.
    tolerance : float
        Values count as equal when they differ by less than this share of the way from collapsed to optimal (of the
        collapsed value, where the optimum is not known).

    Returns
    -------
    LossValues

    Raises
    ------
    InvalidInputError
        Neither classes nor a batch, rows that contradict the loss, an observed value without a batch size, or a loss
        that is undefined for these classes.
    NotCertifiedError
        The optimal value is not known to a relative gap of 1e-8.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2 (SupCon). Chen et al. 2020, arXiv 2002.05709 (SimCLR).
    """
    if rows is not None:
        rows = _checks.integer(
            "rows", rows, at_least=3, hint="images times views; with two rows the loss is 0 for all features"
        )
    scale = _scale(loss, base_temperature)
    if observed is not None:
        observed = _checks.real("observed", observed, hint="the loss that training prints")
    tolerance = _tolerance(tolerance)
    if classes is None:
        found = _without_classes(loss, rows, scale)
    elif loss is None:
        raise InvalidInputError("`loss` must be given with classes; got None (for example SupCon(0.1, batch_size=256))")
    else:
        found = _with_classes(classes, *_in_batches(classes, loss, rows), scale)
    return _judged(found, observed, loss, base_temperature, tolerance)


def _tolerance(tolerance: float) -> float:
    hint = "0.01 is one percent of the way from collapsed to optimal"
    number = _checks.real("tolerance", tolerance, above=0.0, hint=hint)
    if number >= 0.5:  # a value half way would be both collapsed and optimal
        raise InvalidInputError(f"`tolerance` must be below 0.5; got {tolerance!r} ({hint})")
    return number


def _scale(loss: Loss | None, base_temperature: float | None) -> float:
    if base_temperature is None:
        return 1.0
    if loss is None:
        raise InvalidInputError(
            "`base_temperature` needs a loss; got none (values are multiplied by its temperature / base_temperature)"
        )
    return loss.temperature / _checks.real(
        "base_temperature", base_temperature, above=0.0, hint="SupContrast uses 0.07"
    )


def _judged(
    found: LossValues, observed: float | None, loss: Loss | None, base: float | None, tolerance: float
) -> LossValues:
    if observed is None:
        return found
    if found.constant is None:
        raise InvalidInputError(
            "`observed` needs the size of the batches; got the limit of SupCon (give rows or a batch size: --rows or --batch-size)"
        )
    marks = Landmarks(
        found.collapsed_value, found.optimal_value, found.simplex_value, found.collapsed_formula, found.scale
    )
    temperature = loss.temperature if loss is not None and base is None else None
    return replace(found, observed=observed, verdict=verdict(observed, marks, tolerance, temperature))


def _without_classes(loss: Loss | None, rows: int | None, scale: float) -> LossValues:
    if rows is None and isinstance(loss, SupCon) and loss.batch_size != math.inf:
        rows = int(loss.batch_size) * loss.views
    if rows is None:
        raise InvalidInputError(
            "`classes` must be given, or `rows` of a SupCon batch; got neither (ln(rows - 1) needs nothing else)"
        )
    if not (loss is None or isinstance(loss, (SupCon, SupConFullBatch))):
        raise InvalidInputError("`rows` goes with SupCon, whose batches have rows; for other losses give `classes`")
    note = "holds where every row has a positive; rows without one lower the mean"
    return LossValues(
        scale * math.log(rows - 1), None, None, _scaled(f"ln({rows} - 1)", scale), scale, 0.0, rows, notes=(note,)
    )


def _in_batches(classes: ClassDistribution, loss: Loss, rows: int | None) -> tuple[Loss, int | None]:
    """The loss with its batch size where `rows` tells it, and the rows of a batch where it has batches."""
    if isinstance(loss, SupConFullBatch):
        total = None if classes.counts is None else int(classes.counts.sum()) * loss.views
        if rows is not None and rows != total:
            wanted = f"the sum of all counts times the views, {total}, for the full batch"
            raise InvalidInputError(
                f"`rows` must be {wanted}; got {rows} (leave it out, or use SupCon with its batch size)"
            )
        return loss, total
    if not isinstance(loss, SupCon):
        if rows is not None:
            raise InvalidInputError(
                f"`rows` goes with SupCon; got {rows} with another loss (its number of negatives says all)"
            )
        return loss, None
    known = None if loss.batch_size == math.inf else int(loss.batch_size) * loss.views
    if rows is None or rows == known:
        return loss, known
    if known is not None:
        raise InvalidInputError(f"`rows` must be batch_size times views, {known}; got {rows} (give one of the two)")
    if rows % loss.views:
        raise InvalidInputError(
            f"`rows` must be a multiple of the {loss.views} views; got {rows} (a batch holds every view of its images)"
        )
    return replace(loss, batch_size=rows // loss.views), rows


def _with_classes(classes: ClassDistribution, loss: Loss, rows: int | None, scale: float) -> LossValues:
    program = ClassMeanProgram.build(classes, loss)
    notes = [*_batch_notes(classes, loss, program)]
    collapsed = program.risk(np.ones_like(program.rows.count))
    balanced = program.risk(simplex(program))
    try:
        geometry = solve(classes, loss)
    except NotCertifiedError as error:
        # The value needs less than the geometry does: a small duality gap proves it even where the objective is too
        # flat for cosines.
        geometry = error.geometry
        gap = geometry.certificate.gap
        if not gap <= VALUE_GAP * (1 + abs(geometry.risk)):
            raise
        notes.append("the loss is so flat here that the optimal value is proved, but not the geometry that attains it")
    optimal = geometry.risk
    if geometry.certificate.certified and geometry.rank > 1:
        notes.append(
            f"the optimal value needs embeddings of {geometry.rank} dimensions or more; in fewer the lowest value is higher"
        )
    share = flat_share(program, optimal)
    if share is not None:
        between = f"simplex and optimum differ by {100 * share:.1g} % of the way from collapsed to optimal"
        notes.append(f"{between}: the loss hardly tells them apart, angles do")
    unknown = isinstance(loss, SupCon) and loss.batch_size == math.inf
    return LossValues(
        0.0 if unknown else scale * collapsed,
        scale * optimal,
        scale * balanced,
        _scaled(_formula(loss, rows, collapsed), scale),
        scale,
        None if unknown else 0.0,
        rows,
        loss.to_dict(),
        geometry=geometry,
        notes=tuple(notes),
    )


def _scaled(formula: str, scale: float) -> str:
    return formula if scale == 1 else f"{scale:.6g} times {formula}"


def _formula(loss: Loss, rows: int | None, collapsed: float) -> str:
    if isinstance(loss, InfoNCE):
        if loss.negatives == math.inf:
            return f"ln({loss.alpha:g} + 1)"
        factor = 1.0 if loss.negatives_reduction == "sum" else 1 / loss.negatives
        return f"ln({loss.alpha:g} + {factor * loss.negatives:g})"
    if not isinstance(loss, (SupCon, SupConFullBatch)):
        return "psi(0, ..., 0)"
    if rows is None:
        return "the limit of ln(n - 1) - ln(n - views)"
    short = collapsed < math.log(rows - 1) * (1 - 1e-12)
    return f"ln({rows} - 1)" + (" times the share of anchors that have a positive" if short else "")


def _batch_notes(classes: ClassDistribution, loss: Loss, program: ClassMeanProgram) -> Iterable[str]:
    """What a batch does to the value, for people who meet it in their logs."""
    groups = program.groups
    if isinstance(loss, SupConFullBatch):
        assert classes.counts is not None
        alone = int(np.sum(classes.counts * loss.views == 1))
        if alone:
            fate = "count as 0" if loss.singletons == "zero" else "are skipped, left out of the mean"
            yield f"{alone} of {int(classes.counts.sum()) * loss.views} anchors without a positive: they {fate}"
    if not isinstance(loss, SupCon):
        return
    if loss.batch_size == math.inf:
        added = "ln(N - 1)" if loss.views == 1 else f"ln({loss.views} (N - 1))"
        yield f"limit of large batches: batches of N images add {added}, up to terms of order 1/N (a batch size gives exact values)"
        return
    n, share = int(loss.batch_size), groups.proportions
    absent = float(np.sum(groups.sizes * np.exp(n * np.log1p(-share))))
    single = float(np.sum(groups.sizes * n * share * np.exp((n - 1) * np.log1p(-share))))
    held = f"on average {single:.1f} classes have one image in a batch and {absent:.1f} none"
    yield f"exact for batches of {n} images drawn independently; {held}"
    if loss.views == 1:
        fate = "count as 0" if loss.singletons == "zero" else "are skipped, left out of the mean"
        yield f"on average {100 * single / n:.2g} % of the anchors have no positive and {fate}"


def batch_loss_values(
    labels: Any,
    temperature: float = 0.1,
    views: int = 1,
    singletons: str = "zero",
    base_temperature: float | None = None,
    observed: float | None = None,
    tolerance: float = 0.01,
) -> BatchLossValues:
    """Landmarks of the SupCon loss for the labels of one batch, and which anchors have no positive.

    Parameters
    ----------
    labels : array-like of shape (N,)
        Label of each image of the batch.
    temperature : float
        T > 0.
    views : int
        Rows an image, V >= 1.
    singletons : {"zero", "skip"}
        Anchors without a positive count as 0, or are left out of the mean.
    base_temperature, observed, tolerance
        As in `loss_values`.

    Returns
    -------
    BatchLossValues

    Raises
    ------
    InvalidInputError
        Labels that are no labels, fewer than three rows, or no anchor with a positive: SupCon is then undefined, not 0.
    """
    loss = SupConFullBatch(temperature, views, singletons)
    encoded = encode(labels)
    rows_of = encoded.counts * views
    rows, kept = int(rows_of.sum()), encoded.codes[encoded.codes >= 0]
    scale = _scale(loss, base_temperature)
    if rows < 3:
        raise InvalidInputError(
            f"`labels` must make three rows or more (images times views); got {rows} (with two the loss is always 0)"
        )
    if np.all(rows_of == 1):
        raise InvalidInputError(
            "`labels` must hold a label twice; "
            f"got {rows} different ones: no anchor has a positive, SupCon is undefined, not 0 (use two views)"
        )
    if encoded.counts.size == 1:
        found = _one_class(rows, scale)
    else:
        classes = ClassDistribution.from_counts(encoded.counts, encoded.names)
        found = _with_classes(classes, loss, rows, scale)
    found = _judged(found, observed, loss, base_temperature, _tolerance(tolerance))
    collapsed = tuple(scale * math.log(rows - 1) if rows_of[code] > 1 else None for code in kept)
    held = {key: getattr(found, key) for key in found.__dataclass_fields__}
    return BatchLossValues(
        **held, anchors=rows, anchors_without_positive=int(np.sum(rows_of == 1)), per_anchor_collapsed=collapsed
    )


def _one_class(rows: int, scale: float) -> LossValues:
    """By Jensen no features of one class beat one point.

    Sum_j exp(s_j) over n - 1 rows is at least (n - 1) exp(mean s).
    """
    value = scale * math.log(rows - 1)
    note = "one class has nothing to be told apart from: one point is the optimum, and the collapsed value is the floor"
    return LossValues(value, value, value, _scaled(f"ln({rows} - 1)", scale), scale, 0.0, rows, notes=(note,))
