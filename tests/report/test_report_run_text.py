"""The end of a run on the screen."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest

from autoopt.metrics import Estimate, Objective
from autoopt.report.run_page import html_report
from autoopt.report.run_text import write_conclusion
from autoopt.report.run_view import RunView, short_table
from autoopt.report.table import markdown
from autoopt.report.words.verdict import verdict
from autoopt.results import MeasurementSummary, PartResult, RunResult


def shown(result: RunResult, **options: Any) -> list[str]:
    stream = io.StringIO()
    write_conclusion(result, stream, **options)
    return stream.getvalue().splitlines()


def labels(result: RunResult) -> list[str]:
    return [row[0] for row in short_table(result).rows]


def variant(data: dict[str, Any], **changes: Any) -> RunResult:
    """The run with changes to the second model of its front."""
    best, small = data["pareto"]
    return RunResult.from_json({**data, "pareto": [best, {**small, **changes}]})


def test_the_table_has_a_header_and_short_aligned_rows(result: RunResult) -> None:
    assert shown(result)[:4] == [
        "model      latency  change, all measurements       size  accuracy  passes",
        "source   0.1780 ms                               409 kB    99.5 %",
        "best     0.0500 ms  3.3x faster (3.2 to 3.4)     123 kB    99.5 %  fold -> static(per_channel)",
        "smaller  0.0500 ms  same speed (1.00x to 1.08x)   80 kB    99.5 %  fold -> weights",
    ]


def test_several_models_have_a_row_each_and_a_table_together(result: RunResult) -> None:
    assert result.best is not None
    encoder = PartResult("encoder", result, share=0.4, model=result.best)
    decoder = PartResult("decoder", result, share=0.6, model=result.baseline)
    assert shown(replace(result, parts=(encoder, decoder)))[:6] == [
        "model    time  by itself                                                             passes",
        "encoder  40 %  3.3x faster (3.2 to 3.4), 3.3x smaller, accuracy 99.5 % (was 99.5 %)  fold -> static",
        "decoder  60 %                                                                        source",
        "together",
        "model      latency  change, all measurements       size  accuracy",
        "source   0.1780 ms                               409 kB    99.5 %",
    ]


def test_notes_are_few_and_the_answer_and_the_next_steps_come_last(result: RunResult) -> None:
    lines = shown(result, files=["wrote out/"], next_steps=["Try it: python out/run.py", "Why: autoopt report"])
    assert lines[4:] == [
        "",
        "best: fold -> static(per_channel)",
        "run 0123456789ab, 0:41: 3 trials: 2 ok, 1 refused",
        "16 trials",
        "note: no quality constraint given",
        "wrote out/",
        "",
        "3.3x faster (3.2 to 3.4), 3.3x smaller, accuracy 99.5 % (was 99.5 %).",
        "Try it: python out/run.py",
        "Why: autoopt report",
    ]


def test_notes_that_were_read_during_the_run_are_not_repeated(result: RunResult) -> None:
    assert not any("note" in line for line in shown(result, shown_notes=["no quality constraint given"]))


def test_warnings_follow_the_answer_also_if_they_were_read_during_the_run(result: RunResult) -> None:
    warning = "WARNING: accuracy is at chance"
    lines = shown(
        replace(result, notes=(warning,), warnings=(warning,)),
        shown_notes=[warning],
        next_steps=["Why: autoopt report"],
    )
    assert lines[-3].startswith("3.3x faster")
    assert lines[-2:] == [warning, "Why: autoopt report"]


def test_of_many_notes_some_are_counted(result: RunResult) -> None:
    lines = shown(replace(result, notes=tuple("abcdef")))
    assert [line for line in lines if "note" in line] == [
        "note: a",
        "note: b",
        "note: c",
        "note: d",
        "and 2 more notes: autoopt runs latest",
    ]


def test_a_disturbed_machine_is_a_note_only_where_the_range_is_wide(result: RunResult) -> None:
    assert result.best is not None
    busy = replace(result.best, measured=MeasurementSummary(rounds=4, disturbed_rounds=3))
    assert not any("disturbed" in line for line in shown(replace(result, best=busy)))
    wide = replace(busy, ratios={**busy.ratios, "latency_p50": Estimate(0.6, 0.4, 0.8)})
    [note] = [line for line in shown(replace(result, best=wide)) if "disturbed" in line]
    assert note.startswith("note: the range is wide because other programs or the host disturbed 3 of 4 measurements")


def test_the_table_numbers_the_trials_and_says_how_to_use_another_row(data: dict[str, Any]) -> None:
    best, small = data["pareto"]
    numbered = {**data, "best": {**best, "trial": 7}, "pareto": [{**best, "trial": 7}, {**small, "trial": 12}]}
    result = RunResult.from_json(numbered)
    assert [row[:2] for row in short_table(result).rows] == [("source", ""), ("best", "7"), ("smaller", "12")]
    assert "to use another row: autoopt export 0123456789ab 12" in shown(result)


def test_rows_are_at_most_100_characters(data: dict[str, Any]) -> None:
    chain = " -> ".join(["simplify"] * 20)
    best = {**data["best"], "chain": chain}
    rows = shown(RunResult.from_json({**data, "best": best, "pareto": [best]}))[:3]
    assert max(map(len, rows)) <= 100
    assert "  … simplify -> " in rows[2]


def test_a_model_gets_a_row_only_if_it_is_noticeably_better_in_something(data: dict[str, Any]) -> None:
    assert labels(variant(data)) == ["source", "best", "smaller"]
    same_size = {"metrics": {**data["best"]["metrics"], "size": 121000}}
    assert labels(variant(data, **same_size)) == ["source", "best"]
    better = {"metrics": {**data["best"]["metrics"], "accuracy": 0.999}}
    assert labels(variant(data, **better)) == ["source", "best", "higher accuracy"]


def test_a_run_with_several_objectives_tells_of_its_front(data: dict[str, Any]) -> None:
    both = (Objective("latency_p50", "minimize"), Objective("size", "minimize"))
    result = replace(variant(data), objectives=both)
    assert f"Pareto front: 2 models: autoopt runs {result.run[:12]}" in shown(result)
    doubtful = replace(variant(data, rivals=[1]), objectives=both)
    (line,) = [line for line in shown(doubtful) if line.startswith("Pareto front")]
    assert line.startswith("Pareto front: 2 models, 1 with no certain advantage over another one: ")
    assert not any(line.startswith("Pareto front") for line in shown(replace(result, objectives=both[:1])))


def test_shares_that_look_equal_get_another_decimal(data: dict[str, Any]) -> None:
    table = short_table(variant(data, metrics={**data["best"]["metrics"], "size": 80000, "accuracy": 0.9953}))
    assert [row[4] for row in table.rows] == ["99.50 %", "99.50 %", "99.53 %"]


def test_the_lossy_model_of_a_run_without_data_is_marked_as_unverified(data: dict[str, Any]) -> None:
    lossy = {**data["best"], "chain": "static", "artifact": "c" * 64}
    result = RunResult.from_json({**data, "best_lossy": lossy})
    assert labels(result) == ["source", "best", "lossy"]
    assert "lossy: static(per_channel)" in shown(result)
    assert shown(result)[-3:] == [
        "Lossless: 3.3x faster (3.2 to 3.4), 3.3x smaller, accuracy 99.5 % (was 99.5 %).",
        "Lossy: 3.3x faster (3.2 to 3.4), 3.3x smaller, accuracy 99.5 % (was 99.5 %).",
        "The lossy model is unverified: it was compared on generated inputs only.",
    ]


def test_without_a_gain_the_source_stands_alone(data: dict[str, Any]) -> None:
    result = RunResult.from_json({**data, "best": {**data["best"], "chain": "source"}, "pareto": []})
    assert labels(result) == ["source"]
    assert shown(result)[0].split() == ["model", "latency", "size", "accuracy"]
    assert shown(result)[-1] == "Not faster: no candidate was measurably better, so your model stays."


@pytest.mark.parametrize(("high", "text"), [(0.377, "faster by an undecided factor"), (1.777, "speed undecided")])
def test_no_page_has_a_number_for_a_factor_that_is_not_known_within_two(
    data: dict[str, Any], high: float, text: str
) -> None:
    wide = {**data["best"]["ratios"], "latency_p50": {"value": 0.123, "low": 0.0777, "high": high}}
    best = {**data["best"], "ratios": wide}
    result = RunResult.from_json({**data, "best": best, "pareto": [best]})
    page = re.sub(r"<svg.*?</svg>|<[^>]+>", " ", html_report(result), flags=re.DOTALL)
    tables = "".join(markdown(table) for table in RunView(result).tables)
    for shown_text in ("\n".join(shown(result)), verdict(result), page, tables):
        assert text in shown_text.lower()
        for number in ("8.1", "12.", "13x", "2.7", "2.65", "0.56", "0.123", "0.0777", "0.377", "1.777"):
            assert number not in shown_text
