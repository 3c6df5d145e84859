"""A run as its user sees it: what it finds, what it leaves, what it does not do twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from builders import endless_loop, split_abort, write
from onnx import TensorProto, helper

from autoopt.errors import InputError
from autoopt.model.session import session_document
from autoopt.results import RunResult
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
    assert result.best.passes == ("tidy", "quant")
    assert result.best.metrics["size"] < result.baseline.metrics["size"]
    assert result.best.ratios["size"].value == pytest.approx(
        result.best.metrics["size"] / result.baseline.metrics["size"]
    )
    assert "latency_p50" not in result.best.metrics, "only the size counts"
    assert result.trial_counts["total"] == result.trial_counts["ok"] == 3
    assert [o.metric for o in result.objectives] == ["size"]
    assert RunResult.from_json(json.loads(json.dumps(result.to_json()))) == result
    exported = tmp_path / "out" / "model.onnx"
    assert exported.stat().st_size == result.best.metrics["size"]
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert recipe["result"] == result.best.artifact
    assert recipe["steps"][-1]["pass"] == "dynamic_quantization"
    assert recipe["steps"][-1]["output"] == result.best.artifact
    assert json.loads((tmp_path / "out" / "session.json").read_text()) == session_document({}, threads=1)


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
    assert result.trial_counts["ok"] == 2
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
    assert result.trial_counts["ok"] == 1
    assert result.trial_counts["infeasible"] == 0


def test_a_bug_in_a_users_metric_ends_the_run_with_its_line(
    go: Any, mlp_file: Path, calibration: Path, tmp_path: Path
) -> None:
    script = tmp_path / "metric.py"
    script.write_text(
        "from autoopt import register_metric\n"
        "@register_metric('cost', direction='minimize')\n"
        "def cost(outputs, labels):\n"
        "    return outputs[1]\n"
    )
    dag = {"passes": {"tidy": "simplify"}, "chains": [["tidy"]], "objectives": [{"metric": "cost"}]}
    with pytest.raises(InputError) as caught:
        go({**dag, "user_script": str(script)}, model=mlp_file, data=str(calibration))
    assert str(caught.value) == f"{script}:4: metric 'cost' raised IndexError: list index out of range"


@pytest.mark.parametrize(("made", "said"), [(split_abort, "crashes the process|crashed"), (endless_loop, "timeout")])
def test_source_model_that_kills_or_hangs_ends_the_run_with_one_line(
    go: Any, tmp_path: Path, made: Any, said: str
) -> None:
    from autoopt.problem.problem import Limits

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
    assert trial.candidate.artifact == result.baseline.artifact
    assert trial.candidate.session_options["graph_optimization_level"] == "disable"


def test_labels_that_fit_no_metric_end_the_run_in_one_line(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.zeros((8, 8), np.float32), labels=np.zeros((8, 3), np.int64))
    bound = [{"metric": "perplexity", "max_drop": 0.1}]
    with pytest.raises(InputError, match="perplexity: needs one token id per position") as caught:
        go({**DYNAMIC, "constraints": bound}, model=mlp_file, data=str(tmp_path / "d.npz"))
    assert "\n" not in str(caught.value)


def unknown_operator() -> onnx.ModelProto:
    """A model that no runtime loads."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Absent", ["x"], ["y"], domain="mine")], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_a_source_that_does_not_run_is_no_result_even_if_only_the_size_counts(go: Any, tmp_path: Path) -> None:
    dag = {"passes": ["name_fix"], "chains": [["name_fix"]], "objectives": [{"metric": "size"}], "constraints": []}
    with pytest.raises(InputError, match=r"the source model does not run.*: .*Absent.*; no pass .*repairs it"):
        go(dag, model=write(unknown_operator(), tmp_path / "broken"), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with open_store(home=tmp_path / "home") as store:
        assert store.runs.get("latest").status == "failed"


def test_no_run_begins_where_every_chain_is_pruned(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="every chain is pruned"):
        go({**DYNAMIC, "target": {"execution_provider": "QNNExecutionProvider"}}, model=mlp_file)
    with open_store(home=tmp_path / "home") as store:
        assert list(store.runs.all()) == []
