"""The few best are measured several times over before one is chosen."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.prepare import prepare
from autoopt.engine.run.confirm import Confirmation
from autoopt.engine.sweeps.nightly import measure_again
from autoopt.engine.work.evaluations import Measurements
from autoopt.metrics import Estimate
from autoopt.results import RunResult, SweepEntry
from autoopt.results.sweep import BROKEN
from autoopt.store import open_store

SLOWER = {
    "passes": {
        "none": {"pass": "session_tuning", "params": {"graph_optimization_level": "disable"}},
        "arena": {"pass": "session_tuning", "params": {"enable_cpu_mem_arena": False}},
    },
    "chains": [["none"], ["arena"]],
    "objectives": [{"metric": "latency_p50"}],
    "constraints": [],
}


def round_of(ratio: float, disturbed: bool) -> Measurements:
    return Measurements(ratios={"latency_p50": Estimate(ratio, 0.99 * ratio, 1.01 * ratio)}, disturbed=disturbed)


def test_rounds_on_a_disturbed_machine_count_only_where_they_are_most() -> None:
    calm = Confirmation([round_of(0.5, False), round_of(0.9, True), round_of(0.51, False), round_of(0.5, False)])
    assert calm.ratios["latency_p50"].value == pytest.approx(0.5)
    assert calm.ratios["latency_p50"].high < 0.6
    rough = Confirmation([round_of(0.5, False), round_of(0.9, True), round_of(0.9, True)])
    assert rough.ratios["latency_p50"].value == pytest.approx(0.9)
    assert rough.ratios["latency_p50"].low < 0.5


def test_a_round_on_a_disturbed_machine_is_made_up_for() -> None:
    known = [round_of(0.5, False) for _ in range(4)]
    assert len(Confirmation([*known, round_of(0.5, True)]).undisturbed()) == 4
    assert len(Confirmation([*known, round_of(0.5, True), round_of(0.5, False)]).undisturbed()) == 5


SLOW = """\
from typing import Annotated
import numpy as np
import onnx
from autoopt import Categorical, register
@register("slow")
def slow(model, times: Annotated[int, Categorical(1, 1000, 1200, 1400)] = 1):
    "Add a half and take it off again."
    graph = model.graph
    graph.node[-1].output[0] = "v0"
    graph.initializer.append(onnx.numpy_helper.from_array(np.full(1, 0.5, np.float32), "half"))
    for n in range(times):
        last = f"v{n + 1}" if n + 1 < times else "y"
        graph.node.append(onnx.helper.make_node("Add", [f"v{n}", "half"], [f"w{n}"]))
        graph.node.append(onnx.helper.make_node("Sub", [f"w{n}", "half"], [last]))
    return model
"""


def lucky(home: Path, run: str) -> dict[int, str]:
    """Make the first latencies of the slow candidates look quick; the artifacts by `times`."""
    with open_store(home=home) as store:
        trials = {t.point["slow"]["times"]: t for t in store.trials.all(run)}
    with sqlite3.connect(home / "autoopt.db") as database:
        for times, trial in trials.items():
            for key in trial.evaluations if times > 1 else ():
                database.execute(
                    "UPDATE metric_value SET value = 0.01, low = 0.009, high = 0.011"
                    " WHERE evaluation = ? AND role = 'ratio' AND metric = 'latency_p50'",
                    (key,),
                )
    return {times: t.candidate.artifact for times, t in trials.items() if t.candidate is not None}


def test_who_breaks_a_constraint_when_measured_again_does_not_win(go: Any, cnn_file: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    dag: dict[str, Any] = {
        "user_script": str(tmp_path / "slow.py"),
        "passes": {"slow": {"pass": "slow", "params": {"times": "search"}}},
        "chains": [["slow"]],
        "objectives": [{"metric": "latency_p50"}],
    }
    again = {"rounds": 3, "quiet_seconds": 0}
    first = go({**dag, "constraints": []}, model=cnn_file, measurement={**again, "rounds": 0})
    artifacts = lucky(tmp_path / "home", first.run)
    size = first.baseline.metrics["size"] + 1  # which the source does not have
    bounds = [{"metric": "latency_p50", "max_ratio": 10}, {"metric": "size", "min": size}]
    result: RunResult = go({**dag, "constraints": bounds}, model=cnn_file, measurement=again)
    assert result.best is not None
    assert result.best.artifact == artifacts[1]
    assert result.trials["infeasible"] == 3
    (note,) = [n for n in result.notes if "measured again" in n]
    assert note.startswith("3 of the 4 best broke a constraint when measured again: latency_p50 max_ratio 10")
    assert [c.artifact for c in result.pareto] == [artifacts[1]]

    measured = result.best.measured
    assert measured.rounds >= 3
    assert measured.pairs >= measured.counted_rounds
    assert sum(measured.stopped.values()) == measured.counted_rounds
    assert measured.threads == measured.batch_size == 1
    assert measured.outputs["y"]["cosine"].value > 0.99
    document = json.loads(json.dumps(result.to_json()))
    assert RunResult.from_json(document) == result

    none = go({**dag, "constraints": [{"metric": "latency_p50", "max_ratio": 0.1}]}, model=cnn_file, measurement=again)
    assert none.best is None
    assert none.status == "nothing meets the constraints"

    request = RunRequest(
        dag={"name": "t", **dag, "constraints": bounds},
        model=cnn_file,
        home=tmp_path / "home",
        measurement={"seconds": 0.2, "replicas": 2, "target_width": 1.0, **again},
    )
    with prepare(request) as session:
        assert session.answer is not None
        assert session.answer.run == result.run
        other = replace(result, best=replace(result.best, artifact=result.baseline.artifact))
        night = measure_again(session, SweepEntry("model", "ok", result=other), None, occasion="tonight")
    assert night.status == BROKEN
    assert "size min" in night.reason
    assert night.best is not None
    assert night.best.measured.rounds >= 3
