"""What flow runs show of a result."""

from __future__ import annotations

from dataclasses import replace

from autoopt.metrics import Constraint, Estimate, Objective
from autoopt.orchestrate.artifacts import result_markdown
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
