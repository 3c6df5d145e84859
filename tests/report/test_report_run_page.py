"""The HTML page of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from page_checks import is_balanced, needs_nothing_else

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.report import pages
from autoopt.report.run_facts import ModelContent, PairedMeasurement, RunFacts
from autoopt.report.run_page import TITLES, Search, html_report
from autoopt.report.table import Table
from autoopt.results import PartResult, RunResult, Trial
from autoopt.results.model import OperatorTime, OperatorTimes

STEP = {"pass": "<static>", "input": "b" * 64, "output": "a" * 64, "params": {"per_channel": True}, "seconds": 1.5}
FACTS = RunFacts(
    name="cnn <x>",
    model="models/cnn.onnx",
    evaluation="data.npz",
    environment={"cpu": {"model": "Fast CPU", "cores": 4}, "os": "Linux", "libraries": {"onnxruntime": "1.31"}},
    lineage={"artifact": "a" * 64, "source": "b" * 64, "steps": [STEP]},
    models={"b" * 64: ModelContent(4000, {"Conv": 3, "Relu": 2}), "a" * 64: ModelContent(1200, {"Conv": 3, "Clip": 1})},
    measurements=[PairedMeasurement(Estimate(0.3, 0.2, 0.4), busy) for busy in (True, False)],
)
GOAL = {"objectives": (Objective("latency_p50", "minimize"),), "constraints": (Constraint("accuracy", max_drop=0.01),)}


def test_the_page_argues_from_the_answer_to_the_trials(result: RunResult, trials: list[Trial]) -> None:
    text = html_report(replace(result, **GOAL), trials, FACTS)
    assert is_balanced(text)
    assert needs_nothing_else(text)
    places = [text.index(f'<h2 id="{name}">{title}</h2>') for name, title in TITLES.items()]
    assert places == sorted(places)
    assert text.index('class="headline"') < places[0]
    for expected in (
        "cnn &lt;x&gt;",
        "accuracy may get worse by at most 0.01",
        "Fast CPU, 4 cores, Linux",
        "no &lt;Conv&gt; &amp; co",
        "-2 Relu, +1 Clip",
        'href="#trial-1"',
        '<li><a href="#step-0">source</a>',
        '<tr id="step-0">',
    ):
        assert expected in text
    assert text.count('role="img"') == 2 * 4, "two trade-offs, the best so far, measurements; wide and narrow"


def test_the_headline_is_one_sentence_and_what_is_open_stands_below_it(result: RunResult, trials: list[Trial]) -> None:
    text = html_report(replace(result, undecided="1 other candidate may be better"), trials, FACTS)
    headline, lead = text.index('<p class="headline">'), text.index('<p class="lead">')
    assert headline < lead < text.index("Still open: 1 other candidate") < text.index("<nav>")
    assert "Still open" not in text[headline:lead]


def test_a_warning_stands_below_the_answer(result: RunResult, trials: list[Trial]) -> None:
    said = "WARNING: accuracy is at <chance>"
    text = html_report(replace(result, notes=(said,), warnings=(said,)), trials, FACTS)
    warning = text.index('<p class="warning">WARNING: accuracy is at &lt;chance&gt;</p>')
    assert text.index('class="headline"') < warning < text.index("<nav>")


def test_a_run_whose_source_stays_has_no_steps_to_show(result: RunResult, trials: list[Trial]) -> None:
    lineage = {"artifact": "b" * 64, "source": "b" * 64, "steps": []}
    text = html_report(result, trials, replace(FACTS, lineage=lineage))
    assert TITLES["lineage"] in html_report(result, trials, FACTS)
    assert TITLES["lineage"] not in text


def test_the_time_of_each_operator_is_told_before_and_after(result: RunResult, trials: list[Trial]) -> None:
    assert "Where the time goes" not in html_report(result, trials, FACTS)
    rows = (OperatorTime("<Conv>", 5.0, 2.0), OperatorTime("QuantizeLinear", None, 0.4))
    times = OperatorTimes(20, rows + tuple(OperatorTime(f"Op{i}", 0.1, 0.1) for i in range(8)))
    text = html_report(result, trials, replace(FACTS, operator_times=times))
    assert is_balanced(text)
    for expected in ("&lt;Conv&gt;", "-3.00 ms", "+0.4000 ms", "2 others", "20 inferences of each model"):
        assert expected in text


def test_without_the_extra_the_page_has_its_tables(
    result: RunResult, trials: list[Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "can_draw", lambda: False)
    text = html_report(result, trials, FACTS)
    assert "<svg" not in text
    assert is_balanced(text)
    assert "Trials</h2>" in text


def test_a_run_without_trials_has_no_section_on_them(result: RunResult) -> None:
    text = html_report(result)
    assert "fold -&gt; static" in text
    assert 'id="trials"' not in text
    assert 'id="failures"' not in text


def test_without_a_best_model_the_page_says_so(result: RunResult, trials: list[Trial]) -> None:
    text = html_report(replace(result, best=None, front=()), trials[:1])
    assert "No model meets the constraints." in text
    assert 'class="tile"' not in text


def test_several_targets_have_a_section_each(result: RunResult, trials: list[Trial]) -> None:
    other = replace(result, run="other")
    targets = (PartResult("one", result, {"threads": 1}), PartResult("<two>", other, {"threads": 1}))
    text = html_report(replace(result, targets=targets), (), RunFacts(part_trials={result.run: trials}))
    assert is_balanced(text)
    assert '<h2 id="target-1">Target one</h2>' in text
    assert '<h2 id="target-2">Target &lt;two&gt;</h2>' in text
    assert text.count("<h3>Trials") == 1


def trials_table(result: RunResult, trials: list[Trial]) -> Table:
    return Search(result, trials, RunFacts(), Table((), ())).all_trials


def test_the_trials_table_distinguishes_failed_from_infeasible_trials(result: RunResult, trials: list[Trial]) -> None:
    assert [row[1] for row in trials_table(result, trials).rows] == ["refused", "breaks a constraint", "ok"]


def test_the_trials_table_begins_with_the_objectives(result: RunResult, trials: list[Trial]) -> None:
    fast = replace(result, objectives=(Objective("latency_p90", "minimize"),))
    assert trials_table(fast, trials).columns[2:5] == ("latency_p90", "size", "accuracy")


def test_a_trial_that_borrows_a_measurement_refers_to_it(result: RunResult, trials: list[Trial]) -> None:
    copy = replace(trials[2], number=3, chain="fold -> other")
    assert [row[2] for row in trials_table(result, [*trials, copy]).rows[2:]] == [
        "3.3x faster (3.2 to 3.4)",
        "3.3x faster, as trial 2",
    ]
