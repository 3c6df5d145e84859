"""Sessions on a simulated worker pool: baseline, search, confirmation, result, resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulation import Simulation, crashing, failing, faster, unchanged

from autoopt.engine.run.join import JoinedRun
from autoopt.engine.run.session import Session, search_inline
from autoopt.engine.work.pass_runs import run_chain
from autoopt.errors import InputError
from autoopt.metrics import Constraint
from autoopt.observer import Observer
from autoopt.outcome import Outcome
from autoopt.results import RunResult
from autoopt.store import TrialRecord

DAG = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused", "names": "name_fix"},
    "chains": [["fold"], ["clean"], ["names"]],
}


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return simulate(tmp_path)


def simulate(folder: Path, **options: object) -> Simulation:
    simulation = Simulation(folder, dag=DAG, **options)  # type: ignore[arg-type]
    simulation.pool.passes = {
        "identity_elimination": faster(0.9),
        "remove_unused": faster(0.5),
        "name_fix": faster(0.7),
    }
    return simulation


def finish(session: Session) -> RunResult:
    with session:
        return session.execute(search_inline)


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def test_the_fastest_feasible_model_wins(simulation: Simulation) -> None:
    result = finish(simulation.session())
    assert result.status == "finished"
    assert result.best is not None
    assert result.best.chain == "clean"
    assert result.best.ratios["latency_p50"].value == pytest.approx(0.5)
    assert result.trials == {"total": 3, "ok": 3, "infeasible": 0}
    assert result.baseline.metrics["latency_p50"] == 10.0


def test_the_result_is_stored_before_it_is_returned(simulation: Simulation) -> None:
    result = finish(simulation.session())
    record = simulation.store.runs.get(result.run)
    assert record.status == "finished"
    assert RunResult.from_json(record.result or {}) == result


def test_a_faster_model_that_breaks_a_constraint_does_not_win(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = faster(0.5, accuracy=0.5)
    result = finish(simulation.session())
    assert result.best is not None
    assert result.best.chain == "names"
    assert result.trials["infeasible"] == 1


def test_without_a_certain_gain_the_source_model_is_the_best(simulation: Simulation) -> None:
    simulation.pool.passes = {name: faster(0.999, size=5.0) for name in simulation.pool.passes}
    result = finish(simulation.session())
    assert result.best is not None
    assert (result.best.chain, result.best.artifact) == ("source", simulation.candidate.artifact)


def test_if_no_model_meets_the_constraints_the_result_says_how_near_one_came(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, constraints=(Constraint("size", max_ratio=0.5), Constraint("accuracy", max_drop=1)))
    result = finish(simulation.session())
    assert (result.status, result.best) == ("nothing meets the constraints", None)
    assert "came closest to the constraints" in result.notes[0]


def test_every_contender_is_confirmed_in_rounds(simulation: Simulation) -> None:
    finish(simulation.session())
    latencies = [payload for function, payload in simulation.pool.measured if function.endswith(":latency")]
    assert len(latencies) == 1 + 3 + 3 * 2  # baseline, trials, two rounds of three


def test_a_model_that_was_only_lucky_does_not_win(tmp_path: Path) -> None:
    simulation = simulate(
        tmp_path, constraints=(Constraint("latency_p50", max=5.5), Constraint("accuracy", max_drop=1))
    )
    measured: list[str] = []

    def noise(model: dict[str, object]) -> float:
        """The first measurement of `clean` is three times too fast."""
        name = str(model["passes"])
        measured.append(name)
        return 1.0 if name != "['name_fix']" or measured.count(name) > 1 else 0.3

    simulation.pool.noise = noise
    result = finish(simulation.session())
    assert result.best is not None
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
    again = finish(simulation.session(fresh=True))
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
    assert result.trials["ok"] == 3
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
    assert simulation.store.claims.acquire("run", first.ctx.run, owner)
    with pytest.raises(InputError, match="is already running"):
        simulation.session(resume=first.ctx.run)


@pytest.mark.parametrize("meter", ["size", "latency"])
def test_a_source_model_that_kills_its_worker_ends_the_run(tmp_path: Path, meter: str) -> None:
    source = {"latency": 10.0, "size": 1.0, "passes": [], "dies in meter": f"autoopt.measure.worker:{meter}"}
    with pytest.raises(InputError, match=r"source.onnx: the source model cannot be measured: crashed"):
        finish(simulate(tmp_path, source=source).session())


def test_an_unknown_sampler_is_refused(tmp_path: Path) -> None:
    with pytest.raises((InputError, ValueError)):
        simulate(tmp_path).session(search={"sampler": "no such sampler"})


def test_work_ahead_leaves_nothing_but_latencies(simulation: Simulation) -> None:
    session = simulation.session()
    session.work_ahead(lambda: False)
    assert simulation.pool.meters == ["size", "task"]
    assert len(simulation.pool.passes_run) == 3
    finish(session)
    assert len(simulation.pool.passes_run) == 3


def test_work_ahead_stops_when_it_is_enough(simulation: Simulation) -> None:
    simulation.session().work_ahead(lambda: True)
    assert simulation.pool.passes_run == []


def test_all_trials_failing_is_a_note(simulation: Simulation) -> None:
    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, failing)
    result = finish(simulation.session())
    assert result.best is not None
    assert result.best.chain == "source"
    assert result.trials["failed"] == 3


def test_zero_accuracy_of_the_source_is_a_note(tmp_path: Path) -> None:
    source = {"latency": 10.0, "size": 1.0, "accuracy": 0.0, "passes": []}
    result = finish(simulate(tmp_path, source=source).session())
    assert any("the source model's accuracy is 0" in note for note in result.notes)


def test_a_joined_run_executes_the_trials_of_a_chain(simulation: Simulation) -> None:
    session = simulation.session()
    joined = JoinedRun(session, simulation.store.runs.get(session.ctx.run))
    chain = simulation.chain
    simulation.store.trials.add([TrialRecord(run=session.ctx.run, number=0, chain=chain.id, point={}, details={})])
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
    simulation.store.trials.add([TrialRecord(run=session.ctx.run, number=0, chain=chain.id, point={}, details={})])
    trial = joined.claim_trial(chain.id)
    assert trial is not None
    assert joined.execute(trial).outcome is Outcome.CRASHED
    simulation.pool.passes[name] = faster(0.5)
    joined.retry_failures(chain.id)
    again = joined.claim_trial(chain.id)
    assert again is not None
    assert joined.execute(again).outcome is Outcome.OK
    assert joined.claim_trial(chain.id) is None


def test_export_writes_model_options_and_recipe(simulation: Simulation, tmp_path: Path) -> None:
    with simulation.session() as session:
        result = session.export(session.execute(search_inline), tmp_path / "out")
    assert result.best is not None
    assert Path(result.best.path) == tmp_path / "out" / "model.onnx"
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["model.onnx", "recipe.json", "session.json"]


def test_the_lineage_of_the_source_is_empty(simulation: Simulation) -> None:
    simulation.pool.passes = {name: faster(0.999, size=5.0) for name in simulation.pool.passes}
    with simulation.session() as session:
        result = session.execute(search_inline)
        assert result.best is not None
        assert session.steps_of(result.best) == []


def test_a_similar_run_executes_only_what_is_new(simulation: Simulation, tmp_path: Path) -> None:
    finish(simulation.session())
    wider = simulate(tmp_path / "wider", store=simulation.store)
    wider.plan = Simulation(tmp_path / "plan", dag={**DAG, "chains": [*DAG["chains"], ["names", "fold"]]}).plan
    result = finish(wider.session())
    assert not result.reused
    assert (result.pass_runs.executed, result.trials["ok"]) == (1, 4)


def test_equal_candidates_share_their_evaluations(simulation: Simulation) -> None:
    simulation.pool.passes = dict.fromkeys(simulation.pool.passes, unchanged)
    result = finish(simulation.session())
    assert result.trials["ok"] == 3
    assert result.evaluations.executed == 3  # the baseline's
    assert result.best is not None
    assert result.best.chain == "source"


def test_a_model_that_the_source_beats_in_everything_is_not_on_the_front(tmp_path: Path) -> None:
    simulation = simulate(tmp_path)
    simulation.pool.passes["name_fix"] = faster(1.1, size=2000.0)
    result = finish(simulation.session())
    assert "names" not in [model.chain for model in result.pareto]
    assert "clean" in [model.chain for model in result.pareto]


def test_it_is_on_the_front_if_the_source_breaks_a_constraint(tmp_path: Path) -> None:
    simulation = simulate(tmp_path, constraints=(Constraint("size", min=1500), Constraint("accuracy", max_drop=1)))
    simulation.pool.passes["name_fix"] = faster(1.1, size=2000.0)
    result = finish(simulation.session())
    assert [model.chain for model in result.pareto] == ["names"]


def test_more_workers_make_the_same_trials(tmp_path: Path) -> None:
    results = [finish(simulate(tmp_path / str(workers)).session(workers=workers)) for workers in (1, 2)]
    assert results[0].trials == results[1].trials
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
