"""The plots of a search."""

from __future__ import annotations

from dataclasses import replace

from autoopt.metrics import Constraint, Objective
from autoopt.report.plots import best_so_far, trade_off, trade_offs
from autoopt.results import RunResult, Trial

LATENCY = Objective("latency_p50", "minimize")


def test_best_so_far_follows_feasible_trials_only(trials: list[Trial]) -> None:
    plot = best_so_far(trials, LATENCY)
    assert [(mark.x, mark.y, mark.style) for mark in plot.marks] == [(1, 0.9, "bad"), (2, 0.3, "good")]
    assert plot.steps == ((2.0, 0.3),)
    assert plot.y_title == "latency_p50 ratio"


def test_best_so_far_rises_for_an_objective_to_maximize(trials: list[Trial]) -> None:
    feasible = [replace(trial, result=replace(trial.result, violation=-1.0)) for trial in trials]
    plot = best_so_far(feasible, Objective("size", "maximize"))
    assert [y for _, y in plot.steps] == [0.196, 0.302]


def test_the_trade_off_marks_the_front_and_the_source(result: RunResult, trials: list[Trial]) -> None:
    plot = trade_off(result, trials, "size")
    assert [(mark.x, mark.y) for mark in plot.marks if mark.style == "front"] == [(0.3, 0.302), (0.9, 0.196)]
    assert (plot.marks[-1].style, plot.marks[-1].x, plot.marks[-1].y) == ("source", 1.0, 1.0)


def test_quality_is_plotted_by_its_value(result: RunResult, trials: list[Trial]) -> None:
    plot = trade_off(result, trials, "accuracy")
    assert plot.marks[-1].y == 0.995
    assert plot.y_title == "accuracy"


def test_there_is_a_plot_for_each_metric_that_matters(result: RunResult, trials: list[Trial]) -> None:
    assert list(trade_offs(result, trials)) == ["size", "accuracy"]
    constrained = replace(result, constraints=(Constraint("latency_p90", max=1.0),))
    assert list(trade_offs(constrained, trials)) == ["latency_p90", "size", "accuracy"]


def test_trials_without_the_metric_are_left_out(result: RunResult, trials: list[Trial]) -> None:
    assert trade_off(result, trials[:1], "peak_memory").marks == ()
    assert best_so_far(trials[:1], LATENCY).marks == ()
