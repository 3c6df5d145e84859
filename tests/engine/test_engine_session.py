"""A run as its user sees it: what it finds, what it leaves, what it does not do twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import endless_loop, mlp, split_abort, write

from autoopt.engine.inputs.goal import GoalRequest, make_goal
from autoopt.errors import InputError
from autoopt.metrics import Constraint
from autoopt.results import RunResult, WorkCounts
from autoopt.store import open_store

DYNAMIC: dict[str, Any] = {
    "passes": {
        "tidy": {"pass": "simplify"},
        "quant": {"pass": "dynamic_quantization", "params": {"weight_type": {"search": ["QInt8", "QUInt8"]}}},
    },
    "chains": [["tidy", "quant"], ["tidy"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


def test_best_model_is_found_recorded_and_exported(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    result: RunResult = go(DYNAMIC, model=mlp_file, out=tmp_path / "out")
    assert result.status == "finished"
    assert result.best is not None
    assert result.best.passes == ("tidy", "quant")
    assert result.best.metrics["size"] < result.baseline.metrics["size"]
    assert result.best.ratios["size"].value == pytest.approx(
        result.best.metrics["size"] / result.baseline.metrics["size"]
    )
    latency = result.best.ratios["latency_p50"]
    assert 0 < latency.low <= latency.value <= latency.high
    assert result.trials["total"] == result.trials["ok"] == 3
    assert [o.metric for o in result.objectives] == ["size"]
    assert RunResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    exported = tmp_path / "out" / "model.onnx"
    assert exported.stat().st_size == result.best.metrics["size"]
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert recipe["result"] == result.best.artifact
    assert recipe["steps"][-1]["pass"] == "dynamic_quantization"
    assert recipe["steps"][-1]["output"] == result.best.artifact
    assert json.loads((tmp_path / "out" / "session.json").read_text()) == {}


def test_identical_run_executes_nothing_and_a_similar_one_only_what_is_new(go: Any, mlp_file: Path) -> None:
    first = go(DYNAMIC, model=mlp_file)
    again = go(DYNAMIC, model=mlp_file)
    assert again.reused
    assert again.run == first.run
    assert again.pass_runs == WorkCounts(0, first.pass_runs.executed + first.pass_runs.reused)
    assert again.evaluations.executed == 0
    assert again.best == first.best
    wider = {**DYNAMIC, "chains": [*DYNAMIC["chains"], ["quant"]]}
    similar = go(wider, model=mlp_file)
    assert not similar.reused
    assert similar.pass_runs.executed <= 2  # quant without tidy, at two points
    assert similar.pass_runs.reused >= 3


def test_equal_candidates_share_their_evaluations(go: Any, mlp_file: Path) -> None:
    dag = {
        "passes": {"names": {"pass": "name_fix"}, "unused": {"pass": "remove_unused"}},
        "chains": [["names"], ["unused"], ["names", "unused"]],
        "constraints": [],
    }
    result = go(dag, model=mlp_file)
    assert result.trials == {"total": 3, "ok": 3, "infeasible": 0}
    assert result.evaluations.reused >= 3 * result.evaluations.executed / 2
    assert result.best is not None
    assert result.best.chain == "source"  # nothing changed, and no gain is an answer


def test_no_trial_that_the_source_beats_in_everything_is_on_the_front(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    (tmp_path / "larger.py").write_text(
        "import numpy, onnx\nfrom autoopt import register\n@register('larger')\ndef larger(model):\n"
        "    spare = onnx.numpy_helper.from_array(numpy.zeros(1000, numpy.float32), 'spare')\n"
        "    model.graph.initializer.append(spare)\n    return model\n"
    )
    dag = {
        "passes": {"larger": {"pass": "larger"}, "dynamic": {"pass": "dynamic_quantization"}},
        "chains": [["larger"], ["dynamic"]],
        "objectives": [{"metric": "size"}],
        "user_script": str(tmp_path / "larger.py"),
    }
    result = go({**dag, "constraints": []}, model=mlp_file)
    assert result.trials["ok"] == 2
    assert not [choice.chain for choice in result.pareto if choice.chain == "larger"]
    bound = [{"metric": "size", "min": result.baseline.metrics["size"] + 1}]  # which the source breaks
    without = go({**dag, "constraints": bound}, model=mlp_file)
    assert [choice.chain for choice in without.pareto if choice.chain == "larger"]


def test_nothing_meets_the_constraints(go: Any, mlp_file: Path) -> None:
    result = go({**DYNAMIC, "constraints": [{"metric": "size", "max": 10}]}, model=mlp_file)
    assert result.best is None
    assert result.status == "nothing meets the constraints"
    assert result.trials["infeasible"] == 3
    assert result.notes[0].startswith("trial ")
    assert "size max 10.0 fails" in result.notes[0]


def test_labels_make_accuracy_the_quality_constraint(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(40, 8)).astype(np.float32), labels=rng.integers(0, 4, 40))
    dag = {key: value for key, value in DYNAMIC.items() if key != "constraints"}
    labelled = go(dag, model=mlp_file, data=str(tmp_path / "d.npz"))
    assert "accuracy" in labelled.baseline.metrics
    assert any("drop in accuracy" in note for note in labelled.notes)
    unlabelled = go(dag, model=mlp_file)
    assert any("cosine" in note for note in unlabelled.notes)
    assert unlabelled.best is None or unlabelled.best.metrics["cosine"] >= 0.99


def test_a_pass_of_the_user_runs_in_workers(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import os\n"
        "from typing import Annotated\n"
        "from autoopt import Categorical, register\n"
        "@register('stamp')\n"
        "def stamp(model, words: Annotated[int, Categorical(1, 2)] = 1):\n"
        "    '''Write into the documentation of the model.'''\n"
        "    model.doc_string = 'x' * words + str(os.getpid() > 0)\n"
        "    return model\n"
    )
    dag = {
        "user_script": str(script),
        "passes": {"mine": {"pass": "stamp", "params": {"words": "search"}}},
        "chains": [["mine"]],
        "constraints": [],
    }
    result = go(dag, model=mlp_file)
    assert result.trials["ok"] == 2
    with pytest.raises(InputError, match="words"):
        go({**dag, "passes": {"mine": {"pass": "stamp", "params": {"words": "many"}}}}, model=mlp_file)


def test_a_metric_of_the_user_is_measured_and_constrains(
    go: Any, mlp_file: Path, calibration: Path, tmp_path: Path
) -> None:
    script = tmp_path / "metric.py"
    script.write_text(
        "from autoopt import register_metric\n"
        "@register_metric('spread', unit='1', direction='minimize')\n"
        "def spread(outputs, labels):\n"
        "    '''Largest minus smallest score of an item.'''\n"
        "    return outputs[0].max(axis=1) - outputs[0].min(axis=1)\n"
    )
    dag = {
        "user_script": str(script),
        "passes": {"tidy": {"pass": "simplify"}},
        "chains": [["tidy"]],
        "objectives": [{"metric": "spread"}],
        "constraints": [{"metric": "spread", "max": 1.0}],
    }
    result = go(dag, model=mlp_file, data=str(calibration))
    assert 0 < result.baseline.metrics["spread"] <= 1
    assert result.trials["ok"] == 1
    assert result.trials["infeasible"] == 0


def test_failing_pass_is_a_value_and_its_neighbours_go_on(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    script = tmp_path / "bad.py"
    script.write_text(
        "import os\n"
        "from autoopt import register\n"
        "@register('die')\n"
        "def die(model):\n"
        "    '''Kill the worker.'''\n"
        "    os.abort()\n"
        "@register('raise')\n"
        "def raises(model):\n"
        "    '''Raise.'''\n"
        "    raise ValueError('no such thing')\n"
    )
    dag = {
        "user_script": str(script),
        "passes": {"tidy": {"pass": "simplify"}, "die": {"pass": "die"}, "bad": {"pass": "raise"}},
        "chains": [["tidy", "die"], ["tidy", "bad"], ["tidy"]],
        "constraints": [],
    }
    result = go(dag, model=mlp_file)
    assert result.trials == {"total": 3, "ok": 1, "crashed": 1, "failed": 1, "infeasible": 0}


@pytest.mark.parametrize(("made", "said"), [(split_abort, "crashes the process|crashed"), (endless_loop, "timeout")])
def test_source_model_that_kills_or_hangs_ends_the_run_with_one_line(
    go: Any, tmp_path: Path, made: Any, said: str
) -> None:
    from autoopt.engine.work.problem import Limits

    path = write(made(), tmp_path / "killer")
    dag = {"passes": {"tidy": {"pass": "name_fix"}}, "chains": [["tidy"]], "constraints": []}
    with pytest.raises(InputError, match=said) as caught:
        go(dag, model=path, limits=Limits(measure_seconds=2.0))
    assert "\n" not in str(caught.value)


def test_session_options_are_part_of_the_candidate(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    dag = {
        "passes": {
            "session": {"pass": "session_tuning", "params": {"graph_optimization_level": {"search": ["disable"]}}}
        },
        "chains": [["session"]],
        "constraints": [],
    }
    result = go(dag, model=mlp_file)
    with open_store(home=tmp_path / "home") as store:
        (trial,) = store.trials.all(result.run)
    assert trial.candidate is not None
    assert trial.candidate.artifact == result.baseline.artifact
    assert trial.candidate.session_options["graph_optimization_level"] == "disable"


def test_trials_and_lineage_are_in_the_store(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    result = go(DYNAMIC, model=mlp_file)
    assert result.best is not None
    with open_store(home=tmp_path / "home") as store:
        assert [t.number for t in store.trials.all(result.run)] == [0, 1, 2]
        assert all(t.status == "done" for t in store.trials.all(result.run))
        lineage = store.lineage.trace(result.best.artifact)
        assert lineage.source == result.baseline.artifact
        assert lineage.steps[-1].pass_name == "dynamic_quantization"
        assert store.runs.get("latest").status == "finished"


def test_budget_of_trials_is_kept(go: Any, mlp_file: Path) -> None:
    result = go(DYNAMIC, model=mlp_file, search={"trials": 2})
    assert result.trials["total"] == 2


def test_no_such_model(go: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such"):
        go(DYNAMIC, model=tmp_path / "absent.onnx")


def test_trials_stay_the_same_with_more_workers(go: Any, tmp_path: Path) -> None:
    path = write(mlp(width=32), tmp_path / "m")
    one = go({**DYNAMIC, "name": "one"}, model=path, workers=1)
    two = go({**DYNAMIC, "name": "two"}, model=path, workers=2)
    assert one.trials == two.trials
    assert one.best is not None
    assert two.best is not None
    assert one.best.artifact == two.best.artifact


def test_labels_that_fit_no_metric_end_the_run_in_one_line(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((8, 8), np.float32), labels=np.zeros((8, 3), np.int64))
    bound = [{"metric": "perplexity", "max_drop": 0.1}]
    with pytest.raises(InputError, match="perplexity: needs one token id per position") as caught:
        go({**DYNAMIC, "constraints": bound}, model=mlp_file, data=str(tmp_path / "d.npz"))
    assert "\n" not in str(caught.value)


def test_the_metric_that_is_asked_for_takes_the_place_of_the_usual_one() -> None:
    bounds = [Constraint("perplexity", max_drop=0.1)]
    goal, notes = make_goal(GoalRequest(constraints=bounds), {"labels": True, "label_kind": "tensor"})
    names = [m.name for m in goal.metrics]
    assert "perplexity" in names
    assert "psnr" not in names
    assert "perplexity" in [axis.metric for axis in goal.front]
    assert notes == []
