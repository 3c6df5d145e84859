"""Objectives and constraints."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from autoopt.metrics import Constraint, Objective
from autoopt.spec.objectives import ConstraintSpec, ObjectiveSpec, check_metric
from autoopt.spec.source import FieldError
from autoopt.spec.validation import input_error


def test_a_bare_metric_is_optimized_in_its_own_direction() -> None:
    assert ObjectiveSpec.model_validate("latency_p50").objective() == Objective("latency_p50", "minimize")
    assert ObjectiveSpec.model_validate("accuracy").objective() == Objective("accuracy", "maximize")


def test_the_direction_of_a_scripts_metric_is_given() -> None:
    assert ObjectiveSpec(metric="mine").objective("minimize").goal == "minimize"
    assert ObjectiveSpec(metric="mine", goal="maximize").objective("minimize").goal == "maximize"
    assert ObjectiveSpec(metric="size", goal="maximize", weight=2.0).objective() == Objective("size", "maximize", 2.0)


def test_a_constraint_has_all_its_bounds() -> None:
    spec = ConstraintSpec(metric="accuracy", min=0.5, max_drop=0.01, confidence=0.9)
    assert spec.constraint() == Constraint("accuracy", min=0.5, max_drop=0.01, confidence=0.9)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "needs a bound; give one of min, max, min_ratio, max_ratio, max_drop"),
        ({"min": 2.0, "max": 1.0}, "can never hold: 2.0 is above 1.0"),
        ({"min_ratio": 2.0, "max_ratio": 1.0}, "can never hold: 2.0 is above 1.0"),
        ({"max_drop": -1.0}, "max_drop: must be at least 0, not -1.0"),
        ({"max": 1.0, "confidence": 1.0}, "confidence: must be below 1, not 1.0"),
    ],
)
def test_constraints_that_make_no_sense_are_refused(fields: dict[str, float], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ConstraintSpec(metric="size", **fields)
    assert str(input_error(refused.value)) == words


def test_a_drop_in_percentage_points_is_refused_where_the_metric_is_a_fraction() -> None:
    with pytest.raises(ValidationError) as refused:
        ConstraintSpec(metric="accuracy", max_drop=2)
    words = "max_drop: accuracy lies between 0 and 1: a drop of 2 allows everything; 0.02 is 2 percentage points"
    assert str(input_error(refused.value)) == words
    assert ConstraintSpec(metric="psnr", max_drop=2).max_drop == 2
    assert ConstraintSpec(metric="a_metric_of_the_user", max_drop=2).max_drop == 2


def test_an_unknown_metric_is_refused_with_the_nearest() -> None:
    check_metric("latency_p50")
    with pytest.raises(FieldError, match="unknown metric") as refused:
        check_metric("latency_p5")
    assert "latency_p50" in refused.value.remedy
