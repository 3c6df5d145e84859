"""What flow runs show: Markdown of a result, and rows of a sweep's table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.orchestrate.flow_runs.artifacts import result_artifacts, result_markdown
from autoopt.results import ModelResult, RunResult
from autoopt.results.measurement import MeasurementSummary
from autoopt.store import open_store


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
    assert links.startswith("Run `1f2e`: finished; [flow run](http://prefect/runs/1), `autoopt best 1f2e`")
    assert "latency" not in table


def test_a_result_names_its_caveats(monkeypatch: pytest.MonkeyPatch) -> None:
    best = replace(model("a", "a" * 64, 2.0), flags=("accuracy is not certain",))
    text = result_markdown(RunResult("1f2e", "finished", best=best, notes=("the machine was busy",)))
    assert "- best aaaaaaaa: accuracy is not certain\n- the machine was busy" in text


def test_the_answer_stands_above_the_result(tmp_path: Path) -> None:
    nothing = RunResult("1f2e", "nothing meets the constraints")
    with open_store(None, tmp_path) as store:
        artifact, *_ = result_artifacts(store, nothing, "cnn · dag", "")
    assert (artifact.key, artifact.description) == ("result-cnn-dag", "No model meets the constraints.")


def test_advice_names_the_fields_of_the_form(tmp_path: Path) -> None:
    best = replace(model("a", "a" * 64, 2.0), measured=MeasurementSummary(rounds=3, disturbed_rounds=2))
    undecided = RunResult("1f2e", "finished", best=best, undecided="two are close", notes=("--data FILE decides",))
    with open_store(None, tmp_path) as store:
        artifact, *_ = result_artifacts(store, undecided, "cnn", "")
    assert "run the same deployment with `remeasure` undecided on a quieter machine" in artifact.description
    assert "- `data` FILE decides" in artifact.data
    assert "--" not in artifact.data.replace("---", "")
