"""Runs as Python programs read them from the store; `test_api.py` has those of finished runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import autoopt
from autoopt.errors import InputError
from autoopt.metrics import Estimate, Objective
from autoopt.results import ModelResult, RunResult, source_result
from autoopt.store import open_store
from autoopt.stored_runs import Run, RunList

BEST = ModelResult(
    artifact="b" * 64,
    chain="<fold>",
    point={"fold": {"level": 2}},
    metrics={"latency_p50": 0.5},
    ratios={"latency_p50": Estimate(0.5, 0.4, 0.6)},
)
RUN = Run.of(
    RunResult(
        "0123456789ab", "finished", baseline=source_result(metrics={"latency_p50": 1.0}), best=BEST, front=(BEST,)
    )
)


def test_the_front_is_a_table_with_ratios_and_parameters() -> None:
    frame = RUN.pareto
    assert list(frame["model"]) == ["source", "best"]
    assert frame.loc[1, ["latency_p50", "latency_p50_ratio", "latency_p50_ratio_low", "fold.level"]].tolist() == [
        0.5, 0.5, 0.4, 2,
    ]  # fmt: skip


def test_a_run_without_trials_has_the_columns_of_others(tmp_path: Path) -> None:
    source = source_result(metrics={"latency_p50": 1.0, "size": 9.0})
    with open_store(home=tmp_path):
        result = RunResult(
            "0123456789ab", "finished", baseline=source, objectives=(Objective("latency_p50", "minimize"),)
        )
        trials = Run.of(result, tmp_path).trials
    feasible = trials[trials.feasible]
    assert feasible.sort_values("latency_p50_ratio")[["trial", "chain", "latency_p50_ratio", "size"]].empty


def test_a_run_is_short_as_text_and_a_table_in_a_notebook() -> None:
    assert repr(RUN) == "Run('0123456789ab', '2.0x faster (1.7 to 2.5).')"
    assert "&lt;fold&gt;" in RUN._repr_html_()


def test_without_pandas_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pandas") as caught:
        _ = Run.of(RUN).pareto
    assert "autoopt[notebook]" in str(caught.value)


def test_nothing_is_made_where_there_is_no_store(tmp_path: Path) -> None:
    for ask in (autoopt.runs, autoopt.load_run):
        with pytest.raises(InputError, match="no store here"):
            ask(home=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_that_is_not_on_this_machine_has_no_session() -> None:
    with pytest.raises(InputError, match="no such model file"):
        BEST.session()


def test_no_runs_are_said() -> None:
    assert repr(RunList()) == "no runs"
    assert RunList()._repr_html_() == "<p>no runs</p>\n"
