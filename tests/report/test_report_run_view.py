"""The result of a run as a table and a few sentences."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from autoopt.report.run_text import write_run
from autoopt.report.run_view import RunView, model_table, target_text
from autoopt.results import PartResult, RunResult


def targets_of(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A run over the targets `one` and `two`."""
    parts = []
    for name, threads in (("one", 1), ("two", 2)):
        target = {"execution_provider": "CPUExecutionProvider", "threads": threads}
        parts.append({**data, "name": name, "target": target})
    return {**data, "targets": parts, **changes}


def chosen_of(model: dict[str, Any], name: str = "two") -> dict[str, Any]:
    return {"name": name, "models": {"one": model, "two": model}}


def lines_of(result: RunResult) -> list[str]:
    stream = io.StringIO()
    write_run(result, stream)
    return stream.getvalue().splitlines()


def test_the_table_has_source_best_and_front_with_their_changes(result: RunResult) -> None:
    table = model_table(result)
    assert table.columns == ("model", "latency", "change, all measurements", "size", "accuracy", "passes")
    assert table.rows[0] == ("source", "0.1780 ms", "", "409 kB", "99.50 %", "")
    gain = "3.3x faster (3.2 to 3.4)"
    chain = "fold -> static(per_channel)"
    assert table.rows[1] == ("best aaaaaaaa", "0.0500 ms", gain, "123 kB", "99.50 %", chain)
    assert table.rows[2][-1] == "fold -> weights *"
    assert table.strong == 1


def test_the_objective_comes_first(data: dict[str, Any]) -> None:
    objectives = [{"metric": "size", "goal": "minimize"}]
    table = model_table(RunResult.from_json({**data, "objectives": objectives}))
    assert table.columns[:3] == ("model", "size", "change")


def test_the_summary_names_caveats_notes_trials_and_time(result: RunResult) -> None:
    lines = lines_of(result)
    assert "* front bbbbbbbb: accuracy is not certain" in lines
    assert "note: no quality constraint given" in lines
    assert "3 trials: 2 ok, 1 refused (16 trials)" in lines
    assert "time 41.2 s (Prefect start-up 9.8, search 30.0, other 1.5)" in lines
    assert not any("executed" in line for line in lines)


def test_caveats_of_a_set_name_its_models(result: RunResult) -> None:
    assert result.best is not None
    lines = lines_of(replace(result, parts=(PartResult("encoder", result, model=result.best),)))
    [line] = [line for line in lines if "accuracy is not certain" in line]
    assert line.endswith("front bbbbbbbb of model encoder: accuracy is not certain")


def test_a_warning_comes_before_the_answer(result: RunResult) -> None:
    warning = "WARNING: accuracy is at chance"
    lines = lines_of(replace(result, notes=(warning,), warnings=(warning,)))
    assert lines[-3:-1] == [warning, ""]
    assert f"note: {warning}" not in lines


def test_the_answer_comes_last_with_the_files_before_and_the_next_step_behind(result: RunResult) -> None:
    stream = io.StringIO()
    write_run(result, stream, files=["wrote out/"], next_step="Try it: python out/run.py.")
    assert stream.getvalue().splitlines()[-3:] == [
        "wrote out/",
        "",
        "3.3x faster (3.2 to 3.4), 3.3x smaller, accuracy 99.5 % (was 99.5 %). Try it: python out/run.py.",
    ]


def test_the_source_is_the_strong_row_if_it_is_the_best(data: dict[str, Any]) -> None:
    assert model_table(RunResult.from_json({**data, "best": {**data["best"], "chain": "source"}})).strong == 0


def test_without_a_source_latency_the_table_still_stands(data: dict[str, Any]) -> None:
    best = {**data["best"], "ratios": {}}
    result = RunResult.from_json({**data, "baseline": {"metrics": {}}, "best": best, "pareto": []})
    stream = io.StringIO()
    write_run(result, stream)
    assert stream.getvalue().splitlines()[2].split() == ["source", "-", "-", "-"]


def test_a_target_is_described_in_words() -> None:
    target = {"execution_provider": "CPUExecutionProvider", "threads": 2, "python": "/opt/env/bin/python"}
    part = PartResult("two", RunResult("r", "finished"), target)
    assert target_text(part) == "CPUExecutionProvider, 2 threads, runtime of /opt/env/bin/python"
    free = PartResult("free", RunResult("r", "finished"), {**target, "threads": 0, "python": ""})
    assert target_text(free) == "CPUExecutionProvider, threads chosen by the runtime"


def test_several_targets_have_a_table_each_and_one_answer(data: dict[str, Any]) -> None:
    result = RunResult.from_json(targets_of(data, choice=chosen_of(data["best"])))
    stream = io.StringIO()
    write_run(result, stream)
    text = stream.getvalue()
    assert "target one: CPUExecutionProvider, 1 thread\n" in text
    start = "Best on this machine: two (CPUExecutionProvider, 2 threads). Beside your model on one: 3.3x faster"
    assert lines_of(result)[-1].startswith(start)


def test_the_best_models_of_all_targets_are_the_rows_of_one_table(data: dict[str, Any]) -> None:
    result = RunResult.from_json(targets_of(data, choice=chosen_of(data["best"])))
    (table,) = RunView(result).short_tables
    assert [row[0] for row in table.rows] == ["source", "one", "two"]
    assert table.title == "the best of each target beside your model on one"


def test_the_answer_of_the_first_target_stands_if_no_other_is_faster(data: dict[str, Any]) -> None:
    result = RunResult.from_json(targets_of(data, choice={"name": "one", "models": {}}))
    assert lines_of(result)[-1].startswith("Best on this machine: one (CPUExecutionProvider, 1 thread). 3.3x faster")
