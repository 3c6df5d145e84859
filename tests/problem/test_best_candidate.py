"""The best candidate of a finished run, its goal, and the machines that measured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoopt.distributions import library_version
from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.problem.best_candidate import Machine, RunGoal, best_candidate, changing_passes, goal_of, limits_of
from autoopt.problem.environment import cpu
from autoopt.results import Trial
from autoopt.store import ChainRecord, EvaluationRecord, PassRunRecord, RunRecord, open_store

CHAIN = "c" * 8
POINT: Mapping[str, Mapping[str, Any]] = {"quant": {"bits": 8}, "fold": {"all": True}}
SETTINGS: Mapping[str, Any] = {
    "objectives": [{"metric": "latency_p50"}, {"metric": "size"}],
    "constraints": [{"metric": "accuracy", "max_drop": 0.01, "certain": "yes"}],
    "target": {"device": "cpu", "execution_provider": "CPUExecutionProvider", "threads": 2},
}
PLAN = {"nodes": {"quant": "dynamic_quantization", "fold": "identity_elimination"}}


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [({}, (cpu()["model"], library_version("onnxruntime"))), ({"onnxruntime": "1.2"}, (cpu()["model"], "1.2"))],
    ids=["this interpreter", "another runtime"],
)
def test_a_machine_has_the_runtime_of_the_host(runtime: Mapping[str, Any], expected: tuple[str, str]) -> None:
    assert Machine.of(runtime) == Machine(*expected)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ("", "")),
        ({"cpu": {"model": "Old CPU"}, "libraries": {"onnxruntime": "1.1"}}, ("Old CPU", "1.1")),
        ({"cpu": {"model": "Old CPU"}, "onnxruntime": "1.2", "libraries": {"onnxruntime": "1.1"}}, ("Old CPU", "1.2")),
        ({"libraries": {"onnxruntime": "1.1"}, "measured by": {"onnxruntime": "1.3"}}, ("", "1.3")),
        ({"cpu": None, "libraries": None, "measured by": None}, ("", "")),
    ],
    ids=["nothing recorded", "libraries", "host", "another interpreter", "nulls"],
)
def test_the_machine_of_an_evaluation_is_as_far_as_it_was_recorded(
    environment: Mapping[str, Any], expected: tuple[str, str]
) -> None:
    evaluation = EvaluationRecord("e", Candidate("a" * 64), "latency", Outcome.OK, environment=environment)
    assert Machine.that_measured(evaluation) == Machine(*expected)


def test_limits_are_the_numbers_of_each_constraint() -> None:
    constraints = [
        {"metric": "accuracy", "min": 1, "max_drop": 0.01, "note": "x"},
        {"metric": "size", "max_ratio": 0.5},
    ]
    assert limits_of(constraints) == {"accuracy": {"min": 1.0, "max_drop": 0.01}, "size": {"max_ratio": 0.5}}


def run_with(settings: Mapping[str, Any]) -> RunRecord:
    return RunRecord(id="r", name="net", identity="i", model="a" * 64, settings=settings, plan=PLAN)


def test_the_goal_is_the_first_objective_with_its_target_and_limits() -> None:
    goal = RunGoal("latency_p50", "cpu", "CPUExecutionProvider", 2, {"accuracy": {"max_drop": 0.01}})
    assert goal_of(run_with(SETTINGS)) == goal
    older = {**SETTINGS, "target": {"device": "gpu"}, "constraints": None}
    assert goal_of(run_with(older)) == RunGoal("latency_p50", "gpu", "", 1, {})


@pytest.mark.parametrize("missing", ["objectives", "target"])
def test_a_run_over_several_targets_has_no_goal_of_its_own(missing: str) -> None:
    assert goal_of(run_with({**SETTINGS, missing: None})) is None


class Searched:
    """A finished run whose trial 0 folded and quantized the source."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(None, folder)
        self.source, self.folded, self.best = (self._put(folder, name) for name in ("source", "folded", "best"))
        record = replace(run_with(SETTINGS), id="", model=self.source)
        self.run = self.store.runs.create(record, [ChainRecord(CHAIN, "fold -> quant")])
        self.steps = (
            self.passed("identity_elimination", self.source, self.folded),
            self.passed("shape_inference", self.folded, self.folded),
            self.passed("dynamic_quantization", self.folded, self.best),
        )
        environment = {"cpu": {"model": "Fast CPU"}, "libraries": {"onnxruntime": "1.2"}}
        judged = EvaluationRecord("judged", Candidate(self.best), "size", Outcome.OK, environment=environment)
        self.store.results.finish_evaluation(judged)
        again = replace(judged, key="again", meter="latency")
        self.store.results.finish_evaluation(again)
        self.trial = Trial(
            self.run.id, 0, CHAIN, POINT, outcome=Outcome.OK, candidate=Candidate(self.best),
            pass_runs=self.steps, evaluations=("judged", "again"),
        )  # fmt: skip

    def _put(self, folder: Path, name: str) -> str:
        model = folder / "made" / name / "model.onnx"
        model.parent.mkdir(parents=True)
        model.write_text(name)
        return self.store.artifacts.put(model.parent)

    def passed(self, name: str, before: str, after: str) -> str:
        outcome = Outcome.UNCHANGED if before == after else Outcome.OK
        record = PassRunRecord(f"{name} on {before}", name, {}, Candidate(before), outcome, Candidate(after))
        assert self.store.results.finish_pass_run(record)
        return record.key

    def finished(self, *trials: Trial, **best: Any) -> RunRecord:
        for trial in trials:
            self.store.trials.finish(trial)
        ratios = {"latency_p50": {"value": 0.5, "low": 0.4, "high": 0.6}}
        document = {"artifact": self.best, "point": POINT, "session_options": {}, "ratios": ratios, **best}
        self.store.runs.finish(self.run.id, "finished", {"best": document})
        return self.store.runs.get(self.run.id)


@pytest.fixture
def searched(tmp_path: Path) -> Searched:
    return Searched(tmp_path)


def test_the_best_candidate_is_told_by_passes_values_and_ratios(searched: Searched) -> None:
    best = best_candidate(searched.store, searched.finished(searched.trial))
    assert best.passes == {"identity_elimination", "dynamic_quantization"}
    assert best.values == {"dynamic_quantization": {"bits": 8}, "identity_elimination": {"all": True}}
    assert best.ratios == {"latency_p50": 0.5}
    assert best.machines == (Machine("Fast CPU", "1.2"),), "each machine once"
    assert best.goal == goal_of(searched.run)


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome.FAILED},
        {"violation": 0.1},
        {"point": {"quant": {"bits": 4}}},
        {"candidate": None},
        {"pass_runs": ()},
    ],
    ids=["failed", "breaks a limit", "another point", "no model", "nothing changed"],
)
def test_only_the_trial_that_measured_the_best_model_tells_of_it(searched: Searched, changes: dict[str, Any]) -> None:
    assert best_candidate(searched.store, searched.finished(replace(searched.trial, **changes))) is None


def test_session_options_belong_to_a_candidate(searched: Searched) -> None:
    tuned = replace(searched.trial, number=1, candidate=Candidate(searched.best, {"threads": 2}), pass_runs=())
    run = searched.finished(tuned, searched.trial)
    best = best_candidate(searched.store, run)
    assert best.passes


def test_the_source_is_no_candidate(searched: Searched) -> None:
    assert best_candidate(searched.store, searched.finished(searched.trial, artifact=searched.source)) is None
    assert best_candidate(searched.store, replace(searched.run, result={})) is None


def test_passes_that_the_plan_lacks_or_that_changed_nothing_are_left_out(searched: Searched) -> None:
    inserted = searched.passed("float16", searched.source, searched.best)
    trial = replace(searched.trial, pass_runs=(*searched.steps, inserted))
    assert changing_passes(searched.store, searched.run, trial) == {"identity_elimination", "dynamic_quantization"}


def test_the_ratio_of_a_result_is_its_value(searched: Searched) -> None:
    ratios = {"size": Estimate(0.25, 0.2, 0.3)}
    document = {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in ratios.items()}
    best = best_candidate(searched.store, searched.finished(searched.trial, ratios=document))
    assert best.ratios == {"size": 0.25}
