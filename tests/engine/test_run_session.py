"""Sessions on a simulated worker pool: baseline, search, race, result, resume."""

from __future__ import annotations

import fcntl
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from session_helpers import DAG, Notes, chain_in, finish, lucky_once, simulate
from simulation import Simulation, crashing, failing, faster, unchanged
from store_owners import by

from autoopt.engine.run.join import JoinedRun
from autoopt.engine.run.opening import is_complete, open_session
from autoopt.engine.run.select import UNVERIFIED
from autoopt.engine.run.session import search_inline
from autoopt.engine.work.pass_runs import run_chain
from autoopt.errors import InputError
from autoopt.metrics import Constraint
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.problem.run_request import RunRequest
from autoopt.report.words.verdict import verdict
from autoopt.results import Note, NoteKind, RunResult, Trial
from autoopt.workers.gate import GATE_FILE


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return simulate(tmp_path)


def test_the_fastest_feasible_model_wins(simulation: Simulation) -> None:
    result = finish(simulation.session())
    assert result.status == "finished"
    assert result.best.chain == "clean"
    assert result.best.ratios["latency_p50"].value == pytest.approx(0.5, rel=1e-4)
    assert result.trial_counts == {"total": 3, "ok": 3, "infeasible": 0}
    assert result.baseline.metrics["latency_p50"] == 10.0


def test_the_result_is_stored_before_it_is_returned(simulation: Simulation) -> None:
    result = finish(simulation.session())
    record = simulation.store.runs.get(result.run)
    assert record.status == "finished"
    assert RunResult.from_json(record.result or {}) == result


def test_a_faster_model_that_breaks_a_constraint_does_not_win(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = faster(0.5, accuracy=0.5)
    result = finish(simulation.session())
    assert result.best.chain == "names"
    assert result.trial_counts["infeasible"] == 1


def test_without_a_certain_gain_the_source_model_is_the_best(simulation: Simulation) -> None:
    simulation.pool.passes = {name: faster(0.999, size=5.0) for name in simulation.pool.passes}
    result = finish(simulation.session())
    assert (result.best.chain, result.best.artifact) == ("source", simulation.candidate.artifact)


def test_if_no_model_meets_the_constraints_the_result_says_how_near_one_came(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, constraints=(Constraint("size", max_ratio=0.5), Constraint("accuracy", max_drop=1)))
    result = finish(simulation.session())
    assert (result.status, result.best) == ("nothing meets the constraints", None)
    assert "came closest to the constraints" in result.notes[0]


def test_a_model_that_was_only_lucky_does_not_win(tmp_path: Path) -> None:
    simulation = simulate(
        tmp_path, constraints=(Constraint("latency_p50", max=5.5), Constraint("accuracy", max_drop=1))
    )
    simulation.pool.noise = lucky_once("['name_fix']")
    result = finish(simulation.session())
    assert result.best.chain == "clean"
    assert any("broke a constraint when measured again" in note for note in result.notes)


def test_an_identical_finished_run_answers(simulation: Simulation) -> None:
    first = finish(simulation.session())
    calls = len(simulation.pool.limits)
    again = finish(simulation.session())
    assert (again.reused, again.run, again.best) == (True, first.run, first.best)
    assert again.pass_runs.executed == 0
    assert len(simulation.pool.limits) == calls


def test_a_fresh_run_searches_again_and_reuses_all_work(simulation: Simulation) -> None:
    first = finish(simulation.session())
    calls = len(simulation.pool.limits)
    again = finish(simulation.session(again="all"))
    assert not again.reused
    assert again.run != first.run
    assert len(simulation.pool.limits) == calls


def test_an_interrupted_run_is_resumed_without_repeating_work(simulation: Simulation) -> None:
    calls: list[int] = []

    def interrupted(model: dict[str, object], params: object) -> dict[str, object]:
        calls.append(1)
        raise KeyboardInterrupt

    simulation.pool.passes["name_fix"] = interrupted  # type: ignore[assignment]
    first = simulation.session()
    with pytest.raises(KeyboardInterrupt):
        finish(first)
    assert simulation.store.runs.get(first.ctx.run).status == "cancelled"
    simulation.pool.passes["name_fix"] = faster(0.7)
    notes = Notes()
    resumed = simulation.session(resume=first.ctx.run, observer=notes)
    result = finish(resumed)
    assert result.run == first.ctx.run
    assert result.trial_counts["ok"] == 3
    passes = [name for group in simulation.pool.passes_run for name in group]
    assert sorted(passes) == ["identity_elimination", "name_fix", "name_fix", "remove_unused"]
    assert notes.notes[0].startswith(f"resuming run {first.ctx.run}: ")


def test_a_cancelled_run_says_how_to_resume_it(simulation: Simulation) -> None:
    notes = Notes()
    session = simulation.session(observer=notes)
    with pytest.raises(KeyboardInterrupt), session:
        raise KeyboardInterrupt
    assert f"autoopt resume {session.ctx.run}" in notes.notes[-1]


def test_a_failed_run_is_recorded_as_failed(simulation: Simulation) -> None:
    session = simulation.session()
    with pytest.raises(RuntimeError), session:
        raise RuntimeError("a bug")
    assert simulation.store.runs.get(session.ctx.run).status == "failed"


def test_a_run_with_other_content_cannot_be_resumed(simulation: Simulation) -> None:
    first = simulation.session()
    with pytest.raises(InputError, match=r"cannot be resumed: .* have changed"):
        simulation.session(resume=first.ctx.run, search={"trials": 1})


def test_a_running_run_cannot_be_resumed(simulation: Simulation) -> None:
    first = simulation.session()
    owner = f"{simulation.store.owner}/other"
    simulation.store.claims.release("run", first.ctx.run)
    assert by(simulation.store, owner).claims.acquire("run", first.ctx.run)
    with pytest.raises(InputError, match="is already running"):
        simulation.session(resume=first.ctx.run)


@pytest.mark.parametrize("meter", ["size", "latency"])
def test_a_source_model_that_kills_its_worker_ends_the_run(tmp_path: Path, meter: str) -> None:
    source = {"latency": 10.0, "size": 1.0, "passes": [], "dies in meter": f"autoopt.measure.worker:{meter}"}
    with pytest.raises(InputError, match=r"source.onnx: the source model cannot be measured: crashed"):
        finish(simulate(tmp_path, source=source).session())


@contextmanager
def held(file: Path) -> Iterator[None]:
    """Hold a lock file as another process does."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def test_a_machine_that_another_run_uses_leaves_the_source_as_an_undecided_answer(simulation: Simulation) -> None:
    session = simulation.session()
    attempt = session.ctx.attempt
    session.ctx = replace(session.ctx, attempt=replace(attempt, deadline=attempt.clock() + 3.0))
    with held(simulation.folder / "gate" / GATE_FILE):
        result = finish(session)
    assert result.best.is_source
    reason, _, waited = result.undecided.partition("; ")
    assert reason == "the time was up before the source model was measured"
    assert re.match(r"waited \d s for other runs on this machine", waited)
    assert any(re.match(r"waited \d s for other runs on this machine, of ", note) for note in result.notes)
    assert "keeping your model" in verdict(result)
    assert not is_complete(result.to_json())  # the same command searches again
    again = simulation.session()
    assert again.answer is None
    assert finish(again).best.chain != "source"


def test_all_trials_failing_is_a_note(simulation: Simulation) -> None:
    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, failing)
    result = finish(simulation.session())
    assert result.best.chain == "source"
    assert result.trial_counts["failed"] == 3


def test_zero_accuracy_of_the_source_ends_the_run_unless_nothing_keeps_it(tmp_path: Path) -> None:
    source = {"latency": 10.0, "size": 1.0, "accuracy": 0.0, "passes": []}
    simulation = simulate(tmp_path, source=source)
    with pytest.raises(InputError, match=r"the source model's accuracy is 0; check .*: --metric agreement compares"):
        finish(simulation.session())


def test_a_joined_run_executes_the_trials_of_a_chain(simulation: Simulation) -> None:
    session = simulation.session()
    joined = JoinedRun(session, simulation.store.runs.get(session.ctx.run))
    chain = simulation.chain
    simulation.store.trials.add(Trial(run=session.ctx.run, number=0, chain_id=chain.id, point={}))
    trial = joined.claim_trial(chain.id)
    assert trial is not None
    assert joined.execute(trial).outcome is Outcome.OK
    assert joined.claim_trial(chain.id) is None
    assert joined.is_running


def test_retried_failures_of_a_joined_run_are_executed_again(simulation: Simulation) -> None:
    session = simulation.session()
    joined = JoinedRun(session, simulation.store.runs.get(session.ctx.run))
    chain = simulation.chain
    (name,) = (node.info.name for node in chain.nodes)
    simulation.pool.passes[name] = crashing
    simulation.store.trials.add(Trial(run=session.ctx.run, number=0, chain_id=chain.id, point={}))
    trial = joined.claim_trial(chain.id)
    assert trial is not None
    assert joined.execute(trial).outcome is Outcome.CRASHED
    simulation.pool.passes[name] = faster(0.5)
    joined.retry_failures()
    again = joined.claim_trial(chain.id)
    assert again is not None
    assert joined.execute(again).outcome is Outcome.OK
    assert joined.claim_trial(chain.id) is None


def test_the_interim_result_of_a_running_search_is_in_the_store(simulation: Simulation) -> None:
    seen: list[RunResult] = []

    class Reader(Observer):
        def on_trial_start(self, number: int, chain: str, point: object) -> None:
            result = simulation.store.runs.get(session.ctx.run).result
            if result:
                seen.append(RunResult.from_json(result))

    session = simulation.session(observer=Reader())
    finish(session)
    assert seen
    assert {result.status for result in seen} == {"running"}
    assert all(result.trial_counts["total"] < 3 for result in seen)


def test_a_model_that_breaks_a_constraint_in_the_end_is_withdrawn(tmp_path: Path) -> None:
    simulation = simulate(
        tmp_path, constraints=(Constraint("latency_p50", max=5.5), Constraint("accuracy", max_drop=1))
    )
    simulation.pool.passes["remove_unused"] = faster(0.9)
    simulation.pool.noise = lucky_once("['name_fix']")
    out = tmp_path / "out"
    notes = Notes()
    with simulation.session(observer=notes, out=out) as session:
        result = session.export(session.execute(search_inline), out)
    assert f"{out}/ has the best model so far; a better one will replace it" in notes.notes
    assert result.best is None
    assert chain_in(out) == ""


def test_the_source_model_does_not_replace_the_better_one_of_another_run_silently(
    simulation: Simulation, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with simulation.session() as session:
        first = session.export(session.execute(search_inline), out)
    notes, other = Notes(), simulate(tmp_path / "other")
    other.pool.passes = dict.fromkeys(other.pool.passes, faster(1.2))
    with other.session(observer=notes) as session:
        session.export(session.execute(search_inline), out)
    assert chain_in(out) == "source"
    assert f"your model replaces that of run {first.run[:12]} in {out}/ (clean, 2.00x faster)" in notes.notes[-1]


def test_the_recipe_of_the_source_has_no_steps(simulation: Simulation, tmp_path: Path) -> None:
    simulation.pool.passes = {name: faster(0.999, size=5.0) for name in simulation.pool.passes}
    with simulation.session() as session:
        session.export(session.execute(search_inline), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "recipe.json").read_text())["steps"] == []


def test_a_similar_run_executes_only_what_is_new(simulation: Simulation, tmp_path: Path) -> None:
    finish(simulation.session())
    wider = simulate(tmp_path / "wider", store=simulation.store)
    wider.plan = Simulation(tmp_path / "plan", dag={**DAG, "chains": [*DAG["chains"], ["names", "fold"]]}).plan
    result = finish(wider.session())
    assert not result.reused
    assert (result.pass_runs.executed, result.trial_counts["ok"]) == (1, 4)


def test_equal_candidates_share_their_evaluations(simulation: Simulation) -> None:
    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, unchanged)
    result = finish(simulation.session())
    assert result.trial_counts["ok"] == 3
    assert result.evaluations.executed == 3  # the baseline's
    assert result.best.chain == "source"


def test_a_model_that_the_source_beats_in_everything_is_not_on_the_front(tmp_path: Path) -> None:
    simulation = simulate(tmp_path)
    simulation.pool.passes["name_fix"] = faster(1.1, size=2000.0)
    result = finish(simulation.session())
    assert "names" not in [model.chain for model in result.front]
    assert "clean" in [model.chain for model in result.front]


def test_it_is_on_the_front_if_the_source_breaks_a_constraint(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, constraints=(Constraint("size", min=1500), Constraint("accuracy", max_drop=1)))
    simulation.pool.passes["name_fix"] = faster(1.1, size=2000.0)
    result = finish(simulation.session())
    assert [model.chain for model in result.front] == ["names"]


def test_more_workers_make_the_same_trials(tmp_path: Path) -> None:
    results = [finish(simulate(tmp_path / str(workers)).session(workers=workers)) for workers in (1, 2)]
    assert results[0].trial_counts == results[1].trial_counts
    assert results[0].best is not None
    assert results[1].best is not None
    assert results[0].best.artifact == results[1].best.artifact


def test_without_rounds_one_measurement_decides(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, measurement={"rounds": 0})
    finish(simulation.session())
    assert simulation.pool.meters.count("latency") == 1 + 3


def test_passes_that_share_a_call_have_the_lineage_of_single_ones(tmp_path: Path) -> None:
    lineages = []
    for together in (True, False):
        simulation = Simulation(tmp_path / str(together))
        chain, ctx = simulation.chain, simulation.context()
        for end in (2,) if together else (1, 2):
            progress = run_chain(ctx, chain.nodes[:end], chain.space.configs({}))
        steps = simulation.store.lineage.trace(progress.candidate).steps
        lineages.append([(step.pass_name, step.params, step.output) for step in steps])
    assert lineages[0] == lineages[1]


LOSSY: dict[str, Any] = {
    "passes": {"clean": "remove_unused", "quant": "dynamic_quantization"},
    "chains": [["clean"], ["quant"]],
}


def lossy(folder: Path, *, unverified: bool) -> RunResult:
    simulation = Simulation(folder, dag=LOSSY, unverified=unverified)
    simulation.pool.passes = {"remove_unused": faster(0.8), "dynamic_quantization": faster(0.4)}
    return finish(simulation.session())


def test_what_only_generated_inputs_judge_is_shown_beside_the_best_lossless_model(tmp_path: Path) -> None:
    result = lossy(tmp_path / "unverified", unverified=True)
    assert result.best.chain == "clean"
    assert result.best_lossy.chain == "quant"
    assert result.best_lossy.measured.rounds
    assert [model.chain for model in result.models] == ["source", "clean", "quant"]
    assert [model.chain for model in result.models if UNVERIFIED in model.flags] == ["quant"]
    accepted = lossy(tmp_path / "accepted", unverified=False)
    assert accepted.best.chain == "quant"
    assert accepted.best_lossy is None


def test_a_lossy_model_that_gains_nothing_is_not_shown_as_the_best(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=LOSSY, unverified=True)
    simulation.pool.passes = {"remove_unused": faster(0.8), "dynamic_quantization": faster(1.5)}
    assert finish(simulation.session()).best_lossy is None


def test_before_the_search_it_says_what_it_will_do(simulation: Simulation) -> None:
    said: list[str] = []

    class Said(Observer):
        def on_note(self, text: str) -> None:
            said.append(text)

        def on_phase(self, name: str) -> None:
            said.append(name)

    problem = replace(
        simulation.asked(trials=1, minutes=2.5), notes=(Note("level 3: all passes"), Note("so it is", NoteKind.NO_DATA))
    )
    request = RunRequest(dag=simulation.plan.spec, home=simulation.folder / "home", workers=1, observer=Said())
    open_session(request, problem, simulation.resources, time.monotonic()).closing.close()
    assert said == [
        "no data: so it is",
        "level 3: all passes",
        "searching 3 configurations in 3 chains; at most 1 distinct trial, 2.5 minutes",
    ]
