"""The quantization error of each layer by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from micro_models import made, normal

from autoopt.model import io
from autoopt.model.session import make_plain_session
from autoopt.passes.base import PassContext
from autoopt.passes.quantize.activation_ranges import calibrate
from autoopt.passes.quantize.layer_errors import layer_ratios, run_alone
from autoopt.passes.quantize.static import StaticQuantization
from autoopt.target import Accelerator


def model(outlier: float) -> onnx.ModelProto:
    weight = normal(16, 16)
    weight[0, 0] = outlier
    made_model = made(
        "g (float[1, 16] x) => (float[1, 16] y) { [first] a = MatMul (x, v)\n [second] y = MatMul (a, w) }",
        v=normal(16, 16, seed=1),
        w=weight,
    )
    return onnx.shape_inference.infer_shapes(made_model)


@pytest.mark.parametrize("outlier", [1.0, 1000.0])
def test_a_layer_with_an_outlier_among_its_weights_has_a_lower_ratio(tmp_path: Path, outlier: float) -> None:
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.standard_normal((1, 16)).astype(np.float32)} for _ in range(4)]
    proto = model(outlier)
    context = PassContext(tmp_path / "model.onnx", tmp_path, Accelerator(), calibration=lambda: iter(feeds))
    ranges = calibrate(proto, context, "MinMax", ["MatMul"], {"moving_average": False})
    ratios = layer_ratios(proto, list(proto.graph.node), ranges, feeds, tmp_path, per_channel=False)
    assert 30 < ratios["first"] < 60
    assert (ratios["second"] < ratios["first"] - 10) == (outlier > 1), ratios


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_layer_is_rounded_as_the_quantizer_does(tmp_path: Path, per_channel: bool) -> None:
    """Else the mean error that bias correction takes off would be that of another grid."""
    proto = made(
        "g (float[1, 4, 8, 8] x) => (float[1, 8, 6, 6] y) { [only] y = Conv (x, w) }", w=normal(8, 4, 3, 3, seed=2)
    )
    proto = onnx.shape_inference.infer_shapes(proto)
    feeds = [{"x": normal(1, 4, 8, 8, seed=seed)} for seed in range(4)]
    static = StaticQuantization(per_channel=per_channel)
    static.context = PassContext(tmp_path / "model.onnx", tmp_path, Accelerator(), calibration=lambda: iter(feeds))
    prepared, ranges = static.calibrate(proto)
    ((_, _, noisy),) = run_alone(prepared, prepared.graph.node, ranges, feeds, tmp_path, per_channel=per_channel)
    quantized = io.save(static.quantize(prepared, ranges.path), tmp_path / "quantized")
    session = make_plain_session(quantized)
    for feed, rounded in zip(feeds, noisy, strict=True):
        same = np.isclose(session.run(None, feed)[0], rounded, atol=1e-4)
        assert same.mean() > 0.99


@pytest.mark.parametrize("operator", ["MatMul", "Gemm", "Gemm <transB = 1>"])
def test_an_outlier_among_the_weights_of_one_channel_leaves_the_others_exact(tmp_path: Path, operator: str) -> None:
    """The input that the outlier multiplies is always 0."""
    weight = normal(16, 16)
    weight[0, 0] = 1000.0
    proto = made(f"g (float[1, 16] x) => (float[1, 16] y) {{ [only] y = {operator} (x, w) }}", w=weight)
    feeds = [{"x": normal(1, 16, seed=seed) * (np.arange(16) > 0).astype(np.float32)} for seed in range(4)]
    context = PassContext(tmp_path / "model.onnx", tmp_path, Accelerator(), calibration=lambda: iter(feeds))
    proto = onnx.shape_inference.infer_shapes(proto)
    ranges = calibrate(proto, context, "MinMax", ["MatMul", "Gemm"], {"moving_average": False})
    nodes = list(proto.graph.node)
    together = layer_ratios(proto, nodes, ranges, feeds, tmp_path, per_channel=False)["only"]
    apart = layer_ratios(proto, nodes, ranges, feeds, tmp_path, per_channel=True)["only"]
    assert apart > together + 5
