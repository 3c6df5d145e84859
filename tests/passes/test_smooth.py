"""SmoothQuant: same outputs, smaller outliers."""

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
from autoopt.passes.quantize.smooth import SmoothQuant
from autoopt.target import Accelerator

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


@settings(max_examples=15)
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
