"""Hard sigmoid in integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench import ops, outputs, saved, step
from micro_models import made, normal

TEXT = """g (float[N, 3, 8, 8] x) => (float[N, 4, 8, 8] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    h = HardSigmoid <alpha = 0.1666667, beta = 0.5> (c)
    y = Mul (c, h)
}"""


@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
def test_quantized_hard_swish_stays_in_integers_and_saturates(tmp_path: Path, kind: str) -> None:
    model = made(TEXT, w=3 * normal(4, 3, 3, 3))
    result = step(tmp_path, model, "static_quantization", True, activation_type=kind)
    assert result["outcome"] == "ok", result["message"]
    quantized = saved(result)
    assert "HardSigmoid" not in ops(quantized)
    assert "Add" in ops(quantized)
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    (expected,), (actual,) = outputs(model, tmp_path, feeds), outputs(quantized, tmp_path, feeds)
    assert np.abs(expected).max() > 6, "some values saturate"
    assert np.abs(actual - expected).max() < 0.05 * np.abs(expected).max()


def test_a_hard_sigmoid_whose_result_stays_a_float_is_kept(tmp_path: Path) -> None:
    model = made(TEXT, w=3 * normal(4, 3, 3, 3))
    result = step(tmp_path, model, "static_quantization", True, op_types=["Conv"])
    assert "HardSigmoid" in ops(saved(result))
