"""Content of a run for other tools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoopt.engine.tools.exports import parts_of
from autoopt.errors import InputError
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import RunResult, Trial
from autoopt.results.run import PartResult
from autoopt.store import PassRunRecord, RunRecord, Store, open_store

CHAIN = "c" * 8
HALF = Estimate(0.5, 0.4, 0.6)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(None, tmp_path)


def put(store: Store, content: str) -> str:
    folder = store.home / "made" / content
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_text(content)
    return store.artifacts.put(folder)


def begun(store: Store, name: str = "cnn · quick") -> RunRecord:
    """A run without trials."""
    source = put(store, f"source of {name}")
    record = RunRecord(id="", name=name, identity=name, model=source)
    return store.runs.create(record)


def passed(store: Store, run: RunRecord, name: str, outcome: Outcome, **fields: Any) -> PassRunRecord:
    """A pass run on the source of a run that took half a second; a good one leaves a model of its own."""
    output = None
    if outcome is Outcome.OK:
        output = Candidate(put(store, f"{name} of {run.name}"))
    elif outcome is Outcome.UNCHANGED:
        output = Candidate(run.model)
    record = PassRunRecord(
        key=f"{name} of {run.id}",
        pass_name=name,
        params={},
        input=Candidate(run.model),
        outcome=outcome,
        output=output,
        seconds=0.5,
        run=run.id,
    )
    record = replace(record, **fields)
    assert store.results.finish_pass_run(record)
    return record


def tried(store: Store, run: RunRecord, number: int, *steps: PassRunRecord, **fields: Any) -> None:
    trial = Trial(run.id, number, CHAIN, {"quant": {"bits": number}}, "fold -> quant", outcome=steps[-1].outcome)
    trial = replace(trial, pass_runs=tuple(step.key for step in steps), **fields)
    store.trials.finish(trial)


def ended(store: Store, run: RunRecord, *targets: PartResult) -> RunRecord:
    store.runs.finish(run.id, "finished", RunResult(run.id, "finished", targets=targets).to_json())
    return store.runs.get(run.id)


def test_trials_have_their_figures_and_searched_values(store: Store) -> None:
    run = begun(store)
    step = passed(store, run, "quant", Outcome.OK)
    metrics = {"size": Estimate.exact(10.0), "accuracy": Estimate(0.9, 0.8, 0.95)}
    tried(store, run, 3, step, metrics=metrics, ratios={"size": HALF}, violation=0.1)
    tried(store, run, 4, passed(store, run, "fold", Outcome.FAILED, message="odd"))
    (part,) = parts_of(store, ended(store, run))
    good, bad = part.trials
    assert (part.name, part.record.id) == (run.name, run.id)
    assert good.figures == {
        "size": 10.0, "accuracy": 0.9, "size_ratio": 0.5, "size_ratio_low": 0.4, "size_ratio_high": 0.6,
    }  # fmt: skip
    assert (good.number, bad.number, good.chain) == (3, 4, "fold -> quant")


def test_targets_are_parts_with_their_own_runs(store: Store) -> None:
    whole = begun(store)
    parts = {name: begun(store, f"cnn · quick, {name}") for name in ("phone", "server")}
    targets = []
    for name, run in parts.items():
        tried(store, run, 0, passed(store, run, "quant", Outcome.OK))
        ended(store, run)
        targets.append(PartResult(name, RunResult(run.id, "finished"), {}))
    found = parts_of(store, ended(store, whole, *targets))
    assert {part.name: part.record.id for part in found} == {
        f"{whole.name}-{name}": run.id for name, run in parts.items()
    }
    assert [len(part.trials) for part in found] == [1, 1]


def test_a_run_without_trials_is_refused(store: Store) -> None:
    with pytest.raises(InputError, match="no trial has finished yet"):
        parts_of(store, begun(store))
    with pytest.raises(InputError, match="has no trial in the store"):
        parts_of(store, ended(store, begun(store, "lost")))
