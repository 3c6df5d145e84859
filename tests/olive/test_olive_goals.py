"""The goals of Olive's evaluators."""

from __future__ import annotations

from typing import Any

import pytest

Convert = Any


def converted_goals(converted: Convert, *metrics: Any) -> Any:
    return converted(evaluators={"main": {"metrics": list(metrics)}})


def metric(kind: str, name: str, goal: str = "", value: float = 0, priority: int = 1) -> Any:
    sub_type: dict[str, Any] = {"name": name, "priority": priority}
    if goal:
        sub_type["goal"] = {"type": goal, "value": value}
    return {"name": kind, "type": kind, "sub_types": [sub_type]}


@pytest.mark.parametrize(
    ("goal", "value", "bound"),
    [
        ("threshold", 0.9, {"metric": "accuracy", "min": 0.9}),
        ("max-degradation", 0.02, {"metric": "accuracy", "max_drop": 0.02}),
        ("percent-max-degradation", 2, {"metric": "accuracy", "min_ratio": 0.98}),
        ("percent-min-improvement", 2, {"metric": "accuracy", "min_ratio": 1.02}),
    ],
)
def test_goals_of_a_metric_that_is_maximized(converted: Convert, goal: str, value: float, bound: Any) -> None:
    assert converted_goals(converted, metric("accuracy", "accuracy_score", goal, value)).dag["constraints"] == [bound]


@pytest.mark.parametrize(
    ("goal", "value", "bound"),
    [
        ("threshold", 5, {"metric": "latency_mean", "max": 5}),
        ("max-degradation", 1, {"metric": "latency_mean", "max_drop": 1}),
        ("percent-max-degradation", 10, {"metric": "latency_mean", "max_ratio": 1.1}),
        ("percent-min-improvement", 20, {"metric": "latency_mean", "max_ratio": 0.8}),
    ],
)
def test_goals_of_a_metric_that_is_minimized(converted: Convert, goal: str, value: float, bound: Any) -> None:
    assert converted_goals(converted, metric("latency", "avg", goal, value)).dag["constraints"] == [bound]


def test_priorities_give_the_order_of_objectives_and_sub_types_without_one_are_no_objective(converted: Convert) -> None:
    metrics = [
        metric("latency", "avg", priority=2),
        metric("size_on_disk", "bytes"),
        metric("accuracy", "f1", priority=-1),
    ]
    assert converted_goals(converted, *metrics).dag["objectives"] == ["size", "latency_mean"]


def test_an_improvement_that_is_asked_for_is_an_objective(converted: Convert) -> None:
    accuracy = metric("accuracy", "accuracy_score", "max-degradation", 0.05)
    latency = metric("latency", "avg", "percent-min-improvement", 10, priority=-1)
    assert converted_goals(converted, accuracy, latency).dag["objectives"] == ["latency_mean"]


def test_an_objective_is_named_once(converted: Convert) -> None:
    with_two_providers = [metric("latency", "avg"), metric("latency", "avg", priority=2)]
    assert converted_goals(converted, *with_two_providers).dag["objectives"] == ["latency_mean"]


def test_what_has_no_equivalent_is_named(converted: Convert) -> None:
    custom = {"name": "mine", "type": "custom", "sub_types": [{"name": "x"}]}
    rejected = [metric("accuracy", "precision"), metric("latency", "avg", "min-improvement", 3), custom]
    remarks = "\n".join(converted_goals(converted, *rejected).remarks)
    assert "no metric accuracy precision; docs/quality.md lists the metrics" in remarks
    assert "no goal 'min-improvement'; use min_ratio or max_ratio" in remarks
    assert "the code of the custom metric 'mine' is not converted" in remarks
    language = converted(evaluators={"m": {"type": "LMEvaluator", "tasks": ["mmlu"]}})
    assert "no evaluator 'LMEvaluator'" in language.remarks[0]


def test_latencies_that_are_only_reported_are_no_loss(converted: Convert) -> None:
    assert converted_goals(converted, metric("latency", "max", priority=-1)).remarks == ()


def test_several_evaluators_need_a_name(converted: Convert) -> None:
    evaluators = {name: {"metrics": [metric("latency", name)]} for name in ("p50", "p90")}
    assert "objectives" not in converted(evaluators=evaluators).dag
    assert converted(evaluators=evaluators, evaluator="p90").dag["objectives"] == ["latency_p90"]
    assert converted(evaluator=evaluators["p50"]).dag["objectives"] == ["latency_p50"]
