"""The list of runs."""

from __future__ import annotations

from dataclasses import replace

from autoopt.metrics import Objective
from autoopt.report.run_list import RunRow, runs_table
from autoopt.results import RunResult


def test_a_finished_run_shows_its_objective_and_its_best_chain(result: RunResult) -> None:
    (row,) = runs_table([RunRow("0123456789abcdef", "quick", "cnn", "finished", 0.0, result)]).rows
    assert row[0] == "0123456789ab"
    assert (row[2], row[-1]) == ("3.3x faster (3.2 to 3.4)", "fold -> static(per_channel)")


def test_the_objective_is_the_runs_own(result: RunResult) -> None:
    accurate = replace(result, objectives=(Objective("accuracy", "maximize"),))
    (row,) = runs_table([RunRow("ff", "quick", "cnn", "finished", 0.0, accurate)]).rows
    assert row[2] == "accuracy 99.5 % (was 99.5 %)"


def test_a_run_without_a_result_is_listed(result: RunResult) -> None:
    (row,) = runs_table([RunRow("ff", "quick", "cnn", "running", 0.0)]).rows
    assert (row[2:5], row[-1]) == (("-", "running", "-"), "-")


def test_a_run_without_a_best_model_shows_its_trials(result: RunResult) -> None:
    (row,) = runs_table([RunRow("ff", "quick", "cnn", "finished", 0.0, replace(result, best=None))]).rows
    assert (row[2], row[4], row[-1]) == ("-", "3: 2 ok, 1 refused", "-")


def test_a_run_that_kept_the_source_has_no_gain(result: RunResult) -> None:
    assert result.best is not None
    kept = replace(result, best=replace(result.best, chain="source"))
    (row,) = runs_table([RunRow("ff", "quick", "cnn", "running", 0.0, kept)]).rows
    assert (row[3], row[2]) == ("running", "no gain")


def test_a_run_that_could_not_decide_is_no_run_without_a_gain(result: RunResult) -> None:
    assert result.best is not None
    best = replace(result.best, chain="source")
    undecided = replace(result, best=best, undecided="1 other candidate may be better")
    (row,) = runs_table([RunRow("ff", "quick", "cnn", "finished", 0.0, undecided)]).rows
    assert row[2] == "undecided"
