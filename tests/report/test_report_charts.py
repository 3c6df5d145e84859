"""The charts of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from page_checks import datasets

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.report.charts import (
    best_so_far,
    constraint_bound,
    effects_chart,
    measurements_chart,
    trade_off,
    trade_offs,
)
from autoopt.report.drawing import Spec
from autoopt.report.effects import FactorEffect
from autoopt.report.run_facts import PairedMeasurement
from autoopt.results import RunResult, Trial, source_result

LATENCY = Objective("latency_p50", "minimize")


def rows_of(chart: Spec | None) -> list[dict[str, Any]]:
    """All rows of a chart that have a description."""
    return [row for rows in datasets(chart) for row in rows if "text" in row]


def test_the_source_and_the_best_model_stand_out(result: RunResult, trials: list[Trial]) -> None:
    rows = rows_of(trade_off(result, trials, "size", links=""))
    assert [row["kind"] for row in rows][-1] == "best"
    assert {row["kind"] for row in rows} >= {"source", "best", "Pareto front"}
    best = rows[-1]
    assert (best["y"], best["low"], best["high"], best["x"]) == (0.3, 0.29, 0.31, 0.302)


def test_a_point_links_to_its_trial_only_if_asked(result: RunResult, trials: list[Trial]) -> None:
    linked = rows_of(trade_off(result, trials, "size", links=""))
    assert "#trial-1" in {row.get("href") for row in linked}
    assert not any("href" in row for row in rows_of(trade_off(result, trials, "size")))


def test_faster_smaller_and_more_accurate_are_up(result: RunResult, trials: list[Trial]) -> None:
    charts = [best_so_far(trials, LATENCY), trade_off(result, trials, "size"), trade_off(result, trials, "accuracy")]
    layers = [chart["layer"] for chart in charts]
    reversed_axes = [{layer["encoding"]["y"]["scale"].get("reverse") for layer in each} for each in layers]
    assert reversed_axes == [{True}, {True}, {True}], "faster is up on every chart"
    assert [scale["reverse"] for scale in scales_of(charts[1], "x")][:1] == [True], "smaller is to the right"
    assert [scale["reverse"] for scale in scales_of(charts[2], "x")][:1] == [False]
    assert charts[0]["layer"][0]["encoding"]["x"]["axis"]["values"][0] == 0


def test_an_outlier_does_not_squeeze_the_others(result: RunResult, trials: list[Trial]) -> None:
    slow = replace(trials[2], number=9, chain="slow", ratios={**trials[2].ratios, "latency_p50": Estimate.exact(50.0)})
    chart = trade_off(result, [*trials, slow], "size")
    assert any("slow" in row["text"] for row in rows_of(chart))
    assert all(scale["domain"][1] < 2 and scale["clamp"] for scale in scales_of(chart, "y"))


@pytest.mark.parametrize("best", [0.3, 0.125, 0.08, 0.02], ids=["3x", "8x", "12x", "50x"])
@pytest.mark.parametrize("other", [None, 0.001], ids=["alone", "beside a broken model"])
def test_the_axis_ends_near_the_best_model(
    result: RunResult, trials: list[Trial], best: float, other: float | None
) -> None:
    fastest = Estimate(best, best * 0.99, best * 1.01)
    faster = replace(result.best, ratios={**result.best.ratios, "latency_p50": fastest})
    shown = list(trials)
    if other is not None:
        ratios = {**trials[2].ratios, "latency_p50": Estimate.exact(other)}
        shown.append(replace(trials[2], number=9, chain="fast", ratios=ratios))
    chart = trade_off(replace(result, best=faster, front=()), shown, "size")
    ends = {tuple(scale["domain"]) for scale in scales_of(chart, "y")}
    assert len(ends) == 1
    low, high = ends.pop()
    assert best / 2.1 < low < best
    assert 1 < high < 2.1


def scales_of(chart: Any, channel: str) -> list[dict[str, Any]]:
    """The scales of one channel in all layers of a chart."""
    found = [chart["encoding"][channel]["scale"]] if "scale" in chart.get("encoding", {}).get(channel, {}) else []
    for layer in chart.get("layer", []):
        found += scales_of(layer, channel)
    return found


def test_a_metric_that_no_trial_has_is_not_drawn(result: RunResult, trials: list[Trial]) -> None:
    assert trade_off(result, trials, "peak_memory") is None
    assert trade_off(RunResult("r", ""), [], "size") is None
    assert best_so_far(trials[:1], LATENCY) is None


def test_trials_are_drawn_without_a_source_or_a_best_model(result: RunResult, trials: list[Trial]) -> None:
    alone = replace(result, baseline=source_result(), best=None, front=())
    kinds = {row["kind"] for row in rows_of(trade_off(alone, trials, "size"))}
    assert kinds == {"breaks a constraint", "meets the constraints"}


def test_quality_comes_before_the_size(result: RunResult, trials: list[Trial]) -> None:
    assert list(trade_offs(result, trials)) == ["accuracy", "size"]


def test_the_best_so_far_counts_only_feasible_trials(trials: list[Trial]) -> None:
    chart = best_so_far(trials, LATENCY)
    steps = [rows for rows in datasets(chart) if "text" not in rows[0]]
    assert steps == [[{"x": 2, "y": 0.3}]]
    assert [row["kind"] for row in rows_of(chart)] == ["breaks a constraint", "meets the constraints"]


@pytest.mark.parametrize(
    ("constraint", "bound"),
    [
        (Constraint("accuracy", max_drop=0.01), 0.985),
        (Constraint("accuracy", min_ratio=0.5), 0.4975),
        (Constraint("accuracy", min=0.9), 0.9),
        (Constraint("size", max_ratio=0.5), 0.5),
        (Constraint("size", max=204391), 0.5),
        (Constraint("peak_memory", max=5.0), None),
    ],
)
def test_a_constraint_is_a_line_on_the_scale_of_the_figures(
    result: RunResult, constraint: Constraint, bound: float | None
) -> None:
    assert constraint_bound(replace(result, constraints=(constraint,)), constraint.metric) == pytest.approx(bound)
    assert constraint_bound(result, constraint.metric) is None


def test_measurements_say_whether_the_machine_was_busy() -> None:
    measurements = [
        PairedMeasurement(Estimate(0.5, 0.4, 0.6), False),
        PairedMeasurement(Estimate(0.5, 0.01, 9.0), True),
    ]
    chart = measurements_chart("latency_p50", measurements, Estimate(0.5, 0.45, 0.55))
    rows = rows_of(chart)
    assert [row["state"] for row in rows] == ["the machine was quiet", "the machine was busy or unsteady"]
    high = {scale["domain"][1] for scale in scales_of(chart, "y")}
    assert max(high) < 1, "a wide interval does not hide the others"
    assert measurements_chart("latency_p50", [], Estimate.exact(1.0)) is None


def test_only_effects_that_explain_something_are_drawn() -> None:
    rows = rows_of(effects_chart([FactorEffect("quant", 0.5, ()), FactorEffect("fold", 0.0, ())]))
    assert [row["text"] for row in rows] == ["quant explains 50% of the variation"]
    assert effects_chart([FactorEffect("fold", 0.0, ())]) is None
