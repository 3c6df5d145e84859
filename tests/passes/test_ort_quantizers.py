"""onnxruntime's quantizers in memory: the same results as from its own, byte by byte."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quant_utils,
    quantize_dynamic,
    quantize_static,
)

from autoopt.passes.patches.ort_quantizers import lean_quantizers

WIDTH = 24
CHANNELS = hnp.arrays(
    np.float32,
    hnp.array_shapes(max_dims=1, max_side=12),
    elements=st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1e-44, -1e-39, 127.5, 1e38, -3e38])),
)


def network(branches: bool = False) -> ModelProto:
    """A convolution, products, a Gemm that is replaced, and on request a branch with weights of its own."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    inner = helper.make_graph(
        [helper.make_node("MatMul", ["flat", "inner"], ["branched"])],
        "then",
        [],
        [helper.make_tensor_value_info("branched", TensorProto.FLOAT, None)],
        [weight("inner", WIDTH, WIDTH)],
    )
    other = helper.make_graph(
        [helper.make_node("Relu", ["flat"], ["other"])],
        "else",
        [],
        [helper.make_tensor_value_info("other", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "shape"], ["rows"], name="reshape"),
        helper.make_node("MatMul", ["rows", "w"], ["m"], name="product"),
        helper.make_node("Gemm", ["m", "g", "bias"], ["flat"], name="gemm"),
    ]
    if branches:
        nodes.append(helper.make_node("If", ["condition"], ["y"], name="if", then_branch=inner, else_branch=other))
    weights = [
        weight("kernel", WIDTH, 3, 3, 3),
        weight("w", WIDTH, WIDTH),
        weight("g", WIDTH, WIDTH),
        weight("bias", WIDTH),
        numpy_helper.from_array(np.array([-1, WIDTH]), "shape"),
        numpy_helper.from_array(np.array(True), "condition"),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Reader(CalibrationDataReader):
    """Two items."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._feeds = iter([{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def content(model: ModelProto) -> bytes:
    return model.SerializeToString(deterministic=True)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weight_type", [QuantType.QInt8, QuantType.QUInt8])
def test_dynamic_quantization_is_the_librarys(per_channel: bool, weight_type: QuantType, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "per_channel": per_channel,
        "weight_type": weight_type,
        "extra_options": {"EnableSubgraph": True, "DefaultTensorType": TensorProto.FLOAT},
    }
    quantize_dynamic(network(branches=True), tmp_path / "theirs.onnx", **options)
    with lean_quantizers(tmp_path / "ours.onnx") as quantized:
        quantize_dynamic(network(branches=True), tmp_path / "ours.onnx", **options)
    assert not (tmp_path / "ours.onnx").exists()
    assert content(quantized.load()) == content(onnx.load(tmp_path / "theirs.onnx"))


@pytest.mark.parametrize("quant_format", list(QuantFormat))
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("reduce_range", [False, True])
def test_static_quantization_is_the_librarys(
    quant_format: QuantFormat, per_channel: bool, reduce_range: bool, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "quant_format": quant_format,
        "per_channel": per_channel,
        "reduce_range": reduce_range,
        "op_types_to_quantize": ["Conv", "MatMul", "Gemm"],
        "calibration_cache_path": tmp_path / "ranges.json",
    }
    quantize_static(network(), tmp_path / "theirs.onnx", Reader(), **options)
    with lean_quantizers(tmp_path / "ours.onnx") as quantized:
        quantize_static(network(), tmp_path / "ours.onnx", **options)
    assert content(quantized.load()) == content(onnx.load(tmp_path / "theirs.onnx"))


def test_a_large_model_stays_in_memory_too(tmp_path: Path) -> None:
    target = tmp_path / "ours.onnx"
    with lean_quantizers(target) as quantized:
        quantize_dynamic(network(), target, use_external_data_format=True)
    quantize_dynamic(network(), tmp_path / "theirs.onnx")
    assert not list(tmp_path.glob("ours*"))
    assert content(quantized.load()) == content(onnx.load(tmp_path / "theirs.onnx"))


@given(
    CHANNELS,
    st.sampled_from([TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT4]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 0.25]),
)
def test_a_channel_is_quantized_like_the_librarys(
    channel: np.ndarray, code: int, symmetric: bool, reduce_range: bool, real_range: float | None
) -> None:
    arguments = (channel, code, symmetric, reduce_range and code in (TensorProto.INT8, TensorProto.UINT8), real_range)
    with np.errstate(all="ignore"):
        theirs = result(*arguments)
        with lean_quantizers(Path("unused")):
            ours = result(*arguments)
    assert ours == theirs


def result(*arguments: Any) -> object:
    try:
        parts = quant_utils.quantize_data(*arguments)
    except AssertionError:  # NaN
        return "refused"
    return [(part.dtype, part.shape, part.tobytes()) for part in parts]


def test_the_library_is_as_before_afterwards() -> None:
    functions = dict(vars(quant_utils))
    with pytest.raises(KeyError), lean_quantizers(Path("unused")):
        raise KeyError
    assert dict(vars(quant_utils)) == functions


def test_a_function_that_onnxruntime_renamed_is_missed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for name, module in sys.modules.items() if name.startswith("onnxruntime.quantization")]:
        monkeypatch.delattr(module, "save_and_reload_model_with_shape_infer", raising=False)
    with (
        pytest.raises(AttributeError, match="have no save_and_reload_model_with_shape_infer any more"),
        lean_quantizers(tmp_path / "model.onnx"),
    ):
        pass
