"""4-bit float weights."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from bench import cosine, ops, outputs, saved, step
from micro_models import made, normal

from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def matmul(inner: int, count: int = 1) -> onnx.ModelProto:
    weights = {f"w{i}": normal(inner, inner, seed=i) for i in range(count)}
    body = "\n".join(f"h{i + 1} = MatMul (h{i}, w{i})" for i in range(count))
    return made(f"g (float[2, {inner}] h0) => (float[2, {inner}] h{count}) {{ {body} }}", **weights)


@pytest.mark.parametrize("kind", ["FP4", "NF4"])
def test_quantizes_weights_to_4_bit_floats(tmp_path: Path, kind: str) -> None:
    model = matmul(64, 2)
    result = step(tmp_path, model, "bnb4_quantization", quant_type=kind)
    assert "MatMulBnb4" in ops(saved(result))
    feeds = next(synthetic_feeds(model))
    assert cosine(outputs(model, tmp_path, feeds)[0], outputs(saved(result), tmp_path, feeds)[0]) > 0.95
