"""A sweep as text, Markdown, JUnit XML, annotations, and the pages of its runs."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from nights_cases import entry
from page_checks import is_balanced, needs_nothing_else

from autoopt.errors import InputError
from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.report.words.verdict import verdict
from autoopt.results import EntryComparison, MetricChange, ModelResult, RunResult, SweepEntry, SweepResult
from autoopt.results.sweep import BROKEN
from autoopt.store import ModelRecord, RunRecord, Store, open_store
from autoopt.store.leases import finish_run
from autoopt.zoo import sweep_report
from autoopt.zoo.sweep_report import (
    change_lines,
    github_annotations,
    headline,
    junit_xml,
    message,
    models_table,
    summary,
    sweep_html,
    sweep_markdown,
    write_run_pages,
    write_sweep,
)

CHANGE = MetricChange("best model", "latency_p50", Estimate(0.5, 0.48, 0.52), Estimate(0.6, 0.58, 0.62), True, "worse")
NEW_RUNTIME = "libraries.onnxruntime 1.30 -> 1.31"
WORSE = EntryComparison("worse", "s1", changes=(CHANGE,), causes=(NEW_RUNTIME,), other_inputs=("DAG b1 -> b2",))
BEST = ModelResult(
    artifact="b" * 64,
    chain="tidy -> quant",
    metrics={"latency_p50": 0.6, "throughput": 50.0, "size": 1000.0, "accuracy": 0.9},
    ratios={name: Estimate.exact(ratio) for name, ratio in (("latency_p50", 0.6), ("throughput", 1.5), ("size", 0.25))},
    flags=("accuracy is not certain",),
)
ENTRY = SweepEntry(
    name="<b>|", status="ok", tags=("cnn",), result=RunResult("r", "finished", best=BEST, reused=True), compared=WORSE
)
SWEEP = SweepResult(
    sweep="0123456789abcdef",
    name="zoo",
    models=(ENTRY,),
    regressions=("<b>|",),
    environment_changes=(NEW_RUNTIME,),
)


def test_text_html_and_markdown_show_the_same() -> None:
    stream = StringIO()
    write_sweep(SWEEP, stream)
    text, html, markdown = stream.getvalue(), sweep_html(SWEEP), sweep_markdown(SWEEP)
    for shown in (text, html, markdown):
        assert "1.7x faster (1.6 to 1.7)" in shown
        assert "2.0x faster (1.9 to 2.1)" in shown
        assert "1 of 1 model regressed" in shown
    assert is_balanced(html)
    assert needs_nothing_else(html)
    assert "autoopt report r -o" in html
    assert "&lt;b&gt;|: worse: latency_p50 of the best model 2.0x faster" in html
    assert "<b>" not in html.replace("&lt;b&gt;", "")
    assert r"\<b\>\|" in markdown
    assert "<b>" not in markdown
    calm = sweep_markdown(replace(SWEEP, models=(replace(ENTRY, compared=EntryComparison("same")),), regressions=()))
    assert calm.lower().count("no regression") == 1


def test_a_row_says_what_the_run_says_of_its_best_model() -> None:
    table = models_table(SWEEP)
    assert ENTRY.result is not None
    assert table.rows[0] == ("<b>|", "worse", verdict(ENTRY.result), "tidy -> quant", "r")
    goal = {"objectives": (Objective("throughput", "maximize"),), "constraints": (Constraint("accuracy", min=0.8),)}
    fast = replace(ENTRY, result=replace(ENTRY.result, **goal))
    assert models_table(replace(SWEEP, models=(fast,))).rows[0][2].startswith("1.5x higher throughput, ")


def test_a_model_that_is_not_good_shows_the_reason() -> None:
    refused = SweepEntry(name="bad", status="refused", reason="not an ONNX model")
    row = models_table(replace(SWEEP, models=(refused,))).rows[0]
    assert row == ("bad", "new", "refused: not an ONNX model", "", "")
    broken = replace(ENTRY, status=BROKEN, reason="latency_p50 is 10 ms")
    assert models_table(replace(SWEEP, models=(broken,))).rows[0][2] == f"{BROKEN}: latency_p50 is 10 ms"


def test_changes_of_values_have_their_intervals() -> None:
    exact = MetricChange("source model", "latency_p50", None, Estimate.exact(2.0), False, "worse")
    moved = replace(exact, before=Estimate(1.0, 0.9, 1.1), after=Estimate(2.0, 1.9, 2.1))
    entry = replace(ENTRY, compared=EntryComparison("worse", changes=(exact, moved)))
    lines = list(change_lines(entry))
    assert lines[0] == "worse: latency_p50 of the source model - -> 2.00 ms"
    assert lines[1].endswith("source model 1.00 ms (0.9000 ms..1.10 ms) -> 2.00 ms (1.90 ms..2.10 ms)")
    wide = replace(moved, after=Estimate(2.0, 1.2, 4.1))
    entry = replace(ENTRY, compared=EntryComparison("worse", changes=(wide,)))
    assert next(change_lines(entry)).endswith("-> undecided")


def test_the_summary_names_regressions_and_possible_causes() -> None:
    assert summary(SWEEP) == [
        "1 model: 1 ok",
        "possible cause, the environment changed: libraries.onnxruntime 1.30 -> 1.31",
        "possible cause, <b>| has other inputs: DAG b1 -> b2",
        "* <b>|: accuracy is not certain",
    ]


def test_a_change_that_a_model_has_not_seen_is_no_cause_of_its_regression() -> None:
    unaffected = replace(ENTRY, name="other", compared=replace(WORSE, causes=()))
    line = f"possible cause, the environment changed: {NEW_RUNTIME}"
    assert f"{line} (<b>|)" in summary(replace(SWEEP, models=(ENTRY, unaffected)))
    alone = replace(SWEEP, models=(unaffected,), regressions=("other",))
    lines = summary(alone)
    assert f"the environment changed since the last sweep: {NEW_RUNTIME}" in lines
    assert line not in lines
    assert "Changed since" not in message(alone)


def test_models_with_the_same_caveat_share_a_line() -> None:
    lines = summary(replace(SWEEP, models=(ENTRY, replace(ENTRY, name="other"))))
    assert lines[-1] == "* <b>|, other: accuracy is not certain"


def test_the_summary_of_an_accepted_sweep_says_so() -> None:
    last = summary(replace(SWEEP, accepted=True))[-1]
    assert last == "accepted: this sweep is the new baseline, regressions included"


def test_the_summary_of_a_sweep_without_results_says_so() -> None:
    empty = SweepResult("s", "zoo", improvements=("m",))
    assert (summary(empty), headline(empty)) == (["0 models: none"], "No model has a result.")


def test_a_message_names_models_that_have_no_result() -> None:
    refused = [SweepEntry(f"mlp{i}", "refused", reason="no data") for i in range(2)]
    assert message(replace(SWEEP, models=(ENTRY, *refused), regressions=(), improvements=("<b>|",))).startswith(
        "No regression in 3 models; without a result: mlp0, mlp1; better: <b>|."
    )
    assert message(replace(SWEEP, models=(*refused,), regressions=(), improvements=())) == "No model has a result."


def test_a_message_has_a_line_for_each_regression_and_what_changed() -> None:
    slow = SweepEntry("cnn", "ok", compared=WORSE)
    broken = [SweepEntry(f"mlp{i}", "failed", reason="it crashed", compared=EntryComparison("fails")) for i in range(6)]
    entries = (slow, *broken)
    names = tuple(entry.name for entry in entries)
    result = SweepResult(models=entries, regressions=names)
    lines = message(result).split("\n")
    assert lines[0] == "7 of 7 models regressed: cnn, mlp0, mlp1, mlp2, mlp3 and 2 more."
    assert lines[1].startswith("cnn: latency_p50 of the best model 2.0x faster (1.9 to 2.1)")
    assert lines[1].endswith(". Its inputs changed: DAG b1 -> b2.")
    assert lines[2] == "mlp0 fails: it crashed"
    assert lines[-2:] == ["... and 2 more.", f"Changed since: {NEW_RUNTIME}."]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(None, tmp_path / "home")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_bytes(b"model")
    store.models.add(ModelRecord(store.artifacts.put(tmp_path / "m"), "cnn"))
    return store


def finished(store: Store) -> SweepEntry:
    model = store.models.all()[0].artifact
    run = store.runs.create(RunRecord(id="", name="cnn", identity="i", model=model))
    result = RunResult(run.id, "nothing meets the constraints")
    finish_run(store, result.run, result.to_json())
    return SweepEntry("cnn", "ok", result=result)


def test_each_run_has_a_page_for_as_long_as_a_model_has_it(store: Store, tmp_path: Path) -> None:
    out, tonight, before = tmp_path / "out", finished(store), finished(store)
    pages = write_run_pages(store, [before], out, {before.run})
    assert pages == {before.run: f"reports/{before.run}.html"}
    assert "No model meets the constraints." in (out / pages[before.run]).read_text()
    (out / "reports" / "notes.html").touch()
    write_run_pages(store, [tonight, SweepEntry("failed", "failed")], out, {tonight.run, ""})
    assert {page.stem for page in (out / "reports").iterdir()} == {tonight.run, "notes"}


def test_pages_of_changed_models_come_first_where_there_are_too_many(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_report, "MOST_PAGES", 2)
    same, other, worse = (finished(store) for _ in range(3))
    worse = replace(worse, compared=EntryComparison("worse"))
    entries, out = [same, other, worse], tmp_path / "out"
    in_use = {entry.run for entry in entries}
    assert write_run_pages(store, entries, out, in_use).keys() == {worse.run, same.run}
    assert other.run in write_run_pages(store, entries, out, in_use), "the next sweep continues"


def test_a_folder_that_cannot_be_written_is_named(store: Store, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError, match="cannot write the reports"):
        write_run_pages(store, [], tmp_path / "out", ())


SLOW = replace(
    entry("<slow>", 0.6), compared=EntryComparison("worse", "s1", (CHANGE,), causes=("onnxruntime 1.30 -> 1.31",))
)
ODD = replace(entry("odd", None), compared=EntryComparison("new"), reason="100 %\nunreadable")
RESULT = SweepResult("s2", name="production", models=(entry("good", 0.5), SLOW, ODD), seconds=3.0)


def test_junit_has_a_case_for_each_model() -> None:
    suite = ElementTree.fromstring(junit_xml(RESULT))[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    good, slow, odd = suite
    assert (good.findtext("system-out") or "").startswith("2.00x faster")
    failure, error = slow.find("failure"), odd.find("error")
    assert failure is not None
    assert error is not None
    assert failure.get("message") == (
        "worse: latency_p50 of the best model 2.0x faster (1.9 to 2.1) -> 1.7x faster (1.6 to 1.7); "
        "possible cause: onnxruntime 1.30 -> 1.31"
    )
    assert error.get("message") == "failed; 100 % unreadable"


def test_annotations_name_the_zoo_file() -> None:
    error, warning = github_annotations(RESULT, "zoo.yaml")
    assert error.startswith("::error file=zoo.yaml,title=autoopt <slow>::worse: latency_p50 of the best model")
    assert warning == "::warning file=zoo.yaml,title=autoopt odd::failed; 100 %25 unreadable"
