"""Pass runs: looked up, executed in groups, recorded, and retried as the policy says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation import Kill, Model, Simulation, crashing, failing, faster, hanging, killed, unchanged

from autoopt.data.digest import InputChanged
from autoopt.engine.work.context import RetryPolicy, RunContext
from autoopt.engine.work.pass_runs import ChainProgress, run_chain, stored_pass_run
from autoopt.memory import usable_memory
from autoopt.outcome import Outcome


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def run(simulation: Simulation, ctx: RunContext, nodes: int = 2) -> ChainProgress:
    chain = simulation.chain
    return run_chain(ctx, chain.nodes[:nodes], chain.space.configs({}))


def test_a_chain_leaves_the_candidate_of_all_its_passes(simulation: Simulation) -> None:
    progress = run(simulation, simulation.context())
    assert progress.outcome is Outcome.OK
    assert simulation.model(progress.candidate)["passes"] == ["identity_elimination", "remove_unused"]
    assert simulation.model(progress.candidate)["latency"] == pytest.approx(4.0)
    assert [node for node, _ in progress.path] == ["fold", "clean"]
    assert progress.executed == 2


def test_in_memory_passes_share_one_call(simulation: Simulation) -> None:
    run(simulation, simulation.context())
    assert simulation.pool.passes_run == [["identity_elimination", "remove_unused"]]


def test_a_second_run_executes_nothing(simulation: Simulation) -> None:
    first = run(simulation, simulation.context())
    ctx = simulation.context()
    second = run(simulation, ctx)
    assert len(simulation.pool.passes_run) == 1
    assert (second.candidate.key, second.executed) == (first.candidate.key, 0)
    assert (ctx.attempt.counts.of("pass_runs").executed, ctx.attempt.counts.of("pass_runs").reused) == (0, 2)


def test_a_longer_chain_executes_only_what_is_missing(simulation: Simulation) -> None:
    run(simulation, simulation.context(), nodes=1)
    assert run(simulation, simulation.context()).executed == 1
    assert simulation.pool.passes_run == [["identity_elimination"], ["remove_unused"]]


def test_a_pass_that_changes_nothing_passes_its_input_on(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = unchanged
    progress = run(simulation, simulation.context())
    assert simulation.model(progress.candidate)["passes"] == ["remove_unused"]
    records = simulation.store.results.pass_runs(progress.keys)
    assert [records[key].outcome for key in progress.keys] == [Outcome.UNCHANGED, Outcome.OK]


@pytest.mark.parametrize(("first", "given"), [(unchanged, {"analysis": {"worst": "conv"}}), (faster(0.5), {})])
def test_reports_on_a_candidate_reach_the_passes_that_run_on_it_later(
    simulation: Simulation, first: Any, given: dict[str, Any]
) -> None:
    simulation.pool.passes["identity_elimination"] = first
    simulation.pool.reports = {"identity_elimination": {"analysis": {"worst": "conv"}}}
    run(simulation, simulation.context(), nodes=1)
    run(simulation, simulation.context())
    assert simulation.pool.reports_given == [{}, given]


def test_a_failure_ends_the_chain_with_its_reason(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = failing
    progress = run(simulation, simulation.context())
    assert progress.outcome is Outcome.FAILED
    assert progress.message == "remove_unused: cannot optimize this"
    assert progress.completed == 1


def test_the_pass_that_kills_its_worker_is_found_by_running_it_alone(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = crashing
    progress = run(simulation, simulation.context())
    assert simulation.pool.passes_run == [["identity_elimination", "remove_unused"], ["identity_elimination"]]
    assert (progress.outcome, progress.completed) == (Outcome.CRASHED, 0)
    assert progress.message == "identity_elimination: the worker died: SIGSEGV"


def test_passes_before_the_one_that_kills_are_kept(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = crashing
    progress = run(simulation, simulation.context())
    assert (progress.outcome, progress.completed) == (Outcome.CRASHED, 1)
    assert simulation.model(progress.candidate)["passes"] == ["identity_elimination"]


def test_passes_are_quarantined_by_their_content(tmp_path: Path) -> None:
    script = tmp_path / "second.onnx"
    script.touch()
    dag = {"passes": {"join": {"pass": "merge", "params": {"second": str(script)}}}, "chains": [["join"]]}
    simulation = Simulation(tmp_path, dag=dag)
    simulation.pool.passes["merge"] = crashing
    for text in ("broken", "broken", "mended"):
        script.write_text(text)
        simulation.compile()
        run(simulation, simulation.context(retry=RetryPolicy(earlier_runs=True)), nodes=1)
    simulation.pool.passes["merge"] = faster(0.5)
    assert run(simulation, simulation.context(retry=RetryPolicy(earlier_runs=True)), nodes=1).outcome is Outcome.OK


def test_a_worker_that_was_killed_once_is_no_failure(simulation: Simulation) -> None:
    tries: list[str] = []

    def killed_once(model: Model, params: Mapping[str, Any]) -> Model:
        tries.append("try")
        if len(tries) == 1:
            raise Kill
        return faster(0.5)(model, params)

    simulation.pool.passes["identity_elimination"] = killed_once
    assert run(simulation, simulation.context(), nodes=1).outcome is Outcome.OK


def test_a_lost_worker_is_not_remembered_by_later_runs(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = killed
    ctx = simulation.context()
    assert run(simulation, ctx, nodes=1).transient
    assert len(simulation.pool.passes_run) == 2
    assert run(simulation, ctx, nodes=1).outcome is Outcome.CRASHED
    assert len(simulation.pool.passes_run) == 2, "the same run does not try it a third time"
    simulation.pool.passes["identity_elimination"] = faster(0.5)
    assert run(simulation, simulation.context(), nodes=1).outcome is Outcome.OK


def test_a_pass_that_ran_out_of_memory_is_tried_again_with_more(simulation: Simulation) -> None:
    def filling(model: Model, params: Mapping[str, Any]) -> Model:
        raise MemoryError

    simulation.pool.passes["identity_elimination"] = filling
    memory = usable_memory(None)
    same, more = RetryPolicy(memory=memory), RetryPolicy(memory=memory + 1)
    assert run(simulation, simulation.context(retry=same), nodes=1).outcome is Outcome.OUT_OF_MEMORY
    simulation.pool.passes["identity_elimination"] = faster(0.5)
    assert run(simulation, simulation.context(retry=same), nodes=1).outcome is Outcome.OUT_OF_MEMORY
    assert run(simulation, simulation.context(retry=more), nodes=1).outcome is Outcome.OK


def test_a_model_in_quarantine_is_not_run(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = crashing
    for _ in range(2):
        run(simulation, simulation.context(retry=RetryPolicy(earlier_runs=True)), nodes=1)
    progress = run(simulation, simulation.context(retry=RetryPolicy(earlier_runs=True)), nodes=1)
    assert len(simulation.pool.passes_run) == 2
    assert "quarantine" in progress.message


def test_a_stored_failure_is_reused_until_a_retry(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = failing
    run(simulation, simulation.context(), nodes=1)
    simulation.pool.passes["identity_elimination"] = faster(0.5)
    assert run(simulation, simulation.context(), nodes=1).outcome is Outcome.FAILED
    ctx = simulation.context(retry=RetryPolicy(earlier_runs=True))
    assert run(simulation, ctx, nodes=1).outcome is Outcome.OK


def test_a_retry_does_not_repeat_its_own_failures(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = failing
    ctx = simulation.context(retry=RetryPolicy(earlier_runs=True))
    run(simulation, ctx, nodes=1)
    run(simulation, ctx, nodes=1)
    assert len(simulation.pool.passes_run) == 1


def test_a_pass_cut_off_by_the_deadline_is_not_stored(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = hanging
    progress = run(simulation, simulation.context(deadline=10.0), nodes=1)
    assert progress.outcome is Outcome.TIMEOUT
    assert progress.message == "identity_elimination: the run's time limit was reached"
    simulation.pool.passes["identity_elimination"] = faster(0.5)
    assert run(simulation, simulation.context(), nodes=1).outcome is Outcome.OK


def test_the_deadline_names_the_pass_of_a_group_that_it_cut_off(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = hanging
    progress = run(simulation, simulation.context(deadline=10.0))
    assert simulation.pool.passes_run == [["identity_elimination", "remove_unused"]]
    assert progress.message == "remove_unused: the run's time limit was reached"


def test_a_pass_beyond_its_own_limit_is_a_stored_timeout(simulation: Simulation) -> None:
    simulation.pool.passes["identity_elimination"] = hanging
    progress = run(simulation, simulation.context(), nodes=1)
    assert progress.outcome is Outcome.TIMEOUT
    (key,) = progress.keys
    record = simulation.store.results.pass_run(key)
    assert record.message == "more than 600 s"


def test_the_limit_of_a_group_is_the_sum_of_its_passes(simulation: Simulation) -> None:
    run(simulation, simulation.context())
    assert simulation.pool.limits == [1200.0]


def test_another_targets_result_counts_for_a_pass_that_does_not_depend_on_it(simulation: Simulation) -> None:
    run(simulation, simulation.context(), nodes=1)
    ctx = simulation.context()
    gpu = replace(ctx.problem.accelerator, device="gpu", execution_provider="CUDAExecutionProvider")
    progress = run(simulation, replace(ctx, problem=replace(ctx.problem, accelerator=gpu)), nodes=1)
    assert (progress.outcome, progress.executed) == (Outcome.OK, 0)


def test_the_record_names_run_node_and_environment(simulation: Simulation) -> None:
    ctx = simulation.context()
    progress = run(simulation, ctx, nodes=1)
    record = simulation.store.results.pass_run(progress.keys[0])
    assert (record.run, record.node, record.pass_name) == (ctx.run, "fold", "identity_elimination")
    assert record.environment["libraries"]["onnx"]


def test_stored_pass_run_is_what_a_run_would_reuse(simulation: Simulation) -> None:
    ctx = simulation.context()
    node, configs = simulation.chain.nodes[0], simulation.chain.space.configs({})
    assert stored_pass_run(ctx, node, configs, simulation.candidate) is None
    progress = run(simulation, ctx, nodes=1)
    stored = stored_pass_run(ctx, node, configs, simulation.candidate)
    assert stored.key == progress.keys[0]


def test_the_content_of_a_named_file_is_part_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "second.onnx"
    file.write_text("{}")
    dag = {"passes": {"join": {"pass": "merge", "params": {"second": str(file)}}}, "chains": [["join"]]}
    simulation = Simulation(tmp_path, dag=dag)
    simulation.pool.passes["merge"] = faster(0.5)
    for text in ("{}", '{"a": 1}', "{}"):
        file.write_text(text)
        simulation.compile()
        run(simulation, simulation.context(), nodes=1)
    assert len(simulation.pool.passes_run) == 2
    file.write_text("changed since the run was planned")
    with pytest.raises(InputChanged, match=r"second\.onnx: changed while the run read it"):
        run(simulation, simulation.context(), nodes=1)
