"""Calibration data as quantizers read it, and ranges of activations: collected once, and equal to onnxruntime's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from bench import saved, step
from micro_models import MODELS, made
from onnxruntime.quantization import CalibrationMethod, calibrate

from autoopt.model import io
from autoopt.passes.base import PassContext, Refused
from autoopt.passes.quantize import calibration
from autoopt.passes.quantize.calibration import CalibrationReader, enough_items
from autoopt.passes.runner import run
from autoopt.target import Accelerator

OPS = ["Conv", "Gemm", "MatMul", "Relu", "Add"]


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_cache", type(calibration._cache)())


def context(folder: Path, model: onnx.ModelProto, items: int = 12) -> PassContext:
    shape = [dim.dim_value or 1 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    rng = np.random.default_rng(0)
    feeds = [{model.graph.input[0].name: rng.standard_normal(shape).astype(np.float32)} for _ in range(items)]
    return PassContext(folder / "model.onnx", folder, Accelerator(), calibration=lambda: iter(feeds))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("MinMax", {"moving_average": False}),
        ("MinMax", {"moving_average": False, "symmetric": True}),
        ("MinMax", {"moving_average": True}),
        ("Entropy", {"num_bins": 512}),
        ("Entropy", {"num_bins": 300}),
        ("Percentile", {"num_bins": 2048, "percentile": 99.0, "symmetric": False}),
        ("Percentile", {"num_bins": 2048, "percentile": 99.0}),
        ("Distribution", {"num_bins": 1024, "scenario": "p3"}),
    ],
)
def test_the_ranges_are_onnxruntime_s(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    model = onnx.shape_inference.infer_shapes(MODELS["small_cnn"]())
    given = context(tmp_path, model)
    ranges = calibration.calibrate(model, given, method, OPS, settings)
    found = calibrate.load_tensors_data(ranges.path)
    calibrator = calibrate.create_calibrator(
        io.save(model, tmp_path / "expected"),
        OPS,
        augmented_model_path=str(tmp_path / "augmented.onnx"),
        calibrate_method=CalibrationMethod[method],
        extra_options=settings,
    )
    calibrator.collect_data(CalibrationReader(given))
    expected = calibrator.compute_data()
    assert set(expected.keys()) <= ranges.tensors
    for name, data in expected.items():
        for attribute in ("avg", "std") if method == "Distribution" else ("lowest", "highest"):
            # One bin: histograms of absolute values start at 0 here, and at the smallest one there.
            width = 2 * float(np.abs(data.range_value).max()) / settings.get("num_bins", 1e6)
            difference = np.abs(getattr(found[name], attribute) - getattr(data, attribute))
            assert float(np.max(difference)) <= width, (name, attribute)


def test_all_methods_share_one_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def counting(name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        computed.append(name)
        return original(*args, **kwargs)

    for name in ("MinMaxCalibrater", "PercentileCalibrater"):
        monkeypatch.setattr(calibrate, name, partial(counting, name, getattr(calibrate, name)))
    model = MODELS["small_cnn"]()
    for params in (
        {},
        {"per_channel": True},
        {"op_types": ["Conv"]},
        {"calibrate_method": "Percentile"},
        {"calibrate_method": "Percentile", "percentile": 99.0},
        {"calibrate_method": "Entropy"},
    ):
        assert step(tmp_path, model, "static_quantization", True, **params)["outcome"] == "ok"
    assert computed == ["MinMaxCalibrater", "PercentileCalibrater"]


def test_large_tensors_are_sampled_and_few_items_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "QUANTIZATION", replace(calibration.QUANTIZATION, max_items=10))
    model = made("g (float[1, 1000] x) => (float[1, 1000] y) { y = Relu(x) }")
    settings = {"num_bins": 2048, "percentile": 90.0, "symmetric": False}
    given = context(tmp_path, model, items=40)
    ranges = calibration.calibrate(model, given, "Percentile", ["Relu"], settings, limit=40)
    low, high = calibrate.load_tensors_data(ranges.path)["x"].range_value
    assert (low, high) == pytest.approx((-1.645, 1.645), abs=0.05)
    (statistics,) = calibration._cache.values()
    assert statistics.histograms[4096]["x"].counts.sum() == 10 * 1000


def test_nodes_without_a_valid_range_stay_in_float_and_are_named(tmp_path: Path) -> None:
    model = made(
        "g (float[1, 4] x) => (float[1, 4] y) { l = MatMul(x, w)\n o = Log(l)\n h = MatMul(o, w)\n y = MatMul(x, w) }",
        w=np.eye(4, dtype=np.float32),
    )
    model.graph.node[2].output[0] = "unused"
    for number, node in enumerate(model.graph.node):
        node.name = f"node_{number}"
    np.savez(tmp_path / "data.npz", x=np.zeros((4, 4), np.float32))
    payload = {
        "model": {"path": str(io.save(model, tmp_path / "source"))},
        "steps": [{"pass": "static_quantization", "params": {"op_types": ["MatMul"]}}],
        "output": str(tmp_path / "out"),
        "data": str(tmp_path / "data.npz"),
        "check": False,
    }
    result = run(payload)["steps"][0]
    assert result["outcome"] == "ok", result["message"]
    assert result["params"]["nodes_to_exclude"] == ["node_2"]
    assert "stay in float, without a valid scale" in result["attempts"][0]["reason"]
    assert "QuantizeLinear" in [node.op_type for node in saved(result).graph.node]


def test_only_a_few_models_are_kept(tmp_path: Path) -> None:
    def models() -> Iterator[onnx.ModelProto]:
        for size in range(1, calibration.CACHE_SIZE + 3):
            yield made(f"g (float[1, {size}] x) => (float[1, {size}] y) {{ y = Relu(x) }}")

    for model in models():
        calibration.calibrate(model, context(tmp_path, model), "MinMax", ["Relu"], {"moving_average": False})
    assert len(calibration._cache) == calibration.CACHE_SIZE


FEEDS = [{"x": np.full(2, number, np.float32)} for number in range(6)]


def with_feeds(folder: Path, feeds: list[dict[str, np.ndarray]] | None) -> PassContext:
    calibration = None if feeds is None else lambda: iter(feeds)
    return PassContext(folder / "model.onnx", folder, Accelerator(), calibration=calibration)


def test_a_reader_starts_again_and_spreads_its_limit_over_the_data(tmp_path: Path) -> None:
    reader = CalibrationReader(with_feeds(tmp_path, FEEDS), limit=2)
    for _ in range(2):
        assert [feed["x"][0] for feed in reader] == [0, 3]
        assert reader.get_next() is None
        reader.rewind()
    assert len(list(CalibrationReader(with_feeds(tmp_path, FEEDS)))) == 6


@pytest.mark.parametrize(("side", "items"), [(1, 256), (640, 27), (4000, 16)])
def test_ranges_need_fewer_items_of_large_inputs(tmp_path: Path, side: int, items: int) -> None:
    feed = {"x": np.zeros((1, 3, side, side), np.uint8)}
    assert enough_items(with_feeds(tmp_path, [feed])) == items


@pytest.mark.parametrize(("feeds", "reason"), [(None, "needs calibration data"), ([], "holds no items")])
def test_missing_data_are_refused(tmp_path: Path, feeds: list[dict[str, np.ndarray]] | None, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        CalibrationReader(with_feeds(tmp_path, feeds))
