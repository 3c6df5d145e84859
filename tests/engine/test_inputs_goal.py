"""The goal of a run: defaults for objectives, quality and metrics."""

from __future__ import annotations

import pytest

from autoopt.engine.inputs.goal import GoalRequest, make_goal
from autoopt.errors import InputError
from autoopt.metrics import STEADY_STATE, Constraint, Metric, Objective
from autoopt.spec import load_dag

LABELLED = {"labels": True, "label_kind": "class"}


def names(request: GoalRequest, data: dict[str, object] | None = None) -> set[str]:
    return {metric.name for metric in make_goal(request, data)[0].metrics}


def test_by_default_the_median_latency_is_minimised() -> None:
    goal, _ = make_goal(GoalRequest(), LABELLED)
    assert goal.objectives == (Objective("latency_p50", "minimize"),)


@pytest.mark.parametrize(
    ("kind", "metric", "bound"),
    [("class", "accuracy", 0.01), ("value", "r2", 0.01), ("tensor", "psnr", 0.5), ("other", "accuracy", 0.01)],
)
def test_the_kind_of_label_decides_the_quality_constraint(kind: str, metric: str, bound: float) -> None:
    goal, notes = make_goal(GoalRequest(), {"labels": True, "label_kind": kind})
    assert goal.constraints == (Constraint(metric, max_drop=bound),)
    assert notes == [f"no quality constraint given; requiring a drop in {metric} of at most {bound}"]


@pytest.mark.parametrize("data", [None, {"labels": False}])
def test_without_labels_the_outputs_are_compared(data: dict[str, object] | None) -> None:
    goal, notes = make_goal(GoalRequest(), data)
    assert goal.constraints == (Constraint("cosine", min=0.99),)
    assert notes == ["no quality constraint given; requiring cosine of at least 0.99"]
    assert {"cosine", "max_abs_error", "top1_agreement"} <= names(GoalRequest(), data)


def test_an_empty_list_of_constraints_turns_the_default_off() -> None:
    goal, notes = make_goal(GoalRequest(constraints=()), LABELLED)
    assert (goal.constraints, notes) == ((), [])


def test_a_constraint_on_size_does_not_replace_the_quality_constraint() -> None:
    goal, _ = make_goal(GoalRequest(constraints=[Constraint("size", max_ratio=0.5)]), LABELLED)
    assert [constraint.metric for constraint in goal.constraints] == ["size", "accuracy"]


def test_a_task_metric_of_the_user_replaces_the_default() -> None:
    request = GoalRequest(constraints=[Constraint("f1", max_drop=0.02)])
    assert "f1" in names(request, LABELLED)
    assert "accuracy" not in names(request, LABELLED)
    assert "f1" in [axis.metric for axis in make_goal(request, LABELLED)[0].front]


def test_latencies_and_size_are_always_measured() -> None:
    assert {*STEADY_STATE, "size"} <= names(GoalRequest(objectives=[Objective("size", "minimize")]), LABELLED)


def test_the_front_has_the_objectives_size_and_quality() -> None:
    goal, _ = make_goal(GoalRequest(objectives=[Objective("throughput", "maximize")]), LABELLED)
    assert [(axis.metric, axis.goal) for axis in goal.front] == [
        ("throughput", "maximize"),
        ("size", "minimize"),
        ("accuracy", "maximize"),
    ]


def test_metrics_are_measured_once() -> None:
    goal, _ = make_goal(GoalRequest(objectives=[Objective("size", "minimize")], extra_metrics=["size"]), LABELLED)
    measured = [metric.name for metric in goal.metrics]
    assert len(measured) == len(set(measured))


def test_a_dag_states_its_goal() -> None:
    cost = Metric("cost", "euro", "minimize", "custom", "the cost of an inference")
    spec = load_dag(
        {
            "name": "d",
            "passes": {"a": {"pass": "name_fix", "objectives": [{"metric": "peak_memory"}]}},
            "chains": [["a"]],
            "objectives": [{"metric": "cost"}],
            "constraints": [{"metric": "accuracy", "max_drop": 0.1}],
            "search": {"strategy": "per-chain", "order": "pass-by-pass"},
            "user_script": "mine.py",
        }
    )
    request = GoalRequest.of(spec, {"cost": cost})
    assert request.objectives == [Objective("cost", "minimize")]
    assert request.constraints == [Constraint("accuracy", max_drop=0.1)]
    assert request.extra_metrics == ["peak_memory"]
    assert "cost" in names(request, LABELLED)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(InputError, match="unknown metric 'speed'"):
        make_goal(GoalRequest(objectives=[Objective("speed", "maximize")]), LABELLED)
