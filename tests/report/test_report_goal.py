"""Objectives and constraints in words."""

import pytest

from autoopt.metrics import Constraint, Objective
from autoopt.report.goal import constraint_text, objective_text


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (
            Constraint("accuracy", max_drop=0.01, confidence=0.9),
            "accuracy may get worse by at most 0.01, with 90% confidence",
        ),
        (Constraint("size", max=1e6), "size at most 1 MB"),
        (Constraint("size", max_ratio=0.5), "size at most 0.5 times the source's"),
        (Constraint("accuracy", min=0.9, min_ratio=0.99), "accuracy at least 0.9000, at least 0.99 times the source's"),
    ],
)
def test_each_bound_of_a_constraint_is_said(constraint: Constraint, text: str) -> None:
    assert constraint_text(constraint) == text


def test_an_objective_is_said_with_its_goal() -> None:
    assert objective_text(Objective("throughput", "maximize")) == "maximize throughput"
