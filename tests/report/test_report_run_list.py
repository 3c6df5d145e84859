"""The list of runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoopt.metrics import Objective
from autoopt.report.run_list import RunRow, runs_table
from autoopt.results import RunResult


def row_of(result: RunResult | None) -> tuple[str, ...]:
    return runs_table([RunRow("0123456789abcdef", "quick", "cnn", "finished", 0.0, result)]).rows[0]


def test_a_finished_run_shows_its_own_objective_and_its_best_chain(result: RunResult) -> None:
    row = row_of(result)
    assert (row[0], row[2], row[-1]) == ("0123456789ab", "3.3x faster (3.2 to 3.4)", "fold -> static(per_channel)")
    accurate = replace(result, objectives=(Objective("accuracy", "maximize"),))
    assert row_of(accurate)[2] == "accuracy 99.5 % (was 99.5 %)"


@pytest.mark.parametrize(("undecided", "shown"), [("", "no gain"), ("1 other candidate may be better", "undecided")])
def test_a_run_that_kept_the_source_has_no_gain_or_could_not_decide(
    result: RunResult, undecided: str, shown: str
) -> None:
    assert result.best is not None
    kept = replace(result, best=replace(result.best, chain="source"), undecided=undecided)
    assert row_of(kept)[2] == shown


def test_a_run_without_a_result_or_a_best_model_is_listed(result: RunResult) -> None:
    assert (row_of(None)[2:5], row_of(None)[-1]) == (("-", "finished", "-"), "-")
    row = row_of(replace(result, best=None))
    assert (row[2], row[4], row[-1]) == ("-", "3: 2 ok, 1 refused", "-")
