"""Checks of single arguments: what passes, and what the message says of what does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import optgeom as og
from optgeom import _checks


@pytest.mark.parametrize("value", [3, 3.0, np.int8(3), np.float32(3)])
def test_whole_numbers_of_any_type_are_integers(value: Any) -> None:
    for check in (_checks.integer, _checks.integer_or_inf):
        number = check("n", value, at_least=1)
        assert number == 3
        assert type(number) is int


@pytest.mark.parametrize("value", [True, 2.5, "3", None, 0, math.nan, -math.inf])
def test_other_values_are_refused_with_the_requirement(value: Any) -> None:
    with pytest.raises(og.InvalidInputError, match=r"^`n` must be a whole number >= 1; got .* \(a hint\)$"):
        _checks.integer("n", value, at_least=1, hint="a hint")
    with pytest.raises(og.InvalidInputError, match=r"^`n` must be a whole number >= 1 or inf; got .*"):
        _checks.integer_or_inf("n", value, at_least=1)


def test_infinity_is_an_integer_or_inf_only() -> None:
    assert _checks.integer_or_inf("n", np.float32("inf"), at_least=1) == math.inf
    with pytest.raises(og.InvalidInputError, match="`n` must be a whole number >= 1; got inf"):
        _checks.integer("n", math.inf, at_least=1)


def test_an_object_of_another_class_is_refused_with_the_type_that_came() -> None:
    classes = og.ClassDistribution.from_counts([3, 2])
    hint = "ClassDistribution.from_counts(...)"
    assert _checks.instance("classes", classes, og.ClassDistribution, hint) is classes
    message = r"`classes` must be a ClassDistribution; got int \(ClassDistribution.from_counts\(...\)\)"
    with pytest.raises(og.InvalidInputError, match=f"^{message}$"):
        _checks.instance("classes", 2, og.ClassDistribution, hint)
    with pytest.raises(og.InvalidInputError, match="`loss` must be an InfoNCE; got NoneType"):
        _checks.instance("loss", None, og.InfoNCE, "InfoNCE(temperature=0.1)")
    with pytest.raises(og.InvalidInputError, match="`loss` must be a loss; got str"):
        _checks.instance("loss", "supcon", og.Loss, "SupCon(temperature=0.1)", what="a loss")
