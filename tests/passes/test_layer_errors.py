"""The quantization error of each layer by itself, and biases corrected for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from bench import outputs, saved, step
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.model.session import make_plain_session
from autoopt.passes.base import PassContext
from autoopt.passes.quantize.calibration import calibrate
from autoopt.passes.quantize.layer_errors import correctable, noise_ratio, run_alone
from autoopt.passes.quantize.static import StaticQuantization
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds
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
    alone = run_alone(proto, list(proto.graph.node), ranges, feeds, tmp_path, per_channel=False)
    ratios = {node.name: noise_ratio(exact, noisy) for node, exact, noisy in alone}
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
    prepared = ir.to_proto(static.quantizable(ir.from_proto(proto)))
    ranges = static.ranges(prepared)
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
    together, apart = (
        noise_ratio(*values[1:])
        for per_channel in (False, True)
        for values in run_alone(proto, nodes, ranges, feeds, tmp_path, per_channel=per_channel)
    )
    assert apart > together + 5


def test_the_mean_of_each_channel_comes_closer_to_the_float_model(tmp_path: Path) -> None:
    weights = normal(6, 3, 3, 3)
    weights[0] *= 50  # one scale for all channels is coarse for the others
    model = made(
        "g (float[1, 3, 12, 12] x) => (float[1, 6, 10, 10] y) { p = Relu (x)\n y = Conv (p, w, b) }",
        w=weights,
        b=normal(6),
    )
    feeds = [next(synthetic_feeds(model, seed=seed)) for seed in range(8)]
    expected = np.mean([outputs(model, tmp_path, feed)[0] for feed in feeds], axis=(0, 1, 3, 4))
    errors = []
    for corrected in (False, True):
        folder = tmp_path / str(corrected)
        quantized = saved(step(folder, model, "static_quantization", True, bias_correction=corrected))
        means = np.mean([outputs(quantized, tmp_path, feed)[0] for feed in feeds], axis=(0, 1, 3, 4))
        errors.append(float(np.abs(means - expected)[1:].mean()))
    assert errors[1] < errors[0] / 2, errors


def test_only_layers_with_a_bias_can_be_corrected() -> None:
    model = MODELS["gemm_mlp"]()
    names = [node.name for node in correctable(model, [])]
    assert names
    assert not correctable(model, names)
    assert not correctable(MODELS["mlp"](), [])
