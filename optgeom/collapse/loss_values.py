r"""What value should my loss have? The landmarks of a training curve, as the training code prints them.

    collapsed   all class means at one point, A = 11^T: ln(n - 1) for SupCon with n rows per batch, ln(alpha + q k) for
                InfoNCE;
    optimal     F at the certified optimum of these classes: no network goes below it (with a limit of dimension: the
                lower end of the bracket of what embeddings of so few columns reach, or best found beside it);
    simplex     F at the regular simplex, which is what balanced classes would give, for the SAME imbalanced classes.

A printed loss is scale * (F + constant): SupContrast multiplies by temperature / base temperature, and the risk of
SupCon in the limit of large batches leaves log(views (N - 1)) out. Where the batch size is known nothing is left out:
the value is then that of finite batches.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from optgeom import _checks
from optgeom.collapse.batch_noise import batch_deviation
from optgeom.collapse.loss_verdict import Landmarks, verdict
from optgeom.errors import InvalidInputError, NotCertifiedError
from optgeom.formatting import to_json
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.inputs.labels import encode
from optgeom.losses import Loss, SupCon, SupConFullBatch
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.solvers.api import solve
from optgeom.solvers.newton import simplex

VALUE_GAP = 1e-8  # relative duality gap up to which the optimal VALUE is known, whatever the geometry
FLAT = 0.01  # share of the way from collapsed to optimal below which training hardly tells simplex and optimum apart


@dataclass(frozen=True, kw_only=True)
class LossValues:
    """Landmarks of a training curve; every value is multiplied by `scale`.

    Attributes
    ----------
    collapsed_value : float
        All features at one point.
    optimal_value : float or None
        The lowest value that any features reach, up to the certificate's gap; None without classes. With a `bracket`
        the lowest value found in `dim` dimensions, its upper end.
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
        n, rows per batch, where the loss has batches.
    loss : Loss or None
        The loss that the values belong to, with the batch size that `rows` stands for.
    observed : float or None
        The value to be judged.
    verdict : str or None
        What `observed` says; None without it.
    geometry : Geometry or None
        The optimum that `optimal_value` belongs to, with its certificate.
    dim : int or None
        Embedding dimension that was asked for.
    bracket : (float, float) or None
        In fewer dimensions than the optimum needs: no features with each class at one point go below the first, and
        some reach the second.
    unlimited_value : float or None
        With a bracket: the lowest value in any dimension, which holds for all features.
    batch_sd : float or None
        Standard deviation of the value of one batch at the optimum, from the classes that it happens to hold; None for
        losses without batches of a known size, 0 where all batches have one value.
    notes : tuple of str
    anchors_without_positive : int or None
        With labels: rows whose label no other row has.
    per_anchor_collapsed : tuple of (float or None)
        With labels: collapsed value of each image's rows, in the order of the labels; None where there is no positive.
    """

    collapsed_value: float
    optimal_value: float | None
    simplex_value: float | None
    collapsed_formula: str
    scale: float
    constant: float | None
    rows: int | None = None
    loss: Loss | None = None
    observed: float | None = None
    verdict: str | None = None
    geometry: Geometry | None = None
    dim: int | None = None
    bracket: tuple[float, float] | None = None
    unlimited_value: float | None = None
    batch_sd: float | None = None
    notes: tuple[str, ...] = ()
    anchors_without_positive: int | None = None
    per_anchor_collapsed: tuple[float | None, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; of the geometry its rank, regime and certificate."""
        values = {key: getattr(self, key) for key in self.__dataclass_fields__ if key != "geometry"}
        values |= {"notes": list(self.notes), "loss": None if self.loss is None else self.loss.to_dict()}
        values["bracket"] = to_json(self.bracket)
        if self.per_anchor_collapsed is None:
            del values["per_anchor_collapsed"], values["anchors_without_positive"]
        geometry = self.geometry
        if geometry is None:
            return {**values, "rank": None, "regime": None, "certificate": None}
        certificate = geometry.certificate.as_dict()
        return {**values, "rank": geometry.rank, "regime": geometry.regime, "certificate": certificate}


def loss_values(
    classes: ClassDistribution | None = None,
    loss: Loss | None = None,
    *,
    labels: Any = None,
    rows: int | None = None,
    dim: int | None = None,
    base_temperature: float | None = None,
    observed: float | None = None,
    batches: int = 1,
    equal_within: float = 0.01,
) -> LossValues:
    """Collapsed, optimal and balanced-simplex value of a loss, and what an observed value says.

    Parameters
    ----------
    classes : ClassDistribution, optional
        Without them only the collapsed value is known. SimCLR with N pairs: `ClassDistribution.from_groups([1], [N])`,
        every image its own class, and `SupConFullBatch(temperature, views=2)`.
    loss : Loss, optional
        Needed with classes, and for its temperature with `base_temperature`.
    labels : array-like of shape (N,), optional
        Label of each image of one batch, in place of `classes`: the values of SupCon for exactly these labels, and
        which anchors have no positive. Without `loss` that of `SupConFullBatch()`.
    rows : int, optional
        n >= 3 rows per batch (images times views), for SupCon: the collapsed value is ln(n - 1) and, with classes,
        batches of n / views images are taken exactly.
    dim : int, optional
        d >= 1, with classes: embeddings of d dimensions. In fewer than the optimum needs the lowest value is known by a
        bracket, whose lower end is then the floor of features with each class at one point.
    base_temperature : float, optional
        T_base of code that multiplies the loss by temperature / T_base (SupContrast: 0.07).
    observed : float, optional
        A value printed in training, averaged over `batches` batches, to be judged.
    batches : int
        >= 1. A value below the floor by no more than three standard deviations of such a mean is noise.
    equal_within : float
        Values count as equal when they differ by less than this share of the way from collapsed to optimal (of the
        collapsed value, where the optimum is not known).

    Returns
    -------
    LossValues

    Raises
    ------
    InvalidInputError
        Neither classes nor a batch, a dimension without classes, rows that contradict the loss, an observed value
        without a batch size, a loss that is undefined for these classes, or labels of fewer than three rows or without
        a positive anywhere.
    IncompatibleError
        Labels for a loss that they do not give.
    NotCertifiedError
        The optimal value is not known to a relative gap of 1e-8.

    References
    ----------
    Khosla et al. 2020, arXiv 2004.11362, equation 2 (SupCon). Chen et al. 2020, arXiv 2002.05709 (SimCLR).
    """
    if classes is not None:
        _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    if loss is not None:
        _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    if rows is not None:
        hint = "images times views; with two rows the loss is 0 for all features"
        rows = _checks.integer("rows", rows, at_least=3, hint=hint)
    batches = _checks.integer("batches", batches, at_least=1, hint="how many batches the observed value is the mean of")
    equal_within = check_share(equal_within)
    if dim is not None and classes is None:
        raise InvalidInputError(
            f"`dim` needs `classes`; got {dim!r} without (the collapsed value is the same in every dimension)"
        )
    if labels is not None:
        if classes is not None or rows is not None:
            raise InvalidInputError("`labels` of a batch say its classes and rows; got `classes` or `rows` beside them")
        scale = _scale(loss, base_temperature)
        loss, views = (SupConFullBatch() if loss is None else loss).on_batch()
        values = _of_labels(labels, loss, views, scale)
    elif classes is None:
        values = _without_classes(loss, rows, _scale(loss, base_temperature))
    elif loss is None:
        raise InvalidInputError("`loss` must be given with classes; got None (for example SupCon(0.1, batch_size=256))")
    else:
        values = _with_classes(classes, *loss.in_rows(rows, classes), _scale(loss, base_temperature), dim)
    temperature = loss.shared_temperature if loss is not None and base_temperature is None else None
    return judged(values, observed, batches, temperature, equal_within)


def check_share(equal_within: float) -> float:
    """What counts as equal; raises `InvalidInputError` outside 0 to 0.5."""
    hint = "0.01 is one percent of the way from collapsed to optimal"
    number = _checks.real("equal_within", equal_within, above=0.0, hint=hint)
    if number >= 0.5:  # a value half way would be both collapsed and optimal
        raise InvalidInputError(f"`equal_within` must be below 0.5; got {equal_within!r} ({hint})")
    return number


def _scale(loss: Loss | None, base_temperature: float | None) -> float:
    if base_temperature is None:
        return 1.0
    if loss is None:
        raise InvalidInputError(
            "`base_temperature` needs a loss; got none (values are multiplied by its temperature / base_temperature)"
        )
    return loss.require_shared_temperature("base_temperature") / _checks.real(
        "base_temperature", base_temperature, above=0.0, hint="SupContrast uses 0.07"
    )


def judged(
    values: LossValues, observed: float | None, batches: int, temperature: float | None, equal_within: float
) -> LossValues:
    """The values with what an observed one says.

    Parameters
    ----------
    values : LossValues
    observed : float or None
        None changes nothing.
    batches : int
        That it is the mean of.
    temperature : float or None
        Given where no base temperature was: a value that only a base temperature explains is then recognised.
    equal_within : float
        Checked by `check_share`.
    """
    if observed is None:
        return values
    observed = _checks.real("observed", observed, hint="the loss that training prints")
    if values.constant is None:
        raise InvalidInputError(
            "`observed` needs the size of the batches; got the limit of SupCon (give rows or a batch "
            "size: --rows or --batch-size)"
        )
    marks = Landmarks(
        values.collapsed_value,
        values.optimal_value,
        values.simplex_value,
        values.collapsed_formula,
        values.scale,
        values.batch_sd / math.sqrt(batches) if values.batch_sd else None,
        batches,
        None if values.bracket is None else values.bracket[0],
        values.unlimited_value,
    )
    sentence = verdict(observed, marks, equal_within, temperature)
    return dataclasses.replace(values, observed=observed, verdict=sentence)


def _without_classes(loss: Loss | None, rows: int | None, scale: float) -> LossValues:
    loss, rows = (SupCon() if loss is None else loss).in_rows(rows, None)
    if rows is None:
        raise InvalidInputError(
            "`classes` must be given, or `rows` of a SupCon batch; got neither (ln(rows - 1) needs nothing else)"
        )
    value = loss.collapsed_of_rows(rows)
    return LossValues(
        collapsed_value=scale * value,
        optimal_value=None,
        simplex_value=None,
        collapsed_formula=_scaled(loss.collapsed_formula(rows, value), scale),
        scale=scale,
        constant=0.0,
        rows=rows,
        notes=("holds where every row has a positive; rows without one lower the mean",),
    )


def _with_classes(
    classes: ClassDistribution, loss: Loss, rows: int | None, scale: float, dim: int | None = None
) -> LossValues:
    program = ClassMeanProgram.build(classes, loss)
    notes = [*loss.notes(classes)]
    collapsed = program.risk(np.ones_like(program.rows.count))
    balanced = program.risk(simplex(program))
    try:
        geometry = solve(classes, loss, dim=dim)
    except NotCertifiedError as error:
        # The value needs less than the geometry does: a small duality gap proves it even where the objective is too
        # flat for cosines.
        geometry = error.result
        if not geometry.certificate.gap <= VALUE_GAP * geometry.certificate.scale:
            raise
        notes.append("the loss is so flat here that the optimal value is proved, but not the geometry that attains it")
    optimal = geometry.risk
    ends = geometry.bracket
    if ends is not None:
        needs = f"the optimum needs {geometry.required_rank} dimensions; in {dim} the lowest value"
        known = f"is at least {scale * ends[0]:.6f}, and {scale * ends[1]:.6f} is reached"
        notes.append(f"{needs} {known if ends[1] > ends[0] else 'is the best of all placements on a line'}")
    if geometry.certificate.certified and geometry.rank > 1:
        needs = f"the optimal value needs embeddings of {geometry.rank} dimensions or more"
        notes.append(f"{needs}; in fewer the lowest value is higher")
    share = flat_share(program, optimal)
    if share is not None:
        between = f"simplex and optimum differ by {100 * share:.1g} % of the way from collapsed to optimal"
        notes.append(f"{between}: the loss hardly tells them apart, angles do")
    return LossValues(
        collapsed_value=0.0 if loss.omitted else scale * collapsed,
        optimal_value=scale * optimal,
        simplex_value=scale * balanced,
        collapsed_formula=_scaled(loss.collapsed_formula(rows, collapsed), scale),
        scale=scale,
        constant=None if loss.omitted else 0.0,
        rows=rows,
        loss=loss,
        geometry=geometry,
        dim=dim,
        bracket=None if ends is None else (scale * ends[0], scale * ends[1]),
        unlimited_value=None if geometry.relaxed is None else scale * geometry.relaxed.certificate.lower_bound,
        batch_sd=_batch_sd(geometry, scale),
        notes=tuple(notes),
    )


def _batch_sd(geometry: Geometry, scale: float) -> float | None:
    """Noise of one printed value; where the geometry is not proved its value is, and so is the noise nearly."""
    deviation = batch_deviation(geometry)
    return None if deviation is None else scale * deviation


def flat_share(program: ClassMeanProgram, optimal: float) -> float | None:
    """Share of the achievable loss decrease that separates simplex and optimum, where it is below 1 %.

    (F(simplex) - F*) / (F(collapsed) - F*); None where it is larger, and where the simplex is the optimum up to
    rounding.

    Parameters
    ----------
    program : ClassMeanProgram
    optimal : float
        F*, the risk at the optimum.
    """
    collapsed = program.risk(np.ones_like(program.rows.count))
    behind = program.risk(simplex(program)) - optimal
    return behind / (collapsed - optimal) if 1e-12 < behind < FLAT * (collapsed - optimal) else None


def _scaled(formula: str, scale: float) -> str:
    return formula if scale == 1 else f"{scale:.6g} times {formula}"


def _of_labels(labels: Any, loss: Loss, views: int, scale: float) -> LossValues:
    encoded = encode(labels)
    rows_of = encoded.counts * views
    rows = int(rows_of.sum())
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
        each = scale * loss.collapsed_of_rows(rows)
        of_class = np.array([each])
        # By Jensen no features of one class beat one point: the mean of exp(s_j) over the n - 1 other rows is at least
        # exp(mean s).
        note = (
            "one class has nothing to be told apart from: one point is the optimum, and the collapsed "
            "value is the floor"
        )
        formula = _scaled(loss.collapsed_formula(rows, math.inf), scale)
        values = LossValues(
            collapsed_value=each,
            optimal_value=each,
            simplex_value=each,
            collapsed_formula=formula,
            scale=scale,
            constant=0.0,
            rows=rows,
            notes=(note,),
        )
    else:
        classes = ClassDistribution.from_counts(encoded.counts, encoded.names)
        values = _with_classes(classes, loss, rows, scale)
        program = ClassMeanProgram.build(classes, loss)
        at_one_point = program.rows.value(np.zeros_like(program.rows.count))
        of_class = scale * at_one_point[program.groups.index]
    kept = encoded.codes[encoded.codes >= 0]
    return dataclasses.replace(
        values,
        anchors_without_positive=int(np.sum(rows_of == 1)),
        per_anchor_collapsed=tuple(float(of_class[code]) if rows_of[code] > 1 else None for code in kept),
    )
