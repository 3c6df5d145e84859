"""16-bit, 4-bit and float8 quantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import cosine, outputs, saved, step, steps
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


def test_float8_disables_graph_optimization_on_the_cpu(tmp_path: Path) -> None:
    model = MODELS["mlp"]()
    result = step(tmp_path, model, "fp8_quantization", True)
    assert result["session_options"] == {"graph_optimization_level": "disable"}
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    found = outputs(saved(result), tmp_path, feeds, result["session_options"])[0]
    assert cosine(expected, found) > 0.99
    with pytest.raises(Exception, match=r"INVALID_GRAPH|NOT_IMPLEMENTED|float8"):
        outputs(saved(result), tmp_path, feeds)


def test_nothing_raises_the_optimization_level_after_float8(tmp_path: Path) -> None:
    float8 = ("static_quantization", {"weight_type": "QFLOAT8E4M3FN"})
    for name, params in (("session_tuning", {"graph_optimization_level": "all"}), ("ort_graph_optimization", {})):
        *_, result = steps(tmp_path / name, MODELS["mlp"](), [float8, (name, params)], data=True)
        assert result["outcome"] == "refused", result


def test_float8_requires_enough_bins(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "fp8_quantization", True, num_bins=100)["outcome"] == "refused"
