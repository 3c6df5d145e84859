"""The budget of a proposal."""

from __future__ import annotations

import pytest

from autoopt.dag.proposal.decisions import Effort, effort_for
from autoopt.dag.proposal.templates import MINUTES, TRIALS
from autoopt.model.inspection import Inspection


def model(*ops: str, parameters: int) -> Inspection:
    return Inspection((), (), {"": 17}, 8, dict.fromkeys(ops, 1), parameters, 4 * parameters)


@pytest.mark.parametrize(
    ("inspection", "reason"),
    [
        (model("ai.onnx.ml::TreeEnsembleClassifier", parameters=0), "no matrix product or convolution"),
        (
            model("MatMul", "Relu", parameters=1103),
            "the model has 1103 weights; most of an inference is the call itself",
        ),
    ],
)
def test_models_with_little_to_gain_get_few_trials_and_a_reason(inspection: Inspection, reason: str) -> None:
    effort = effort_for(inspection, 3)
    assert reason in effort.reason
    assert (effort.trials, effort.minutes) == (6, 2)


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("ops", [("Conv",), ("MatMul",)])
def test_other_models_get_the_budget_of_the_level(level: int, ops: tuple[str, ...]) -> None:
    parameters = 100 if "Conv" in ops else 100_000
    assert effort_for(model(*ops, parameters=parameters), level) == Effort(TRIALS[level], MINUTES[level])
