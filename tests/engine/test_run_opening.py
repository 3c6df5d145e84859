"""Opening a session: a new run, one to resume, or a finished one that answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation import Simulation, failing, faster, killed
from store_owners import by

from autoopt.dag.compiler.plan import Learned
from autoopt.engine.run.opening import (
    begin_run,
    first_points,
    make_attempt,
    open_session,
    settings_of,
    with_recorded_points,
)
from autoopt.engine.run.session import search_inline
from autoopt.problem.run_request import RunRequest
from autoopt.store import RunRecord, SweepRecord

TWO_CHAINS = {"passes": {"fold": "identity_elimination", "clean": "remove_unused"}, "chains": [["fold"], ["clean"]]}


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation(tmp_path)


def test_learned_points_are_tried_in_their_order_after_those_of_preferred_chains(tmp_path: Path) -> None:
    passes = ("identity_elimination", "remove_unused", "common_subexpression_elimination", "name_fix")
    dag: dict[str, Any] = {
        "passes": {f"p{number}": name for number, name in enumerate(passes)},
        "chains": [[f"p{number}"] for number in range(len(passes))],
    }
    simulation = Simulation(tmp_path, dag=dag)
    simulation.pool.passes = {name: faster(0.9 - number / 10) for number, name in enumerate(passes)}
    chains = {chain.name: chain for chain in simulation.chains.values()}
    learned = [Learned(chains[name].id, (name,), {}) for name in ("p3", "p1")]
    simulation.plan = simulation.plan.with_learned(learned)
    with simulation.session() as session:
        session.execute(search_inline)
        trials = [trial.chain for trial in session.completed_trials()]
    assert trials[:2] == ["p3", "p1"]
    preferred = {**simulation.chains, chains["p2"].id: replace(chains["p2"], weight=2.0, prior=({},))}
    order = [chain for chain, _ in first_points(simulation.plan, preferred)]
    assert order == [chains[name].id for name in ("p2", "p3", "p1")]
    with simulation.session(resume=None, again="all") as session:
        begun = session.record
    simulation.plan = simulation.plan.with_learned([replace(learned[1], evidence="gave 0.50 on m")])
    resumed = with_recorded_points(simulation.asked(), begun).plan
    assert resumed.learned == tuple(learned), "a resumed run asks as it began, whatever was learned since"
    confirmed = replace(learned[1], expected=0.5)
    order = [chain for chain, _ in first_points(simulation.plan.with_learned([learned[0], confirmed]), preferred)]
    assert order == [chains[name].id for name in ("p1", "p2", "p3")]


def record(simulation: Simulation, **fields: object) -> RunRecord:
    return replace(RunRecord("", "t", "identity", simulation.candidate.artifact), **fields)  # type: ignore[arg-type]


def test_the_settings_of_a_run_name_what_was_asked_for(simulation: Simulation) -> None:
    settings = settings_of(RunRequest(dag=simulation.plan.spec), simulation.asked(trials=3))
    assert settings["search"]["trials"] == 3
    assert settings["objectives"][0]["metric"] == "latency_p50"
    assert settings["replay_environment"]["accelerator"]["execution_provider"] == "CPUExecutionProvider"
    assert RunRequest.from_json(settings["request"]).workers == 2


def test_a_part_of_a_run_over_several_targets_carries_the_targets_name(simulation: Simulation) -> None:
    parent = simulation.store.runs.create(record(simulation, identity="parent", settings={"targets": ["local"]}))
    request = RunRequest(dag=simulation.plan.spec, home=simulation.folder)
    session = open_session(request, simulation.asked(), simulation.resources, 0.0, parent=parent)
    stored = simulation.store.runs.get(session.ctx.run)
    assert (stored.name, stored.parent) == ("source.onnx · local", parent.id)


def test_the_deadline_follows_from_the_minutes(simulation: Simulation) -> None:
    request = RunRequest(dag=simulation.plan.spec, workers=3)
    attempt = make_attempt(request, simulation.asked(minutes=2), "run", began=100.0)
    assert (attempt.began, attempt.deadline, attempt.grace, attempt.workers) == (100.0, 214.0, 6.0, 3)
    assert make_attempt(request, simulation.asked(), "run", began=100.0).deadline == float("inf")


@pytest.mark.parametrize(("ending", "deadline"), [(5.0, 209.0), (60.0, 202.0)])
def test_the_minutes_contain_the_end_of_the_process(simulation: Simulation, ending: float, deadline: float) -> None:
    request = RunRequest(dag=simulation.plan.spec, ending=ending)
    assert make_attempt(request, simulation.asked(minutes=2), "run", began=100.0).deadline == deadline


def test_the_time_of_interrupted_attempts_counts(simulation: Simulation) -> None:
    first = simulation.session(search={"minutes": 10})
    simulation.store.runs.set_seconds(first.ctx.run, 60.0)
    simulation.store.claims.release("run", first.ctx.run)
    again = simulation.session(search={"minutes": 10}, resume=first.ctx.run)
    assert 60.0 <= again.ctx.attempt.elapsed() < 120.0


@pytest.mark.parametrize("again", ["all", "failed"])
def test_a_fresh_search_and_a_retry_do_not_take_the_answer(simulation: Simulation, again: str) -> None:
    with simulation.session() as session:
        session.execute(search_inline)
    assert simulation.session(again=again).answer is None


def test_what_a_lost_worker_left_out_is_said_and_tried_again_by_the_same_command(simulation: Simulation) -> None:
    simulation.pool.passes["remove_unused"] = killed
    with simulation.session() as session:
        result = session.execute(search_inline)
    assert (result.trial_counts["crashed"], result.untried) == (1, 1)
    assert "not tried: trial 0 (crashed, remove_unused: the worker died: SIGKILL)" in " ".join(result.notes)
    simulation.pool.passes["remove_unused"] = faster(0.8)
    with simulation.session() as session:
        again = session.execute(search_inline)
    assert (again.reused, again.trial_counts["ok"], again.untried) == (False, 1, 0)
    assert simulation.session().answer is not None


def test_a_finished_run_is_continued_with_its_failed_trials_only(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, dag=TWO_CHAINS)
    simulation.pool.passes = {"identity_elimination": faster(0.9), "remove_unused": failing}
    with simulation.session() as session:
        first = session.execute(search_inline)
    assert (first.trial_counts["ok"], first.trial_counts["failed"]) == (1, 1)
    simulation.pool.passes["remove_unused"] = faster(0.8)
    simulation.pool.passes["identity_elimination"] = failing  # is not asked again
    with simulation.session(is_retry=True) as session:
        again = session.execute(search_inline)
    assert (again.run, again.trial_counts["ok"]) == (first.run, 2)
    assert again.best.chain == "clean"
    assert simulation.session(is_retry=True).answer is not None, "nothing has failed"


def test_a_cancelled_run_is_continued(simulation: Simulation) -> None:
    cancelled = simulation.session()
    simulation.store.runs.finish(cancelled.ctx.run, "cancelled")
    assert simulation.session(is_retry=True).ctx.run == cancelled.ctx.run


def test_an_abandoned_identical_run_is_taken_over(simulation: Simulation) -> None:
    first = simulation.store.runs.create(record(simulation))
    simulation.store.claims.release("run", first.id)
    request = RunRequest(dag=simulation.plan.spec)
    assert begin_run(request, record(simulation), simulation.store).id == first.id


def interrupted(simulation: Simulation, identity: str) -> str:
    """A run whose process has ended."""
    owner = simulation.store.owner.rpartition("/")[0] + "/1"  # as this process, but started with the machine
    return str(simulation.store.runs.create(record(simulation, identity=identity, owner=owner)).id)


def statuses(simulation: Simulation) -> dict[str, str]:
    return {run.id: run.status for run in simulation.store.runs.all()}


def test_interrupted_twins_are_closed_by_the_run_that_finishes(simulation: Simulation) -> None:
    with simulation.session() as session:
        identity = simulation.store.runs.get(session.ctx.run).identity
        dead = [interrupted(simulation, identity) for _ in range(3)]
        alive = simulation.store.runs.create(record(simulation, identity=identity)).id
        other = interrupted(simulation, "another search")
        session.execute(search_inline)
    found = statuses(simulation)
    assert [found[run] for run in dead] == ["cancelled"] * 3
    assert (found[alive], found[other]) == ("running", "running")
    assert f"run {session.ctx.run} is the same search" in simulation.store.runs.get(dead[0]).result["error"]


def test_interrupted_twins_are_closed_by_the_run_that_takes_one_over(simulation: Simulation) -> None:
    dead = [interrupted(simulation, "identity") for _ in range(3)]
    taken = begin_run(RunRequest(dag=simulation.plan.spec), record(simulation), simulation.store).id
    found = statuses(simulation)
    assert sorted(found[run] for run in dead) == ["cancelled", "cancelled", "running"]
    assert found[taken] == "running"


def test_interrupted_twins_are_closed_by_the_request_that_is_answered(simulation: Simulation) -> None:
    with simulation.session() as session:
        session.execute(search_inline)
    dead = interrupted(simulation, simulation.store.runs.get(session.ctx.run).identity)
    assert simulation.session().answer is not None
    assert statuses(simulation)[dead] == "cancelled"


def test_a_resumed_run_is_not_answered_by_a_finished_twin(simulation: Simulation) -> None:
    with simulation.session() as session:
        session.execute(search_inline)
    dead = interrupted(simulation, simulation.store.runs.get(session.ctx.run).identity)
    with simulation.session(resume=dead) as again:
        result = again.execute(search_inline)
    assert (result.run, result.reused) == (dead, False)
    assert statuses(simulation)[dead] == "finished"


def test_a_run_under_way_is_not_taken_over(simulation: Simulation) -> None:
    first = simulation.store.runs.create(record(simulation))
    simulation.store.claims.release("run", first.id)
    assert by(simulation.store, f"{simulation.store.owner}/other").claims.acquire("run", first.id)
    request = RunRequest(dag=simulation.plan.spec)
    assert begin_run(request, record(simulation), simulation.store).id != first.id


def test_a_cancelled_run_is_taken_over_only_by_its_sweep(simulation: Simulation) -> None:
    sweep = simulation.store.sweeps.create(SweepRecord("", "zoo")).id
    request = RunRequest(dag=simulation.plan.spec)
    for owner, taken_over in ((None, False), (sweep, True)):
        wanted = record(simulation, sweep=owner, identity=f"in {owner}")
        first = simulation.store.runs.create(wanted)
        simulation.store.runs.finish(first.id, "cancelled")
        assert (begin_run(request, wanted, simulation.store).id == first.id) is taken_over
