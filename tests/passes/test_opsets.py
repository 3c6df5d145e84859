"""Versions of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import ops, outputs, saved, step
from micro_models import MODELS, made

from autoopt.passes.base import Refused
from autoopt.passes.onnx_tools import opsets
from autoopt.passes.onnx_tools.opsets import at_least_opset, convert_opset, import_ort_domain, ir_version_for, opset

RELU = "g (float[2] x) => (float[2] y) { y = Relu (x) }"


@pytest.mark.parametrize("version", [11, 17, 21])
def test_the_opset_is_that_of_the_standard_operators(version: int) -> None:
    model = made(RELU, opset=version, domains=', "com.microsoft": 1')
    assert opset(model) == version


def test_both_spellings_of_the_standard_domain_count() -> None:
    model = made(RELU)
    model.opset_import[0].domain = "ai.onnx"
    assert opset(model) == 17


def test_a_model_without_standard_operators_has_opset_0() -> None:
    assert opset(MODELS["trees"]()) == 0
    with pytest.raises(Refused, match=r"does not use the ai\.onnx operators"):
        at_least_opset(MODELS["trees"](), 13)


def test_newer_models_are_returned_as_they_are() -> None:
    model = made(RELU, opset=17)
    assert at_least_opset(model, 13) is model
    assert at_least_opset(model, 17) is model


def test_older_models_are_converted_with_their_ir_version() -> None:
    converted = at_least_opset(made(RELU, opset=13, ir=7), 21)
    assert opset(converted) == 21
    assert converted.ir_version >= ir_version_for(21) > 7
    onnx.checker.check_model(converted, full_check=True)


def test_a_model_that_cannot_be_converted_is_refused() -> None:
    model = made(RELU, opset=13)
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises(Refused, match="needs opset 21; the model at opset 13 cannot be converted"):
        at_least_opset(model, 21)


def test_a_missing_domain_is_imported_once_if_it_is_used() -> None:
    model = made(RELU)
    import_ort_domain(model)
    assert [entry.domain for entry in model.opset_import] == [""]
    model.graph.node[0].domain = "com.microsoft"
    import_ort_domain(model)
    import_ort_domain(model)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 17), ("com.microsoft", 1)]


def resizing(op: str, opset: int) -> onnx.ModelProto:
    """A model that enlarges by a factor which is no whole number."""
    text = f'g (float[1, 1, 4, 4] x) => (float[1, 1, H, W] y) {{ h = Neg (x)\n y = {op} <mode = "linear"> (h, s) }}'
    return made(text, opset=opset, ir=4, s=np.array([1, 1, 1.5, 2], np.float32))


@pytest.mark.parametrize(("op", "version"), [("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("target", [13, 21])
def test_resizing_means_the_same_after_the_conversion(tmp_path: Path, op: str, version: int, target: int) -> None:
    model = resizing(op, version)
    converted = at_least_opset(model, target)
    feeds = {"x": np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)}
    before, after = outputs(model, tmp_path, feeds)[0], outputs(converted, tmp_path / "after", feeds)[0]
    assert np.array_equal(before, after)


def test_an_operator_that_no_library_converts_is_refused() -> None:
    model = made("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Hardmax (x) }", opset=12, ir=5)
    with pytest.raises(Refused, match="Hardmax has another meaning"):
        at_least_opset(model, 17)


def test_the_other_converter_is_tried_and_a_failure_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
        raise RuntimeError(f"no adapter to {version}")

    both = dict(opsets.CONVERTERS)
    monkeypatch.setattr(opsets, "CONVERTERS", {**both, "onnx": broken})
    assert opset(convert_opset(made(RELU, opset=18), 21)) == 21
    monkeypatch.setattr(opsets, "CONVERTERS", dict.fromkeys(both, broken))
    with pytest.raises(ValueError, match="onnxscript: no adapter to 21; onnx: no adapter to 21"):
        convert_opset(made(RELU, opset=18), 21, "onnxscript")


def test_local_functions_are_inlined_because_the_converter_drops_them() -> None:
    converted = at_least_opset(MODELS["local_function"](), 21)
    assert "twice" not in [node.op_type for node in converted.graph.node]


@pytest.mark.parametrize("mode", ["reflect", "edge", "constant"])
def test_a_value_of_pad_that_its_mode_does_not_use_is_left_out(mode: str, tmp_path: Path) -> None:
    text = f'y = Pad <mode = "{mode}", pads = [0, 1, 0, 1], value = 0.5> (x)'
    model = made(f"g (float[2, 4] x) => (float[2, 6] y) {{ {text} }}", opset=10)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (before,) = outputs(model, tmp_path, {"x": x})
    (after,) = outputs(convert_opset(model, 17), tmp_path, {"x": x})
    np.testing.assert_array_equal(after, before)


X = np.array([[-2, -0.5, 0], [0.5, 1.5, 3]], np.float32)
FUNCTIONS = """
<domain: "local", opset_import: ["": 17]> leaky <slope: float = 0.5> (v) => (w) {
 w = LeakyRelu <alpha: float = @slope> (v) }
<domain: "local", opset_import: ["": 17, "local": 1]> outer (v) => (w) { w = local.leaky (v) }
"""


def model_with(text: str) -> onnx.ModelProto:
    graph = f"g (float[2, 3] x) => (float[2, 3] y) {{ {text} }}"
    if "local." in text:
        return made(f"{graph}\n{FUNCTIONS}", domains=', "local": 1')
    return made(graph, opset=20, ir=9)


@pytest.mark.parametrize("version", [15, 17])
@pytest.mark.parametrize("call", ["leaky (x)", "leaky <slope = 0.25> (x)", "outer (x)"])
def test_calls_keep_the_defaults_of_a_function(tmp_path: Path, call: str, version: int) -> None:
    """Also where the function is of an earlier version of the operators than the model."""
    model = model_with(f"h = Mul (x, two)\n y = local.{call}".replace("(x)", "(h)"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(2), "two"))
    for function in model.functions:
        function.opset_import[0].version = version
    expected = outputs(model, tmp_path, {"x": X})[0]
    for name in ("opset_conversion", "transformer_fusion", "float32"):
        assert step(tmp_path, model, name)["outcome"] in ("ok", "unchanged")
    result = step(tmp_path, model, "inline_functions")
    assert ops(saved(result)) == ["Mul", "LeakyRelu"]
    np.testing.assert_array_equal(outputs(saved(result), tmp_path, {"x": X})[0], expected)


@pytest.mark.parametrize("op", ["Celu", "ThresholdedRelu", "Gelu", "HardSwish", "Mish"])
def test_operators_keep_their_defaults(tmp_path: Path, op: str) -> None:
    model = model_with(f"y = {op} (x)")
    expected = outputs(model, tmp_path, {"x": X})[0]
    result = step(tmp_path, model, "expand_functions", ops=[op])
    assert op not in ops(saved(result))
    np.testing.assert_allclose(outputs(saved(result), tmp_path, {"x": X})[0], expected, rtol=1e-6, atol=1e-6)
