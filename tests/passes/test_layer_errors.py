"""The quantization error of each layer by itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from micro_models import made, normal

from autoopt.model import io
from autoopt.model.session import make_plain_session
from autoopt.passes.base import PassContext
from autoopt.passes.quantize import layer_errors
from autoopt.passes.quantize.activation_ranges import calibrate
from autoopt.passes.quantize.layer_errors import few_items, layer_ratios, run_alone
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


def test_a_wide_range_of_its_output_lowers_the_ratio_of_a_layer(tmp_path: Path) -> None:
    """The sum of many signs is small, but not if all are the same."""
    proto = made("g (float[1, 256] x) => (float[1, 1] y) { [only] y = MatMul (x, w) }", w=np.ones((256, 1), np.float32))
    proto = onnx.shape_inference.infer_shapes(proto)
    feeds = [{"x": np.sign(normal(1, 256, seed=seed))} for seed in range(8)]
    ratios = []
    for number, calibration in enumerate((feeds, [*feeds, {"x": np.ones((1, 256), np.float32)}])):
        folder = tmp_path / str(number)
        folder.mkdir()
        context = PassContext(folder / "model.onnx", folder, Accelerator(), calibration=partial(iter, calibration))
        ranges = calibrate(proto, context, "MinMax", ["MatMul"], {"moving_average": False})
        ratios.append(layer_ratios(proto, list(proto.graph.node), ranges, feeds, folder, per_channel=True)["only"])
    narrow, wide = ratios
    assert wide < narrow - 5


def test_layers_whose_values_do_not_fit_into_memory_together_run_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = [{"x": normal(1, 16, seed=seed)} for seed in range(4)]
    proto = model(10.0)
    context = PassContext(tmp_path / "model.onnx", tmp_path, Accelerator(), calibration=lambda: iter(feeds))
    ranges = calibrate(proto, context, "MinMax", ["MatMul"], {"moving_average": False})
    together = layer_ratios(proto, list(proto.graph.node), ranges, feeds, tmp_path, per_channel=True)
    monkeypatch.setattr(layer_errors, "GROUP_BYTES", 1)
    assert layer_ratios(proto, list(proto.graph.node), ranges, feeds, tmp_path, per_channel=True) == together


@pytest.mark.parametrize(("side", "count"), [(8, 4), (1000, 2), (3000, 2)])
def test_few_items_are_fewer_if_they_are_large(side: int, count: int) -> None:
    image = np.broadcast_to(np.float32(0), (1, side, side))
    assert len(few_items([{"x": image}] * 16, 4)) == count
