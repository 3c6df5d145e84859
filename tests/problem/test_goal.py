"""The goal of a run: defaults for objectives, quality and metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoopt.data.description import DataDescription
from autoopt.errors import InputError
from autoopt.metrics import PER_INFERENCE, Constraint, Metric, Objective
from autoopt.problem.goal import DEFAULT_QUALITY, GoalOptions, GoalRequest, make_goal
from autoopt.spec import load_dag

LABELLED = DataDescription(labels=True, label_kind="class")


def names(request: GoalRequest, data: DataDescription | None = None) -> set[str]:
    return {metric.name for metric in make_goal(request, data)[0].metrics}


@pytest.mark.parametrize(
    ("kind", "limit", "said"),
    [
        ("class", Constraint("accuracy", max_drop=0.01), "accuracy may drop by at most 0.01 (--max-drop)"),
        ("value", Constraint("r2", max_drop=0.01), "r2 may drop by at most 0.01 (--max-drop)"),
        ("tensor", Constraint("psnr", max_drop=0.5), "psnr may drop by at most 0.5 (--max-drop)"),
        ("other", Constraint("accuracy", max_drop=0.01), "accuracy may drop by at most 0.01 (--max-drop)"),
        ("token", Constraint("perplexity", max_ratio=1.02), "perplexity at most 1.02 times your model's"),
    ],
)
def test_by_default_the_latency_is_minimized_and_the_kind_of_label_decides_the_limit(
    kind: str, limit: Constraint, said: str
) -> None:
    goal, notes = make_goal(GoalRequest(), DataDescription(labels=True, label_kind=kind))
    assert goal.objectives == (Objective("latency_p50", "minimize"),)
    assert (goal.constraints, notes) == ((limit,), [f"limit: {said}"])


@pytest.mark.parametrize(
    ("classes", "smallest", "limit"), [(2, 10, 0.05), (2, 49, 0.05), (2, 50, None), (20, 10, 0.025), (500, 1, 0.01)]
)
def test_a_rare_class_limits_the_mean_of_the_recalls_too(classes: int, smallest: int, limit: float | None) -> None:
    data = replace(LABELLED, items=1000, classes=classes, smallest_class=smallest, labelled=1000)
    goal, notes = make_goal(GoalRequest(), data)
    limits = {constraint.metric: constraint.max_drop for constraint in goal.constraints}
    assert limits.pop("accuracy") == 0.01
    assert limits == ({} if limit is None else {"balanced_accuracy": limit})
    assert any(f"{smallest} of 1000 labels" in note for note in notes) == (limit is not None)


def test_a_decoder_with_a_cache_maximises_tokens_per_second_unless_the_user_says_otherwise() -> None:
    goal, notes = make_goal(GoalRequest(generates=True), LABELLED)
    assert goal.objectives == (Objective("tokens_per_second", "maximize"),)
    assert {"time_to_first_token", "latency_p50"} <= {metric.name for metric in goal.metrics}
    assert notes[0].startswith("a decoder with a cache: maximizing tokens per second")
    own = GoalRequest(objectives=[Objective("size", "minimize")], generates=True)
    assert make_goal(own, LABELLED)[0].objectives == tuple(own.objectives)


@pytest.mark.parametrize("data", [None, DataDescription()])
def test_without_labels_the_outputs_are_compared(data: DataDescription | None) -> None:
    goal, notes = make_goal(GoalRequest(), data)
    assert goal.constraints == (DEFAULT_QUALITY["agreement"],)
    assert notes[0].startswith("limit: agreement with your model's outputs of at least")
    assert "QUALITY IS A GUESS" in notes[1]
    assert {"agreement", "relative_l2", "max_abs_error"} <= names(GoalRequest(), data)


@pytest.mark.parametrize(("data", "origin"), [(None, "no data"), (DataDescription(), "no labels")])
def test_a_limit_on_fidelity_alone_is_called_a_guess(data: DataDescription | None, origin: str) -> None:
    _, notes = make_goal(GoalRequest(constraints=[Constraint("cosine", min=0.999)]), data)
    assert notes[0].startswith(f"QUALITY IS A GUESS: {origin}")


def test_a_metric_of_the_user_script_is_no_guess() -> None:
    own = Metric("cost", "euro", "minimize", "custom", "")
    request = GoalRequest(constraints=[Constraint("cost", max=1.0)], custom={"cost": own})
    assert make_goal(request, DataDescription())[1] == []


def test_too_few_items_for_the_limit_are_named_once_for_the_run() -> None:
    _, notes = make_goal(GoalRequest(), replace(LABELLED, items=54))
    assert notes[1].startswith("54 items are too few to be certain of a drop in accuracy of at most 0.01")
    assert notes[1].endswith("381 would do")
    assert len(make_goal(GoalRequest(), replace(LABELLED, items=381))[1]) == 1


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("accuracy", max_drop=0.01, confidence=0.9),
        Constraint("accuracy", min=0.9),
        Constraint("psnr", max_drop=0.01),
    ],
)
def test_other_limits_do_not_depend_on_the_number_of_items(constraint: Constraint) -> None:
    assert make_goal(GoalRequest(constraints=[constraint]), replace(LABELLED, items=54))[1] == []


def test_only_a_limit_on_quality_or_an_empty_list_replaces_the_default() -> None:
    goal, notes = make_goal(GoalRequest(constraints=()), LABELLED)
    assert (goal.constraints, notes) == ((), [])
    goal, _ = make_goal(GoalRequest(constraints=[Constraint("size", max_ratio=0.5)]), LABELLED)
    assert [constraint.metric for constraint in goal.constraints] == ["size", "accuracy"]


def test_a_task_metric_of_the_user_replaces_the_default() -> None:
    request = GoalRequest(constraints=[Constraint("f1", max_drop=0.02)])
    assert "f1" in names(request, LABELLED)
    assert "accuracy" not in names(request, LABELLED)
    assert "f1" in [axis.metric for axis in make_goal(request, LABELLED)[0].front]


def test_where_the_user_names_only_fidelity_labels_do_not_matter() -> None:
    request = GoalRequest(constraints=[Constraint("agreement", min=0.9)])
    assert "accuracy" not in names(request, LABELLED)
    assert "agreement" in [axis.metric for axis in make_goal(request, LABELLED)[0].front]


def test_latencies_are_measured_where_one_counts_and_the_size_always() -> None:
    size, accuracy = Objective("size", "minimize"), Objective("accuracy", "maximize")
    assert not {*PER_INFERENCE} & names(GoalRequest(objectives=[size, accuracy]), LABELLED)
    throughput = Objective("throughput", "maximize")
    assert {*PER_INFERENCE, "size"} <= names(GoalRequest(objectives=[throughput]), LABELLED)
    own = {"cost": Metric("cost", "euro", "minimize", "custom", "")}
    custom = GoalRequest([size], [Constraint("cost", max=0.5)], custom=own)
    assert {*PER_INFERENCE} <= names(custom, LABELLED), "something has to run the model"
    limit = Constraint("latency_p99", max=5.0)
    assert {*PER_INFERENCE} <= names(GoalRequest(objectives=[size], constraints=[limit]), LABELLED)
    assert {*PER_INFERENCE} <= names(GoalRequest(objectives=[size], extra_metrics=["latency_p90"]), LABELLED)


def test_the_front_has_the_objectives_size_and_quality() -> None:
    goal, _ = make_goal(GoalRequest(objectives=[Objective("throughput", "maximize")]), LABELLED)
    assert [(axis.metric, axis.goal) for axis in goal.front] == [
        ("throughput", "maximize"),
        ("size", "minimize"),
        ("accuracy", "maximize"),
    ]


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


def test_options_of_the_command_line_override_the_goal() -> None:
    size = Constraint("size", max_ratio=1.0)
    written = GoalRequest([Objective("latency_p50", "minimize")], [size, Constraint("accuracy", max_drop=0.01)])
    assert GoalOptions().apply(written, LABELLED) == written
    smaller = GoalOptions(minimize="size", max_drop=0.05).apply(written, LABELLED)
    assert smaller.objectives == (Objective("size", "minimize"),)
    assert smaller.constraints == [Constraint("accuracy", max_drop=0.05), size]
    assert GoalOptions(minimize="memory").apply(GoalRequest(), None).objectives[0].metric == "peak_memory"
    assert GoalOptions(metric="agreement").apply(GoalRequest(), None).constraints == [DEFAULT_QUALITY["agreement"]]
    in_decibels = Constraint("si_sdr", max_drop=0.3)
    assert GoalOptions(metric="si_sdr").apply(GoalRequest(), LABELLED).constraints == [in_decibels]
    assert GoalOptions(metric="f1").apply(GoalRequest(), LABELLED).constraints == [Constraint("f1", max_drop=0.01)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (GoalOptions(max_drop=0.1), "--max-drop: needs labels in the data"),
        (GoalOptions(metric="f1"), "--metric: needs labels in the data"),
        (GoalOptions(metric="size"), "--metric: size is no metric of quality"),
        (GoalOptions(metric="acuracy"), "did you mean 'accuracy'?"),
    ],
)
def test_a_goal_that_the_data_cannot_show_is_refused(options: GoalOptions, said: str) -> None:
    with pytest.raises(InputError) as refused:
        options.apply(GoalRequest(), None)
    assert said in str(refused.value)
