"""Collapsed geometries: time to a certificate where dimensions are lost.

The loss is SCL with infinitely many negatives and alpha 0; proportions are i^-s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import _rivals
import _tables
import numpy as np
from _harness import Row
from _suite import Effort, Table
from _versus import Contest, Rival, conic_rival, contest, oblique_rivals, of_class_means

import optgeom as og
from optgeom.programs.class_mean import ClassMeanProgram

Problem = tuple[str, float, int]  # exponent, temperature, classes

CLARABEL: dict[Problem, float] = {("2", 1.0, 20): 5.0, ("2", 1.0, 40): 50.0}  # -> least ratio
ALONE: dict[Problem, float] = {("2", 1.0, 100): 1.5, ("2.1", 1.0, 300): 1.0, ("2.5", 0.5, 1000): 5.0}  # -> most seconds
PYMANOPT: tuple[Problem, ...] = (("2", 1.0, 20), ("2", 1.0, 40), ("2", 1.0, 100))
SMALL: tuple[Problem, ...] = (("2", 1.0, 20),)
REPEATS, RIVAL_REPEATS = 5, 3


def name(problem: Problem) -> str:
    return f"zipf {problem[0]}, temperature {problem[1]:g}"


def classes_of(exponent: str, number: int) -> og.ClassDistribution:
    return og.ClassDistribution.from_counts(np.arange(1, number + 1.0) ** -float(exponent))


def read(geometry: og.Geometry) -> tuple[Any, str]:
    return geometry.gram, f"rank {geometry.rank}, {geometry.solver.name}"


def against(
    problems: tuple[Problem, ...], rivals: Callable[[Effort], Mapping[str, Rival]], runs: int, effort: Effort
) -> Iterator[Row]:
    chosen: tuple[Problem, ...] = effort.plan(problems, SMALL, (("2", 1.0, 6),))
    found = []
    for problem in chosen:
        exponent, temperature, number = problem
        classes, loss = classes_of(exponent, number), og.InfoNCE(temperature, math.inf, 0.0, "mean", "scl")
        judge = of_class_means(ClassMeanProgram.build(classes, loss, grouped=False))
        theirs = partial(_rivals.scl_limit, classes.proportions, temperature)
        found.append(Contest(name(problem), number, partial(og.solve, classes, loss), read, theirs, judge, runs, "inf"))
    return contest(effort, found, rivals(effort), effort.plan(REPEATS, 1, 1))


TABLES = (
    Table(
        "collapse-clarabel",
        "Collapsed geometries against CVXPY + Clarabel",
        "The rank that is left is low, and a low-rank method uses it.",
        partial(against, tuple(CLARABEL), lambda effort: conic_rival("CLARABEL"), RIVAL_REPEATS),
        partial(_tables.versus, targets={(name(problem), problem[2]): least for problem, least in CLARABEL.items()}),
    ),
    Table(
        "collapse-pymanopt",
        "Collapsed geometries against pymanopt",
        "A preconditioner and a staircase of ranks beat a trust region that starts at rank C. No target was set.",
        partial(against, PYMANOPT, oblique_rivals, 1),
        partial(_tables.versus, targets={}),
    ),
    Table(
        "collapse-large",
        "Larger collapsed geometries",
        "A certified collapsed geometry of a thousand classes is a matter of seconds.",
        partial(against, tuple(ALONE), lambda effort: {}, 0),
        partial(_tables.within, targets={(name(problem), problem[2]): (most, 1e-9) for problem, most in ALONE.items()}),
    ),
)
