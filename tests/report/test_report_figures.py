"""The metrics that are shown: the run's own objectives and constraints first."""

from __future__ import annotations

from typing import Any

import pytest

from autoopt.metrics import Direction, Estimate, Objective
from autoopt.outcome import Outcome
from autoopt.report.words.figures import (
    chain_text,
    figure,
    first_objective,
    is_better,
    is_quality,
    kind,
    metrics_of,
    model_estimate,
    trial_figures,
    trial_title,
)
from autoopt.results import ModelResult, RunResult, Trial, TrialResult

VALUES = {"latency_p50": 0.5, "accuracy": 0.75, "size": 1000.0}
RATIOS = {"latency_p50": Estimate(0.25, 0.2, 0.3), "size": Estimate.exact(0.5)}


def objective(metric: str) -> dict[str, str]:
    return {"metric": metric, "goal": "minimize"}


def test_the_kind_of_a_metric_is_known_by_its_name() -> None:
    assert [kind(name) for name in ("peak_memory", "top3_accuracy", "mine")] == ["memory", "task", "custom"]


def test_task_fidelity_and_custom_metrics_are_quality() -> None:
    assert [is_quality(name) for name in ("accuracy", "cosine", "mine", "size", "throughput")] == [1, 1, 1, 0, 0]


def test_runs_without_stored_objectives_show_the_latency() -> None:
    assert first_objective(RunResult("r", "finished")) == Objective("latency_p50", "minimize")


def test_a_report_shows_what_was_asked_for_then_size_and_quality(data: dict[str, Any]) -> None:
    assert metrics_of(RunResult.from_json(data)) == ("latency_p50", "size", "accuracy")
    asked = {**data, "objectives": [objective("latency_p90")], "constraints": [{"metric": "accuracy"}]}
    assert metrics_of(RunResult.from_json(asked)) == ("latency_p90", "accuracy", "size")


def test_a_latency_is_shown_even_if_the_objective_is_the_size(data: dict[str, Any]) -> None:
    result = RunResult.from_json({**data, "objectives": [objective("size")]})
    assert metrics_of(result) == ("size", "latency_p50", "accuracy")


def test_tokens_per_second_are_shown_with_the_time_of_a_prompt(data: dict[str, Any]) -> None:
    data["objectives"] = [{"metric": "tokens_per_second", "goal": "maximize"}]
    data["baseline"]["metrics"] |= {"tokens_per_second": 400.0, "time_to_first_token": 10.0}
    assert metrics_of(RunResult.from_json(data))[:2] == ("tokens_per_second", "time_to_first_token")


def test_metrics_that_no_model_has_are_not_shown(data: dict[str, Any]) -> None:
    result = RunResult.from_json({**data, "objectives": [objective("peak_memory")]})
    assert "peak_memory" not in metrics_of(result)


def test_a_latency_is_shown_as_a_ratio_and_quality_as_a_value() -> None:
    assert figure("latency_p50", VALUES, RATIOS) == "0.250x (0.200..0.300)"
    assert figure("accuracy", VALUES, RATIOS) == "0.7500"
    assert figure("cosine", VALUES, RATIOS) == ""


def test_a_size_without_a_ratio_is_shown_as_a_value() -> None:
    assert figure("size", VALUES, {}) == "1 kB"


def test_a_trial_shows_its_headlines_then_size_and_one_quality_metric() -> None:
    metrics = {name: Estimate.exact(value) for name, value in {**VALUES, "cosine": 0.9}.items()}
    result = TrialResult("c", {}, Outcome.OK, metrics=metrics, ratios=RATIOS)
    assert trial_figures(result, ["latency_p50"]) == [
        "latency_p50 0.250x (0.200..0.300)",
        "size 0.500x",
        "accuracy 0.7500",
    ]


def test_a_chain_shows_its_searched_parameters_and_a_star_for_caveats() -> None:
    assert chain_text(ModelResult(chain="a -> b")) == "a -> b"
    flagged = ModelResult(chain="a", point={"a": {"x": 1}}, flags=("busy",))
    assert chain_text(flagged) == "a [a: x=1] *"


def test_passes_that_changed_nothing_are_not_shown() -> None:
    model = ModelResult(chain="a -> b -> c", point={"a": {"x": 1}, "c": {"y": 2}}, steps=("b", "c"))
    assert chain_text(model) == "b -> c [c: y=2]"
    result = TrialResult("c", {"a": {"x": 1}}, Outcome.OK, steps=("b",))
    assert trial_title(Trial(4, "a -> b", result)) == "trial 4: b"


@pytest.mark.parametrize(("goal", "better"), [("minimize", False), ("maximize", True)])
def test_a_higher_value_is_better_if_the_goal_is_to_maximize(goal: Direction, better: bool) -> None:
    assert is_better(2.0, 1.0, goal) is better
    assert not is_better(1.0, 1.0, goal)


def test_the_estimate_of_a_latency_is_its_ratio_and_that_of_quality_its_value() -> None:
    model = ModelResult(metrics={**VALUES, "f1": 0.5}, ratios=RATIOS, intervals={"f1": Estimate(0.5, 0.4, 0.6)})
    assert model_estimate(model, "latency_p50") == RATIOS["latency_p50"]
    assert model_estimate(model, "accuracy") == Estimate.exact(0.75)
    assert model_estimate(model, "f1") == Estimate(0.5, 0.4, 0.6)
    assert model_estimate(model, "peak_memory") is None
