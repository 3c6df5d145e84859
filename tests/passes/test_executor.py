"""Steps: retries, analyses, checks and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import step
from micro_models import made
from script_passes import steps

from autoopt.model import io


def test_retries_are_recorded_and_bounded(tmp_path: Path, script: str) -> None:
    (done,) = steps(tmp_path / "a", "relu_only", "smaller", script=script)
    assert done["outcome"] == "unchanged"
    assert done["params"] == {"fits": 16, "size": 16}
    assert [a["params"]["size"] for a in done["attempts"]] == [64, 32]
    assert {a["reason"] for a in done["attempts"]} == {"too big"}
    (given_up,) = steps(tmp_path / "b", "relu_only", ("smaller", {"fits": 1}), script=script)
    assert given_up["outcome"] == "failed"
    assert "gave up after 3 retries" in given_up["message"]
    assert len(given_up["attempts"]) == 4
    (stuck,) = steps(tmp_path / "c", "relu_only", "stuck", script=script)
    assert stuck["outcome"] == "failed"
    assert "parameters that it gave up before" in stuck["message"]


def test_an_analysis_runs_once_per_artifact(tmp_path: Path, script: str) -> None:
    made = steps(
        tmp_path, "mlp", "count", "needs_count", ("needs_count", {"note": "m"}), "count", "count", script=script
    )
    assert [s["outcome"] for s in made] == ["unchanged", "ok", "ok", "unchanged", "unchanged"]
    assert made[0]["reports"] == {"count": 6}
    notes = {e.key: e.value for e in io.load(Path(made[2]["path"], "model.onnx")).metadata_props}
    assert notes == {"n": "6", "m": "6"}
    # of the source, of the first changed model (required by the second pass), and of the second as a step of its own
    assert (tmp_path / "user.py").with_name("log").read_text().count("count") == 4


def test_reports_in_the_request_are_reused(tmp_path: Path, script: str) -> None:
    (step,) = steps(tmp_path, "mlp", "needs_count", script=script, reports={"count": 41})
    assert io.load(Path(step["path"], "model.onnx")).metadata_props[0].value == "41"


def test_a_wrong_result_is_a_failure_and_ends_the_chain(tmp_path: Path, script: str) -> None:
    made = steps(tmp_path, "relu_only", "breaks", "name_fix", script=script)
    assert [s["outcome"] for s in made] == ["failed"]
    assert made[0]["message"].startswith("not equivalent to its input: output 0")
    assert made[0]["path"] is None
    assert not (tmp_path / "out" / "0").exists()


def test_retries_after_wrong_results_are_recorded_and_bounded(tmp_path: Path, script: str) -> None:
    (ended,) = steps(tmp_path / "a", "relu_only", ("breaks_until_small", {"last": 32}), script=script)
    assert ended["message"].startswith("not equivalent to its input")
    assert [(a["params"]["size"], a["reason"]) for a in ended["attempts"]] == [(64, "wrong")]
    (given_up,) = steps(tmp_path / "b", "relu_only", ("breaks_until_small", {"last": 1}), script=script)
    assert given_up["outcome"] == "failed"
    assert [a["params"]["size"] for a in given_up["attempts"]] == [64, 32, 16]


def test_an_invalid_result_is_a_failure(tmp_path: Path, script: str) -> None:
    (step,) = steps(tmp_path, "relu_only", "invalid", script=script)
    assert step["outcome"] == "failed"
    assert step["message"].startswith("the checker rejects the new model")


def test_an_output_of_another_rank_than_declared_misleads_no_pass(tmp_path: Path) -> None:
    text = (
        "g (float[1, N] x) => (float[1, N] y)"
        "{ s = Shape (x)\n r = Concat <axis = 0> (s, one)\n t = Tanh (x)\n y = Reshape (t, r) }"
    )
    model = made(text, opset=12, one=np.array([1]))
    for name, params in (("opset_conversion", {"target_opset": 17}), ("simplify", {})):
        result = step(tmp_path / name, model, name, **params)
        assert result["outcome"] in ("ok", "unchanged"), result["message"]
        assert result["equivalence"].get("status", "same") == "same"


def test_without_checks_any_result_is_accepted(tmp_path: Path, script: str) -> None:
    (step,) = steps(tmp_path, "relu_only", "breaks", script=script, check=False)
    assert (step["outcome"], step["equivalence"]) == ("ok", {})


@pytest.mark.parametrize(
    ("name", "params", "reason"),
    [
        ("simplify", {"engin": "onnxsim"}, "did you mean 'engine'?"),
        ("simplify", {"engine": "onnxsmi"}, "did you mean 'onnxsim'?"),
        ("sequence", {}, "needs parameter 'passes'"),
        ("constant_folding", {"input_size_limit": "9"}, "must be int"),
        ("packing_mode", {}, "supports only CUDAExecutionProvider"),
        ("uses", {"how": "absent"}, "the user script has no 'absent'"),
        ("uses", {"how": "chosen"}, "called the chosen one"),
    ],
)
def test_unsuitable_input_is_refused(
    tmp_path: Path, script: str, name: str, params: dict[str, Any], reason: str
) -> None:
    (step,) = steps(tmp_path, "relu_only", (name, params), script=script)
    assert step["outcome"] == "refused"
    assert reason in step["message"]


def test_a_source_that_the_runtime_rejects_can_be_repaired(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "double_names", "name_fix")
    assert step["outcome"] == "ok"
    assert step["equivalence"]["status"] == "only run"
    assert "same node name" in step["equivalence"]["reason"]
