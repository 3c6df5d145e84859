"""The best model under combinations of what changed between two nights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.planning.goal import GoalOptions
from autoopt.engine.sweeps.bisection.environments import Environments
from autoopt.engine.sweeps.bisection.factors import changes_between
from autoopt.engine.sweeps.bisection.variants import (
    CHOICE,
    Budget,
    NightModel,
    NotMade,
    VariantModel,
    Variants,
    mixed_dag,
    mixed_request,
)
from autoopt.engine.sweeps.entry import CALIBRATION, DAG, EVALUATION, GOAL, LATENCY
from autoopt.engine.work.environment import versions
from autoopt.errors import InputError
from autoopt.model.candidate import Candidate
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Outcome
from autoopt.registry import registry
from autoopt.results import ModelResult, RunResult, SweepEntry
from autoopt.results.bisection import Factor
from autoopt.results.run import PartResult
from autoopt.spec import load_dag
from autoopt.store import PassRunRecord, RunRecord
from autoopt.store.memory import MemoryStore

BEFORE = {
    "name": "before",
    "passes": {"fold": "identity_elimination"},
    "chains": [["fold"]],
    "data": {"evaluation": "/data/e1.npz", "calibration": "/data/c1.npz"},
    "objectives": [{"metric": "latency_p50"}],
    "constraints": [{"metric": "accuracy", "max_drop": 0.01}],
}
AFTER = {
    "name": "after",
    "passes": {"quant": "dynamic_quantization"},
    "chains": [["quant"]],
    "data": {"evaluation": "/data/e2.npz", "latency": "/data/l2.npz"},
    "objectives": [{"metric": "size"}],
    "constraints": [],
}
INPUTS = (DAG, GOAL, EVALUATION, CALIBRATION, LATENCY)
COMBINATIONS = [frozenset(names) for size in range(6) for names in itertools.combinations(INPUTS, size)]


def test_nights_without_a_dag_mix_data_and_goals() -> None:
    old = RunRequest("m.onnx", data="e1.npz", calibration="c1.npz")
    new = RunRequest("m.onnx", data="e2.npz", goal=GoalOptions("size"))
    mixed = mixed_request(old, new, frozenset({EVALUATION, GOAL}))
    assert mixed == replace(old, data="e2.npz", goal=GoalOptions("size"))
    with pytest.raises(NotMade, match="one night had a DAG"):
        mixed_request(replace(old, dag=load_dag(BEFORE)), new, frozenset())


@pytest.mark.parametrize("names", COMBINATIONS, ids=lambda names: "+".join(sorted(names)) or "none")
def test_a_mixed_dag_takes_each_input_from_its_night(names: frozenset[str]) -> None:
    mixed = mixed_dag(load_dag(BEFORE), load_dag(AFTER), names)
    source: dict[str, Mapping[str, Any]] = {name: AFTER if name in names else BEFORE for name in INPUTS}
    assert mixed.name == source[DAG]["name"]
    assert [objective.metric for objective in mixed.objectives] == [source[GOAL]["objectives"][0]["metric"]]
    assert len(mixed.constraints or ()) == len(source[GOAL]["constraints"])
    for name, field in ((EVALUATION, "evaluation"), (CALIBRATION, "calibration"), (LATENCY, "latency")):
        assert getattr(mixed.data, field) == source[name]["data"].get(field)


def file(folder: Path, seed: int = 0, **options: Any) -> ModelFile:
    return ModelFile(str(write(mlp(seed=seed), folder / str(seed))), options)


def test_models_are_the_same_if_file_options_and_runtime_are(tmp_path: Path) -> None:
    runtime = {"onnxruntime": "1.2"}
    one = VariantModel(file(tmp_path), "python", runtime)
    copy = VariantModel(file(tmp_path / "copy"), "another python", dict(runtime))
    assert one.same_as(copy)
    for other in (
        replace(one, file=file(tmp_path, seed=1)),
        replace(one, file=file(tmp_path, threads=2)),
        replace(one, runtime={"onnxruntime": "1.3"}),
    ):
        assert not one.same_as(other)


class Nights:
    """Two nights of one model in a store, each with a best model of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore(folder)
        self.source = self._put(0)
        self.before, self.after = self.night("1", 1), self.night("2", 2)

    def _put(self, seed: int) -> str:
        return self.store.artifacts.put(write(mlp(seed=seed), self.folder / "made" / str(seed)).parent)

    def entry(self, run: str, best: str | None, **fields: Any) -> SweepEntry:
        model = None if best is None else ModelResult(artifact=best, chain="fold")
        return SweepEntry("cnn", "ok", result=RunResult(run, "finished", best=model), **fields)

    def night(self, sweep: str, seed: int) -> NightModel:
        run = self.store.runs.create(RunRecord(id="", name="cnn", identity=sweep, model=self.source))
        return NightModel(sweep, self.entry(run.id, self._put(seed)), run)

    def variants(self, before: SweepEntry, after: SweepEntry) -> Variants:
        return Variants(
            store=self.store, before=replace(self.before, entry=before), after=replace(self.after, entry=after),
            changes=changes_between(before, after), scratch=self.folder, environments=Environments(self.folder),
            budget=Budget(), until=math.inf,
        )  # fmt: skip


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_a_night_has_the_run_behind_its_entry(nights: Nights) -> None:
    night = NightModel.of(nights.store, "1", nights.before.entry)
    assert (night.run.id, night.candidate.artifact) == (nights.before.run.id, nights.before.candidate.artifact)


def test_nights_that_cannot_be_bisected_are_refused(nights: Nights) -> None:
    run = nights.before.run.id
    best = nights.before.candidate.artifact
    model = ModelResult(artifact=best, chain="fold")
    part = PartResult("first", 1.0, RunResult(run, "finished"), model)
    parts = RunResult(run, "finished", best=model, parts=(part,))
    refused = {
        "has no best model in sweep 1": nights.entry(run, None),
        "is several models": SweepEntry("cnn", "ok", result=parts),
        "was measured on another host": nights.entry(run, best, environment={"hosts": {"a": "b"}}),
    }
    for reason, entry in refused.items():
        with pytest.raises(InputError, match=reason):
            NightModel.of(nights.store, "1", entry)


def test_the_choice_is_a_factor_where_nothing_that_makes_models_changed(nights: Nights) -> None:
    before, after = nights.before.entry, nights.after.entry
    variants = nights.variants(before, after)
    digests = [night.candidate.artifact[:8] for night in (nights.before, nights.after)]
    assert variants.factors == (Factor(CHOICE, *digests),)
    assert nights.variants(before, before).factors == ()
    changed = nights.variants(replace(before, inputs={DAG: "1"}), replace(after, inputs={DAG: "2"}))
    assert [factor.name for factor in changed.factors] == [DAG]


def test_the_first_and_last_models_are_those_of_the_nights(nights: Nights) -> None:
    here = versions()["onnxruntime"]
    after = replace(nights.after.entry, environment={"libraries": {"onnxruntime": here}})
    before = replace(nights.before.entry, environment={"libraries": {"onnxruntime": here}})
    variants = nights.variants(before, after)
    expected = {frozenset[str](): nights.before, frozenset([CHOICE]): nights.after}
    for changed, night in expected.items():
        model = variants.model(changed)
        assert Path(model.file.path) == nights.store.artifacts.path(night.candidate.artifact)
    for night in (variants.before, variants.after):
        assert Path(variants.source(night).file.path) == nights.store.artifacts.path(nights.source)


def test_libraries_and_inputs_are_not_varied_together(nights: Nights) -> None:
    source, best = Candidate(nights.source), nights.before.candidate
    step = PassRunRecord("step", "identity_elimination", {}, source, Outcome.OK, best)
    assert nights.store.results.finish_pass_run(step)
    assert "onnx" in registry().info(step.pass_name).libraries
    entries = []
    for night, number in ((nights.before, "1"), (nights.after, "2")):
        environment = {"libraries": {"onnx": f"1.{number}", "onnxslim": f"0.{number}"}}
        entries.append(replace(night.entry, environment=environment, inputs={DAG: number, GOAL: number}))
    variants = nights.variants(*entries)
    with pytest.raises(NotMade, match="not varied together"):
        variants.model(frozenset(["onnx", DAG]))
