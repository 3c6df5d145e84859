from typing import Any

from autoopt.metrics import Estimate
from autoopt.report.document import RunDocument, Trial, kind


def test_models_are_source_best_and_the_rest_of_the_front(document: RunDocument) -> None:
    assert [m.label for m in document.models] == ["source", "best", "front"]
    assert document.models[2].chain == "fold -> weights"


def test_a_source_that_wins_is_shown_once(data: dict[str, Any]) -> None:
    source = {**data["best"], "chain": "source"}
    document = RunDocument.from_json({**data, "best": source, "pareto": [source]})
    assert [m.label for m in document.models] == ["source"]


def test_candidates_that_differ_only_in_session_options_are_two(data: dict[str, Any]) -> None:
    tuned = {**data["best"], "session_options": {"execution_mode": "parallel"}}
    document = RunDocument.from_json({**data, "pareto": [data["best"], tuned]})
    assert len(document.models) == 3


def test_metrics_are_those_asked_for_with_size_and_quality(data: dict[str, Any]) -> None:
    assert RunDocument.from_json(data).metrics == ("latency_p50", "size", "accuracy")
    asked = {**data, "objectives": [{"metric": "latency_p90"}], "constraints": [{"metric": "accuracy"}]}
    assert RunDocument.from_json(asked).metrics == ("latency_p90", "size", "accuracy")
    asked = {**data, "objectives": [{"metric": "size"}]}
    assert RunDocument.from_json(asked).metrics == ("latency_p50", "size", "accuracy")


def test_the_kind_of_a_metric_is_known_by_its_name() -> None:
    assert [kind(name) for name in ("peak_memory", "top3_accuracy", "mine")] == ["memory", "task", "custom"]


def test_a_document_without_any_part_is_empty() -> None:
    document = RunDocument.from_json({})
    assert document.best is None
    assert document.models == (document.source,)


def test_a_trial_is_feasible_only_when_ok_and_within_the_constraints(trials: list[Trial]) -> None:
    assert [t.feasible for t in trials] == [False, False, True]
    assert trials[2].ratios["latency_p50"] == Estimate(0.3, 0.29, 0.31)
