"""Models specialized to data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, steps
from micro_models import made

from autoopt.model import io
from autoopt.passes.base import Refused
from autoopt.passes.runner import run
from autoopt.passes.shape.specialize import SpecializeInputs


def by_rate() -> onnx.ModelProto:
    """A model with a branch for each of two rates."""
    return made(
        """g (float[N, T] x, int64 sr) => (float[N, T] y) {
            fast = Equal (sr, rate)
            y = If (fast) <
                then_branch = a () => (float[N, T] p) { p = Mul (x, two) },
                else_branch = b () => (float[N, T] q) { q = Neg (x) }
            >
        }""",
        rate=np.array(16000, np.int64),
        two=np.array(2, np.float32),
    )


def test_a_constant_input_folds_what_depends_on_it(tmp_path: Path) -> None:
    params = {"values": {"sr": 16000}, "shapes": {"x": [None, 4]}}
    (result,) = steps(tmp_path, by_rate(), [("specialize_inputs", params)])
    assert (result["outcome"], result["equivalence"]["status"]) == ("ok", "same")
    after = saved(result)
    assert ([value.name for value in after.graph.input], ops(after)) == (["x"], ["Mul"])
    assert [dim.dim_value for dim in after.graph.input[0].type.tensor_type.shape.dim] == [0, 4]
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(outputs(after, tmp_path, {"x": x})[0], 2 * x)


@pytest.mark.parametrize(("rate", "left"), [([16000] * 8, ["x"]), ([16000] * 7 + [8000], ["x", "sr"])])
def test_without_parameters_the_calibration_data_give_them(tmp_path: Path, rate: list[int], left: list[str]) -> None:
    np.savez(tmp_path / "data.npz", x=np.arange(32, dtype=np.float32).reshape(8, 4), sr=np.array(rate))
    payload: dict[str, Any] = {
        "model": {"path": str(io.save(by_rate(), tmp_path / "source"))},
        "steps": [{"pass": "specialize_inputs"}],
        "output": str(tmp_path / "out"),
        "data": str(tmp_path / "data.npz"),
    }
    result = run(payload)["steps"][0]
    assert result["outcome"] == "ok", result["message"]
    assert result["params"]["shapes"] == {"x": [1, 4]}
    assert [value.name for value in saved(result).graph.input] == left


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "needs values or shapes"),
        ({"values": {"z": 1}}, "no input 'z'; it has x, sr"),
        ({"values": {"sr": 1, "x": [[1.0]]}}, "no input would be left"),
        ({"values": {"sr": [1, 2]}}, "value of shape"),
        ({"values": {"sr": "fast"}}, "cannot have the value given"),
        ({"shapes": {"x": [1, 2, 3]}}, "cannot have the shape"),
    ],
)
def test_what_the_model_does_not_take_is_refused(tmp_path: Path, params: dict[str, Any], reason: str) -> None:
    (result,) = steps(tmp_path, by_rate(), [("specialize_inputs", params)])
    assert result["outcome"] == "refused"
    assert reason in result["message"]


def test_the_pass_runs_in_this_process_too() -> None:
    after = SpecializeInputs(values={"sr": 8000})(by_rate())
    assert ops(after) == ["Neg"]
    with pytest.raises(Refused, match="no input 'a'"):
        SpecializeInputs(shapes={"a": [1]})(by_rate())
