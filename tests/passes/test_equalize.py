"""Equalization: same outputs, evened ranges, smaller outliers."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from bench import ops, outputs, saved, step
from hypothesis import given, settings
from hypothesis import strategies as st
from micro_models import made, normal, positive

from autoopt.passes.base import PassContext
from autoopt.passes.quantize.channel_scales import input_ranges, output_ranges
from autoopt.passes.quantize.equalize import CrossLayerEqualization, SmoothQuant, find_pairs
from autoopt.target import Accelerator

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


@settings(max_examples=8)
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


INNER = 16


def outlying(spread: float) -> np.ndarray:
    """Scales of channels, one of them far larger than the others."""
    scales = positive(INNER)
    scales[3] *= np.exp(spread)
    return scales


def normalized(spread: float, tail: str = "") -> onnx.ModelProto:
    """A layer normalization that two products read; `tail` may read it, too."""
    return made(
        f"g (float[2, {INNER}] x) => (float[2, 8] y)"
        f"{{ n = LayerNormalization <axis = -1> (x, s, b)\n a = MatMul (n, w)\n c = Gemm <transB = 1> (n, v)\n"
        f" y = Add (a, c) {tail} }}",
        s=outlying(spread),
        b=normal(INNER),
        w=normal(INNER, 8),
        v=normal(8, INNER, seed=1),
    )


def smoothed(folder: Path, model: onnx.ModelProto, alpha: float) -> onnx.ModelProto:
    smooth = SmoothQuant(alpha=alpha)
    feeds = [{"x": normal(2, INNER, seed=seed)} for seed in range(4)]
    smooth.context = PassContext(folder / "model.onnx", folder, Accelerator(), calibration=lambda: iter(feeds))
    result = smooth.run(ir.from_proto(deepcopy(model)))
    return model if result is None else ir.to_proto(result)


@settings(max_examples=8)
@given(spread=st.floats(0, 8), alpha=st.floats(0, 1), shared=st.booleans())
def test_the_float_model_computes_the_same(
    tmp_path_factory: pytest.TempPathFactory, spread: float, alpha: float, shared: bool
) -> None:
    folder = tmp_path_factory.mktemp("smooth")
    model = normalized(spread)
    if shared:
        model.graph.output.append(onnx.ValueInfoProto(name="n"))
    after = smoothed(folder, model, alpha)
    feed = {"x": normal(2, INNER, seed=9)}
    expected = outputs(model, folder, feed)
    for new, old in zip(outputs(after, folder, feed), expected, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5 * abs(old).max())


def test_the_normalization_takes_the_factors_unless_others_read_it(tmp_path: Path) -> None:
    assert "Mul" not in ops(smoothed(tmp_path, normalized(5), 0.5))
    shared = normalized(5)
    shared.graph.output.append(onnx.ValueInfoProto(name="n"))
    assert ops(smoothed(tmp_path, shared, 0.5)).count("Mul") == 1, "one multiplication for both products"


def test_static_quantization_gains_from_smaller_outliers(tmp_path: Path) -> None:
    model = normalized(6)
    feed = {"x": normal(2, INNER, seed=9)}
    expected = outputs(model, tmp_path, feed)[0]
    errors = []
    for equalize in ("none", "smooth"):
        params = {"equalize": equalize, "op_types": ["MatMul", "Gemm"]}
        quantized = saved(step(tmp_path / equalize, model, "static_quantization", True, **params))
        errors.append(float(np.square(outputs(quantized, tmp_path, feed)[0] - expected).mean()))
    assert errors[1] < errors[0], errors


def test_alpha_is_a_share(tmp_path: Path) -> None:
    assert step(tmp_path, normalized(1), "smooth_quant", True, alpha=1.5)["outcome"] == "refused"
