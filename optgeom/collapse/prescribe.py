r"""Prescription: from a wanted geometry to the loss that has it.

`solve` the other way round: the class means are given, and weights, margins or temperatures per class are sought for
which they are optimal (`targets` says which can be, `knobs` how). The answer is certified like any other: the
certificate is that of the TARGET under the loss that will be trained, computed from the two alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from optgeom import _checks, choices
from optgeom._numerics import Array, Vector
from optgeom.certificates import certify
from optgeom.collapse import targets
from optgeom.collapse.knobs import EXACT, MOST_GROUPS, Conditions, PerClass, Warming, linear_forces, weights_for_pulls
from optgeom.collapse.prescription import Prescription
from optgeom.collapse.targets import Target
from optgeom.errors import IncompatibleError, InvalidInputError
from optgeom.geometry import Geometry
from optgeom.inputs.classes import ClassDistribution
from optgeom.losses.base import Loss
from optgeom.losses.options import BALANCED, BATCH_AVERAGE, CLASS_AVERAGE
from optgeom.programs import group_matrix
from optgeom.programs.class_mean import ClassMeanProgram
from optgeom.result import SolverRun
from optgeom.solvers.api import solve

LARGEST_TABLE = 2000  # classes up to which a weight for every pair of classes is written down
WORTHWHILE_DEG = 1.0  # a prescription that comes no closer must at least halve the distance from the target
LAW = (
    "weights of anchors alone never give the regular simplex to four or more unbalanced classes, unless all classes "
    "but one are equal and the weights meet an exact balance"
)
FEW = "a few negatives without the positive cannot exert these forces, since one class may be all of them"
KEEP = "keep the positive in the denominator: alpha > 0, or take more negatives"


def prescribe(
    classes: ClassDistribution,
    loss: Loss,
    *,
    target: Any = targets.SIMPLEX,
    by: str = "both",
    strength: float = 0.5,
) -> Prescription:
    r"""Weights, margins or temperatures per class with which a wanted geometry is the optimum.

        find theta with    T = argmin { F(A; theta) : A positive semidefinite, diag A = 1 }.

    Any T whose class means have a vanishing positive combination can be had with weights of negatives for every pair
    of classes. One value per class reaches the regular simplex, and other targets only where their forces fit.

    Parameters
    ----------
    classes : ClassDistribution
    loss : Loss
        `SupCon`, `InfoNCE` or `SupConFullBatch`; what `by` does not name stays as it is.
    target : "simplex", (C, C), Geometry or mapping
        The regular simplex; cosines of class means in class order; the optimum of another loss or other proportions of
        the same classes; a tree of classes (`tree_gram`).
    by : {"both", "negative-weights", "margins", "temperatures", "anchor-weights"}
        "both": anchors balanced and negatives averaged by class, and in finite batches the weights near them for the
        exact expectation. "negative-weights": a weight for every pair of classes. "margins", "temperatures": one per
        class of anchors, with negatives averaged by class unless the loss weights them. "anchor-weights": possible in
        exceptional cases only.
    strength : float
        Share in (0, 1) of the largest force with which the loss can hold the target: stronger is firmer (less slack),
        and more extreme in its weights. Without effect for "both" and "anchor-weights".

    Returns
    -------
    Prescription

    Raises
    ------
    InvalidInputError
        A target that no loss has, or that these parameters cannot reach; values outside their domain.
    IncompatibleError
        A loss without weights per class.
    SolverError
        Weights of negatives that the iteration did not find.

    Notes
    -----
    In the limit of large batches, and for "negative-weights" in finite ones too, the answer is exact. One value per
    class seldom can be, in finite batches of five classes or more: the weights are then the best for the exact
    expectation, `certificate` says that the target is not the optimum, and `distance_deg` how far from it that is.

    Examples
    --------
    >>> import optgeom as og
    >>> classes = og.ClassDistribution.from_counts([5000, 1500, 400, 100])
    >>> plan = og.prescribe(classes, og.SupCon(temperature=0.1), by="margins")
    >>> print([round(record["margin"], 4) for record in plan.records()], plan.certificate.certified)
    [0.764, 0.8867, 1.0289, 1.2235] True
    """
    classes = _checks.instance("classes", classes, ClassDistribution, "ClassDistribution.from_counts(...)")
    loss = _checks.instance("loss", loss, Loss, "for example SupCon(temperature=0.1)", what="a loss")
    by = _checks.choice("by", by, choices.Prescribed)
    strength = _checks.real("strength", strength, above=0.0, hint="a share of the largest force, such as 0.5")
    if strength >= 1:
        raise InvalidInputError(f"`strength` must be below 1, the largest force; got {strength} (0.5 is usual)")
    loss.require("class-weights", "groups")
    wanted = target if isinstance(target, Target) else targets.resolve(target, classes)
    search = _Search(classes, loss, wanted, strength)
    changed, notes = KNOBS[by](search)
    return _certified(search, by, changed, (*wanted.notes, *notes))


@dataclass(frozen=True, eq=False)
class _Search:
    """What is sought."""

    classes: ClassDistribution
    loss: Loss
    target: Target
    strength: float

    def conditions(self, base: Loss) -> Conditions:
        """The target on the groups of a loss, or class by class where it tells equal classes apart."""
        index: npt.NDArray[np.intp] = base.groups(self.classes).index
        on_groups = self.target.on_groups(index)
        if on_groups is not None:
            return Conditions(self.classes, *on_groups, index, grouped=True)
        apart = np.arange(index.size)
        one_each = self.target.on_groups(apart)
        assert one_each is not None
        return Conditions(self.classes, *one_each, apart, grouped=False)

    def averaged(self, **changes: Any) -> Loss:
        """The loss with negatives averaged by class, unless it weights them itself, and without margins."""
        weights = getattr(self.loss, "negative_weights", None)
        negative = CLASS_AVERAGE if weights is None else weights
        return self.loss.with_options({"negative_weights": negative, "margin": None, **changes})

    def refuse(self, by: str, why: str, remedy: str = "use 'negative-weights'") -> InvalidInputError:
        """The error that these parameters do not reach the target."""
        return InvalidInputError(f"`by` must reach the target, {self.target.words}; got {by!r}: {why} ({remedy})")


def _with_anchors(program: ClassMeanProgram, classes: ClassDistribution) -> None:
    bare = np.flatnonzero(~(program.anchor_weight > 0)[program.index])
    if bare.size:
        raise InvalidInputError(
            f"`classes` must all have anchors with a positive; got none for {classes.names[bare[0]]} (leave it out, or "
            "take two views)"
        )


def _by_negative_weights(search: _Search) -> tuple[Loss, tuple[str, ...]]:
    classes, loss = search.classes, search.loss
    number = classes.num_classes
    if number > LARGEST_TABLE:
        raise InvalidInputError(
            f"`by` must not be 'negative-weights' for more than {LARGEST_TABLE} classes, of which it weights every "
            f"pair; got {number} classes (use 'both' or 'margins')"
        )
    own = _own_weights(classes, loss)
    if own is None:
        base = loss.with_options({"negative_weights": None, "margin": None})
    else:
        table = np.ones((number, number))
        np.fill_diagonal(table, own)
        base = loss.with_options({"negative_weights": table, "margin": None})
    conditions = search.conditions(base)
    program = conditions.bind(base)
    _with_anchors(program, classes)
    rows, tau = program.rows, program.temperatures
    if "majorizer" not in rows.gives:
        raise IncompatibleError(
            "`loss` must have a denominator in which weights of negatives count; got one negative alone in it, whose "
            "weight is a constant (take more negatives, or keep the positive)"
        )
    t = program.exponents(conditions.cosines)
    force = np.where(rows.count > 0, np.exp(conditions.log_products), 0.0)
    total = (rows.count * force).sum(axis=1) * tau
    notes: tuple[str, ...] = ()
    anchors: dict[str, Any] = {}
    if np.all(np.isneginf(rows.majorizer(t).log_offset)):
        # Nothing else in the denominator: the pulls of every row have the sum 1, which fixes the weights of anchors.
        pulls = force * tau[:, None] / total[:, None]
        if not (
            np.all(rows.largest_multiple(pulls) >= 1 - EXACT) and np.all(rows.smallest_multiple(pulls) <= 1 + EXACT)
        ):
            raise search.refuse("negative-weights", FEW, KEEP)
        anchors["anchor_weights"] = conditions.by_class("anchor_weights", total / program.groups.proportions)
        notes = ("nothing but negatives stands in the denominator: the weights of anchors are prescribed with theirs",)
    else:
        pulls = force * tau[:, None] / rows.anchor_weight[:, None]
        least, most = float(np.max(rows.smallest_multiple(pulls))), float(np.min(rows.largest_multiple(pulls)))
        if least >= most:
            raise search.refuse("negative-weights", FEW, KEEP)
        pulls *= least + search.strength * (most - least)
    weights = np.exp(weights_for_pulls(rows, t, pulls))
    if not np.all(np.isfinite(weights)):
        raise InvalidInputError(
            f"`temperature` must be higher for this target; got {loss.temperature}, at which weights of negatives "
            "overflow"
        )
    whole = np.ones(number) if own is None else own
    table = group_matrix.expand(weights, np.ones(program.sizes.size), program.index)
    np.fill_diagonal(table, whole)
    return base.with_options({"negative_weights": table, **anchors}), notes


def _own_weights(classes: ClassDistribution, loss: Loss) -> Array | None:
    """(C,) weights of the anchor's own class in the denominator, None where they are 1 as usual."""
    given = getattr(loss, "negative_weights", None)
    if given is None:
        return None
    if given == BATCH_AVERAGE:
        return np.asarray(1.0 / (classes.num_classes * classes.proportions))
    values = loss.class_values(classes)
    return None if values is None else np.diag(values.negative).copy()


def _by_margins(search: _Search) -> tuple[Loss, tuple[str, ...]]:
    base = search.averaged()
    conditions = search.conditions(base)
    program = conditions.bind(base)
    _with_anchors(program, search.classes)
    multiple = linear_forces(program, conditions)
    if multiple.min() <= 0:
        raise search.refuse("margins", "one margin per class cannot exert its forces")
    t, tau = program.exponents(conditions.cosines), program.temperatures
    pull = program.rows.count * program.rows.pull(t)
    pulled = np.where(program.rows.count > 0, pull, 0.0).sum(axis=1)
    if pulled.max() >= 1 - 1e-15:
        raise search.refuse("margins", "nothing but negatives stands in the denominator, where margins change nothing")
    weight = program.anchor_weight
    scale = search.strength * float(np.min(weight / (multiple * pulled)))
    margin = tau * np.log(scale * multiple * (1 - pulled) / (weight - scale * multiple * pulled))
    return _fitted(search, "margins", PerClass(conditions, base, {"margin": margin}, math.log(scale)))


def _by_temperatures(search: _Search) -> tuple[Loss, tuple[str, ...]]:
    base = search.averaged(class_temperatures=None)
    conditions = search.conditions(base)
    program = conditions.bind(base)
    _with_anchors(program, search.classes)
    rows = program.rows

    def forces(temperatures: Vector) -> Vector:
        pull = rows.pull((conditions.cosines - 1.0) / temperatures[:, None])
        total = (rows.count * np.where(rows.count > 0, pull, 0.0)).sum(axis=1)
        return np.asarray(program.anchor_weight * total / temperatures)

    product = np.where(rows.count > 0, np.exp(conditions.log_products), 0.0)
    wanted = (rows.count * product).sum(axis=1)
    warming = Warming.of(forces, np.full(wanted.size, 0.5))
    scale = search.strength * float(np.min(warming.peak / wanted))
    temperatures = warming.below(scale * wanted)
    return _fitted(
        search, "temperatures", PerClass(conditions, base, {"class_temperatures": temperatures}, math.log(scale))
    )


def _by_both(search: _Search) -> tuple[Loss, tuple[str, ...]]:
    base = search.loss.with_options({"anchor_weights": BALANCED, "negative_weights": CLASS_AVERAGE, "margin": None})
    conditions = search.conditions(base)
    program = conditions.bind(base)
    _with_anchors(program, search.classes)
    error = conditions.error(program)
    if error <= EXACT:
        return base, ()
    if program.sizes.size > MOST_GROUPS:
        note = f"balanced weights as they are: they are fitted to finite batches for up to {MOST_GROUPS} class sizes"
        return base, (note,)
    share = program.groups.proportions
    start = {"anchor_weights": 1.0 / share, "negative_weights": 1.0 / (search.classes.num_classes * share)}
    return _fitted(search, "both", PerClass(conditions, base, start))


def _by_anchor_weights(search: _Search) -> tuple[Loss, tuple[str, ...]]:
    base = search.loss.with_options({"anchor_weights": None})
    conditions = search.conditions(base)
    program = conditions.bind(base)
    weight = linear_forces(program, conditions)
    if weight.min() > 0:
        values = conditions.by_class("anchor_weights", weight / program.groups.proportions)
        changed = base.with_options({"anchor_weights": values})
        if conditions.error(conditions.bind(changed)) <= EXACT:
            return changed, ()
    why = f"{LAW}; here they do not" if search.target.gram is None else "weights of anchors cannot exert its forces"
    remedy = "use 'both' for the simplex, or 'negative-weights'"
    raise search.refuse("anchor-weights", why, remedy)


KNOBS: dict[str, Callable[[_Search], tuple[Loss, tuple[str, ...]]]] = {
    "both": _by_both,
    "negative-weights": _by_negative_weights,
    "margins": _by_margins,
    "temperatures": _by_temperatures,
    "anchor-weights": _by_anchor_weights,
}


def _fitted(search: _Search, by: str, knob: PerClass) -> tuple[Loss, tuple[str, ...]]:
    fit = knob.fit()
    if fit.error > EXACT and knob.log_scale is not None:
        # Another strength may do where this one does not.
        free = replace(knob, log_scale=None).fit()
        fit = free if free.error <= EXACT else fit
    if fit.error <= EXACT:
        return fit.loss, ()
    if "log-sum" in knob.conditions.bind(knob.base).rows.gives:
        pairs = "one value per class cannot exert the forces of all pairs"
        raise search.refuse(by, f"{pairs}; the best leaves {100 * math.expm1(fit.error):.2g} % in one of them")
    note = f"in finite batches one value per class leaves {100 * math.expm1(fit.error):.2g} % in the force of a pair"
    return fit.loss, (note,)


def _certified(search: _Search, by: str, changed: Loss, notes: tuple[str, ...]) -> Prescription:
    conditions = search.conditions(changed)
    program = conditions.bind(changed)
    certified = certify(program, conditions.cosines)
    if certified.certificate.certified:
        geometry = Geometry(
            classes=search.classes,
            index=program.index,
            group_sizes=program.sizes,
            group_cosines=certified.cosines,
            risk=certified.risk,
            certificate=certified.certificate,
            loss=changed,
            solver=SolverRun("prescription", 0, 0.0),
        )
        distance = 0.0
    else:
        geometry = solve(search.classes, changed)
        distance = _distance(search.target, geometry)
        before = _distance(search.target, solve(search.classes, search.loss))
        if distance > max(before / 2, WORTHWHILE_DEG):
            raise search.refuse(
                by, f"in finite batches its optimum stays up to {distance:.3g} degrees away, before {before:.3g}"
            )
        notes = (*notes, f"the optimum is up to {distance:.3g} degrees from the target, before {before:.3g}")
    if changed.images_per_batch is None and "batch_size" in {option.name for option in changed.options()}:
        notes = (*notes, "for the limit of large batches: with `batch_size` the weights are those of your batches")
    return Prescription(
        classes=search.classes,
        loss=changed,
        certificate=certified.certificate,
        geometry=geometry,
        distance_deg=distance,
        target=search.target,
        by=by,
        strength=search.strength,
        given=search.loss,
        notes=notes,
    )


def _distance(target: Target, geometry: Geometry) -> float:
    """Largest difference of an angle, in degrees."""
    if target.gram is None:
        simplex = math.degrees(math.acos(-1.0 / (geometry.num_classes - 1)))
        farthest = geometry.farthest_pairs(1)[0].angle_deg
        return max(abs(geometry.min_angle_deg - simplex), abs(farthest - simplex))
    return float(np.max(np.abs(np.degrees(np.arccos(target.gram)) - geometry.angles())))
