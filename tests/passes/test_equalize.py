"""Cross-layer equalization: same outputs, evened ranges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from bench import outputs, saved, step
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import made, normal

from autoopt.passes.quantize.channel_scales import input_ranges, output_ranges
from autoopt.passes.quantize.equalize import CrossLayerEqualization, find_pairs

CHANNELS = 4


def uneven(seed: int, spread: float) -> np.ndarray:
    """One factor for each channel, many orders of magnitude apart."""
    return np.exp(np.random.default_rng(seed).uniform(-spread, spread, CHANNELS)).astype(np.float32)


def convolutions(factors: np.ndarray, second: str = "Conv <pads = [1, 1, 1, 1]> (b, v, d)") -> onnx.ModelProto:
    """Two convolutions, the second depthwise or plain, then a Gemm; the second takes the factors of the first back."""
    behind = 1 / factors.reshape(1, -1, 1, 1)
    inner = CHANNELS
    if "group" in second:
        behind, inner = behind.reshape(-1, 1, 1, 1), 1
    return made(
        "g (float[1, 3, 6, 6] x) => (float[1, 5] y)"
        f"{{ a = Conv (x, w, c)\n b = Relu (a)\n e = {second}\n f = Relu (e)\n"
        " p = GlobalAveragePool (f)\n q = Reshape (p, flat)\n y = Gemm <transB = 1> (q, u, h) }",
        w=normal(CHANNELS, 3, 3, 3) * factors[:, None, None, None],
        c=normal(CHANNELS) * factors,
        v=normal(CHANNELS, inner, 3, 3, seed=1) * behind,
        d=normal(CHANNELS, seed=2),
        u=normal(5, CHANNELS, seed=3),
        h=normal(5),
        flat=np.array([1, CHANNELS]),
    )


def dense(factors: np.ndarray) -> onnx.ModelProto:
    return made(
        "g (float[3, 8] x) => (float[3, 6] y)"
        "{ a = MatMul (x, w)\n b = Add (c, a)\n r = LeakyRelu (b)\n y = Gemm (r, v) }",
        w=normal(8, CHANNELS) * factors,
        c=normal(CHANNELS) * factors,
        v=normal(CHANNELS, 6, seed=1),
    )


@settings(max_examples=15)
@given(seed=st.integers(0, 99), spread=st.floats(0, 5), kind=st.sampled_from(["plain", "depthwise", "dense"]))
def test_the_float_model_computes_the_same_and_ranges_are_even(
    tmp_path_factory: pytest.TempPathFactory, seed: int, spread: float, kind: str
) -> None:
    factors = uneven(seed, spread)
    if kind == "dense":
        model = dense(factors)
    elif kind == "depthwise":
        model = convolutions(factors, f"Conv <group = {CHANNELS}, pads = [1, 1, 1, 1]> (b, v, d)")
    else:
        model = convolutions(factors)
    after = CrossLayerEqualization()(model)
    feed = {model.graph.input[0].name: normal(*(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim))}
    folder = tmp_path_factory.mktemp("cle")
    expected = outputs(model, folder, feed)[0]
    np.testing.assert_allclose(outputs(after, folder, feed)[0], expected, rtol=1e-5, atol=1e-5 * abs(expected).max())
    pairs = find_pairs(ir.from_proto(after).graph)
    assert pairs
    for pair in pairs:
        before, behind = output_ranges(pair.first), input_ranges(pair.second)
        assert before is not None
        assert behind is not None
        assert (np.abs(np.log2(before / behind)) <= 1.01).all(), "equal but for the rounding to powers of two"


@pytest.mark.parametrize(
    "text",
    [
        "a = Conv (x, w)\n b = Sigmoid (a)\n y = Conv (b, v)",
        "a = Conv (x, w)\n b = Relu (a)\n c = Conv (b, v)\n y = Add (c, b)",
        "a = Conv (x, w)\n b = Relu (a)\n y = Conv <group = 2> (b, z)",
        "a = Conv (x, w)\n b = Relu (a)\n y = MatMul (b, u)",
    ],
)
def test_channels_that_other_operators_read_keep_their_scale(tmp_path: Path, text: str) -> None:
    factors = uneven(1, 3)
    model = made(
        f"g (float[1, 4, 4, 4] x) => (float[1, 4, 4, 4] y) {{ {text} }}",
        w=normal(4, 4, 1, 1) * factors[:, None, None, None],
        v=normal(4, 4, 1, 1, seed=1),
        z=normal(4, 2, 1, 1),
        u=normal(4, 4),
    )
    assert step(tmp_path, model, "cross_layer_equalization")["outcome"] == "unchanged"


def test_quantization_per_tensor_gains_from_even_ranges(tmp_path: Path) -> None:
    model = convolutions(uneven(3, 4))
    feed = {"x": normal(1, 3, 6, 6, seed=9)}
    expected = outputs(model, tmp_path, feed)[0]
    errors = []
    for equalize in ("none", "cross_layer"):
        quantized = saved(step(tmp_path / equalize, model, "static_quantization", True, equalize=equalize))
        errors.append(float(np.abs(outputs(quantized, tmp_path, feed)[0] - expected).max()))
    assert errors[1] < errors[0] / 2, errors


def test_weights_that_two_nodes_share_are_left() -> None:
    model = made(
        "g (float[1, 4, 4, 4] x) => (float[1, 4, 4, 4] y) { a = Conv (x, w)\n b = Relu (a)\n y = Conv (b, w) }",
        w=normal(4, 4, 1, 1),
    )
    assert not find_pairs(ir.from_proto(model).graph)
