"""The reason why a pass changes nothing, as `autoopt apply` tells it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from builders import mlp, write
from onnx import numpy_helper, parser

from autoopt.engine.tools.apply import PassSettings, apply_pass
from autoopt.outcome import Outcome

SIGNAL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N, 8, 48] x) => (float[N, 16, 48] y) <float[3, 8, 16] turned>
{ w = Transpose <perm = [2, 1, 0]> (turned)
  y = Conv <pads = [1, 1]> (x, w) }"""


@pytest.fixture
def computed_kernel(tmp_path: Path) -> Path:
    """A convolution of a signal whose kernel is no constant yet."""
    model = parser.parse_model(SIGNAL)
    kernel = np.random.default_rng(0).normal(size=(3, 8, 16)).astype(np.float32)
    del model.graph.initializer[:]
    model.graph.initializer.append(numpy_helper.from_array(kernel, "turned"))
    path = tmp_path / "signal.onnx"
    onnx.save(model, path)
    return path


def reason(name: str, model: Path, folder: Path, *, explain: bool = True) -> str:
    step = apply_pass(name, model, folder, options=PassSettings(explain=explain)).step
    assert step.outcome is Outcome.UNCHANGED
    return step.message


def test_a_pass_that_another_one_gives_work_names_it(computed_kernel: Path, tmp_path: Path) -> None:
    text = reason("conv_to_rows", computed_kernel, tmp_path / "work")
    assert text == "nothing to do on this model as it is; after simplify it changes the model: apply that first"


def test_a_pass_without_its_operators_says_which(tmp_path: Path) -> None:
    model = write(mlp(), tmp_path / "mlp")
    assert reason("conv_to_rows", model, tmp_path / "work") == "needs Conv; the model has none"


def test_a_pass_that_nothing_helps_says_what_was_tried(tmp_path: Path) -> None:
    model = write(mlp(), tmp_path / "mlp")
    assert "also after simplify, symbolic_shape_inference" in reason(
        "common_subexpression_elimination", model, tmp_path / "work"
    )


def test_callers_in_python_do_not_wait_for_a_reason(computed_kernel: Path, tmp_path: Path) -> None:
    assert reason("conv_to_rows", computed_kernel, tmp_path / "work", explain=False) == ""
