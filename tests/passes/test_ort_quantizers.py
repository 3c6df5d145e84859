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
from micro_models import made, normal
from onnx import ModelProto, TensorProto, numpy_helper
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
    square = (WIDTH, WIDTH)
    weights = {"kernel": normal(WIDTH, 3, 3, 3), "w": normal(*square, seed=1), "g": normal(*square, seed=2)}
    weights |= {"bias": normal(WIDTH), "shape": np.array([-1, WIDTH]), "condition": np.array(True)}
    branch = """
        y = If (condition) <
            then_branch = t () => (float[r, 24] branched) { branched = MatMul (flat, inner) },
            else_branch = e () => (float[r, 24] other) { other = Relu (flat) }
        >"""
    end, tail = ("y", branch) if branches else ("flat", "")
    model = made(
        f"""g (float[n, 3, 8, 8] x) => (float[r, 24] {end}) {{
            [conv] c = Conv <pads = [1, 1, 1, 1]> (x, kernel)
            rows = Reshape (c, shape)
            [product] m = MatMul (rows, w)
            [gemm] flat = Gemm (m, g, bias){tail}
        }}""",
        **weights,
    )
    if branches:
        inner = numpy_helper.from_array(normal(*square, seed=3), "inner")
        model.graph.node[-1].attribute[0].g.initializer.append(inner)
    return model


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
