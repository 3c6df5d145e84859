"""The models of a run that can be exported: the best one, those of its trials, those of its targets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulation import Simulation, failing, faster

from autoopt.engine.run.session import search_inline
from autoopt.engine.tools.stored_models import package_of, target_of
from autoopt.errors import InputError
from autoopt.results import ChosenTarget, ModelResult, PartResult, RunResult
from autoopt.store import RunRecord, Store

DAG = {
    "passes": {"fold": "identity_elimination", "clean": "remove_unused", "names": "name_fix"},
    "chains": [["fold"], ["clean"], ["names"]],
}


@pytest.fixture
def run(tmp_path: Path) -> tuple[Store, RunRecord]:
    """A finished run: `fold` is the fastest, `clean` is slower, `names` fails."""
    simulation = Simulation(tmp_path, dag=DAG)
    simulation.pool.passes = {
        "identity_elimination": faster(0.5),
        "remove_unused": faster(0.8, size=500.0),
        "name_fix": failing,
    }
    with simulation.session() as session:
        session.execute(search_inline)
    return simulation.store, simulation.store.runs.get(session.ctx.run)


def number_of(store: Store, run: RunRecord, chain: str) -> int:
    return next(trial.number for trial in store.trials.all(run.id) if trial.chain == chain)


def test_the_best_model_comes_with_the_figures_of_the_run(run: tuple[Store, RunRecord]) -> None:
    store, record = run
    package = package_of(store, record)
    assert package.run == record
    assert package.model.chain == "fold"
    assert package.model == package.result.best
    assert package.model.metrics["latency_p50"] < package.result.baseline.metrics["latency_p50"]


def test_a_trial_that_is_shown_has_the_figures_that_are_shown(run: tuple[Store, RunRecord]) -> None:
    store, record = run
    package = package_of(store, record, trial=number_of(store, record, "fold"))
    assert package.model == package.result.best


def test_any_other_trial_with_a_model_can_be_exported(run: tuple[Store, RunRecord]) -> None:
    store, record = run
    number = number_of(store, record, "clean")
    model = package_of(store, record, trial=number).model
    assert (model.chain, model.trial) == ("clean", number)
    assert model.metrics["size"] == 500.0


def test_a_failed_trial_has_no_model(run: tuple[Store, RunRecord]) -> None:
    store, record = run
    number = number_of(store, record, "names")
    with pytest.raises(InputError, match=rf"trial {number} of run {record.id} has no model \("):
        package_of(store, record, trial=number)
    with pytest.raises(InputError, match="99"):
        package_of(store, record, trial=99)


def test_a_run_without_a_best_model_asks_for_a_trial(run: tuple[Store, RunRecord]) -> None:
    store, record = run
    result = replace(RunResult.from_json(record.result or {}), best=None)
    with pytest.raises(InputError, match="found no model that meets the constraints; name a trial"):
        package_of(store, replace(record, result=result.to_json()))


def test_a_run_on_one_target_has_no_other(run: tuple[Store, RunRecord]) -> None:
    store, record = run
    with pytest.raises(InputError, match=f"run {record.id} has no target 'two'; it has a single target"):
        package_of(store, record, target="two")


def finished(store: Store, source: str, result: RunResult, name: str, **fields: str) -> RunRecord:
    record = store.runs.create(RunRecord(id="", name=name, identity=name, model=source, **fields))
    store.runs.finish(record.id, "finished", replace(result, run=record.id).to_json())
    return store.runs.get(record.id)


@pytest.fixture
def targets(run: tuple[Store, RunRecord]) -> tuple[Store, dict[str, RunRecord]]:
    """A run over two targets: the best model is that of `two`."""
    store, record = run
    one = finished(store, record.model, RunResult("", "finished", best=ModelResult("1" * 64, chain="clean")), "one")
    best = ModelResult("2" * 64, chain="fold")
    two = finished(store, record.model, RunResult("", "finished", best=best), "two")
    entries = []
    for name, part in (("one", one), ("two", two)):
        entries.append(PartResult(name, RunResult.from_json(part.result or {}), {}))
    chosen = ChosenTarget("two", {"two": best})
    whole = RunResult("", "finished", best=best, targets=tuple(entries), choice=chosen)
    return store, {"one": one, "two": two, "whole": finished(store, record.model, whole, "whole")}


def test_the_best_model_is_measured_on_the_chosen_target(targets: tuple[Store, dict[str, RunRecord]]) -> None:
    store, runs = targets
    package = package_of(store, runs["whole"])
    assert package.run == runs["two"]
    assert package.model.chain == "fold"


def test_a_target_has_a_model_of_its_own(targets: tuple[Store, dict[str, RunRecord]]) -> None:
    store, runs = targets
    assert package_of(store, runs["whole"], target="one").model.chain == "clean"
    package = package_of(store, runs["whole"], target="two")
    assert (package.run, package.model.chain) == (runs["two"], "fold")


def test_an_unknown_target_is_answered_with_those_there_are(targets: tuple[Store, dict[str, RunRecord]]) -> None:
    _, runs = targets
    with pytest.raises(InputError, match="has no target 'three'; it has: one, two"):
        target_of(RunResult.from_json(runs["whole"].result or {}), "three")
