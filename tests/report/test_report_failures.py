"""Failures grouped by reason."""

from __future__ import annotations

import pytest

from autoopt.outcome import Outcome
from autoopt.report.words.failures import failure_groups, outcome_text, plain_reason
from autoopt.results import Trial, TrialResult


def failed(number: int, message: str, outcome: Outcome = Outcome.FAILED) -> Trial:
    return Trial(number, "fold", TrialResult("c", {}, outcome, message=message))


def test_messages_that_differ_in_numbers_are_one_reason() -> None:
    good = Trial(3, "fold", TrialResult("c", {}, Outcome.OK))
    trials = [failed(0, "odd"), failed(1, "took 3.5 s"), failed(2, "took 4 s"), good, failed(4, "odd", Outcome.REFUSED)]
    groups = failure_groups(trials)
    assert [(group.outcome, group.message, [t.number for t in group.trials]) for group in groups] == [
        ("failed", "took 3.5 s", [1, 2]),
        ("failed", "odd", [0]),
        ("refused", "odd", [4]),
    ]


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("static: no Conv", "static: no Conv"),
        (
            "opset: the checker rejects the new model: InferenceError: [ShapeInferenceError] Inference error(s): "
            "(op_type:Reshape): [ShapeInferenceError] Inferred shape and existing shape differ in rank: (3) vs (2)",
            "opset: the checker rejects the new model: (op_type:Reshape): "
            "Inferred shape and existing shape differ in rank: (3) vs (2)",
        ),
        (
            "static: Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Add node. "
            "Name:'Add.1' Status Message: /onnxruntime_src/core/math/element_wise_ops.h:563 "
            "void onnxruntime::BroadcastIterator::Init(ptrdiff_t, ptrdiff_t) axis == 1 was false. 2 by 4",
            "static: Add node 'Add.1': axis == 1 was false. 2 by 4",
        ),
        (
            "fuse: ValidationError: No Op registered for LayerNormalization ==> Context: Bad node spec",
            "fuse: No Op registered for LayerNormalization",
        ),
    ],
)
def test_messages_of_the_runtime_lose_what_only_its_developers_need(message: str, plain: str) -> None:
    assert plain_reason(message) == plain


def test_a_trial_that_breaks_a_constraint_is_grouped_by_the_constraint() -> None:
    trial = Trial(0, "fold", TrialResult("c", {}, Outcome.OK, violation=0.1, reasons=("accuracy too low",)))
    assert outcome_text(trial) == "breaks a constraint"
    assert failure_groups([trial])[0].message == "accuracy too low"
