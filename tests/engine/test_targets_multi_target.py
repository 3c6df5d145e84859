"""Runs over several targets: a part for each, the best for each, and the choice among these."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

from autoopt.api import execute, resume
from autoopt.cli.app import main
from autoopt.engine.run.join import join
from autoopt.errors import InputError
from autoopt.problem.resolve import make_plans
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult, WorkCounts
from autoopt.settings import settings
from autoopt.store import open_store

SHORT = {"seconds": 0.05, "replicas": 1, "target_width": 1.0, "rounds": 0}
TARGETS = [{"name": "one", "threads": 1}, {"name": "two", "threads": 2}]
DAG: dict[str, Any] = {
    "targets": TARGETS,
    "passes": {"tidy": "simplify", "quant": "dynamic_quantization"},
    "chains": [["tidy", "quant"], ["tidy"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store and the results of the one run that most tests look at."""
    return tmp_path_factory.mktemp("targets")


@pytest.fixture(scope="module")
def go_there(place: Path) -> Callable[..., RunResult]:
    """`go_there(targets)`: run the DAG with these targets in the one store."""
    model = write(mlp(width=64), place / "mlp")

    def run(targets: list[dict[str, Any]], out: Path | None = None) -> RunResult:
        dag = {"name": "t", **DAG, "targets": targets}
        return execute(RunRequest(dag=dag, model=model, home=place / "home", measurement=SHORT, out=out))

    return run


@pytest.fixture(scope="module")
def found(go_there: Callable[..., RunResult], place: Path) -> RunResult:
    return go_there(TARGETS, out=place / "out")


def test_each_target_has_a_part_and_all_have_one_best(found: RunResult, place: Path) -> None:
    assert [t.name for t in found.targets] == ["one", "two"]
    assert [t.target["threads"] for t in found.targets] == [1, 2]
    assert all(t.result.best is not None and t.result.best.chain == "tidy -> quant" for t in found.targets)
    assert set(found.choice.models) == {"one", "two"}
    assert found.choice.name == "one", "both are as small"
    with open_store(None, place / "home") as store:
        parts = {run.id: run for run in store.runs.all(parent=found.run)}
        assert set(parts) == {t.result.run for t in found.targets}
        assert all(run.status == "finished" for run in parts.values())
        assert store.runs.get(found.run).parent is None


def test_passes_are_run_once_and_measured_on_each(found: RunResult) -> None:
    first, second = (t.result for t in found.targets)
    assert first.pass_runs.executed == 2
    assert second.pass_runs.executed == 0, "the target says nothing to these passes"
    assert second.evaluations.executed > 0
    assert found.pass_runs == WorkCounts(2, first.pass_runs.reused + second.pass_runs.reused)


def test_models_recipes_and_sessions_are_left_for_each_and_for_all(found: RunResult, place: Path) -> None:
    for folder, threads in (("out", 1), ("out/targets/one", 1), ("out/targets/two", 2)):
        recipe = json.loads((place / folder / "recipe.json").read_text())
        assert (place / folder / "model.onnx").is_file()
        assert [s["pass"] for s in recipe["steps"]][-1] == "dynamic_quantization"
        session = json.loads((place / folder / "session.json").read_text())
        assert session["session_options"]["intra_op_num_threads"] == threads
    assert found.best.path == str(place / "out" / "model.onnx")


def test_a_second_identical_run_executes_nothing(found: RunResult, go_there: Callable[..., RunResult]) -> None:
    again = go_there(TARGETS)
    assert again.reused
    assert again.run == found.run
    assert again.pass_runs.executed == again.evaluations.executed == 0
    known = RunResult.from_json(json.loads(json.dumps(found.to_json())))
    assert known.to_json() == found.to_json()
    assert again.choice == known.choice


def test_a_further_target_reuses_the_parts_of_the_others(found: RunResult, go_there: Callable[..., RunResult]) -> None:
    renamed = [{"name": "single", "threads": 1}, {"name": "three", "threads": 3}]
    more = go_there(renamed)
    first, second = (t.result for t in more.targets)
    assert first.reused
    assert first.run == found.targets[0].result.run, "what a target is called does not matter"
    assert not second.reused


def test_lineage_of_a_target_that_gains(
    found: RunResult, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOOPT_HOME", str(place / "home"))
    settings.cache_clear()
    assert main(["lineage", found.run, "--target", "two", "--json"]) == 0
    settings.cache_clear()
    steps = json.loads(capfd.readouterr().out)["steps"]  # simplify changes nothing here
    assert [step["pass"] for step in steps] == ["dynamic_quantization"]


def test_chains_of_a_part_done_again_are_joined_anew(
    found: RunResult, go_there: Callable[..., RunResult], place: Path
) -> None:
    home = place / "home"
    with pytest.raises(InputError, match="has finished"):
        resume(found.run, home=home)
    with join(found.targets[1].result.run, home=home) as joined:  # as Retry of a chain's flow run does
        joined.retry_failures()
        assert joined.conclude() is not None
    (anew,) = resume(found.run, home=home)
    assert anew.run == found.run
    assert not anew.reused
    assert anew.pass_runs.executed == anew.evaluations.executed == 0
    assert go_there(TARGETS).reused


def test_the_examples_of_the_documentation_are_plans(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "targets.md").read_text()
    examples = re.findall(r"```yaml\n(.*?)```", re.sub(r"/opt/\w+/bin/python", sys.executable, page), re.DOTALL)
    assert len(examples) == 3
    for number, example in enumerate(examples):
        file = tmp_path / f"{number}.yaml"
        file.write_text(example)
        plans = make_plans(RunRequest(file)).by_name
        assert len(plans) == max(1, example.count("  - "))
        assert all(plan.chain_count for plan in plans.values())


def test_a_target_that_cannot_be_is_left_out_with_the_reason(go_there: Callable[..., RunResult]) -> None:
    there = {"name": "there", "execution_provider": "QNNExecutionProvider"}
    result = go_there([TARGETS[0], there])
    assert [t.name for t in result.targets] == ["one"]
    assert result.choice is not None
    assert result.notes[0].startswith("target there is left out: ")
    assert "QNNExecutionProvider is not in the installed runtime" in result.notes[0]
    with pytest.raises(InputError, match=r"target there is left out: .+; target too is left out"):
        go_there([there, {**there, "name": "too"}])


def test_the_fastest_of_several_targets_is_timed_in_turns_in_processes_of_their_own(tmp_path: Path) -> None:
    model, home = write(mlp(width=64), tmp_path / "mlp"), tmp_path / "home"
    dag = {"name": "t", **DAG, "objectives": [{"metric": "latency_p50"}]}
    result = execute(RunRequest(dag=dag, model=model, home=home, measurement=SHORT, out=tmp_path / "out"))
    assert result.choice is not None
    timed = result.choice.models
    assert set(timed) >= {target.name for target in result.targets[1:]}
    source = result.baseline.metrics["latency_p50"]
    for found in timed.values():
        ratio = found.ratios["latency_p50"]
        assert ratio.low <= ratio.value <= ratio.high
        assert found.metrics["latency_p50"] / source == pytest.approx(ratio.value, rel=0.5), "beside the same source"
    assert result.best == timed.get(result.choice.name, result.targets[0].result.best) or result.best is not None
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert recipe["source_session"]["session_options"]["intra_op_num_threads"] == 1, "the first target is what runs now"
