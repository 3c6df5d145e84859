"""What flow runs show: Markdown of a result, and rows of a sweep's table."""

from __future__ import annotations

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.orchestrate.flow_runs.artifacts import result_markdown
from autoopt.results import ModelResult, RunResult


def model(chain: str, artifact: str, throughput: float) -> ModelResult:
    """A model with `throughput` times that of the source."""
    ratios = {"size": Estimate.exact(0.5), "throughput": Estimate.exact(throughput)}
    return ModelResult(chain=chain, artifact=artifact, metrics={"throughput": throughput, "size": 10.0}, ratios=ratios)


def test_a_result_lists_the_best_model_and_the_front_with_the_runs_own_metrics() -> None:
    result = RunResult(
        "1f2e",
        "finished",
        best=model("a -> b", "b" * 64, 2.0),
        pareto=(model("a", "a" * 64, 1.5),),
        objectives=(Objective("throughput", "maximize"),),
        constraints=(Constraint("size", max_ratio=0.9),),
    )
    lines = result_markdown(result).splitlines()
    assert lines[0] == "Run `1f2e`: finished; `autoopt best 1f2e`, `autoopt report 1f2e`"
    assert lines[2].startswith("| model | chain | throughput ratio | size ratio |")
    assert lines[4].startswith(f"| best `{'b' * 12}` | a -> b | 2")
    assert lines[5].startswith(f"| front `{'a' * 12}` | a | 1.5")
    assert "latency" not in result_markdown(result)


def test_a_result_without_a_model_has_no_rows() -> None:
    markdown = result_markdown(RunResult("1f2e", "nothing meets the constraints"))
    assert len(markdown.splitlines()) == 4
