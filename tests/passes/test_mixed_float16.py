"""float16 within a tolerance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from bench import cosine, outputs, saved, step
from micro_models import MODELS, made, normal

from autoopt.model.tensors import weight_bytes
from autoopt.passes.precision import mixed_float16
from autoopt.passes.verification.synthetic_feeds import synthetic_feeds


def overflowing() -> onnx.ModelProto:
    """The first product leaves float16's range, the second one is harmless."""
    return made(
        "g (float[2, 4] x) => (float[2, 4] y)"
        "{ [wide] a = MatMul (x, w)\n [back] b = Mul (a, s)\n [fine] y = MatMul (b, v) }",
        w=normal(4, 4) * np.float32(1e6),
        s=np.array(1e-6, np.float32),
        v=normal(4, 4, seed=1),
    )


def test_nodes_that_float16_ruins_stay_in_float32(tmp_path: Path) -> None:
    model = overflowing()
    feeds = next(synthetic_feeds(model))
    expected = outputs(model, tmp_path, feeds)[0]
    result = step(tmp_path, model, "mixed_float16", True)
    assert result["outcome"] == "ok", result["message"]
    mixed = saved(result)
    found = outputs(mixed, tmp_path, feeds)[0]
    assert np.abs(found - expected).max() <= 0.02 * np.abs(expected).max()
    kinds = {tensor.name: tensor.data_type for tensor in mixed.graph.initializer}
    assert kinds["w"] == onnx.TensorProto.FLOAT
    assert kinds["v"] == onnx.TensorProto.FLOAT16
    plain = saved(step(tmp_path, model, "float16"))
    assert not cosine(expected, np.nan_to_num(outputs(plain, tmp_path, feeds)[0])) > 0.999


def test_an_impossible_tolerance_leaves_the_model_unchanged(tmp_path: Path) -> None:
    assert step(tmp_path, MODELS["mlp"](), "mixed_float16", True, rtol=1e-12)["outcome"] == "unchanged"


def test_nodes_in_branches_that_float16_ruins_stay_in_float32(tmp_path: Path) -> None:
    """Both branches name a value `a`, and read the same weights of the main graph."""
    model = made(
        """g (float[1, 4] x, bool[1] flag) => (float[1, 4] y)
        { z = MatMul (x, v)
          y = If (flag) <
            then_branch = t () => (float[1, 4] p) { a = MatMul (z, w)\n b = Mul (a, s)\n p = MatMul (b, v) },
            else_branch = e () => (float[1, 4] q) { a = MatMul (x, v)\n q = Add (a, z) } > }""",
        w=normal(4, 4) * np.float32(1e6),
        s=np.array(1e-6, np.float32),
        v=normal(4, 4, seed=1),
    )
    result = step(tmp_path, model, "mixed_float16", True)
    assert result["outcome"] == "ok", result["message"]
    mixed = saved(result)
    kinds = {tensor.name: tensor.data_type for tensor in mixed.graph.initializer}
    assert kinds["w"] == onnx.TensorProto.FLOAT
    assert kinds["v"] == onnx.TensorProto.FLOAT16
    for flag in (True, False):
        feeds = {"x": normal(1, 4, seed=2), "flag": np.array([flag])}
        (found,), (expected,) = outputs(mixed, tmp_path, feeds), outputs(model, tmp_path, feeds)
        assert np.abs(found - expected).max() <= 0.02 * np.abs(expected).max()


def test_a_large_model_gets_few_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = overflowing()
    monkeypatch.setattr(mixed_float16, "CONVERTED_BYTES", weight_bytes(model))
    assert step(tmp_path, model, "mixed_float16", True)["outcome"] == "unchanged", "one attempt, with all nodes"
