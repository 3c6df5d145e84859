"""16-bit, 4-bit and float8 quantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import cosine, outputs, saved, step
from micro_models import MODELS

from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


@pytest.mark.parametrize(
    ("name", "params", "close"),
    [
        ("static_16bit", {}, 0.999),
        ("static_16bit", {"activation_type": "QInt16", "weight_type": "QUInt8"}, 0.999),
        ("static_w4", {}, 0.9),
        ("static_w4", {"weight_type": "QUInt4", "activation_type": "QUInt16", "per_channel": True}, 0.95),
    ],
)
def test_other_types_stay_close(tmp_path: Path, name: str, params: dict[str, Any], close: float) -> None:
    model = MODELS["mlp"]()
    result = step(tmp_path, model, name, True, **params)
    assert result["outcome"] == "ok", result["message"]
    assert max(entry.version for entry in saved(result).opset_import if entry.domain == "") >= 21
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > close


@pytest.mark.parametrize("name", ["mlp", "small_cnn"])
def test_the_cpu_computes_float8_with_graph_optimization(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    result = step(tmp_path, model, "fp8_quantization", True)
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    assert cosine(expected, outputs(saved(result), tmp_path, feeds)[0]) > 0.99


def test_float8_requires_enough_bins(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "fp8_quantization", True, num_bins=100)["outcome"] == "refused"
