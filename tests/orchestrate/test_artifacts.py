"""What flow runs show: Markdown of a result, and rows of a sweep's table."""

from __future__ import annotations

from dataclasses import replace

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.orchestrate.artifacts import entry_row, in_form_words, result_markdown
from autoopt.results import EntryComparison, ModelResult, RunResult, SweepEntry


def model(chain: str, artifact: str, throughput: float) -> ModelResult:
    """A model with `throughput` times that of the source."""
    ratios = {"size": Estimate.exact(0.5), "throughput": Estimate.exact(throughput)}
    return ModelResult(chain=chain, artifact=artifact, metrics={"throughput": throughput, "size": 10.0}, ratios=ratios)


def test_a_result_lists_the_best_model_and_the_front_with_the_runs_own_metrics() -> None:
    result = RunResult(
        "1f2e",
        "finished",
        best=model("a -> b", "b" * 64, 2.0),
        front=(model("a", "a" * 64, 1.5),),
        objectives=(Objective("throughput", "maximize"),),
        constraints=(Constraint("size", max_ratio=0.9),),
    )
    table, links = result_markdown(result, "http://prefect/runs/1").split("\n\n")
    lines = table.splitlines()
    assert lines[0] == "| model | throughput | change, all measurements | size | passes |"
    assert lines[3].startswith(f"| best {'b' * 8} | 2.00 items/s | 2.0x higher throughput |")
    assert lines[4].startswith(f"| front {'a' * 8} | 1.50")
    assert links.startswith("Run `1f2e`: finished; [flow run](http://prefect/runs/1), `autoopt runs 1f2e`")
    assert "latency" not in table


def test_a_result_names_its_caveats() -> None:
    best = replace(model("a", "a" * 64, 2.0), flags=("accuracy is not certain",))
    text = result_markdown(RunResult("1f2e", "finished", best=best, notes=("the machine was busy",)))
    assert "- best aaaaaaaa: accuracy is not certain\n- the machine was busy" in text


def test_advice_names_the_fields_of_the_form() -> None:
    advice = "run the same command with --again measurements, or --data FILE"
    assert in_form_words(advice) == "run the same deployment with `again` measurements, or `data` FILE"


def test_a_finished_model_of_a_sweep_shows_its_objectives_and_its_size() -> None:
    result = RunResult(
        "1f2e", "finished", best=model("a", "b" * 64, 2.0), objectives=(Objective("throughput", "maximize"),)
    )
    row = entry_row(SweepEntry("cnn", "ok", result=result, compared=EntryComparison("better")))
    assert (row["model"], row["state"], row["since last good"]) == ("cnn", "ok", "better")
    assert row["result"] == "2.0x higher throughput, 2.0x smaller"
    assert row["throughput"] == "2.00 items/s"
    assert row["artifact"] == "b" * 12
    assert "latency_p50" not in row


def test_a_failed_model_of_a_sweep_shows_the_reason_in_one_line() -> None:
    row = entry_row(SweepEntry("cnn", "failed", reason="odd\nmodel", compared=EntryComparison("fails")))
    assert (row["state"], row["best chain"], row["artifact"], row["reason"]) == ("failed", "", "", "odd model")
